//! A review as plain text, and the sentences that every screen uses.

use super::rows::Row;
use super::{OfferReplay, Review};
use crate::access::ShownToken;
use crate::approval::{ApprovalResolution, ApprovalScope, ApprovalState};
use crate::clock::Timestamp;
use crate::display::safe;
use crate::principal::Principal;
use std::fmt::Write as _;

/// A review as plain text: what an MCP client shows.
#[must_use]
pub fn plain(review: &Review) -> String {
    let mut text = String::new();
    for row in review.rows() {
        // Writing to a string cannot fail.
        let _infallible = match row {
            Row::Headline(headline) => writeln!(text, "    {headline}"),
            Row::Fact { name, value } => writeln!(text, "{name}: {value}"),
            Row::Time { name, at } => writeln!(text, "{name}: {}", utc(at)),
            Row::Block { name, lines } => {
                let _infallible = writeln!(text, "{name}:");
                lines.iter().try_for_each(|line| writeln!(text, "  {}", line.text))
            }
        };
    }
    text
}

/// A principal, the token or device that they spoke by, and who else may have.
#[must_use]
pub fn speaker(who: &Principal, token: Option<&ShownToken>) -> String {
    let Some(token) = token else { return who.to_string() };
    let issuers: Vec<_> = token.issuers.iter().map(ToString::to_string).collect();
    let issued = if issuers.is_empty() { String::new() } else { format!(", issued by {}", issuers.join(" and ")) };
    format!("{who} (by {}{issued})", token.credential)
}

/// Who has to approve just this, and who has; nothing where any one answer will do.
pub(super) fn people(review: &Review) -> Option<String> {
    if review.people <= 1 && !review.fresh {
        return None;
    }
    if review.people <= 1 && !review.subject.is_call() {
        return Some("an answer about just what is shown".to_owned());
    }
    if review.people <= 1 {
        return Some("an answer about this very call, which no grant covers".to_owned());
    }
    let given: Vec<_> = review
        .given
        .iter()
        .map(|given| {
            let reason = given.reason.as_deref().map_or_else(String::new, |reason| format!(" ({})", safe(reason)));
            format!("{}{reason}", speaker(&given.by, given.token.as_ref()))
        })
        .collect();
    let given = if given.is_empty() { "none yet".to_owned() } else { given.join(", ") };
    Some(format!("{} different people; approved so far by {given}", review.people))
}

/// How an approval ended.
pub(super) fn resolution(state: ApprovalState, end: &ApprovalResolution) -> String {
    let ApprovalResolution { by, token, at, scope: kept, matcher, reason, grant, signature } = end;
    let width = match (state, kept, grant) {
        (ApprovalState::Allowed, ApprovalScope::Once, _) => ", once".to_owned(),
        (ApprovalState::Allowed, kept, _) | (ApprovalState::Denied, kept, Some(_)) => {
            format!(", {}: {}", scope(*kept), safe(&matcher.describe()))
        }
        _ => String::new(),
    };
    let reason = reason.as_deref().map_or_else(String::new, |reason| format!(" ({})", safe(reason)));
    let grant = grant.as_ref().map_or_else(String::new, |grant| format!("; left {grant}"));
    let signed = signature.as_ref().map_or_else(String::new, |signed| format!("; {signed}"));
    format!("{} by {} at {}{width}{reason}{grant}{signed}", state.as_str(), speaker(by, token.as_ref()), utc(*at))
}

/// How long an answer holds.
pub(super) fn scope(scope: ApprovalScope) -> String {
    match scope {
        ApprovalScope::Once => "once".to_owned(),
        ApprovalScope::Session => "for this session".to_owned(),
        ApprovalScope::Window { ms } if ms < 120_000 => format!("for {} s", ms.div_ceil(1000)),
        ApprovalScope::Window { ms } => format!("for {} min", ms / 60_000),
    }
}

/// A time as people write it everywhere: `2026-11-18 06:40:00 UTC`.
#[must_use]
pub fn utc(at: Timestamp) -> String {
    let seconds = at.unix_ms() / 1000;
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // From days since 1970 to a date of the Gregorian calendar, by eras of 400 years that begin in March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// What a grant would have answered.
pub(super) fn replayed(replay: &OfferReplay) -> String {
    let OfferReplay { of, answered, denied, denied_examples: _ } = replay;
    let denied = match denied {
        0 => String::new(),
        1 => "; one of them you denied".to_owned(),
        denied => format!("; {denied} of them you denied"),
    };
    match (answered, of) {
        (_, 0) => "nothing was asked before that it could have answered".to_owned(),
        (answered, of) => format!("it would have answered {answered} of the last {of} approvals{denied}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::every_fact;
    use super::*;

    #[test]
    fn the_message_shows_every_fact() {
        let review = every_fact();
        let text = plain(&review);
        for row in review.rows() {
            for fact in row.texts() {
                assert!(text.contains(fact), "`{fact}` is not in the message:\n{text}");
            }
        }
    }

    #[test]
    fn times_are_dates() {
        for (ms, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400_000, "2000-02-29 00:00:00 UTC"),
            (1_790_000_000_000, "2026-09-21 14:13:20 UTC"),
        ] {
            assert_eq!(utc(Timestamp::from_unix_ms(ms)), text);
        }
    }

    #[test]
    fn a_review_is_the_same_after_its_journey() {
        let review = every_fact();
        let json = serde_json::to_string(&review).unwrap();
        assert_eq!(serde_json::from_str::<Review>(&json).unwrap(), review);
    }

    #[test]
    fn hostile_text_is_visible_in_every_row() {
        let hostile = "x\u{1b}[2J\u{202e}y\u{7}";
        let text = serde_json::to_string(&every_fact()).unwrap().replace("#hostile#", &hostile.escape_json());
        let review: Review = serde_json::from_str(&text).unwrap();
        assert!(serde_json::to_string(&review).unwrap().matches("u001b").count() > 10, "the example has few places");
        let shown = plain(&review);
        assert!(!shown.chars().any(|c| crate::display::deceives(c) && c != '\n'), "{shown:?}");
    }

    trait EscapeJson {
        fn escape_json(&self) -> String;
    }

    impl EscapeJson for str {
        fn escape_json(&self) -> String {
            let quoted = serde_json::to_string(self).unwrap();
            quoted[1..quoted.len() - 1].to_owned()
        }
    }
}
