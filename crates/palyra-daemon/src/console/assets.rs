//! Scripts, styles and the icon: compiled in, and the same for everybody.

use super::shell::guarded;
use crate::http::Refused;
use axum::extract::Path;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};

/// One file.
#[derive(Debug)]
pub(super) struct Asset {
    /// Its name.
    pub(super) name: &'static str,
    kind: &'static str,
    pub(super) bytes: &'static [u8],
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! assets {
    ($($name:literal: $kind:expr,)+) => {
        /// Every file.
        pub(super) const ASSETS: &[Asset] = &[
            $(Asset { name: $name, kind: $kind, bytes: include_bytes!(concat!("assets/", $name)) },)+
        ];
    };
}

assets! {
    "console.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "digest.js": SCRIPT,
    "session.js": SCRIPT,
    "stream.js": SCRIPT,
    "page.js": SCRIPT,
    "listing.js": SCRIPT,
    "access.js": SCRIPT,
    "passkey.js": SCRIPT,
    "inbox.js": SCRIPT,
    "call.js": SCRIPT,
    "run.js": SCRIPT,
    "policy.js": SCRIPT,
    "journal.js": SCRIPT,
}

pub(super) async fn asset(Path(name): Path<String>) -> Result<Response, Refused> {
    let asset = ASSETS.iter().find(|asset| asset.name == name).ok_or_else(|| Refused::not_found("file", &name))?;
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static(asset.kind));
    Ok(guarded(([kind], asset.bytes).into_response()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that is ever transferred besides data.
    const MOST: usize = 150_000;
    /// The scripts of it.
    const MOST_SCRIPTS: usize = 60_000;

    #[test]
    fn the_console_is_small() {
        let all: usize = ASSETS.iter().map(|asset| asset.bytes.len()).sum();
        let scripts: usize = ASSETS.iter().filter(|asset| asset.kind == SCRIPT).map(|asset| asset.bytes.len()).sum();
        assert!(all <= MOST && scripts <= MOST_SCRIPTS, "{all} bytes, {scripts} of them scripts");
    }

    #[test]
    fn scripts_reach_the_page_by_text_alone() {
        for asset in ASSETS.iter().filter(|asset| asset.kind == SCRIPT) {
            let text = std::str::from_utf8(asset.bytes).unwrap();
            for way in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
                "document.cookie",
            ] {
                assert!(!text.contains(way), "{}: {way}", asset.name);
            }
            let parsed = text.matches("parseFromString").count();
            assert_eq!(
                parsed,
                usize::from(asset.name == "page.js"),
                "{}: one place turns markup into elements",
                asset.name
            );
        }
    }
}
