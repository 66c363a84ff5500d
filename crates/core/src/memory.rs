//! The C library's allocator, as a server sets it.

/// Lets the threads of this process share `count` arenas of the C library's allocator; false where
/// that cannot be said, and where `MALLOC_ARENA_MAX` is set: whoever set it has decided.
///
/// By default there are up to eight arenas a core, and what one thread frees in its own, others
/// cannot use. Call it before there are threads: arenas that are there stay.
pub fn share_arenas(count: i32) -> bool {
    if std::env::var_os("MALLOC_ARENA_MAX").is_some() {
        return false;
    }
    share(count)
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn share(count: i32) -> bool {
    // SAFETY: it takes two numbers, and guards its own tables.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, count) == 1 }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn share(_count: i32) -> bool {
    false
}
