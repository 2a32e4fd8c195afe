//! The filtering proxy of one run, from the closed door to the last record.
//!
//! When bubblewrap has told which network it made, the door is opened there ([`super::doorway`]) and the proxy takes
//! its place behind it; the command still waits at the gate. The proxy's threads tell of connections; the thread that
//! follows the run hears a bell and hands them on, so that whoever watches a run needs no lock. When every process of
//! the run is gone, the proxy ends, and with it the last descriptor that kept the network alive.

use super::inside_listener::{self, Inside};
use crate::error::SandboxError;
use crate::outcome::{EgressCount, OutputSink};
use palyra_egress::{
    Credentials, EgressObserver, EgressRecord, EgressRules, Proxy, ProxyLimits, ProxySetup, ProxySummary, Roots,
    SystemResolver,
};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// The way out of one run.
#[derive(Debug)]
pub(super) struct WayOut {
    rules: Arc<EgressRules>,
    proxy: Option<Proxy>,
    records: Arc<Records>,
    opened: bool,
    credentials: Option<Arc<dyn Credentials>>,
}

/// Connections that nobody was told of yet.
#[derive(Debug)]
struct Records {
    waiting: Mutex<Vec<EgressRecord>>,
    bell: OwnedFd,
}

impl WayOut {
    /// A way out that is still closed.
    pub(super) fn closed(
        rules: &Arc<EgressRules>,
        credentials: Option<Arc<dyn Credentials>>,
    ) -> Result<Self, SandboxError> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| SandboxError::Io { action: "create an event descriptor", source: e.into() })?;
        let records = Arc::new(Records { waiting: Mutex::new(Vec::new()), bell });
        Ok(Self { rules: Arc::clone(rules), proxy: None, records, opened: false, credentials })
    }

    /// Whether the proxy stood behind the door before the command began.
    pub(super) fn was_opened(&self) -> bool {
        self.opened
    }

    /// How many rules the proxy obeys.
    pub(super) fn rules(&self) -> usize {
        self.rules.rules().len()
    }

    /// Puts the proxy in place.
    pub(super) fn open(&mut self, inside: Inside) -> Result<(), SandboxError> {
        let unavailable = |source: io::Error| SandboxError::LayerUnavailable { layer: "egress_proxy", source };
        let listener = inside_listener::open(inside).map_err(unavailable)?;
        let records = Arc::clone(&self.records);
        let observer: EgressObserver = Arc::new(move |record| records.push(record.clone()));
        let (rules, resolver) = (Arc::clone(&self.rules), Arc::new(SystemResolver));
        let credentials = self.credentials.clone().map(|credentials| (credentials, Roots::System));
        let limits = ProxyLimits::default();
        let proxy = Proxy::with(ProxySetup { listener, rules, resolver, limits, observer, credentials })
            .map_err(|error| unavailable(io::Error::other(error)))?;
        self.proxy = Some(proxy);
        self.opened = true;
        Ok(())
    }

    /// Readable when there are records.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.records.bell.as_fd()
    }

    /// Hands on what has come in.
    pub(super) fn deliver(&mut self, sink: &mut dyn OutputSink) {
        self.records.take().iter().for_each(|record| sink.egress(record));
    }

    /// Ends the proxy, hands on the rest, and tells how many connections there were.
    pub(super) fn settle(&mut self, sink: &mut dyn OutputSink) -> EgressCount {
        let summary = self.proxy.take().map_or_else(ProxySummary::default, Proxy::stop);
        self.deliver(sink);
        EgressCount { allowed: summary.allowed, denied: summary.denied, denials: summary.denials }
    }
}

impl Records {
    fn push(&self, record: EgressRecord) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(record);
        // The only failure is a counter at its maximum, and then the bell rings already.
        let _rung = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    fn take(&self) -> Vec<EgressRecord> {
        // First the bell: a record that comes in between rings it again.
        let _rang = rustix::io::read(&self.bell, &mut [0u8; 8]);
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
