//! HMAC-SHA1 of texts, two of them side by side where the processor can.
//!
//! Each step of SHA-1 waits for the one before, so that the processor's own instructions are idle for half of
//! the time. Two texts that do not depend on one another fill each other's gaps.
//!
//! **Invariant.** A digest does not depend on whether its text was hashed alone or beside another.

#[cfg(target_arch = "x86_64")]
mod side_by_side;

use sha1::block_api::compress;

/// Bytes of a digest.
pub(crate) const DIGEST_SIZE: usize = 20;
/// A digest.
pub(crate) type Digest = [u8; DIGEST_SIZE];
type State = [u32; 5];
type Block = [u8; BLOCK];

const BLOCK: usize = 64;
/// Bytes that a text has room for from the first.
const ROOM: usize = 4096;
const START: State = [
    0x6745_2301,
    0xEFCD_AB89,
    0x98BA_DCFE,
    0x1032_5476,
    0xC3D2_E1F0,
];
/// What the two keyed blocks of HMAC are made with.
const INNER: u8 = 0x36;
const OUTER: u8 = 0x5C;

/// A secret, ready for texts: the states behind its two blocks.
#[derive(Clone)]
pub(crate) struct Key {
    inner: State,
    outer: State,
}

impl Key {
    /// Takes a secret of any length.
    pub(crate) fn new(secret: &[u8]) -> Self {
        let mut block = [0; BLOCK];
        if secret.len() > BLOCK {
            let mut text = Text::default();
            text.add(secret);
            let digest = bytes(&hashed(START, text.sealed(0)));
            block
                .iter_mut()
                .zip(digest)
                .for_each(|(to, from)| *to = from);
        } else {
            block
                .iter_mut()
                .zip(secret)
                .for_each(|(to, from)| *to = *from);
        }
        let behind = |pad: u8| hashed(START, &[block.map(|byte| byte ^ pad)]);
        Self {
            inner: behind(INNER),
            outer: behind(OUTER),
        }
    }
}

/// A text that is being put together; its room may be used again.
#[derive(Default)]
pub(crate) struct Text {
    bytes: Vec<u8>,
}

impl Text {
    /// Begins a new one.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        // The room of a long one is not kept.
        self.bytes.shrink_to(ROOM);
        self.bytes.reserve(ROOM);
    }

    /// Adds bytes.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Ends it with the padding of SHA-1; `before` are bytes that were hashed before.
    fn sealed(&mut self, before: usize) -> &[Block] {
        let bits = (self.bytes.len() + before) as u64 * 8;
        self.bytes.push(0x80);
        let size = (self.bytes.len() + 8).next_multiple_of(BLOCK);
        self.bytes.resize(size - 8, 0);
        self.bytes.extend_from_slice(&bits.to_be_bytes());
        self.bytes.as_chunks().0
    }
}

/// The digest of a text, which is used up.
pub(crate) fn one(key: &Key, text: &mut Text) -> Digest {
    let inner = hashed(key.inner, text.sealed(BLOCK));
    bytes(&hashed(key.outer, &[last(&inner)]))
}

/// The digests of two texts, which are used up.
pub(crate) fn two(keys: [&Key; 2], texts: [&mut Text; 2]) -> [Digest; 2] {
    let inner = hashed_both(
        keys.map(|key| key.inner),
        texts.map(|text| text.sealed(BLOCK)),
    );
    let [first, second] = inner.map(|state| [last(&state)]);
    hashed_both(keys.map(|key| key.outer), [&first, &second]).map(|state| bytes(&state))
}

fn hashed(mut state: State, blocks: &[Block]) -> State {
    compress(&mut state, blocks);
    state
}

fn hashed_both(states: [State; 2], blocks: [&[Block]; 2]) -> [State; 2] {
    #[cfg(target_arch = "x86_64")]
    if side_by_side::is_possible() {
        let [first, second] = blocks;
        let both = first.len().min(second.len());
        let ((first, more), (second, rest)) = (first.split_at(both), second.split_at(both));
        let [one, other] = side_by_side::hashed(states, [first, second]);
        return [hashed(one, more), hashed(other, rest)];
    }
    let [(one, first), (other, second)] = [(states[0], blocks[0]), (states[1], blocks[1])];
    [hashed(one, first), hashed(other, second)]
}

/// The only block behind the outer one: the inner digest.
fn last(inner: &State) -> Block {
    let mut block = [0; BLOCK];
    let bits = (BLOCK + DIGEST_SIZE) as u64 * 8;
    let parts = bytes(inner).into_iter().chain([0x80]);
    block
        .iter_mut()
        .zip(parts)
        .for_each(|(to, from)| *to = from);
    let end = block.iter_mut().rev().zip(bits.to_le_bytes());
    end.for_each(|(to, from)| *to = from);
    block
}

fn bytes(state: &State) -> Digest {
    let mut found = [0; DIGEST_SIZE];
    let all = state.iter().flat_map(|word| word.to_be_bytes());
    found.iter_mut().zip(all).for_each(|(to, from)| *to = from);
    found
}

#[cfg(test)]
mod tests {
    use hmac::{Hmac, KeyInit, Mac};
    use sha1::Sha1;

    use super::{one, two, Key, Text};

    fn expected(secret: &[u8], text: &[u8]) -> [u8; 20] {
        let mut mac = Hmac::<Sha1>::new_from_slice(secret).unwrap();
        mac.update(text);
        mac.finalize().into_bytes().into()
    }

    fn text(bytes: &[u8]) -> Text {
        let mut found = Text::default();
        let (first, second) = bytes.split_at(bytes.len() / 3);
        found.add(first);
        found.add(second);
        found
    }

    /// Bytes that repeat nothing within a block.
    fn some(size: usize, step: usize) -> Vec<u8> {
        (0..size)
            .map(|at| u8::try_from(at * step % 251).unwrap())
            .collect()
    }

    #[test]
    fn digest_is_that_of_hmac_for_secrets_and_texts_of_every_length() {
        for secret in [0, 1, 20, 63, 64, 65, 200].map(|size| some(size, 7)) {
            let key = Key::new(&secret);
            for size in (0..200).chain([1023, 1024, 5000]) {
                let bytes = some(size, 3);
                assert_eq!(one(&key, &mut text(&bytes)), expected(&secret, &bytes));
            }
        }
    }

    #[test]
    fn two_texts_side_by_side_have_the_digests_that_each_has_alone() {
        let secrets = [b"first".as_slice(), b"second"];
        let keys = secrets.map(Key::new);
        for (size, other) in [
            (0, 0),
            (1, 300),
            (300, 1),
            (55, 56),
            (64, 1024),
            (1024, 1030),
        ] {
            let bytes = [some(size, 3), some(other, 5)];
            let [mut a, mut b] = [text(&bytes[0]), text(&bytes[1])];
            let found = two([&keys[0], &keys[1]], [&mut a, &mut b]);
            for (number, digest) in found.iter().enumerate() {
                assert_eq!(*digest, expected(secrets[number], &bytes[number]));
            }
        }
    }

    #[test]
    fn room_of_a_text_may_be_used_again() {
        let key = Key::new(b"secret");
        let mut room = text(&some(500, 3));
        let _ = one(&key, &mut room);
        room.clear();
        room.add(b"other");
        assert_eq!(one(&key, &mut room), expected(b"secret", b"other"));
    }
}
