//! How a connection begins: with TLS or without, and behind a balancer with what it says first.
//!
//! **Invariant.** What a balancer says of a client's address counts only where the balancer itself is
//! listed: anybody else could have any address, and with it the rights of that address.

pub(super) mod places;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::sleep;
use tokio_rustls::server::TlsStream;
use tokio_rustls::TlsAcceptor;

use crate::grpc::balancer::{self, Kind};
use crate::tls::ServerTls;

/// The first byte of a connection with TLS; that of plain HTTP/2 is the letter P.
const CLIENT_HELLO: u8 = 0x16;
/// Between looks at a beginning that is too short to tell what it is.
const LOOK: Duration = Duration::from_millis(5);

/// How connections may begin. A connection is judged by the door as it was when it was accepted.
#[derive(Clone, Debug, Default)]
pub struct Door {
    /// None: TLS is refused.
    pub tls: Option<ServerTls>,
    /// Whether connections without TLS are refused.
    pub only_tls: bool,
    /// Networks, as address and length, whose peers say by the PROXY protocol whom they speak for.
    pub balancers: Vec<(IpAddr, u8)>,
}

/// A connection that may go on.
pub(super) enum Entered {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Why a connection may not go on.
pub(super) enum Refusal {
    /// The client has left, or has said nothing.
    Left,
    /// It is told in the log.
    Because(String),
}

impl From<io::Error> for Refusal {
    fn from(_: io::Error) -> Self {
        Self::Left
    }
}

impl Door {
    /// Hears how a connection begins; returns it with the client's address.
    pub(super) async fn enter(
        &self,
        mut socket: TcpStream,
        peer: SocketAddr,
    ) -> Result<(Entered, SocketAddr), Refusal> {
        let peer = if self.is_balancer(peer.ip().to_canonical()) {
            announced(&mut socket).await?.unwrap_or(peer)
        } else {
            peer
        };
        let mut first = [0];
        if socket.peek(&mut first).await? == 0 {
            return Err(Refusal::Left);
        }
        let [first] = first;
        if first != CLIENT_HELLO {
            if self.only_tls {
                let why = "it does not speak TLS, and the port takes nothing else";
                return Err(Refusal::Because(why.to_owned()));
            }
            return Ok((Entered::Plain(socket), peer));
        }
        let Some(tls) = &self.tls else {
            let why = "it wants TLS, and the port has none";
            return Err(Refusal::Because(why.to_owned()));
        };
        let stream = TlsAcceptor::from(tls.0.clone()).accept(socket).await;
        match stream {
            Ok(stream) => Ok((Entered::Tls(Box::new(stream)), peer)),
            Err(error) => Err(Refusal::Because(format!(
                "no TLS could be agreed on ({error})"
            ))),
        }
    }

    /// Tells whether a peer may say for whom it speaks.
    pub(super) fn is_balancer(&self, peer: IpAddr) -> bool {
        self.balancers
            .iter()
            .any(|&(network, length)| balancer::contains(network, length, peer))
    }
}

/// Takes what a balancer says first; returns the client's address if it names one.
async fn announced(socket: &mut TcpStream) -> Result<Option<SocketAddr>, Refusal> {
    let mut seen = [0; balancer::TELLING];
    let kind = loop {
        let count = socket.peek(&mut seen).await?;
        if count == 0 {
            return Err(Refusal::Left);
        }
        match Kind::of(seen.get(..count).unwrap_or(&seen)) {
            Some(kind) => break kind,
            None => sleep(LOOK).await,
        }
    };
    if kind == Kind::Nothing {
        return Ok(None);
    }
    let bad = |why| Refusal::Because(format!("its PROXY header is bad: {why}"));
    let mut header = balancer::Header::default();
    loop {
        let wanted = header.wanted().map_err(bad)?;
        if wanted == 0 {
            return header.client().map_err(bad);
        }
        let mut bytes = vec![0; wanted];
        socket.read_exact(&mut bytes).await?;
        header.take(&bytes);
    }
}
