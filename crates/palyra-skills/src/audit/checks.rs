//! The checks on what a manifest says: limits, capabilities, compatibility, texts.

use super::component::ComponentFacts;
use super::deception::{hidden, order};
use super::imports::{ImportClass, NeededCapability, classify};
use super::report::{CheckId, CheckStatus, Finding};
use super::{AuditContext, Subject};
use crate::constants::{INSTRUCTIONS_ENTRY, WORLD_PACKAGE};
use crate::manifest::{Manifest, SkillKind};
use serde_json::Value;

/// A component's entry and what it is.
pub(super) type Component<'a> = (&'a str, &'a ComponentFacts);

pub(super) fn size(subject: &Subject, context: &AuditContext<'_>) -> Finding {
    let mut finding = Finding::new(CheckId::LimitsSize);
    let limits = &context.policy.limits;
    if let Some(bytes) = subject.artifact_bytes.filter(|bytes| *bytes > limits.max_artifact_bytes) {
        finding.fail(format!("the artifact has {bytes} bytes; the limit is {}", limits.max_artifact_bytes));
    }
    for module in crate::artifact::modules(&subject.entries) {
        let bytes = module.content.len() as u64;
        if bytes > limits.max_module_bytes {
            finding.fail(format!("`{}` has {bytes} bytes; the limit is {}", module.name, limits.max_module_bytes));
        }
    }
    finding
}

pub(super) fn quotas(manifest: &Manifest, context: &AuditContext<'_>) -> Finding {
    let mut finding = Finding::new(CheckId::LimitsQuotas);
    let (limits, asked) = (&context.policy.limits, &manifest.capabilities);
    for (what, wanted, limit) in [
        ("capabilities.quotas.fuel_budget", asked.quotas.fuel_budget, limits.max_fuel_budget),
        ("capabilities.quotas.max_memory_bytes", asked.quotas.max_memory_bytes, limits.max_memory_bytes),
        ("capabilities.quotas.wall_clock_ms", asked.quotas.wall_clock_ms, limits.max_wall_clock_ms),
        ("capabilities.storage.max_bytes", asked.storage_bytes, limits.max_storage_bytes),
        ("the number of tools", manifest.tools.len() as u64, limits.max_tools),
    ] {
        if wanted > limit {
            finding.fail(format!("{what} is {wanted}; the limit is {limit}"));
        }
    }
    finding
}

pub(super) fn imports(components: &[Component<'_>], context: &AuditContext<'_>) -> Finding {
    let mut finding = Finding::new(CheckId::WasmImports);
    for (name, facts) in components {
        for import in &facts.imports {
            let shown = crate::text::excerpt(import);
            if let ImportClass::Forbidden { why } = classify(import) {
                finding.fail(format!("`{name}` imports `{shown}`: {why}"));
            } else if context.policy.forbids_import(import) {
                finding.fail(format!("`{name}` imports `{shown}`, which the audit policy forbids"));
            }
        }
    }
    finding
}

pub(super) fn exports(components: &[Component<'_>]) -> Finding {
    let mut finding = Finding::new(CheckId::WasmExports);
    for (name, facts) in components {
        if let Some(fault) = &facts.world {
            finding.fail(format!("`{name}`: {fault}"));
        }
        let foreign = facts.exports.iter().filter(|export| !export.starts_with(&format!("{WORLD_PACKAGE}/")));
        for export in foreign {
            finding.warn(format!("`{name}` exports `{}`, which nothing calls", crate::text::excerpt(export)));
        }
    }
    finding
}

pub(super) fn memory(manifest: &Manifest, components: &[Component<'_>]) -> Finding {
    let mut finding = Finding::new(CheckId::WasmMemory);
    let quota = manifest.capabilities.quotas.max_memory_bytes;
    for (name, facts) in components {
        if facts.initial_memory_bytes > quota {
            let wanted = facts.initial_memory_bytes;
            finding.fail(format!("`{name}` wants {wanted} bytes of memory at the start; its quota is {quota}"));
        }
    }
    finding
}

/// Wildcards that the manifest opts in to; one without a reason is no manifest at all.
pub(super) fn wildcards(manifest: &Manifest, context: &AuditContext<'_>) -> Finding {
    let mut finding = Finding::new(CheckId::CapabilitiesWildcards);
    for wildcard in &manifest.capabilities.wildcards {
        let reason = crate::text::excerpt(&wildcard.reason);
        let evidence = format!("`{}` asks for `{}`: {reason}", wildcard.capability.as_str(), wildcard.pattern);
        finding.add(context.policy.wildcards.into(), evidence);
    }
    finding
}

pub(super) fn forbidden(manifest: &Manifest, context: &AuditContext<'_>) -> Finding {
    let mut finding = Finding::new(CheckId::CapabilitiesForbidden);
    for host in &manifest.capabilities.egress {
        let clash = context.policy.forbidden_hosts.iter().find(|bad| bad.forbids(host));
        if let Some(bad) = clash {
            finding.fail(format!("`http.egress` asks for `{host}`; `{bad}` is forbidden"));
        }
    }
    for secret in &manifest.capabilities.secrets {
        if context.policy.forbidden_secret_scopes.contains(&secret.scope) {
            finding.fail(format!("`secrets` asks for `{secret}`; the scope `{}` is forbidden", secret.scope));
        }
    }
    finding
}

/// What is asked for and not imported: harmless, but a manifest should say what is so.
pub(super) fn unused(manifest: &Manifest, components: &[Component<'_>]) -> Finding {
    let mut finding = Finding::new(CheckId::CapabilitiesUnused);
    if manifest.kind == SkillKind::Instructions {
        return finding;
    }
    let imported = |wanted: NeededCapability| {
        let mut imports = components.iter().flat_map(|(_, facts)| &facts.imports);
        imports.any(|import| matches!(classify(import), ImportClass::Capability { needs, .. } if needs == wanted))
    };
    for needed in NeededCapability::ALL {
        if needed.is_declared(&manifest.capabilities) && !imported(needed) {
            finding.warn(format!("`{needed}` is asked for, but no component imports an interface for it"));
        }
    }
    finding
}

/// What is imported and not asked for: see [`super::imports`].
pub(super) fn undeclared(manifest: &Manifest, components: &[Component<'_>], context: &AuditContext<'_>) -> Finding {
    let mut finding = Finding::new(CheckId::CapabilitiesUndeclared);
    for (name, facts) in components {
        for import in &facts.imports {
            let ImportClass::Capability { needs, is_virtualised } = classify(import) else { continue };
            if needs.is_declared(&manifest.capabilities) {
                continue;
            }
            let evidence = format!("`{name}` imports `{import}`, but the manifest does not ask for `{needs}`");
            match is_virtualised {
                true => finding.add(context.policy.undeclared_imports.into(), evidence),
                false => finding.fail(format!("{evidence}, so it cannot run")),
            }
        }
    }
    finding
}

pub(super) fn risk(manifest: &Manifest) -> Finding {
    let mut finding = Finding::new(CheckId::ToolsRisk);
    for tool in &manifest.tools {
        let least = manifest.least_risk();
        if tool.risk < least {
            let (id, risk) = (&tool.id, tool.risk);
            finding.warn(format!("the tool `{id}` says `{risk}`; what the skill asks for means at least `{least}`"));
        }
    }
    finding
}

pub(super) fn compat(manifest: &Manifest, context: &AuditContext<'_>) -> [Finding; 2] {
    let (mut protocol, mut palyra) = (Finding::new(CheckId::CompatProtocol), Finding::new(CheckId::CompatPalyra));
    let (wanted, host) = (&manifest.compat, &context.host);
    if wanted.required_protocol_major != host.protocol_major {
        let (wanted, has) = (wanted.required_protocol_major, host.protocol_major);
        protocol.fail(format!("the skill wants protocol {wanted}; this daemon speaks {has}"));
    }
    if wanted.min_palyra_version > host.palyra {
        let (wanted, has) = (&wanted.min_palyra_version, &host.palyra);
        palyra.fail(format!("the skill wants Palyra {wanted} or later; this is {has}"));
    }
    [protocol, palyra]
}

/// Looks through every text that a model or a person is shown.
pub(super) fn texts(manifest: &Manifest, subject: &Subject, context: &AuditContext<'_>) -> [Finding; 2] {
    let mut found = [Finding::new(CheckId::TextHidden), Finding::new(CheckId::TextInstructions)];
    let mut look = |place: &str, text: &str, is_document: bool| {
        let [concealed, orders] = &mut found;
        for hidden in hidden(text) {
            let innocent = hidden.may_be_innocent() || is_document && hidden.may_be_markup();
            let status = if innocent { CheckStatus::Warn } else { CheckStatus::Fail };
            concealed.add(status, format!("{place} {hidden}"));
        }
        if let Some(order) = order(text) {
            orders.add(context.policy.model_instructions.into(), format!("{place} says `{order}`"));
        }
    };
    if let Some(description) = &manifest.metadata.description {
        look("the skill's description", description, false);
    }
    look("the skill's name", &manifest.metadata.name, false);
    for wildcard in &manifest.capabilities.wildcards {
        look("the reason for a wildcard", &wildcard.reason, false);
    }
    for tool in &manifest.tools {
        look(&format!("the description of `{}`", tool.id), &tool.description, false);
        for (which, schema) in [("input", &tool.input_schema), ("output", &tool.output_schema)] {
            let place = format!("the {which} schema of `{}`", tool.id);
            strings(schema, &mut |text| look(&place, text, false));
        }
    }
    if let Some(instructions) = crate::artifact::find(&subject.entries, INSTRUCTIONS_ENTRY) {
        // A document may speak of markup, and of pages that hold comments.
        look(&format!("`{INSTRUCTIONS_ENTRY}`"), &String::from_utf8_lossy(&instructions.content), true);
    }
    found
}

/// Every key and text of a value, without recursion: how deep a schema nests is its author's choice.
fn strings(value: &Value, look: &mut impl FnMut(&str)) {
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::String(text) => look(text),
            Value::Array(items) => open.extend(items),
            Value::Object(map) => {
                map.keys().for_each(|key| look(key));
                open.extend(map.values());
            }
            _ => {}
        }
    }
}
