//! Pages of mapped files that the disk cannot read: they read as zeros, and readers can ask.
//!
//! A page that the kernel cannot bring in, for a bad sector or because somebody cut the file, is a
//! SIGBUS in whoever touches it, and that would end the process for one message. Instead the page
//! is replaced by one of zeros and noted, and the access goes on. So whoever reads a map through
//! [`is_readable`] never takes those zeros for what was stored, nor for the end of a log.
//!
//! The handler does nothing but atomic accesses and two system calls, as a handler may. A fault
//! elsewhere goes to the handler that was there before. A map that finds no place in the table is
//! not guarded: a fault in it ends the process, as without this module.

use memmap2::Mmap;
use std::ops::Deref;

/// Maps that are guarded at a time; a log of as many files has 8 TiB by default.
#[cfg(target_os = "linux")]
const MAPS_MAX: usize = 8192;

/// A map whose pages may turn out to be unreadable.
pub(crate) struct GuardedMap {
    map: Mmap,
    #[cfg(target_os = "linux")]
    place: Option<usize>,
}

impl GuardedMap {
    /// Guards a map for as long as it lives.
    pub(crate) fn new(map: Mmap) -> Self {
        Self {
            #[cfg(target_os = "linux")]
            place: guard::enter(&map),
            map,
        }
    }
}

impl Deref for GuardedMap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

#[cfg(target_os = "linux")]
impl Drop for GuardedMap {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            guard::leave(place);
        }
    }
}

/// Touches each page of `bytes`; false when one of them could not be read, now or before.
pub(crate) fn is_readable(bytes: &[u8]) -> bool {
    guard::touch(bytes);
    !guard::is_bad(bytes)
}

/// Whether a page of `bytes` that somebody has touched could not be read.
pub(crate) fn is_bad(bytes: &[u8]) -> bool {
    guard::is_bad(bytes)
}

/// Nothing is caught there: such a page ends the process.
#[cfg(not(target_os = "linux"))]
mod guard {
    pub(super) fn touch(_bytes: &[u8]) {}

    pub(super) fn is_bad(_bytes: &[u8]) -> bool {
        false
    }
}

#[cfg(target_os = "linux")]
mod guard {
    use super::MAPS_MAX;
    use crate::disk::resident::page_size;
    use std::cell::UnsafeCell;
    use std::mem::MaybeUninit;
    use std::ptr;
    use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
    use std::sync::{Mutex, Once};

    use crate::store::health::hold;

    const BITS: usize = u64::BITS as usize;

    /// One guarded map. `begin` is 0 where there is none; it is set last and cleared first.
    struct Place {
        begin: AtomicUsize,
        end: AtomicUsize,
        /// A bit for each page, made by the first fault.
        bad: AtomicPtr<AtomicU64>,
    }

    static PLACES: [Place; MAPS_MAX] = [const {
        Place {
            begin: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            bad: AtomicPtr::new(ptr::null_mut()),
        }
    }; MAPS_MAX];
    /// Places at and behind this one were never used.
    static USED: AtomicUsize = AtomicUsize::new(0);
    /// Faults since the process began: nothing is bad while there was none.
    static FAULTS: AtomicUsize = AtomicUsize::new(0);
    /// Bytes of a page, for the handler.
    static PAGE: AtomicUsize = AtomicUsize::new(0);
    static ENTERING: Mutex<()> = Mutex::new(());

    struct Before(UnsafeCell<MaybeUninit<libc::sigaction>>);
    // SAFETY: it is written once, by `install`, and only read afterwards.
    unsafe impl Sync for Before {}
    static BEFORE: Before = Before(UnsafeCell::new(MaybeUninit::zeroed()));

    impl Place {
        /// The map that has `at`: (its first byte, its pages).
        fn holds(&self, at: usize) -> Option<(usize, usize)> {
            let begin = self.begin.load(Ordering::Acquire);
            let end = self.end.load(Ordering::Acquire);
            let is_same = self.begin.load(Ordering::Acquire) == begin;
            let holds = is_same && begin != 0 && (begin..end).contains(&at);
            holds.then(|| (begin, (end - begin).div_ceil(PAGE.load(Ordering::Relaxed))))
        }
    }

    fn find(at: usize) -> Option<(&'static Place, usize, usize)> {
        let used = USED.load(Ordering::Acquire);
        PLACES.iter().take(used).find_map(|place| {
            let (begin, pages) = place.holds(at)?;
            Some((place, begin, pages))
        })
    }

    pub(super) fn enter(map: &[u8]) -> Option<usize> {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(install);
        let _one_at_a_time = hold(&ENTERING);
        let is_free = |place: &Place| place.begin.load(Ordering::Relaxed) == 0;
        let index = PLACES.iter().position(is_free)?;
        let place = PLACES.get(index)?;
        let begin = map.as_ptr().addr();
        place.end.store(begin + map.len(), Ordering::Release);
        place.begin.store(begin, Ordering::Release);
        USED.fetch_max(index + 1, Ordering::AcqRel);
        Some(index)
    }

    pub(super) fn leave(index: usize) {
        let _one_at_a_time = hold(&ENTERING);
        let Some(place) = PLACES.get(index) else {
            return;
        };
        let (begin, end) = (&place.begin, &place.end);
        let pages = end.load(Ordering::Relaxed) - begin.load(Ordering::Relaxed);
        let pages = pages.div_ceil(PAGE.load(Ordering::Relaxed));
        let bad = place.bad.swap(ptr::null_mut(), Ordering::AcqRel);
        begin.store(0, Ordering::Release);
        if !bad.is_null() {
            // SAFETY: `bits` mapped as much; nobody reads the map any more, so nobody asks for it.
            unsafe { libc::munmap(bad.cast(), bits_size(pages)) };
        }
    }

    pub(super) fn touch(bytes: &[u8]) {
        let page = page_size();
        let first = page - bytes.as_ptr().addr() % page;
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            // SAFETY: the byte is borrowed; the read must not be left out.
            unsafe { ptr::read_volatile(byte) };
            at = if at == 0 { first } else { at + page };
        }
    }

    pub(super) fn is_bad(bytes: &[u8]) -> bool {
        if FAULTS.load(Ordering::Acquire) == 0 || bytes.is_empty() {
            return false;
        }
        let Some((place, begin, pages)) = find(bytes.as_ptr().addr()) else {
            return false;
        };
        let bad = place.bad.load(Ordering::Acquire);
        if bad.is_null() {
            return false;
        }
        let first = (bytes.as_ptr().addr() - begin) / page_size();
        let last = (bytes.as_ptr().addr() - begin + bytes.len() - 1) / page_size();
        (first..=last.min(pages - 1)).any(|page| {
            // SAFETY: there is a bit for each page of the map, which the caller borrows from.
            let word = unsafe { &*bad.add(page / BITS) };
            word.load(Ordering::Acquire) & (1 << (page % BITS)) != 0
        })
    }

    fn bits_size(pages: usize) -> usize {
        pages.div_ceil(BITS) * size_of::<u64>()
    }

    /// Replaces the page at an address by zeros and notes it; false when no guarded map has it.
    fn replace(at: usize) -> bool {
        let page = PAGE.load(Ordering::Relaxed);
        let Some((place, begin, pages)) = find(at) else {
            return false;
        };
        let Some(bad) = bits(place, pages) else {
            return false;
        };
        let number = (at - begin) / page;
        // SAFETY: there is a bit for each page of the map.
        let word = unsafe { &*bad.add(number / BITS) };
        word.fetch_or(1 << (number % BITS), Ordering::AcqRel);
        FAULTS.fetch_add(1, Ordering::AcqRel);
        let target = ptr::without_provenance_mut(begin + number * page);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the page belongs to a map that the faulting thread reads, so it stays mapped; a
        // page of zeros takes the place of one that cannot be read, and nobody can write either.
        let made = unsafe { libc::mmap(target, page, libc::PROT_READ, flags, -1, 0) };
        made != libc::MAP_FAILED
    }

    /// The bits of a map, made if need be; `None` when there is no memory for them.
    fn bits(place: &Place, pages: usize) -> Option<*mut AtomicU64> {
        let there = place.bad.load(Ordering::Acquire);
        if !there.is_null() {
            return Some(there);
        }
        let (size, flags) = (bits_size(pages), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new map, of which nobody knows.
        let made = unsafe { libc::mmap(ptr::null_mut(), size, access, flags, -1, 0) };
        if made == libc::MAP_FAILED {
            return None;
        }
        let made = made.cast::<AtomicU64>();
        match place
            .bad
            .compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => Some(made),
            Err(other) => {
                // SAFETY: another thread was quicker, so nobody knows of this one.
                unsafe { libc::munmap(made.cast(), size) };
                Some(other)
            }
        }
    }

    fn install() {
        PAGE.store(page_size(), Ordering::Release);
        // SAFETY: all zeros is a valid value of this struct.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = on_fault;
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: both point to structs of the right type; if it fails nothing has changed.
        unsafe { libc::sigaction(libc::SIGBUS, &raw const action, BEFORE.0.get().cast()) };
    }

    extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
        // SAFETY: the kernel passes a valid one; the address means something for its own faults.
        let (code, at) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
        // SAFETY: the errno of this thread, which the interrupted code may be about to read.
        let errno = unsafe { *libc::__errno_location() };
        if code > 0 && replace(at) {
            // SAFETY: as above.
            unsafe { *libc::__errno_location() = errno };
            return;
        }
        // SAFETY: what was there before is put back. A fault happens once more then, on return;
        // a signal that somebody sent does not, so it is sent again.
        unsafe {
            libc::sigaction(signal, BEFORE.0.get().cast(), ptr::null_mut());
            if code <= 0 {
                libc::raise(signal);
            }
        }
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::{is_bad, is_readable, GuardedMap};
    use crate::disk::resident::page_size;
    use memmap2::MmapOptions;
    use std::fs::File;
    use std::path::{Path, PathBuf};

    /// A folder that goes away with the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("roquet-pages-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn mapped(path: &Path, pages: usize) -> (File, GuardedMap) {
        std::fs::write(path, vec![7; pages * page_size()]).unwrap();
        let file = File::options().read(true).write(true).open(path).unwrap();
        // SAFETY: what happens when the file is cut is what the tests are about.
        let map = unsafe { MmapOptions::new().map(&file) }.unwrap();
        (file, GuardedMap::new(map))
    }

    #[test]
    fn pages_that_cannot_be_read_are_zeros_and_told_apart_and_others_are_as_they_were() {
        let folder = Folder::new("cut");
        let (page, pages) = (page_size(), 200);
        let (file, map) = mapped(&folder.0.join("cut"), pages);
        let (_whole, other) = mapped(&folder.0.join("whole"), pages);
        file.set_len(3 * page as u64).unwrap();
        assert!(!is_bad(&map));
        assert!(is_readable(&map[..3 * page]));
        assert_eq!(map[150 * page + 9], 0);
        assert!(is_bad(&map[150 * page..=150 * page]));
        assert!(is_bad(&map[149 * page..151 * page]));
        assert!(!is_bad(&map[..150 * page]) && !is_bad(&map[151 * page..]));
        assert!(!is_readable(&map[3 * page - 1..=3 * page]));
        assert!(map[..3 * page].iter().all(|byte| *byte == 7));
        assert!(!is_readable(&map));
        assert!(map[3 * page..].iter().all(|byte| *byte == 0));
        assert!(is_readable(&other) && other.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn place_of_a_map_that_is_gone_knows_nothing_of_its_pages() {
        let folder = Folder::new("gone");
        for round in 0..50 {
            let (file, map) = mapped(&folder.0.join(format!("{round}")), 4);
            assert!(is_readable(&map));
            file.set_len(0).unwrap();
            assert!(!is_readable(&map[3 * page_size()..]), "{round}");
            assert!(!is_bad(&map[..page_size()]), "{round}");
        }
    }
}
