//! The inbox: what waits for a person, one approval with its review, and the answer, which the browser has signed.

use super::rendered::{When, cut, document, fragment, seen};
use super::signed::Signed;
use crate::http::{Caller, Door, Id, Refused};
use askama::Template;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use palyra_engine::{Answer, AnswerConfirmation, AnswerSignature, ApprovalFilter};
use palyra_protocol::json::canonical_text;
use palyra_protocol::review::{LineKind, Row};
use palyra_protocol::{
    ApprovalDecision, ApprovalId, ApprovalRecord, ApprovalScope, ApprovalState, ConsoleSignature, Digest, GrantMatcher,
    PasskeyAssertion, Review,
};
use serde::Deserialize;

/// The longest headline in the list; the review has all of it.
const HEADLINE: usize = 160;
/// How many approvals are listed.
const MOST: usize = 500;

#[derive(Template)]
#[template(path = "console/inbox.html")]
struct Inbox {
    items: Vec<Item>,
    more: bool,
}

struct Item {
    id: String,
    headline: String,
    tool: String,
    risk: String,
    principal: String,
    asked: When,
    expires_ms: u64,
    digest: String,
    group: String,
}

impl Item {
    fn of(asked: &ApprovalRecord) -> Self {
        let review = Review::of(asked);
        Self {
            id: asked.approval_id.to_string(),
            headline: cut(&review.headline(), HEADLINE),
            tool: seen(asked.tool.as_str()),
            risk: asked.risk.to_string(),
            principal: asked.principal.to_string(),
            asked: When(asked.requested_at),
            expires_ms: asked.expires_at.unix_ms(),
            digest: asked.call_digest.to_string(),
            group: Digest::of(review.group().as_bytes()).short(),
        }
    }
}

/// What waits, oldest first: new ones come at the end and move nothing.
pub(super) async fn list(State(door): State<Door>, caller: Caller) -> Result<Response, Refused> {
    let mut items: Vec<Item> = Vec::new();
    let mut last = None;
    let mut more = true;
    while more && items.len() < MOST {
        let page = door.engine.approvals(&caller.peer, ApprovalFilter::Pending, last.as_ref()).await?;
        last = page.records.last().map(|asked| asked.approval_id.clone());
        items.extend(page.records.iter().map(Item::of));
        more = page.more;
    }
    fragment(&Inbox { items, more })
}

/// One approval as it is read and answered.
#[derive(Template)]
#[template(path = "console/review.html")]
struct Shown<'a> {
    review: &'a Review,
    rows: Vec<Row>,
    widths: Vec<Width>,
    /// Whether the answer of whoever reads this would count.
    counts: bool,
    /// Whether a rule wants a yes, and a no, confirmed with a passkey.
    passkey: (bool, bool),
}

/// How wide an answer can be.
struct Width {
    /// The matcher as it is signed.
    matcher: String,
    text: String,
    /// Its scope where it is part of the offer.
    replay: String,
}

impl Shown<'_> {
    fn of(review: &Review, counts: bool, passkey: (bool, bool)) -> Shown<'_> {
        let widths = review.offers.iter().filter_map(|offer| {
            let matcher = canonical_text(&offer.matcher).ok()?;
            let replay = offer.replay.as_ref().map(|replay| match (replay.answered, replay.of, replay.denied) {
                (_, 0, _) => String::new(),
                (answered, of, 0) => format!(" – would have answered {answered} of the last {of}"),
                (answered, of, denied) => {
                    format!(" – would have answered {answered} of the last {of}, {denied} of which were denied")
                }
            });
            let text = seen(offer.matcher.describe());
            Some(Width { matcher, text, replay: replay.unwrap_or_default() })
        });
        Shown { review, rows: review.rows(), widths: widths.collect(), counts, passkey }
    }

    fn pending(&self) -> bool {
        self.review.state == ApprovalState::Pending
    }

    fn kind(&self, kind: &LineKind) -> &'static str {
        match kind {
            LineKind::Plain => "plain",
            LineKind::Added => "added",
            LineKind::Removed => "removed",
            LineKind::Place => "place",
            LineKind::Warning => "warning",
        }
    }

    fn when(&self, at: &palyra_protocol::Timestamp) -> When {
        When(*at)
    }
}

pub(super) async fn show(
    State(door): State<Door>,
    caller: Caller,
    Id(approval_id): Id<ApprovalId>,
) -> Result<Response, Refused> {
    let asked = door.engine.approval(&caller.peer, &approval_id).await?;
    let review = door.engine.review_of(&caller.peer, &asked).await;
    let counts = door.engine.may_decide(&caller.peer, &asked);
    let needs = |answer| door.engine.answer_needs_passkey(&caller.peer, &asked, answer);
    let passkey = (needs(ApprovalDecision::Allow), needs(ApprovalDecision::Deny));
    fragment(&Shown::of(&review, counts, passkey))
}

/// A person's answer, as their browser signed it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Decide {
    decision: ApprovalDecision,
    scope: ApprovalScope,
    matcher: GrantMatcher,
    #[serde(default)]
    reason: Option<String>,
    /// The digest that was shown.
    digest: Digest,
    signature: ConsoleSignature,
    /// That a passkey has confirmed it, where a rule wants that.
    #[serde(default)]
    assertion: Option<PasskeyAssertion>,
}

pub(super) async fn decide(
    State(door): State<Door>,
    caller: Caller,
    Id(approval_id): Id<ApprovalId>,
    headers: HeaderMap,
    Signed(decide): Signed<Decide>,
) -> Result<Response, Refused> {
    let Decide { decision, scope, matcher, reason, digest, signature, assertion } = decide;
    let origin = door.origin(&headers).unwrap_or_default();
    let confirmation = assertion.map(|assertion| Box::new(AnswerConfirmation { assertion, origin }));
    let (digest, signature) = (Some(digest), Some(AnswerSignature { signature, key: None, confirmation }));
    let answer = Answer { approval_id, decision, scope, matcher, reason, digest, signature };
    let record = door.engine.decide_approval(&caller.peer, answer).await?;
    tracing::info!(by = %caller.peer.effective(), approval = %record.approval_id, state = record.state.as_str(), "answered");
    document(&*record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use palyra_protocol::review::every_fact;

    /// The text of a page, as somebody reads it.
    fn read(html: &str) -> String {
        let mut text = String::new();
        let mut inside = false;
        for c in html.chars() {
            match c {
                '<' => inside = true,
                '>' if inside => inside = false,
                c if !inside => text.push(c),
                _ => {}
            }
        }
        let escapes = [
            ("&#60;", "<"),
            ("&#62;", ">"),
            ("&#34;", "\""),
            ("&#39;", "'"),
            ("&lt;", "<"),
            ("&gt;", ">"),
            ("&quot;", "\""),
        ];
        let text = escapes.iter().fold(text, |text, (escape, plain)| text.replace(escape, plain));
        text.replace("&#38;", "&").replace("&amp;", "&")
    }

    #[test]
    fn the_page_shows_every_fact() {
        let review = every_fact();
        let html = Shown::of(&review, true, (false, false)).render().unwrap();
        let text = read(&html);
        for row in review.rows() {
            for fact in row.texts() {
                assert!(text.contains(fact), "`{fact}` is not shown:\n{text}");
            }
        }
    }

    #[test]
    fn hostile_text_is_inert() {
        let hostile = "<img src=x onerror=alert(1)>\"'\u{202e}\u{1b}[2J</pre><script>";
        let quoted = serde_json::to_string(hostile).unwrap();
        let text = serde_json::to_string(&every_fact()).unwrap().replace("#hostile#", &quoted[1..quoted.len() - 1]);
        let review: Review = serde_json::from_str(&text).unwrap();
        let html = Shown::of(&review, true, (false, false)).render().unwrap();
        assert!(!html.contains("<img") && !html.contains("<script"), "{html}");
        assert!(!html.contains('\u{202e}') && !html.contains('\u{1b}'), "{html}");
        assert!(read(&html).contains("onerror=alert(1)"), "it is shown as the text that it is");
    }

    #[test]
    fn an_approval_that_has_ended_or_is_not_ones_own_to_answer_has_no_buttons() {
        let mut review = every_fact();
        assert!(!Shown::of(&review, true, (false, false)).render().unwrap().contains("data-decide"));
        review.state = ApprovalState::Pending;
        review.resolution = None;
        assert!(Shown::of(&review, true, (false, false)).render().unwrap().contains("data-decide"));
        assert!(!Shown::of(&review, false, (false, false)).render().unwrap().contains("data-decide"));
    }
}
