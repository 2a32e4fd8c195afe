//! The prompts of routines: runs that the engine's scheduler orders.
//!
//! A run's id is its slot's, so a slot has one run however often it is taken up. What is on record is gone on with, and
//! the conversation of one slot does not go on in the next.

use super::recorded::RunShown;
use super::start::{RunPlace, StartRun};
use super::{Inner, RunNews, Runs, Watch, closing};
use crate::config::{AgentConfig, DEFAULT_BUDGET};
use crate::conversation::{Message, Role};
use palyra_engine::routines::{RunOrder, RunProgress, SlotEnd};
use palyra_engine::{EngineError, ErrorKind};
use palyra_protocol::{CallId, CallState, Principal, Problem, RoutineAction, RoutinePlan, RunId, RunState};
use std::pin::Pin;
use std::sync::Weak;
use tokio::sync::watch;

/// The runs as the scheduler sees them. The engine holds this, so it does not hold the runs.
#[derive(Debug)]
struct OfRoutines(Weak<Inner>);

impl palyra_engine::routines::StartRun for OfRoutines {
    fn check(&self, routine: &RoutinePlan) -> Result<(), Problem> {
        match self.0.upgrade() {
            Some(inner) => Runs(inner).can_carry_out(routine).map_err(|error| error.problem),
            None => Err(closing()),
        }
    }

    fn run(&self, order: RunOrder) -> Pin<Box<dyn Future<Output = SlotEnd> + Send>> {
        let runs = self.0.upgrade().map(Runs);
        Box::pin(async move {
            match runs {
                Some(runs) => runs.carry_out_order(order).await,
                None => SlotEnd::LeftOpen,
            }
        })
    }
}

impl Runs {
    /// Has the prompts of routines carried out here.
    pub fn serve_routines(&self) {
        self.engine().set_run_starter(std::sync::Arc::new(OfRoutines(std::sync::Arc::downgrade(&self.0))));
    }

    fn can_carry_out(&self, routine: &RoutinePlan) -> Result<(), EngineError> {
        let RoutineAction::Prompt { model, .. } = &routine.action else { return Ok(()) };
        let model = self.model(model.as_deref(), self.agent_of(&routine.principal))?;
        match model.strip_prefix("replay:") {
            Some(run) => super::start::parse_run(run).map(drop),
            None => self.models().resolve(&model).map(drop),
        }
    }

    /// The configured agent of this name. A routine may also run as one that is not configured, with the default model.
    fn agent_of(&self, principal: &Principal) -> Option<&AgentConfig> {
        self.agent(principal.name()).ok().map(|(_, config)| config)
    }

    async fn carry_out_order(&self, order: RunOrder) -> SlotEnd {
        let (run, progress) = (order.run.clone(), order.progress.clone());
        if let Err(error) = self.begin_or_go_on(order).await {
            return match error.problem.code.as_str() {
                "shutting_down" => SlotEnd::LeftOpen,
                _ => SlotEnd::Done(Err(error.problem)),
            };
        }
        self.follow_to_end(&run, &progress).await
    }

    async fn begin_or_go_on(&self, order: RunOrder) -> Result<(), EngineError> {
        let RunOrder { routine, run, session, peer, progress: _ } = order;
        match self.engine().recorded_run(&run).await {
            Ok(history) if self.is_live(&run) || RunShown::of(&history).state.is_terminal() => return Ok(()),
            Ok(_) => return self.carry_on_recorded(&run).await,
            Err(error) if error.kind == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let plan = &routine.plan;
        let RoutineAction::Prompt { text, model } = &plan.action else { return Ok(()) };
        let agent = self.agent_of(&plan.principal);
        let start = StartRun {
            model: model.clone(),
            agent: agent.map(|_| plan.principal.name().to_owned()),
            input: vec![Message::text(Role::User, text.clone())],
            ..StartRun::default()
        };
        let budget = plan.budget.within(agent.map_or(DEFAULT_BUDGET, |config| config.budget));
        let place = RunPlace { run, session, continues: None, budget };
        self.begin(peer, start, place).await.map(drop)
    }

    async fn follow_to_end(&self, run: &RunId, progress: &watch::Sender<RunProgress>) -> SlotEnd {
        progress.send_replace(RunProgress::Running);
        let live = self.lock().get(run).cloned();
        if let Some(live) = live {
            follow(live.watch(), progress).await;
            live.ended().await;
        }
        match self.engine().recorded_run(run).await {
            Ok(history) => end_of(&RunShown::of(&history)),
            Err(error) => SlotEnd::Done(Err(error.problem)),
        }
    }
}

/// Tells the scheduler whether a person is waited for.
async fn follow(mut watch: Watch, progress: &watch::Sender<RunProgress>) {
    let mut asked: Vec<CallId> = Vec::new();
    while let Some(news) = watch.next().await {
        match &*news {
            RunNews::Approval { call_id, .. } => asked.push(call_id.clone()),
            RunNews::Call { call_id, state, .. } if *state != CallState::AwaitingApproval => {
                asked.retain(|call| call != call_id);
            }
            RunNews::Result { result, .. } => asked.retain(|call| Some(call) != result.call_id.as_ref()),
            _ => continue,
        }
        let now = asked.first().map_or(RunProgress::Running, |call| RunProgress::Waiting(call.clone()));
        progress.send_if_modified(|before| {
            let changed = *before != now;
            *before = now;
            changed
        });
    }
}

/// How a slot ended by its run. A call that no person answered in time is not done, whatever the model made of that.
fn end_of(shown: &RunShown) -> SlotEnd {
    let mut results = shown.turns.iter().filter_map(|turn| turn.results.as_ref()).flatten();
    let unanswered = results.find(|result| result.state == Some(CallState::Expired));
    match (shown.state, unanswered) {
        (RunState::Running | RunState::Interrupted, _) => SlotEnd::LeftOpen,
        (RunState::Completed, None) => SlotEnd::Done(Ok(())),
        (RunState::Completed, Some(result)) => {
            let message = format!("nobody answered in time whether `{}` may be called", result.tool);
            let hint = "rehearse the routine: what you approve is allowed to it from then on";
            SlotEnd::Done(Err(Problem::new("approval_expired", message, hint)))
        }
        (state, _) => {
            let plain = || Problem::plain(state.as_str(), format!("the run is {}", state.as_str()));
            SlotEnd::Done(Err(shown.problem.clone().unwrap_or_else(plain)))
        }
    }
}
