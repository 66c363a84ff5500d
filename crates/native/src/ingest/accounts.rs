//! Accounts from Python, for the admission table.

use std::collections::HashMap;

use pyo3::FromPyObject;
use roquet_core::ingest::accounts::{Accounts, Names, Ranges, Rights, White};

/// (whether everyone, ranges of the parts of addresses).
pub(crate) type WhiteTuple = (bool, Vec<Ranges>);

/// (rights by name, by prefix, with all others).
type NamesTuple = (HashMap<String, u8>, HashMap<String, u8>, u8);

/// One account, as the stub describes it.
#[derive(FromPyObject)]
pub(crate) struct AccountTuple(String, Vec<u8>, WhiteTuple, bool, NamesTuple, NamesTuple);

fn white((everyone, ranges): WhiteTuple) -> White {
    White { everyone, ranges }
}

fn boxed(rights: HashMap<String, u8>) -> HashMap<Box<str>, u8> {
    rights
        .into_iter()
        .map(|(name, bits)| (name.into_boxed_str(), bits))
        .collect()
}

fn names((exact, prefixes, others): NamesTuple) -> Names {
    Names::new(boxed(exact), boxed(prefixes), others)
}

/// Makes the table's accounts.
pub(crate) fn make(trusted: Vec<WhiteTuple>, all: Vec<AccountTuple>) -> Accounts {
    let mut found = Accounts::new(trusted.into_iter().map(white).collect());
    for AccountTuple(key, secret, from, unlimited, topics, groups) in all {
        let rights = Rights {
            unlimited,
            topics: names(topics),
            groups: names(groups),
        };
        found.add(&key, &secret, white(from), rights);
    }
    found
}
