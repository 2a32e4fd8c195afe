//! `palyra journal`: reading, verifying, exporting.

use super::event_line::event_line;
use crate::args::{Journal, Tail, Verdict};
use crate::context::Context;
use crate::exit::{FAILED, Failure, UNVERIFIED};
use crate::output::{self, BAD, BOLD, DIM, GOOD, note, say, styled, when};
use crate::text::{pretty, safe};
use palyra_api::v1::{
    CheckpointRequest, Event, GetCallRequest, GetEventRequest, TailRequest, VerifyRequest, VerifyUpdate,
};
use palyra_protocol::{
    CallId, ChainFault, ChainVerifier, ChainedEvent, Checkpoint, CheckpointFault, Digest, JournalEvent, PublicKey,
    Timestamp,
};
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

pub async fn run(context: &Context, command: Journal) -> Result<(), Failure> {
    match command {
        Journal::Tail(wanted) => tail(context, &wanted).await,
        Journal::Show { what } => show(context, &what).await,
        Journal::Verify { against, export: Some(file), key } => {
            verify_export(context, &file, against.as_deref(), key.as_ref())
        }
        Journal::Verify { against, export: None, .. } => verify(context, against).await,
        Journal::Export { to } => export(context, to).await,
        Journal::Checkpoint => checkpoint(context).await,
    }
}

fn chained(event: Event) -> Result<ChainedEvent, Failure> {
    let digest = |text: &str| text.parse::<Digest>().map_err(|e| Failure::bug(&e));
    Ok(ChainedEvent {
        seq: event.seq,
        at: Timestamp::from_unix_ms(event.at_unix_ms),
        kind: event.kind,
        call_id: event.call_id,
        prev: digest(&event.prev)?,
        hash: digest(&event.hash)?,
        body: event.body_json,
    })
}

async fn tail(context: &Context, wanted: &Tail) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let mut filter = TailFilter::new(wanted);
    // What fits is found among more than is shown.
    let last = if filter.wants_all() { wanted.last } else { MOST_SEARCHED };
    let follow = wanted.follow;
    let mut events = connection.journal().tail(TailRequest { first: 0, last, follow }).await?.into_inner();
    let newest = TailRequest { first: 0, last: 1, follow: false };
    let newest = connection.journal().tail(newest).await?.into_inner().message().await?.map_or(0, |event| event.seq);
    let mut found = VecDeque::new();
    loop {
        let event = tokio::select! {
            event = events.message() => event?,
            _ = tokio::signal::ctrl_c() => return Ok(()),
        };
        let ended = event.is_none();
        if let Some(event) = event {
            let event = chained(event)?;
            let searching = event.seq <= newest && !filter.wants_all();
            let at_end = event.seq == newest;
            for event in filter.take(event) {
                if !searching {
                    print_line(context, &event)?;
                    continue;
                }
                found.push_back(event);
                if found.len() > wanted.last as usize {
                    found.pop_front();
                }
            }
            if !at_end {
                continue;
            }
        }
        found.drain(..).try_for_each(|event| print_line(context, &event))?;
        if ended {
            return if follow { Err(Failure::daemon_ended()) } else { Ok(()) };
        }
    }
}

/// How many of the newest events are searched for those that fit.
const MOST_SEARCHED: u32 = 100_000;

/// Which events are wanted: those about calls of which all that is asked for holds.
struct TailFilter<'a> {
    wanted: &'a Tail,
    /// Of each call that was proposed here: whose it is, its tool, and what was decided.
    calls: HashMap<String, (String, String, Option<&'static str>)>,
    /// The proposal that was seen last: whether it fits is known once it is decided.
    proposed: Option<ChainedEvent>,
}

impl<'a> TailFilter<'a> {
    fn new(wanted: &'a Tail) -> Self {
        Self { wanted, calls: HashMap::new(), proposed: None }
    }

    fn wants_all(&self) -> bool {
        let Tail { last: _, follow: _, principal, tool, since, verdict } = self.wanted;
        principal.is_none() && tool.is_none() && since.is_none() && verdict.is_none()
    }

    /// The events that are known to fit with this one.
    fn take(&mut self, event: ChainedEvent) -> Vec<ChainedEvent> {
        let undecided = self.wanted.verdict.is_some() && event.kind == "tool.proposed";
        let fits = self.fits(&event);
        let before = self.proposed.take().filter(|proposed| fits && proposed.call_id == event.call_id);
        if undecided {
            self.proposed = Some(event);
            return Vec::new();
        }
        before.into_iter().chain(fits.then_some(event)).collect()
    }

    fn fits(&mut self, event: &ChainedEvent) -> bool {
        match serde_json::from_str::<JournalEvent>(&event.body) {
            Ok(JournalEvent::ToolProposed { call }) => {
                let whose = (call.origin.principal.to_string(), call.tool.to_string(), None);
                self.calls.insert(event.call_id.clone(), whose);
            }
            Ok(JournalEvent::ToolRejected { origin, tool, .. }) => {
                self.calls.insert(event.call_id.clone(), (origin.principal.to_string(), tool, Some("deny")));
            }
            Ok(JournalEvent::ToolDecided { decision, .. }) => {
                if let Some(known) = self.calls.get_mut(&event.call_id) {
                    known.2 = Some(decision.decision.as_str());
                }
            }
            _ => {}
        }
        let Tail { last: _, follow: _, principal, tool, since, verdict } = self.wanted;
        let call = self.calls.get(&event.call_id);
        let verdict = verdict.map(|verdict| match verdict {
            Verdict::Allow => "allow",
            Verdict::NeedsApproval => "needs_approval",
            Verdict::Deny => "deny",
        });
        since.is_none_or(|since| event.at.unix_ms() >= since)
            && principal.as_ref().is_none_or(|who| call.is_some_and(|(whose, ..)| *whose == who.to_string()))
            && tool.as_ref().is_none_or(|name| call.is_some_and(|(_, tool, _)| tool == name))
            && verdict.is_none_or(|verdict| call.is_some_and(|(.., decided)| *decided == Some(verdict)))
    }
}

fn print_line(context: &Context, event: &ChainedEvent) -> Result<(), Failure> {
    if context.json() {
        return output::json(&with_body(event, super::read(&event.body)?)?);
    }
    // A newer daemon may write events that this program does not know: it says at least of which kind they are.
    let line = serde_json::from_str(&event.body).map_or_else(|_| String::new(), |event| event_line(&event));
    say!(
        "{:>7}  {}  {}{} {}",
        event.seq,
        styled(DIM, when(event.at)),
        styled(BOLD, &event.kind),
        " ".repeat(19_usize.saturating_sub(event.kind.len())),
        safe(&line)
    );
    Ok(())
}

async fn show(context: &Context, what: &str) -> Result<(), Failure> {
    let connection = context.connect().await?;
    if let Ok(seq) = what.parse() {
        let event = connection.journal().get(GetEventRequest { seq }).await?.into_inner();
        return print_whole(context, &chained(event)?);
    }
    let call: CallId = what.parse().map_err(|_| {
        Failure::new(
            FAILED,
            "malformed_request",
            format!("`{}` is neither an event's number nor a call's id", safe(what)),
            None,
        )
    })?;
    let mut events = connection.journal().of_call(GetCallRequest { call_id: call.to_string() }).await?.into_inner();
    let mut found = false;
    while let Some(event) = events.message().await? {
        found = true;
        print_whole(context, &chained(event)?)?;
    }
    if found {
        return Ok(());
    }
    Err(Failure::new(crate::exit::REFUSED, "not_found", format!("there is no event about `{call}`"), None))
}

fn print_whole(context: &Context, event: &ChainedEvent) -> Result<(), Failure> {
    let body: Value = super::read(&event.body)?;
    if context.json() {
        return output::json(&with_body(event, body)?);
    }
    say!("{} {}  {}", styled(BOLD, format!("#{}", event.seq)), styled(BOLD, &event.kind), when(event.at));
    say!("{}", styled(DIM, format!("hash {}\nprev {}", event.hash, event.prev)));
    say!("{}\n", pretty(&body));
    Ok(())
}

/// An event to read: its body as a document. An export has it as the text that was hashed.
fn with_body(event: &ChainedEvent, body: Value) -> Result<Value, Failure> {
    let mut document = serde_json::to_value(event).map_err(|e| Failure::bug(&e))?;
    document["body"] = body;
    Ok(document)
}

async fn verify(context: &Context, against: Option<PathBuf>) -> Result<(), Failure> {
    let compared = against.is_some();
    let checkpoint_json = match against {
        // Read here already, so that an empty file is no checkpoint rather than none to compare with.
        Some(file) => serde_json::to_string(&checkpoint_file(&file)?).map_err(|e| Failure::bug(&e))?,
        None => String::new(),
    };
    let connection = context.connect().await?;
    let mut updates = connection.journal().verify(VerifyRequest { checkpoint_json }).await?.into_inner();
    let progress = std::io::stderr().is_terminal() && !context.json();
    while let Some(update) = updates.message().await? {
        if update.done {
            return verdict(context, &update, compared);
        }
        if progress {
            let _shown = write!(std::io::stderr(), "\r{} events verified", update.verified);
        }
    }
    Err(Failure::new(FAILED, "transport", "the daemon stopped verifying", None))
}

fn checkpoint_file(path: &Path) -> Result<Checkpoint, Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| Failure::io("the checkpoint cannot be read", &e))?;
    serde_json::from_str(&text).map_err(|e| {
        Failure::new(
            crate::exit::REFUSED,
            "malformed_request",
            format!("`{}` is not a checkpoint: {e}", path.display()),
            Some("make one: `palyra journal checkpoint > FILE`"),
        )
    })
}

fn verdict(context: &Context, update: &VerifyUpdate, compared: bool) -> Result<(), Failure> {
    let intact = update.fault.is_empty();
    if context.json() {
        output::json(&json!({
            "intact": intact, "events": update.verified, "head": update.head, "origin": update.origin,
            "fault": (!intact).then_some(&update.fault), "fault_seq": (update.fault_seq > 0).then_some(update.fault_seq),
            "compared_with_checkpoint": compared,
        }))?;
    }
    if intact {
        if !context.json() {
            let with = if compared { ", and the checkpoint agrees" } else { "" };
            say!("{} {} events fit together{with}", styled(GOOD, "✔"), update.verified);
            say!("{}", styled(DIM, format!("head {}", update.head)));
        }
        return Ok(());
    }
    if !context.json() {
        say!("{} {}", styled(BAD, "✘"), safe(&update.fault));
    }
    Err(Failure::new(
        UNVERIFIED,
        "journal_broken",
        format!("the journal does not hold: {}", update.fault),
        Some("compare with a backup or an earlier export; what comes before the named event still fits"),
    ))
}

/// Verifies an export by itself: the chain, and a checkpoint if one is given. Needs no daemon.
fn verify_export(
    context: &Context,
    file: &Path,
    against: Option<&Path>,
    key: Option<&PublicKey>,
) -> Result<(), Failure> {
    let checkpoint = against.map(checkpoint_file).transpose()?;
    let opened = File::open(file).map_err(|e| Failure::io(&format!("`{}` cannot be read", file.display()), &e))?;
    let mut verifier = ChainVerifier::default();
    let mut at_checkpoint = None;
    let mut fault = None;
    for line in BufReader::new(opened).lines() {
        let line = line.map_err(|e| Failure::io("the export cannot be read", &e))?;
        let followed = match serde_json::from_str::<ChainedEvent>(&line) {
            Ok(event) => verifier.follow_event(&event),
            Err(e) => Err(ChainFault::Unreadable { seq: verifier.size() + 1, reason: e.to_string() }),
        };
        if let Err(found) = followed {
            fault = Some(found);
            break;
        }
        if checkpoint.as_ref().is_some_and(|c| c.size == verifier.size()) {
            at_checkpoint = Some(verifier.head());
        }
    }
    let contradiction = match (&fault, &checkpoint) {
        (None, Some(checkpoint)) => contradiction(checkpoint, key, at_checkpoint, verifier.size()),
        _ => None,
    };
    // A journal begins with the daemon's first start, so nothing is not a journal.
    let empty = (verifier.size() == 0).then(|| "the export holds no event".to_owned());
    let update = VerifyUpdate {
        verified: verifier.size(),
        done: true,
        fault_seq: fault.as_ref().map_or(0, ChainFault::seq),
        fault: fault.map(|f| f.to_string()).or(contradiction.map(|c| c.to_string())).or(empty).unwrap_or_default(),
        head: verifier.head().to_string(),
        origin: checkpoint.as_ref().map_or_else(String::new, |c| c.origin.to_string()),
    };
    verdict(context, &update, checkpoint.is_some())
}

fn contradiction(
    checkpoint: &Checkpoint,
    key: Option<&PublicKey>,
    seen: Option<Digest>,
    size: u64,
) -> Option<CheckpointFault> {
    if checkpoint.verify_signature().is_err() || key.is_some_and(|key| *key != checkpoint.public_key) {
        return Some(CheckpointFault::Signature);
    }
    match seen {
        None if checkpoint.size > 0 => Some(CheckpointFault::Truncated { found: size, expected: checkpoint.size }),
        Some(head) if head != checkpoint.head => Some(CheckpointFault::Rewritten { seq: checkpoint.size }),
        _ => None,
    }
}

async fn export(context: &Context, to: Option<PathBuf>) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let mut out: Box<dyn Write> = match &to {
        Some(path) => {
            let file =
                File::create(path).map_err(|e| Failure::io(&format!("`{}` cannot be written", path.display()), &e))?;
            Box::new(BufWriter::new(file))
        }
        None => Box::new(BufWriter::new(std::io::stdout())),
    };
    let request = TailRequest { first: 1, last: 0, follow: false };
    let mut events = connection.journal().tail(request).await?.into_inner();
    let mut count = 0_u64;
    while let Some(event) = events.message().await? {
        let line = output::document(&chained(event)?)?;
        writeln!(out, "{line}").map_err(|e| unwritten(to.as_deref(), &e))?;
        count += 1;
    }
    out.flush().map_err(|e| unwritten(to.as_deref(), &e))?;
    if let Some(path) = to {
        note!("{} {count} events in {}", styled(GOOD, "✔"), path.display());
    }
    Ok(())
}

/// An export that cannot be written: to standard output like any answer, to a file as the file's failure.
fn unwritten(to: Option<&Path>, error: &std::io::Error) -> Failure {
    match to {
        None => output::unwritten(error),
        Some(path) => Failure::io(&format!("`{}` cannot be written", path.display()), error),
    }
}

async fn checkpoint(context: &Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let reply = connection.journal().checkpoint(CheckpointRequest {}).await?.into_inner();
    let checkpoint: Checkpoint = super::read(&reply.checkpoint_json)?;
    output::json(&checkpoint)?;
    if !context.json() {
        note!(
            "{}",
            styled(
                DIM,
                "keep this where this machine cannot change it; compare later: palyra journal verify --against FILE"
            )
        );
    }
    Ok(())
}
