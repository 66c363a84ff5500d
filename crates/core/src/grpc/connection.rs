//! Accepting connections, and what is true of each for as long as it lasts.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, Connection};
use h2::{Ping, PingPong, Reason};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{watch, Notify};
use tokio::time::{interval, sleep, timeout, Instant, MissedTickBehavior};

use super::authority::OneAuthority;
use super::door::places::Place;
use super::door::{Door, Entered, Refusal};
use super::head::{shown, Origin};
use super::{call, Link, News, Phase, Shared};

/// Bytes of a stream, and of a connection, that a client may send ahead.
const WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;
/// Bytes of answers that HTTP/2 itself keeps for a stream.
const SEND_BUFFER: usize = 64 << 10;
const TICK: Duration = Duration::from_secs(1);
const PING_EVERY: Duration = Duration::from_mins(1);
const RESETS_EVERY: Duration = Duration::from_secs(10);
/// After a failed accept, as without descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// For calls under way when the server stops.
const GRACE: Duration = Duration::from_secs(3);

/// Accepts until the server stops, and waits for what is under way.
pub(super) async fn accept(
    shared: Arc<Shared>,
    listener: std::net::TcpListener,
    mut phase: watch::Receiver<Phase>,
) {
    let Ok(listener) = TcpListener::from_std(listener) else {
        return;
    };
    tokio::spawn(Arc::clone(&shared).distribute());
    tokio::spawn(Arc::clone(&shared).announce());
    let (away, leaving) = watch::channel(false);
    loop {
        tokio::select! {
            found = listener.accept() => match found {
                Ok((socket, peer)) => adopt(&shared, socket, peer, leaving.clone()),
                Err(_) => sleep(PAUSE).await,
            },
            _ = phase.changed() => break,
        }
    }
    // Whoever has connected already hears that it should go: reset, its first call would fail.
    while let Ok(Ok((socket, peer))) = timeout(Duration::ZERO, listener.accept()).await {
        adopt(&shared, socket, peer, leaving.clone());
    }
    // Before anybody is sent away, or he could come back here.
    drop(listener);
    let _ = away.send(true);
    // An error means that the server is dropped.
    let _ = phase.wait_for(|now| *now == Phase::Ending).await;
    let end = Instant::now() + GRACE;
    while Instant::now() < end && !super::hold(&shared.links).is_empty() {
        sleep(Duration::from_millis(5)).await;
    }
}

fn adopt(
    shared: &Arc<Shared>,
    socket: TcpStream,
    peer: SocketAddr,
    leaving: watch::Receiver<bool>,
) {
    let mut links = super::hold(&shared.links);
    if links.len() >= shared.limits.connections {
        // Closed at once: it costs the client a new attempt, and nobody else anything.
        return;
    }
    let door = super::hold(&shared.door).clone();
    // Of a balancer, its clients count, and who they are comes later.
    let is_balancer = door.is_balancer(peer.ip().to_canonical());
    let place = (!is_balancer).then(|| place(shared, peer));
    if matches!(place, Some(None)) {
        return;
    }
    let link = Arc::new(Link {
        key: shared.number(),
        unsent: AtomicUsize::new(0),
        inbound: AtomicUsize::new(0),
        waited_for: AtomicBool::new(false),
        calls: AtomicUsize::new(0),
        resets: AtomicUsize::new(0),
        aborted: Notify::new(),
    });
    links.insert(link.key, Arc::clone(&link));
    drop(links);
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        // Without it answers wait for acknowledgements; it fails on sockets that have ended.
        let _ = socket.set_nodelay(true);
        tokio::select! {
            () = welcome(&shared, &link, &door, socket, peer, leaving) => {}
            () = link.aborted.notified() => {}
        }
        drop(place);
        super::hold(&shared.links).remove(&link.key);
        shared.tell(News::Closed(link.key));
    });
}

/// Counts a connection of an address; None, and a line in the log, for one too many.
fn place(shared: &Shared, client: SocketAddr) -> Option<Place> {
    let most = shared.limits.address_connections;
    let place = shared.places.take(client.ip(), most);
    if place.is_none() {
        let why = format!("too many connections: its address has {most}");
        shared.tell(News::Refused(shown(client), why));
    }
    place
}

/// Hears how a connection begins, and serves it to its end.
async fn welcome(
    shared: &Arc<Shared>,
    link: &Arc<Link>,
    door: &Door,
    socket: TcpStream,
    peer: SocketAddr,
    leaving: watch::Receiver<bool>,
) {
    let local = socket.local_addr().map_or_else(|_| String::new(), shown);
    let entered = timeout(shared.limits.patience, door.enter(socket, peer)).await;
    let (stream, client) = match entered {
        Ok(Ok(entered)) => entered,
        Ok(Err(Refusal::Because(why))) => return shared.tell(News::Refused(shown(peer), why)),
        // It has left, or said nothing for long: that is nobody's fault.
        Ok(Err(Refusal::Left)) | Err(_) => return,
    };
    let _place = if door.is_balancer(peer.ip().to_canonical()) {
        let Some(place) = place(shared, client) else {
            return;
        };
        Some(place)
    } else {
        None
    };
    let origin = Arc::new(Origin::new(client, local));
    match stream {
        Entered::Plain(stream) => serve(shared, link, &origin, stream, leaving).await,
        Entered::Tls(stream) => serve(shared, link, &origin, *stream, leaving).await,
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    shared: &Arc<Shared>,
    link: &Arc<Link>,
    origin: &Arc<Origin>,
    socket: S,
    mut leaving: watch::Receiver<bool>,
) {
    let limits = &shared.limits;
    let mut builder = Builder::new();
    builder
        .initial_window_size(WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(limits.calls)
        .max_header_list_size(limits.header_bytes)
        .max_send_buffer_size(SEND_BUFFER);
    let Ok(Ok(mut connection)) = timeout(
        limits.patience,
        builder.handshake(OneAuthority::new(socket)),
    )
    .await
    else {
        return;
    };
    let mut watch = Watch::new(connection.ping_pong());
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_leaving = false;
    loop {
        tokio::select! {
            accepted = connection.accept() => {
                let Some(Ok((request, respond))) = accepted else {
                    return;
                };
                watch.used = Instant::now();
                let (shared, link, origin) = (Arc::clone(shared), Arc::clone(link), Arc::clone(origin));
                tokio::spawn(call::serve(shared, link, origin, request, respond));
            }
            answered = pong(watch.pings.as_mut()) => {
                if !answered {
                    return;
                }
                watch.asked = None;
            }
            _ = tick.tick() => {
                if !watch.is_good(shared, link, &mut connection) {
                    // The reason is written before the socket is closed.
                    let _ = timeout(TICK, connection.accept()).await;
                    return;
                }
            }
            () = left(&mut leaving), if !is_leaving => {
                is_leaving = true;
                connection.graceful_shutdown();
            }
        }
    }
}

/// Waits until connections shall end; an error means that the server is dropped.
async fn left(leaving: &mut watch::Receiver<bool>) {
    let _ = leaving.wait_for(|now| *now).await;
}

/// What ends a connection by time.
struct Watch {
    pings: Option<PingPong>,
    asked: Option<Instant>,
    pinged: Instant,
    used: Instant,
    resets_since: Instant,
    leaving: Option<Instant>,
}

impl Watch {
    fn new(pings: Option<PingPong>) -> Self {
        let now = Instant::now();
        Self {
            pings,
            asked: None,
            pinged: now,
            used: now,
            resets_since: now,
            leaving: None,
        }
    }

    /// Tells whether the connection goes on.
    fn is_good<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        shared: &Shared,
        link: &Link,
        connection: &mut Connection<S, Bytes>,
    ) -> bool {
        let (now, limits) = (Instant::now(), &shared.limits);
        let resets = link.resets.load(Ordering::SeqCst);
        if u32::try_from(resets).unwrap_or(u32::MAX) > limits.resets {
            connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
            return false;
        }
        if now - self.resets_since >= RESETS_EVERY {
            self.resets_since = now;
            link.resets.store(0, Ordering::SeqCst);
        }
        if link.calls.load(Ordering::SeqCst) > 0 {
            self.used = now;
        }
        if self
            .leaving
            .is_some_and(|since| now - since > limits.patience)
        {
            return false;
        }
        if self.leaving.is_none() && now - self.used >= limits.idle {
            connection.graceful_shutdown();
            self.leaving = Some(now);
        }
        if self
            .asked
            .is_some_and(|since| now - since > limits.patience)
        {
            return false;
        }
        if self.asked.is_none() && now - self.pinged >= PING_EVERY {
            self.pinged = now;
            let sent = self
                .pings
                .as_mut()
                .map(|pings| pings.send_ping(Ping::opaque()));
            self.asked = matches!(sent, Some(Ok(()))).then_some(now);
        }
        true
    }
}

/// Waits for the answer to a ping; false: there will be none.
async fn pong(pings: Option<&mut PingPong>) -> bool {
    match pings {
        Some(pings) => poll_fn(|context| pings.poll_pong(context)).await.is_ok(),
        None => std::future::pending().await,
    }
}
