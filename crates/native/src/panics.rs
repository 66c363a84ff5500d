//! What a process sets for the core, and the panics for which it has to stop.

use std::os::fd::RawFd;
use std::thread;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::{pyfunction, PyResult};
use roquet_core::{memory, panics};

/// Have all threads share so many arenas of the allocator; whether that could be set.
#[pyfunction]
pub(crate) fn share_arenas(count: i32) -> bool {
    memory::share_arenas(count)
}

/// Note the first panic from now on; return the descriptor that is readable once there was one.
#[pyfunction]
pub(crate) fn watch_panics() -> PyResult<RawFd> {
    panics::watch().map_err(|error| match error.raw_os_error() {
        Some(number) => PyOSError::new_err((number, error.to_string())),
        None => error.into(),
    })
}

/// The first panic since `watch_panics`, on one line; None when there was none.
#[pyfunction]
pub(crate) fn first_panic() -> Option<String> {
    panics::first()
}

/// Panic in a thread of its own: what tests do to a process of theirs.
#[pyfunction]
#[allow(clippy::panic)] // That is what it is for.
pub(crate) fn plant_panic(text: String) -> PyResult<()> {
    let thread = thread::Builder::new().name("planted".to_owned());
    // The end of the thread is the panic, and no news.
    let _ = thread.spawn(move || panic!("{text}"))?.join();
    Ok(())
}
