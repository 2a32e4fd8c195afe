//! The console: where people see and decide in a browser.
//!
//! Every page is a shell without data, an asset or an answer to a signed request. [`shell`] and [`assets`] are open to
//! everybody and tell nothing. The rest is below `/console/api/`: the gate takes the signature of the request for who
//! is speaking ([`signed`]), and asks the one table of rights, like for every other route. What a page shows is
//! rendered here, by templates that escape everything, from the same queries of the engine that the other doors use.
//!
//! A page is one handler file, a template (or the common one of [`tables`]), and a small script. A new page needs a
//! line in [`shell::PAGES`], its routes below, and their lines in the table of rights; tests compare all three.

mod access;
mod assets;
mod calls;
mod devices;
mod effects;
mod grants;
mod health;
mod inbox;
mod journal;
mod memory;
mod passkeys;
mod policy;
mod rendered;
mod routines;
mod runs;
mod session;
mod shell;
pub(crate) mod signed;
mod skills;
mod stream;
mod tables;
mod vault;

use crate::http::Door;
use axum::Router;
use axum::routing::{MethodFilter, MethodRouter};

/// What no page of the console is without. Nothing inline, nothing from elsewhere, no frames; markup reaches the page
/// only through one named Trusted Types policy.
pub(crate) const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types palyra";

macro_rules! routes {
    ($($verb:ident $path:literal => $handler:path,)+) => {
        /// Every route, as the table of rights names it.
        #[cfg(test)]
        pub(crate) const ROUTES: &[&str] = &[$(concat!(stringify!($verb), " ", $path)),+];

        /// The console's routes. The gate stands before them.
        pub(crate) fn routes() -> Router<Door> {
            Router::new()$(.route($path, MethodRouter::new().on(MethodFilter::$verb, $handler)))+
        }
    };
}

routes! {
    GET "/" => shell::home,
    GET "/console/" => shell::inbox,
    GET "/console/{page}" => shell::page,
    GET "/console/assets/{file}" => assets::asset,
    POST "/console/session" => session::open,
    GET "/console/api/me" => session::me,
    GET "/console/api/sessions" => session::list,
    POST "/console/api/sessions/{session}/end" => session::end,
    GET "/console/api/stream" => stream::stream,
    GET "/console/api/inbox" => inbox::list,
    GET "/console/api/inbox/{approval_id}" => inbox::show,
    POST "/console/api/inbox/{approval_id}/decide" => inbox::decide,
    GET "/console/api/calls" => calls::list,
    GET "/console/api/calls/{call_id}" => calls::show,
    GET "/console/api/calls/{call_id}/evidence" => calls::evidence,
    GET "/console/api/calls/{call_id}/events" => crate::http::call_events,
    POST "/console/api/calls/{call_id}/cancel" => calls::cancel,
    GET "/console/api/grants" => grants::list,
    POST "/console/api/grants/{grant_id}/revoke" => grants::revoke,
    GET "/console/api/policy" => policy::show,
    POST "/console/api/policy/check" => policy::check,
    POST "/console/api/policy/simulate" => policy::simulate,
    POST "/console/api/policy/adopt" => policy::adopt,
    GET "/console/api/runs" => runs::list,
    POST "/console/api/runs" => runs::start,
    GET "/console/api/runs/{run}" => runs::show,
    GET "/console/api/runs/{run}/news" => runs::news,
    POST "/console/api/runs/{run}/cancel" => runs::cancel,
    POST "/console/api/runs/{run}/resume" => runs::resume,
    GET "/console/api/skills" => skills::list,
    POST "/console/api/skills/check" => skills::check,
    GET "/console/api/skills/{skill}" => skills::show,
    POST "/console/api/skills/{skill}/quarantine" => skills::quarantine,
    POST "/console/api/skills/{skill}/release" => skills::release,
    POST "/console/api/skills/{skill}/use/{version}" => skills::use_version,
    GET "/console/api/memory" => memory::list,
    POST "/console/api/memory" => memory::add,
    POST "/console/api/memory/{entry_id}/forget" => memory::forget,
    GET "/console/api/routines" => routines::list,
    POST "/console/api/routines" => routines::add,
    POST "/console/api/routines/{routine}/pause" => routines::pause,
    POST "/console/api/routines/{routine}/resume" => routines::resume,
    POST "/console/api/routines/{routine}/run" => routines::run,
    POST "/console/api/routines/{routine}/rehearse" => routines::rehearse,
    POST "/console/api/routines/{routine}/remove" => routines::remove,
    GET "/console/api/vault" => vault::list,
    GET "/console/api/vault/blame" => vault::blame,
    GET "/console/api/devices" => devices::list,
    POST "/console/api/devices/code" => devices::code,
    POST "/console/api/devices/{device}/revoke" => devices::revoke,
    GET "/console/api/access" => access::list,
    POST "/console/api/access/tokens/{token_id}/revoke" => access::revoke_token,
    GET "/console/api/passkeys" => passkeys::own,
    POST "/console/api/passkeys" => passkeys::add,
    GET "/console/api/effects" => effects::list,
    POST "/console/api/effects/{view}/undo" => effects::undo,
    GET "/console/api/journal" => journal::list,
    GET "/console/api/journal/links" => journal::links,
    POST "/console/api/journal/checkpoint" => journal::checkpoint,
    GET "/console/api/health" => health::show,
}
