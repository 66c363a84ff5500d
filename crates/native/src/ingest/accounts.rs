//! Accounts from Python, for the admission table.

use std::collections::HashMap;

use pyo3::FromPyObject;
use roquet_core::ingest::accounts::{Accounts, Ranges, Rights, White};

/// (whether everyone, ranges of the parts of addresses).
pub(crate) type WhiteTuple = (bool, Vec<Ranges>);

/// One account, as the stub describes it.
#[derive(FromPyObject)]
pub(crate) struct AccountTuple(
    String,
    Vec<u8>,
    WhiteTuple,
    bool,
    (u8, u8),
    HashMap<String, u8>,
    HashMap<String, u8>,
);

fn white((everyone, ranges): WhiteTuple) -> White {
    White { everyone, ranges }
}

fn named(rights: HashMap<String, u8>) -> HashMap<Box<str>, u8> {
    rights
        .into_iter()
        .map(|(name, bits)| (name.into_boxed_str(), bits))
        .collect()
}

/// Makes the table's accounts.
pub(crate) fn make(trusted: Vec<WhiteTuple>, all: Vec<AccountTuple>) -> Accounts {
    let mut found = Accounts::new(trusted.into_iter().map(white).collect());
    for AccountTuple(key, secret, from, unlimited, defaults, topics, groups) in all {
        let rights = Rights {
            unlimited,
            default_topic: defaults.0,
            default_group: defaults.1,
            topics: named(topics),
            groups: named(groups),
        };
        found.add(&key, &secret, white(from), rights);
    }
    found
}
