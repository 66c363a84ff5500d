//! Sending: a fixed number in flight (in bursts or refilled one by one), or at a fixed rate.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::frames::{number, push, Answers};
use crate::measure::{now_ms, Random, Shared};
use crate::options::Options;

const RING: usize = 1 << 16;

/// Makes the frames of one connection.
struct Frames<'a> {
    options: &'a Options,
    conn: u64,
    count: u64,
    bodies: Vec<Vec<u8>>,
}

impl<'a> Frames<'a> {
    fn new(options: &'a Options, conn: u64) -> Self {
        let mut random = Random::new(options.number("seed", 1) * 1000 + conn);
        let size = options.number("size", 1024) as usize;
        let bodies = (0..if options.flag("random") { 16 } else { 1 })
            .map(|_| (0..size).map(|_| if options.flag("random") { random.next() as u8 } else { b'x' }).collect())
            .collect();
        Self { options, conn, count: 0, bodies }
    }

    /// Adds the next frame; its opaque is its number on this connection.
    fn push(&mut self, out: &mut Vec<u8>) {
        let (options, number) = (self.options, self.count);
        self.count += 1;
        let topic = options.topic(number + self.conn);
        let queue = ((number + self.conn) % options.number("queues", 4)).to_string();
        let born = now_ms().to_string();
        let mut properties = format!("UNIQ_KEY\u{1}7F000001{:08X}{:016X}\u{2}WAIT\u{1}true\u{2}TAGS\u{1}TagA", self.conn, number);
        if options.flag("keys") {
            properties.push_str(&format!("\u{2}KEYS\u{1}k{}-{number}", self.conn));
        }
        for extra in 3..options.number("properties", 3) {
            properties.push_str(&format!("\u{2}property{extra}\u{1}value-{number}"));
        }
        let fields = [
            ("a", "loadgen"), ("b", &topic), ("c", "TBW102"), ("d", "4"), ("e", &queue), ("f", "0"),
            ("g", &born), ("h", "0"), ("i", &properties), ("j", "0"), ("k", "false"), ("m", "false"),
        ];
        let body = &self.bodies[number as usize % self.bodies.len()];
        push(out, options.binary_header(), 310, (number & 0x7FFF_FFFF) as u32, &fields, body);
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
    let stream = TcpStream::connect(&options.address)?;
    stream.set_nodelay(true)?;
    if options.number("rate", 0) > 0 {
        open_loop(options, conn, shared, stream)
    } else {
        closed_loop(options, conn, shared, stream)
    }
}

/// Keeps `depth` frames in flight; a burst waits for all its answers, a window refills at each.
fn closed_loop(options: &Options, conn: u64, shared: &Shared, mut stream: TcpStream) -> io::Result<()> {
    let depth = options.number("depth", 1) as usize;
    let window = options.flag("window");
    let (mut frames, mut answers) = (Frames::new(options, conn), Answers::new());
    let mut sent_at = vec![Instant::now(); RING];
    let (mut out, mut times, mut in_flight) = (Vec::new(), Vec::new(), 0);
    while shared.running() {
        out.clear();
        let start = Instant::now();
        if window || in_flight == 0 {
            while in_flight < depth {
                sent_at[frames.count as usize % RING] = start;
                frames.push(&mut out);
                in_flight += 1;
            }
            stream.write_all(&out)?;
        }
        in_flight -= answers.read(&mut stream, |header, _| {
            count(shared, header);
            let opaque = number(header, "opaque").unwrap_or(0) as usize;
            times.push(sent_at[opaque % RING].elapsed().as_micros() as u32);
        })?;
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
