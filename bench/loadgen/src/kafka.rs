//! Kafka's protocol: produce (v3) and fetch (v4), as far as a load needs them.
//!
//! A request carries one message, or with `--batched 1` all that is in flight, as Kafka's own
//! producers do it.

use std::io::{self, Read, Write};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::Instant;

use crate::measure::{now_ms, Shared};
use crate::options::Options;
use crate::stream::Stream;

const PRODUCE: (i16, i16) = (0, 3);
const FETCH: (i16, i16) = (1, 4);
const ANSWER_MAX: usize = 64 << 20;
/// Of a batch: its base offset, its length behind these twelve bytes, and its last offset's distance.
const BATCH_HEAD: usize = 27;
/// What a message of a fetch takes beside its body, about.
const OVERHEAD: u64 = 80;

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.to_string())
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as i16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn push_varint(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Adds a request; `fill` adds what is behind its header.
fn push_request(out: &mut Vec<u8>, api: (i16, i16), id: i32, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&api.0.to_be_bytes());
    out.extend_from_slice(&api.1.to_be_bytes());
    out.extend_from_slice(&id.to_be_bytes());
    push_text(out, "loadgen");
    fill(out);
    let size = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&size.to_be_bytes());
}

/// Adds a batch of messages with the same body.
fn push_batch(out: &mut Vec<u8>, count: usize, body: &[u8]) {
    let start = out.len();
    out.extend_from_slice(&[0; 12]);
    out.extend_from_slice(&(-1i32).to_be_bytes());
    out.push(2);
    out.extend_from_slice(&[0; 4]);
    let checked = out.len();
    let now = now_ms();
    out.extend_from_slice(&0i16.to_be_bytes());
    out.extend_from_slice(&(count as i32 - 1).to_be_bytes());
    out.extend_from_slice(&now.to_be_bytes());
    out.extend_from_slice(&now.to_be_bytes());
    out.extend_from_slice(&[0xff; 8 + 2 + 4]);
    out.extend_from_slice(&(count as i32).to_be_bytes());
    let mut record = Vec::with_capacity(body.len() + 16);
    for index in 0..count {
        record.clear();
        record.push(0);
        push_varint(&mut record, 0);
        push_varint(&mut record, index as i64);
        push_varint(&mut record, -1);
        push_varint(&mut record, body.len() as i64);
        record.extend_from_slice(body);
        push_varint(&mut record, 0);
        push_varint(out, record.len() as i64);
        out.extend_from_slice(&record);
    }
    let crc = crc32c::crc32c(&out[checked..]);
    out[checked - 4..checked].copy_from_slice(&crc.to_be_bytes());
    let size = (out.len() - start - 12) as u32;
    out[start + 8..start + 12].copy_from_slice(&size.to_be_bytes());
}

/// What is left of an answer.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, size: usize) -> io::Result<&'a [u8]> {
        let (found, rest) = self.0.split_at_checked(size).ok_or_else(|| invalid("a short answer"))?;
        self.0 = rest;
        Ok(found)
    }

    fn i16(&mut self) -> io::Result<i16> {
        Ok(i16::from_be_bytes(self.take(2)?.try_into().unwrap_or_default()))
    }

    fn i32(&mut self) -> io::Result<i32> {
        Ok(i32::from_be_bytes(self.take(4)?.try_into().unwrap_or_default()))
    }

    fn text(&mut self) -> io::Result<()> {
        let size = self.i16()?;
        self.take(size.max(0) as usize).map(drop)
    }

    /// Goes to the first partition of the first topic; returns its error.
    fn first_partition(&mut self) -> io::Result<i16> {
        self.i32()?;
        self.text()?;
        self.i32()?;
        self.i32()?;
        self.i16()
    }
}

/// Reads answers, one after the other.
struct Answers {
    buffer: Vec<u8>,
}

impl Answers {
    fn next(&mut self, stream: &mut Stream) -> io::Result<&[u8]> {
        let mut head = [0; 4];
        stream.read_exact(&mut head)?;
        let size = u32::from_be_bytes(head) as usize;
        if size > ANSWER_MAX {
            return Err(invalid("an answer that is too large"));
        }
        self.buffer.resize(size, 0);
        stream.read_exact(&mut self.buffer)?;
        Ok(&self.buffer)
    }
}

/// Keeps `depth` messages in flight and waits for all of their answers.
pub fn send(options: &Arc<Options>, conn: u64, shared: &Arc<Shared>) -> io::Result<()> {
    let mut stream = Stream::connect(options)?;
    let (depth, queues) = (options.number("depth", 1) as usize, options.number("queues", 4));
    let body = vec![b'x'; options.number("size", 1024) as usize];
    let batch = if options.flag("batched") { depth } else { 1 };
    let (mut out, mut times, mut id) = (Vec::new(), Vec::new(), 0i32);
    let mut answers = Answers { buffer: Vec::new() };
    while shared.running() {
        let start = Instant::now();
        out.clear();
        for _ in 0..depth / batch {
            id = id.wrapping_add(1);
            let queue = (id as u64).wrapping_add(conn) % queues;
            push_request(&mut out, PRODUCE, id, |out| {
                out.extend_from_slice(&(-1i16).to_be_bytes());
                out.extend_from_slice(&1i16.to_be_bytes());
                out.extend_from_slice(&30_000i32.to_be_bytes());
                out.extend_from_slice(&1i32.to_be_bytes());
                push_text(out, &options.topic(0));
                out.extend_from_slice(&1i32.to_be_bytes());
                out.extend_from_slice(&(queue as i32).to_be_bytes());
                let at = out.len();
                out.extend_from_slice(&[0; 4]);
                push_batch(out, batch, &body);
                let size = (out.len() - at - 4) as u32;
                out[at..at + 4].copy_from_slice(&size.to_be_bytes());
            });
        }
        stream.write_all(&out)?;
        for _ in 0..depth / batch {
            let mut fields = Fields(answers.next(&mut stream)?);
            fields.i32()?;
            match fields.first_partition()? {
                0 => drop(shared.messages.fetch_add(batch as u64, Relaxed)),
                code => shared.refused(&format!("error {code} of a produce request")),
            }
            let passed = start.elapsed().as_micros() as u32;
            times.extend(std::iter::repeat_n(passed, batch));
        }
    }
    shared.add_times(times);
    Ok(())
}

/// One connection, one request in flight, one partition from its start to its end and again.
pub fn pull(options: &Arc<Options>, conn: u64, shared: &Arc<Shared>) -> io::Result<()> {
    let mut stream = Stream::connect(options)?;
    let queue = (conn % options.number("queues", 4)) as i32;
    let bytes = options.number("batch", 32) * (options.number("size", 1024) + OVERHEAD);
    let (mut out, mut times, mut id, mut offset) = (Vec::new(), Vec::new(), 0i32, 0i64);
    let mut answers = Answers { buffer: Vec::new() };
    while shared.running() {
        id = id.wrapping_add(1);
        out.clear();
        push_request(&mut out, FETCH, id, |out| {
            for number in [-1, 100, 1, bytes as i32] {
                out.extend_from_slice(&i32::to_be_bytes(number));
            }
            out.push(0);
            out.extend_from_slice(&1i32.to_be_bytes());
            push_text(out, &options.topic(0));
            out.extend_from_slice(&1i32.to_be_bytes());
            out.extend_from_slice(&queue.to_be_bytes());
            out.extend_from_slice(&offset.to_be_bytes());
            out.extend_from_slice(&(bytes as i32).to_be_bytes());
        });
        let start = Instant::now();
        stream.write_all(&out)?;
        let answer = answers.next(&mut stream)?;
        times.push(start.elapsed().as_micros() as u32);
        shared.requests.fetch_add(1, Relaxed);
        let mut fields = Fields(answer);
        fields.take(8)?;
        let code = fields.first_partition()?;
        if code != 0 {
            shared.refused(&format!("error {code} of a fetch request"));
            offset = 0;
            continue;
        }
        fields.take(16)?;
        let aborted = fields.i32()?.max(0) as usize;
        fields.take(aborted * 16)?;
        let size = fields.i32()?.max(0) as usize;
        let next = behind(fields.take(size)?).unwrap_or(0);
        shared.bytes.fetch_add(size as u64, Relaxed);
        shared.messages.fetch_add((next - offset).max(0) as u64, Relaxed);
        offset = next;
    }
    shared.add_times(times);
    Ok(())
}

/// The offset behind the last whole batch.
fn behind(mut data: &[u8]) -> Option<i64> {
    let mut next = None;
    while data.len() >= BATCH_HEAD {
        let base = i64::from_be_bytes(data[..8].try_into().ok()?);
        let size = 12 + u32::from_be_bytes(data[8..12].try_into().ok()?) as usize;
        if data.len() < size {
            break;
        }
        next = Some(base + 1 + i64::from(i32::from_be_bytes(data[23..27].try_into().ok()?)));
        data = &data[size..];
    }
    next
}
