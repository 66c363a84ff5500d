//! Asks the kernel whether mapped bytes are in memory.

use std::sync::LazyLock;

/// Pages that one question covers at most; a record may have a thousand.
const PAGES: usize = 64;

static PAGE: LazyLock<usize> = LazyLock::new(|| {
    // SAFETY: a question about the system, which takes no memory of ours.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
});

/// Bytes of a page of this system.
pub(crate) fn page_size() -> usize {
    *PAGE
}

/// Whether every page of mapped bytes is in memory now, so that reading them waits for no disk.
///
/// It may be gone a moment later. `bytes` must lie in a map of whole pages.
pub(crate) fn is_resident(bytes: &[u8]) -> bool {
    if bytes.is_empty() {
        return true;
    }
    let page = *PAGE;
    let begin = bytes.as_ptr().addr() / page * page;
    let end = bytes.as_ptr().addr() + bytes.len();
    let mut at = begin;
    while at < end {
        let size = (end - at).min(PAGES * page);
        let pages = size.div_ceil(page);
        let mut found = [0u8; PAGES];
        let first = bytes.as_ptr().with_addr(at).cast_mut().cast();
        // SAFETY: the pages hold bytes that are borrowed, so they are mapped; the kernel writes one
        // byte a page, for which there is room.
        let known = unsafe { libc::mincore(first, size, found.as_mut_ptr()) } == 0;
        if !known || found.iter().take(pages).any(|state| state & 1 == 0) {
            return false;
        }
        at += size;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::{is_resident, PAGE, PAGES};

    #[test]
    fn pages_are_in_memory_once_they_were_touched() {
        let (page, count) = (*PAGE, PAGES + 9);
        let mut map = memmap2::MmapMut::map_anon(count * page).unwrap();
        assert!(!is_resident(&map));
        for at in 0..count {
            assert!(!is_resident(&map[at * page..]), "{at}");
            map[at * page + 7] = 1;
            assert!(is_resident(&map[..at * page + 7]), "{at}");
            assert!(is_resident(&map[at * page + page - 1..at * page + page]));
        }
        assert!(is_resident(&map));
        assert!(is_resident(&[]));
    }
}
