//! What a store takes from the machine, so that tests can give it something else.

use crate::commit_log::Clock;
use crate::disk::file_disk::FileDisk;
use crate::disk::Disk;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Disk, clock and what is known of the machine.
#[derive(Clone)]
pub struct Env {
    /// Where the files are.
    pub disk: Arc<dyn Disk>,
    /// The time.
    pub clock: Clock,
    /// Milliseconds since some moment, by a clock that nobody can set.
    pub steady: Clock,
    /// A number that changes when the machine is booted; 0 when there is none.
    pub boot: u64,
    /// Bytes of the machine's memory.
    pub memory: u64,
    /// The number of this process.
    pub process: u32,
}

impl Env {
    /// The machine itself.
    pub fn system() -> Self {
        Self {
            disk: Arc::new(FileDisk::new()),
            clock: Arc::new(now),
            steady: steady(),
            boot: boot(),
            memory: memory(),
            process: std::process::id(),
        }
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |age| i64::try_from(age.as_millis()).unwrap_or(i64::MAX))
}

/// A clock that nobody can set, from now on.
pub fn steady() -> Clock {
    let begin = Instant::now();
    Arc::new(move || i64::try_from(begin.elapsed().as_millis()).unwrap_or(i64::MAX))
}

fn boot() -> u64 {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text
        .chars()
        .filter(char::is_ascii_hexdigit)
        .take(16)
        .collect();
    u64::from_str_radix(&digits, 16).unwrap_or(0)
}

fn memory() -> u64 {
    // SAFETY: no memory is passed.
    let (pages, size) = unsafe {
        (
            libc::sysconf(libc::_SC_PHYS_PAGES),
            libc::sysconf(libc::_SC_PAGESIZE),
        )
    };
    let bytes = u64::try_from(pages).ok().zip(u64::try_from(size).ok());
    bytes.map_or(u64::MAX, |(pages, size)| pages.saturating_mul(size))
}

#[cfg(test)]
mod tests {
    use super::Env;

    #[test]
    fn the_machine_has_a_time_and_memory() {
        let env = Env::system();
        assert!((env.clock)() > 1_600_000_000_000);
        assert!(env.memory > 1 << 20);
        assert_eq!(env.boot, Env::system().boot);
    }
}
