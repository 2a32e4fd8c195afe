//! Health: what `doctor` would say of the daemon itself, and small plots of what happened lately.

use super::rendered::{fragment, seen};
use crate::http::{Caller, Door, Refused};
use askama::Template;
use axum::extract::State;
use axum::response::Response;
use palyra_protocol::{ChainedEvent, DecisionKind, JournalEvent};
use std::collections::BTreeMap;

/// How many of the newest events the plots are made of.
const LOOKED_AT: u64 = 5_000;
/// How many events are read at once.
const READ: u32 = 500;
/// Milliseconds of a day.
const DAY: u64 = 86_400_000;
/// How many bars a plot has at most.
const BARS: usize = 14;

#[derive(Template)]
#[template(path = "console/health.html")]
struct Health {
    facts: Vec<Fact>,
    plots: Vec<Plot>,
    looked_at: u64,
}

struct Fact {
    good: bool,
    name: &'static str,
    value: String,
    hint: String,
}

/// A plot of bars, drawn as SVG without any style of its own.
struct Plot {
    title: &'static str,
    bars: Vec<Bar>,
}

struct Bar {
    label: String,
    value: String,
    /// Of 100.
    length: u64,
}

impl Plot {
    fn of(title: &'static str, unit: &str, counts: impl IntoIterator<Item = (String, u64)>) -> Self {
        let counts: Vec<_> = counts.into_iter().collect();
        let skipped = counts.len().saturating_sub(BARS);
        let most = counts.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
        let bar = |(label, count): (String, u64)| Bar {
            label: seen(label),
            value: format!("{count}{unit}"),
            length: (count * 100 / most).max(u64::from(count > 0)),
        };
        Self { title, bars: counts.into_iter().skip(skipped).map(bar).collect() }
    }
}

/// What happened lately, counted.
#[derive(Default)]
struct Lately {
    verdicts: BTreeMap<&'static str, u64>,
    prompts: BTreeMap<u64, u64>,
    denials: BTreeMap<String, u64>,
    ends: BTreeMap<&'static str, u64>,
    proposed: BTreeMap<String, u64>,
    waits: Vec<u64>,
    runs: Vec<u64>,
    started: BTreeMap<String, u64>,
    asked: BTreeMap<String, u64>,
}

impl Lately {
    fn take(&mut self, event: &ChainedEvent) {
        let at = event.at.unix_ms();
        let Ok(body) = serde_json::from_str::<JournalEvent>(&event.body) else { return };
        match body {
            JournalEvent::ToolProposed { call } => *self.proposed.entry(call.tool.to_string()).or_default() += 1,
            JournalEvent::ToolDecided { decision, .. } => {
                *self.verdicts.entry(decision.decision.as_str()).or_default() += 1;
                if decision.decision == DecisionKind::Deny {
                    let none = decision.rules.is_empty().then(|| "no rule allows it".to_owned());
                    for rule in decision.rules.iter().cloned().chain(none) {
                        *self.denials.entry(rule).or_default() += 1;
                    }
                }
            }
            JournalEvent::ApprovalRequested { .. } => {
                *self.prompts.entry(at / DAY).or_default() += 1;
                self.asked.insert(event.call_id.clone(), at);
            }
            JournalEvent::ApprovalResolved { .. } => {
                self.waits.extend(self.asked.remove(&event.call_id).map(|asked| at.saturating_sub(asked)));
            }
            JournalEvent::ToolStarted { .. } => drop(self.started.insert(event.call_id.clone(), at)),
            JournalEvent::ToolFinished(finished) => {
                *self.ends.entry(finished.state.as_str()).or_default() += 1;
                self.runs.extend(self.started.remove(&event.call_id).map(|started| at.saturating_sub(started)));
            }
            JournalEvent::ToolEnded { state, .. } | JournalEvent::ToolRejected { state, .. } => {
                *self.ends.entry(state.as_str()).or_default() += 1;
            }
            _ => {}
        }
    }

    fn plots(self) -> Vec<Plot> {
        let named =
            |counts: BTreeMap<&'static str, u64>| counts.into_iter().map(|(name, n)| (name.replace('_', " "), n));
        let day = |(day, count): (u64, u64)| {
            let text = palyra_protocol::review::utc(palyra_protocol::Timestamp::from_unix_ms(day * DAY));
            (text.chars().take(10).collect::<String>(), count)
        };
        let quantiles = |mut list: Vec<u64>| {
            list.sort_unstable();
            let at = |part: usize| list.get(list.len().saturating_sub(1) * part / 100).copied().unwrap_or(0);
            [("p50".to_owned(), at(50)), ("p95".to_owned(), at(95)), ("longest".to_owned(), at(100))]
        };
        let mut denials: Vec<_> = self.denials.into_iter().collect();
        denials.sort_by_key(|(_, count)| *count);
        let mut proposed: Vec<_> = self.proposed.into_iter().collect();
        proposed.sort_by_key(|(_, count)| *count);
        vec![
            Plot::of("Decisions by verdict", "", named(self.verdicts)),
            Plot::of("How calls ended", "", named(self.ends)),
            Plot::of("Questions a day", "", self.prompts.into_iter().map(day)),
            Plot::of("How long questions waited", " ms", quantiles(self.waits)),
            Plot::of("How long executions took", " ms", quantiles(self.runs)),
            Plot::of("Denials by rule", "", denials),
            Plot::of("Calls by tool", "", proposed),
        ]
    }
}

pub(super) async fn show(State(door): State<Door>, caller: Caller) -> Result<Response, Refused> {
    let (engine, peer) = (&door.engine, &caller.peer);
    let status = engine.status(peer)?;
    let mut facts = vec![
        fact("daemon", format!("version {}", env!("CARGO_PKG_VERSION")), None),
        fact("workspace", status.workspace_root.display().to_string(), status.workspace_problem.as_ref()),
        fact("journal", format!("{} events", status.journal_head.size), None),
        fact("policy", format!("{} rules, {}", status.policy_rules, status.policy_hash.short()), None),
        fact("signing key", status.public_key.to_string(), None),
        fact("tools", status.tools.to_string(), None),
        fact("waiting", format!("{} approvals, {} open calls", status.pending_approvals, status.open_calls), None),
        fact("processes", format!("run in tier {}", engine.config().process_runner.tier), None),
    ];
    if let Ok(policy) = engine.policy_status(peer)
        && let Some(refused) = policy.refused
    {
        let value = "the directory holds rules that may not run".to_owned();
        facts.push(Fact { good: false, name: "rules", value, hint: seen(refused.lines().join("; ")) });
    }
    if let Ok(effects) = engine.effects_status(peer, false).await {
        let value = format!("{} effects kept, {} of {} bytes", effects.kept, effects.kept_bytes, effects.max_bytes);
        facts.push(fact("undo", value, effects.problem.as_ref()));
    }
    let mut lately = Lately::default();
    let looked_at = newest_events(&door, &caller, |event| lately.take(event)).await;
    fragment(&Health { facts, plots: lately.plots(), looked_at })
}

/// Hands over the newest events, the oldest of them first, and tells how many there were. Whoever may not read the
/// journal gets none.
pub(super) async fn newest_events(door: &Door, caller: &Caller, mut take: impl FnMut(&ChainedEvent)) -> u64 {
    let Ok(head) = door.engine.watch_journal(&caller.peer).map(|head| head.borrow().size) else { return 0 };
    let first = head.saturating_sub(LOOKED_AT) + 1;
    let mut next = first;
    while next <= head {
        let Ok(page) = door.engine.events(&caller.peer, next, READ).await else { break };
        let Some(last) = page.last() else { break };
        next = last.seq + 1;
        page.iter().for_each(&mut take);
    }
    next - first
}

fn fact(name: &'static str, value: String, problem: Option<&palyra_protocol::Problem>) -> Fact {
    match problem {
        None => Fact { good: true, name, value: seen(value), hint: String::new() },
        Some(problem) => {
            let hint = problem.hint.as_deref().unwrap_or("");
            Fact { good: false, name, value: seen(&problem.message), hint: seen(hint) }
        }
    }
}
