//! The models that are configured.

use super::{Door, Reply, document, refused};
use palyra_agent::{Message, ModelRequest, ModelSettings, Role};
use palyra_api::v1::models_server::Models;
use palyra_api::v1::{ListModelsReply, ListModelsRequest, TestModelReply, TestModelRequest};
use palyra_engine::{EngineError, ErrorKind};
use palyra_protocol::JournalEvent;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response};

#[tonic::async_trait]
impl Models for Door {
    async fn list(&self, request: Request<ListModelsRequest>) -> Reply<ListModelsReply> {
        self.peer(&request)?;
        let models = self.about.runs.models();
        let models_json = models.list().iter().map(document).collect::<Result<_, _>>()?;
        let default_model = models.config().default.clone().unwrap_or_default();
        Ok(Response::new(ListModelsReply { models_json, default_model }))
    }

    async fn test(&self, request: Request<TestModelRequest>) -> Reply<TestModelReply> {
        let peer = self.peer(&request)?;
        let model = request.into_inner().model;
        let models = self.about.runs.models();
        models.authorize(&peer, &model).map_err(refused)?;
        let question = ModelRequest {
            model: String::new(),
            messages: vec![Message::text(Role::User, "Answer with the one word: ready")],
            tools: Vec::new(),
            settings: ModelSettings { max_tokens: Some(16), ..ModelSettings::default() },
        };
        let (sender, mut pieces) = mpsc::channel(16);
        let cancel = CancellationToken::new();
        let asking = async {
            let asked = models.ask((&peer, &model), question, None, &cancel, &sender).await;
            drop(sender);
            asked
        };
        let (asked, ()) = tokio::join!(asking, async { while pieces.recv().await.is_some() {} });
        let usage = asked.answer.as_ref().map(|reply| reply.usage).unwrap_or_default();
        let event = JournalEvent::ModelInvoked {
            by: peer.effective().clone(),
            model,
            answered: asked.answered.clone(),
            input_tokens: usage.input,
            output_tokens: usage.output,
            problem: asked.answer.as_ref().err().cloned(),
            connections: asked.connections,
        };
        self.engine.record_run(&event).await.map_err(refused)?;
        let took_ms = u64::try_from(asked.took.as_millis()).unwrap_or(u64::MAX);
        let reply = asked.answer.map_err(|problem| refused(EngineError::new(ErrorKind::Unavailable, problem)))?;
        let (text, tokens) = (reply.text, usage.input + usage.output);
        Ok(Response::new(TestModelReply { answered: asked.answered, text, took_ms, tokens }))
    }
}
