//! `palyra vault`: secrets that agents use and never see.
//!
//! Values come in by a prompt, standard input or a file, and go out by `get` alone. Nothing here puts one into a
//! message.

pub mod prompt;

use super::read;
use crate::args::vault::{Bind, Get, Passphrase, Put, Rotate, Slot, Slots, Source, Vault};
use crate::context::Context;
use crate::exit::Failure;
use crate::output::{self, BOLD, DIM, GOOD, WARN, note, remaining, say, styled, when};
use crate::text::safe;
use palyra_api::Connection;
use palyra_api::v1::{
    AddSlotRequest, BindSecretRequest, EndGraceRequest, ExportVaultRequest, GetSecretRequest, ImportPiece,
    ListBindingsRequest, ListSecretsRequest, MigrateVaultRequest, PutSecretRequest, RekeyVaultRequest,
    RemoveSlotRequest, SecretRequest, UnbindSecretRequest, UnlockVaultRequest, VaultDocument, VaultStatusRequest,
};
use palyra_protocol::{Secret, SecretBlame, SecretRef, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{IsTerminal as _, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

/// How much of a file travels at once.
const PIECE: usize = 1 << 20;

pub async fn run(context: &Context, command: Vault) -> Result<(), Failure> {
    let connection = context.connect().await?;
    match command {
        Vault::Put(put) => self::put(context, &connection, put).await,
        Vault::Rotate(rotate) => self::rotate(context, &connection, rotate).await,
        Vault::Get(get) => self::get(context, &connection, get).await,
        Vault::List { scope } => {
            let scope = scope.map(|scope| scope.to_string()).unwrap_or_default();
            let reply = connection.vault().list(ListSecretsRequest { scope }).await?;
            list(context, &told(reply)?)
        }
        Vault::Delete { secret } => {
            let request = SecretRequest { reference: secret.to_string() };
            let gone: Value = told(connection.vault().delete(request).await?)?;
            tell(context, &gone, &format!("{} is gone, with its versions and bindings", plain(&secret)))
        }
        Vault::Versions { secret, end } => versions(context, &connection, &secret, end).await,
        Vault::Slots { command } => slots(context, &connection, command.unwrap_or(Slots::List)).await,
        Vault::Bind(bind) => self::bind(context, &connection, bind).await,
        Vault::Unbind { binding } => {
            let request = UnbindSecretRequest { binding_id: binding.to_string() };
            let removed: Value = told(connection.vault().unbind(request).await?)?;
            tell(context, &removed, &format!("{binding} attaches nothing any more"))
        }
        Vault::Bindings => {
            let bindings: Vec<BindingView> = told(connection.vault().bindings(ListBindingsRequest {}).await?)?;
            list_bindings(context, &bindings)
        }
        Vault::Blame { secret } => {
            let request = SecretRequest { reference: secret.to_string() };
            blame(context, &told::<Vec<SecretBlame>>(connection.vault().blame(request).await?)?)
        }
        Vault::Status => status(context, &told(connection.vault().status(VaultStatusRequest {}).await?)?),
        tending => tend(context, &connection, tending).await,
    }
}

/// What concerns the vault as a whole.
async fn tend(context: &Context, connection: &Connection, command: Vault) -> Result<(), Failure> {
    let mut vault = connection.vault();
    match command {
        Vault::Unlock(source) => {
            let value = passphrase(&source, "passphrase of the vault")?.expose().to_vec();
            let view: Value = told(vault.unlock(UnlockVaultRequest { value }).await?)?;
            tell(context, &view, "the vault is open until the daemon ends")
        }
        Vault::Rekey(source) => {
            let view: Status = told(vault.status(VaultStatusRequest {}).await?)?;
            let by_passphrase = view.vault.iter().flat_map(|v| &v.slots).any(|slot| slot.kind == "passphrase");
            let given = source.passphrase_file.is_some();
            let value = if by_passphrase || given {
                vec![passphrase(&source, "passphrase of the vault")?.expose().to_vec()]
            } else {
                Vec::new()
            };
            let report: Value = told(vault.rekey(RekeyVaultRequest { value }).await?)?;
            let sentence = format!("the vault has a new key; {} secrets were wrapped anew", report["rewrapped"]);
            tell(context, &report, &sentence)
        }
        Vault::Migrate { to } => {
            let report: Value = told(vault.migrate(MigrateVaultRequest { to: to.as_str().to_owned() }).await?)?;
            tell(context, &report, &format!("all secrets are in {} now ({} copied)", to.as_str(), report["copied"]))
        }
        Vault::Export { to, passphrase: source } => export(context, connection, &to, &source).await,
        Vault::Import { file, conflict, passphrase: source } => {
            let value = passphrase(&source, "passphrase of the file")?.expose().to_vec();
            let first = ImportPiece { value, conflict: conflict.as_str().to_owned(), sealed: Vec::new() };
            let pieces = pieces_of(&file)?;
            let pieces = std::iter::once(first).chain(pieces);
            let report: Value = told(vault.import(tokio_stream::iter(pieces)).await?)?;
            let sentence = format!(
                "{} secrets added, {} replaced, {} left as they were",
                report["added"], report["replaced"], report["skipped"]
            );
            tell(context, &report, &sentence)
        }
        _ => Err(Failure::usage("this is not a command of the vault", "see `palyra vault --help`")),
    }
}

fn told<T: serde::de::DeserializeOwned>(reply: tonic::Response<VaultDocument>) -> Result<T, Failure> {
    read(&reply.into_inner().document_json)
}

fn tell(context: &Context, record: &Value, sentence: &str) -> Result<(), Failure> {
    if context.json() {
        return output::json(record);
    }
    say!("{} {sentence}", styled(GOOD, "✔"));
    Ok(())
}

/// A reference as people type it.
fn plain(secret: &SecretRef) -> String {
    format!("{}/{}", secret.scope(), secret.name())
}

/// A value from where the command line says it comes from.
fn value(source: &Source, secret: &SecretRef) -> Result<Secret, Failure> {
    if let Some(path) = &source.file {
        let bytes = std::fs::read(path).map_err(|e| Failure::io(&path.display().to_string(), &e))?;
        return Ok(Secret::new(bytes));
    }
    if std::io::stdin().is_terminal() {
        return prompt::twice(&format!("value of {}", plain(secret)));
    }
    from_stdin(source.raw)
}

/// All of standard input, without the line end that `echo` adds.
fn from_stdin(raw: bool) -> Result<Secret, Failure> {
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes).map_err(|e| Failure::io("standard input", &e))?;
    if !raw && bytes.last() == Some(&b'\n') {
        bytes.pop();
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    }
    Ok(Secret::new(bytes))
}

fn passphrase(source: &Passphrase, what: &str) -> Result<Secret, Failure> {
    if let Some(path) = &source.passphrase_file {
        let mut bytes = std::fs::read(path).map_err(|e| Failure::io(&path.display().to_string(), &e))?;
        while bytes.last().is_some_and(|b| matches!(b, b'\n' | b'\r')) {
            bytes.pop();
        }
        return Ok(Secret::new(bytes));
    }
    if std::io::stdin().is_terminal() { prompt::once(what) } else { from_stdin(false) }
}

fn new_passphrase(source: &Passphrase, what: &str) -> Result<Secret, Failure> {
    let asks = source.passphrase_file.is_none() && std::io::stdin().is_terminal();
    if asks { prompt::twice(what) } else { passphrase(source, what) }
}

async fn put(context: &Context, connection: &Connection, put: Put) -> Result<(), Failure> {
    let value = value(&put.source, &put.secret)?.expose().to_vec();
    let request = PutSecretRequest {
        reference: put.secret.to_string(),
        value,
        grace_ms: 0,
        must_be_new: put.new,
        must_exist: false,
    };
    let kept: Value = told(connection.vault().put(request).await?)?;
    tell(context, &kept, &format!("{} is in the vault, version {}", plain(&put.secret), kept["version"]))
}

async fn rotate(context: &Context, connection: &Connection, rotate: Rotate) -> Result<(), Failure> {
    let value = value(&rotate.source, &rotate.secret)?.expose().to_vec();
    let request = PutSecretRequest {
        reference: rotate.secret.to_string(),
        value,
        grace_ms: ms(rotate.grace.unwrap_or_default()),
        must_be_new: false,
        must_exist: true,
    };
    let kept: Value = told(connection.vault().put(request).await?)?;
    let old =
        rotate.grace.map_or("the old value is gone", |_| "the old value stays readable by its version for a while");
    tell(context, &kept, &format!("{} is version {} now; {old}", plain(&rotate.secret), kept["version"]))
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

async fn get(context: &Context, connection: &Connection, get: Get) -> Result<(), Failure> {
    if std::io::stdout().is_terminal() && !prompt::confirmed(&format!("Show {} on this screen?", plain(&get.secret)))? {
        return Err(Failure::new(crate::exit::CANCELLED, "not_confirmed", "nothing was shown", None));
    }
    let request = GetSecretRequest { reference: get.secret.to_string(), version: get.version.unwrap_or_default() };
    let reply = connection.vault().get(request).await?.into_inner();
    let value = Secret::new(reply.value);
    if context.json() {
        let shown = match std::str::from_utf8(value.expose()) {
            Ok(text) => json!({ "reference": get.secret, "version": reply.version, "value": text }),
            Err(_) => {
                use base64::Engine as _;
                let text = base64::engine::general_purpose::STANDARD.encode(value.expose());
                json!({ "reference": get.secret, "version": reply.version, "value_base64": text })
            }
        };
        return output::json(&shown);
    }
    output::bytes(value.expose());
    if std::io::stdout().is_terminal() {
        output::bytes(b"\n");
    }
    Ok(())
}

#[derive(Debug, Deserialize, serde::Serialize)]
struct Listing {
    secrets: Vec<Metadata>,
    damaged: Vec<Damaged>,
}

#[derive(Debug, Deserialize, serde::Serialize)]
struct Metadata {
    reference: SecretRef,
    version: u64,
    versions: Vec<Version>,
}

#[derive(Debug, Deserialize, serde::Serialize)]
struct Version {
    version: u64,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    bytes: u32,
}

#[derive(Debug, Deserialize, serde::Serialize)]
struct Damaged {
    alleged: Option<SecretRef>,
    reason: String,
}

fn list(context: &Context, listing: &Listing) -> Result<(), Failure> {
    if context.json() {
        return output::json(listing);
    }
    for blob in &listing.damaged {
        let named = blob.alleged.as_ref().map_or_else(|| "a secret".to_owned(), plain);
        note!("{} {named} is damaged: {}", styled(WARN, "!"), safe(&blob.reason));
    }
    if listing.secrets.is_empty() {
        say!("No secrets. Put one in: palyra vault put global/NAME");
        return Ok(());
    }
    let row = |secret: &Metadata| {
        let current = secret.versions.last();
        vec![
            plain(&secret.reference),
            secret.version.to_string(),
            secret.versions.len().to_string(),
            current.map_or_else(String::new, |version| format!("{} B", version.bytes)),
            current.map_or_else(String::new, |version| when(version.created_at)),
        ]
    };
    output::table(
        &["SECRET", "VERSION", "KEPT", "SIZE", "SINCE"],
        &listing.secrets.iter().map(row).collect::<Vec<_>>(),
    );
    Ok(())
}

async fn versions(
    context: &Context,
    connection: &Connection,
    secret: &SecretRef,
    end: Option<u64>,
) -> Result<(), Failure> {
    let reference = secret.to_string();
    let reply = match end {
        Some(version) => connection.vault().end_grace(EndGraceRequest { reference, version }).await?,
        None => connection.vault().versions(SecretRequest { reference }).await?,
    };
    let known: Metadata = told(reply)?;
    if context.json() {
        return output::json(&known);
    }
    let row = |version: &Version| {
        let stands = version.expires_at.map_or_else(|| "current".to_owned(), |at| format!("{} more", remaining(at)));
        vec![version.version.to_string(), stands, when(version.created_at), format!("{} B", version.bytes)]
    };
    output::table(&["VERSION", "HOLDS", "SINCE", "SIZE"], &known.versions.iter().map(row).collect::<Vec<_>>());
    Ok(())
}

async fn slots(context: &Context, connection: &Connection, command: Slots) -> Result<(), Failure> {
    let mut vault = connection.vault();
    match command {
        Slots::List => {
            let view: Status = told(vault.status(VaultStatusRequest {}).await?)?;
            let slots = view.vault.map(|vault| vault.slots).unwrap_or_default();
            if context.json() {
                return output::json(&slots);
            }
            let row = |slot: &SlotView| {
                vec![slot.slot.to_string(), slot.kind.clone(), safe(&slot.label), when(slot.created_at)]
            };
            output::table(&["SLOT", "OPENS BY", "LABEL", "SINCE"], &slots.iter().map(row).collect::<Vec<_>>());
            Ok(())
        }
        Slots::Add { kind, name, label, passphrase: source } => {
            let value = match kind {
                Slot::Passphrase => new_passphrase(&source, "new passphrase of the vault")?.expose().to_vec(),
                Slot::KeyFile | Slot::Keyring | Slot::Command => Vec::new(),
            };
            let request =
                AddSlotRequest { label, kind: kind.as_str().to_owned(), value, name: name.unwrap_or_default() };
            let slot: Value = told(vault.add_slot(request).await?)?;
            tell(context, &slot, &format!("slot {} opens the vault too", slot["slot"]))
        }
        Slots::Remove { slot } => {
            let removed: Value = told(vault.remove_slot(RemoveSlotRequest { slot }).await?)?;
            let sentence = "it opens nothing any more; old copies of the vault: `palyra vault rekey` ends those";
            tell(context, &removed, &format!("slot {slot} is gone: {sentence}"))
        }
    }
}

#[derive(Debug, Deserialize, serde::Serialize)]
struct BindingView {
    id: String,
    created_at: Timestamp,
    secret: SecretRef,
    hosts: Vec<String>,
    header: String,
    program: Option<Value>,
    methods: Vec<String>,
    path: Option<String>,
}

async fn bind(context: &Context, connection: &Connection, bind: Bind) -> Result<(), Failure> {
    let request = BindSecretRequest {
        reference: bind.secret.to_string(),
        hosts: bind.hosts,
        header: bind.header,
        program: bind.program.unwrap_or_default(),
        methods: bind.methods,
        path: bind.path.unwrap_or_default(),
    };
    let made: Value = told(connection.vault().bind(request).await?)?;
    let id = made["id"].as_str().unwrap_or_default().to_owned();
    tell(context, &made, &format!("{} is attached by the proxy from now on ({id})", plain(&bind.secret)))
}

fn list_bindings(context: &Context, bindings: &[BindingView]) -> Result<(), Failure> {
    if context.json() {
        return output::json(&bindings);
    }
    if bindings.is_empty() {
        say!("No bindings. Make one: palyra vault bind --help");
        return Ok(());
    }
    let row = |binding: &BindingView| {
        let program = binding.program.as_ref().and_then(|program| program["name"].as_str()).unwrap_or("any");
        let methods = if binding.methods.is_empty() { "any".to_owned() } else { binding.methods.join(",") };
        vec![
            binding.id.clone(),
            plain(&binding.secret),
            binding.hosts.join(","),
            safe(program),
            methods,
            safe(binding.path.as_deref().unwrap_or("any")),
            safe(&binding.header),
        ]
    };
    let head = ["BINDING", "SECRET", "HOSTS", "PROGRAM", "METHODS", "PATH", "HEADER"];
    output::table(&head, &bindings.iter().map(row).collect::<Vec<_>>());
    Ok(())
}

#[derive(Debug, Deserialize, serde::Serialize)]
struct Status {
    vault: Option<VaultView>,
    directory: Option<String>,
    secrets: u64,
    damaged: u64,
    protection: Vec<Protection>,
}

#[derive(Debug, Deserialize, serde::Serialize)]
struct VaultView {
    vault: String,
    directory: String,
    created_at: Timestamp,
    revision: u64,
    backend: String,
    slots: Vec<SlotView>,
    opened_by: u32,
    bindings: u64,
    pending: Vec<Value>,
}

#[derive(Debug, Deserialize, serde::Serialize)]
struct SlotView {
    slot: u32,
    kind: String,
    label: String,
    created_at: Timestamp,
}

#[derive(Debug, Deserialize, serde::Serialize)]
struct Protection {
    slot: String,
    protects_from: String,
    does_not_protect_from: String,
}

fn status(context: &Context, view: &Status) -> Result<(), Failure> {
    if context.json() {
        return output::json(view);
    }
    let Some(vault) = &view.vault else {
        say!("There is no vault yet. The first `palyra vault put` makes it, with a key file.");
        return Ok(());
    };
    say!("{} in {}", styled(BOLD, &vault.vault), safe(&vault.directory));
    let slots: Vec<_> = vault.slots.iter().map(|slot| format!("{} ({})", slot.slot, slot.kind)).collect();
    for (name, value) in [
        ("secrets", view.secrets.to_string()),
        ("bindings", vault.bindings.to_string()),
        ("backend", vault.backend.clone()),
        ("slots", slots.join(", ")),
        ("opened by", format!("slot {}", vault.opened_by)),
    ] {
        say!("  {}{}{value}", styled(BOLD, name), " ".repeat(12 - name.len()));
    }
    if view.damaged > 0 {
        say!("{} {} secrets are damaged: `palyra vault list` names them", styled(WARN, "!"), view.damaged);
    }
    for pending in &vault.pending {
        say!("{} interrupted, and not finished yet: {}", styled(WARN, "!"), safe(&pending.to_string()));
    }
    for protection in &view.protection {
        say!("");
        say!("A {} protects from:", styled(BOLD, protection.slot.replace('_', " ")));
        say!("  {}", protection.protects_from);
        say!("It does not protect from:");
        say!("  {}", protection.does_not_protect_from);
    }
    Ok(())
}

fn blame(context: &Context, uses: &[SecretBlame]) -> Result<(), Failure> {
    if context.json() {
        return output::json(&uses);
    }
    if uses.is_empty() {
        say!("The journal has no use of it.");
        return Ok(());
    }
    for entry in uses {
        let via = entry.via.map_or_else(String::new, |via| format!(" by {via}"));
        let call = entry.call_id.as_ref().map_or_else(String::new, |call| format!(" for {call}"));
        say!("{}  {} {}{via}{call}", when(entry.at), styled(BOLD, safe(&entry.what)), entry.by);
        let program = entry.program.as_ref().map(|program| format!("program {}", safe(program)));
        let endpoints =
            (!entry.endpoints.is_empty()).then(|| format!("endpoint {}", safe(&entry.endpoints.join(", "))));
        let decision = entry.decision.as_ref().map(|decision| format!("decision {}", safe(decision)));
        let purpose = (!entry.purpose.is_empty()).then(|| safe(&entry.purpose));
        let rest: Vec<_> = [program, endpoints, decision, purpose].into_iter().flatten().collect();
        if !rest.is_empty() {
            say!("    {}", styled(DIM, rest.join("; ")));
        }
    }
    Ok(())
}

/// Writes the sealed file beside its name and puts it in place when it is whole.
async fn export(context: &Context, connection: &Connection, to: &Path, source: &Passphrase) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::io(&to.display().to_string(), &e);
    let mut out = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(to).map_err(failed)?;
    let written = write_export(connection, &mut out, source).await.and_then(|report| {
        out.sync_all().map_err(failed)?;
        Ok(report)
    });
    match written {
        Ok(report) => {
            let report: Value = read(&report)?;
            let sentence =
                format!("{} secrets and {} bindings are in {}", report["secrets"], report["bindings"], to.display());
            tell(context, &report, &sentence)
        }
        Err(failure) => {
            // Half an export is none.
            if let Err(error) = std::fs::remove_file(to) {
                note!("{} cannot be removed: {error}", to.display());
            }
            Err(failure)
        }
    }
}

async fn write_export(
    connection: &Connection,
    out: &mut std::fs::File,
    source: &Passphrase,
) -> Result<String, Failure> {
    let value = new_passphrase(source, "passphrase that seals the file")?.expose().to_vec();
    let mut pieces = connection.vault().export(ExportVaultRequest { value }).await?.into_inner();
    let mut report = None;
    while let Some(piece) = pieces.message().await? {
        out.write_all(&piece.sealed).map_err(|e| Failure::io("the exported file", &e))?;
        report = (!piece.report_json.is_empty()).then_some(piece.report_json);
    }
    report.ok_or_else(|| Failure::new(crate::exit::FAILED, "export_cut_off", "the export broke off", None))
}

/// A file in pieces that messages can hold.
fn pieces_of(path: &Path) -> Result<Vec<ImportPiece>, Failure> {
    let bytes = std::fs::read(path).map_err(|e| Failure::io(&path.display().to_string(), &e))?;
    let piece = |sealed: &[u8]| ImportPiece { sealed: sealed.to_vec(), ..ImportPiece::default() };
    Ok(bytes.chunks(PIECE).map(piece).collect())
}
