//! Skills: verifying and auditing an artifact, against inflating, hashing and validating the same bytes; the whole path
//! of a skill's tool, against `palyra.echo`; auditing again and listing, as the number of installed skills grows.
//!
//! The 18 MiB component has the weight and the make of a Python guest: many small functions and much data.
//! `PALYRA_BENCH_COMPONENT=FILE` measures a component of your own too.

use crate::report::{Report, alternate, median, show};
use crate::{Result, path};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use palyra_engine::{Engine, InstallOptions, News, SkillSetup, VerifiedPeer};
use palyra_protocol::{DaemonKey, Digest, PublicKey, Signature, Timestamp};
use palyra_skills::archive::Entry;
use palyra_skills::audit::{
    Advisories, AuditContext, AuditPolicy, CheckStatus, HostVersion, TrustQuestion, audit_skill_artifact_security,
    features,
};
use palyra_skills::instructions::{ImportRequest, import_files};
use palyra_skills::package::{PackageSource, build, verify};
use palyra_skills::signature::PublisherKey;
use palyra_skills::trust::{TrustChange, TrustDocument, VerifyPurpose, VerifyRequest};
use sha2::{Digest as _, Sha256};
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};
use wasmparser::Validator;

const MANIFEST: &str = r#"format = 1
[metadata]
skill_id = "acme.bench"
version = "1.0.0"
publisher = "acme"
name = "Bench"
[entrypoints]
module = "modules/bench.wasm"
[[entrypoints.tools]]
id = "echo"
description = "Gives back what it is given."
risk = "low"
input_schema = { type = "object" }
output_schema = { type = "object" }
[capabilities.quotas]
max_memory_bytes = 268435456
[compat]
required_protocol_major = 1
min_palyra_version = "0.1.0"
"#;

pub fn run(report: &mut Report) -> Result {
    measure(report, "1 MiB", &component_of(1 << 20)?, 40)?;
    measure(report, "18 MiB", &component_of(18 << 20)?, 6)?;
    if let Ok(path) = std::env::var("PALYRA_BENCH_COMPONENT") {
        measure(report, "yours", &std::fs::read(path)?, 6)?;
    }
    // One caller needs one thread; see `path`.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(whole_path(report))?;
    runtime.block_on(many(report))
}

/// How many skills are audited again and listed: few, and many.
const FEW: usize = 100;
const MANY: usize = 1000;

async fn opened(engine: &Engine, directory: &Path) {
    let setup = SkillSetup {
        state_dir: directory.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        audit_policy: None,
        advisories: None,
        audit_interval: Duration::from_secs(3600),
        keep_record_bytes: 256 << 20,
    };
    engine.start_skills(setup).await;
}

async fn install(engine: &Engine, peer: &VerifiedPeer, artifact: Vec<u8>) -> Result {
    let options = InstallOptions { allow_tofu: true, ..InstallOptions::default() };
    let (news, _nobody_listens) = tokio::sync::mpsc::unbounded_channel();
    engine.install_skill(peer, artifact, options, News::to(news)).await?;
    Ok(())
}

/// A call of the minimal skill's tool through the whole path, against one of `palyra.echo`.
async fn whole_path(report: &mut Report) -> Result {
    let dir = tempfile::tempdir()?;
    let (engine, peer) = (path::engine(dir.path()).await?, path::peer()?);
    opened(&engine, dir.path()).await;
    let component = palyra_plugins_build::component_of_text(include_str!("../../examples/skills/minimal/skill.wat"))?;
    let source = PackageSource {
        manifest: include_bytes!("../../examples/skills/minimal/skill.toml").to_vec(),
        files: vec![Entry::new("modules/minimal.wasm", component)],
        ..PackageSource::default()
    };
    install(&engine, &peer, build(&source, &PublisherKey::generate()?)?.bytes).await?;
    // Until its files' times can be believed, every call hashes them.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let (mut skill, mut echo) = (Vec::new(), Vec::new());
    for _ in 0..CALLS / 20 {
        for _ in 0..20 {
            let start = Instant::now();
            path::call(&engine, &peer, path::SKILL_TOOL).await?;
            skill.push(start.elapsed());
        }
        for _ in 0..20 {
            let start = Instant::now();
            path::echo(&engine, &peer).await?;
            echo.push(start.elapsed());
        }
    }
    report.at_most("a minimal skill's tool through the whole path, over palyra.echo", median(skill), median(echo), 1.3);
    Ok(())
}

/// Calls of each kind through the whole path.
const CALLS: usize = 1000;

/// An audit of skills that have not changed, and their listing, with few skills and with ten times as many.
async fn many(report: &mut Report) -> Result {
    let key = PublisherKey::generate()?;
    let mut times = Vec::new();
    for count in [FEW, MANY] {
        let dir = tempfile::tempdir()?;
        let (engine, peer) = (path::engine(dir.path()).await?, path::peer()?);
        opened(&engine, dir.path()).await;
        for number in 0..count {
            install(&engine, &peer, small(number, &key)?).await?;
        }
        // The first audits read each artifact: until its files' times can be believed.
        while engine.check_skills(&peer).await?.pass.is_some_and(|pass| pass.read > 0) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let (mut audits, mut listings) = (Vec::new(), Vec::new());
        for _ in 0..10 {
            let start = Instant::now();
            let read = engine.check_skills(&peer).await?.pass.map_or(0, |pass| pass.read);
            audits.push(start.elapsed());
            if read > 0 {
                return Err(format!("{read} unchanged artifacts were read").into());
            }
            let start = Instant::now();
            black_box(engine.skill_list(&peer)?);
            listings.push(start.elapsed());
        }
        times.push((median(audits), median(listings)));
    }
    let [few, many] = times[..] else { return Err("two numbers of skills were measured".into()) };
    let times_as_many = u32::try_from(MANY / FEW)?;
    report.at_most(
        &format!("auditing {MANY} unchanged skills again, over ten times {FEW}"),
        many.0,
        few.0 * times_as_many,
        1.5,
    );
    report.figure(&format!("listing {MANY} skills"), &show(many.1));
    Ok(())
}

/// A skill of one text.
fn small(number: usize, key: &PublisherKey) -> Result<Vec<u8>> {
    let request = ImportRequest {
        publisher: "acme".parse()?,
        version: "1.0.0".parse()?,
        read_roots: vec![],
        write_roots: vec![],
        egress: vec![],
        min_palyra_version: "0.1.0".parse()?,
    };
    let text = format!("---\nname: s{number}\ndescription: Number {number}.\n---\nNothing.\n");
    let source = import_files(vec![Entry::new("SKILL.md", text.into_bytes())], &request)?;
    Ok(build(&source, key)?.bytes)
}

fn measure(report: &mut Report, what: &str, component: &[u8], rounds: usize) -> Result {
    let key = PublisherKey::generate()?;
    let source = PackageSource {
        manifest: MANIFEST.into(),
        files: vec![Entry::new("modules/bench.wasm", component.to_vec())],
        ..PackageSource::default()
    };
    let artifact = build(&source, &key)?.bytes;
    let now = Timestamp::from_unix_ms(1);
    let allow = TrustChange::Allowlist { publisher: "acme".parse()?, public_key: key.public(), expires_at: None };
    let trust = TrustDocument::empty().changed(&[allow], now)?;
    let request = VerifyRequest { purpose: VerifyPurpose::Install, allow_tofu: false, now };
    let raw = Raw::new(component)?;
    let size = format!("{:.1} MB packed, {:.1} MB unpacked", mb(artifact.len()), mb(component.len()));
    report.figure(&format!("artifact, {what}"), &size);

    let (ours, bare) = alternate(
        rounds,
        || drop(black_box(verify(black_box(&artifact), &trust, &request))),
        || raw.inflate_hash_and_verify(),
    );
    report.at_most(&format!("verify, {what}, against inflating and hashing"), ours, bare, 1.5);

    let policy = AuditPolicy::parse(b"format = 1")?;
    let advisories = Advisories::default();
    let host = HostVersion { palyra: env!("CARGO_PKG_VERSION").parse()?, protocol_major: 1 };
    let trust = Some(TrustQuestion { document: &trust, request });
    let context = AuditContext { policy: &policy, advisories: &advisories, host, trust };
    let first = audit_skill_artifact_security(&artifact, &context);
    let failing: Vec<_> = first.with_status(CheckStatus::Fail).map(|check| check.id.as_str()).collect();
    if !failing.is_empty() {
        // A component of your own may import what this manifest does not ask for; it is measured all the same.
        report.figure(&format!("audit, {what}, fails"), &failing.join(", "));
    }
    let (ours, bare) = alternate(
        rounds,
        || drop(black_box(audit_skill_artifact_security(black_box(&artifact), &context))),
        || {
            raw.inflate_hash_and_verify();
            raw.validate();
        },
    );
    report.at_most(&format!("audit, {what}, against validating and that"), ours, bare, 2.0);
    let (validation, _) = alternate(rounds, || raw.validate(), || {});
    report.figure(&format!("validating alone, {what}"), &rate(validation, component.len()));
    Ok(())
}

/// The least that anybody must do with the same bytes.
struct Raw {
    component: Vec<u8>,
    deflated: Vec<u8>,
    key: PublicKey,
    signature: Signature,
}

impl Raw {
    fn new(component: &[u8]) -> Result<Self> {
        let mut deflated = Vec::with_capacity(component.len() + component.len() / 100 + 1024);
        Compress::new(Compression::new(9), false).compress_vec(component, &mut deflated, FlushCompress::Finish)?;
        let key = DaemonKey::generate()?;
        let signature = key.sign(&Digest::of(component));
        Ok(Self { component: component.to_vec(), deflated, key: key.public(), signature })
    }

    fn inflate_hash_and_verify(&self) {
        let mut content = Vec::with_capacity(self.component.len());
        let inflated =
            Decompress::new(false).decompress_vec(black_box(&self.deflated), &mut content, FlushDecompress::Finish);
        black_box(inflated.is_ok());
        let digest = Digest::from_bytes(Sha256::digest(&content).into());
        black_box(self.key.verify(&digest, &self.signature).is_ok());
    }

    fn validate(&self) {
        black_box(Validator::new_with_features(features()).validate_all(black_box(&self.component)).is_ok());
    }
}

fn mb(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}

fn rate(time: Duration, bytes: usize) -> String {
    format!("{}, {:.0} MB/s", show(time), mb(bytes) / time.as_secs_f64())
}

/// A component of about this size: a small one that implements the world, with a large module in it.
fn component_of(size: usize) -> Result<Vec<u8>> {
    let mut component = wat::parse_str(include_str!("../../crates/palyra-skills/tests/components/echo.wat"))?;
    let module = module_of(size.saturating_sub(component.len()));
    // A section of a component that holds a core module: its number, its length, its bytes.
    component.push(1);
    let mut length = module.len();
    loop {
        let digit = (length & 0x7f) as u8;
        length >>= 7;
        component.push(if length == 0 { digit } else { digit | 0x80 });
        if length == 0 {
            break;
        }
    }
    component.extend(module);
    Ok(component)
}

/// A module that is half functions and half data, neither all alike nor all different.
fn module_of(size: usize) -> Vec<u8> {
    use wasm_encoder::{
        CodeSection, ConstExpr, DataSection, Function, FunctionSection, MemorySection, MemoryType, Module, TypeSection,
        ValType,
    };
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut types = TypeSection::new();
    types.ty().function([ValType::I32, ValType::I32], [ValType::I32]);
    let (mut functions, mut code) = (FunctionSection::new(), CodeSection::new());
    while code.byte_len() < size / 2 {
        functions.function(0);
        let mut body = Function::new([(2, ValType::I32)]);
        let mut sink = body.instructions();
        sink.local_get(0);
        for _ in 0..40 {
            let number = random();
            sink.i32_const((number >> 40) as i32).i32_add().local_tee(2 + (number & 1) as u32);
            sink.local_get((number >> 1 & 1) as u32).i32_xor();
        }
        sink.end();
        code.function(&body);
    }
    let mut memory = MemorySection::new();
    let minimum = (size as u64).div_ceil(64 << 10);
    memory.memory(MemoryType { minimum, maximum: None, memory64: false, shared: false, page_size_log2: None });
    let words = ["import", "return", "self", "class", "def", "lambda", "yield", "__init__", "\0\0\0\0", "object"];
    let mut bytes = Vec::with_capacity(size / 2);
    while bytes.len() < size / 2 {
        let number = random();
        bytes.extend(words[(number % 10) as usize].as_bytes());
        bytes.extend(&number.to_le_bytes()[5..]);
    }
    let mut data = DataSection::new();
    data.active(0, &ConstExpr::i32_const(0), bytes);
    let mut module = Module::new();
    module.section(&types).section(&functions).section(&memory).section(&code).section(&data);
    module.finish()
}
