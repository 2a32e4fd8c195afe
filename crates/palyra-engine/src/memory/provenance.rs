//! Where content comes from: the sources that the daemon saw a session use, and the trust that follows.

use super::Memory;
use palyra_journal::{JournalError, SessionSource};
use palyra_protocol::memory::MAX_MEMORY_SOURCES;
use palyra_protocol::{CallRecord, MemorySource, MemoryTrust, Origin, Principal, PrincipalKind, SessionId, ToolSource};

/// What a call brings into its session from outside; nothing for calls that reach nobody.
pub(crate) fn source_of_call(call: &CallRecord) -> Vec<SessionSource> {
    let external = |source: String| SessionSource {
        source: MemorySource::new(&source),
        trust: MemoryTrust::External,
        recalled: false,
    };
    let mut sources: Vec<_> = call.facets.hosts.iter().map(|host| external(format!("web:{host}"))).collect();
    if sources.is_empty() && call.facets.process_reaches_hosts() {
        sources.push(external("process".to_owned()));
    }
    if let Some(ToolSource::Skill(id)) = ToolSource::of(&call.tool) {
        sources.push(external(format!("skill:{id}")));
    }
    sources
}

/// How far one speaker is trusted.
fn speaker(principal: &Principal) -> SessionSource {
    let person = principal.kind() == PrincipalKind::User;
    let (word, trust) = if person { ("person", MemoryTrust::Person) } else { ("agent", MemoryTrust::Agent) };
    SessionSource { source: MemorySource::new(&format!("{word}:{principal}")), trust, recalled: false }
}

/// The stamp of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Provenance {
    pub(super) sources: Vec<MemorySource>,
    pub(super) trust: MemoryTrust,
}

impl Provenance {
    /// The minimum over all sources. Those of the lowest trust are named first, because only so many are named.
    fn of(mut sources: Vec<SessionSource>) -> Self {
        sources.sort_by_key(|source| source.trust);
        let trust = sources.first().map_or(MemoryTrust::External, |source| source.trust);
        sources.truncate(MAX_MEMORY_SOURCES);
        Self { sources: sources.into_iter().map(|source| source.source).collect(), trust }
    }
}

impl Memory {
    /// The stamp of what a call retains: its caller, and everything that its session has used.
    pub(super) fn provenance_of_call(&self, origin: &Origin) -> Result<Provenance, JournalError> {
        let mut sources = vec![speaker(&origin.principal)];
        sources.extend(self.store.sources(&origin.principal, &origin.session)?);
        Ok(Provenance::of(sources))
    }

    /// The stamp of what a person adds: the person, and what they say of it. What they say never raises the trust.
    pub(super) fn provenance_of_person(
        principal: &Principal,
        source: Option<&str>,
        trust: Option<MemoryTrust>,
    ) -> Provenance {
        let mut sources = vec![speaker(principal)];
        if let Some(source) = source {
            let trust = trust.unwrap_or(MemoryTrust::External);
            sources.push(SessionSource { source: MemorySource::new(source), trust, recalled: false });
        }
        let mut stamp = Provenance::of(sources);
        stamp.trust = trust.map_or(stamp.trust, |said| said.min(stamp.trust));
        stamp
    }

    /// Records what a session uses. Blocks.
    pub(crate) fn note_sources(
        &self,
        principal: &Principal,
        session: &SessionId,
        sources: &[SessionSource],
    ) -> Result<(), JournalError> {
        self.store.note_sources(principal, session, sources)?;
        for source in sources.iter().filter(|source| source.recalled) {
            self.lower(principal, session, source.trust);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_is_the_minimum_and_nobody_raises_it() {
        let person: Principal = "user:mia".parse().unwrap();
        let agent: Principal = "agent:demo".parse().unwrap();
        let stamp = |who: &Principal, source, trust| Memory::provenance_of_person(who, source, trust).trust;
        assert_eq!(stamp(&person, None, None), MemoryTrust::Person);
        assert_eq!(stamp(&person, Some("https://a.example"), None), MemoryTrust::External);
        assert_eq!(stamp(&person, None, Some(MemoryTrust::Agent)), MemoryTrust::Agent);
        assert_eq!(stamp(&agent, None, Some(MemoryTrust::Person)), MemoryTrust::Agent);
        let many = |n: usize| SessionSource {
            source: MemorySource::new(&format!("memory:{n}")),
            trust: if n == 99 { MemoryTrust::External } else { MemoryTrust::Person },
            recalled: true,
        };
        let stamp = Provenance::of((0..100).map(many).collect());
        assert_eq!((stamp.trust, stamp.sources.len()), (MemoryTrust::External, MAX_MEMORY_SOURCES));
        assert_eq!(stamp.sources[0].as_str(), "memory:99");
    }
}
