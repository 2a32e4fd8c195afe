//! `[egress]`: the hosts that calls may reach. Each rule is parsed by its type.

use palyra_egress::{EgressRule, EgressRules};
use serde::Deserialize;
use std::sync::Arc;

/// The section as it is typed.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawEgress {
    allowed_hosts: Vec<EgressRule>,
}

impl RawEgress {
    pub(super) fn validate(self) -> Arc<EgressRules> {
        Arc::new(EgressRules::new(self.allowed_hosts))
    }
}
