//! What the journal says of each call, read event by event: a second opinion beside the daemon's own projections.

use palyra_api::v1::{Event, TailRequest};
use palyra_e2e::Caller;
use std::collections::BTreeMap;

/// What is recorded of one call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Recorded {
    pub(crate) proposed: u32,
    pub(crate) asked: u32,
    pub(crate) answered: u32,
    pub(crate) started: u32,
    pub(crate) ended: u32,
}

/// The journal as read so far.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) calls: BTreeMap<String, Recorded>,
    read: u64,
}

impl Model {
    /// Reads on to the journal's end.
    pub(crate) async fn read_on(&mut self, owner: &Caller) {
        let request = TailRequest { first: self.read + 1, last: 0, follow: false };
        let mut events = owner.0.journal().tail(request).await.unwrap().into_inner();
        while let Some(event) = events.message().await.unwrap() {
            self.take(&event);
        }
    }

    /// The calls that have not ended.
    pub(crate) fn open(&self) -> Vec<String> {
        let open = self.calls.iter().filter(|(_, call)| call.proposed == 1 && call.ended == 0);
        open.map(|(id, _)| id.clone()).collect()
    }

    fn take(&mut self, event: &Event) {
        assert_eq!(event.seq, self.read + 1, "an event is missing");
        self.read = event.seq;
        if event.call_id.is_empty() {
            return;
        }
        let call = self.calls.entry(event.call_id.clone()).or_default();
        let counted = match event.kind.as_str() {
            "tool.proposed" => &mut call.proposed,
            "approval.requested" => &mut call.asked,
            "approval.resolved" => &mut call.answered,
            "tool.started" => &mut call.started,
            "tool.finished" | "tool.ended" => &mut call.ended,
            _ => return,
        };
        *counted += 1;
        assert!(*counted <= 1, "event {} repeats `{}` of {}", event.seq, event.kind, event.call_id);
        assert!(call.ended == 0 || event.kind.starts_with("tool."), "{} went on after its end", event.call_id);
    }
}
