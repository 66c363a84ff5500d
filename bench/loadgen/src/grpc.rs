//! RocketMQ's gRPC: sends, and receives with one acknowledgement for each batch, over `h2`.
//!
//! Messages are written by hand: a load uses few fields, and their numbers are those of the protocol's definitions.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use h2::SendStream;
use http::{HeaderMap, Request};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};

use crate::measure::Shared;
use crate::options::Options;

const SERVICE: &str = "apache.rocketmq.v2.MessagingService";
const OK: u64 = 20_000;
/// There is no message for a receive.
const NOTHING: u64 = 40_401;
const SIMPLE_CONSUMER: u64 = 3;
const WINDOW: u32 = 8 << 20;
const PREFIX: usize = 5;
/// Calls end with an error after it, so that a load ends.
const CALL: Duration = Duration::from_secs(40);

pub fn send(options: &Arc<Options>, conn: u64, shared: &Arc<Shared>) -> io::Result<()> {
    run(async {
        let client = Client::connect(options, conn).await?;
        let local = tokio::task::LocalSet::new();
        for stream in 0..options.number("depth", 1) {
            let (client, options, shared) = (client.clone(), options.clone(), shared.clone());
            local.spawn_local(async move {
                if let Err(error) = sender(client, &options, conn << 16 | stream, &shared).await {
                    shared.refused(&error.to_string());
                }
            });
        }
        local.await;
        Ok(())
    })
}

/// Sends one message after the other.
async fn sender(client: Client, options: &Options, number: u64, shared: &Shared) -> io::Result<()> {
    let (mut turn, mut times) = (0_u64, Vec::new());
    let body = vec![b'x'; options.number("size", 1024) as usize];
    while shared.running() {
        turn += 1;
        let mut message = Proto::default();
        message.resource(1, &options.topic(turn));
        for index in 0..options.number("properties", 3) {
            let mut entry = Proto::default();
            entry.text(1, &format!("property{index}")).text(2, "value");
            message.message(2, &entry);
        }
        let mut system = Proto::default();
        system.text(1, "TagA").text(3, &format!("01{number:016X}{turn:016X}")).number(5, 1).number(6, 1);
        message.message(3, &system).bytes(4, &body);
        let mut request = Proto::default();
        request.message(1, &message);
        let start = Instant::now();
        let answer = client.call("SendMessage", &request).await?;
        shared.requests.fetch_add(1, Relaxed);
        match answer.first().map(|answer| status_of(answer)) {
            Some(OK) => {
                shared.messages.fetch_add(1, Relaxed);
                shared.bytes.fetch_add(body.len() as u64, Relaxed);
            }
            other => shared.refused(&format!("SendMessage: {other:?}")),
        }
        times.push(start.elapsed().as_micros() as u32);
    }
    shared.add_times(times);
    Ok(())
}

/// Receives batches of one group and acknowledges each with one call, until nothing is left.
pub fn receive(options: &Arc<Options>, conn: u64, shared: &Arc<Shared>) -> io::Result<()> {
    run(async {
        let client = Client::connect(options, conn).await?;
        let (topic, group) = (options.topic(0), options.text("group", "loadgen"));
        let _telemetry = client.telemetry(&topic, &group).await?;
        let mut times = Vec::new();
        while shared.running() {
            let mut queue = Proto::default();
            let mut broker = Proto::default();
            broker.text(1, &options.text("broker", "broker-a"));
            queue.resource(1, &topic).number(2, u64::MAX).message(4, &broker);
            let mut filter = Proto::default();
            filter.number(1, 1).text(2, "*");
            let mut request = Proto::default();
            request.resource(1, &group).message(2, &queue).message(3, &filter).number(4, options.number("batch", 32));
            request.seconds(5, 60).seconds(7, 5);
            let start = Instant::now();
            let parts = client.call("ReceiveMessage", &request).await?;
            shared.requests.fetch_add(1, Relaxed);
            let (mut acks, mut taken) = (Proto::default(), 0);
            acks.resource(1, &group).resource(2, &topic);
            for part in &parts {
                if let Some(message) = field(part, 2) {
                    let system = field(message, 3).unwrap_or_default();
                    let mut entry = Proto::default();
                    entry.bytes(1, field(system, 3).unwrap_or_default()).bytes(2, field(system, 12).unwrap_or_default());
                    acks.message(3, &entry);
                    taken += 1;
                    shared.bytes.fetch_add(part.len() as u64, Relaxed);
                } else if let Some(status) = field(part, 1) {
                    let code = varint_field(status, 1);
                    if code != OK && code != NOTHING {
                        shared.refused(&format!("ReceiveMessage: {code}"));
                    }
                }
            }
            if taken == 0 {
                continue;
            }
            let answer = client.call("AckMessage", &acks).await?;
            shared.requests.fetch_add(1, Relaxed);
            match answer.first().map(|answer| status_of(answer)) {
                Some(OK) => drop(shared.messages.fetch_add(taken, Relaxed)),
                other => shared.refused(&format!("AckMessage: {other:?}")),
            }
            times.push(start.elapsed().as_micros() as u32);
        }
        shared.add_times(times);
        Ok(())
    })
}

/// Opens `--streams` telemetry streams on connections of their own, and holds them.
pub fn idle(options: &Arc<Options>, conn: u64, shared: &Arc<Shared>) -> io::Result<()> {
    run(async {
        let mut held = Vec::new();
        for stream in 0..options.number("streams", 1) {
            let client = Client::connect(options, conn << 32 | stream).await?;
            let telemetry = client.telemetry(&options.topic(0), &options.text("group", "loadgen")).await?;
            shared.messages.fetch_add(1, Relaxed);
            held.push((client, telemetry));
        }
        while shared.running() {
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    })
}

fn run(work: impl std::future::Future<Output = io::Result<()>>) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, work)
}

#[derive(Clone)]
struct Client {
    connection: SendRequest<Bytes>,
    address: String,
    id: String,
}

impl Client {
    async fn connect(options: &Options, number: u64) -> io::Result<Self> {
        let socket = TcpStream::connect(&options.address).await?;
        socket.set_nodelay(true)?;
        let (connection, driver) = h2::client::Builder::new()
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .handshake(socket)
            .await
            .map_err(io::Error::other)?;
        tokio::task::spawn_local(driver);
        let id = format!("loadgen@{}@{number}", std::process::id());
        Ok(Self { connection, address: options.address.clone(), id })
    }

    async fn begin(&self, method: &str) -> io::Result<(ResponseFuture, SendStream<Bytes>)> {
        let request = Request::post(format!("http://{}/{SERVICE}/{method}", self.address))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("x-mq-client-id", &self.id)
            .header("x-mq-client-version", "5.2.0")
            .header("x-mq-language", "JAVA")
            .header("x-mq-protocol", "v2")
            .header("x-mq-request-id", "0")
            .header("x-mq-namespace", "")
            .header("grpc-timeout", "35S")
            .body(())
            .map_err(io::Error::other)?;
        let mut connection = self.connection.clone().ready().await.map_err(io::Error::other)?;
        connection.send_request(request, false).map_err(io::Error::other)
    }

    /// Calls a method; returns the messages of the answer.
    async fn call(&self, method: &str, request: &Proto) -> io::Result<Vec<Bytes>> {
        let (response, mut stream) = self.begin(method).await?;
        stream.send_data(request.framed(), true).map_err(io::Error::other)?;
        let whole = async {
            let mut body = response.await.map_err(io::Error::other)?.into_body();
            let mut data = BytesMut::new();
            while let Some(chunk) = body.data().await {
                let chunk = chunk.map_err(io::Error::other)?;
                data.extend_from_slice(&chunk);
                body.flow_control().release_capacity(chunk.len()).map_err(io::Error::other)?;
            }
            Ok::<_, io::Error>(messages(data.freeze()))
        };
        timeout(CALL, whole).await.map_err(io::Error::other)?
    }

    /// Opens a telemetry stream, shows the settings of a simple consumer, and waits for the answer.
    async fn telemetry(&self, topic: &str, group: &str) -> io::Result<(SendStream<Bytes>, h2::RecvStream)> {
        let (mut filter, mut entry, mut subscription) = (Proto::default(), Proto::default(), Proto::default());
        filter.number(1, 1).text(2, "*");
        entry.resource(1, topic).message(2, &filter);
        subscription.resource(1, group).message(2, &entry);
        let (mut agent, mut settings, mut command) = (Proto::default(), Proto::default(), Proto::default());
        agent.number(1, 2).text(2, "5.2.0").text(4, "loadgen");
        settings.number(1, SIMPLE_CONSUMER).seconds(4, 3).message(6, &subscription).message(7, &agent);
        command.message(2, &settings);
        let (response, mut stream) = self.begin("Telemetry").await?;
        stream.send_data(command.framed(), false).map_err(io::Error::other)?;
        let first = async {
            let response = response.await.map_err(io::Error::other)?;
            let head = response.headers().clone();
            let mut body = response.into_body();
            let Some(chunk) = body.data().await else {
                let trailers = body.trailers().await.map_err(io::Error::other)?;
                return Err(io::Error::other(format!("no settings: {}", ended(&trailers.unwrap_or(head)))));
            };
            chunk.map_err(io::Error::other)?;
            Ok::<_, io::Error>(body)
        };
        let body = timeout(CALL, first).await.map_err(io::Error::other)??;
        Ok((stream, body))
    }
}

/// How a call ended, by its trailers.
fn ended(trailers: &HeaderMap) -> String {
    let text = |name| trailers.get(name).map_or("", |value| value.to_str().unwrap_or_default());
    format!("status {} {}", text("grpc-status"), text("grpc-message"))
}

/// Cuts what a stream has brought into messages.
fn messages(mut data: Bytes) -> Vec<Bytes> {
    let mut found = Vec::new();
    while data.len() >= PREFIX {
        data.advance(1);
        let length = data.get_u32() as usize;
        found.push(data.split_to(length.min(data.len())));
    }
    found
}

fn status_of(answer: &[u8]) -> u64 {
    field(answer, 1).map_or(0, |status| varint_field(status, 1))
}

/// A message of protobuf that is being written.
#[derive(Default)]
struct Proto(Vec<u8>);

impl Proto {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u64, value: u64) -> &mut Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    fn bytes(&mut self, field: u64, value: &[u8]) -> &mut Self {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    fn text(&mut self, field: u64, value: &str) -> &mut Self {
        self.bytes(field, value.as_bytes())
    }

    fn message(&mut self, field: u64, value: &Self) -> &mut Self {
        self.bytes(field, &value.0)
    }

    fn resource(&mut self, field: u64, name: &str) -> &mut Self {
        let mut resource = Self::default();
        resource.text(2, name);
        self.message(field, &resource)
    }

    fn seconds(&mut self, field: u64, seconds: u64) -> &mut Self {
        let mut duration = Self::default();
        duration.number(1, seconds);
        self.message(field, &duration)
    }

    fn framed(&self) -> Bytes {
        let mut data = vec![0];
        data.extend_from_slice(&(self.0.len() as u32).to_be_bytes());
        data.extend_from_slice(&self.0);
        data.into()
    }
}

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Reads the fields of a message; ends at what it does not know.
fn fields(mut data: &[u8]) -> impl Iterator<Item = (u64, Value<'_>)> {
    std::iter::from_fn(move || {
        let key = varint(&mut data)?;
        let value = match key & 7 {
            0 => Value::Number(varint(&mut data)?),
            2 => {
                let length = varint(&mut data)? as usize;
                let (value, rest) = data.split_at_checked(length)?;
                data = rest;
                Value::Bytes(value)
            }
            _ => return None,
        };
        Some((key >> 3, value))
    })
}

fn varint(data: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = data.split_first()?;
        *data = rest;
        value |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn field(data: &[u8], wanted: u64) -> Option<&[u8]> {
    fields(data).find_map(|(number, value)| match value {
        Value::Bytes(bytes) if number == wanted => Some(bytes),
        _ => None,
    })
}

fn varint_field(data: &[u8], wanted: u64) -> u64 {
    let found = fields(data).find_map(|(number, value)| match value {
        Value::Number(value) if number == wanted => Some(value),
        _ => None,
    });
    found.unwrap_or(0)
}
