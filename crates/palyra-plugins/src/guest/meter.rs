//! What a guest's instances take: linear memory in all, tables, and how often they were refused more.

use crate::limits::{Limit, Limits};
use wasmtime::ResourceLimiter;

/// Measures and bounds one store.
#[derive(Debug)]
pub(crate) struct Meter {
    memory: u64,
    peak: u64,
    most_memory: u64,
    most_elements: u64,
    tables: usize,
    memories: usize,
    instances: usize,
    /// The limit that a growth was refused for, last.
    refused: Option<Limit>,
}

impl Meter {
    pub(crate) fn new(limits: &Limits) -> Self {
        let count = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        Self {
            memory: 0,
            peak: 0,
            most_memory: limits.memory_bytes,
            most_elements: limits.table_elements,
            tables: count(limits.tables),
            memories: count(limits.memories),
            instances: count(limits.instances),
            refused: None,
        }
    }

    /// The most linear memory that there was at one time.
    pub(crate) fn peak(&self) -> u64 {
        self.peak
    }

    /// The limit that the guest last ran into, with its value.
    pub(crate) fn refused(&self) -> Option<(Limit, u64)> {
        self.refused.map(|limit| {
            let value = if limit == Limit::MemoryBytes { self.most_memory } else { self.most_elements };
            (limit, value)
        })
    }
}

impl ResourceLimiter for Meter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let total = self.memory + (desired as u64).saturating_sub(current as u64);
        if total > self.most_memory {
            self.refused = Some(Limit::MemoryBytes);
            return Ok(false);
        }
        if maximum.is_none_or(|maximum| desired <= maximum) {
            self.memory = total;
            self.peak = self.peak.max(total);
        }
        Ok(true)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        if desired as u64 > self.most_elements {
            self.refused = Some(Limit::TableElements);
            return Ok(false);
        }
        Ok(true)
    }

    fn instances(&self) -> usize {
        self.instances
    }

    fn tables(&self) -> usize {
        self.tables
    }

    fn memories(&self) -> usize {
        self.memories
    }
}
