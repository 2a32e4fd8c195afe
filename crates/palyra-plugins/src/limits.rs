//! The limits of one call, and their names.
//!
//! Every limit is a number in the grant. [`Limit`] is its name where one was exceeded: in errors, in configuration and
//! in the documentation it is the same word.

use serde::{Deserialize, Serialize};

/// Which limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Limit {
    Fuel,
    MemoryBytes,
    TableElements,
    Tables,
    Memories,
    Instances,
    StackBytes,
    WallClockMs,
    InputBytes,
    OutputBytes,
    LogBytes,
    HostCalls,
    TransferBytes,
    Handles,
    HttpRequests,
    HttpBytes,
    FileBytes,
    StorageBytes,
    ComponentBytes,
    QueuedCalls,
    QueuedCallsPerSkill,
}

impl Limit {
    /// Every limit.
    pub const ALL: [Self; 21] = [
        Self::Fuel,
        Self::MemoryBytes,
        Self::TableElements,
        Self::Tables,
        Self::Memories,
        Self::Instances,
        Self::StackBytes,
        Self::WallClockMs,
        Self::InputBytes,
        Self::OutputBytes,
        Self::LogBytes,
        Self::HostCalls,
        Self::TransferBytes,
        Self::Handles,
        Self::HttpRequests,
        Self::HttpBytes,
        Self::FileBytes,
        Self::StorageBytes,
        Self::ComponentBytes,
        Self::QueuedCalls,
        Self::QueuedCallsPerSkill,
    ];

    /// Its name in configuration, grants and errors.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// What its value counts.
    #[must_use]
    pub fn unit(self) -> &'static str {
        self.row().1
    }

    /// The code of the error that names it.
    #[must_use]
    pub fn code(self) -> &'static str {
        self.row().2
    }

    /// What to do when it is exceeded.
    #[must_use]
    pub fn hint(self) -> &'static str {
        self.row().3
    }

    /// Name, unit, code and hint.
    fn row(self) -> (&'static str, &'static str, &'static str, &'static str) {
        const MORE: &str = "ask for more in the skill's manifest; the operator's policy sets the maximum";
        const OPERATOR: &str = "the operator's policy sets it for every skill";
        const LESS: &str = "do less in one call, or ask for more in the skill's manifest";
        match self {
            Self::Fuel => ("fuel", "units", "plugin_limit_fuel", LESS),
            Self::MemoryBytes => ("memory_bytes", "bytes", "plugin_limit_memory", MORE),
            Self::TableElements => ("table_elements", "elements", "plugin_limit_table_elements", OPERATOR),
            Self::Tables => ("tables", "tables", "plugin_limit_tables", OPERATOR),
            Self::Memories => ("memories", "memories", "plugin_limit_memories", OPERATOR),
            Self::Instances => ("instances", "instances", "plugin_limit_instances", OPERATOR),
            Self::StackBytes => ("stack_bytes", "bytes", "plugin_limit_stack", "recurse less deeply"),
            Self::WallClockMs => ("wall_clock_ms", "milliseconds", "plugin_limit_wall_clock", LESS),
            Self::InputBytes => ("input_bytes", "bytes", "plugin_limit_input", "send less in one call"),
            Self::OutputBytes => ("output_bytes", "bytes", "plugin_limit_output", LESS),
            Self::LogBytes => ("log_bytes", "bytes", "plugin_limit_log", "write fewer lines to the log"),
            Self::HostCalls => ("host_calls", "calls", "plugin_limit_host_calls", LESS),
            Self::TransferBytes => {
                ("transfer_bytes", "bytes", "plugin_limit_transfer", "hand less to the host in one host call")
            }
            Self::Handles => ("handles", "handles", "plugin_limit_handles", "close what is no longer used"),
            Self::HttpRequests => ("http_requests", "requests", "plugin_limit_http_requests", LESS),
            Self::HttpBytes => ("http_bytes", "bytes", "plugin_limit_http_bytes", LESS),
            Self::FileBytes => ("file_bytes", "bytes", "plugin_limit_file_bytes", LESS),
            Self::StorageBytes => ("storage_bytes", "bytes", "plugin_limit_storage", MORE),
            Self::ComponentBytes => ("component_bytes", "bytes", "plugin_limit_component", OPERATOR),
            Self::QueuedCalls => ("queued_calls", "calls", "plugin_limit_queued_calls", "try again later"),
            Self::QueuedCallsPerSkill => {
                ("queued_calls_per_skill", "calls", "plugin_limit_queued_calls_per_skill", "try again later")
            }
        }
    }
}

/// The limits of one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Instructions, roughly: what the guest may compute.
    pub fuel: u64,
    /// Linear memory in all.
    pub memory_bytes: u64,
    /// Elements of one table.
    pub table_elements: u64,
    /// Tables.
    pub tables: u64,
    /// Linear memories.
    pub memories: u64,
    /// Core instances within the component.
    pub instances: u64,
    /// From the start of the call to its end.
    pub wall_clock_ms: u64,
    /// The input's JSON text.
    pub input_bytes: u64,
    /// The output's JSON text.
    pub output_bytes: u64,
    /// The log, standard output and standard error together.
    pub log_bytes: u64,
    /// Calls of host functions.
    pub host_calls: u64,
    /// What one host call may hand to the host.
    pub transfer_bytes: u64,
    /// Open handles: streams, files, requests.
    pub handles: u64,
    /// HTTP requests.
    pub http_requests: u64,
    /// Bodies of all requests and replies together.
    pub http_bytes: u64,
    /// What is written to files of the workspace, in all.
    pub file_bytes: u64,
    /// The record for replay; a call that needs more runs on, and cannot be replayed.
    pub record_bytes: u64,
}

const MIB: u64 = 1 << 20;

impl Default for Limits {
    /// What a skill gets that asks for nothing.
    fn default() -> Self {
        Self {
            fuel: 5_000_000_000,
            memory_bytes: 128 * MIB,
            table_elements: 20_000,
            tables: 64,
            memories: 8,
            instances: 64,
            wall_clock_ms: 30_000,
            input_bytes: MIB,
            output_bytes: MIB,
            log_bytes: 64 << 10,
            host_calls: 100_000,
            transfer_bytes: 8 * MIB,
            handles: 1_000,
            http_requests: 32,
            http_bytes: 16 * MIB,
            file_bytes: 64 * MIB,
            record_bytes: 4 * MIB,
        }
    }
}

impl Limits {
    /// The most that the default policy lets a skill ask for.
    #[must_use]
    pub fn maxima() -> Self {
        Self {
            fuel: 200_000_000_000,
            memory_bytes: 512 * MIB,
            wall_clock_ms: 300_000,
            input_bytes: 4 * MIB,
            output_bytes: 4 * MIB,
            log_bytes: MIB,
            host_calls: 1_000_000,
            transfer_bytes: 32 * MIB,
            handles: 10_000,
            http_requests: 256,
            http_bytes: 64 * MIB,
            file_bytes: 1024 * MIB,
            record_bytes: 16 * MIB,
            ..Self::default()
        }
    }

    /// Each limit with its name, in the order of this file.
    #[must_use]
    pub fn rows(&self) -> [(&'static str, u64); 17] {
        [
            (Limit::Fuel.name(), self.fuel),
            (Limit::MemoryBytes.name(), self.memory_bytes),
            (Limit::TableElements.name(), self.table_elements),
            (Limit::Tables.name(), self.tables),
            (Limit::Memories.name(), self.memories),
            (Limit::Instances.name(), self.instances),
            (Limit::WallClockMs.name(), self.wall_clock_ms),
            (Limit::InputBytes.name(), self.input_bytes),
            (Limit::OutputBytes.name(), self.output_bytes),
            (Limit::LogBytes.name(), self.log_bytes),
            (Limit::HostCalls.name(), self.host_calls),
            (Limit::TransferBytes.name(), self.transfer_bytes),
            (Limit::Handles.name(), self.handles),
            (Limit::HttpRequests.name(), self.http_requests),
            (Limit::HttpBytes.name(), self.http_bytes),
            (Limit::FileBytes.name(), self.file_bytes),
            ("record_bytes", self.record_bytes),
        ]
    }

    /// Replaces what was asked for, up to the maximum; the rest is what everybody gets, up to the maximum too.
    #[must_use]
    pub(crate) fn granted(asked: &RequestedLimits, usual: &Self, maxima: &Self) -> Self {
        let pick = |asked: Option<u64>, usual: u64, maximum: u64| asked.unwrap_or(usual).min(maximum);
        Self {
            fuel: pick(asked.fuel, usual.fuel, maxima.fuel),
            memory_bytes: pick(asked.memory_bytes, usual.memory_bytes, maxima.memory_bytes),
            table_elements: usual.table_elements.min(maxima.table_elements),
            tables: usual.tables.min(maxima.tables),
            memories: usual.memories.min(maxima.memories),
            instances: usual.instances.min(maxima.instances),
            wall_clock_ms: pick(asked.wall_clock_ms, usual.wall_clock_ms, maxima.wall_clock_ms),
            input_bytes: pick(asked.input_bytes, usual.input_bytes, maxima.input_bytes),
            output_bytes: pick(asked.output_bytes, usual.output_bytes, maxima.output_bytes),
            log_bytes: pick(asked.log_bytes, usual.log_bytes, maxima.log_bytes),
            host_calls: pick(asked.host_calls, usual.host_calls, maxima.host_calls),
            transfer_bytes: usual.transfer_bytes.min(maxima.transfer_bytes),
            handles: usual.handles.min(maxima.handles),
            http_requests: pick(asked.http_requests, usual.http_requests, maxima.http_requests),
            http_bytes: pick(asked.http_bytes, usual.http_bytes, maxima.http_bytes),
            file_bytes: pick(asked.file_bytes, usual.file_bytes, maxima.file_bytes),
            record_bytes: usual.record_bytes.min(maxima.record_bytes),
        }
    }
}

/// The limits that a manifest asks for; what it leaves out is as usual.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RequestedLimits {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fuel: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_clock_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_calls: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_requests: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
}

impl RequestedLimits {
    /// What is asked for, by name.
    pub(crate) fn rows(&self) -> [(Limit, Option<u64>); 10] {
        [
            (Limit::Fuel, self.fuel),
            (Limit::MemoryBytes, self.memory_bytes),
            (Limit::WallClockMs, self.wall_clock_ms),
            (Limit::InputBytes, self.input_bytes),
            (Limit::OutputBytes, self.output_bytes),
            (Limit::LogBytes, self.log_bytes),
            (Limit::HostCalls, self.host_calls),
            (Limit::HttpRequests, self.http_requests),
            (Limit::HttpBytes, self.http_bytes),
            (Limit::FileBytes, self.file_bytes),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_and_codes_are_unique_and_say_the_same_as_serde() {
        let names: BTreeSet<_> = Limit::ALL.iter().map(|limit| limit.name()).collect();
        let codes: BTreeSet<_> = Limit::ALL.iter().map(|limit| limit.code()).collect();
        assert_eq!((names.len(), codes.len()), (Limit::ALL.len(), Limit::ALL.len()));
        for limit in Limit::ALL {
            assert_eq!(serde_json::to_value(limit).unwrap(), limit.name());
        }
        let shown = serde_json::to_value(Limits::default()).unwrap();
        let shown: BTreeSet<_> = shown.as_object().unwrap().keys().cloned().collect();
        assert_eq!(shown, Limits::default().rows().iter().map(|(name, _)| (*name).to_owned()).collect());
    }

    #[test]
    fn nobody_gets_more_than_the_maximum() {
        let asked = RequestedLimits { fuel: Some(u64::MAX), log_bytes: Some(1), ..RequestedLimits::default() };
        let maxima = Limits { memory_bytes: 1 << 20, ..Limits::maxima() };
        let granted = Limits::granted(&asked, &Limits::default(), &maxima);
        assert_eq!((granted.fuel, granted.log_bytes, granted.memory_bytes), (maxima.fuel, 1, 1 << 20));
    }
}
