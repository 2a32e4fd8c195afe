//! The routines' service.

use super::{Door, Reply, document, malformed, refused};
use palyra_api::v1::routines_server::Routines;
use palyra_api::v1::{
    AddRoutineRequest, ListRoutinesReply, ListRoutinesRequest, PauseRoutineRequest, RoutineDocument,
    RoutineHistoryRequest, RoutineRequest,
};
use palyra_engine::EngineError;
use palyra_protocol::{RoutinePlan, SlotKind};
use serde::Serialize;
use tonic::{Request, Response};

/// The largest plan.
const MAX_PLAN: usize = 256 * 1024;

#[tonic::async_trait]
impl Routines for Door {
    async fn add(&self, request: Request<AddRoutineRequest>) -> Reply<RoutineDocument> {
        let peer = self.peer(&request)?;
        let plan = &request.get_ref().plan_json;
        palyra_protocol::json::check_result(plan.as_bytes(), MAX_PLAN, 4).map_err(|e| malformed(e.to_string()))?;
        let plan: RoutinePlan = serde_json::from_str(plan).map_err(|e| malformed(format!("this is no plan: {e}")))?;
        told(self.engine.routine_add(&peer, plan).await)
    }

    async fn list(&self, request: Request<ListRoutinesRequest>) -> Reply<ListRoutinesReply> {
        let peer = self.peer(&request)?;
        let routines = self.engine.routines(&peer).map_err(refused)?;
        let documents_json = routines.iter().map(document).collect::<Result<_, _>>()?;
        Ok(Response::new(ListRoutinesReply { documents_json }))
    }

    async fn show(&self, request: Request<RoutineRequest>) -> Reply<RoutineDocument> {
        let peer = self.peer(&request)?;
        told(self.engine.routine(&peer, &request.get_ref().routine))
    }

    async fn pause(&self, request: Request<PauseRoutineRequest>) -> Reply<RoutineDocument> {
        let peer = self.peer(&request)?;
        let PauseRoutineRequest { routine, reason } = request.into_inner();
        told(self.engine.routine_pause(&peer, &routine, reason).await)
    }

    async fn resume(&self, request: Request<RoutineRequest>) -> Reply<RoutineDocument> {
        let peer = self.peer(&request)?;
        told(self.engine.routine_resume(&peer, &request.get_ref().routine).await)
    }

    async fn run(&self, request: Request<RoutineRequest>) -> Reply<RoutineDocument> {
        let peer = self.peer(&request)?;
        told(self.engine.routine_run(&peer, &request.get_ref().routine, SlotKind::Manual).await)
    }

    async fn rehearse(&self, request: Request<RoutineRequest>) -> Reply<RoutineDocument> {
        let peer = self.peer(&request)?;
        told(self.engine.routine_run(&peer, &request.get_ref().routine, SlotKind::Rehearsal).await)
    }

    async fn remove(&self, request: Request<RoutineRequest>) -> Reply<RoutineDocument> {
        let peer = self.peer(&request)?;
        told(self.engine.routine_remove(&peer, &request.get_ref().routine).await)
    }

    async fn history(&self, request: Request<RoutineHistoryRequest>) -> Reply<ListRoutinesReply> {
        let peer = self.peer(&request)?;
        let RoutineHistoryRequest { routine, limit } = request.get_ref();
        let slots = self.engine.routine_history(&peer, routine, *limit as usize).await.map_err(refused)?;
        let documents_json = slots.iter().map(document).collect::<Result<_, _>>()?;
        Ok(Response::new(ListRoutinesReply { documents_json }))
    }
}

fn told<T: Serialize>(record: Result<T, EngineError>) -> Reply<RoutineDocument> {
    Ok(Response::new(RoutineDocument { document_json: document(&record.map_err(refused)?)? }))
}
