//! The property text of a row: its own properties, then those that columns stand for.

use std::collections::{HashMap, HashSet};

use super::columns::{Keys, Rows};
use super::Problem;
use crate::codec::properties::{DELAY, KEYS, NAME_END, TAGS, UNIQ_KEY, VALUE_END};

const SHARDING_KEY: &[u8] = b"__SHARDINGKEY";
/// Above this many pairs repeats are found by hashing.
const FEW: usize = 32;

/// Appends the text; pairs without a value are left out, as no reader keeps them.
pub(super) fn write(
    rows: &Rows<'_>,
    row: usize,
    delay: i32,
    unique: &[u8],
    left_out: &HashSet<Vec<u8>>,
    out: &mut Vec<u8>,
) -> Result<(), Problem> {
    let mut pairs = own(rows, row, left_out);
    if let Some(value) = rows.sharding.and_then(|texts| texts.filled(row)) {
        match pairs.iter_mut().find(|(name, _)| *name == SHARDING_KEY) {
            Some(pair) => pair.1 = value,
            None => pairs.push((SHARDING_KEY, value)),
        }
    }
    let mut keys = Vec::new();
    add_keys(rows, row, &mut keys)?;
    let level;
    if let Some(tags) = rows.tags.and_then(|texts| texts.filled(row)) {
        pairs.push((TAGS, tags));
    }
    if !keys.is_empty() {
        pairs.push((KEYS, &keys));
    }
    if delay > 0 {
        level = delay.to_string();
        pairs.push((DELAY, level.as_bytes()));
    }
    pairs.push((UNIQ_KEY, unique));
    for (name, value) in pairs {
        if name.is_empty()
            || memchr::memchr2(NAME_END, VALUE_END, name).is_some()
            || memchr::memchr(VALUE_END, value).is_some()
        {
            return Err(Problem::Property(
                String::from_utf8_lossy(name).into_owned(),
            ));
        }
        if !value.is_empty() {
            out.extend_from_slice(name);
            out.push(NAME_END);
            out.extend_from_slice(value);
            out.push(VALUE_END);
        }
    }
    Ok(())
}

/// The properties of the map, each name once: at its first place, with its last value.
fn own<'a>(rows: &Rows<'a>, row: usize, left_out: &HashSet<Vec<u8>>) -> Vec<(&'a [u8], &'a [u8])> {
    let mut pairs: Vec<(&[u8], &[u8])> = Vec::with_capacity(8);
    let Some((lists, names, values)) = rows.properties else {
        return pairs;
    };
    let mut places: HashMap<&[u8], usize> = HashMap::new();
    for entry in lists.entries(row) {
        let name = names.get(entry).unwrap_or_default();
        if left_out.contains(name) {
            continue;
        }
        let value = values.get(entry).unwrap_or_default();
        let known = if pairs.len() <= FEW {
            pairs.iter().position(|(known, _)| *known == name)
        } else {
            if places.is_empty() {
                places.extend(pairs.iter().enumerate().map(|(at, pair)| (pair.0, at)));
            }
            places.get(name).copied()
        };
        if let Some(pair) = known.and_then(|at| pairs.get_mut(at)) {
            pair.1 = value;
            continue;
        }
        if !places.is_empty() {
            places.insert(name, pairs.len());
        }
        pairs.push((name, value));
    }
    pairs
}

fn add_keys(rows: &Rows<'_>, row: usize, out: &mut Vec<u8>) -> Result<(), Problem> {
    match rows.keys {
        None => {}
        Some(Keys::Text(texts)) => {
            let text = texts.get(row).unwrap_or_default();
            for word in std::str::from_utf8(text)
                .unwrap_or_default()
                .split(is_space)
                .filter(|word| !word.is_empty())
            {
                add(word.as_bytes(), out);
            }
        }
        Some(Keys::List(lists, texts)) => {
            for entry in lists.entries(row) {
                let key = texts.filled(entry).ok_or(Problem::Key)?;
                if std::str::from_utf8(key).is_ok_and(|key| key.contains(is_space)) {
                    return Err(Problem::Key);
                }
                add(key, out);
            }
        }
    }
    Ok(())
}

fn add(key: &[u8], out: &mut Vec<u8>) {
    if !out.is_empty() {
        out.push(b' ');
    }
    out.extend_from_slice(key);
}

/// White space as Python has it, to which the four separators of ASCII belong.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}
