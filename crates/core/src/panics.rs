//! The first panic of the process, for whoever has to stop it in order.
//!
//! Without this a panic in a thread of the core shows as two lines on the error stream and as a part
//! that is silent from then on. A server calls [`watch`] once; it gets a descriptor that becomes
//! readable with the first panic, wherever that happens, and stops with its text in the log.

use crate::notifier::Notifier;
use std::io;
use std::os::fd::RawFd;
use std::panic::{self, PanicHookInfo};
use std::sync::{Mutex, OnceLock};

use crate::store::health::hold;

static WATCH: OnceLock<Watch> = OnceLock::new();

struct Watch {
    notifier: Notifier,
    first: Mutex<Option<String>>,
}

/// Notes the first panic from now on; returns the descriptor that is readable once there was one.
/// Twice is once. Fails when there is no descriptor left.
pub fn watch() -> io::Result<RawFd> {
    if let Some(watch) = WATCH.get() {
        return Ok(watch.notifier.fd());
    }
    let made = Watch {
        notifier: Notifier::new()?,
        first: Mutex::new(None),
    };
    let watch = WATCH.get_or_init(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            // The lines on the error stream stay as they are: the log may be elsewhere.
            before(info);
            note(info);
        }));
        made
    });
    Ok(watch.notifier.fd())
}

/// The first panic since [`watch`]: thread, place and message on one line.
pub fn first() -> Option<String> {
    hold(&WATCH.get()?.first).clone()
}

fn note(info: &PanicHookInfo<'_>) {
    let Some(watch) = WATCH.get() else {
        return;
    };
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("without a name").to_owned();
    let place = info
        .location()
        .map_or_else(String::new, |at| format!(" at {}:{}", at.file(), at.line()));
    let text = format!("thread {name}{place}: {}", message(info.payload()));
    hold(&watch.first).get_or_insert(text);
    watch.notifier.notify();
}

/// The message of a panic, without line breaks.
pub fn message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::{first, watch};

    #[test]
    fn the_first_panic_is_kept_and_rings() {
        assert_eq!(first(), None);
        let fd = watch().unwrap();
        assert_eq!(watch().unwrap(), fd);
        for text in ["planted\nfirst", "planted second"] {
            let thread = std::thread::Builder::new().name("planted".to_owned());
            let ended = thread.spawn(move || panic!("{text}")).unwrap().join();
            assert!(ended.is_err());
        }
        let noted = first().unwrap();
        assert!(noted.starts_with("thread planted at "), "{noted}");
        assert!(noted.ends_with(": planted first"), "{noted}");
        let mut entry = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: `entry` is one valid entry.
        assert_eq!(unsafe { libc::poll(&raw mut entry, 1, 0) }, 1);
    }
}
