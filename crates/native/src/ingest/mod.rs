//! The fast path for Python.

// PyO3 hands arguments over by value.
#![allow(clippy::needless_pass_by_value)]

mod accounts;
mod counted;
mod handing;
pub(crate) mod pop;

use std::collections::{HashMap, HashSet};
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::{pyclass, pymethods, Bound, IntoPyObject, Py, PyAny, PyResult, Python};
use pyo3::types::{PyBytes, PyDict, PyList, PyListMethods};
use roquet_core::codec::command::Encoding;
use roquet_core::ingest::answered;
use roquet_core::ingest::send::Fixed;
use roquet_core::ingest::table::{
    Choice, Delays, Flush, GroupRow, Pulling, Slaves, State, Subscription, Takes, TopicRow,
};
use roquet_core::ingest::{Ingest as CoreIngest, Shared, Standing};
use roquet_core::socket;
use roquet_core::store::Store as CoreStore;

use crate::buffer::Lent;
use crate::codec::frame_tuple;
use crate::filter::Filter;
use crate::ingest::accounts::{AccountTuple, WhiteTuple};
use crate::ingest::counted::{AnsweredTuple, ServedTuple, StoredTuple, SumsTuple};
use crate::ingest::handing::{outbound, required, rest_of};
use crate::ingest::pop::{GivenTuple, MergeTuple, PopTuple, WishTuple};
use crate::store::Store;

/// How long held pulls are served in one turn of the loop.
const TURN: Duration = Duration::from_millis(5);

/// (topic, version, tag codes or every message, filter or every message).
type SubscriptionTuple<'py> = (String, i64, Option<Vec<i64>>, Option<Bound<'py, Filter>>);

/// Answers the frames that the admission table covers; everything else comes out.
#[pyclass(frozen, module = "roquet.roquet_native")]
pub(crate) struct Ingest {
    /// What all of them go by.
    pub(crate) shared: Arc<Shared>,
    /// That of the loop.
    core: Mutex<CoreIngest>,
    /// Those of the threads of connections, one each.
    apart: Vec<Arc<Mutex<CoreIngest>>>,
    /// That of other fronts, on the loop as well: its answers are counted apart.
    calls: Mutex<CoreIngest>,
    store: Arc<CoreStore>,
}

impl Ingest {
    fn core(&self) -> MutexGuard<'_, CoreIngest> {
        hold(&self.core)
    }

    /// What the threads of connections answer from, and with.
    #[cfg(target_os = "linux")]
    pub(crate) fn fast(&self) -> Vec<roquet_core::net::Fast> {
        let of = |ingest: &Arc<Mutex<CoreIngest>>| roquet_core::net::Fast {
            store: Arc::clone(&self.store),
            ingest: Arc::clone(ingest),
        };
        self.apart.iter().map(of).collect()
    }

    /// Has `work` use the ingest of other fronts, what it goes by, and the store.
    pub(crate) fn with_calls<T>(
        &self,
        work: impl FnOnce((&mut CoreIngest, &Shared, &CoreStore)) -> T,
    ) -> T {
        work((&mut hold(&self.calls), &self.shared, &self.store))
    }

    /// Takes something of every ingest.
    fn of_all<T>(&self, take: impl Fn(&mut CoreIngest) -> T) -> Vec<T> {
        let mut all = vec![take(&mut self.core()), take(&mut hold(&self.calls))];
        all.extend(self.apart.iter().map(|core| take(&mut hold(core))));
        all
    }

    /// Flushes for the one connection that waits, and returns its answers; after a failure there
    /// are none, and the news of it refuses what waits.
    fn flush(&self, py: Python<'_>, now_ms: i64) -> Vec<u8> {
        let begun = Instant::now();
        let Ok(end) = py.detach(|| self.store.flush_in_place()) else {
            return Vec::new();
        };
        let took = i64::try_from(begun.elapsed().as_millis()).unwrap_or(i64::MAX);
        let answers = self.core().flushed(end, now_ms.saturating_add(took));
        answers.into_iter().flat_map(|(_, bytes)| bytes).collect()
    }
}

fn hold(core: &Mutex<CoreIngest>) -> MutexGuard<'_, CoreIngest> {
    core.lock().unwrap_or_else(PoisonError::into_inner)
}

fn choice(codes: Option<Vec<i64>>, filter: Option<&Bound<'_, Filter>>) -> Choice {
    let filter = filter.map(|filter| Arc::clone(&filter.get().core));
    Choice { codes, filter }
}

#[pymethods]
impl Ingest {
    #[new]
    #[pyo3(signature = (store, frame_size_max = 16_777_216, seed = 0, threads = 0))]
    fn new(store: &Store, frame_size_max: usize, seed: u64, threads: usize) -> Self {
        let shared: Arc<Shared> = Arc::default();
        let made = |number: usize, apart: bool| {
            let seed = seed.wrapping_add(number as u64);
            let shared = Arc::clone(&shared);
            CoreIngest::sharing(shared, frame_size_max, seed, apart)
        };
        let apart = (1..=threads).map(|number| Arc::new(Mutex::new(made(number, true))));
        Self {
            core: Mutex::new(made(0, false)),
            calls: Mutex::new(made(0, false)),
            apart: apart.collect(),
            shared,
            store: Arc::clone(store.core()),
        }
    }

    /// Know a connection, its peer's address (8 or 20 bytes), and whether its port serves pulls.
    #[pyo3(signature = (key, host, pulls = true))]
    fn open(&self, key: u64, host: &[u8], pulls: bool) {
        self.core().open(key, host, pulls);
    }

    /// Forget a connection.
    fn close(&self, key: u64) {
        self.core().close(key);
    }

    /// Whether the sender of what is kept has proven an account (0), names one (1), or neither (2).
    fn standing(&self, key: u64) -> u8 {
        match self.core().standing(key) {
            Standing::Proven => 0,
            Standing::Named => 1,
            Standing::Nameless => 2,
        }
    }

    /// An account was proven on a connection.
    fn prove(&self, key: u64) {
        self.core().prove(key);
    }

    /// Bytes kept for a connection.
    fn held(&self, key: u64) -> usize {
        self.core().held(key)
    }

    /// Take what a connection received.
    #[pyo3(signature = (key, data, now_ms, fd = None))]
    fn feed<'py>(
        &self,
        py: Python<'py>,
        key: u64,
        data: Lent<'py>,
        now_ms: i64,
        fd: Option<RawFd>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut frames: Option<Bound<'py, PyList>> = None;
        let mut failure = None;
        let mut core = self.core();
        let mut fed = core.feed(
            &self.store,
            key,
            data.as_slice(),
            now_ms,
            &mut |frame, header| {
                let frames = frames.get_or_insert_with(|| PyList::empty(py));
                let pushed = frame_tuple(py, frame, header).and_then(|tuple| frames.append(tuple));
                if let Err(error) = pushed {
                    failure = Some(error);
                }
            },
        );
        if fed.flush {
            // Not across the sync: whoever waits for the ingest may have the GIL.
            drop(core);
            let late = self.flush(py, now_ms);
            core = self.core();
            fed.replies.bytes().extend_from_slice(&late);
        }
        if let Some(error) = failure {
            return Err(error);
        }
        let written = fd.map_or(0, |fd| socket::write(fd, &fed.replies));
        let rest = rest_of(py, &fed.replies, written)?;
        core.recycle(fed.replies);
        let merges: Vec<MergeTuple> = fed
            .merges
            .into_iter()
            .map(|it| pop::merge(py, it))
            .collect();
        let pops: Vec<PopTuple> = fed.pops.into_iter().map(|it| pop::pop(py, it)).collect();
        let plain = merges.is_empty() && pops.is_empty();
        if frames.is_none() && fed.broken.is_none() && fed.held == 0 && plain {
            return Ok(rest.into_any());
        }
        let frames = frames.unwrap_or_else(|| PyList::empty(py));
        let broken = fed.broken.map(|error| error.to_string());
        if !plain {
            let all = (rest, frames, broken, merges, pops);
            return Ok(all.into_pyobject(py)?.into_any());
        }
        Ok((rest, frames, broken).into_pyobject(py)?.into_any())
    }

    /// Answers to acknowledgements that were settled in memory, so many microseconds after they came.
    fn merged<'py>(
        &self,
        py: Python<'py>,
        opaques: Vec<i32>,
        is_batch: bool,
        took_us: u64,
    ) -> Bound<'py, PyBytes> {
        let took = Duration::from_micros(took_us);
        PyBytes::new(py, &self.core().merged(&opaques, is_batch, took))
    }

    /// Messages for a pop; `None` leaves it to the handlers.
    fn give(&self, py: Python<'_>, wish: WishTuple) -> Option<GivenTuple> {
        let given = wish.read(|wish| self.core().give(&self.store, &wish))?;
        Some(pop::given(py, given))
    }

    /// Hear that the handlers have finished everything they got of a connection.
    fn idle(&self, key: u64) {
        self.core().idle(key);
    }

    /// Answers to write after the log became durable up to an offset.
    fn flushed(&self, py: Python<'_>, offset: u64, now_ms: i64) -> Vec<(u64, Py<PyBytes>)> {
        outbound(py, self.core().flushed(offset, now_ms))
    }

    /// Answers to write after slaves have copied the log up to an offset.
    fn set_replicated(&self, py: Python<'_>, offset: u64, now_ms: i64) -> Vec<(u64, Py<PyBytes>)> {
        outbound(py, self.core().replicated(offset, now_ms))
    }

    /// Answers to write to sends up to an offset that no slave can prove to have copied.
    fn lapse(&self, py: Python<'_>, offset: u64, now_ms: i64) -> Vec<(u64, Py<PyBytes>)> {
        outbound(py, self.core().lapse(offset, now_ms))
    }

    /// Hear how far a queue has grown; true when held pulls are due.
    fn arrived(&self, topic: &str, queue_id: i32, max_offset: i64) -> bool {
        let mut core = self.core();
        core.arrived(topic, queue_id, max_offset);
        core.has_due()
    }

    /// Answer held pulls that are due, for a few milliseconds.
    fn serve<'py>(&self, py: Python<'py>, now_ms: i64) -> PyResult<ServedTuple<'py>> {
        let left = PyList::empty(py);
        let mut failure = None;
        let start = Instant::now();
        let mut core = self.core();
        let answers = core.serve(
            &self.store,
            now_ms,
            &mut || start.elapsed() < TURN,
            &mut |key, frame, header| {
                let pushed =
                    frame_tuple(py, frame, header).and_then(|tuple| left.append((key, tuple)));
                if let Err(error) = pushed {
                    failure = Some(error);
                }
            },
        );
        match failure {
            Some(error) => Err(error),
            None => Ok((outbound(py, answers), left, core.has_due())),
        }
    }

    /// Hear how many pulls are held elsewhere.
    fn set_held_beside(&self, count: usize) {
        self.core().set_held_beside(&self.store, count);
    }

    /// How many pulls are held here, by all threads.
    fn held_pulls(&self) -> usize {
        self.shared.held()
    }

    /// When the first pull that waits on the loop is given up, Unix milliseconds.
    fn held_until_ms(&self) -> Option<i64> {
        self.core().held_until_ms()
    }

    /// Answers of sends that waited for a flush or a copy for too long.
    fn expire(&self, py: Python<'_>, now_ms: i64) -> Vec<(u64, Py<PyBytes>)> {
        outbound(py, self.core().expire(now_ms))
    }

    /// Refusals of every send that waits.
    fn fail(&self, py: Python<'_>, remark: &str, now_ms: i64) -> Vec<(u64, Py<PyBytes>)> {
        outbound(py, self.core().fail(remark, now_ms))
    }

    /// Set what holds for every message and answer; all names of the stub must be there.
    #[pyo3(signature = (**values))]
    fn set_state(&self, values: Option<Bound<'_, PyDict>>) -> PyResult<()> {
        let values = values.ok_or_else(|| PyValueError::new_err("a state needs values"))?;
        let encoding: u8 = required(&values, "encoding")?;
        let mut state = State {
            sends: required(&values, "sends")?,
            pulls: required(&values, "pulls")?,
            flush: match (
                required(&values, "sync_flush")?,
                required(&values, "sync_here")?,
            ) {
                (false, _) => Flush::NotAwaited,
                (true, false) => Flush::ByThread,
                (true, true) => Flush::Here,
            },
            flush_timeout_ms: required(&values, "flush_timeout_ms")?,
            slaves: match (
                required(&values, "waits_for_slave")?,
                required(&values, "lacks_slave")?,
            ) {
                (_, true) => Slaves::Lacking,
                (true, false) => Slaves::Wait,
                (false, false) => Slaves::None,
            },
            copy_timeout_ms: required(&values, "slave_timeout_ms")?,
            body_max: required(&values, "body_max")?,
            batch_max: required(&values, "batch_max")?,
            store_host: required(&values, "store_host")?,
            stamps: required(&values, "stamps")?,
            special: required(&values, "special")?,
            send_ext: required(&values, "send_ext")?,
            encoding: Encoding::from_code(encoding)
                .ok_or_else(|| PyValueError::new_err(format!("no header encoding {encoding}")))?,
            version: required(&values, "version")?,
            fixed: None,
            parked_max: required(&values, "parked_max")?,
            busy_remark: required(&values, "busy_remark")?,
            pulling: Pulling {
                lite: required(&values, "lite_pulls")?,
                holds_max: required(&values, "holds_max")?,
                hold_ms: required(&values, "hold_ms")?,
                hold_ms_max: required(&values, "hold_ms_max")?,
            },
            delays: required::<Option<(String, i32)>>(&values, "delays")?
                .map(|(topic, highest)| Delays { topic, highest }),
            halves: required(&values, "halves")?,
            pop: pop::popping(&values)?,
        };
        state.fixed = Fixed::new(&state);
        let barrier: Vec<i32> = required(&values, "barrier")?;
        let mut table = self.shared.write();
        table.state = state;
        table.barrier = barrier.into_iter().collect::<HashSet<_>>();
        Ok(())
    }

    /// Set who may do it, in place of everybody: peers without an account, and accounts.
    fn set_accounts(&self, trusted: Vec<WhiteTuple>, accounts: Vec<AccountTuple>) {
        let found = accounts::make(trusted, accounts);
        self.shared.write().set_accounts(found);
    }

    /// Set a topic's row; a row that admits nothing is none.
    #[pyo3(signature = (name, send_queues, read_queues, add_sys_flag, sys_flag, settle_queues = 0, front_queues = 0, message_type = ""))]
    #[allow(clippy::too_many_arguments)] // The columns of a row.
    fn set_topic(
        &self,
        name: &str,
        send_queues: i32,
        read_queues: i32,
        add_sys_flag: i32,
        sys_flag: i32,
        settle_queues: i32,
        front_queues: i32,
        message_type: &str,
    ) {
        let row = TopicRow {
            front_queues,
            takes: Takes::from_attribute(message_type),
            send_queues,
            read_queues,
            settle_queues,
            add_sys_flag,
            sys_flag,
        };
        let mut table = self.shared.write();
        let topics = &mut table.topics;
        if send_queues > 0 || read_queues > 0 || settle_queues > 0 {
            topics.insert(name.into(), row);
        } else {
            topics.remove(name);
        }
    }

    /// Set a group's row.
    fn set_group(&self, name: &str, sys_flag: i32, subscriptions: Vec<SubscriptionTuple<'_>>) {
        let subscriptions: HashMap<_, _> = subscriptions
            .into_iter()
            .map(|(topic, version, codes, filter)| {
                let choice = choice(codes, filter.as_ref());
                (topic, Subscription { version, choice })
            })
            .collect();
        let row = GroupRow {
            sys_flag,
            subscriptions,
        };
        self.shared.write().groups.insert(name.into(), row);
    }

    /// Take a group's row away.
    fn drop_group(&self, name: &str) {
        self.shared.write().groups.remove(name);
    }

    /// Say what an expression means that pulls bring.
    #[pyo3(signature = (kind, expression, codes, filter_by))]
    fn set_expression(
        &self,
        kind: &str,
        expression: &str,
        codes: Option<Vec<i64>>,
        filter_by: Option<Bound<'_, Filter>>,
    ) {
        let choice = choice(codes, filter_by.as_ref());
        let mut table = self.shared.write();
        let of_kind = table.expressions.entry(kind.into()).or_default();
        of_kind.insert(expression.into(), choice);
    }

    /// Forget what expressions mean.
    fn drop_expressions(&self) {
        self.shared.write().expressions.clear();
    }

    /// What sends came to by queue since the last call: (topic, queue, messages, bytes, sends,
    /// microseconds of the sends).
    fn take_stored(&self) -> Vec<StoredTuple> {
        counted::stored(self.of_all(CoreIngest::take_stored))
    }

    /// Half messages stored by the topic that they are for, since the last call.
    fn take_halves(&self) -> HashMap<String, u64> {
        counted::halves(self.of_all(CoreIngest::take_halves))
    }

    /// What pulls came to by group, topic and queue since the last call.
    fn take_pulled(&self) -> Vec<(String, String, i32, SumsTuple)> {
        let lines = self.of_all(CoreIngest::take_pulled);
        lines.into_iter().flatten().map(counted::pulled).collect()
    }

    /// How long answers took by request, response and way since the last call.
    fn take_answered(&self) -> Vec<AnsweredTuple> {
        let mut lines = self.core().take_answered();
        for core in &self.apart {
            lines.extend(hold(core).take_answered());
        }
        lines.into_iter().map(counted::answered).collect()
    }

    /// The same of sends that came by other fronts.
    fn take_called(&self) -> Vec<AnsweredTuple> {
        let lines = hold(&self.calls).take_answered();
        lines.into_iter().map(counted::answered).collect()
    }

    /// Upper bounds of the classes of `take_answered`, in milliseconds.
    #[classattr]
    #[pyo3(name = "CLASSES_MS")]
    fn classes_ms() -> Vec<u64> {
        answered::BOUNDS_MS.to_vec()
    }

    /// What happened so far.
    fn counters(&self) -> HashMap<&'static str, u64> {
        counted::counters(self.of_all(|core| core.counters()), self.shared.parked())
    }

    /// Admit nothing until the next `set_state`: once this returns, no frame is being judged.
    fn suspend(&self) {
        let mut table = self.shared.write();
        table.state.sends = false;
        table.state.pulls = false;
        table.state.pop = None;
    }
}
