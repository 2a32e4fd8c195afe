//! A tool that comes and goes while the daemon serves: every door's listing follows, and MCP clients are told.

use crate::config::RawConfig;
use crate::doors::Doors;
use crate::grpc::About;
use crate::http::{Listening, Port};
use crate::{grpc, mcp};
use palyra_access::NewToken;
use palyra_api::client::Connection;
use palyra_api::v1::ListToolsRequest;
use palyra_engine::tools::{Executing, Input, Job, Place, Prepared, Tool};
use palyra_engine::{
    AccessControl, Engine, EngineParts, Executed, Refusal, Running, ToolCatalog, VerifiedPeer, WorkspaceNaming,
};
use palyra_journal::JournalStore;
use palyra_protocol::{DaemonKey, Facets, SystemClock, ToolDefinition, ToolSource};
use palyra_workspace::Workspace;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpStream, UnixListener, UnixStream};

const NAME: &str = "skill.acme.weather.forecast";
const ALIAS: &str = "skill_acme_weather_forecast";

/// A tool as a skill brings it.
#[derive(Debug)]
struct Forecast(ToolDefinition);

#[derive(Debug)]
struct Sunny;

impl Tool for Forecast {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn prepare(&self, _input: Input<'_>, _place: &Place<'_>) -> Result<Prepared, Refusal> {
        Ok(Prepared::new(Facets::default(), Sunny))
    }
}

impl Job for Sunny {
    fn execute<'r>(self: Box<Self>, _run: &'r Running<'_>) -> Executing<'r> {
        Box::pin(std::future::ready(Executed::in_daemon(Ok(json!({ "text": "sunny" })))))
    }
}

fn forecast(summary: &str) -> Vec<Arc<dyn Tool>> {
    let echo = ToolCatalog::builtin().unwrap().find("palyra.echo").unwrap().definition().clone();
    vec![Arc::new(Forecast(ToolDefinition { name: NAME.parse().unwrap(), summary: summary.to_owned(), ..echo }))]
}

async fn engine(dir: &Path) -> Engine {
    let (state, workspace, config) = (dir.join("state"), dir.join("work"), dir.join("palyra.toml"));
    std::fs::create_dir(&state).unwrap();
    std::fs::create_dir(&workspace).unwrap();
    std::fs::write(&config, format!("[tool_call]\nallowed_tools = [\"palyra.echo\", \"{NAME}\"]\n")).unwrap();
    let config = RawConfig::read(&config, true).unwrap().validate(Some(workspace), &state).unwrap();
    let clock = Arc::new(SystemClock);
    let journal = JournalStore::open(&state.join("journal.db"), clock.clone()).unwrap();
    let access = AccessControl::open(&state, &config.workspace_root, &journal, clock).await.unwrap();
    let mut loader = config.policy_loader();
    loader.membership = loader.membership.with_registered(access.registered().unwrap());
    Engine::new(EngineParts {
        policy: loader.load().unwrap(),
        policy_loader: config.policy_loader(),
        access,
        journal,
        workspace: Workspace::open(&config.workspace_root).unwrap(),
        config: config.tool_call,
        key: DaemonKey::generate().unwrap(),
        vault: palyra_engine::vault::VaultSettings::default(),
    })
    .unwrap()
}

/// An MCP client on the daemon's own socket.
struct Client {
    stream: BufReader<UnixStream>,
    asked: u64,
}

impl Client {
    async fn connect(socket: &Path, workspace: &str) -> Self {
        let mut client = Self { stream: BufReader::new(UnixStream::connect(socket).await.unwrap()), asked: 0 };
        client.say(json!({ "palyra_mcp": 1, "act_as": "agent:one", "workspace": workspace })).await;
        assert_eq!(client.hear().await["ok"], true);
        let info = json!({ "name": "t", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info });
        client.ask("initialize", hello).await;
        client.say(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        client
    }

    async fn say(&mut self, word: Value) {
        self.stream.write_all(format!("{word}\n").as_bytes()).await.unwrap();
    }

    async fn hear(&mut self) -> Value {
        let mut line = String::new();
        assert_ne!(self.stream.read_line(&mut line).await.unwrap(), 0, "the connection ended");
        serde_json::from_str(&line).unwrap()
    }

    /// The answer to a request. Nothing else comes in between.
    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        self.say(json!({ "jsonrpc": "2.0", "id": self.asked, "method": method, "params": params })).await;
        let answer = self.hear().await;
        assert_eq!(answer["id"], self.asked, "{answer}");
        answer
    }

    async fn listed(&mut self) -> Vec<(String, String)> {
        let listing = self.ask("tools/list", json!({})).await["result"].clone();
        let text = |tool: &Value, key: &str| tool[key].as_str().unwrap().to_owned();
        let tools = listing["tools"].as_array().unwrap().iter();
        tools.map(|tool| (text(tool, "name"), text(tool, "title"))).collect()
    }

    async fn told_of_a_change(&mut self) {
        assert_eq!(self.hear().await["method"], "notifications/tools/list_changed");
    }
}

async fn over_grpc(socket: &Path) -> Vec<String> {
    let connection = Connection::open(socket, None).await.unwrap();
    let listing = connection.tools().list(ListToolsRequest {}).await.unwrap();
    listing.into_inner().tools.into_iter().map(|tool| tool.name).collect()
}

async fn over_http(address: &str, token: &str) -> Vec<String> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET /v1/tools HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    let body: Value = serde_json::from_str(body).unwrap();
    body["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// Every door that there is, open.
struct Open {
    engine: Engine,
    grpc: PathBuf,
    mcp: PathBuf,
    http: String,
    token: String,
}

async fn open(dir: &Path) -> Open {
    let engine = engine(dir).await;
    let models = palyra_agent::Models::new(engine.clone(), palyra_agent::ModelsConfig::default()).unwrap();
    let runs = palyra_agent::Runs::new(engine.clone(), models);
    let doors = Doors::new(engine.clone(), runs.clone());
    let (grpc, mcp) = (dir.join("grpc.sock"), dir.join("mcp.sock"));
    tokio::spawn(mcp::socket::serve(doors.clone(), UnixListener::bind(&mcp).unwrap()));
    let about = About {
        state_dir: dir.to_owned(),
        config_path: dir.to_owned(),
        started_at_unix_ms: 0,
        http_url: None,
        remote: crate::mtls::RemoteDoor::bind(doors.clone(), None).unwrap(),
        runs,
        stop: Arc::default(),
    };
    tokio::spawn(grpc::Services::new(engine.clone(), about).serve(UnixListener::bind(&grpc).unwrap()));
    let http = Listening::open(doors, Port::This(0), &dir.join("state")).unwrap();
    let owner = VerifiedPeer::on_local_socket(Some(1), 1, "cli".parse().unwrap()).unwrap();
    let home = WorkspaceNaming::parse(Some(engine.access().home().workspace_id.as_str()), None).unwrap();
    let owner = engine.in_named_workspace(owner, &home).unwrap();
    let new = NewToken {
        principal: "user:local".parse().unwrap(),
        label: String::new(),
        role: None,
        scopes: vec![],
        life: None,
        rate_per_minute: None,
    };
    let (_, token) = engine.create_token(&owner, new).await.unwrap();
    let token = String::from_utf8(token.expose().to_vec()).unwrap();
    Open { engine, grpc, mcp, http: http.url().replace("http://", ""), token }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_listing_follows_the_catalog() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = open(dir.path()).await;
    let weather = ToolSource::skill("acme.weather").unwrap();
    let home = daemon.engine.access().home().workspace_id.to_string();
    let mut client = Client::connect(&daemon.mcp, &home).await;
    let echo = ("palyra_echo".to_owned(), "Return the text that was sent".to_owned());
    assert_eq!(client.listed().await, std::slice::from_ref(&echo));
    let (before_grpc, before_http) = (over_grpc(&daemon.grpc).await, over_http(&daemon.http, &daemon.token).await);
    assert_eq!(before_grpc, before_http);
    assert!(!before_grpc.contains(&NAME.to_owned()));

    daemon.engine.replace_tools(&weather, forecast("first")).unwrap();
    client.told_of_a_change().await;
    assert_eq!(client.listed().await, [echo.clone(), (ALIAS.to_owned(), "first".to_owned())]);
    assert!(over_grpc(&daemon.grpc).await.contains(&NAME.to_owned()));
    assert!(over_http(&daemon.http, &daemon.token).await.contains(&NAME.to_owned()));
    let called = client.ask("tools/call", json!({ "name": ALIAS, "arguments": { "text": "x" } })).await;
    assert_eq!(called["result"]["structuredContent"]["text"], "sunny", "{called}");

    // The same name with another definition is another list.
    daemon.engine.replace_tools(&weather, forecast("second")).unwrap();
    client.told_of_a_change().await;
    assert_eq!(client.listed().await, [echo.clone(), (ALIAS.to_owned(), "second".to_owned())]);

    daemon.engine.replace_tools(&weather, vec![]).unwrap();
    client.told_of_a_change().await;
    assert_eq!(client.listed().await, [echo]);
    assert_eq!(over_grpc(&daemon.grpc).await, before_grpc);
    assert_eq!(over_http(&daemon.http, &daemon.token).await, before_http);
    let gone = client.ask("tools/call", json!({ "name": ALIAS, "arguments": { "text": "x" } })).await;
    assert_eq!(gone["error"]["data"]["code"], "unknown_tool", "{gone}");
}
