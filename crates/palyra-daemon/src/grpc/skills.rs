//! `Skills`: what people do with skills. Artifacts come in pieces, because a component of a large language is larger
//! than a message.

use super::{Door, Reply, Streamed, document, malformed, optional, parsed, refused};
use palyra_api::v1::skills_server::Skills;
use palyra_api::v1::{
    CheckSkillsRequest, DiffSkillsRequest, InstallSkillNews, ListSkillsRequest, QuarantineSkillRequest,
    ReleaseSkillRequest, ReplaySkillRequest, SkillChunk, SkillDocument, SkillRequest, SkillSourceRequest,
    TrustAddRequest, TrustKeyRequest, TrustListRequest, TrustRotateRequest,
};
use palyra_engine::{EngineError, InstallNews, InstallOptions, News, SkillId, SkillSource};
use palyra_protocol::{CallId, Timestamp};
use serde::Serialize;
use serde_json::json;
use std::path::PathBuf;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

/// The largest artifact that is taken.
const MOST_ARTIFACT_BYTES: usize = 128 << 20;
/// The size of a piece that is sent.
const PIECE: usize = 1 << 20;
/// How many news may wait for a slow client.
const BACKLOG: usize = 64;

fn told<T: Serialize>(record: Result<T, EngineError>) -> Reply<SkillDocument> {
    Ok(Response::new(SkillDocument { document_json: document(&record.map_err(refused)?)? }))
}

/// Puts an artifact together, and takes the options from its first piece.
async fn collected(mut pieces: Streaming<SkillChunk>) -> Result<(Vec<u8>, InstallOptions), Status> {
    let (mut bytes, mut options) = (Vec::new(), None);
    while let Some(piece) = pieces.next().await {
        let SkillChunk { bytes: more, allow_tofu, accept_changes, ask } = piece?;
        options.get_or_insert(InstallOptions { allow_tofu, accept_changes, ask });
        if bytes.len() + more.len() > MOST_ARTIFACT_BYTES {
            return Err(malformed(format!("an artifact has at most {MOST_ARTIFACT_BYTES} bytes")));
        }
        bytes.extend_from_slice(&more);
    }
    Ok((bytes, options.unwrap_or_default()))
}

impl Door {
    /// The keys after a change.
    fn keys<T>(&self, request: &Request<T>) -> Reply<SkillDocument> {
        let peer = self.peer(request)?;
        told(self.engine.trusted_keys(&peer))
    }
}

fn source(directory: &str, registry: bool, key: &str) -> Result<SkillSource, Status> {
    let directory = PathBuf::from(directory);
    if !directory.is_absolute() {
        return Err(malformed("a source is named by an absolute path"));
    }
    Ok(SkillSource { directory, is_registry: registry, key: optional(key)? })
}

#[tonic::async_trait]
impl Skills for Door {
    type InstallStream = Streamed<InstallSkillNews>;
    type FetchStream = Streamed<SkillChunk>;

    async fn available(&self, request: Request<SkillSourceRequest>) -> Reply<SkillDocument> {
        let peer = self.peer(&request)?;
        let SkillSourceRequest { directory, registry, registry_key, .. } = request.into_inner();
        told(self.engine.skill_source(&peer, source(&directory, registry, &registry_key)?).await)
    }

    async fn fetch(&self, request: Request<SkillSourceRequest>) -> Reply<Self::FetchStream> {
        let peer = self.peer(&request)?;
        let SkillSourceRequest { directory, registry, registry_key, skill, requirement } = request.into_inner();
        let source = source(&directory, registry, &registry_key)?;
        let wanted = if requirement.is_empty() { "*" } else { &requirement };
        let bytes = self.engine.fetch_skill(&peer, source, (parsed(&skill)?, wanted)).await.map_err(refused)?;
        let piece = |piece: &[u8]| Ok(SkillChunk { bytes: piece.to_vec(), ..SkillChunk::default() });
        let pieces: Vec<_> = bytes.chunks(PIECE).map(piece).collect();
        Ok(Response::new(Box::pin(tokio_stream::iter(pieces))))
    }

    async fn list(&self, request: Request<ListSkillsRequest>) -> Reply<SkillDocument> {
        let peer = self.peer(&request)?;
        told(self.engine.skill_list(&peer))
    }

    async fn info(&self, request: Request<SkillRequest>) -> Reply<SkillDocument> {
        let peer = self.peer(&request)?;
        let SkillRequest { skill, version } = request.into_inner();
        told(self.engine.skill_info(&peer, &parsed(&skill)?, optional(&version)?.as_ref()))
    }

    async fn examine(&self, request: Request<Streaming<SkillChunk>>) -> Reply<SkillDocument> {
        let peer = self.peer(&request)?;
        let (bytes, _) = collected(request.into_inner()).await?;
        told(self.engine.examine_skill(&peer, bytes).await)
    }

    async fn install(&self, request: Request<Streaming<SkillChunk>>) -> Reply<Self::InstallStream> {
        let peer = self.peer(&request)?;
        let (bytes, options) = collected(request.into_inner()).await?;
        let (sender, stream) = mpsc::channel(BACKLOG);
        let engine = self.engine.clone();
        // The installation goes its way whether or not anybody keeps listening.
        tokio::spawn(async move {
            let (news, mut progress) = mpsc::unbounded_channel();
            let tell = sender.clone();
            let telling = tokio::spawn(async move {
                while let Some(news) = progress.recv().await {
                    // A client that is slow misses progress, never the end.
                    drop(tell.try_send(Ok(wire(news))));
                }
            });
            let installed = engine.install_skill(&peer, bytes, options, News::to(news)).await.map_err(refused);
            drop(telling.await);
            let end = installed.and_then(|info| {
                Ok(InstallSkillNews { document_json: document(&info)?, ..InstallSkillNews::default() })
            });
            drop(sender.send(end).await);
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    async fn diff(&self, request: Request<DiffSkillsRequest>) -> Reply<SkillDocument> {
        let peer = self.peer(&request)?;
        let DiffSkillsRequest { skill, from, to } = request.into_inner();
        told(self.engine.compare_skills(&peer, parsed(&skill)?, (parsed(&from)?, parsed(&to)?)).await)
    }

    async fn check(&self, request: Request<CheckSkillsRequest>) -> Reply<SkillDocument> {
        let peer = self.peer(&request)?;
        told(self.engine.check_skills(&peer).await)
    }

    async fn quarantine(&self, request: Request<QuarantineSkillRequest>) -> Reply<SkillDocument> {
        let peer = self.peer(&request)?;
        let QuarantineSkillRequest { skill, version, reason } = request.into_inner();
        told(self.engine.quarantine_skill(&peer, parsed(&skill)?, optional(&version)?, &reason).await)
    }

    async fn release(&self, request: Request<ReleaseSkillRequest>) -> Reply<SkillDocument> {
        let peer = self.peer(&request)?;
        let ReleaseSkillRequest { skill, version, reason, overrides } = request.into_inner();
        told(self.engine.release_skill(&peer, parsed(&skill)?, optional(&version)?, (overrides, &reason)).await)
    }

    async fn r#use(&self, request: Request<SkillRequest>) -> Reply<SkillDocument> {
        let peer = self.peer(&request)?;
        let SkillRequest { skill, version } = request.into_inner();
        told(self.engine.use_skill(&peer, parsed(&skill)?, parsed(&version)?).await)
    }

    async fn remove(&self, request: Request<SkillRequest>) -> Reply<SkillDocument> {
        let peer = self.peer(&request)?;
        let SkillRequest { skill, version } = request.into_inner();
        let skill: SkillId = parsed(&skill)?;
        let removed = self.engine.remove_skill(&peer, skill.clone(), optional(&version)?).await;
        told(removed.map(|versions| json!({ "skill": skill, "removed": versions })))
    }

    async fn replay(&self, request: Request<ReplaySkillRequest>) -> Reply<SkillDocument> {
        let peer = self.peer(&request)?;
        let call: CallId = parsed(&request.get_ref().call_id)?;
        told(self.engine.replay_skill_call(&peer, &call).await)
    }

    async fn trust_list(&self, request: Request<TrustListRequest>) -> Reply<SkillDocument> {
        self.keys(&request)
    }

    async fn trust_add(&self, request: Request<TrustAddRequest>) -> Reply<SkillDocument> {
        let peer = self.peer(&request)?;
        let TrustAddRequest { publisher, public_key, expires_at_unix_ms } = request.get_ref();
        let expires_at = (*expires_at_unix_ms > 0).then(|| Timestamp::from_unix_ms(*expires_at_unix_ms));
        let (publisher, public_key) = (parsed(publisher)?, parsed(public_key)?);
        self.engine.trust_key(&peer, publisher, public_key, expires_at).await.map_err(refused)?;
        self.keys(&request)
    }

    async fn trust_remove(&self, request: Request<TrustKeyRequest>) -> Reply<SkillDocument> {
        let peer = self.peer(&request)?;
        self.engine.distrust_key(&peer, parsed(&request.get_ref().key_id)?).await.map_err(refused)?;
        self.keys(&request)
    }

    async fn trust_revoke(&self, request: Request<TrustKeyRequest>) -> Reply<SkillDocument> {
        let peer = self.peer(&request)?;
        let TrustKeyRequest { key_id, reason } = request.get_ref();
        self.engine.revoke_key(&peer, parsed(key_id)?, reason.clone()).await.map_err(refused)?;
        self.keys(&request)
    }

    async fn trust_rotate(&self, request: Request<TrustRotateRequest>) -> Reply<SkillDocument> {
        let peer = self.peer(&request)?;
        self.engine.rotate_key(&peer, &request.get_ref().statement).await.map_err(refused)?;
        self.keys(&request)
    }

    async fn trust_reset_versions(&self, request: Request<SkillRequest>) -> Reply<SkillDocument> {
        let peer = self.peer(&request)?;
        self.engine.reset_versions(&peer, parsed(&request.get_ref().skill)?).await.map_err(refused)?;
        self.keys(&request)
    }

    async fn trust_reset(&self, request: Request<TrustListRequest>) -> Reply<SkillDocument> {
        let peer = self.peer(&request)?;
        self.engine.reset_trust(&peer).await.map_err(refused)?;
        self.keys(&request)
    }
}

fn wire(news: InstallNews) -> InstallSkillNews {
    match news {
        InstallNews::Waiting(approval) => InstallSkillNews {
            step: "waiting for a person".to_owned(),
            approval_id: approval.to_string(),
            ..InstallSkillNews::default()
        },
        InstallNews::Step(step) => InstallSkillNews { step: step.to_owned(), ..InstallSkillNews::default() },
        InstallNews::Compiling { module, done, functions } => {
            InstallSkillNews { step: "compiling".to_owned(), module, done, functions, ..InstallSkillNews::default() }
        }
    }
}
