//! The first of several addresses as the authority of a call.
//!
//! A client of grpcio that was given several addresses names all of them as the authority of its calls,
//! as in `10.0.0.1:8081%2C10.0.0.2:8081`. That is no authority, so the `h2` library resets such a call
//! before anybody sees it. Here what a client says is changed before the library reads it: from the
//! first `%` or `,` on an authority is [`FILLED`], byte for byte, so that no length changes.
//!
//! Texts that are coded (Huffman) are left as they are: grpcio codes none. What is no HTTP/2 is not
//! understood here and is for the library to refuse; nothing is kept but a few numbers.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::uri::Authority;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Stands for what was cut off: no name of a host ends with it.
const FILLED: u8 = b'-';
const NAME: &[u8] = b":authority";
/// Its number in the static table of HPACK.
const INDEX: usize = 1;
const PREFACE: usize = 24;
const HEAD: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const PADDED: u8 = 8;
const PRIORITY: u8 = 32;

/// The authority without what was cut off.
pub(super) fn first(authority: &Authority) -> String {
    let text = authority.as_str();
    text.trim_end_matches(char::from(FILLED)).to_owned()
}

/// A number of HPACK, and what follows it.
#[derive(Clone, Copy)]
enum Number {
    /// Nothing of it: a field of the tables, or their size.
    Alone,
    /// The index of a name, or 0 before a name.
    Index,
    /// Bytes of a name, and whether they are plain text.
    Name(bool),
    /// Bytes of a value, and whether they are the plain text of an authority.
    Value(bool),
}

/// The next byte of a block of headers.
#[derive(Clone, Copy)]
enum At {
    Field,
    /// A further byte of a number: the sum of those before, and by how many bits it is shifted.
    Digit(Number, usize, u32),
    NameLength,
    /// A name: bytes that are left, and those that are as in [`NAME`] so far.
    Name(usize, usize),
    ValueLength(bool),
    /// A value: bytes that are left, whether it is an authority, whether it is cut off here.
    Value(usize, bool, bool),
}

/// What is known of the bytes that a client sends.
struct Frames {
    head: [u8; HEAD],
    have: usize,
    /// Bytes that are left of the preface or of the payload of a frame.
    left: usize,
    /// Whether the payload has a part of a block of headers.
    is_block: bool,
    /// Bytes before that part, and its own.
    lead: usize,
    block: usize,
    is_padded: bool,
    at: At,
}

impl Frames {
    fn new() -> Self {
        Self {
            head: [0; HEAD],
            have: 0,
            left: PREFACE,
            is_block: false,
            lead: 0,
            block: 0,
            is_padded: false,
            at: At::Field,
        }
    }

    /// Sees the next bytes.
    fn pass(&mut self, mut data: &mut [u8]) {
        while !data.is_empty() {
            if self.left == 0 {
                let free = self.head.get_mut(self.have..).unwrap_or_default();
                let count = free.len().min(data.len());
                let (now, rest) = data.split_at_mut(count);
                free.iter_mut().zip(now).for_each(|(to, from)| *to = *from);
                self.have += count;
                data = rest;
                if self.have == HEAD {
                    self.begin();
                }
                continue;
            }
            let (now, rest) = data.split_at_mut(self.left.min(data.len()));
            self.left -= now.len();
            if self.is_block {
                for byte in now {
                    self.payload(byte);
                }
            }
            data = rest;
        }
    }

    fn begin(&mut self) {
        self.have = 0;
        let [a, b, c, kind, flags, ..] = self.head;
        self.left = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        self.is_block = kind == HEADERS || kind == CONTINUATION;
        self.lead = 0;
        self.is_padded = false;
        if kind == HEADERS {
            self.at = At::Field;
            self.is_padded = flags & PADDED != 0;
            let priority = if flags & PRIORITY == 0 { 0 } else { 5 };
            self.lead = usize::from(self.is_padded) + priority;
        }
        self.block = self.left.saturating_sub(self.lead);
    }

    fn payload(&mut self, byte: &mut u8) {
        if self.lead > 0 {
            self.lead -= 1;
            if std::mem::take(&mut self.is_padded) {
                self.block = self.block.saturating_sub(usize::from(*byte));
            }
        } else if self.block > 0 {
            self.block -= 1;
            self.at = step(self.at, byte);
        }
    }
}

/// Returns what follows a byte, which may be changed.
fn step(at: At, byte: &mut u8) -> At {
    let now = *byte;
    match at {
        At::Field if now & 0x80 != 0 => number(Number::Alone, now, 7),
        At::Field if now & 0x40 != 0 => number(Number::Index, now, 6),
        At::Field if now & 0x20 != 0 => number(Number::Alone, now, 5),
        At::Field => number(Number::Index, now, 4),
        At::Digit(what, sum, shift) => {
            let more = usize::from(now & 0x7f).checked_shl(shift).unwrap_or(0);
            let sum = sum.saturating_add(more);
            if now & 0x80 == 0 {
                after(what, sum)
            } else {
                At::Digit(what, sum, shift.saturating_add(7))
            }
        }
        At::NameLength => number(Number::Name(now & 0x80 == 0), now, 7),
        At::Name(left, same) => {
            let same = if NAME.get(same) == Some(&now) {
                same + 1
            } else {
                NAME.len() + 1
            };
            if left == 1 {
                At::ValueLength(same == NAME.len())
            } else {
                At::Name(left - 1, same)
            }
        }
        At::ValueLength(is_authority) => {
            number(Number::Value(is_authority && now & 0x80 == 0), now, 7)
        }
        At::Value(left, is_authority, was_cut) => {
            let is_cut = was_cut || is_authority && matches!(now, b'%' | b',');
            if is_cut {
                *byte = FILLED;
            }
            if left == 1 {
                At::Field
            } else {
                At::Value(left - 1, is_authority, is_cut)
            }
        }
    }
}

/// Begins a number of which a byte has so many bits.
fn number(what: Number, byte: u8, bits: u32) -> At {
    let most = (1 << bits) - 1;
    let found = usize::from(byte) & most;
    if found == most {
        At::Digit(what, found, 0)
    } else {
        after(what, found)
    }
}

fn after(what: Number, number: usize) -> At {
    match (what, number) {
        (Number::Alone, _) | (Number::Value(_), 0) => At::Field,
        (Number::Index, 0) => At::NameLength,
        (Number::Index, index) => At::ValueLength(index == INDEX),
        (Number::Name(_), 0) => At::ValueLength(false),
        (Number::Name(is_plain), left) => At::Name(left, if is_plain { 0 } else { NAME.len() + 1 }),
        (Number::Value(is_authority), left) => At::Value(left, is_authority, false),
    }
}

/// A connection whose client names one authority.
pub(super) struct OneAuthority<S> {
    inner: S,
    frames: Frames,
}

impl<S> OneAuthority<S> {
    pub(super) fn new(inner: S) -> Self {
        Self {
            inner,
            frames: Frames::new(),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for OneAuthority<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let found = Pin::new(&mut self.inner).poll_read(context, buffer);
        if matches!(found, Poll::Ready(Ok(()))) {
            let news = buffer.filled_mut().get_mut(before..);
            self.frames.pass(news.unwrap_or_default());
        }
        found
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for OneAuthority<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{any, Just, Strategy};
    use proptest::sample::select;
    use proptest::{prop_assert_eq, prop_oneof};

    use super::{Frames, PREFACE};

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap_or(0);
        let mut found = vec![0, 0, length, kind, flags, 0, 0, 0, 1];
        found.extend_from_slice(payload);
        found
    }

    /// What is read of frames, whose bytes come in pieces of a size.
    fn read(frames: &[Vec<u8>], piece: usize) -> Vec<u8> {
        let mut all = vec![b'p'; PREFACE];
        all.extend(frames.concat());
        let mut known = Frames::new();
        all.chunks_mut(piece).for_each(|part| known.pass(part));
        all.split_off(PREFACE)
    }

    fn literal(name: &[u8], value: &[u8]) -> Vec<u8> {
        let mut found = name.to_vec();
        found.push(u8::try_from(value.len()).unwrap_or(0));
        found.extend_from_slice(value);
        found
    }

    const MANY: &[u8] = b"10.0.0.1:81%2C10.0.0.2:81";
    const ONE: &[u8] = b"10.0.0.1:81--------------";

    #[test]
    fn authority_of_several_addresses_is_the_first_however_it_is_written_and_cut() {
        // By its index, kept or not, and by its name.
        for name in [b"\x41".as_slice(), b"\x01", b"\x40\x0a:authority"] {
            let fields = |value| [b"\x83\x3f\xe1\x1f".to_vec(), literal(name, value)].concat();
            for piece in 1..40 {
                let sent = [frame(0, 0, b"data\x41\x02%2"), frame(1, 4, &fields(MANY))];
                let wanted = [frame(0, 0, b"data\x41\x02%2"), frame(1, 4, &fields(ONE))];
                assert_eq!(read(&sent, piece), wanted.concat());
            }
        }
    }

    #[test]
    fn block_with_padding_and_priority_goes_on_in_the_next_frame() {
        let whole = |value| literal(b"\x41", value);
        let (sent, wanted) = (whole(MANY), whole(ONE));
        let padded = |part: &[u8]| [b"\x03prior".as_slice(), part, b"%,%"].concat();
        let frames = |block: &[u8]| [frame(1, 40, &padded(&block[..9])), frame(9, 4, &block[9..])];
        assert_eq!(read(&frames(&sent), 7), frames(&wanted).concat());
    }

    #[test]
    fn other_texts_are_left_as_they_are() {
        for field in [
            literal(b"\x41", b"[fe80::1]:8081"),
            literal(b"\x44", b"/path%2Cof,it"),
            literal(b"\x40\x0a:authoritx", b"a%2Cb"),
            literal(b"\x00\x04name", b"a%2Cb"),
            [b"\x41\x85".as_slice(), b"%2C,%"].concat(),
        ] {
            let sent = [frame(1, 4, &field), frame(1, 4, &literal(b"\x5f", b"a,b"))];
            assert_eq!(read(&sent, 5), sent.concat());
        }
    }

    /// A number of HPACK behind the bits that say what it is; `more` needless bytes end it.
    fn number(kind: u8, bits: u32, number: usize, more: usize) -> Vec<u8> {
        let most = (1 << bits) - 1;
        if number < most {
            return vec![kind | u8::try_from(number).unwrap()];
        }
        let mut found = vec![kind | u8::try_from(most).unwrap()];
        let mut rest = number - most;
        while rest > 127 {
            found.push(u8::try_from(rest & 127).unwrap() | 128);
            rest >>= 7;
        }
        found.push(u8::try_from(rest).unwrap());
        if more > 0 {
            *found.last_mut().unwrap() |= 128;
            found.extend(std::iter::repeat_n(128, more - 1));
            found.push(0);
        }
        found
    }

    /// A field as a client may write it: the bytes sent, and those that the library is to read.
    #[derive(Clone, Debug)]
    struct Field {
        sent: Vec<u8>,
        wanted: Vec<u8>,
    }

    fn cut(value: &[u8]) -> Vec<u8> {
        let end = value.iter().position(|byte| b"%,".contains(byte));
        let mut found = value.to_vec();
        found[end.unwrap_or(value.len())..].fill(b'-');
        found
    }

    proptest::prop_compose! {
        fn field()(
            (kind, bits) in select(vec![(0x40_u8, 6), (0, 4), (0x10, 4)]),
            name in prop_oneof![
                Just((1, vec![])), (2_usize..200).prop_map(|index| (index, vec![])),
                Just((0, b":authority".to_vec())), Just((0, b":authoritx".to_vec())),
                "[:a-z%,-]{0,140}".prop_map(|name| (0, name.into_bytes())),
            ],
            value in vec(prop_oneof![3 => select(b"%,-:.[]0a\x00\xff\x41\x80".to_vec()), 1 => any::<u8>()], 0..400),
            coded in (any::<bool>(), any::<bool>()),
            more in 0_usize..3,
            alone in proptest::option::weighted(0.2, (select(vec![(0x80_u8, 7), (0x20, 5)]), 0_usize..5000)),
        ) -> Field {
            if let Some(((kind, bits), index)) = alone {
                let both = number(kind, bits, index, more);
                return Field { sent: both.clone(), wanted: both };
            }
            let huffman = |is_coded| if is_coded { 0x80 } else { 0 };
            let (index, name) = name;
            let mut head = number(kind, bits, index, more);
            if index == 0 {
                head.extend(number(huffman(coded.0), 7, name.len(), more));
                head.extend_from_slice(&name);
            }
            head.extend(number(huffman(coded.1), 7, value.len(), more));
            let named = index == 1 || (index == 0 && !coded.0 && name == b":authority");
            let is_cut = named && !coded.1;
            let read = if is_cut { cut(&value) } else { value.clone() };
            Field { sent: [&head[..], &value].concat(), wanted: [&head[..], &read].concat() }
        }
    }

    /// A block in frames: one of headers, perhaps with padding and a priority, and what goes on.
    fn in_frames(block: &[u8], cuts: &[usize], padding: Option<u8>, priority: bool) -> Vec<u8> {
        let mut ends: Vec<_> = cuts.iter().map(|cut| cut % (block.len() + 1)).collect();
        ends.sort_unstable();
        ends.push(block.len());
        let (mut found, mut from) = (Vec::new(), 0);
        for (at, end) in ends.iter().enumerate() {
            let mut payload = Vec::new();
            let mut flags = if at + 1 == ends.len() { 4 } else { 0 };
            if at == 0 {
                payload.extend(padding);
                payload.extend_from_slice(if priority { b"\x00%,\x41\x02" } else { b"" });
                flags |= padding.map_or(0, |_| 8) | if priority { 32 } else { 0 };
            }
            payload.extend_from_slice(&block[from..*end]);
            if at == 0 {
                payload.extend(std::iter::repeat_n(b'%', usize::from(padding.unwrap_or(0))));
            }
            from = *end;
            found.extend_from_slice(&u32::try_from(payload.len()).unwrap().to_be_bytes()[1..]);
            found.extend([if at == 0 { 1 } else { 9 }, flags, 0, 0, 0, 1]);
            found.extend_from_slice(&payload);
        }
        found
    }

    proptest::proptest! {
        #[test]
        fn drawn_blocks_differ_in_their_authority_alone(
            calls in vec((vec(field(), 0..6), vec(any::<usize>(), 0..4), any::<Option<u8>>(), any::<bool>()), 1..4),
            piece in 1_usize..700,
        ) {
            let (mut sent, mut wanted) = (Vec::new(), Vec::new());
            for (fields, cuts, padding, priority) in &calls {
                let data = frame(0, 0, b"\x41\x05a%2C,");
                let of = |block: Vec<u8>| in_frames(&block, cuts, *padding, *priority);
                sent.push([of(fields.iter().flat_map(|it| it.sent.clone()).collect()), data.clone()].concat());
                wanted.push([of(fields.iter().flat_map(|it| it.wanted.clone()).collect()), data].concat());
            }
            prop_assert_eq!(read(&sent, piece), wanted.concat());
        }

        #[test]
        fn drawn_bytes_are_read_the_same_however_they_are_cut(
            frames in vec((any::<u8>(), any::<u8>(), vec(any::<u8>(), 0..200)), 0..6),
            rest in vec(any::<u8>(), 0..40),
            piece in 1_usize..50,
        ) {
            let mut sent: Vec<_> = frames
                .iter()
                .map(|(kind, flags, payload)| frame(kind % 10, *flags, payload))
                .collect();
            sent.push(rest);
            let whole = read(&sent, usize::MAX);
            prop_assert_eq!(whole.len(), sent.concat().len());
            prop_assert_eq!(read(&sent, piece), whole);
        }
    }
}
