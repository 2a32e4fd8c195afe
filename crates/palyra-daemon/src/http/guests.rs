//! Who is connected, so that nobody who shows nothing keeps those out who may come in.
//!
//! Whoever is on this machine can connect. A connection is a stranger's until a request on it was let in with a token,
//! and again when the last one was not. Strangers share a few places, and the one that has done nothing for longest
//! makes room for the next: somebody with a token sends it at once, and is no stranger any more. The many places are
//! for them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio_util::sync::CancellationToken;

/// How many connections may be open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    /// Those on which no token was shown.
    strangers: usize,
    /// The others.
    known: usize,
}

impl Room {
    const MOST: Self = Self { strangers: 256, known: 2048 };

    /// What fits into this number of open files. The daemon keeps at least a quarter of them for its journal, its
    /// sockets and what it runs, so that connections alone never use them up.
    pub(super) fn within(open_files: Option<u64>) -> Self {
        let part = |of: usize| open_files.map_or(usize::MAX, |all| usize::try_from(all).unwrap_or(usize::MAX) / of);
        Self { strangers: Self::MOST.strangers.min(part(4)).max(1), known: Self::MOST.known.min(part(2)).max(1) }
    }
}

/// Everybody who is connected.
#[derive(Debug, Clone)]
pub(super) struct Guests {
    seats: Arc<Mutex<Seats>>,
    since: Instant,
    room: Room,
}

#[derive(Debug, Default)]
struct Seats {
    next: u64,
    taken: HashMap<u64, Arc<Seat>>,
    known: usize,
}

#[derive(Debug, Default)]
struct Seat {
    known: AtomicBool,
    /// Requests under way, streams included.
    busy: AtomicUsize,
    /// When something last happened, in microseconds since the door opened.
    last: AtomicU64,
    leave: CancellationToken,
}

/// A connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Guest {
    guests: Guests,
    number: u64,
    seat: Arc<Seat>,
}

/// A request that was let in, until its answer has been read.
#[derive(Debug)]
pub(super) struct Busy(Arc<Guest>);

impl Guests {
    pub(super) fn new(room: Room) -> Self {
        Self { seats: Arc::default(), since: Instant::now(), room }
    }

    fn lock(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Closes the stranger's connection that has been idle longest, where the host has no file left for another.
    pub(super) fn make_room(&self) {
        self.lock().dismiss(|seat| !seat.known.load(Ordering::Relaxed));
    }

    /// Gives a newcomer a place; a stranger makes room if need be.
    pub(super) fn welcome(&self) -> Arc<Guest> {
        let seat = Arc::new(Seat { last: self.now().into(), ..Seat::default() });
        let mut seats = self.lock();
        if seats.taken.len() - seats.known >= self.room.strangers {
            seats.dismiss(|seat| !seat.known.load(Ordering::Relaxed));
        }
        seats.next += 1;
        let number = seats.next;
        seats.taken.insert(number, Arc::clone(&seat));
        Arc::new(Guest { guests: self.clone(), number, seat })
    }
}

impl Seats {
    /// Sends away the one of these that has done nothing for longest. Its place is free at once.
    fn dismiss(&mut self, of: impl Fn(&Seat) -> bool) -> bool {
        let those = self.taken.iter().filter(|(_, seat)| of(seat));
        let longest = those.min_by_key(|(_, seat)| seat.last.load(Ordering::Relaxed)).map(|(number, _)| *number);
        let Some(number) = longest else { return false };
        if let Some(seat) = self.taken.remove(&number) {
            self.known -= usize::from(seat.known.load(Ordering::Relaxed));
            seat.leave.cancel();
        }
        true
    }
}

impl Guest {
    /// Comes when the connection has to make room for another.
    pub(super) async fn dismissed(&self) {
        self.seat.leave.cancelled().await;
    }

    /// A request was let in. Nothing if there is no room for another of its kind.
    pub(super) fn admitted(self: &Arc<Self>) -> Option<Busy> {
        if !self.seat.known.load(Ordering::Relaxed) {
            let mut seats = self.guests.lock();
            let idle = |seat: &Seat| seat.known.load(Ordering::Relaxed) && seat.busy.load(Ordering::Relaxed) == 0;
            if seats.known >= self.guests.room.known && !seats.dismiss(idle) {
                return None;
            }
            if seats.taken.contains_key(&self.number) {
                seats.known += 1;
                self.seat.known.store(true, Ordering::Relaxed);
            }
        }
        self.seat.busy.fetch_add(1, Ordering::Relaxed);
        Some(Busy(Arc::clone(self)))
    }

    /// A request was not let in, or needed no token.
    pub(super) fn is_a_stranger(&self) {
        self.seat.last.store(self.guests.now(), Ordering::Relaxed);
        if self.seat.known.load(Ordering::Relaxed) {
            let mut seats = self.guests.lock();
            if self.seat.known.swap(false, Ordering::Relaxed) && seats.taken.contains_key(&self.number) {
                seats.known -= 1;
                if seats.taken.len() - seats.known > self.guests.room.strangers {
                    seats.dismiss(|seat| !seat.known.load(Ordering::Relaxed));
                }
            }
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.seat.last.store(self.0.guests.now(), Ordering::Relaxed);
        self.0.seat.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut seats = self.guests.lock();
        if seats.taken.remove(&self.number).is_some() {
            seats.known -= usize::from(self.seat.known.load(Ordering::Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_make_room_and_take_none_from_others() {
        let guests = Guests::new(Room::MOST);
        let mut known: Vec<_> = (0..Room::MOST.known)
            .map(|_| {
                let guest = guests.welcome();
                (guest.admitted().unwrap(), guest)
            })
            .collect();
        let strangers: Vec<_> = (0..Room::MOST.strangers * 3).map(|_| guests.welcome()).collect();
        let gone = strangers.iter().filter(|guest| guest.seat.leave.is_cancelled()).count();
        assert_eq!(gone, Room::MOST.strangers * 2);
        assert!(known.iter().all(|(_, guest)| !guest.seat.leave.is_cancelled()));
        // All of the others are at work: one more is told so, and stays a stranger.
        let late = guests.welcome();
        assert!(late.admitted().is_none());
        let (busy, idle) = known.remove(0);
        drop(busy);
        assert!(late.admitted().is_some());
        assert!(idle.seat.leave.is_cancelled(), "the one that was idle made room");
        drop((strangers, late, idle, known));
        assert!(guests.lock().taken.is_empty() && guests.lock().known == 0, "nobody is remembered who has gone");
    }

    #[test]
    fn whoever_shows_nothing_any_more_is_a_stranger_again() {
        let guests = Guests::new(Room::MOST);
        let guest = guests.welcome();
        drop(guest.admitted());
        assert_eq!(guests.lock().known, 1);
        guest.is_a_stranger();
        guest.is_a_stranger();
        assert_eq!(guests.lock().known, 0);
        let _others: Vec<_> = (0..Room::MOST.strangers).map(|_| guests.welcome()).collect();
        assert!(guest.seat.leave.is_cancelled());
    }

    #[test]
    fn connections_leave_files_for_the_daemon_itself() {
        assert_eq!(Room::within(None), Room::MOST);
        assert_eq!(Room::within(Some(8192)), Room::MOST);
        assert_eq!(Room::within(Some(64)), Room { strangers: 16, known: 32 });
        assert_eq!(Room::within(Some(0)), Room { strangers: 1, known: 1 });
    }
}
