//! Messages of gRPC within the data of a stream: one byte of flags, four of length, the message.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::RecvStream;

use super::{Link, Shared};

const PREFIX: usize = 5;
/// `RESOURCE_EXHAUSTED`.
pub(super) const EXHAUSTED: u8 = 8;
/// `UNIMPLEMENTED`.
pub(super) const UNIMPLEMENTED: u8 = 12;
/// `INTERNAL`.
pub(super) const INTERNAL: u8 = 13;

/// Why there is no further message.
pub(super) enum Fault {
    /// Nobody waits for an answer.
    Gone,
    /// The call ends with this.
    Status(u8, String),
}

/// A message as it is sent; None when it is too long for gRPC.
pub(super) fn framed(message: &[u8]) -> Option<Bytes> {
    let length = u32::try_from(message.len()).ok()?;
    let mut data = BytesMut::with_capacity(PREFIX + message.len());
    data.put_u8(0);
    data.put_u32(length);
    data.put_slice(message);
    Some(data.freeze())
}

/// Reads the messages of a request; what it keeps counts until it is dropped.
pub(super) struct Reader {
    shared: Arc<Shared>,
    link: Arc<Link>,
    /// Bytes of requests of the account that has signed the call, which are not answered.
    account: Option<Arc<AtomicUsize>>,
    body: RecvStream,
    buffer: BytesMut,
    /// A message that came in one piece, with its prefix: it is not copied.
    whole: Option<Bytes>,
    counted: usize,
    /// Bytes of the longest message.
    most: usize,
}

impl Reader {
    pub(super) fn new(
        shared: Arc<Shared>,
        link: Arc<Link>,
        account: Option<Arc<AtomicUsize>>,
        body: RecvStream,
    ) -> Self {
        let most = shared.limits.message_bytes;
        Self {
            shared,
            link,
            account,
            body,
            buffer: BytesMut::new(),
            whole: None,
            counted: 0,
            most,
        }
    }

    /// Allows messages of so many bytes, if that is less than anybody may send.
    pub(super) fn limit(&mut self, most: usize) {
        self.most = most.min(self.shared.limits.message_bytes);
    }

    /// Forgets the bytes of messages that were handed on.
    pub(super) fn release(&mut self) {
        let spare = self.counted.saturating_sub(self.buffer.len());
        self.forget(spare);
    }

    fn forget(&mut self, size: usize) {
        self.shared.inbound.fetch_sub(size, Ordering::Relaxed);
        self.link.inbound.fetch_sub(size, Ordering::Relaxed);
        if let Some(account) = &self.account {
            account.fetch_sub(size, Ordering::Relaxed);
        }
        self.counted -= size;
    }

    /// Returns the next message; None at the end. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Fault> {
        loop {
            if let Some(message) = self.cut()? {
                return Ok(Some(message));
            }
            match self.body.data().await {
                Some(Ok(chunk)) => self.add(chunk)?,
                Some(Err(_)) => return Err(Fault::Gone),
                None if self.buffer.is_empty() => return Ok(None),
                None => {
                    let text = "the last message is cut off";
                    return Err(Fault::Status(INTERNAL, text.to_owned()));
                }
            }
        }
    }

    fn add(&mut self, chunk: Bytes) -> Result<(), Fault> {
        let size = chunk.len();
        let before = self.shared.inbound.fetch_add(size, Ordering::Relaxed);
        let before_here = self.link.inbound.fetch_add(size, Ordering::Relaxed);
        let account = self.account.as_ref();
        let before_account = account.map_or(0, |all| all.fetch_add(size, Ordering::Relaxed));
        let own = self.counted;
        self.counted += size;
        let limits = &self.shared.limits;
        if before + size > limits.inbound_bytes {
            let text = "requests that are not answered yet take all the room there is";
            return Err(Fault::Status(EXHAUSTED, text.to_owned()));
        }
        // A request that is alone there may be longer.
        let exceeds = |before: usize, most: usize| before + size > most && before != own;
        if exceeds(before_here, limits.connection_inbound_bytes) {
            let text = "requests of this connection that are not answered yet take all its room";
            return Err(Fault::Status(EXHAUSTED, text.to_owned()));
        }
        if account.is_some() && exceeds(before_account, limits.account_inbound_bytes) {
            let text = "requests of this account that are not answered yet take all its room";
            return Err(Fault::Status(EXHAUSTED, text.to_owned()));
        }
        if self.buffer.is_empty() && is_whole(&chunk) {
            self.whole = Some(chunk);
        } else {
            self.buffer.extend_from_slice(&chunk);
        }
        self.body
            .flow_control()
            .release_capacity(size)
            .map_err(|_| Fault::Gone)
    }

    fn cut(&mut self) -> Result<Option<Bytes>, Fault> {
        let held = self.whole.as_deref().unwrap_or(&self.buffer);
        let Some((prefix, message)) = held.split_first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        let [flags, length @ ..] = *prefix;
        if flags != 0 {
            let text = "compressed messages are not supported: send grpc-encoding: identity";
            return Err(Fault::Status(UNIMPLEMENTED, text.to_owned()));
        }
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        let most = self.most;
        if length > most {
            let text = format!("gRPC message exceeds maximum size {most}: {length}");
            return Err(Fault::Status(EXHAUSTED, text));
        }
        if message.len() < length {
            return Ok(None);
        }
        if let Some(whole) = self.whole.take() {
            return Ok(Some(whole.slice(PREFIX..)));
        }
        self.buffer.advance(PREFIX);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }
}

/// Whether a piece of a request is one message and nothing else.
fn is_whole(chunk: &[u8]) -> bool {
    chunk
        .split_first_chunk::<PREFIX>()
        .is_some_and(|([_, length @ ..], message)| {
            usize::try_from(u32::from_be_bytes(*length)) == Ok(message.len())
        })
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.forget(self.counted);
    }
}
