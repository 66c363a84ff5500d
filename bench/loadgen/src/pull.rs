//! Reading: a queue from its start round and round, or every queue's end by long poll.

use std::io::{self, Write};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::frames::{number, push, Answers};
use crate::measure::Shared;
use crate::options::Options;
use crate::stream::Stream;

const SUSPEND: u64 = 2;
const SUBSCRIPTION: u64 = 4;

struct Pull<'a> {
    topic: String,
    group: String,
    queue: u64,
    sys_flag: u64,
    options: &'a Options,
}

impl Pull<'_> {
    fn push(&self, out: &mut Vec<u8>, opaque: u32, offset: i64) {
        let (queue, offset) = (self.queue.to_string(), offset.to_string());
        let (batch, flag) = (self.options.number("batch", 32).to_string(), self.sys_flag.to_string());
        let (kind, expression) = self.options.filter().unwrap_or(("TAG", "*"));
        let fields = [
            ("consumerGroup", self.group.as_str()), ("topic", &self.topic), ("queueId", &queue),
            ("queueOffset", &offset), ("maxMsgNums", &batch), ("sysFlag", &flag), ("commitOffset", "0"),
            ("suspendTimeoutMillis", "15000"), ("subscription", expression), ("subVersion", "0"), ("expressionType", kind),
        ];
        push(out, self.options, 11, opaque, &fields, &[]);
    }
}

/// How far before a queue's end reading begins at most: what lies further back RocketMQ may count as not cached, and
/// give 8 messages of it where it gives 32 of others.
const BACK: i64 = 100_000;

/// An offset far beyond the end; the answer to it says where the end is.
const BEYOND: i64 = i64::MAX / 2;

/// One connection, one request in flight, the last messages of one queue to its end and again.
pub fn run(options: &Arc<Options>, conn: u64, shared: &Arc<Shared>) -> io::Result<()> {
    let mut stream = Stream::connect(options)?;
    let pull = Pull {
        topic: options.topic(conn),
        group: "loadgen_group".into(),
        queue: conn % options.number("queues", 4),
        sys_flag: SUBSCRIPTION,
        options,
    };
    let (mut answers, mut out, mut times) = (Answers::new(), Vec::new(), Vec::new());
    let (mut first, mut offset, mut opaque) = (0, BEYOND, 0);
    let filtered = options.filter().is_some();
    while shared.running() {
        opaque += 1;
        out.clear();
        pull.push(&mut out, opaque, offset);
        let start = Instant::now();
        stream.write_all(&out)?;
        let mut next = 0;
        answers.read(&mut stream, |header, body| {
            shared.requests.fetch_add(1, Relaxed);
            shared.bytes.fetch_add(body.len() as u64, Relaxed);
            match number(header, "code") {
                Some(0) => {
                    next = number(header, "nextBeginOffset").unwrap_or(0);
                    let passed = (next - offset).max(0) as u64;
                    shared.messages.fetch_add(if filtered { records(body) } else { passed }, Relaxed);
                }
                // A filter has passed over all that was looked at: read on behind it.
                Some(20) if filtered && number(header, "nextBeginOffset").is_some_and(|at| at > offset) => {
                    next = number(header, "nextBeginOffset").unwrap_or(0);
                }
                Some(19 | 20 | 21) => {
                    if offset == BEYOND {
                        first = number(header, "maxOffset").unwrap_or(0) - BACK;
                    }
                    next = first.max(number(header, "minOffset").unwrap_or(0));
                }
                _ => shared.refused(header),
            }
        })?;
        offset = next;
        times.push(start.elapsed().as_micros() as u32);
    }
    shared.add_times(times);
    Ok(())
}

/// How many records there are in an answer; each begins with its size.
fn records(mut body: &[u8]) -> u64 {
    let mut count = 0;
    while let Some(size) = body.first_chunk::<4>() {
        let size = u32::from_be_bytes(*size) as usize;
        body = body.get(size.max(4)..).unwrap_or_default();
        count += 1;
    }
    count
}

/// One connection a group: a long poll on every queue, each moved on by its answer.
pub fn tail(options: &Arc<Options>, group: u64, shared: &Arc<Shared>) -> io::Result<()> {
    let mut stream = Stream::connect(options)?;
    stream.set_read_timeout(Duration::from_millis(500))?;
    let queues = options.number("queues", 4);
    let pulls: Vec<Pull> = (0..queues)
        .map(|queue| Pull {
            topic: options.topic(0),
            group: format!("loadgen_tail_{group}"),
            queue,
            sys_flag: SUSPEND | SUBSCRIPTION,
            options,
        })
        .collect();
    let (mut answers, mut out) = (Answers::new(), Vec::new());
    // The answer says where the end is: that is where tailing starts.
    let mut offsets = vec![BEYOND; queues as usize];
    let mut started = vec![false; queues as usize];
    for (queue, pull) in pulls.iter().enumerate() {
        pull.push(&mut out, queue as u32, offsets[queue]);
    }
    while shared.running() {
        stream.write_all(&out)?;
        out.clear();
        let outcome = answers.read(&mut stream, |header, body| {
            let queue = number(header, "opaque").unwrap_or(0) as usize % pulls.len();
            shared.requests.fetch_add(1, Relaxed);
            shared.bytes.fetch_add(body.len() as u64, Relaxed);
            let next = number(header, "nextBeginOffset").unwrap_or(0);
            match number(header, "code") {
                Some(0) => {
                    if started[queue] {
                        shared.messages.fetch_add((next - offsets[queue]).max(0) as u64, Relaxed);
                    }
                    offsets[queue] = next;
                }
                Some(19 | 20 | 21) => offsets[queue] = next,
                _ => shared.refused(header),
            }
            started[queue] = true;
            pulls[queue].push(&mut out, queue as u32, offsets[queue]);
        });
        match outcome {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            other => drop(other?),
        }
    }
    Ok(())
}
