//! gRPC over HTTP/2 on one thread: connections, flow control, framing of messages.
//!
//! The thread knows no method and no message: whoever owns the [`Server`] takes [`News`] and gives
//! answers, from any thread. A request that is no stream comes out whole, as one piece of news. Where
//! calls have to be signed, nothing is kept of a call that no account has signed: its owner hears of it
//! by its headers, and refuses it or has it read.
//!
//! **Invariant.** Each call of [`News::Call`] ends once: by [`Server::finish`], or by [`News::Gone`] when
//! nobody waits for its answer any more. After that its number means nothing and is not used again.
//!
//! **Bounds.** Connections, calls of a connection, bytes of headers, bytes of a message, bytes of all
//! requests that are not answered, and bytes of answers that a connection has not read are limited;
//! so are the times for a preface, for a request, for a blocked answer and for the answer to a ping,
//! and how often a client may reset calls. What HTTP/2 itself lets a peer do (floods of settings, of
//! continuations, of resets before a call is accepted) is limited by the `h2` library.

mod acks;
mod asked;
mod authority;
mod balancer;
mod call;
mod connection;
mod door;
mod fields;
pub mod forward;
mod head;
mod messages;
mod orders;
mod sends;
pub mod shown;
mod signature;

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::TcpListener;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{watch, Notify};

use crate::notifier::Notifier;
use crate::store::health::hold;
use crate::tls::ServerTls;

use door::places::Places;
use orders::{Order, Orders};

pub use acks::SystemNames;
pub use balancer::Header as BalancerHeader;
pub use door::Door;
pub use head::Head;
pub use sends::{queue_of_group, SendRules, Sends};
pub use signature::Secrets;

/// Counts of accounts without calls go when there are as many.
const ACCOUNTS_KEPT: usize = 1024;

/// What is allowed. Sizes are bytes.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at a time.
    pub connections: usize,
    /// Those of one address; of a balancer's, those of each client that it speaks for.
    pub address_connections: usize,
    /// Calls of a connection at a time.
    pub calls: u32,
    /// Headers of a request.
    pub header_bytes: u32,
    /// One message of a client.
    pub message_bytes: usize,
    /// All requests that are not answered.
    pub inbound_bytes: usize,
    /// Those of one connection; a request that is alone there may be longer.
    pub connection_inbound_bytes: usize,
    /// Those that one account has signed, over all connections; a request that is alone may be longer.
    pub account_inbound_bytes: usize,
    /// Answers that a connection has not read; one with more is closed.
    pub outbound_bytes: usize,
    /// Calls that a client may reset in ten seconds.
    pub resets: u32,
    /// A connection without calls is closed after it.
    pub idle: Duration,
    /// For a preface, a whole request, progress of an answer, the answer to a ping.
    pub patience: Duration,
}

/// What happened.
#[derive(Debug)]
pub enum News {
    /// A call has begun. It has no message yet if the method streams, or if no account has signed it:
    /// then nothing of it is read before [`Server::admit`].
    Call {
        /// Number of the call.
        call: u64,
        /// Number of its connection.
        connection: u64,
        /// How it began.
        head: Box<Head>,
        /// The request.
        message: Option<Bytes>,
    },
    /// A message of a call that had none when it began.
    Message(u64, Bytes),
    /// The client sends no further messages.
    Ended(u64),
    /// Nobody waits for the answer.
    Gone(u64),
    /// A connection that was waited for has read most of its answers.
    Drained(u64),
    /// A connection has ended, and all of its calls.
    Closed(u64),
    /// A connection was closed as it began: `ip:port` of the peer, and why.
    Refused(String, String),
}

impl News {
    /// The call that begins with its only message.
    fn unary(&self) -> Option<u64> {
        match self {
            Self::Call {
                call,
                message: Some(_),
                ..
            } => Some(*call),
            _ => None,
        }
    }
}

/// A connection as its calls see it.
struct Link {
    key: u64,
    unsent: AtomicUsize,
    /// Bytes of requests that are not answered.
    inbound: AtomicUsize,
    waited_for: AtomicBool,
    calls: AtomicUsize,
    resets: AtomicUsize,
    aborted: Notify,
}

struct Handle {
    orders: Arc<Orders>,
    link: Arc<Link>,
}

struct Shared {
    limits: Limits,
    streaming: HashSet<String>,
    door: Mutex<Door>,
    /// None: nobody has to sign.
    secrets: Mutex<Option<Arc<Secrets>>>,
    news: Mutex<Vec<News>>,
    has_news: Notify,
    notifier: Notifier,
    calls: Mutex<HashMap<u64, Handle>>,
    /// Answers that the thread has not taken: it takes all there are at once, so that what is answered
    /// together is written together.
    answers: Mutex<Vec<(u64, Bytes)>>,
    has_answers: Notify,
    links: Mutex<HashMap<u64, Arc<Link>>>,
    /// Connections by their clients' addresses.
    places: Places,
    numbers: AtomicU64,
    inbound: AtomicUsize,
    /// By access key, the bytes of requests that are not answered.
    accounts: Mutex<HashMap<String, Arc<AtomicUsize>>>,
}

impl Shared {
    fn tell(&self, news: News) {
        let mut waiting = hold(&self.news);
        let is_first = waiting.is_empty();
        waiting.push(news);
        drop(waiting);
        if is_first {
            self.has_news.notify_one();
        }
    }

    /// Wakes the owner when there is news, for as long as the thread runs: all tasks that can run do so
    /// before, so that what was read together is taken together.
    async fn announce(self: Arc<Self>) {
        loop {
            self.has_news.notified().await;
            self.notifier.notify();
        }
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Gives an order to a call.
    fn put(&self, handle: &Handle, order: Order) {
        if let Order::Message(data) | Order::Answer(data) = &order {
            let before = handle.link.unsent.fetch_add(data.len(), Ordering::SeqCst);
            // One answer may be larger than the limit, but it is the only one then.
            if before > self.limits.outbound_bytes {
                handle.link.aborted.notify_one();
            }
        }
        handle.orders.put(order);
    }

    /// Brings answers to their calls, for as long as the thread runs: the tasks of all calls run before
    /// those of their connections, each of which then has one write for all of its answers.
    async fn distribute(self: Arc<Self>) {
        loop {
            self.has_answers.notified().await;
            let answers = std::mem::take(&mut *hold(&self.answers));
            let calls = hold(&self.calls);
            for (call, data) in answers {
                if let Some(handle) = calls.get(&call) {
                    self.put(handle, Order::Answer(data));
                }
            }
        }
    }

    /// Tells whether a connection has too much to read; then it is waited for.
    fn is_full(&self, link: &Link) -> bool {
        let full = || link.unsent.load(Ordering::SeqCst) > self.limits.outbound_bytes / 4;
        if !full() {
            return false;
        }
        link.waited_for.store(true, Ordering::SeqCst);
        // Either this sees that it was drained meanwhile, or the thread sees that it is waited for.
        full() || !link.waited_for.swap(false, Ordering::SeqCst)
    }

    /// The count of an account, shared by its calls.
    fn account(&self, key: &str) -> Arc<AtomicUsize> {
        let mut accounts = hold(&self.accounts);
        if let Some(count) = accounts.get(key) {
            return Arc::clone(count);
        }
        if accounts.len() >= ACCOUNTS_KEPT {
            accounts.retain(|_, count| Arc::strong_count(count) > 1);
        }
        let count = Arc::<AtomicUsize>::default();
        accounts.insert(key.to_owned(), Arc::clone(&count));
        count
    }

    /// Notes that bytes of a connection were handed to HTTP/2 or will never be.
    fn sent(&self, link: &Link, size: usize) {
        let left = link.unsent.fetch_sub(size, Ordering::SeqCst) - size;
        if left <= self.limits.outbound_bytes / 4 && link.waited_for.swap(false, Ordering::SeqCst) {
            self.tell(News::Drained(link.key));
        }
    }
}

/// How far a server has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Serving,
    /// No connection is accepted, and clients were told to make their next calls elsewhere.
    Leaving,
    Ending,
}

/// A running thread and its connections.
pub struct Server {
    shared: Arc<Shared>,
    phase: watch::Sender<Phase>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Server {
    /// Serves a listening socket; `streaming` names the paths whose requests are streams.
    pub fn start(
        listener: TcpListener,
        limits: Limits,
        streaming: HashSet<String>,
        door: Door,
        secrets: Option<Secrets>,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let shared = Arc::new(Shared {
            limits,
            streaming,
            door: Mutex::new(door),
            secrets: Mutex::new(secrets.map(Arc::new)),
            news: Mutex::default(),
            has_news: Notify::new(),
            notifier: Notifier::new()?,
            calls: Mutex::default(),
            answers: Mutex::default(),
            has_answers: Notify::new(),
            links: Mutex::default(),
            places: Places::default(),
            numbers: AtomicU64::new(1),
            inbound: AtomicUsize::new(0),
            accounts: Mutex::default(),
        });
        let (phase, followed) = watch::channel(Phase::Serving);
        let mine = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("grpc".to_owned())
            .spawn(move || {
                runtime.block_on(connection::accept(Arc::clone(&mine), listener, followed));
                drop(runtime);
                mine.notifier.notify();
                // Nobody is left who could carry an order out.
                hold(&mine.calls).clear();
            })?;
        Ok(Self {
            shared,
            phase,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// The descriptor that is readable while there is news.
    pub fn descriptor(&self) -> RawFd {
        self.shared.notifier.fd()
    }

    /// Takes all news.
    pub fn take(&self) -> Vec<News> {
        self.shared.notifier.clear();
        std::mem::take(&mut *hold(&self.shared.news))
    }

    /// Has connections that are accepted from now on use this certificate.
    pub fn set_tls(&self, tls: ServerTls) {
        hold(&self.shared.door).tls = Some(tls);
    }

    /// Says anew by which secrets calls may be signed; None: nobody has to sign.
    pub fn set_secrets(&self, secrets: Option<Secrets>) {
        *hold(&self.shared.secrets) = secrets.map(Arc::new);
    }

    /// Reads what a call has to say that no account has signed: messages of so many bytes. False when
    /// the call has ended.
    pub fn admit(&self, call: u64, most: usize) -> bool {
        self.order(call, Some(Order::Admit(most)))
    }

    /// Sends a message of an answer; false when the call has ended.
    pub fn send(&self, call: u64, message: &[u8]) -> bool {
        self.order(call, messages::framed(message).map(Order::Message))
    }

    /// Sends messages of an answer that are framed already; false when the call has ended.
    pub fn send_framed(&self, call: u64, messages: &[u8]) -> bool {
        let data = Bytes::copy_from_slice(messages);
        self.order(call, Some(Order::Message(data)))
    }

    /// Ends a call; false when it has ended.
    pub fn finish(&self, call: u64, status: u8, text: &str) -> bool {
        self.order(call, Some(Order::Finish(status, text.to_owned())))
    }

    /// Tells whether the connection of a call has too much to read; then [`News::Drained`] follows.
    pub fn is_slow(&self, call: u64) -> bool {
        let calls = hold(&self.shared.calls);
        let handle = calls.get(&call);
        handle.is_some_and(|handle| self.shared.is_full(&handle.link))
    }

    /// Those of some calls whose connections have too much to read; then [`News::Drained`] follows.
    pub fn slow(&self, some: impl IntoIterator<Item = u64>) -> HashSet<u64> {
        let calls = hold(&self.shared.calls);
        let is_slow = |call: &u64| {
            let handle = calls.get(call);
            handle.is_some_and(|handle| self.shared.is_full(&handle.link))
        };
        some.into_iter().filter(is_slow).collect()
    }

    /// Answers calls with a message each, and ends them; calls that have ended are passed over.
    pub fn answer(&self, answers: Vec<(u64, Vec<u8>)>) {
        if answers.is_empty() {
            return;
        }
        let framed = answers.into_iter().map(|(call, message)| {
            // No answer is longer than gRPC can say.
            (call, messages::framed(&message).unwrap_or_default())
        });
        let mut waiting = hold(&self.shared.answers);
        let is_due = waiting.is_empty();
        waiting.extend(framed);
        drop(waiting);
        if is_due {
            self.shared.has_answers.notify_one();
        }
    }

    /// Ends a connection at once.
    pub fn close(&self, connection: u64) {
        if let Some(link) = hold(&self.shared.links).get(&connection) {
            link.aborted.notify_one();
        }
    }

    /// Connections and calls there are.
    pub fn counts(&self) -> (usize, usize) {
        (
            hold(&self.shared.links).len(),
            hold(&self.shared.calls).len(),
        )
    }

    /// Accepts no further connections and tells clients to go elsewhere (GOAWAY). Calls under way go on, and so
    /// do those that a client began before it heard of it; the others it makes elsewhere by itself.
    pub fn leave(&self) {
        self.enter(Phase::Leaving);
    }

    /// Leaves, waits so long for calls under way, and ends the thread.
    pub fn stop(&self) {
        self.enter(Phase::Ending);
        if let Some(thread) = hold(&self.thread).take() {
            let _ = thread.join();
        }
    }

    fn enter(&self, phase: Phase) {
        self.phase
            .send_if_modified(|now| std::mem::replace(now, phase.max(*now)) < phase);
    }

    fn order(&self, call: u64, order: Option<Order>) -> bool {
        let calls = hold(&self.shared.calls);
        let (Some(handle), Some(order)) = (calls.get(&call), order) else {
            return false;
        };
        self.shared.put(handle, order);
        true
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}
