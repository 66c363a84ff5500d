//! The admission table: what the fast path may answer, as plain data (architecture §3a).
//!
//! Nothing here is a rule. Whoever owns the rules writes a row when all of them allow what the row
//! says, and takes it away in the same step that changes one of them. What has no row goes to the
//! handlers, which know everything.
//!
//! Several ingests share it, and how much waits in all of them, since bounds hold for all together.
//! It is read for as long as the frames of one read are judged and their answers made. Whoever
//! changes it therefore knows, once the change is written, that no frame is judged by the old row
//! any more. A reader may take the log's lock while it reads; whoever writes the table holds neither
//! that lock nor an ingest, so that no two of them can wait for one another.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::accounts::Accounts;
use super::connection::Peer;
use super::pop::Popping;
use super::send::Fixed;
use crate::codec::command::{Encoding, Header};
use crate::filter::Filter;

/// What may be done with one topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopicRow {
    /// Sends to queues below this number are taken; 0 takes none.
    pub send_queues: i32,
    /// Pulls from queues below this number are answered; 0 answers none.
    pub read_queues: i32,
    /// Acknowledgements of popped messages of queues below this number are taken.
    pub settle_queues: i32,
    /// Bits to set in the sysFlag of every message stored.
    pub add_sys_flag: i32,
    /// What pull answers say about the topic.
    pub sys_flag: i32,
    /// Queues that other fronts spread sends over; 0 leaves them to those fronts.
    pub front_queues: i32,
    /// Which types of messages other fronts may send.
    pub takes: Takes,
}

/// Types of plain messages that a topic takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Takes {
    /// Neither of the two.
    #[default]
    Neither,
    /// NORMAL.
    Normal,
    /// FIFO.
    Fifo,
    /// MIXED.
    Both,
}

impl Takes {
    /// Reads the attribute `message.type`.
    pub fn from_attribute(value: &str) -> Self {
        match value {
            "NORMAL" => Self::Normal,
            "FIFO" => Self::Fifo,
            "MIXED" => Self::Both,
            _ => Self::Neither,
        }
    }

    /// Whether it takes messages without a group.
    pub fn normal(self) -> bool {
        matches!(self, Self::Normal | Self::Both)
    }

    /// Whether it takes messages of a group.
    pub fn fifo(self) -> bool {
        matches!(self, Self::Fifo | Self::Both)
    }
}

/// Which messages a reader wants.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Tag codes, ascending; `None` wants every message.
    pub codes: Option<Vec<i64>>,
    /// What is asked of the properties; `None` wants every message.
    pub filter: Option<Arc<Filter>>,
}

impl Choice {
    /// Every message.
    pub const EVERY: Self = Self {
        codes: None,
        filter: None,
    };
}

/// What a group's registered members subscribed to in one topic.
#[derive(Clone, Debug)]
pub struct Subscription {
    /// A pull that knows a later version is not answered here.
    pub version: i64,
    /// Which messages they want.
    pub choice: Choice,
}

/// What expressions mean that come with pulls, by kind (`TAG`, `SQL92`) and text.
pub type Expressions = HashMap<Box<str>, HashMap<Box<str>, Choice>>;

/// A group that may pull.
#[derive(Clone, Debug, Default)]
pub struct GroupRow {
    /// What pull answers say about the group.
    pub sys_flag: i32,
    /// By topic.
    pub subscriptions: HashMap<String, Subscription>,
}

/// What an answer says about copies on slaves, unless its message says WAIT=false.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Slaves {
    /// Nothing.
    #[default]
    None,
    /// It waits for the copy.
    Wait,
    /// A copy is wanted and nobody is there to make one: it says so.
    Lacking,
}

/// What holds for every pull.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulling {
    /// Whether lite pulls are answered as well.
    pub lite: bool,
    /// Pulls that may wait for a message at a time, everywhere together.
    pub holds_max: usize,
    /// How long every one of them waits, in milliseconds; `None` lets each say.
    pub hold_ms: Option<i64>,
    /// How long it may say at most.
    pub hold_ms_max: i64,
}

/// Where delayed messages wait: those of level `n` in queue `n - 1` of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delays {
    /// That topic.
    pub topic: String,
    /// The highest level; what asks for another is not taken.
    pub highest: i32,
}

/// What answers have to do with flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// Nothing.
    NotAwaited,
    /// They wait for one by the store's thread.
    ByThread,
    /// As long as no other connection has answers waiting, whoever feeds one flushes for it: see
    /// [`super::FeedResult::flush`].
    Here,
}

/// What holds for every message and answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Whether sends are taken at all.
    pub sends: bool,
    /// Whether pulls are answered at all.
    pub pulls: bool,
    /// Whether an answer waits until the message is durable, unless the message says WAIT=false.
    pub flush: Flush,
    /// How long it waits, in milliseconds.
    pub flush_timeout_ms: i64,
    /// What it says about copies on slaves.
    pub slaves: Slaves,
    /// How long it waits for one, in milliseconds.
    pub copy_timeout_ms: i64,
    /// Longest body in bytes.
    pub body_max: usize,
    /// Most messages of a batch; one of more is for the handlers, who refuse it.
    pub batch_max: usize,
    /// This broker's address as records keep it.
    pub store_host: Vec<u8>,
    /// Properties that every message gets, in this order; a message that has one is not taken.
    pub stamps: Vec<(String, String)>,
    /// Names of properties with which a message is not taken, beside those that never are.
    pub special: Vec<String>,
    /// Fields at the end of every answer to a send.
    pub send_ext: Vec<(String, String)>,
    /// Header encoding of answers.
    pub encoding: Encoding,
    /// Version that answers claim.
    pub version: i32,
    /// What all answers to sends have in common, if that is known.
    pub fixed: Option<Fixed>,
    /// Answers that may wait for a flush at a time.
    pub parked_max: usize,
    /// What a send beyond that is told.
    pub busy_remark: String,
    /// How pulls are answered, if they are.
    pub pulling: Pulling,
    /// What becomes of delayed messages; `None` leaves them to the handlers.
    pub delays: Option<Delays>,
    /// The topic in whose queue 0 half messages wait; `None` leaves them to the handlers.
    pub halves: Option<String>,
    /// How popped messages are settled; `None` leaves that to the handlers.
    pub pop: Option<Popping>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            sends: false,
            pulls: false,
            flush: Flush::NotAwaited,
            flush_timeout_ms: 5000,
            slaves: Slaves::None,
            copy_timeout_ms: 3000,
            body_max: 0,
            batch_max: 0,
            store_host: Vec::new(),
            stamps: Vec::new(),
            special: Vec::new(),
            send_ext: Vec::new(),
            encoding: Encoding::Json,
            version: 0,
            fixed: None,
            parked_max: 100_000,
            busy_remark: String::new(),
            pulling: Pulling::default(),
            delays: None,
            halves: None,
            pop: None,
        }
    }
}

/// The table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// What holds for everything.
    pub state: State,
    /// By topic.
    pub topics: HashMap<Box<str>, TopicRow>,
    /// By group.
    pub groups: HashMap<Box<str>, GroupRow>,
    /// Expressions that pulls may bring; those that take every message need no row.
    pub expressions: Expressions,
    /// Who may do it; `None` lets everybody.
    pub accounts: Option<Accounts>,
    /// How often that was set: pulls that were held before are judged anew.
    pub accounts_version: u64,
    /// Codes of requests that nothing of their connection may overtake when they are not admitted.
    pub barrier: HashSet<i32>,
}

impl Table {
    /// Sets who may do it.
    pub fn set_accounts(&mut self, accounts: Accounts) {
        self.accounts = Some(accounts);
        self.accounts_version += 1;
    }

    /// Whether anything at all may be answered.
    pub fn is_on(&self) -> bool {
        let state = &self.state;
        (state.sends || state.pulls || state.pop.is_some()) && !self.topics.is_empty()
    }

    /// Whether sends are taken, of anybody, and answered without waiting for a flush or a slave.
    pub fn answers_at_once(&self) -> bool {
        let state = &self.state;
        let waits = state.flush != Flush::NotAwaited || state.slaves != Slaves::None;
        state.sends && !waits && self.accounts.is_none()
    }

    /// Whether a peer needs no account: true for everybody where there are none.
    pub(super) fn trusts(&self, peer: Peer) -> bool {
        self.accounts
            .as_ref()
            .is_none_or(|accounts| accounts.trusts(peer.host()))
    }

    /// Whether accounts allow a frame to be answered here.
    pub(super) fn permits(
        &self,
        header: &Header<'_>,
        body: &[u8],
        trusted: bool,
        peer: Peer,
    ) -> bool {
        trusted
            || self
                .accounts
                .as_ref()
                .is_some_and(|accounts| accounts.permit(header, body, peer.host()))
    }
}

/// How much of an ingest waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    /// Pulls that wait for a message.
    pub(super) held: usize,
    /// Answers that wait for a flush or a copy.
    pub(super) parked: usize,
}

/// What is common.
#[derive(Debug, Default)]
pub struct Shared {
    table: RwLock<Table>,
    held: AtomicUsize,
    parked: AtomicUsize,
    /// Pulls that the handlers hold.
    beside: AtomicUsize,
}

impl Shared {
    /// The table, to judge by.
    pub fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table, to be changed; waits for those who judge by it.
    pub fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers that wait in all ingests.
    pub fn parked(&self) -> usize {
        self.parked.load(Ordering::SeqCst)
    }

    /// Pulls that wait in all ingests.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    pub(super) fn changed(&self, before: Sums, now: Sums) {
        moved(&self.held, before.held, now.held);
        moved(&self.parked, before.parked, now.parked);
    }

    pub(super) fn set_beside(&self, count: usize) {
        self.beside.store(count, Ordering::SeqCst);
    }

    /// Whether any pull waits for a message, wherever.
    pub(super) fn is_awaited(&self) -> bool {
        self.held() + self.beside.load(Ordering::SeqCst) > 0
    }

    /// Pulls that wait elsewhere than in the ingest with these sums.
    pub(super) fn held_beside(&self, own: Sums) -> usize {
        self.held().saturating_sub(own.held) + self.beside.load(Ordering::SeqCst)
    }

    /// Answers that wait elsewhere.
    pub(super) fn parked_beside(&self, own: Sums) -> usize {
        self.parked().saturating_sub(own.parked)
    }
}

fn moved(sum: &AtomicUsize, before: usize, now: usize) {
    // Wraps in both steps alike.
    sum.fetch_add(now.wrapping_sub(before), Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::{Accounts, Header, Peer, Shared, State, Sums, Table, TopicRow};
    use crate::ingest::accounts::White;

    #[test]
    fn a_table_is_on_with_a_topic_and_something_to_answer() {
        for (sends, pulls, topics, on) in [
            (false, false, 0, false),
            (false, false, 1, false),
            (true, false, 0, false),
            (true, false, 1, true),
            (false, true, 0, false),
            (false, true, 1, true),
            (true, true, 1, true),
        ] {
            let mut table = Table {
                state: State {
                    sends,
                    pulls,
                    ..State::default()
                },
                ..Table::default()
            };
            if topics > 0 {
                table.topics.insert("T".into(), TopicRow::default());
            }
            assert_eq!(table.is_on(), on, "{sends} {pulls} {topics}");
        }
    }

    #[test]
    fn what_waits_is_summed_over_all_ingests_and_seen_from_one() {
        let shared = Shared::default();
        assert!(!shared.is_awaited());
        let (none, one) = (Sums::default(), Sums { held: 1, parked: 4 });
        shared.changed(none, one);
        assert!(shared.is_awaited());
        shared.changed(none, Sums { held: 2, parked: 0 });
        assert!(shared.is_awaited());
        assert_eq!((shared.held(), shared.parked()), (3, 4));
        shared.set_beside(5);
        assert_eq!((shared.held_beside(one), shared.parked_beside(one)), (7, 0));
        assert_eq!(shared.parked_beside(none), 4);
        shared.changed(Sums { held: 2, parked: 0 }, none);
        shared.changed(one, none);
        assert!(shared.is_awaited(), "elsewhere still");
        shared.set_beside(0);
        assert!(!shared.is_awaited());
    }

    #[test]
    fn without_accounts_everybody_is_trusted_and_with_them_those_on_the_list() {
        let peer = Peer::default();
        let header = Header::empty();
        let mut table = Table::default();
        assert!(table.trusts(peer));
        assert!(table.permits(&header, b"", true, peer));
        assert!(!table.permits(&header, b"", false, peer));
        let everyone = White {
            everyone: true,
            ..White::default()
        };
        for (list, trusted) in [(vec![everyone], true), (vec![White::default()], false)] {
            table.accounts = Some(Accounts::new(list));
            assert_eq!(table.trusts(peer), trusted);
            assert!(table.permits(&header, b"", true, peer));
            assert!(!table.permits(&header, b"", false, peer));
        }
    }
}
