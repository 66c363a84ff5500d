//! Asks the processor for bytes that are looked at soon, while it still looks at others.

/// Bytes of a cache line.
const LINE: usize = 64;

/// Starts loading a few bytes into the nearest cache and returns at once.
///
/// Reading a record costs little beside waiting for it: its parts lie in lines that nobody has
/// touched since they were written, a thousand bytes apart. A page that is not mapped stays so.
#[inline]
pub(crate) fn load(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(LINE) {
        use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        // SAFETY: every processor of this architecture has the instruction, which reads nothing
        // into the program and cannot fault, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, LINE);
}
