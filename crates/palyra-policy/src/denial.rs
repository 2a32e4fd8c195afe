//! Denials that their caller can act on, and that tell them nothing else.
//!
//! A denied caller may know the rules that decided (by name, with the reason their author wrote for this very
//! reader) and what their own call lacked, as a code. They do not learn other rules, the names of groups or who is in
//! them: that is for callers who may ask `policy.explain`.

use crate::change::Change;
use crate::explain::PolicyExplanation;
use crate::hint::printable;
use crate::rule::Effect;
use palyra_protocol::{AskWhom, Denial, MissingCode, MissingCondition};

impl PolicyExplanation {
    /// What a caller who was denied is told.
    #[must_use]
    pub fn denial(&self) -> Denial {
        let rules = self.rule_ids();
        if !self.errors().is_empty() {
            let missing = vec![condition(MissingCode::PolicyError, "the rules could not be evaluated".to_owned())];
            let ask_for = "have the operator look at the rules: `palyra policy explain` tells what fails".to_owned();
            return Denial { rules, missing, ask: AskWhom::Operator, ask_for };
        }
        let forbids: Vec<_> = self.rules().filter(|rule| rule.effect() == Effect::Forbid).collect();
        if !forbids.is_empty() {
            let missing = forbids.iter().map(|rule| condition(MissingCode::ForbiddenByRule, rule.reason().to_owned()));
            let remedy = forbids.iter().find_map(|rule| rule.remedy());
            return Denial {
                missing: missing.collect(),
                ask: if remedy.is_some() { AskWhom::Nobody } else { AskWhom::Operator },
                ask_for: remedy.map_or_else(
                    || format!("do something else; only the operator can change the rule `{}`", rules.join("`, `")),
                    str::to_owned,
                ),
                rules,
            };
        }
        self.unpermitted(rules)
    }

    /// Nothing permits it: what the nearest rule that could would need.
    fn unpermitted(&self, rules: Vec<String>) -> Denial {
        let changes = self.what_would_change();
        let nearest: Option<&Change> = changes.iter().find(|change| change.effect == Effect::Permit);
        let mut codes: Vec<MissingCode> =
            nearest.into_iter().flat_map(|change| change.conditions.iter().map(|state| state.code)).collect();
        codes.sort_unstable();
        codes.dedup();
        if codes.is_empty() {
            codes.push(MissingCode::OtherCondition);
        }
        let (principal, action, resource) = self.asked_about();
        let words = |code: MissingCode| match code {
            MissingCode::ToolNotAllowlisted => format!("`{resource}` is not among the tools that may be called here"),
            MissingCode::CallerNotAuthorised => format!("`{principal}` is not among those who may do this"),
            MissingCode::ChannelNotAuthorised => "no caller may do this through this door".to_owned(),
            MissingCode::PeopleOnly => "only a person may do this".to_owned(),
            MissingCode::PersonsApproval => "a person has to approve it".to_owned(),
            MissingCode::ForbiddenByRule | MissingCode::OtherCondition | MissingCode::PolicyError => {
                "no rule permits this call as it is".to_owned()
            }
        };
        let ask_for = if codes.contains(&MissingCode::ToolNotAllowlisted) {
            format!("ask the operator to allow the tool `{resource}`")
        } else {
            format!("ask the operator to permit `{action}` on `{resource}` for `{principal}`")
        };
        let missing = codes.into_iter().map(|code| condition(code, words(code))).collect();
        Denial { rules, missing, ask: AskWhom::Operator, ask_for }
    }

    fn asked_about(&self) -> (String, String, String) {
        let (principal, action, resource) = self.question_parts();
        (principal.to_string(), action.to_string(), printable(resource.name()))
    }
}

fn condition(code: MissingCode, message: String) -> MissingCondition {
    MissingCondition { code, message }
}
