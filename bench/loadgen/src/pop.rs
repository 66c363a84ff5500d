//! Popping: a topic from its start, each message acknowledged by a request of its own.

use std::io::{self, Write};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::Instant;

use crate::frames::{number, push, text, Answers};
use crate::measure::{now_ms, Shared};
use crate::options::Options;
use crate::stream::Stream;

const SEND: u32 = 310;
const POP: u32 = 200_050;
const ACK: u32 = 200_051;

/// What an acknowledgement names: the queue, the offset of the message, the receipt handle.
type Handle = (String, String, String);

/// One connection: a pop, then the acknowledgements of all its messages in one write.
///
/// When everything is popped it begins again as another group.
pub fn run(options: &Arc<Options>, conn: u64, shared: &Arc<Shared>) -> io::Result<()> {
    if options.flag("echo") {
        return echo(options, conn, shared);
    }
    let mut stream = Stream::connect(options)?;
    let (topic, batch) = (options.topic(0), options.number("batch", 32).to_string());
    let broker = options.text("broker", "broker-a");
    let (mut answers, mut out, mut times) = (Answers::new(), Vec::new(), Vec::new());
    let started = now_ms();
    let (mut group, mut round, mut opaque) = (format!("loadgen_pop_{started}_{conn}_0"), 0, 0);
    while shared.running() {
        opaque += 1;
        out.clear();
        push_pop(&mut out, options, opaque, &group, &topic, &batch, "0");
        let start = Instant::now();
        stream.write_all(&out)?;
        let mut taken = Vec::new();
        let mut found = true;
        answers.read(&mut stream, |header, body| {
            shared.requests.fetch_add(1, Relaxed);
            shared.bytes.fetch_add(body.len() as u64, Relaxed);
            match number(header, "code") {
                Some(0) => taken = handles(header, &broker),
                Some(210) => found = false,
                _ => shared.refused(header),
            }
        })?;
        if !found {
            round += 1;
            group = format!("loadgen_pop_{started}_{conn}_{round}");
            continue;
        }
        out.clear();
        for (queue, offset, handle) in &taken {
            opaque += 1;
            push_ack(&mut out, options, opaque, &group, &topic, (queue, offset, handle));
        }
        stream.write_all(&out)?;
        let mut left = taken.len();
        while left > 0 {
            left -= answers.read(&mut stream, |header, _| {
                shared.requests.fetch_add(1, Relaxed);
                match number(header, "code") {
                    Some(0) => drop(shared.messages.fetch_add(1, Relaxed)),
                    _ => shared.refused(header),
                }
            })?;
        }
        times.push(start.elapsed().as_micros() as u32);
    }
    shared.add_times(times);
    Ok(())
}

/// One connection with one request in flight: sends a message, pops one as a member of a group that all
/// connections share, acknowledges it.
fn echo(options: &Arc<Options>, conn: u64, shared: &Arc<Shared>) -> io::Result<()> {
    let mut stream = Stream::connect(options)?;
    let (topic, group, broker) = (options.topic(0), "loadgen_echo", options.text("broker", "broker-a"));
    let body = vec![b'x'; options.number("size", 1024) as usize];
    let (mut answers, mut out, mut times, mut opaque) = (Answers::new(), Vec::new(), Vec::new(), 0_u32);
    while shared.running() {
        let start = Instant::now();
        let (born, queue) = (now_ms().to_string(), ((u64::from(opaque) / 3 + conn) % options.number("queues", 4)).to_string());
        let properties = format!("UNIQ_KEY\u{1}7F000001{conn:08X}{opaque:016X}\u{2}WAIT\u{1}true\u{2}TAGS\u{1}TagA");
        let fields = [
            ("a", "loadgen"), ("b", topic.as_str()), ("c", "TBW102"), ("d", "4"), ("e", &queue), ("f", "0"), ("g", &born),
            ("h", "0"), ("i", &properties), ("j", "0"), ("k", "false"), ("m", "false"),
        ];
        out.clear();
        push(&mut out, options, SEND, opaque, &fields, &body);
        ask(&mut stream, &mut answers, &out, shared, |_| ())?;
        let mut taken = Vec::new();
        while taken.is_empty() && shared.running() {
            out.clear();
            push_pop(&mut out, options, opaque + 1, group, &topic, "1", "1000");
            ask(&mut stream, &mut answers, &out, shared, |header| taken = handles(header, &broker))?;
        }
        for (queue, offset, handle) in &taken {
            out.clear();
            push_ack(&mut out, options, opaque + 2, group, &topic, (queue, offset, handle));
            ask(&mut stream, &mut answers, &out, shared, |_| {
                shared.messages.fetch_add(1, Relaxed);
            })?;
        }
        opaque = (opaque + 3) & 0x3FFF_FFFF;
        times.push(start.elapsed().as_micros() as u32);
    }
    shared.add_times(times);
    Ok(())
}

/// Writes a request and reads its answer; `on_success` gets the header of one that is a success.
fn ask(
    stream: &mut Stream,
    answers: &mut Answers,
    out: &[u8],
    shared: &Shared,
    mut on_success: impl FnMut(&str),
) -> io::Result<()> {
    stream.write_all(out)?;
    let mut left = 1;
    while left > 0 {
        left -= answers.read(stream, |header, body| {
            shared.requests.fetch_add(1, Relaxed);
            shared.bytes.fetch_add(body.len() as u64, Relaxed);
            match number(header, "code") {
                Some(0) => on_success(header),
                Some(210) => (),
                _ => shared.refused(header),
            }
        })?;
    }
    Ok(())
}

fn push_pop(out: &mut Vec<u8>, options: &Options, opaque: u32, group: &str, topic: &str, batch: &str, poll: &str) {
    let now = now_ms().to_string();
    let fields = [
        ("consumerGroup", group), ("topic", topic), ("queueId", "-1"), ("maxMsgNums", batch), ("invisibleTime", "60000"),
        ("pollTime", poll), ("bornTime", &now), ("initMode", "0"), ("exp", "*"), ("expType", "TAG"), ("order", "false"),
    ];
    push(out, options, POP, opaque, &fields, &[]);
}

fn push_ack(out: &mut Vec<u8>, options: &Options, opaque: u32, group: &str, topic: &str, of: (&str, &str, &str)) {
    let (queue, offset, handle) = of;
    let fields = [
        ("consumerGroup", group), ("topic", topic), ("queueId", queue), ("extraInfo", handle), ("offset", offset),
    ];
    push(out, options, ACK, opaque, &fields, &[]);
}

/// The handles of an answer's messages, built as clients build them.
fn handles(header: &str, broker: &str) -> Vec<Handle> {
    let (Some(starts), Some(offsets)) = (text(header, "startOffsetInfo"), text(header, "msgOffsetInfo")) else {
        return Vec::new();
    };
    let of = |name| number(header, name).unwrap_or(0);
    let (pop, invisible, revive) = (of("popTime"), of("invisibleTime"), of("reviveQid"));
    let mut found = Vec::new();
    for (start, listed) in starts.split(';').zip(offsets.split(';')) {
        let (mut start, mut listed) = (start.split(' '), listed.split(' '));
        let (Some(flag), Some(queue), Some(begin)) = (start.next(), start.next(), start.next()) else { continue };
        for offset in listed.nth(2).unwrap_or("").split(',').filter(|it| !it.is_empty()) {
            let handle = format!("{begin} {pop} {invisible} {revive} {flag} {broker} {queue} {offset}");
            found.push((queue.to_string(), offset.to_string(), handle));
        }
    }
    found
}
