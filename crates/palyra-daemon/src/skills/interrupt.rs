//! Ctrl-C for commands that run compilers and guests: what is under way is told to end, so that nothing is left behind.

use super::refusal::Refusal;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a command may clean up. Compilers are told by the terminal itself.
const GRACE: Duration = Duration::from_secs(5);

type Wake = Box<dyn FnOnce() + Send>;

/// Whether the command was told to end, and what ends its present step.
#[derive(Default)]
pub(super) struct Interrupt {
    told: AtomicBool,
    wake: Mutex<Option<Wake>>,
}

impl Interrupt {
    /// Does a step that `wake` ends early.
    pub(super) fn during<T>(&self, wake: impl FnOnce() + Send + 'static, step: impl FnOnce() -> T) -> T {
        *self.wake.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(wake));
        if self.is_told() {
            self.tell();
        }
        let done = step();
        *self.wake.lock().unwrap_or_else(PoisonError::into_inner) = None;
        done
    }

    /// Whether to end.
    pub(super) fn is_told(&self) -> bool {
        self.told.load(Ordering::Acquire)
    }

    fn tell(&self) {
        self.told.store(true, Ordering::Release);
        if let Some(wake) = self.wake.lock().unwrap_or_else(PoisonError::into_inner).take() {
            wake();
        }
    }
}

/// Does work on a thread of its own until it is done or Ctrl-C comes.
pub(super) fn interruptible(
    work: impl FnOnce(&Interrupt) -> Result<ExitCode, Refusal> + Send + 'static,
) -> Result<ExitCode, Refusal> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Refusal::io("the runtime did not start", &error))?;
    let interrupt = Arc::new(Interrupt::default());
    let own = Arc::clone(&interrupt);
    let done = runtime.block_on(async {
        let mut working = tokio::task::spawn_blocking(move || work(&own));
        tokio::select! {
            done = &mut working => done.unwrap_or_else(|error| Err(Refusal::bug(&error))),
            told = tokio::signal::ctrl_c() => {
                told.map_err(|error| Refusal::io("signals cannot be waited for", &error))?;
                interrupt.tell();
                // However the work ended, it was interrupted.
                drop(tokio::time::timeout(GRACE, working).await);
                Err(Refusal::interrupted())
            }
        }
    });
    runtime.shutdown_background();
    done
}
