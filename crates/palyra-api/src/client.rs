//! The client: one connection, over the daemon's UNIX socket or, for a paired device, over mutual TLS (`remote.rs`).

use crate::error::ApiError;
use crate::v1::access_client::AccessClient;
use crate::v1::approvals_client::ApprovalsClient;
use crate::v1::calls_client::CallsClient;
use crate::v1::console_client::ConsoleClient;
use crate::v1::daemon_client::DaemonClient;
use crate::v1::devices_client::DevicesClient;
use crate::v1::effects_client::EffectsClient;
use crate::v1::grants_client::GrantsClient;
use crate::v1::journal_client::JournalClient;
use crate::v1::memory_client::MemoryClient;
use crate::v1::models_client::ModelsClient;
use crate::v1::policy_client::PolicyClient;
use crate::v1::routines_client::RoutinesClient;
use crate::v1::runs_client::RunsClient;
use crate::v1::skills_client::SkillsClient;
use crate::v1::tools_client::ToolsClient;
use crate::v1::vault_client::VaultClient;
use crate::{ACT_AS, AUTHORIZATION};
use hyper_util::rt::TokioIo;
use palyra_identity::DeviceCredentials;
use palyra_protocol::Principal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::UnixStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

/// The largest request: an input and its frame.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// The largest answer: an event that holds an output is told in one piece, and its bytes may take six each in JSON.
pub const MAX_REPLY_BYTES: usize = 64 << 20;

/// Adds the token that a caller shows, and the agent's name that an owner acts in.
#[derive(Debug, Clone)]
pub struct Speaker {
    act_as: Option<MetadataValue<Ascii>>,
    token: Option<MetadataValue<Ascii>>,
}

impl Interceptor for Speaker {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(name) = &self.act_as {
            request.metadata_mut().insert(ACT_AS, name.clone());
        }
        if let Some(token) = &self.token {
            request.metadata_mut().insert(AUTHORIZATION, token.clone());
        }
        Ok(request)
    }
}

type Spoken = InterceptedService<Channel, Speaker>;

/// A connection to the daemon.
#[derive(Debug, Clone)]
pub struct Connection {
    channel: Channel,
    speaker: Speaker,
    /// What a paired device signs decisions with.
    device: Option<Arc<DeviceCredentials>>,
}

macro_rules! services {
    ($($(#[$doc:meta])* $name:ident: $client:ident;)*) => {
        $(
            $(#[$doc])*
            #[must_use]
            pub fn $name(&self) -> $client<Spoken> {
                $client::with_interceptor(self.channel.clone(), self.speaker.clone())
                    .max_decoding_message_size(MAX_REPLY_BYTES)
                    .max_encoding_message_size(MAX_MESSAGE_BYTES)
            }
        )*
    };
}

impl Connection {
    /// Connects to the socket.
    ///
    /// # Errors
    /// Nobody answers there.
    pub async fn open(socket: &Path, act_as: Option<&Principal>) -> Result<Self, ApiError> {
        let path = socket.to_owned();
        let connect = tower::service_fn(move |_| connect(path.clone()));
        // The address is never resolved: the connector ignores it.
        let channel = Endpoint::from_static("http://palyra.invalid")
            .connect_with_connector(connect)
            .await
            .map_err(|e| unreachable(socket, &e))?;
        Self::over(channel, act_as)
    }

    /// A connection over a channel that is open.
    pub(crate) fn over(channel: Channel, act_as: Option<&Principal>) -> Result<Self, ApiError> {
        let act_as = act_as.map(|p| MetadataValue::try_from(p.to_string())).transpose();
        let act_as = act_as.map_err(|e| ApiError::new("transport", e.to_string(), None))?;
        Ok(Self { channel, speaker: Speaker { act_as, token: None }, device: None })
    }

    /// The same connection, speaking with a token: as its principal and nobody else.
    ///
    /// # Errors
    /// The token has characters that no token has.
    pub fn with_token(mut self, token: &str) -> Result<Self, ApiError> {
        let mut value: MetadataValue<Ascii> = format!("Bearer {token}").parse().map_err(|_| {
            ApiError::new("unauthenticated", "this is not a token", Some("check that it was copied whole".to_owned()))
        })?;
        value.set_sensitive(true);
        self.speaker.token = Some(value);
        Ok(self)
    }

    /// The same connection, of a paired device.
    pub(crate) fn of_device(mut self, credentials: &Arc<DeviceCredentials>) -> Self {
        self.device = Some(Arc::clone(credentials));
        self
    }

    /// What this machine signs decisions with, where it is a paired device to the daemon.
    #[must_use]
    pub fn device(&self) -> Option<&Arc<DeviceCredentials>> {
        self.device.as_ref()
    }

    /// The channel itself, for whoever calls methods by their names.
    #[must_use]
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    services! {
        /// The daemon itself.
        daemon: DaemonClient;
        /// The tools that can be called.
        tools: ToolsClient;
        /// Tool calls.
        calls: CallsClient;
        /// Questions to humans.
        approvals: ApprovalsClient;
        /// Standing answers.
        grants: GrantsClient;
        /// What calls changed.
        effects: EffectsClient;
        /// Policy.
        policy: PolicyClient;
        /// The journal.
        journal: JournalClient;
        /// Who may come in, as what.
        access: AccessClient;
        /// What was remembered.
        memory: MemoryClient;
        /// Routines.
        routines: RoutinesClient;
        /// Secrets.
        vault: VaultClient;
        /// Paired devices.
        devices: DevicesClient;
        /// Agent runs.
        runs: RunsClient;
        /// Models.
        models: ModelsClient;
        /// The console's codes and sessions.
        console: ConsoleClient;
        /// Skills.
        skills: SkillsClient;
    }
}

async fn connect(path: PathBuf) -> Result<TokioIo<UnixStream>, std::io::Error> {
    UnixStream::connect(path).await.map(TokioIo::new)
}

fn unreachable(socket: &Path, error: &tonic::transport::Error) -> ApiError {
    let cause = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    let message = format!("no daemon answers at `{}`: {cause}", socket.display());
    let hint = if is_anothers(error) {
        "this daemon is another user's; with a token, use its HTTP door: docs/http.md"
    } else {
        "start it: `palyra up`"
    };
    ApiError::new("daemon_unreachable", message, Some(hint.to_owned()))
}

/// Whether the socket is there and not for us: only the user who runs a daemon may open it.
fn is_anothers(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let io = error.downcast_ref::<std::io::Error>();
        if io.is_some_and(|io| io.kind() == std::io::ErrorKind::PermissionDenied) {
            return true;
        }
        next = error.source();
    }
    false
}
