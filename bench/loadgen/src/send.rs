//! Sending: a fixed number in flight (in bursts or refilled one by one), or at a fixed rate.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::frames::{number, push, Answers};
use crate::measure::{now_ms, Random, Shared};
use crate::options::Options;
use crate::stream::Stream;

const RING: usize = 1 << 16;
/// Set in the opaque of what ends a transaction.
const END: u32 = 0x4000_0000;

/// Where the first half of a transaction is stored.
struct Place {
    queue_offset: i64,
    log_offset: u64,
}

impl Place {
    fn of(header: &str) -> Option<Self> {
        let id = header.split("\"msgId\":\"").nth(1)?.split('"').next()?;
        let log_offset = u64::from_str_radix(id.get(id.len().checked_sub(16)?..)?, 16).ok()?;
        Some(Self { queue_offset: number(header, "queueOffset")?, log_offset })
    }
}

/// Makes the frames of one connection.
struct Frames<'a> {
    options: &'a Options,
    conn: u64,
    count: u64,
    bodies: Vec<Vec<u8>>,
    /// Messages are the first halves of transactions.
    is_half: bool,
}

impl<'a> Frames<'a> {
    fn new(options: &'a Options, conn: u64) -> Self {
        let mut random = Random::new(options.number("seed", 1) * 1000 + conn);
        let size = options.number("size", 1024) as usize;
        let bodies = (0..if options.flag("random") { 16 } else { 1 })
            .map(|_| (0..size).map(|_| if options.flag("random") { random.next() as u8 } else { b'x' }).collect())
            .collect();
        Self { options, conn, count: 0, bodies, is_half: false }
    }

    /// The properties that every message begins with.
    fn unique_key(&self, number: u64) -> String {
        format!("UNIQ_KEY\u{1}{}\u{2}WAIT\u{1}true\u{2}", self.id(number))
    }

    fn id(&self, number: u64) -> String {
        format!("7F000001{:08X}{number:016X}", self.conn)
    }

    /// Adds the end of a transaction, committed, by what the broker said of its first half.
    fn push_end(&self, out: &mut Vec<u8>, number: u64, place: &Place) {
        let (queue, log, id) = (place.queue_offset.to_string(), place.log_offset.to_string(), self.id(number));
        let topic = self.options.topic(number + self.conn);
        let fields = [
            ("topic", topic.as_str()), ("producerGroup", "loadgen"), ("tranStateTableOffset", &queue), ("commitLogOffset", &log),
            ("commitOrRollback", "8"), ("fromTransactionCheck", "false"), ("msgId", &id), ("transactionId", &id),
        ];
        push(out, self.options, 37, END | (number & 0x3FFF_FFFF) as u32, &fields, &[]);
    }

    /// Adds one frame with `count` messages of one queue; its opaque is the number of its first.
    fn push_batch(&mut self, out: &mut Vec<u8>, count: usize) {
        let (options, first) = (self.options, self.count);
        self.count += count as u64;
        let mut body = Vec::new();
        for number in first..self.count {
            let message = &self.bodies[number as usize % self.bodies.len()];
            let properties = self.unique_key(number);
            let size = 4 * 5 + message.len() + 2 + properties.len();
            for field in [size, 0, 0, 0, message.len()] {
                body.extend_from_slice(&(field as u32).to_be_bytes());
            }
            body.extend_from_slice(message);
            body.extend_from_slice(&(properties.len() as u16).to_be_bytes());
            body.extend_from_slice(properties.as_bytes());
        }
        let queue = ((first / count as u64 + self.conn) % options.number("queues", 4)).to_string();
        let (topic, born, properties) = (options.topic(self.conn), now_ms().to_string(), self.unique_key(first));
        let fields = [
            ("a", "loadgen"), ("b", topic.as_str()), ("c", "TBW102"), ("d", "4"), ("e", &queue), ("f", "0"),
            ("g", &born), ("h", "0"), ("i", &properties), ("j", "0"), ("k", "false"), ("m", "true"),
        ];
        push(out, options, 320, (first & 0x7FFF_FFFF) as u32, &fields, &body);
    }

    /// Adds the next frame; its opaque is its number on this connection.
    fn push(&mut self, out: &mut Vec<u8>) {
        let (options, number) = (self.options, self.count);
        self.count += 1;
        let topic = options.topic(number + self.conn);
        let queue = ((number + self.conn) % options.number("queues", 4)).to_string();
        let born = now_ms().to_string();
        let mut properties = self.unique_key(number);
        match options.number("tags", 0) {
            0 => properties.push_str("TAGS\u{1}TagA"),
            many => properties.push_str(&format!("TAGS\u{1}Tag{0}\u{2}part\u{1}{0}", number % many)),
        }
        match options.number("delay", 0) {
            0 => {}
            level => properties.push_str(&format!("\u{2}DELAY\u{1}{level}")),
        }
        match options.number("timer-within", 0) {
            0 => {}
            span_ms => {
                // A stride prime to most spans: neighbours are due far from each other.
                let shift_ms = (number * 7919 + self.conn * 104_729) % span_ms;
                let from_ms = options.number("timer-from", now_ms() + 1);
                properties.push_str(&format!("\u{2}TIMER_DELIVER_MS\u{1}{}", from_ms + shift_ms));
            }
        }
        if self.is_half {
            properties.push_str("\u{2}TRAN_MSG\u{1}true\u{2}PGROUP\u{1}loadgen");
        }
        if options.flag("keys") {
            properties.push_str(&format!("\u{2}KEYS\u{1}k{}-{number}", self.conn));
        }
        for extra in 3..options.number("properties", 3) {
            properties.push_str(&format!("\u{2}property{extra}\u{1}value-{number}"));
        }
        let broker = options.text("bname", "");
        let fields = [
            ("a", "loadgen"), ("b", &topic), ("c", "TBW102"), ("d", "4"), ("e", &queue), ("f", if self.is_half { "4" } else { "0" }),
            ("g", &born), ("h", "0"), ("i", &properties), ("j", "0"), ("k", "false"), ("m", "false"), ("n", &broker),
        ];
        // Only proxies are told the broker's name.
        let fields = if broker.is_empty() { &fields[..fields.len() - 1] } else { &fields[..] };
        let body = &self.bodies[number as usize % self.bodies.len()];
        push(out, options, 310, (number & 0x7FFF_FFFF) as u32, fields, body);
    }
}

/// How many messages a connection sends; the number of all is shared out.
fn share(options: &Options, conn: u64) -> u64 {
    match options.number("messages", 0) {
        0 => u64::MAX,
        all => {
            let conns = options.number("conns", 1);
            all / conns + u64::from(conn < all % conns)
        }
    }
}

fn count(shared: &Shared, header: &str) {
    if number(header, "code") == Some(0) {
        shared.messages.fetch_add(1, Relaxed);
    } else {
        shared.refused(header);
    }
}

pub fn run(options: &Arc<Options>, conn: u64, shared: &Arc<Shared>) -> io::Result<()> {
    let stream = Stream::connect(options)?;
    if options.number("rate", 0) > 0 {
        open_loop(options, conn, shared, stream.into_plain()?)
    } else {
        closed_loop(options, conn, shared, stream)
    }
}

/// Keeps `depth` frames in flight; a burst waits for all its answers, a window refills at each.
fn closed_loop(options: &Options, conn: u64, shared: &Shared, mut stream: Stream) -> io::Result<()> {
    let depth = options.number("depth", 1) as usize;
    let (window, batched) = (options.flag("window"), options.flag("batched"));
    let (mut frames, mut answers) = (Frames::new(options, conn), Answers::new());
    let mut sent_at = vec![Instant::now(); RING];
    let (mut out, mut times, mut in_flight) = (Vec::new(), Vec::new(), 0);
    let limit = share(options, conn);
    while shared.running() && (frames.count < limit || in_flight > 0) {
        out.clear();
        let start = Instant::now();
        if batched && in_flight == 0 {
            sent_at[frames.count as usize % RING] = start;
            frames.push_batch(&mut out, depth);
            in_flight = 1;
            stream.write_all(&out)?;
        } else if window || in_flight == 0 {
            while in_flight < depth && frames.count < limit {
                sent_at[frames.count as usize % RING] = start;
                frames.push(&mut out);
                in_flight += 1;
            }
            stream.write_all(&out)?;
        }
        in_flight -= answers.read(&mut stream, |header, _| {
            count(shared, header);
            if batched && number(header, "code") == Some(0) {
                shared.messages.fetch_add(depth as u64 - 1, Relaxed);
            }
            let opaque = number(header, "opaque").unwrap_or(0) as usize;
            times.push(sent_at[opaque % RING].elapsed().as_micros() as u32);
        })?;
    }
    shared.add_times(times);
    Ok(())
}

/// Transactions: `depth` first halves, then their ends, which count as messages when they are answered.
pub fn transactions(options: &Arc<Options>, conn: u64, shared: &Arc<Shared>) -> io::Result<()> {
    let mut stream = Stream::connect(options)?;
    let depth = options.number("depth", 1) as usize;
    let (mut frames, mut answers) = (Frames::new(options, conn), Answers::new());
    frames.is_half = true;
    let (mut out, mut times) = (Vec::new(), Vec::new());
    while shared.running() {
        let start = Instant::now();
        out.clear();
        for _ in 0..depth {
            frames.push(&mut out);
        }
        stream.write_all(&out)?;
        let (mut left, mut ends) = (depth, Vec::new());
        while left > 0 {
            left -= answers.read(&mut stream, |header, _| match (number(header, "code"), Place::of(header)) {
                (Some(0), Some(place)) => ends.push((number(header, "opaque").unwrap_or(0) as u64, place)),
                _ => shared.refused(header),
            })?;
        }
        out.clear();
        for (at, place) in &ends {
            frames.push_end(&mut out, *at, place);
        }
        stream.write_all(&out)?;
        left = ends.len();
        while left > 0 {
            left -= answers.read(&mut stream, |header, _| count(shared, header))?;
        }
        times.push(start.elapsed().as_micros() as u32);
    }
    shared.add_times(times);
    Ok(())
}

/// Sends at a fixed rate whatever the answers do; a time counts from the moment it was meant to go.
fn open_loop(options: &Arc<Options>, conn: u64, shared: &Arc<Shared>, stream: TcpStream) -> io::Result<()> {
    let meant: Arc<Vec<AtomicU64>> = Arc::new((0..RING).map(|_| AtomicU64::new(0)).collect());
    let zero = Instant::now();
    let mut reading = stream.try_clone()?;
    let (theirs, their_shared) = (meant.clone(), shared.clone());
    let reader = std::thread::spawn(move || {
        let (mut answers, mut times) = (Answers::new(), Vec::new());
        loop {
            let outcome = answers.read(&mut reading, |header, _| {
                count(&their_shared, header);
                let opaque = number(header, "opaque").unwrap_or(0) as usize;
                let from = theirs[opaque % RING].load(Relaxed);
                times.push((zero.elapsed().as_micros() as u64).saturating_sub(from) as u32);
            });
            if outcome.is_err() {
                break;
            }
        }
        their_shared.add_times(times);
    });
    let conns = options.number("conns", 1);
    let pause_us = 1e6 * conns as f64 / options.number("rate", 1) as f64;
    let (mut frames, mut out) = (Frames::new(options, conn), Vec::new());
    let mut stream = stream;
    while shared.running() {
        let now = zero.elapsed().as_micros() as u64;
        out.clear();
        loop {
            let due = ((frames.count as f64 + conn as f64 / conns as f64) * pause_us) as u64;
            if due > now || out.len() > 1 << 18 {
                break;
            }
            meant[frames.count as usize % RING].store(due, Relaxed);
            frames.push(&mut out);
        }
        if out.is_empty() {
            std::thread::sleep(Duration::from_micros(200));
        } else {
            stream.write_all(&out)?;
        }
    }
    std::thread::sleep(Duration::from_millis(500));
    stream.shutdown(std::net::Shutdown::Both)?;
    let _ = reader.join();
    Ok(())
}
