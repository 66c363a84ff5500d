//! A running connection as its owner sees it: what the thread has told, and how it is ended.

use super::feed::FeedConfig;
use super::Fault;
use crate::notifier::Notifier;
use crate::store::health::hold;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Its owner wanted it to.
    Stopped,
    /// The peer went; the text is the system's, empty when it closed in order.
    Lost(String),
    /// The peer broke the protocol, or has another log; the text goes on from "the peer".
    Fault(String),
    /// Our own store could not go on.
    Store(String),
}

impl From<Fault> for End {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault.0)
    }
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Lost(error.to_string())
    }
}

/// What the thread has told. Offsets are those of the log.
#[derive(Clone, Debug)]
pub struct View {
    /// What the peer has said before the start, until somebody has taken it.
    pub heard: Vec<u8>,
    /// Where the slave's log ends by its own word.
    pub acked: u64,
    /// Offset of the next byte to send, or to receive.
    pub position: u64,
    /// Bytes moved so far.
    pub moved: u64,
    /// When the peer was last heard.
    pub last_read: Instant,
    /// When something was last written to it.
    pub last_write: Instant,
    /// How the connection ended, once it has.
    pub end: Option<End>,
}

/// Where the copying starts, as the owner has decided.
#[derive(Clone, Debug, Default)]
pub struct Begin {
    /// Offset of the first byte that a slave gets; of no use to a slave's thread.
    pub position: u64,
    /// What was heard already and belongs to the copying: a slave's first report at least.
    pub heard: Vec<u8>,
}

/// What the owner wants of a connection that has not begun yet.
#[derive(Default)]
pub(super) struct Wanted {
    /// Bytes to write.
    pub(super) say: Vec<u8>,
    pub(super) begin: Option<Begin>,
    /// Whether the connection ends once all is written.
    pub(super) finish: bool,
}

struct State {
    view: View,
    wanted: Wanted,
    tuning: Option<FeedConfig>,
}

/// What owner and thread share.
pub(super) struct Shared {
    /// Rung for the owner.
    news: Notifier,
    /// Rung for the thread.
    pub(super) wake: Arc<Notifier>,
    stopping: AtomicBool,
    /// Whether the owner hears of each acknowledgement.
    loud: AtomicBool,
    /// Whether what this slave alone acknowledges is copied often enough: the core answers the sends
    /// that wait for it by itself. It is looked at behind the read of an acknowledgement. So what
    /// that releases was appended before the owner last changed this, if it did.
    counts: AtomicBool,
    state: Mutex<State>,
}

impl Shared {
    /// Whether the owner hears of each acknowledgement. To be asked behind the change of the view.
    pub(super) fn is_loud(&self) -> bool {
        self.loud.load(Ordering::SeqCst)
    }

    /// Whether an acknowledgement that was read already counts without the owner.
    pub(super) fn counts(&self) -> bool {
        self.counts.load(Ordering::SeqCst)
    }

    /// Makes the owner look.
    pub(super) fn notify(&self) {
        self.news.notify();
    }

    /// Fails when the owner has asked for the end.
    pub(super) fn go_on(&self) -> Result<(), End> {
        if self.stopping.load(Ordering::SeqCst) {
            return Err(End::Stopped);
        }
        Ok(())
    }

    /// What the owner has asked for since the last call.
    pub(super) fn wanted(&self) -> Wanted {
        std::mem::take(&mut hold(&self.state).wanted)
    }

    /// Takes what the peer has said: for the owner, or for the copying once it is to start.
    pub(super) fn hear(&self, data: &[u8]) {
        let mut state = hold(&self.state);
        state.view.last_read = Instant::now();
        if let Some(begin) = &mut state.wanted.begin {
            begin.heard.extend_from_slice(data);
            return;
        }
        state.view.heard.extend_from_slice(data);
        drop(state);
        self.news.notify();
    }

    /// Whether the owner has taken what was heard.
    pub(super) fn has_room(&self) -> bool {
        hold(&self.state).view.heard.is_empty()
    }

    /// What the owner has changed since the last call.
    pub(super) fn tuned(&self) -> Option<FeedConfig> {
        hold(&self.state).tuning.take()
    }

    /// Tells the owner; `loudly` makes it look.
    pub(super) fn tell(&self, loudly: bool, change: impl FnOnce(&mut View)) {
        change(&mut hold(&self.state).view);
        if loudly {
            self.news.notify();
        }
    }
}

/// Says how a thread ended, also when it panics.
struct Last(Arc<Shared>, End);

impl Drop for Last {
    fn drop(&mut self) {
        let end = std::mem::replace(&mut self.1, End::Stopped);
        self.0.tell(true, |view| view.end = Some(end));
    }
}

/// What the owner has of a connection.
enum Part {
    /// The thread may run; the descriptors are open.
    Runs(Arc<Shared>),
    /// It was waited for: its last words are left, and no descriptor.
    Ended(Box<View>),
}

/// The owner's handle. Dropping it ends the connection, without waiting for the thread.
///
/// [`Link::join`] closes the descriptors. From then on nothing is heard, and what is asked for is
/// passed over.
pub struct Link {
    part: Mutex<Part>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// A forked child has the handle, but not the thread.
    process: u32,
}

impl Link {
    /// Runs `work` in a thread; the socket must be closed when it returns.
    pub(super) fn spawn(
        name: &str,
        work: impl FnOnce(Arc<Shared>) -> End + Send + 'static,
    ) -> io::Result<Self> {
        let now = Instant::now();
        let view = View {
            heard: Vec::new(),
            acked: 0,
            position: 0,
            moved: 0,
            last_read: now,
            last_write: now,
            end: None,
        };
        let shared = Arc::new(Shared {
            news: Notifier::new()?,
            wake: Arc::new(Notifier::new()?),
            stopping: AtomicBool::new(false),
            loud: AtomicBool::new(false),
            counts: AtomicBool::new(false),
            state: Mutex::new(State {
                view,
                wanted: Wanted::default(),
                tuning: None,
            }),
        });
        let theirs = Arc::clone(&shared);
        let run = move || {
            let broken = End::Store("the thread of this connection has failed".to_owned());
            let mut last = Last(Arc::clone(&theirs), broken);
            last.1 = work(theirs);
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self {
            part: Mutex::new(Part::Runs(shared)),
            thread: Mutex::new(Some(thread)),
            process: std::process::id(),
        })
    }

    /// The descriptor that is readable while there is news; `None` once the thread was waited for.
    pub fn event_fd(&self) -> Option<RawFd> {
        self.runs().map(|shared| shared.news.fd())
    }

    /// Takes the news: what was heard comes once, and the thread listens on.
    pub fn take(&self) -> View {
        let shared = match &mut *hold(&self.part) {
            Part::Runs(shared) => Arc::clone(shared),
            Part::Ended(view) => {
                let heard = std::mem::take(&mut view.heard);
                let view = View::clone(view);
                return View { heard, ..view };
            }
        };
        shared.news.clear();
        let mut state = hold(&shared.state);
        let view = state.view.clone();
        if !view.heard.is_empty() {
            state.view.heard = Vec::new();
            shared.wake.notify();
        }
        view
    }

    /// What the thread has told so far.
    pub fn view(&self) -> View {
        match &*hold(&self.part) {
            Part::Runs(shared) => hold(&shared.state).view.clone(),
            Part::Ended(view) => View::clone(view),
        }
    }

    /// Says something to the peer, before the start.
    pub fn say(&self, data: &[u8]) {
        self.ask(|state| state.wanted.say.extend_from_slice(data));
    }

    /// Ends the connection, before the start, once what was said is written.
    pub fn finish(&self) {
        self.ask(|state| state.wanted.finish = true);
    }

    /// Starts the copying, behind what was said.
    ///
    /// What the owner has not taken yet follows what it hands over.
    pub fn begin(&self, mut begin: Begin) {
        self.ask(|state| {
            begin.heard.append(&mut state.view.heard);
            state.wanted.begin = Some(begin);
        });
    }

    /// Goes by other rules from now on. A slave's thread has use for the times alone.
    pub fn tune(&self, rules: FeedConfig) {
        self.ask(|state| state.tuning = Some(rules));
    }

    /// Says who hears of acknowledgements at once from now on: the owner, and the sends that wait in
    /// the core, which is right where this slave's copy is enough. The owner looks at the view behind
    /// that: what was acknowledged meanwhile may have been told to nobody.
    pub fn hear(&self, loud: bool, counts: bool) {
        if let Some(shared) = self.runs() {
            shared.loud.store(loud, Ordering::SeqCst);
            shared.counts.store(counts, Ordering::SeqCst);
        }
    }

    /// Asks for the end of the connection.
    pub fn stop(&self) {
        if let Some(shared) = self.runs() {
            shared.stopping.store(true, Ordering::SeqCst);
            shared.wake.notify();
        }
    }

    /// Waits until the thread has ended, and closes the descriptors.
    pub fn join(&self) {
        if self.process != std::process::id() {
            return;
        }
        let mut thread = hold(&self.thread);
        if let Some(thread) = thread.take() {
            // A panic in it has been shown by its own message.
            let _ = thread.join();
            let view = self.view();
            *hold(&self.part) = Part::Ended(Box::new(view));
        }
    }

    fn runs(&self) -> Option<Arc<Shared>> {
        match &*hold(&self.part) {
            Part::Runs(shared) => Some(Arc::clone(shared)),
            Part::Ended(_) => None,
        }
    }

    /// Changes what the thread is asked for, and wakes it.
    fn ask(&self, change: impl FnOnce(&mut State)) {
        if let Some(shared) = self.runs() {
            change(&mut hold(&shared.state));
            shared.wake.notify();
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            self.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Begin, End, FeedConfig, Link, Shared, Wanted};
    use std::sync::mpsc;
    use std::sync::{Arc, Weak};

    /// A link whose thread hands itself over to the test.
    fn linked() -> (Link, Arc<Shared>, mpsc::Sender<()>) {
        let (out, shared) = mpsc::channel();
        let (go, gone) = mpsc::channel::<()>();
        let link = Link::spawn("ha-test", move |shared| {
            out.send(shared).unwrap();
            let _ = gone.recv();
            End::Stopped
        })
        .unwrap();
        (link, shared.recv().unwrap(), go)
    }

    #[test]
    fn what_is_heard_after_the_start_belongs_to_the_copying() {
        let (link, shared, _go) = linked();
        shared.hear(b"report");
        assert!(!shared.has_room());
        assert_eq!(link.take().heard, b"report");
        assert!(shared.has_room());
        assert!(link.take().heard.is_empty(), "it comes once");
        // Heard, and not taken when the owner decides.
        shared.hear(b"second");
        link.begin(Begin {
            position: 7,
            heard: b"report".to_vec(),
        });
        assert!(link.take().heard.is_empty());
        // Heard before the thread has seen the decision.
        shared.hear(b" third");
        assert!(link.take().heard.is_empty());
        let begin = shared.wanted().begin.unwrap();
        assert_eq!(
            (begin.position, &begin.heard[..]),
            (7, &b"reportsecond third"[..])
        );
        assert!(shared.wanted().begin.is_none(), "it comes once");
    }

    #[test]
    fn what_is_said_comes_in_order_and_once() {
        let (link, shared, _go) = linked();
        link.say(b"one ");
        link.say(b"two");
        link.finish();
        let Wanted { say, begin, finish } = shared.wanted();
        assert_eq!(
            (&say[..], begin.is_none(), finish),
            (&b"one two"[..], true, true)
        );
        let again = shared.wanted();
        assert_eq!((again.say.len(), again.finish), (0, false));
    }

    #[test]
    fn a_link_that_was_waited_for_has_no_descriptor_and_still_answers() {
        let (link, shared, go) = linked();
        let (news, wake) = (link.event_fd().unwrap(), shared.wake.fd());
        assert_ne!(news, wake);
        shared.hear(b"last words");
        shared.tell(false, |view| (view.acked, view.moved) = (7, 9));
        // Nobody but the link has what the notifiers belong to.
        let (all, wakes) = (Arc::downgrade(&shared), Arc::downgrade(&shared.wake));
        drop((shared, go));
        link.join();
        assert_eq!((all.strong_count(), Weak::strong_count(&wakes)), (0, 0));
        assert_eq!(link.event_fd(), None);
        for heard in [&b"last words"[..], b""] {
            let view = link.take();
            assert_eq!((view.acked, view.moved), (7, 9));
            assert_eq!((&view.heard[..], view.end), (heard, Some(End::Stopped)));
        }
        assert_eq!(link.view().end, Some(End::Stopped));
        let feed = FeedConfig {
            batch: 1,
            heartbeat: 1,
            housekeeping: 1,
            bytes_per_second: 0,
            linger: 0,
        };
        link.tune(feed);
        link.hear(true, true);
        link.say(b"too late");
        link.begin(Begin::default());
        link.finish();
        link.stop();
        link.join();
        assert_eq!((link.view().acked, link.take().heard.len()), (7, 0));
    }
}
