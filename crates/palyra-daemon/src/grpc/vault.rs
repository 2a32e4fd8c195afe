//! Secrets: the vault's service. Values arrive in `bytes` fields, go straight into a type that wipes itself, and leave
//! in one reply.

use super::{Door, Reply, Streamed, document, malformed, parsed, refused};
use palyra_api::v1::vault_server::Vault;
use palyra_api::v1::{
    AddSlotRequest, BindSecretRequest, EndGraceRequest, ExportVaultRequest, ExportedPiece, GetSecretRequest,
    ImportPiece, ListBindingsRequest, ListSecretsRequest, MigrateVaultRequest, PutSecretRequest, RekeyVaultRequest,
    RemoveSlotRequest, SecretReply, SecretRequest, UnbindSecretRequest, UnlockVaultRequest, VaultDocument,
    VaultStatusRequest,
};
use palyra_engine::EngineError;
use palyra_engine::vault::{
    BackendKind, ImportConflict, NewBinding, NewSecret, PlainBinding, PutOptions, Replaces, SecretValue, SlotRequest,
};
use palyra_protocol::SecretRef;
use serde::Serialize;
use serde_json::json;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

/// How much of an exported file travels at once.
const PIECE: usize = 1 << 20;
/// The largest exported file that is taken in.
const MAX_IMPORT: u64 = 4 << 30;

#[tonic::async_trait]
impl Vault for Door {
    type ExportStream = Streamed<ExportedPiece>;

    async fn put(&self, request: Request<PutSecretRequest>) -> Reply<VaultDocument> {
        let peer = self.peer(&request)?;
        let PutSecretRequest { reference, value, grace_ms, must_be_new, must_exist } = request.into_inner();
        let reference: SecretRef = parsed(&reference)?;
        let value = secret(value)?;
        let replaces = match (must_be_new, must_exist) {
            (true, true) => return Err(malformed("a secret cannot be new and be there")),
            (true, false) => Replaces::Nothing,
            (false, true) => {
                let known = self.engine.vault_versions(&peer, &reference).await.map_err(refused)?;
                Replaces::Version(known.version)
            }
            (false, false) => Replaces::Anything,
        };
        let options = PutOptions { grace: Duration::from_millis(grace_ms), replaces };
        told(self.engine.vault_put(&peer, NewSecret { reference, value, options }).await)
    }

    async fn get(&self, request: Request<GetSecretRequest>) -> Reply<SecretReply> {
        let peer = self.peer(&request)?;
        let GetSecretRequest { reference, version } = request.into_inner();
        let version = (version > 0).then_some(version);
        let got = self.engine.vault_get(&peer, &parsed(&reference)?, version).await;
        let (version, value) = got.map_err(refused)?;
        Ok(Response::new(SecretReply { value: value.expose().to_vec(), version }))
    }

    async fn list(&self, request: Request<ListSecretsRequest>) -> Reply<VaultDocument> {
        let peer = self.peer(&request)?;
        told(self.engine.vault_list(&peer, super::optional(&request.get_ref().scope)?).await)
    }

    async fn delete(&self, request: Request<SecretRequest>) -> Reply<VaultDocument> {
        let peer = self.peer(&request)?;
        let reference: SecretRef = parsed(&request.get_ref().reference)?;
        let deleted = self.engine.vault_delete(&peer, &reference).await;
        told(deleted.map(|()| json!({ "deleted": reference })))
    }

    async fn versions(&self, request: Request<SecretRequest>) -> Reply<VaultDocument> {
        let peer = self.peer(&request)?;
        told(self.engine.vault_versions(&peer, &parsed(&request.get_ref().reference)?).await)
    }

    async fn end_grace(&self, request: Request<EndGraceRequest>) -> Reply<VaultDocument> {
        let peer = self.peer(&request)?;
        let EndGraceRequest { reference, version } = request.into_inner();
        let reference = parsed(&reference)?;
        self.engine.vault_end_grace(&peer, &reference, version).await.map_err(refused)?;
        told(self.engine.vault_versions(&peer, &reference).await)
    }

    async fn bind(&self, request: Request<BindSecretRequest>) -> Reply<VaultDocument> {
        let peer = self.peer(&request)?;
        told(self.engine.vault_bind(&peer, binding(request.into_inner())?).await)
    }

    async fn unbind(&self, request: Request<UnbindSecretRequest>) -> Reply<VaultDocument> {
        let peer = self.peer(&request)?;
        told(self.engine.vault_unbind(&peer, parsed(&request.get_ref().binding_id)?).await)
    }

    async fn bindings(&self, request: Request<ListBindingsRequest>) -> Reply<VaultDocument> {
        let peer = self.peer(&request)?;
        told(self.engine.vault_bindings(&peer).await)
    }

    async fn blame(&self, request: Request<SecretRequest>) -> Reply<VaultDocument> {
        let peer = self.peer(&request)?;
        told(self.engine.vault_blame(&peer, &parsed(&request.get_ref().reference)?).await)
    }

    async fn status(&self, request: Request<VaultStatusRequest>) -> Reply<VaultDocument> {
        let peer = self.peer(&request)?;
        told(self.engine.vault_status(&peer).await)
    }

    async fn unlock(&self, request: Request<UnlockVaultRequest>) -> Reply<VaultDocument> {
        let peer = self.peer(&request)?;
        let passphrase = secret(request.into_inner().value)?;
        self.engine.vault_unlock(&peer, passphrase).await.map_err(refused)?;
        told(self.engine.vault_status(&peer).await)
    }

    async fn add_slot(&self, request: Request<AddSlotRequest>) -> Reply<VaultDocument> {
        let peer = self.peer(&request)?;
        let AddSlotRequest { label, kind, value, name } = request.into_inner();
        let slot = match kind.as_str() {
            "key_file" if name.starts_with('/') => SlotRequest::KeyFile(PathBuf::from(name)),
            "key_file" => return Err(malformed("name the key file by its absolute path")),
            "passphrase" => SlotRequest::Passphrase(secret(value)?),
            "keyring" => SlotRequest::Keyring,
            "command" => SlotRequest::Command(name),
            _ => return Err(malformed("a key slot is a key_file, a passphrase, the keyring or a command")),
        };
        told(self.engine.vault_add_slot(&peer, label, slot).await)
    }

    async fn remove_slot(&self, request: Request<RemoveSlotRequest>) -> Reply<VaultDocument> {
        let peer = self.peer(&request)?;
        told(self.engine.vault_remove_slot(&peer, request.get_ref().slot).await)
    }

    async fn rekey(&self, request: Request<RekeyVaultRequest>) -> Reply<VaultDocument> {
        let peer = self.peer(&request)?;
        let passphrases = request.into_inner().value.into_iter().map(secret).collect::<Result<_, _>>()?;
        let report = self.engine.vault_rekey(&peer, passphrases).await;
        told(report.map(|report| json!({ "rewrapped": report.rewrapped, "damaged": report.damaged.len() })))
    }

    async fn migrate(&self, request: Request<MigrateVaultRequest>) -> Reply<VaultDocument> {
        let peer = self.peer(&request)?;
        let wanted = request.get_ref().to.as_str();
        let to = BackendKind::ALL.into_iter().find(|kind| kind.as_str() == wanted);
        let known = || BackendKind::ALL.map(BackendKind::as_str).join(", ");
        let to = to.ok_or_else(|| malformed(format!("there is no backend `{wanted}`; there are {}", known())))?;
        let report = self.engine.vault_migrate(&peer, to).await;
        let done = |report: palyra_engine::vault::MigrationReport| json!({ "backend": to.as_str(), "copied": report.copied, "removed": report.removed });
        told(report.map(done))
    }

    async fn export(&self, request: Request<ExportVaultRequest>) -> Reply<Self::ExportStream> {
        let peer = self.peer(&request)?;
        let passphrase = secret(request.into_inner().value)?;
        let out = nameless_file(&self.about.state_dir).await?;
        let (file, report) = self.engine.vault_export(&peer, out, passphrase).await.map_err(refused)?;
        let report = json!({
            "secrets": report.secrets, "bindings": report.bindings, "damaged": report.damaged.len(),
        });
        let (sender, receiver) = mpsc::channel(4);
        tokio::task::spawn_blocking(move || send_file(file, &report.to_string(), &sender));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn import(&self, request: Request<Streaming<ImportPiece>>) -> Reply<VaultDocument> {
        let peer = self.peer(&request)?;
        let mut pieces = request.into_inner();
        let first = pieces.next().await.ok_or_else(|| malformed("an import begins with its passphrase"))??;
        let conflict = match first.conflict.as_str() {
            "" | "refuse" => ImportConflict::Refuse,
            "skip" => ImportConflict::Skip,
            "replace" => ImportConflict::Replace,
            _ => return Err(malformed("secrets that are there: refuse, skip or replace")),
        };
        let passphrase = secret(first.value)?;
        let mut file = nameless_file(&self.about.state_dir).await?;
        let (mut size, mut piece) = (0_u64, Some(first.sealed));
        while let Some(sealed) = piece {
            size += sealed.len() as u64;
            if size > MAX_IMPORT {
                return Err(malformed(format!("an exported file has at most {MAX_IMPORT} bytes")));
            }
            file = tokio::task::spawn_blocking(move || file.write_all(&sealed).map(|()| file))
                .await
                .map_err(|e| Status::internal(e.to_string()))?
                .map_err(|e| Status::unavailable(format!("the file cannot be kept: {e}")))?;
            piece = pieces.next().await.transpose()?.map(|piece| piece.sealed);
        }
        let rewound = file.seek(SeekFrom::Start(0));
        rewound.map_err(|e| Status::internal(e.to_string()))?;
        let report = self.engine.vault_import(&peer, file, passphrase, conflict).await;
        told(report.map(|report| {
            json!({
                "added": report.added, "replaced": report.replaced, "skipped": report.skipped, "bindings": report.bindings,
            })
        }))
    }
}

fn told<T: Serialize>(record: Result<T, EngineError>) -> Reply<VaultDocument> {
    Ok(Response::new(VaultDocument { document_json: document(&record.map_err(refused)?)? }))
}

/// Bytes of a request as a secret. What is refused is wiped.
fn secret(bytes: Vec<u8>) -> Result<SecretValue, Status> {
    SecretValue::new(bytes).map_err(|error| refused(palyra_engine::vault::refused(&error)))
}

fn binding(request: BindSecretRequest) -> Result<PlainBinding, Status> {
    let BindSecretRequest { reference, hosts, header, program, methods, path } = request;
    let terms = NewBinding {
        secret: parsed(&reference)?,
        hosts: hosts.iter().map(|host| parsed(host)).collect::<Result<_, _>>()?,
        header: parsed(&header)?,
        program: None,
        methods: methods.iter().map(|method| parsed(method)).collect::<Result<_, _>>()?,
        path: super::optional(&path)?,
    };
    Ok(PlainBinding { terms, program: (!program.is_empty()).then_some(program) })
}

/// A file without a name in the state directory: it is gone when it is closed, whatever happens.
async fn nameless_file(state_dir: &Path) -> Result<File, Status> {
    use rustix::fs::{Mode, OFlags, open};
    let directory = state_dir.to_owned();
    let opened = tokio::task::spawn_blocking(move || {
        open(&directory, OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR).map(File::from)
    });
    let opened = opened.await.map_err(|e| Status::internal(e.to_string()))?;
    opened.map_err(|e| Status::unavailable(format!("no temporary file can be made in the state directory: {e}")))
}

/// Sends a file in pieces, and a report last. A client that has gone ends it.
fn send_file(mut file: File, report: &str, sender: &mpsc::Sender<Result<ExportedPiece, Status>>) {
    let failed = |error: std::io::Error| Status::internal(format!("the export cannot be read back: {error}"));
    if let Err(error) = file.seek(SeekFrom::Start(0)) {
        drop(sender.blocking_send(Err(failed(error))));
        return;
    }
    loop {
        let mut piece = vec![0; PIECE];
        match file.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => {
                piece.truncate(length);
                let piece = ExportedPiece { sealed: piece, report_json: String::new() };
                if sender.blocking_send(Ok(piece)).is_err() {
                    return;
                }
            }
            Err(error) => {
                drop(sender.blocking_send(Err(failed(error))));
                return;
            }
        }
    }
    drop(sender.blocking_send(Ok(ExportedPiece { sealed: Vec::new(), report_json: report.to_owned() })));
}
