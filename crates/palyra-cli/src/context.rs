//! What every command needs: where the daemon is, and how to print.

use crate::args::Format;
use crate::commands::workspaces;
use crate::exit::{FAILED, Failure};
use crate::hosts::{self, Hosts, LOCAL};
use palyra_api::client::Whereabouts;
use palyra_api::{Connection, RemoteHost};
use palyra_identity::ProfileName;
use palyra_protocol::{Principal, Secret};
use std::path::{Path, PathBuf};

/// Where the daemon is, and how to print.
#[derive(Debug, Clone)]
pub struct Context {
    pub state_dir: PathBuf,
    pub format: Format,
    act_as: Option<Principal>,
    token: Option<Secret>,
    /// The daemon elsewhere that the commands are for; none for this machine's own.
    host: Option<ProfileName>,
    /// Where the caller works, as the daemon is told.
    place: Whereabouts,
}

impl Context {
    pub fn new(
        state_dir: Option<PathBuf>,
        format: Format,
        act_as: Option<Principal>,
        token: Option<String>,
    ) -> Result<Self, Failure> {
        let state_dir = match state_dir {
            Some(dir) => std::path::absolute(dir).map_err(|e| Failure::io("the state directory", &e))?,
            None => default_state_dir()?,
        };
        let token = token.map(|text| Secret::new(text.into_bytes()));
        Ok(Self { state_dir, format, act_as, token, host: None, place: Whereabouts::default() })
    }

    /// The same for a daemon elsewhere: the one that is named, or that `palyra hosts use` chose.
    pub fn at(mut self, host: Option<String>) -> Result<Self, Failure> {
        self.host = match host.as_deref() {
            Some(LOCAL) => None,
            Some(name) => Some(name.parse().map_err(|error| hosts::failed(&error))?),
            None => hosts::chosen(&self.state_dir)?,
        };
        Ok(self)
    }

    /// The same for somebody who works in this workspace, or else in this directory. A daemon elsewhere knows nothing of
    /// directories here, so it is told of none.
    pub fn working_in(mut self, workspace: Option<&str>) -> Self {
        let local = self.host.is_none();
        let named = |text: &str| if local { workspaces::named(text) } else { text.to_owned() };
        let directory = if local { std::env::current_dir().ok() } else { None };
        self.place = Whereabouts { workspace: workspace.map(named), directory };
        self
    }

    /// The same for somebody who works nowhere in particular.
    pub fn anywhere(mut self) -> Self {
        self.place = Whereabouts::default();
        self
    }

    /// The same for somebody who works in this directory's workspace, wherever they are.
    pub fn within(&self, directory: &Path) -> Self {
        let workspace = Some(directory.to_string_lossy().into_owned());
        Self { place: Whereabouts { workspace, directory: None }, ..self.clone() }
    }

    /// Where the caller works.
    pub fn place(&self) -> &Whereabouts {
        &self.place
    }

    /// The daemon elsewhere that the commands are for.
    pub fn host(&self) -> Option<&ProfileName> {
        self.host.as_ref()
    }

    /// Refuses a command that is about this machine where another was named.
    pub fn must_be_local(&self, command: &str) -> Result<(), Failure> {
        match &self.host {
            None => Ok(()),
            Some(host) => Err(Failure::usage(
                format!("`palyra {command}` is about this machine, and `{host}` is another"),
                &format!("leave `--host` out, or say `--host {LOCAL}`"),
            )),
        }
    }

    /// What this machine shows a daemon elsewhere.
    pub fn remote(&self, host: &ProfileName) -> Result<RemoteHost, Failure> {
        if self.token.is_some() {
            let message = "a paired machine speaks by its certificate; a token says nothing elsewhere";
            return Err(Failure::usage(message, "leave `--token` and `PALYRA_TOKEN` out"));
        }
        Hosts::open(&self.state_dir)?.remote(host)
    }

    pub fn socket(&self) -> PathBuf {
        self.state_dir.join("palyra.sock")
    }

    /// Connects to the daemon.
    pub async fn connect(&self) -> Result<Connection, Failure> {
        self.connect_for(self.act_as.as_ref()).await
    }

    /// Connects in the caller's own name, also where they act as an agent: to answer what the agent's call asks.
    pub async fn connect_as_self(&self) -> Result<Connection, Failure> {
        self.connect_for(None).await
    }

    async fn connect_for(&self, act_as: Option<&Principal>) -> Result<Connection, Failure> {
        if let Some(host) = &self.host {
            let connection = Connection::open_remote(&self.remote(host)?, act_as).await?.at(&self.place)?;
            hosts::renew_if_due(&self.state_dir, host, &connection).await?;
            hosts::keep_renewed(&self.state_dir, host);
            return Ok(connection);
        }
        let connection = Connection::open(&self.socket(), act_as).await?.at(&self.place)?;
        let Some(token) = &self.token else { return Ok(connection) };
        // What is no text is no token, and is never left out: the daemon would take us for its owner.
        Ok(connection.with_token(std::str::from_utf8(token.expose()).unwrap_or("-"))?)
    }

    /// The agent to act as.
    pub fn act_as(&self) -> Option<&Principal> {
        self.act_as.as_ref()
    }

    /// The token to show.
    pub fn token_text(&self) -> Option<String> {
        self.token.as_ref().map(|token| String::from_utf8_lossy(token.expose()).into_owned())
    }

    /// Whether the commands come from the daemon's own user, and are nobody else's.
    pub fn is_local_user(&self) -> bool {
        self.token.is_none() && self.act_as.is_none() && self.host.is_none()
    }

    pub fn json(&self) -> bool {
        self.format == Format::Json
    }
}

fn default_state_dir() -> Result<PathBuf, Failure> {
    let base = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let base = base.or_else(|| std::env::home_dir().map(|home| home.join(".local/state")));
    base.map(|base| base.join("palyra")).ok_or_else(|| {
        Failure::new(FAILED, "no_home", "there is no home directory", Some("say where the state is: `--state-dir DIR`"))
    })
}
