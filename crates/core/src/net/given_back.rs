//! Giving a connection back to the loop, which goes on with it as if it had accepted it.
//!
//! **Invariant.** Either the thread has the connection or the loop. The loop asks
//! ([`Handle::give_back`]) and orders no writes from then on; the thread has obeyed all orders of before
//! by the time it reads this one, so that it has nothing to write unless the peer takes nothing. It
//! gives the connection up when nothing is left to do for it: no output, no answer that waits for a
//! flush or a copy, no end that is under way. Otherwise it says that the connection stays.
//! All frames that it has read are in the news before that, and it reads nothing behind it: what
//! the loop then finds in the socket follows on the start of a frame that it is given.
//! A connection over TLS takes its session along, which has the start of a record.

use std::net::TcpStream;

use super::handle::Handle;
use super::lane::Order;
use crate::ingest::Handed;
use crate::store::health::hold;
use crate::tls::Session;

/// What the loop gets.
pub(super) struct GivenBack {
    /// No thread watches it any more.
    pub(super) socket: Option<TcpStream>,
    /// What opens and seals between socket and frames, if anything.
    pub(super) session: Option<Box<Session>>,
    /// What was known of its peer.
    pub(super) handed: Handed,
}

impl Handle {
    /// Wants the connection back: [`super::News::GivenBack`] or [`super::News::Stays`] follows, unless it
    /// has ended.
    pub fn give_back(&self) {
        self.lane.order(Order::GiveBack(self.key()));
    }

    /// Takes the socket that the thread has given back, once.
    pub fn take_socket(&self) -> Option<TcpStream> {
        hold(&self.given_back).as_mut()?.socket.take()
    }

    /// Takes the TLS of the connection, once, behind the socket; `None` for a plain one.
    pub fn take_session(&self) -> Option<Session> {
        let session = hold(&self.given_back).as_mut()?.session.take()?;
        Some(*session)
    }

    /// Takes what was known of its peer there, once, behind the socket.
    pub fn take_back(&self) -> Option<Handed> {
        hold(&self.given_back).take().map(|back| back.handed)
    }
}
