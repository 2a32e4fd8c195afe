//! The secrets that a call names: by reference alone, each with the way in which it reaches what uses it.
//!
//! What an input names as the source of a secret is a vault reference and nothing else: no file, no variable, no
//! command. A call that wants a secret that is not there is refused with the reference, so that a person can fill it
//! in.

use super::{Input, Place};
use crate::flow::resolve::Refusal;
use crate::vault::plain;
use palyra_protocol::facets::SecretUse;
use palyra_protocol::{Problem, SecretDelivery, SecretRef};
use serde_json::{Value, json};

/// The most secrets of one call.
const MOST: usize = 16;
/// The longest name of a file or variable.
const MAX_NAME: usize = 64;

/// Which ways a tool has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ways {
    /// The proxy alone: the tool makes the request itself.
    Proxy,
    /// The proxy, a file, or a variable: the tool runs a program.
    All,
}

/// The part of an input schema that names secrets.
pub(super) fn schema(ways: Ways) -> Value {
    let (kinds, about) = match ways {
        Ways::Proxy => (json!(["proxy"]), "`proxy`: attached to requests for the endpoint that the secret is bound to"),
        Ways::All => (
            json!(["proxy", "file", "env"]),
            "`proxy`: attached by the daemon to requests for the endpoint that the secret is bound to, the program holds a placeholder; \
             `file`: a private file `/run/secrets/NAME`; `env`: a variable NAME, which everything that the program starts can read",
        ),
    };
    json!({
        "type": "array", "maxItems": MOST,
        "description": "secrets of the vault that the call uses, by reference; their values are never shown",
        "items": {
            "type": "object", "additionalProperties": false, "required": ["ref", "as"],
            "properties": {
                "ref": { "type": "string", "maxLength": SecretRef::MAX, "description": "`vault://SCOPE/NAME`" },
                "as": { "enum": kinds, "description": about },
                "name": {
                    "type": "string", "minLength": 1, "maxLength": MAX_NAME,
                    "description": "the file or the variable; with `proxy`, a variable that holds a placeholder",
                },
            },
        },
    })
}

/// The secrets that an input names, without looking whether they are there.
pub(super) fn named(input: Input<'_>) -> Result<Vec<SecretUse>, Refusal> {
    let items = input.value().pointer("/secrets").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut uses: Vec<SecretUse> = Vec::with_capacity(items.len());
    for item in items {
        let text = |key: &str| item.get(key).and_then(Value::as_str);
        let secret: SecretRef = text("ref").unwrap_or("").parse().map_err(|e: palyra_protocol::SecretRefError| {
            Problem::new(e.code(), e.to_string(), "name a secret of the vault; no file, variable or command is taken")
        })?;
        let via = match text("as") {
            Some("proxy") => SecretDelivery::Proxy,
            Some("file") => SecretDelivery::File,
            _ => SecretDelivery::Env,
        };
        let name = match (via, text("name")) {
            (SecretDelivery::File, None) => secret.name().as_str().rsplit('/').next().map(str::to_owned),
            (_, name) => name.map(str::to_owned),
        };
        let found = SecretUse { secret, via, name, endpoints: Vec::new() };
        check_name(&found)?;
        if uses.iter().any(|other| clash(other, &found)) {
            let message = format!("`{}` is named twice, or two secrets have one name", found.secret);
            return Err(Problem::new("secret_named_twice", message, "name each secret, file and variable once").into());
        }
        uses.push(found);
    }
    Ok(uses)
}

/// The same, with the endpoints that they are bound to.
pub(super) fn bound(uses: &mut [SecretUse], place: &Place<'_>) {
    let Some(bindings) = place.vault.and_then(|vault| vault.bindings()) else { return };
    for found in uses.iter_mut().filter(|found| found.via == SecretDelivery::Proxy) {
        let hosts = bindings.of(&found.secret).flat_map(palyra_vault::Binding::hosts);
        found.endpoints = hosts.map(ToString::to_string).collect();
    }
}

/// Refuses a call that wants a secret that is not there, or that the proxy could not attach to anything.
pub(super) fn check(uses: &[SecretUse], place: &Place<'_>) -> Result<(), Problem> {
    let Some(vault) = place.vault else { return Ok(()) };
    for found in uses {
        let name = plain(&found.secret);
        match vault.has(&found.secret) {
            Ok(true) => {}
            Ok(false) => {
                let message = format!("the call wants `{}`, which is not in the vault", found.secret);
                let hint = format!("a person can fill it in: `palyra vault put {name}`; then propose the call again");
                return Err(Problem::new("secret_missing", message, hint));
            }
            Err(error) => return Err(crate::vault::refused(&error).problem),
        }
        if found.via == SecretDelivery::Proxy && found.endpoints.is_empty() {
            let message =
                format!("`{}` is bound to no endpoint, so the proxy would attach it to nothing", found.secret);
            let hint = format!(
                "a person can bind it: `palyra vault bind {name} --host HOST --header 'Authorization: Bearer {{}}'`"
            );
            return Err(Problem::new("secret_not_bound", message, hint));
        }
    }
    Ok(())
}

fn check_name(found: &SecretUse) -> Result<(), Problem> {
    let variable = |name: &str| {
        !name.starts_with(|c: char| c.is_ascii_digit()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    let file =
        |name: &str| !name.starts_with('.') && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    let fits = match (found.via, &found.name) {
        (SecretDelivery::File, Some(name)) => file(name),
        (SecretDelivery::Env, None) => false,
        (_, Some(name)) => variable(name),
        (_, None) => true,
    };
    if fits {
        return Ok(());
    }
    let what = if found.via == SecretDelivery::File { "a file's name" } else { "a variable's name" };
    let message = format!("`{}` needs {what}: letters, digits and `_`", found.secret);
    Err(Problem::new("secret_name_unusable", message, "say it in `name`"))
}

fn clash(a: &SecretUse, b: &SecretUse) -> bool {
    let variable = |found: &SecretUse| found.name.clone().filter(|_| found.via != SecretDelivery::File);
    let file = |found: &SecretUse| found.name.clone().filter(|_| found.via == SecretDelivery::File);
    let same = |x: Option<String>, y: Option<String>| x.is_some() && x == y;
    a.secret == b.secret && a.via == b.via || same(variable(a), variable(b)) || same(file(a), file(b))
}
