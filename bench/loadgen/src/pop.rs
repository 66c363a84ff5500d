//! Popping: a topic from its start, each message acknowledged by a request of its own.

use std::io::{self, Write};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::Instant;

use crate::frames::{number, push, text, Answers};
use crate::measure::{now_ms, Shared};
use crate::options::Options;
use crate::stream::Stream;

const POP: u32 = 200_050;
const ACK: u32 = 200_051;

/// What an acknowledgement names: the queue, the offset of the message, the receipt handle.
type Handle = (String, String, String);

/// One connection: a pop, then the acknowledgements of all its messages in one write.
///
/// When everything is popped it begins again as another group.
pub fn run(options: &Arc<Options>, conn: u64, shared: &Arc<Shared>) -> io::Result<()> {
    let mut stream = Stream::connect(options)?;
    let (topic, batch) = (options.topic(0), options.number("batch", 32).to_string());
    let broker = options.text("broker", "broker-a");
    let (mut answers, mut out, mut times) = (Answers::new(), Vec::new(), Vec::new());
    let started = now_ms();
    let (mut group, mut round, mut opaque) = (format!("loadgen_pop_{started}_{conn}_0"), 0, 0);
    while shared.running() {
        opaque += 1;
        out.clear();
        let now = now_ms().to_string();
        let fields = [
            ("consumerGroup", group.as_str()), ("topic", &topic), ("queueId", "-1"), ("maxMsgNums", &batch),
            ("invisibleTime", "60000"), ("pollTime", "0"), ("bornTime", &now), ("initMode", "0"),
            ("exp", "*"), ("expType", "TAG"), ("order", "false"),
        ];
        push(&mut out, options, POP, opaque, &fields, &[]);
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
            let fields = [
                ("consumerGroup", group.as_str()), ("topic", &topic), ("queueId", queue), ("extraInfo", handle), ("offset", offset),
            ];
            push(&mut out, options, ACK, opaque, &fields, &[]);
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
