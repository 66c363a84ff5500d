//! How much connections may keep waiting: one of them, and all together.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::ingest::Standing;

/// Bytes of frames that the loop may have of one connection before it is read no further.
const BACKLOG_MAX: usize = 256 << 10;
/// The part of the common bound that such frames may take.
const BACKLOG_PART: usize = 8;
/// Bytes read at a time while they take more.
const CROWDED_READ: usize = 4 << 10;

/// Bounds in bytes for what comes from peers that have proven no account.
#[derive(Clone, Copy, Debug)]
pub struct Strangers {
    /// Of one connection, while its frame names no account.
    pub nameless_max: usize,
    /// Of all such connections.
    pub nameless_total: usize,
    /// Of all connections whose frame names an account that is not proven.
    pub named_total: usize,
}

impl Strangers {
    /// Bounds that hold nobody back.
    pub const ANY: Self = Self {
        nameless_max: usize::MAX,
        nameless_total: usize::MAX,
        named_total: usize::MAX,
    };
}

/// Bytes that are kept for a connection, and for whom.
pub(super) type Charge = (Standing, usize);

/// Bounds in bytes, and how much of the common one is used.
#[derive(Debug)]
pub struct Limits {
    /// Longest frame.
    pub frame_size_max: usize,
    /// Start of a frame and unwritten output of one connection.
    pub connection_max: usize,
    /// The same of all connections.
    pub total_max: usize,
    /// Unwritten output above which a connection is not read.
    pub high_water: usize,
    low_water: usize,
    strangers: Strangers,
    used: AtomicUsize,
    /// What the loop keeps for connections of its own, as last told: the common bound is for both.
    beside: AtomicUsize,
    nameless: AtomicUsize,
    named: AtomicUsize,
    /// Bytes of frames that the loop has and has not begun to work on.
    backlog: AtomicUsize,
    /// How far the loop's clock is ahead of the system's, in milliseconds.
    ahead_ms: AtomicI64,
    /// Whether the loop's clock moves by what is told alone, to this time.
    stands_at: AtomicI64,
}

/// The loop's clock moves by itself.
const MOVES: i64 = i64::MIN;

impl Limits {
    /// Nothing is used yet. `water` are the bytes of unwritten output above which a connection is
    /// not read, and from which on it goes on.
    pub fn new(
        frame_size_max: usize,
        connection_max: usize,
        total_max: usize,
        water: (usize, usize),
        strangers: Strangers,
    ) -> Self {
        Self {
            frame_size_max,
            connection_max,
            total_max,
            high_water: water.0,
            low_water: water.1,
            strangers,
            used: AtomicUsize::new(0),
            beside: AtomicUsize::new(0),
            nameless: AtomicUsize::new(0),
            named: AtomicUsize::new(0),
            backlog: AtomicUsize::new(0),
            ahead_ms: AtomicI64::new(0),
            stands_at: AtomicI64::new(MOVES),
        }
    }

    /// Bytes kept for all connections.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Counts bytes that the loop keeps for connections of its own.
    pub(super) fn set_beside(&self, bytes: usize) {
        self.beside.store(bytes, Ordering::Relaxed);
    }

    /// Unix milliseconds, by the loop's clock as last told.
    pub(super) fn now_ms(&self) -> i64 {
        match self.stands_at.load(Ordering::Relaxed) {
            MOVES => system_ms().saturating_add(self.ahead_ms.load(Ordering::Relaxed)),
            stands_at => stands_at,
        }
    }

    /// Whether the clock moves only when that is told.
    pub(super) fn stands(&self) -> bool {
        self.stands_at.load(Ordering::Relaxed) != MOVES
    }

    /// Goes by the loop's clock: what waits here and there is measured by one.
    /// `stands` is for a clock that moves in steps, each of which is told, as one of tests does.
    pub(super) fn set_now(&self, now_ms: i64, stands: bool) {
        let stands_at = if stands { now_ms } else { MOVES };
        self.stands_at.store(stands_at, Ordering::Relaxed);
        let ahead_ms = now_ms.saturating_sub(system_ms());
        self.ahead_ms.store(ahead_ms, Ordering::Relaxed);
    }

    /// Notes that the loop has so many bytes of frames more to begin with.
    pub(super) fn add_backlog(&self, bytes: usize) {
        self.backlog.fetch_add(bytes, Ordering::SeqCst);
    }

    /// Notes that it has begun with them, or that their connection has gone.
    pub(super) fn drop_backlog(&self, bytes: usize) {
        self.backlog.fetch_sub(bytes, Ordering::SeqCst);
    }

    /// Bytes of frames of one connection above which it is not read until the loop has begun with
    /// all of them: what one read may bring, and nothing while all connections have too much.
    pub(super) fn backlog_max(&self) -> usize {
        if self.is_crowded() {
            0
        } else {
            BACKLOG_MAX
        }
    }

    /// Bytes to read at a time: few while all connections together have too many.
    pub(super) fn read_size(&self) -> usize {
        if self.is_crowded() {
            CROWDED_READ
        } else {
            usize::MAX
        }
    }

    fn is_crowded(&self) -> bool {
        self.backlog.load(Ordering::SeqCst) > self.total_max / BACKLOG_PART
    }

    /// Output at which a connection that was stopped for it goes on.
    pub(super) fn low_water(&self) -> usize {
        self.low_water
    }

    /// Enters what is kept for a connection now, in place of what was; false when that is too much.
    ///
    /// Peers that have proven no account have a share of their own beside the common bound.
    pub(super) fn charge(&self, before: Charge, now: Charge) -> bool {
        let (standing, size) = now;
        let (of_one, of_all) = match standing {
            Standing::Proven => (usize::MAX, usize::MAX),
            Standing::Named => (usize::MAX, self.strangers.named_total),
            Standing::Nameless => (self.strangers.nameless_max, self.strangers.nameless_total),
        };
        // Wraps in both steps alike.
        if let Some(class) = self.class(before.0) {
            class.fetch_sub(before.1, Ordering::Relaxed);
        }
        let mut of_class = 0;
        if let Some(class) = self.class(standing) {
            of_class = class.fetch_add(size, Ordering::Relaxed).wrapping_add(size);
        }
        let change = size.wrapping_sub(before.1);
        let used = self.used.fetch_add(change, Ordering::Relaxed);
        let beside = self.beside.load(Ordering::Relaxed);
        let used = used.wrapping_add(change).saturating_add(beside);
        let fits = size <= self.connection_max.min(of_one) && used <= self.total_max;
        size <= before.1 || (fits && of_class <= of_all)
    }

    /// What peers of a standing have together; `None` for those that share the common bound alone.
    fn class(&self, standing: Standing) -> Option<&AtomicUsize> {
        match standing {
            Standing::Proven => None,
            Standing::Named => Some(&self.named),
            Standing::Nameless => Some(&self.nameless),
        }
    }
}

fn system_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::{Limits, Strangers};
    use crate::ingest::Standing::{Named, Nameless, Proven};

    #[test]
    fn clock_that_stands_moves_when_that_is_told_alone() {
        let limits = Limits::new(100, 50, 80, (10, 2), Strangers::ANY);
        limits.set_now(5, true);
        std::thread::sleep(std::time::Duration::from_millis(3));
        assert_eq!(limits.now_ms(), 5);
        limits.set_now(6, false);
        std::thread::sleep(std::time::Duration::from_millis(3));
        assert!(limits.now_ms() >= 9);
    }

    #[test]
    fn charge_above_a_bound_is_refused_and_counted() {
        let limits = Limits::new(100, 50, 80, (10, 2), Strangers::ANY);
        let charge = |before, now| limits.charge((Proven, before), (Proven, now));
        assert!(charge(0, 50));
        assert!(!charge(0, 51));
        assert_eq!(limits.used(), 101);
        assert!(!charge(0, 1), "together too much");
        assert!(charge(51, 0) && charge(1, 0) && charge(50, 0));
        assert_eq!(limits.used(), 0);
    }

    #[test]
    fn bytes_of_the_loop_count_towards_the_common_bound() {
        let limits = Limits::new(100, 50, 80, (10, 2), Strangers::ANY);
        limits.set_beside(40);
        assert!(limits.charge((Proven, 0), (Proven, 40)));
        assert!(!limits.charge((Proven, 40), (Proven, 41)));
        assert_eq!(limits.used(), 41, "what the loop keeps is the loop's");
        limits.set_beside(39);
        assert!(limits.charge((Proven, 40), (Proven, 40)));
        assert!(limits.charge((Proven, 0), (Proven, 0)));
    }

    #[test]
    fn backlog_of_all_connections_bounds_that_of_each() {
        let limits = Limits::new(100, 50, 8 << 20, (10, 2), Strangers::ANY);
        assert_eq!(limits.backlog_max(), super::BACKLOG_MAX);
        limits.add_backlog((1 << 20) + 1);
        assert_eq!(limits.backlog_max(), 0);
        assert_eq!(limits.read_size(), super::CROWDED_READ);
        limits.drop_backlog(1);
        assert_eq!(limits.backlog_max(), super::BACKLOG_MAX);
        assert_eq!(limits.read_size(), usize::MAX);
    }

    #[test]
    fn strangers_fill_their_shares_and_no_other() {
        let strangers = Strangers {
            nameless_max: 10,
            nameless_total: 20,
            named_total: 40,
        };
        let limits = Limits::new(100, 50, 100, (10, 2), strangers);
        let none = (Proven, 0);
        let steps = [
            (none, (Nameless, 10), true, "within all"),
            (none, (Nameless, 11), false, "one alone"),
            ((Nameless, 11), none, true, "gone"),
            (none, (Nameless, 10), true, "a second one"),
            (none, (Nameless, 1), false, "together"),
            ((Nameless, 1), (Named, 1), true, "it names an account"),
            ((Named, 1), (Named, 40), true, "as many as named ones have"),
            (none, (Named, 1), false, "one more than they have"),
            ((Named, 1), (Proven, 1), true, "it has proven it"),
            ((Proven, 1), (Proven, 40), true, "as many as all have"),
            (none, (Proven, 1), false, "the common bound is for all"),
            ((Proven, 1), none, true, "gone"),
            ((Proven, 40), none, true, "gone"),
            ((Named, 40), none, true, "gone"),
            ((Nameless, 10), none, true, "gone"),
            ((Nameless, 10), none, true, "gone"),
        ];
        for (before, now, fits, why) in steps {
            assert_eq!(limits.charge(before, now), fits, "{why}");
        }
        assert_eq!(limits.used(), 0);
        assert!(limits.charge(none, (Nameless, 10)) && limits.charge(none, (Nameless, 10)));
    }
}
