//! The examples of every language, built by `cargo xtask skills`, with the capabilities that they ask for.

use crate::support::{EchoDoor, allowing, call_of, files, output};
use palyra_plugins::{
    CallControl, CallRecord, CodeCacheSettings, Doors, Execution, HostSettings, HttpAllowance, HttpDoor, HttpFault,
    HttpReply, HttpRequest, Plugin, PluginError, PluginHost, RequestedCapabilities, StorageDirectory, ToolAnswer,
};
use palyra_protocol::{Digest, Secret};
use palyra_skills::Manifest;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Where the components are: beside the programs that cargo builds.
fn skills() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(3).unwrap().join("skills")
}

/// Interpreters take long to compile: what one run of the tests has compiled, the next one uses.
fn host(asked: &RequestedCapabilities) -> PluginHost {
    let code_cache =
        CodeCacheSettings { directory: skills().join("code"), secret: Secret::new(b"of the tests".to_vec()) };
    PluginHost::new(HostSettings { code_cache: Some(code_cache), ..HostSettings::new(allowing(asked)) }).unwrap()
}

fn built(name: &str) -> PathBuf {
    let path = skills().join(format!("{name}.wasm"));
    assert!(path.is_file(), "{} is missing: run `cargo xtask skills`", path.display());
    path
}

/// What an example's manifest asks for.
fn asked_by(name: &str) -> RequestedCapabilities {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/skills").join(name);
    let asked = Manifest::parse(&std::fs::read(sources.join("skill.toml")).unwrap()).unwrap().capabilities;
    RequestedCapabilities {
        http_hosts: asked.egress.iter().map(|host| host.to_string().parse().unwrap()).collect(),
        read_roots: asked.read_roots.iter().map(|root| root.workspace_path().parse().unwrap()).collect(),
        storage_bytes: asked.storage_bytes,
        ..RequestedCapabilities::default()
    }
}

struct Example {
    host: PluginHost,
    plugin: Arc<Plugin>,
    asked: RequestedCapabilities,
}

impl Example {
    fn load(name: &str) -> Self {
        let asked = asked_by(name);
        // Two tests that need the same one do not compile it twice.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _turn = ONE_AT_A_TIME.lock().unwrap();
        let host = host(&asked);
        let path = built(name);
        let digest = Digest::of(&std::fs::read(&path).unwrap());
        let plugin = host.load(digest, &path, &mut |_| {}).unwrap();
        host.check(&plugin, &host.grant(&asked)).unwrap();
        Self { host, plugin, asked }
    }

    fn tools(&self) -> Vec<String> {
        self.host.describe(&self.plugin).unwrap().into_iter().map(|tool| tool.name).collect()
    }

    fn call(&self, tool: &str, input: &Value, doors: Doors) -> Execution {
        let mut call = call_of(&self.plugin, self.host.grant(&self.asked), &input.to_string(), doors);
        call.tool = tool.to_owned();
        self.host.call(call).unwrap().wait().unwrap()
    }

    /// Calls a tool and replays the call from its record alone.
    fn twice(&self, tool: &str, input: &Value, doors: Doors) -> Value {
        let execution = self.call(tool, input, doors);
        let record = CallRecord::from_json(execution.record.to_json().unwrap().as_bytes()).unwrap();
        let again = self.host.replay(&self.plugin, &record, &input.to_string(), None).unwrap();
        assert_eq!((output(&again), again.usage.fuel), (output(&execution), execution.usage.fuel));
        serde_json::from_str(output(&execution)).unwrap()
    }

    fn refused(&self, tool: &str, input: &Value) -> String {
        match self.call(tool, input, Doors::default()).result {
            Ok(ToolAnswer::Failed { code, .. }) => code,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn rust_reaches_its_host() {
    let example = Example::load("echo-http");
    assert_eq!(example.tools(), ["echo"]);
    let doors = || Doors { http: Some(Arc::new(EchoDoor::default())), ..Doors::default() };
    let input = json!({"url": "https://httpbin.example/post", "text": "grüße"});
    assert_eq!(example.twice("echo", &input, doors()), json!({"status": 200, "body": "\"/post 0\""}));
    let elsewhere = json!({"url": "https://evil.example/", "text": ""});
    assert_eq!(example.refused("echo", &elsewhere), "http_denied");
    assert_eq!(example.refused("echo", &json!({"url": 1})), "invalid_input");
    assert_eq!(example.refused("nothing", &json!({})), "unknown_tool");
}

#[test]
fn rust_keeps_notes() {
    let example = Example::load("notes");
    assert_eq!(example.tools(), ["add", "list", "show"]);
    let place = tempfile::tempdir().unwrap();
    let storage = Arc::new(StorageDirectory::open(&place.path().join("s")).unwrap());
    let doors = || Doors { storage: Some(Arc::clone(&storage) as _), ..Doors::default() };
    let added = example.twice("add", &json!({"title": "b", "text": "second"}), doors());
    assert_eq!(added, json!({"titles": ["b"]}));
    example.twice("add", &json!({"title": "a/../a", "text": "first"}), doors());
    assert_eq!(example.twice("list", &json!({}), doors()), json!({"titles": ["a/../a", "b"]}));
    assert_eq!(example.twice("show", &json!({"title": "b"}), doors()), json!({"text": "second"}));
    let large = json!({"title": "c", "text": "x".repeat(70_000)});
    let refused = example.call("add", &large, doors()).result.unwrap();
    assert!(matches!(&refused, ToolAnswer::Failed { code, .. } if code == "storage_full"), "{refused:?}");
}

#[test]
fn c_counts_words() {
    let example = Example::load("word-count");
    assert_eq!(example.tools(), ["count"]);
    let count = |text: &str| example.twice("count", &json!({ "text": text, "other": {"text": "x"} }), Doors::default());
    assert_eq!(count("one two\n\tthree\n"), json!({"words": 3, "lines": 2, "bytes": 15}));
    assert_eq!(count(""), json!({"words": 0, "lines": 0, "bytes": 0}));
    assert_eq!(count("a \"quoted\" \u{1f600} \\ line"), json!({"words": 5, "lines": 1, "bytes": 22}));
    assert_eq!(example.refused("count", &json!({"text": 5})), "invalid_input");
    assert_eq!(example.refused("count", &json!([])), "invalid_input");
}

#[test]
fn python_answers_questions_about_tables() {
    let example = Example::load("csv-query");
    assert_eq!(example.tools(), ["query", "sum"]);
    let csv = "city,year,count\nBerlin,2023,5\nParis,2023,7\nBerlin,2024,11\n";
    let question = json!({"text": csv, "where": {"city": "Berlin"}, "select": ["year", "count"], "order_by": "count"});
    let rows = json!({"rows": [{"year": "2023", "count": "5"}, {"year": "2024", "count": "11"}], "total": 2});
    assert_eq!(example.twice("query", &question, Doors::default()), rows);

    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("data")).unwrap();
    std::fs::write(place.path().join("data/sales.csv"), csv).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", place.path().join("data/link.csv")).unwrap();
    let doors = || Doors { files: Some(files(place.path())), ..Doors::default() };
    let sums = json!({"path": "data/sales.csv", "column": "count", "by": "city"});
    let expected = json!({"sums": {"Berlin": 16.0, "Paris": 7.0}});
    assert_eq!(example.twice("sum", &sums, doors()), expected);
    for path in ["../../etc/passwd", "data/link.csv", "data/none.csv", "/etc/passwd"] {
        let refused = example.call("sum", &json!({"path": path, "column": "x"}), doors()).result.unwrap();
        assert!(matches!(&refused, ToolAnswer::Failed { code, .. } if code == "unreadable"), "{path}: {refused:?}");
    }
    assert_eq!(example.refused("sum", &json!({"column": "x"})), "invalid_input");
}

/// Answers like a page.
#[derive(Debug)]
struct Page;

impl HttpDoor for Page {
    fn send(&self, request: &HttpRequest, _: HttpAllowance, _: &CallControl) -> Result<HttpReply, HttpFault> {
        let body = format!("<html><title> Page {} </title></html>", request.target()).into_bytes();
        Ok(HttpReply { status: 203, headers: vec![("content-type".into(), "text/html".into())], body })
    }
}

#[test]
fn javascript_fetches_and_reads() {
    let example = Example::load("page-title");
    assert_eq!(example.tools(), ["title", "outline"]);
    let doors = || Doors { http: Some(Arc::new(Page)), ..Doors::default() };
    let fetched = example.twice("title", &json!({"url": "https://pages.example/a?b=1"}), doors());
    assert_eq!(fetched, json!({"status": 203, "title": "Page /a?b=1"}));
    let text = json!({"text": "# One\ntext\n## Two ##\n"});
    let headings = json!({"headings": [{"level": 1, "title": "One"}, {"level": 2, "title": "Two ##"}]});
    assert_eq!(example.twice("outline", &text, Doors::default()), headings);
    assert_eq!(example.refused("title", &json!({"url": "https://evil.example/"})), "unreachable");
}

#[test]
fn text_returns_its_input() {
    let example = Example::load("minimal");
    assert_eq!(example.twice("run", &json!({"a": [1, 2]}), Doors::default()), json!({"a": [1, 2]}));
}

#[test]
fn a_language_asks_for_nothing_that_its_source_does_not_use() {
    for (name, ours) in [
        ("echo-http", vec!["palyra:skill/log@1.0.0", "palyra:skill/http@1.0.0"]),
        ("notes", vec!["palyra:skill/storage@1.0.0"]),
        ("word-count", vec![]),
        ("csv-query", vec![]),
        ("page-title", vec![]),
    ] {
        let imports = Example::load(name).plugin.interface().imports;
        let found: Vec<_> = imports.iter().filter(|import| import.starts_with("palyra:")).collect();
        assert_eq!(found, ours, "{name}");
    }
}

#[test]
fn each_hostile_example_is_built() {
    let host = PluginHost::new(HostSettings::new(palyra_plugins::WasmPluginRunnerPolicy::default())).unwrap();
    for name in [
        "deep-recursion",
        "host-call-flood",
        "huge-output",
        "infinite-loop",
        "invalid-utf8",
        "log-flood",
        "memory-grower",
        "path-traversal",
        "secret-not-granted",
        "undeclared-import",
    ] {
        let path = built(&format!("hostile/{name}"));
        let loaded = host.load(Digest::of(&std::fs::read(&path).unwrap()), &path, &mut |_| {});
        let described: Result<_, PluginError> = loaded.and_then(|plugin| host.describe(&plugin));
        assert_eq!(described.unwrap()[0].name, "run", "{name}");
    }
}
