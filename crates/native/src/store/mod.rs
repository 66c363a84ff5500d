//! The message store for Python, and what works on its files and its log.

pub(crate) mod log;
mod message_store;
mod puts;
pub(crate) mod rebuild;
pub(crate) mod replica;
pub(crate) mod replica_link;
pub(crate) mod revive;
pub(crate) mod timer;

pub(crate) use message_store::Store;
