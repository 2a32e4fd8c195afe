//! What calls changed, and putting it back.

use super::{Door, Reply, document, optional, refused};
use palyra_api::v1::effects_server::Effects;
use palyra_api::v1::{
    DiffEffectsReply, DiffEffectsRequest, ListEffectsReply, ListEffectsRequest, ShowEffectsReply, ShowEffectsRequest,
    UndoReply, UndoRequest,
};
use palyra_engine::UndoTarget;
use tonic::{Request, Response};

#[tonic::async_trait]
impl Effects for Door {
    async fn list(&self, request: Request<ListEffectsRequest>) -> Reply<ListEffectsReply> {
        let peer = self.peer(&request)?;
        let session = optional(&request.get_ref().session)?;
        let effects = self.engine.effects_kept(&peer, session.as_ref()).await.map_err(refused)?;
        let effects_json = effects.iter().map(document).collect::<Result<_, _>>()?;
        Ok(Response::new(ListEffectsReply { effects_json }))
    }

    async fn show(&self, request: Request<ShowEffectsRequest>) -> Reply<ShowEffectsReply> {
        let peer = self.peer(&request)?;
        let effects = self.engine.effects_of(&peer, &request.get_ref().id).await.map_err(refused)?;
        let effects_json = effects.iter().map(document).collect::<Result<_, _>>()?;
        Ok(Response::new(ShowEffectsReply { effects_json }))
    }

    async fn diff(&self, request: Request<DiffEffectsRequest>) -> Reply<DiffEffectsReply> {
        let peer = self.peer(&request)?;
        let DiffEffectsRequest { id, path } = request.get_ref();
        let diff = self.engine.effect_diff(&peer, id, optional(path)?).await.map_err(refused)?;
        Ok(Response::new(DiffEffectsReply { diff }))
    }

    async fn undo(&self, request: Request<UndoRequest>) -> Reply<UndoReply> {
        let peer = self.peer(&request)?;
        let UndoRequest { id, dry_run } = request.into_inner();
        let report = self.engine.undo(&peer, UndoTarget { id, dry_run }).await.map_err(refused)?;
        Ok(Response::new(UndoReply { report_json: document(&report)? }))
    }
}
