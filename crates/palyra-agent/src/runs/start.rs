//! Beginning a run.

use super::Runs;
use super::live::{RunNews, Watch};
use super::recorded::RunShown;
use crate::config::{AgentConfig, DEFAULT_BUDGET};
use crate::conversation::{Message, ToolSpec};
use crate::providers::ModelSettings;
use palyra_engine::{EngineError, ErrorKind, VerifiedPeer};
use palyra_protocol::{
    JournalEvent, PolicyAction, Principal, PrincipalKind, Problem, RequestId, RunBudget, RunId, RunOpened, SessionId,
};
use serde_json::Value;
use std::sync::Arc;

/// What a model is told where the agent has no instructions of its own.
const PLAIN_SYSTEM: &str = "You act on a real machine through tools. Every call is decided by the operator's policy, may \
    wait for a person's approval, and is recorded. A call that is denied says why and what would help: act on that, and do \
    not repeat it unchanged.";

/// Which of Palyra's tools a run is offered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum WantedTools {
    /// The agent's, or all that the peer may see.
    #[default]
    Usual,
    /// These, by canonical name or alias, of those that it could have.
    Only(Vec<String>),
}

/// As what a door asks for a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AskedAs {
    /// A run.
    #[default]
    Run,
    /// A chat of the OpenAI-compatible door.
    Chat,
}

impl AskedAs {
    fn action(self) -> PolicyAction {
        match self {
            Self::Run => PolicyAction::RunStart,
            Self::Chat => PolicyAction::CompatChatCreate,
        }
    }
}

/// What a run is to be.
#[derive(Debug, Default)]
pub struct StartRun {
    /// The model: an alias, `provider/model`, or `replay:RUN`. The agent's, or the default, where none is named.
    pub model: Option<String>,
    /// The configured agent, by name: its model, instructions, tools and budget.
    pub agent: Option<String>,
    /// The session to go on in; a fresh one where none is named.
    pub session: Option<SessionId>,
    /// What begins it.
    pub input: Vec<Message>,
    /// Instructions that are added to the agent's.
    pub system: String,
    /// Palyra's tools.
    pub tools: WantedTools,
    /// Tools that only the caller has.
    pub caller_tools: Vec<ToolSpec>,
    /// How the model is to answer.
    pub settings: ModelSettings,
    /// As what it is asked for.
    pub asked_as: AskedAs,
    /// The request that asks for it.
    pub request: Option<RequestId>,
}

/// Where a run stands among others, and how far it may go.
#[derive(Debug)]
pub(super) struct RunPlace {
    pub(super) run: RunId,
    pub(super) session: SessionId,
    /// The run whose conversation it goes on with.
    pub(super) continues: Option<RunId>,
    pub(super) budget: RunBudget,
}

/// A run that has begun.
#[derive(Debug)]
pub struct StartedRun {
    /// The run.
    pub run: RunId,
    /// Its session.
    pub session: SessionId,
    /// What happens in it, from the beginning.
    pub watch: Watch,
}

impl Runs {
    /// Begins a run: on record before this returns.
    ///
    /// # Errors
    /// The peer may not, or what is asked for does not exist.
    pub async fn start(&self, peer: &VerifiedPeer, start: StartRun) -> Result<StartedRun, EngineError> {
        let agent = start.agent.as_deref().map(|name| self.agent(name)).transpose()?;
        let own = self.engine().peer_of_run(peer, agent.as_ref().map(|(principal, _)| principal.clone()))?;
        let place = RunPlace {
            run: RunId::mint(),
            session: start.session.clone().unwrap_or_else(SessionId::mint),
            continues: match &start.session {
                Some(session) => self.engine().last_run_of(&own, session).await?,
                None => None,
            },
            budget: agent.map_or(DEFAULT_BUDGET, |(_, config)| config.budget),
        };
        self.begin(own, start, place).await
    }

    /// Begins a run as this peer, whatever door it comes from.
    pub(super) async fn begin(
        &self,
        own: VerifiedPeer,
        start: StartRun,
        place: RunPlace,
    ) -> Result<StartedRun, EngineError> {
        let engine = self.engine();
        let agent = start.agent.as_deref().map(|name| self.agent(name)).transpose()?.map(|(_, config)| config);
        engine.authorize_run(&own, start.asked_as.action())?;
        let model = self.model(start.model.as_deref(), agent)?;
        match model.strip_prefix("replay:") {
            Some(run) => drop(engine.run_history(&own, &parse_run(run)?).await?),
            None => {
                self.models().resolve(&model)?;
                engine.authorize_model(&own, &model)?;
            }
        }
        let tools = self.offered(&own, agent.and_then(|config| config.tools.as_deref()), &start.tools)?;
        no_collision(&tools, &start.caller_tools, &engine.catalog())?;
        let own_system = agent.map_or(PLAIN_SYSTEM, |config| config.system.as_str());
        let system = [own_system, start.system.as_str()].into_iter().filter(|text| !text.is_empty());
        let RunPlace { run, session, continues, budget } = place;
        let opened = RunOpened {
            origin: engine.origin_of_run(&own, &session, &run, start.request),
            run,
            session,
            agent: start.agent,
            model,
            input: value(&start.input)?,
            system: system.collect::<Vec<_>>().join("\n\n"),
            tools,
            caller_tools: if start.caller_tools.is_empty() { Value::Null } else { value(&start.caller_tools)? },
            settings: value(&start.settings)?,
            budget,
            continues,
        };
        self.open(Arc::new(own), opened).await
    }

    async fn open(&self, own: Arc<VerifiedPeer>, opened: RunOpened) -> Result<StartedRun, EngineError> {
        let (run, session, model) = (opened.run.clone(), opened.session.clone(), opened.model.clone());
        let live = self.enter(&run)?;
        let watch = live.watch_from_the_beginning();
        let begun = async {
            self.engine().record_run(&JournalEvent::RunOpened(Box::new(opened))).await?;
            self.active(&run, own, Arc::clone(&live)).await
        };
        match begun.await {
            Ok(active) => {
                live.tell(RunNews::Opened { run: run.clone(), session: session.clone(), model }).await;
                self.spawn(active);
                Ok(StartedRun { run, session, watch })
            }
            Err(error) => {
                self.leave(&run);
                Err(error)
            }
        }
    }

    pub(super) fn agent(&self, name: &str) -> Result<(Principal, &AgentConfig), EngineError> {
        let plain = name.strip_prefix("agent:").unwrap_or(name);
        let config = self.models().config().agents.get(plain);
        let unknown = || {
            let problem = Problem::new(
                "unknown_agent",
                format!("there is no agent `{}`", plain.chars().take(80).collect::<String>()),
                "`[models.agents.NAME]` in palyra.toml makes one",
            );
            EngineError::new(ErrorKind::NotFound, problem)
        };
        let principal = Principal::new(PrincipalKind::Agent, plain).map_err(|_| unknown())?;
        config.map(|config| (principal, config)).ok_or_else(unknown)
    }

    /// The model that is named, or the agent's, or the default.
    pub(super) fn model(&self, named: Option<&str>, agent: Option<&AgentConfig>) -> Result<String, EngineError> {
        let of_agent = agent.map(|config| config.model.as_str());
        let named = named.or(of_agent).or(self.models().config().default.as_deref());
        named.map(str::to_owned).ok_or_else(|| {
            let hint = "name one with `--model`, or set `default` in `[models]` of palyra.toml";
            EngineError::invalid("no_model", "no model is named, and there is no default", hint)
        })
    }

    /// The tools that a run is offered, by canonical name: never more than the agent's list and what the peer may see.
    fn offered(
        &self,
        peer: &VerifiedPeer,
        of_agent: Option<&[palyra_protocol::ToolName]>,
        wanted: &WantedTools,
    ) -> Result<Vec<String>, EngineError> {
        let catalog = self.engine().catalog();
        let seen =
            catalog.iter().map(|tool| tool.name()).filter(|name| self.engine().tool_is_seen(peer, name.as_str()));
        let mut tools: Vec<String> = seen
            .filter(|name| of_agent.is_none_or(|list| list.contains(name)))
            .map(|name| name.as_str().to_owned())
            .collect();
        if let WantedTools::Only(wanted) = wanted {
            let canonical = |name: &String| catalog.by_alias(name).map_or_else(|| name.clone(), ToString::to_string);
            let wanted: Vec<String> = wanted.iter().map(canonical).collect();
            if let Some(missing) = wanted.iter().find(|name| !tools.contains(name)) {
                let message =
                    format!("the tool `{}` is not offered here", missing.chars().take(80).collect::<String>());
                return Err(EngineError::invalid("tool_not_offered", message, "`palyra tools list` shows the tools"));
            }
            tools.retain(|name| wanted.contains(name));
        }
        Ok(tools)
    }

    /// The conversation that a run goes on from: of the runs before it in its session, as much as is kept.
    pub(super) async fn earlier(&self, first: Option<RunId>) -> Result<Vec<Message>, EngineError> {
        let mut runs = Vec::new();
        let mut next = first;
        while let Some(run) = next.take().filter(|_| runs.len() < MOST_EARLIER) {
            let history = self.engine().recorded_run(&run).await?;
            next.clone_from(&history.opened.opened.continues);
            runs.push(RunShown::of(&history));
        }
        Ok(runs.iter().rev().flat_map(|run| complete(run.messages())).collect())
    }
}

/// How many runs of a session are told again to the model.
const MOST_EARLIER: usize = 32;

/// A conversation without an answer whose calls were never carried out: providers refuse one.
fn complete(mut messages: Vec<Message>) -> Vec<Message> {
    let asks =
        |message: &Message| message.parts.iter().any(|part| matches!(part, crate::conversation::Part::ToolCall { .. }));
    while messages.last().is_some_and(asks) {
        messages.pop();
    }
    messages
}

/// Refuses a caller's tool that has the name of one of Palyra's.
fn no_collision(own: &[String], callers: &[ToolSpec], catalog: &palyra_engine::ToolCatalog) -> Result<(), EngineError> {
    let taken = |spec: &&ToolSpec| {
        catalog.by_alias(&spec.name).is_some_and(|name| own.iter().any(|own| own == name.as_str()))
            || own.contains(&spec.name)
    };
    match callers.iter().find(taken) {
        None => Ok(()),
        Some(spec) => {
            let message = format!("the tool `{}` is one of Palyra's, which run here", spec.name);
            Err(EngineError::invalid("tool_name_taken", message, "give your tool another name"))
        }
    }
}

pub(super) fn parse_run(text: &str) -> Result<RunId, EngineError> {
    text.parse()
        .map_err(|_| EngineError::invalid("malformed_request", "this names no run", "`palyra runs list` shows them"))
}

fn value<T: serde::Serialize>(thing: &T) -> Result<Value, EngineError> {
    serde_json::to_value(thing)
        .map_err(|e| EngineError::invalid("malformed_request", e.to_string(), "send other input"))
}

/// How much of a budget is left, if any.
pub(super) fn left(budget: &RunBudget, spent: &super::recorded::Spent) -> Result<std::time::Duration, Problem> {
    let used_up = |what: &str, limit: u64| {
        let message = format!("the run has used up its {limit} {what}");
        Problem::new(
            "run_over_budget",
            message,
            "start a new run in the same session, or give the agent a larger budget",
        )
    };
    if spent.model_calls > budget.model_calls {
        return Err(used_up("calls to the model", budget.model_calls));
    }
    if spent.input_tokens + spent.output_tokens >= budget.tokens {
        return Err(used_up("tokens", budget.tokens));
    }
    let limit = budget.seconds.saturating_mul(1000);
    match limit.checked_sub(spent.active_ms).filter(|left| *left > 0) {
        Some(left) => Ok(std::time::Duration::from_millis(left)),
        None => Err(used_up("seconds", budget.seconds)),
    }
}
