//! `[egress]`: the hosts that calls may reach. Each rule is parsed by its type.

use palyra_egress::{EgressRule, EgressRules, UnlistedHosts};
use serde::Deserialize;
use std::sync::Arc;

/// The section as it is typed.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawEgress {
    allowed_hosts: Vec<EgressRule>,
    unlisted_hosts: UnlistedHosts,
}

impl RawEgress {
    pub(super) fn validate(self) -> Arc<EgressRules> {
        Arc::new(EgressRules::new(self.allowed_hosts).with_unlisted(self.unlisted_hosts))
    }
}
