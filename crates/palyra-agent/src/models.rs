//! The models that are configured: found by name, asked in the order of their fallbacks.
//!
//! A provider is reached by a rule made of its own address and by nothing else, so that no call of an agent reaches it
//! by that rule, and a key goes nowhere but to its provider.

use crate::client::{CallContext, Endpoint, ModelClient, ModelError};
use crate::config::{ModelsConfig, ProviderConfig};
use crate::providers::ModelRequest;
use crate::reply::{ModelEvent, ModelReply};
use palyra_egress::{
    CancelSignal, Denial, EgressRecord, EgressRule, EgressRules, FetchRequest, FetchWatch, Fetcher, Roots,
    SystemResolver,
};
use palyra_engine::{Engine, EngineError, ErrorKind, VerifiedPeer};
use palyra_protocol::{Problem, Secret};
use serde::Serialize;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

/// What an agent is listed as.
const AGENT: &str = "agent";
/// How many models are asked at a time; each takes a thread.
const AT_ONCE: usize = 128;

/// The models.
#[derive(Debug)]
pub struct Models {
    engine: Engine,
    config: ModelsConfig,
    /// A client for each provider: its rules reach that provider alone.
    clients: HashMap<String, Arc<ModelClient>>,
    places: Arc<Semaphore>,
}

/// One model of one provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The provider, by its configured name.
    pub provider: String,
    /// The provider's name for the model.
    pub model: String,
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.provider, self.model)
    }
}

/// What came of asking.
#[derive(Debug)]
pub struct Asked {
    /// The answer, or why there is none.
    pub answer: Result<ModelReply, Problem>,
    /// Who answered: `provider/model`; empty where nobody did.
    pub answered: String,
    /// The connections that were made.
    pub connections: Vec<EgressRecord>,
    /// How long it took.
    pub took: Duration,
}

/// A name that can be asked.
#[derive(Debug, Clone, Serialize)]
pub struct ModelListing {
    /// The name.
    pub name: String,
    /// `alias`, `model` or `agent`.
    pub kind: &'static str,
    /// What stands behind it, in the order in which it is tried.
    pub targets: Vec<String>,
}

impl Models {
    /// The configured models, asked through the engine's journal and vault.
    ///
    /// # Errors
    /// The address of a provider can be no rule of egress.
    pub fn new(engine: Engine, config: ModelsConfig) -> Result<Self, String> {
        let mut clients = HashMap::new();
        for (name, provider) in &config.providers {
            let rule = rule_of(&provider.base_url).map_err(|why| format!("provider `{name}`: {why}"))?;
            let rules = Arc::new(EgressRules::new(vec![rule]));
            let fetcher = Fetcher::new(rules, Arc::new(SystemResolver), Roots::System);
            clients.insert(name.clone(), Arc::new(ModelClient::new(Arc::new(fetcher))));
        }
        Ok(Self { engine, config, clients, places: Arc::new(Semaphore::new(AT_ONCE)) })
    }

    /// What is configured.
    #[must_use]
    pub fn config(&self) -> &ModelsConfig {
        &self.config
    }

    /// Every name that can be asked.
    #[must_use]
    pub fn list(&self) -> Vec<ModelListing> {
        let agents = self.config.agents.iter().map(|(name, agent)| ModelListing {
            name: format!("palyra/{name}"),
            kind: AGENT,
            targets: vec![agent.model.clone()],
        });
        let aliases = self.config.aliases.iter().map(|(name, targets)| ModelListing {
            name: name.clone(),
            kind: "alias",
            targets: targets.clone(),
        });
        let models = self.config.providers.iter().flat_map(|(provider, config)| {
            config.models.iter().map(move |model| ModelListing {
                name: format!("{provider}/{model}"),
                kind: "model",
                targets: vec![format!("{provider}/{model}")],
            })
        });
        agents.chain(aliases).chain(models).collect()
    }

    /// The models behind a name, in the order in which they are tried.
    ///
    /// # Errors
    /// There is no such model.
    pub fn resolve(&self, name: &str) -> Result<Vec<Target>, EngineError> {
        let names = match self.config.aliases.get(name) {
            Some(names) => names.clone(),
            None => vec![name.to_owned()],
        };
        names.iter().map(|name| self.target(name)).collect()
    }

    /// Whether a peer may have a model answer: by the name that it says, and by that of a model behind it.
    ///
    /// # Errors
    /// It may not, or there is no such model.
    pub fn authorize(&self, peer: &VerifiedPeer, name: &str) -> Result<(), EngineError> {
        self.engine.authorize_model(peer, name)?;
        let mut refused = None;
        for target in self.resolve(name)? {
            match self.engine.authorize_model(peer, &target.to_string()) {
                Ok(()) => return Ok(()),
                Err(error) => refused = Some(error),
            }
        }
        refused.map_or_else(|| Err(unknown(name)), Err)
    }

    /// Whether a peer may have what is listed answer. Nothing is recorded.
    #[must_use]
    pub fn may_ask(&self, peer: &VerifiedPeer, listed: &ModelListing) -> bool {
        let name = if listed.kind == AGENT { listed.targets.first() } else { Some(&listed.name) };
        let may = |name: &str| self.engine.may_invoke(peer, name);
        name.is_some_and(|name| {
            may(name) && self.resolve(name).is_ok_and(|all| all.iter().any(|target| may(&target.to_string())))
        })
    }

    fn target(&self, name: &str) -> Result<Target, EngineError> {
        if let Some((provider, model)) = name.split_once('/')
            && self.config.providers.get(provider).is_some_and(|config| config.models.iter().any(|m| m == model))
        {
            return Ok(Target { provider: provider.to_owned(), model: model.to_owned() });
        }
        let mut having = self.config.providers.iter().filter(|(_, config)| config.models.iter().any(|m| m == name));
        match (having.next(), having.next()) {
            (Some((provider, _)), None) => Ok(Target { provider: provider.clone(), model: name.to_owned() }),
            _ => Err(unknown(name)),
        }
    }

    /// Asks a model; pieces of the answer go to `events` as they come. The next model is tried only while nothing of an
    /// answer was handed on. A model that rules deny the peer is passed over, whatever name leads to it.
    pub async fn ask(
        &self,
        (peer, name): (&VerifiedPeer, &str),
        request: ModelRequest,
        limit: Option<Duration>,
        cancel: &CancellationToken,
        events: &mpsc::Sender<ModelEvent>,
    ) -> Asked {
        let begun = Instant::now();
        let mut asked = Asked {
            answer: Err(Problem::plain("model_unreachable", "no model was asked")),
            answered: String::new(),
            connections: Vec::new(),
            took: Duration::ZERO,
        };
        let targets = match self.resolve(name) {
            Ok(targets) => targets,
            Err(error) => {
                asked.answer = Err(error.problem);
                return asked;
            }
        };
        for target in targets {
            if let Err(error) = self.engine.authorize_model(peer, &target.to_string()) {
                asked.answer = Err(error.problem);
                continue;
            }
            let request = ModelRequest { model: target.model.clone(), ..request.clone() };
            let one = self.ask_one(&target, request, limit, cancel, events).await;
            asked.connections.extend(one.connections);
            asked.answered = target.to_string();
            let last = one.handed_on || cancel.is_cancelled();
            asked.answer = one.answer;
            if asked.answer.is_ok() || last {
                break;
            }
        }
        asked.took = begun.elapsed();
        asked
    }

    async fn ask_one(
        &self,
        target: &Target,
        request: ModelRequest,
        limit: Option<Duration>,
        cancel: &CancellationToken,
        events: &mpsc::Sender<ModelEvent>,
    ) -> AskedOne {
        let (Some(provider), Some(client)) =
            (self.config.providers.get(&target.provider), self.clients.get(&target.provider))
        else {
            return AskedOne::failed(unknown(&target.to_string()).problem);
        };
        let key = match self.key(target, provider).await {
            Ok(key) => key,
            Err(error) => return AskedOne::failed(error.problem),
        };
        let Ok(_place) = self.places.acquire().await else {
            return AskedOne::failed(Problem::plain("shutting_down", "the daemon is shutting down"));
        };
        let (handle, signal) = match CancelSignal::new() {
            Ok(pair) => pair,
            Err(error) => return AskedOne::failed(Problem::plain("internal", format!("no cancel signal: {error}"))),
        };
        let endpoint = Endpoint {
            base_url: provider.base_url.clone(),
            dialect: provider.dialect,
            timeout: limit.map_or(provider.timeout, |limit| limit.min(provider.timeout)),
        };
        let (client, events) = (Arc::clone(client), events.clone());
        let mut work = tokio::task::spawn_blocking(move || {
            let watch = Connections::default();
            let mut handed_on = false;
            let mut each = |event: &ModelEvent| {
                handed_on = true;
                // Whoever asked may have gone; the answer is recorded whole.
                drop(events.blocking_send(event.clone()));
            };
            let context = CallContext { cancel: &signal, watch: &watch };
            let answer = client.call(&endpoint, key.as_ref(), &request, context, &mut each);
            let connections = watch.0.into_inner().unwrap_or_else(PoisonError::into_inner);
            AskedOne { answer: answer.map_err(|error| problem(&error)), handed_on, connections }
        });
        let done = tokio::select! {
            done = &mut work => done,
            () = cancel.cancelled() => {
                handle.cancel();
                work.await
            }
        };
        done.unwrap_or_else(|error| AskedOne::failed(Problem::plain("internal", format!("asking broke off: {error}"))))
    }

    async fn key(&self, target: &Target, provider: &ProviderConfig) -> Result<Option<Secret>, EngineError> {
        let Some(reference) = &provider.key else { return Ok(None) };
        let purpose = format!("ask the model {target}");
        match self.engine.vault().get_for_daemon(reference, &purpose).await? {
            Some(value) => Ok(Some(Secret::new(value.expose().to_vec()))),
            None => {
                let message = format!("the key of the provider `{}` is not in the vault", target.provider);
                let hint = format!("put it in: `palyra vault put {}/{}`", reference.scope(), reference.name());
                Err(EngineError::new(ErrorKind::Conflict, Problem::new("model_key_missing", message, hint)))
            }
        }
    }
}

struct AskedOne {
    answer: Result<ModelReply, Problem>,
    handed_on: bool,
    connections: Vec<EgressRecord>,
}

impl AskedOne {
    fn failed(problem: Problem) -> Self {
        Self { answer: Err(problem), handed_on: false, connections: Vec::new() }
    }
}

/// Keeps the connections of a call. Redirects are not followed, so there is nothing to decide.
#[derive(Debug, Default)]
struct Connections(Mutex<Vec<EgressRecord>>);

impl FetchWatch for Connections {
    fn may_go(&self, next: &FetchRequest) -> Result<(), Denial> {
        let _never_asked = next;
        Ok(())
    }

    fn connection(&self, record: &EgressRecord) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(record.clone());
    }
}

/// The one rule by which a provider is reached: its host and its port.
fn rule_of(base_url: &str) -> Result<EgressRule, String> {
    let url = palyra_egress::FetchUrl::parse(base_url).map_err(|e| e.to_string())?;
    format!("{}:{}", url.host(), url.port()).parse().map_err(|e| format!("`{base_url}`: {e}"))
}

fn unknown(name: &str) -> EngineError {
    let name: String = name.chars().take(80).collect();
    let problem = Problem::new(
        "unknown_model",
        format!("there is no model `{name}`, or more than one provider has it"),
        "`palyra models list` shows them; `[models]` in palyra.toml is where they come from",
    );
    EngineError::new(ErrorKind::NotFound, problem)
}

/// A model's fault as everybody is told it.
fn problem(error: &ModelError) -> Problem {
    let hint = match error {
        ModelError::Denied(_) | ModelError::Config(_) => Some("check `base_url` of the provider in palyra.toml"),
        ModelError::Status { status: 401 | 403, .. } => Some("put another key into the vault: `palyra vault put`"),
        ModelError::Unreachable(_) | ModelError::TimedOut { .. } => {
            Some("`palyra models test` says whether it is there")
        }
        _ => None,
    };
    Problem { hint: hint.map(str::to_owned), ..Problem::plain(error.code(), error.to_string()) }
}
