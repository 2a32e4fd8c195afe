//! Who runs next: a fair queue with limits, and the threads that serve it.
//!
//! Calls of one skill wait in one line. Free threads take from the lines in turn, so a skill with a thousand calls
//! waiting does not delay another's first one. A skill that runs as many calls as it may leaves the turn until one of
//! them ends. Both lines and threads are bounded. Threads are started when there is work and end when there has been
//! none for a while, so that a daemon without skills has none. They are our own because a guest's stack must fit into
//! them, whatever the caller runs on.

use crate::error::PluginError;
use crate::limits::Limit;
use crate::names::SkillName;
use crate::policy::WasmPluginRunnerPolicy;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a thread without work stays.
const IDLE: Duration = Duration::from_secs(10);
/// What host functions need of a stack, beside what guests may use of it.
const HOST_STACK: usize = 1 << 20;

/// One call, ready to run.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// The bounds of a queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    running: u32,
    running_per_skill: u32,
    waiting: u32,
    waiting_per_skill: u32,
    stack: usize,
}

impl Bounds {
    pub(crate) fn of(policy: &WasmPluginRunnerPolicy) -> Self {
        Self {
            running: policy.max_concurrent_calls,
            running_per_skill: policy.max_concurrent_calls_per_skill,
            waiting: policy.max_queued_calls,
            waiting_per_skill: policy.max_queued_calls_per_skill,
            stack: usize::try_from(policy.stack_bytes).unwrap_or(usize::MAX).saturating_add(HOST_STACK),
        }
    }
}

/// The queue and its threads.
#[derive(Debug, Clone)]
pub(crate) struct Queue(Arc<Shared>);

struct Shared {
    bounds: Bounds,
    state: Mutex<State>,
    work: Condvar,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    lines: HashMap<SkillName, Line>,
    /// Skills with a call that may start, in the order of their turns.
    turns: VecDeque<SkillName>,
    waiting: u32,
    /// Calls that could start at once if there were threads for them.
    startable: u32,
    threads: u32,
    idle: u32,
}

#[derive(Default)]
struct Line {
    jobs: VecDeque<Job>,
    running: u32,
    in_turn: bool,
}

impl Queue {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self(Arc::new(Shared { bounds, state: Mutex::default(), work: Condvar::new() }))
    }

    /// Puts a call at the end of its skill's line.
    pub(crate) fn push(&self, skill: &SkillName, job: Job) -> Result<(), PluginError> {
        let bounds = &self.0.bounds;
        let mut state = self.0.lock();
        if state.waiting >= bounds.waiting {
            return Err(busy(Limit::QueuedCalls, bounds.waiting, state.waiting));
        }
        let waiting = state.lines.get(skill).map_or(0, |line| u32::try_from(line.jobs.len()).unwrap_or(u32::MAX));
        if waiting >= bounds.waiting_per_skill {
            return Err(busy(Limit::QueuedCallsPerSkill, bounds.waiting_per_skill, waiting));
        }
        state.lines.entry(skill.clone()).or_default();
        state.change(skill, bounds.running_per_skill, |line| line.jobs.push_back(job));
        state.waiting += 1;
        // A thread that was woken counts as idle until it has taken its call.
        let another = state.startable > state.idle && state.threads < bounds.running;
        if another {
            state.threads += 1;
        }
        drop(state);
        if another {
            self.start_thread(skill)?;
        } else {
            self.0.work.notify_one();
        }
        Ok(())
    }

    /// Starts a thread. Without any, the call that asked for it is taken back, so that it does not wait for ever.
    fn start_thread(&self, skill: &SkillName) -> Result<(), PluginError> {
        let shared = Arc::clone(&self.0);
        let thread = std::thread::Builder::new().name("palyra-guest".into()).stack_size(self.0.bounds.stack);
        let Err(error) = thread.spawn(move || shared.run()) else { return Ok(()) };
        let mut state = self.0.lock();
        state.threads -= 1;
        if state.threads > 0 {
            return Ok(());
        }
        let taken = state.change(skill, self.0.bounds.running_per_skill, |line| line.jobs.pop_back());
        if taken.flatten().is_some() {
            state.waiting -= 1;
        }
        Err(PluginError::Io { action: "start a thread for a guest", source: error })
    }

    /// How many calls wait, and how many threads there are.
    #[cfg(test)]
    pub(crate) fn load(&self) -> (u32, u32) {
        let state = self.0.lock();
        (state.waiting, state.threads)
    }
}

fn busy(limit: Limit, value: u32, waiting: u32) -> PluginError {
    PluginError::Busy { limit, value: value.into(), waiting: waiting.into() }
}

impl Line {
    /// How many of its calls could start.
    fn startable(&self, most: u32) -> u32 {
        u32::try_from(self.jobs.len()).unwrap_or(u32::MAX).min(most.saturating_sub(self.running))
    }
}

impl State {
    /// Changes a skill's line, gives it a turn if it now has a call that may start, and forgets it when it is empty.
    fn change<T>(&mut self, skill: &SkillName, most: u32, change: impl FnOnce(&mut Line) -> T) -> Option<T> {
        let line = self.lines.get_mut(skill)?;
        let before = line.startable(most);
        let changed = change(line);
        let after = line.startable(most);
        self.startable = self.startable + after - before;
        if after > 0 && !line.in_turn {
            line.in_turn = true;
            self.turns.push_back(skill.clone());
        }
        if line.running == 0 && line.jobs.is_empty() {
            self.lines.remove(skill);
        }
        Some(changed)
    }

    /// The next call, and whose it is.
    fn take(&mut self, most: u32) -> Option<(SkillName, Job)> {
        while let Some(skill) = self.turns.pop_front() {
            let taken = self.change(&skill, most, |line| {
                line.in_turn = false;
                let job = if line.startable(most) > 0 { line.jobs.pop_front() } else { None };
                line.running += u32::from(job.is_some());
                job
            });
            if let Some(job) = taken.flatten() {
                self.waiting -= 1;
                return Some((skill, job));
            }
        }
        None
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let most = self.bounds.running_per_skill;
        let mut state = self.lock();
        loop {
            if let Some((skill, job)) = state.take(most) {
                drop(state);
                // A call that panics is that call's error, and this thread's count must hold.
                drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)));
                state = self.lock();
                state.change(&skill, most, |line| line.running -= 1);
                continue;
            }
            state.idle += 1;
            let (woken, waited) = self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if waited.timed_out() && state.turns.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn queue(running: u32, per_skill: u32) -> Queue {
        Queue::new(Bounds {
            running,
            running_per_skill: per_skill,
            waiting: 100,
            waiting_per_skill: 50,
            stack: 64 << 10,
        })
    }

    fn skill(name: &str) -> SkillName {
        name.parse().unwrap()
    }

    /// A job that says that it runs and then waits to be let go.
    fn held(said: &mpsc::Sender<&'static str>, name: &'static str) -> (Job, mpsc::Sender<()>) {
        let (let_go, wait) = mpsc::channel();
        let said = said.clone();
        let job = Box::new(move || {
            said.send(name).unwrap();
            // Both a word and a sender that is gone end the wait.
            let _let_go = wait.recv();
        });
        (job, let_go)
    }

    #[test]
    fn skills_take_turns() {
        let queue = queue(1, 1);
        let (said, heard) = mpsc::channel();
        let (first, let_go) = held(&said, "first");
        queue.push(&skill("a"), first).unwrap();
        assert_eq!(heard.recv().unwrap(), "first");
        for (name, say) in [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("c", "c1")] {
            let said = said.clone();
            queue.push(&skill(name), Box::new(move || said.send(say).unwrap())).unwrap();
        }
        drop(let_go);
        let order: Vec<_> = (0..5).map(|_| heard.recv().unwrap()).collect();
        // Whether `a` comes before them depends on when its first call counts as ended; what matters is that they do
        // not wait for all of its calls.
        let last_of_others = order.iter().rposition(|say| matches!(*say, "b1" | "c1"));
        assert!(last_of_others <= Some(2), "{order:?}");
        assert_eq!(queue.load().1, 1);
    }

    #[test]
    fn one_skill_cannot_take_every_thread() {
        let queue = queue(4, 2);
        let (said, heard) = mpsc::channel();
        let mut gates = Vec::new();
        for _ in 0..4 {
            let (job, gate) = held(&said, "greedy");
            queue.push(&skill("greedy"), job).unwrap();
            gates.push(gate);
        }
        assert_eq!((heard.recv().unwrap(), heard.recv().unwrap()), ("greedy", "greedy"));
        let (job, gate) = held(&said, "modest");
        queue.push(&skill("modest"), job).unwrap();
        assert_eq!(heard.recv().unwrap(), "modest");
        assert_eq!(queue.load().0, 2);
        drop((gates, gate));
        assert_eq!((heard.recv().unwrap(), heard.recv().unwrap()), ("greedy", "greedy"));
    }

    #[test]
    fn lines_are_bounded_and_say_so() {
        let queue = queue(1, 1);
        let (said, heard) = mpsc::channel();
        let (job, _gate) = held(&said, "first");
        queue.push(&skill("a"), job).unwrap();
        heard.recv().unwrap();
        for _ in 0..50 {
            queue.push(&skill("a"), Box::new(|| {})).unwrap();
        }
        let error = queue.push(&skill("a"), Box::new(|| {})).unwrap_err();
        assert_eq!(
            (error.code(), error.to_string().as_str()),
            ("plugin_limit_queued_calls_per_skill", "50 calls are waiting already; `queued_calls_per_skill` is 50",)
        );
        for _ in 0..50 {
            queue.push(&skill("b"), Box::new(|| {})).unwrap();
        }
        assert_eq!(queue.push(&skill("c"), Box::new(|| {})).unwrap_err().code(), "plugin_limit_queued_calls");
    }
}
