//! Feature flags: few, named, and unable to turn a guarantee off.
//!
//! Each of these, at its other value, makes the daemon refuse more and never less. A flag that would let something
//! through does not belong here.

use palyra_protocol::access::FeatureView;
use std::str::FromStr;

/// A flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// Whether tokens open anything.
    ApiTokens,
    /// Whether an answer to a question needs a reason.
    ApprovalReasons,
}

impl Feature {
    /// Every flag.
    pub const ALL: [Self; 2] = [Self::ApiTokens, Self::ApprovalReasons];

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ApiTokens => "api_tokens",
            Self::ApprovalReasons => "approval_reasons",
        }
    }

    /// Its value when nobody set it.
    #[must_use]
    pub fn default_value(self) -> bool {
        match self {
            Self::ApiTokens => true,
            Self::ApprovalReasons => false,
        }
    }

    /// What it does.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Self::ApiTokens => {
                "tokens open doors; off, every token is refused at every door, at once, until it is on again"
            }
            Self::ApprovalReasons => "every answer to an approval needs a reason; off, a reason is optional",
        }
    }

    /// What is shown of it.
    #[must_use]
    pub fn view(self, on: bool) -> FeatureView {
        FeatureView {
            name: self.as_str().to_owned(),
            on,
            default: self.default_value(),
            about: self.about().to_owned(),
        }
    }
}

/// A text that names no flag.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no feature of this name; there are {}", Feature::ALL.map(Feature::as_str).join(", "))]
pub struct UnknownFeature;

impl FromStr for Feature {
    type Err = UnknownFeature;
    fn from_str(text: &str) -> Result<Self, UnknownFeature> {
        Self::ALL.into_iter().find(|feature| feature.as_str() == text).ok_or(UnknownFeature)
    }
}
