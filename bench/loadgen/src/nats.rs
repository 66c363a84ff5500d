//! NATS JetStream's protocol: publishing that waits for acknowledgements, and pull consumers.

use std::io::{self, Read, Write};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::Instant;

use crate::measure::Shared;
use crate::options::Options;
use crate::stream::Stream;

const RING: usize = 1 << 16;
const CHUNK: usize = 1 << 18;

/// One message of the server.
struct Message<'a> {
    subject: &'a str,
    /// A status instead of a message of the stream.
    is_status: bool,
    body: &'a [u8],
}

struct Connection {
    stream: Stream,
    buffer: Vec<u8>,
    from: usize,
}

impl Connection {
    /// Connects, and listens to answers below `_INBOX.c<conn>`.
    fn open(options: &Options, conn: u64) -> io::Result<Self> {
        let mut found = Self { stream: Stream::connect(options)?, buffer: Vec::new(), from: 0 };
        let hello = "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true}\r\n";
        write!(found.stream, "{hello}SUB _INBOX.c{conn}.* 1\r\n")?;
        Ok(found)
    }

    /// Hands every whole message to `take`, after reading when there is none.
    fn read(&mut self, mut take: impl FnMut(&Message<'_>)) -> io::Result<usize> {
        loop {
            let mut seen = 0;
            while let Some((line_end, end, head)) = self.whole()? {
                let line = std::str::from_utf8(&self.buffer[self.from..line_end]).unwrap_or("");
                let mut words = line.split(' ');
                let kind = words.next().unwrap_or("");
                if kind == "PING" {
                    self.stream.write_all(b"PONG\r\n")?;
                } else if kind == "-ERR" {
                    return Err(io::Error::other(line.to_string()));
                } else if kind.ends_with("MSG") {
                    let body = &self.buffer[line_end + 2 + head..end - 2];
                    let subject = words.next().unwrap_or("");
                    take(&Message { subject, is_status: kind == "HMSG", body });
                    seen += 1;
                }
                self.from = end;
            }
            if seen > 0 {
                return Ok(seen);
            }
            self.buffer.drain(..self.from);
            self.from = 0;
            let old = self.buffer.len();
            self.buffer.resize(old + CHUNK, 0);
            let read = self.stream.read(&mut self.buffer[old..]);
            self.buffer.truncate(old + read.as_ref().unwrap_or(&0));
            if read? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Where the next operation's line and all of it end, and how long its headers are.
    fn whole(&self) -> io::Result<Option<(usize, usize, usize)>> {
        let rest = &self.buffer[self.from..];
        let Some(length) = rest.windows(2).position(|two| two == b"\r\n") else { return Ok(None) };
        let line = std::str::from_utf8(&rest[..length]).unwrap_or("");
        let line_end = self.from + length;
        let mut numbers = line.rsplit(' ').map(str::parse::<usize>);
        let mut number = || numbers.next().and_then(Result::ok).ok_or_else(|| io::Error::other(line.to_string()));
        let (size, head) = match line.split(' ').next() {
            Some("MSG") => (number()?, 0),
            Some("HMSG") => (number()?, number()?),
            _ => return Ok(Some((line_end, line_end + 2, 0))),
        };
        let end = line_end + 2 + size + 2;
        Ok((end <= self.buffer.len()).then_some((line_end, end, head)))
    }

    /// Asks the server something, and waits for its answer.
    fn ask(&mut self, conn: u64, subject: &str, text: &str) -> io::Result<()> {
        write!(self.stream, "PUB {subject} _INBOX.c{conn}.ask {}\r\n{text}\r\n", text.len())?;
        let mut refused = None;
        self.read(|message| {
            let answer = String::from_utf8_lossy(message.body);
            if message.is_status || answer.contains("\"error\"") {
                refused = Some(answer.into_owned());
            }
        })?;
        refused.map_or(Ok(()), |text| Err(io::Error::other(text)))
    }
}

/// Makes the stream that has all subjects below the topic.
pub fn create(options: &Arc<Options>, conn: u64, shared: &Arc<Shared>) -> io::Result<()> {
    let topic = options.topic(0);
    let config = format!("{{\"name\":\"{topic}\",\"subjects\":[\"{topic}.*\"],\"storage\":\"file\",\"num_replicas\":1}}");
    Connection::open(options, conn)?.ask(conn, &format!("$JS.API.STREAM.CREATE.{topic}"), &config)?;
    shared.messages.fetch_add(1, Relaxed);
    Ok(())
}

/// Keeps `depth` messages in flight; a burst waits for all its answers.
pub fn send(options: &Arc<Options>, conn: u64, shared: &Arc<Shared>) -> io::Result<()> {
    let mut connection = Connection::open(options, conn)?;
    let (depth, queues) = (options.number("depth", 1) as usize, options.number("queues", 4));
    let body = vec![b'x'; options.number("size", 1024) as usize];
    let topic = options.topic(0);
    let mut sent_at = vec![Instant::now(); RING];
    let (mut out, mut times, mut number) = (Vec::new(), Vec::new(), 0u64);
    while shared.running() {
        out.clear();
        let start = Instant::now();
        for _ in 0..depth {
            number += 1;
            sent_at[number as usize % RING] = start;
            let queue = (number + conn) % queues;
            write!(out, "PUB {topic}.{queue} _INBOX.c{conn}.{number} {}\r\n", body.len())?;
            out.extend_from_slice(&body);
            out.extend_from_slice(b"\r\n");
        }
        connection.stream.write_all(&out)?;
        let mut left = depth;
        while left > 0 {
            left -= connection.read(|message| {
                if message.is_status || !message.body.starts_with(b"{\"stream\"") {
                    return shared.refused(&String::from_utf8_lossy(message.body));
                }
                shared.messages.fetch_add(1, Relaxed);
                let number = message.subject.rsplit('.').next().and_then(|text| text.parse::<usize>().ok());
                times.push(sent_at[number.unwrap_or(0) % RING].elapsed().as_micros() as u32);
            })?;
        }
    }
    shared.add_times(times);
    Ok(())
}

/// One connection, one request in flight, the stream from its start to its end and again.
pub fn pull(options: &Arc<Options>, conn: u64, shared: &Arc<Shared>) -> io::Result<()> {
    let mut connection = Connection::open(options, conn)?;
    let (topic, batch) = (options.topic(0), options.number("batch", 32) as usize);
    let text = format!("{{\"batch\":{batch},\"no_wait\":true}}");
    let run = std::process::id();
    let (mut times, mut round) = (Vec::new(), 0);
    while shared.running() {
        round += 1;
        let name = format!("c{run}x{conn}x{round}");
        let config = format!(
            "{{\"stream_name\":\"{topic}\",\"config\":{{\"name\":\"{name}\",\"ack_policy\":\"none\",\"deliver_policy\":\"all\",\"inactive_threshold\":60000000000,\"mem_storage\":true}}}}"
        );
        connection.ask(conn, &format!("$JS.API.CONSUMER.CREATE.{topic}.{name}"), &config)?;
        let mut is_over = false;
        while shared.running() && !is_over {
            let start = Instant::now();
            write!(connection.stream, "PUB $JS.API.CONSUMER.MSG.NEXT.{topic}.{name} _INBOX.c{conn}.{round} {}\r\n{text}\r\n", text.len())?;
            let mut left = batch;
            while left > 0 && !is_over {
                connection.read(|message| {
                    if message.is_status {
                        is_over = true;
                        return;
                    }
                    left = left.saturating_sub(1);
                    shared.messages.fetch_add(1, Relaxed);
                    shared.bytes.fetch_add(message.body.len() as u64, Relaxed);
                })?;
            }
            shared.requests.fetch_add(1, Relaxed);
            times.push(start.elapsed().as_micros() as u32);
        }
    }
    shared.add_times(times);
    Ok(())
}
