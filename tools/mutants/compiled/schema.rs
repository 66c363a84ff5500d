//! Which of the changes that `tools.mutants.compiled.schema` has built in is made; only in its copy.
//!
//! `ROQUET_CHANGE` is the number of the change. `ROQUET_CHANGE_NOTES` is instead a file with a byte
//! for each function: that of a function which is run becomes 1.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;

const UNREAD: u32 = u32::MAX;
const NOTING: u32 = u32::MAX - 1;

static CHANGE: AtomicU32 = AtomicU32::new(UNREAD);
static NOTES: OnceLock<Option<memmap2::MmapRaw>> = OnceLock::new();

/// The number of the change that is made, for the function of this number.
#[inline]
pub fn change(function: usize) -> u32 {
    match CHANGE.load(Ordering::Relaxed) {
        UNREAD => read(function),
        NOTING => note(function),
        number => number,
    }
}

#[cold]
fn read(function: usize) -> u32 {
    let notes = NOTES.get_or_init(|| {
        let path = std::env::var_os("ROQUET_CHANGE_NOTES")?;
        let file = std::fs::File::options().read(true).write(true).open(path);
        Some(memmap2::MmapRaw::map_raw(&file.expect("the notes")).expect("the notes"))
    });
    let number = match notes {
        Some(_) => NOTING,
        None => std::env::var("ROQUET_CHANGE").map_or(0, |it| it.parse().expect("a number")),
    };
    CHANGE.store(number, Ordering::Relaxed);
    change(function)
}

#[cold]
fn note(function: usize) -> u32 {
    if let Some(Some(notes)) = NOTES.get() {
        assert!(function < notes.len());
        // SAFETY: within the map, which lives as long as the process.
        unsafe { notes.as_mut_ptr().add(function).write_volatile(1) };
    }
    NOTING
}
