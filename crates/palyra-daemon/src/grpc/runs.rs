//! Agent runs.

use super::{Door, Reply, Streamed, document, malformed, optional, parsed, refused};
use palyra_agent::runs::Watch;
use palyra_agent::{Message, Role, StartRun};
use palyra_api::v1::runs_server::Runs;
use palyra_api::v1::{
    CancelRunRequest, GetRunRequest, ListRunsReply, ListRunsRequest, ResumeRunRequest, RunReply, RunUpdate,
    StartRunRequest, StreamRunRequest,
};
use palyra_engine::{Engine, VerifiedPeer};
use palyra_protocol::RunId;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response};

/// How many updates wait for a slow client.
const BACKLOG: usize = 64;

#[tonic::async_trait]
impl Runs for Door {
    type StartStream = Streamed<RunUpdate>;
    type StreamStream = Streamed<RunUpdate>;

    async fn start(&self, request: Request<StartRunRequest>) -> Reply<Self::StartStream> {
        let peer = self.peer(&request)?;
        let StartRunRequest { prompt, model, agent, session } = request.into_inner();
        if prompt.trim().is_empty() {
            return Err(malformed("say what the run is about"));
        }
        let text = |text: String| Some(text).filter(|text| !text.is_empty());
        let start = StartRun {
            model: text(model),
            agent: text(agent),
            session: optional(&session)?,
            input: vec![Message::text(Role::User, prompt)],
            ..StartRun::default()
        };
        let started = self.about.runs.start(&peer, start).await.map_err(refused)?;
        let (sender, receiver) = mpsc::channel(BACKLOG);
        tokio::spawn(pass_on(self.engine.clone(), peer, started.watch, sender));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn get(&self, request: Request<GetRunRequest>) -> Reply<RunReply> {
        let peer = self.peer(&request)?;
        let run: RunId = parsed(&request.get_ref().run)?;
        let shown = self.about.runs.show(&peer, &run).await.map_err(refused)?;
        Ok(Response::new(RunReply { run_json: document(&shown)? }))
    }

    async fn list(&self, request: Request<ListRunsRequest>) -> Reply<ListRunsReply> {
        let peer = self.peer(&request)?;
        let ListRunsRequest { before, most } = request.into_inner();
        let before = Some(before).filter(|before| *before > 0);
        let (runs, last) = self.about.runs.list(&peer, before, most).await.map_err(refused)?;
        let runs_json = runs.iter().map(document).collect::<Result<_, _>>()?;
        Ok(Response::new(ListRunsReply { runs_json, go_on_before: last.unwrap_or(0) }))
    }

    async fn stream(&self, request: Request<StreamRunRequest>) -> Reply<Self::StreamStream> {
        let peer = self.peer(&request)?;
        let run: RunId = parsed(&request.get_ref().run)?;
        let (shown, watch) = self.about.runs.watch(&peer, &run).await.map_err(refused)?;
        let (sender, receiver) = mpsc::channel(BACKLOG);
        let first = RunUpdate { run_json: document(&shown)?, news_json: String::new() };
        let engine = self.engine.clone();
        tokio::spawn(async move {
            if sender.send(Ok(first)).await.is_ok()
                && let Some(watch) = watch
            {
                pass_on(engine, peer, watch, sender).await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn cancel(&self, request: Request<CancelRunRequest>) -> Reply<RunReply> {
        let peer = self.peer(&request)?;
        let run: RunId = parsed(&request.get_ref().run)?;
        let shown = self.about.runs.cancel(&peer, &run).await.map_err(refused)?;
        Ok(Response::new(RunReply { run_json: document(&shown)? }))
    }

    async fn resume(&self, request: Request<ResumeRunRequest>) -> Reply<RunReply> {
        let peer = self.peer(&request)?;
        let run: RunId = parsed(&request.get_ref().run)?;
        self.about.runs.resume(&peer, &run).await.map_err(refused)?;
        let shown = self.about.runs.show(&peer, &run).await.map_err(refused)?;
        Ok(Response::new(RunReply { run_json: document(&shown)? }))
    }
}

/// Passes a run's news on. The client's going away stops the passing on, not the run.
async fn pass_on(
    engine: Engine,
    peer: Arc<VerifiedPeer>,
    mut watch: Watch,
    sender: mpsc::Sender<Result<RunUpdate, tonic::Status>>,
) {
    let mut shut_out = std::pin::pin!(engine.shut_out(&peer));
    loop {
        let update = tokio::select! {
            biased;
            error = &mut shut_out => Err(refused(error)),
            news = watch.next() => match news {
                Some(news) => document(&*news).map(|news_json| RunUpdate { run_json: String::new(), news_json }),
                None => return,
            },
        };
        let last = update.is_err();
        if sender.send(update).await.is_err() || last {
            return;
        }
    }
}
