//! The shells of the pages: navigation, an empty place for the content, and the script that fills it. They hold no
//! data.

use super::PAGE_POLICY;
use super::rendered::fragment;
use crate::http::Refused;
use askama::Template;
use axum::extract::Path;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

/// One page.
#[derive(Debug)]
pub(super) struct Page {
    /// Its name in the address.
    pub(super) name: &'static str,
    /// What it is called.
    title: &'static str,
    /// The script that fills it.
    pub(super) script: &'static str,
    /// The key that leads to it, after `g`; nothing for a page that is not in the navigation.
    key: &'static str,
}

const fn page_of(name: &'static str, title: &'static str, script: &'static str, key: &'static str) -> Page {
    Page { name, title, script, key }
}

/// Every page.
pub(super) const PAGES: &[Page] = &[
    page_of("inbox", "Inbox", "inbox.js", "i"),
    page_of("calls", "Calls", "listing.js", "c"),
    page_of("call", "Call", "call.js", ""),
    page_of("runs", "Runs", "listing.js", "r"),
    page_of("run", "Run", "run.js", ""),
    page_of("effects", "Effects", "listing.js", "e"),
    page_of("grants", "Grants", "listing.js", "g"),
    page_of("policy", "Policy", "policy.js", "p"),
    page_of("skills", "Skills", "listing.js", "s"),
    page_of("skill", "Skill", "listing.js", ""),
    page_of("memory", "Memory", "listing.js", "m"),
    page_of("routines", "Routines", "listing.js", "o"),
    page_of("vault", "Vault", "listing.js", "v"),
    page_of("devices", "Devices", "listing.js", "d"),
    page_of("access", "Access", "access.js", "a"),
    page_of("journal", "Journal", "journal.js", "j"),
    page_of("health", "Health", "listing.js", "h"),
];

#[derive(Template)]
#[template(path = "console/shell.html")]
struct Shell {
    page: &'static Page,
}

impl Shell {
    fn navigation(&self) -> impl Iterator<Item = &'static Page> {
        PAGES.iter().filter(|page| !page.key.is_empty())
    }

    fn address(&self, page: &Page) -> String {
        if page.name == "inbox" { "/console/".to_owned() } else { format!("/console/{}", page.name) }
    }
}

/// `/` is the console.
pub(super) async fn home() -> Response {
    (StatusCode::SEE_OTHER, [(header::LOCATION, HeaderValue::from_static("/console/"))]).into_response()
}

/// `/console/` is the inbox.
pub(super) async fn inbox() -> Result<Response, Refused> {
    shell("inbox")
}

pub(super) async fn page(Path(name): Path<String>) -> Result<Response, Refused> {
    shell(&name)
}

fn shell(name: &str) -> Result<Response, Refused> {
    let page = PAGES.iter().find(|page| page.name == name).ok_or_else(|| Refused::not_found("page", name))?;
    Ok(guarded(fragment(&Shell { page })?))
}

/// What browsers are told about everything that they load as a page or as a part of one.
pub(super) fn guarded(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_POLICY));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    let opener = HeaderName::from_static("cross-origin-opener-policy");
    headers.insert(opener, HeaderValue::from_static("same-origin"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shells_hold_nothing_inline_and_name_scripts_that_exist() {
        for page in PAGES {
            let text = Shell { page }.render().unwrap();
            assert!(text.contains(&format!("/console/assets/{}", page.script)), "{text}");
            assert!(super::super::assets::ASSETS.iter().any(|asset| asset.name == page.script), "{}", page.script);
            for inline in ["<style", "style=", "onclick", "onload", "javascript:", "<script>"] {
                assert!(!text.contains(inline), "{}: {inline}", page.name);
            }
        }
    }

    #[test]
    fn keys_lead_to_one_page_each() {
        let mut keys: Vec<_> = PAGES.iter().map(|page| page.key).filter(|key| !key.is_empty()).collect();
        let count = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), count);
    }
}
