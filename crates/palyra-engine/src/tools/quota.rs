//! The quota of a run on a view: counted while it runs, so that it cannot fill the disk first.
//!
//! A thread counts the run's layer again and again and ends the run when there is more than it may write. Between two
//! counts it rests for ten times as long as the last one took, so that counting costs a run little however much it
//! writes. Exact limits of the kernel were the alternative: project quotas need a file system that was made for them,
//! and a layer in memory loses to the first large build.

use palyra_sandbox::CancelHandle;
use palyra_workspace::effects::{EffectError, Limits, View};
use serde_json::{Value, json};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The shortest rest between two counts.
const REST: Duration = Duration::from_millis(100);

/// Does the work while the view is watched; says which limit ended it, if one did.
pub(super) fn watched<T>(
    view: &View,
    limits: Limits,
    handle: &CancelHandle,
    work: impl FnOnce() -> T,
) -> (T, Option<EffectError>) {
    let (over, bell) = (Mutex::new(false), Condvar::new());
    std::thread::scope(|scope| {
        let watch = std::thread::Builder::new().name("palyra-quota".into()).spawn_scoped(scope, || {
            let mut rest = REST;
            let mut ended = over.lock().unwrap_or_else(PoisonError::into_inner);
            while !*ended {
                ended = bell.wait_timeout(ended, rest).unwrap_or_else(PoisonError::into_inner).0;
                if *ended {
                    break;
                }
                let started = Instant::now();
                // What cannot be counted now is counted when the run has ended.
                if let Some(error) = view.usage(limits).ok().and_then(|usage| usage.beyond(limits)) {
                    handle.cancel();
                    return Some(error);
                }
                rest = REST.max(started.elapsed() * 10);
            }
            None
        });
        let done = work();
        *over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        bell.notify_all();
        (done, watch.ok().and_then(|watch| watch.join().ok()).flatten())
    })
}

/// Enters the quota in what really held a run.
pub(super) fn report(enforcement: &mut Value, limits: Limits) {
    let Limits { max_files, max_bytes } = limits;
    let detail = format!(
        "{max_files} entries and {max_bytes} bytes in the workspace: approximate while it runs, exact before anything counts"
    );
    if let Some(layers) = enforcement["layers"].as_array_mut() {
        layers.push(json!({ "name": "workspace_quota", "detail": detail, "applied": true }));
    }
}
