//! The compression of SHA-1 for two states at a time, by the processor's own instructions.

use std::arch::x86_64::{
    __m128i, _mm_add_epi32, _mm_extract_epi32, _mm_loadu_si128, _mm_set_epi32, _mm_set_epi64x,
    _mm_sha1msg1_epu32, _mm_sha1msg2_epu32, _mm_sha1nexte_epu32, _mm_sha1rnds4_epu32,
    _mm_shuffle_epi8, _mm_xor_si128,
};

use super::{Block, State};

/// Whether this processor has the instructions.
pub(super) fn is_possible() -> bool {
    is_x86_feature_detected!("sha")
        && is_x86_feature_detected!("ssse3")
        && is_x86_feature_detected!("sse4.1")
}

/// The states behind as many blocks of each as both have. Only where [`is_possible`].
pub(super) fn hashed(states: [State; 2], blocks: [&[Block]; 2]) -> [State; 2] {
    assert!(is_possible());
    // SAFETY: the processor has what the function needs, as was just asked.
    unsafe { compressed(states, blocks) }
}

/// One of the two: its state, and the four vectors of the message that the next rounds need.
#[derive(Clone, Copy)]
struct Lane {
    abcd: __m128i,
    /// The same before the last four rounds: the fifth word comes of it.
    before: __m128i,
    words: [__m128i; 4],
}

/// Four rounds of a lane by function `$f`, with the words at `$at`.
macro_rules! rounds {
    ($lane:ident, $f:literal, $at:literal) => {
        let e = _mm_sha1nexte_epu32($lane.before, $lane.words[$at]);
        $lane.before = $lane.abcd;
        $lane.abcd = _mm_sha1rnds4_epu32::<$f>($lane.abcd, e);
    };
}

/// Makes the words at `$at` of those of the sixteen rounds before, and does four rounds with them.
macro_rules! next_rounds {
    ($lane:ident, $f:literal, $at:literal, $second:literal, $third:literal, $last:literal) => {
        let words = &mut $lane.words;
        let sum = _mm_xor_si128(
            _mm_sha1msg1_epu32(words[$at], words[$second]),
            words[$third],
        );
        words[$at] = _mm_sha1msg2_epu32(sum, words[$last]);
        rounds!($lane, $f, $at);
    };
}

/// The same for both lanes, one behind the other, so that neither waits for itself.
macro_rules! both {
    ($one:ident, $other:ident: $($f:literal $at:literal $second:literal $third:literal $last:literal),+) => {
        $(
            next_rounds!($one, $f, $at, $second, $third, $last);
            next_rounds!($other, $f, $at, $second, $third, $last);
        )+
    };
}

#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
fn compressed(states: [State; 2], blocks: [&[Block]; 2]) -> [State; 2] {
    let [[mut one, mut e_one], [mut other, mut e_other]] = states.map(|state| load(&state));
    let [first, second] = blocks;
    for (first, second) in first.iter().zip(second) {
        let mut a = begin(one, e_one, first);
        let mut b = begin(other, e_other, second);
        rounds!(a, 0, 1);
        rounds!(b, 0, 1);
        rounds!(a, 0, 2);
        rounds!(b, 0, 2);
        rounds!(a, 0, 3);
        rounds!(b, 0, 3);
        both!(a, b: 0 0 1 2 3);
        both!(a, b: 1 1 2 3 0, 1 2 3 0 1, 1 3 0 1 2, 1 0 1 2 3, 1 1 2 3 0);
        both!(a, b: 2 2 3 0 1, 2 3 0 1 2, 2 0 1 2 3, 2 1 2 3 0, 2 2 3 0 1);
        both!(a, b: 3 3 0 1 2, 3 0 1 2 3, 3 1 2 3 0, 3 2 3 0 1, 3 3 0 1 2);
        one = _mm_add_epi32(one, a.abcd);
        other = _mm_add_epi32(other, b.abcd);
        e_one = _mm_sha1nexte_epu32(a.before, e_one);
        e_other = _mm_sha1nexte_epu32(b.before, e_other);
    }
    [store(one, e_one), store(other, e_other)]
}

/// Reads a block, and does the first four rounds, whose fifth word is that of the state.
#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
fn begin(abcd: __m128i, e: __m128i, block: &Block) -> Lane {
    // The first word of the four is the highest lane.
    let order = _mm_set_epi64x(0x0001_0203_0405_0607, 0x0809_0A0B_0C0D_0E0F);
    let mut words = [order; 4];
    for (word, part) in words.iter_mut().zip(block.as_chunks::<16>().0) {
        // SAFETY: `part` has the 16 bytes that are read, wherever they lie.
        let read = unsafe { _mm_loadu_si128(part.as_ptr().cast()) };
        *word = _mm_shuffle_epi8(read, order);
    }
    Lane {
        abcd: _mm_sha1rnds4_epu32::<0>(abcd, _mm_add_epi32(e, words[0])),
        before: abcd,
        words,
    }
}

/// The first four words of a state, and the fifth alone, each the highest lane first.
#[target_feature(enable = "sse2")]
fn load(state: &State) -> [__m128i; 2] {
    let [first, second, third, fourth, fifth] = state.map(u32::cast_signed);
    [
        _mm_set_epi32(first, second, third, fourth),
        _mm_set_epi32(fifth, 0, 0, 0),
    ]
}

#[target_feature(enable = "sse2,sse4.1")]
fn store(abcd: __m128i, e: __m128i) -> State {
    [
        _mm_extract_epi32::<3>(abcd),
        _mm_extract_epi32::<2>(abcd),
        _mm_extract_epi32::<1>(abcd),
        _mm_extract_epi32::<0>(abcd),
        _mm_extract_epi32::<3>(e),
    ]
    .map(i32::cast_unsigned)
}
