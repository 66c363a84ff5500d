//! One call, from its headers to its trailers.

use std::fmt::Write as _;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::header::{HeaderMap, HeaderName, HeaderValue, CONTENT_TYPE};
use http::{Method, Request, Response, StatusCode};
use tokio::time::{sleep_until, timeout, Instant};

use super::head::{Head, Origin};
use super::messages::{Fault, Reader, INTERNAL};
use super::orders::{Order, Orders};
use super::{signature, Handle, Link, News, Shared};

const GRPC: &[u8] = b"application/grpc";
/// `DEADLINE_EXCEEDED`.
const LATE: u8 = 4;

/// Serves a call to its end.
pub(super) async fn serve(
    shared: Arc<Shared>,
    link: Arc<Link>,
    origin: Arc<Origin>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) {
    link.calls.fetch_add(1, Ordering::SeqCst);
    let (parts, body) = request.into_parts();
    let refused = refusal(&parts.method, &parts.headers);
    if let Some(status) = refused {
        let mut answer = Response::new(());
        *answer.status_mut() = status;
        // It may have gone: then there is nobody to tell.
        let _ = respond.send_response(answer, true);
    } else {
        let secrets = super::hold(&shared.secrets).clone();
        let account = secrets
            .as_ref()
            .and_then(|all| signature::signer(all, &parts.headers))
            .map(|key| shared.account(key));
        let signed = secrets.is_none() || account.is_some();
        let head = Box::new(Head::new(parts.uri, parts.headers, origin));
        let mut call = Call {
            number: shared.number(),
            shared,
            link: Arc::clone(&link),
            respond,
            answer: None,
            reading: Reading::Held,
            deadline: Instant::now(),
        };
        call.run(head, body, account, signed).await;
    }
    link.calls.fetch_sub(1, Ordering::SeqCst);
}

struct Call {
    number: u64,
    shared: Arc<Shared>,
    link: Arc<Link>,
    respond: SendResponse<Bytes>,
    answer: Option<SendStream<Bytes>>,
    reading: Reading,
    /// When the only message has to be there.
    deadline: Instant,
}

/// What is read of a call while it is answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// Nothing, until somebody vouches for it.
    Held,
    /// The only message.
    Once,
    /// One message after another.
    Stream,
    /// Nothing any more.
    Done,
}

impl Call {
    async fn run(
        &mut self,
        head: Box<Head>,
        body: RecvStream,
        account: Option<Arc<AtomicUsize>>,
        signed: bool,
    ) {
        let streams = self.shared.streaming.contains(head.path());
        let link = Arc::clone(&self.link);
        let mut reader = Reader::new(Arc::clone(&self.shared), link, account, body);
        let mut message = None;
        if signed && streams {
            self.reading = Reading::Stream;
        } else if signed {
            self.reading = Reading::Done;
            match timeout(self.shared.limits.patience, reader.next()).await {
                Ok(Ok(Some(found))) => message = Some(found),
                Ok(Ok(None)) => return self.end(INTERNAL, "the request has no message"),
                Ok(Err(Fault::Status(status, text))) => return self.end(status, &text),
                Ok(Err(Fault::Gone)) => return self.was_reset(),
                Err(_) => return self.end(LATE, "the request did not arrive in time"),
            }
        }
        let orders = Arc::new(Orders::default());
        let handle = Handle {
            orders: Arc::clone(&orders),
            link: Arc::clone(&self.link),
        };
        super::hold(&self.shared.calls).insert(self.number, handle);
        self.shared.tell(News::Call {
            call: self.number,
            connection: self.link.key,
            head,
            message,
        });
        let finished = self.answer(&mut reader, &orders, streams).await;
        super::hold(&self.shared.calls).remove(&self.number);
        if finished.is_none() {
            self.shared.tell(News::Gone(self.number));
        }
        // What was ordered and not sent does not count any more.
        while let Some(order) = orders.take() {
            if let Order::Message(data) | Order::Answer(data) = order {
                self.shared.sent(&self.link, data.len());
            }
        }
    }

    /// Carries orders out until the call is finished; None when the client has gone before.
    async fn answer(&mut self, reader: &mut Reader, orders: &Orders, streams: bool) -> Option<()> {
        loop {
            let order = tokio::select! {
                order = orders.next() => order,
                () = reset(&mut self.respond, self.answer.as_mut()) => {
                    self.was_reset();
                    return None;
                }
                () = sleep_until(self.deadline), if self.reading == Reading::Once => {
                    self.end(LATE, "the request did not arrive in time");
                    return None;
                }
                found = reader.next(), if matches!(self.reading, Reading::Once | Reading::Stream) => {
                    self.heard(found, reader)?;
                    continue;
                }
            };
            match order {
                Order::Admit(most) if self.reading == Reading::Held => {
                    reader.limit(most);
                    self.deadline = Instant::now() + self.shared.limits.patience;
                    self.reading = if streams {
                        Reading::Stream
                    } else {
                        Reading::Once
                    };
                }
                Order::Admit(_) => {}
                Order::Finish(status, text) => {
                    self.end(status, &text);
                    return Some(());
                }
                Order::Message(data) => self.send(data).await?,
                Order::Answer(data) => {
                    self.send(data).await?;
                    self.end(0, "");
                    return Some(());
                }
            }
        }
    }

    /// Hands on what was read; None when the call has ended by it.
    fn heard(&mut self, found: Result<Option<Bytes>, Fault>, reader: &mut Reader) -> Option<()> {
        match (found, self.reading) {
            (Ok(Some(message)), Reading::Once) => {
                // It counts until it is answered.
                self.reading = Reading::Done;
                self.shared.tell(News::Message(self.number, message));
            }
            (Ok(Some(message)), _) => {
                self.shared.tell(News::Message(self.number, message));
                reader.release();
            }
            (Ok(None), Reading::Once) => {
                self.end(INTERNAL, "the request has no message");
                return None;
            }
            (Ok(None), _) => {
                self.reading = Reading::Done;
                self.shared.tell(News::Ended(self.number));
            }
            (Err(Fault::Status(status, text)), _) => {
                self.end(status, &text);
                return None;
            }
            (Err(Fault::Gone), _) => {
                self.was_reset();
                return None;
            }
        }
        Some(())
    }

    /// Writes a message, which counts as unsent until then.
    async fn send(&mut self, data: Bytes) -> Option<()> {
        let size = data.len();
        let written = self.write(data).await;
        self.shared.sent(&self.link, size);
        written
    }

    async fn write(&mut self, mut data: Bytes) -> Option<()> {
        if self.answer.is_none() {
            let begun = self.respond.send_response(head_of_answer(), false);
            self.answer = Some(begun.ok()?);
        }
        let stream = self.answer.as_mut()?;
        while !data.is_empty() {
            stream.reserve_capacity(data.len());
            while stream.capacity() == 0 {
                let room = poll_fn(|context| stream.poll_capacity(context));
                match timeout(self.shared.limits.patience, room).await {
                    Ok(Some(Ok(_))) => {}
                    Ok(_) => return None,
                    Err(_) => {
                        // A client that does not read holds no memory here.
                        stream.send_reset(Reason::ENHANCE_YOUR_CALM);
                        return None;
                    }
                }
            }
            let part = data.split_to(stream.capacity().min(data.len()));
            stream.send_data(part, false).ok()?;
        }
        Some(())
    }

    fn end(&mut self, status: u8, text: &str) {
        let mut trailers = HeaderMap::with_capacity(2);
        trailers.insert(
            HeaderName::from_static("grpc-status"),
            u16::from(status).into(),
        );
        if let Ok(value) = HeaderValue::from_str(&escaped(text)) {
            if !text.is_empty() {
                trailers.insert(HeaderName::from_static("grpc-message"), value);
            }
        }
        // The client may have gone: then there is nobody to tell.
        let _ = if let Some(stream) = self.answer.as_mut() {
            stream.send_trailers(trailers)
        } else {
            let mut answer = head_of_answer();
            answer.headers_mut().extend(trailers);
            self.respond.send_response(answer, true).map(|_| ())
        };
    }

    fn was_reset(&self) {
        self.link.resets.fetch_add(1, Ordering::SeqCst);
    }
}

async fn reset(respond: &mut SendResponse<Bytes>, answer: Option<&mut SendStream<Bytes>>) {
    // An error means the same: the connection has ended.
    match answer {
        Some(stream) => {
            let _ = poll_fn(|context| stream.poll_reset(context)).await;
        }
        None => {
            let _ = poll_fn(|context| respond.poll_reset(context)).await;
        }
    }
}

fn head_of_answer() -> Response<()> {
    let mut answer = Response::new(());
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    answer
}

/// Returns the status of HTTP for what is no call of gRPC.
fn refusal(method: &Method, headers: &HeaderMap) -> Option<StatusCode> {
    if method != Method::POST {
        return Some(StatusCode::METHOD_NOT_ALLOWED);
    }
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let known = kind.is_some_and(|kind| kind.starts_with(GRPC));
    (!known).then_some(StatusCode::UNSUPPORTED_MEDIA_TYPE)
}

/// A text as it may stand in `grpc-message`.
fn escaped(text: &str) -> String {
    let mut found = String::with_capacity(text.len());
    for byte in text.bytes() {
        if (b' '..=b'~').contains(&byte) && byte != b'%' {
            found.push(char::from(byte));
        } else {
            // Writing to a text cannot fail.
            let _ = write!(found, "%{byte:02X}");
        }
    }
    found
}
