//! Rows of Arrow batches into bodies of batch sends: the bytes that the Spark sink sends.
//!
//! Where a row goes is said by the caller, a number a row (its *lot*). The encoder keeps an open
//! body for each lot and hands it out as a frame once it is full: after `chunk_rows` rows, or before
//! it would grow beyond `size_max` bytes. Invariant: the rows of a lot leave in the order in which
//! they came, each in exactly one frame, and no frame is longer than `size_max` unless it holds one
//! row that is to be sent alone.

pub mod columns;
mod properties;

use std::collections::{BTreeMap, HashSet};

use sha2::{Digest, Sha256};

use crate::codec::batch::{self, Element, ELEMENT_SIZE_MIN};
use crate::codec::limits::PROPERTIES_SIZE_MAX;
use columns::{number32, Rows};

/// Why a row is no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// There is no body.
    NoBody,
    /// A body of this many bytes is too long.
    BodySize(usize),
    /// A key is empty or has white space.
    Key,
    /// The property of this name is empty or holds a separator.
    Property(String),
    /// The properties are longer than they may be.
    PropertiesSize,
    /// The message fits into no batch.
    BatchSize,
}

/// What the caller decides about messages.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Most bytes of a body, and of a frame.
    pub size_max: usize,
    /// Most rows of a frame.
    pub chunk_rows: u32,
    /// Names of properties that are left out.
    pub left_out: HashSet<Vec<u8>>,
    /// What the unique keys are hashes of, in front of the number of the row.
    pub key_prefix: String,
    /// Whether each message is sent alone, so that it need not fit into a batch.
    pub alone: bool,
}

/// The body of a batch send.
#[derive(Debug)]
pub struct Frame {
    /// Where it goes.
    pub lot: i32,
    /// The elements.
    pub body: Vec<u8>,
    /// How many elements there are.
    pub rows: u32,
    /// The unique key of the first.
    pub first_key: Vec<u8>,
}

#[derive(Default)]
struct Open {
    body: Vec<u8>,
    rows: u32,
    /// Rows since the last full chunk; a frame that is cut for its size does not end a chunk.
    chunk: u32,
    first_key: Vec<u8>,
}

/// Encodes rows and cuts frames.
pub struct Encoder {
    rules: Rules,
    hash: Sha256,
    open: BTreeMap<i32, Open>,
    /// Rows taken so far: the number that the next one's key is made of.
    rows: u64,
    text: Vec<u8>,
}

impl Encoder {
    /// Starts with the row of number 0.
    pub fn new(rules: Rules) -> Self {
        let hash = Sha256::new().chain_update(rules.key_prefix.as_bytes());
        Self {
            rules,
            hash,
            open: BTreeMap::new(),
            rows: 0,
            text: Vec::new(),
        }
    }

    /// Bytes of the frames that are not full.
    pub fn bytes(&self) -> usize {
        self.open.values().map(|open| open.body.len()).sum()
    }

    /// Takes rows and returns the frames that became full.
    ///
    /// Fails with the number of the row, of this batch, that is no message; the encoder is of no
    /// use then.
    pub fn add(&mut self, rows: &Rows<'_>) -> Result<Vec<Frame>, (usize, Problem)> {
        let mut full = Vec::new();
        for row in 0..rows.rows {
            self.add_row(rows, row, &mut full)
                .map_err(|problem| (row, problem))?;
        }
        Ok(full)
    }

    /// Returns what is left, in the order of the lots.
    pub fn finish(&mut self) -> Vec<Frame> {
        let open = std::mem::take(&mut self.open);
        open.into_iter()
            .filter(|(_, open)| open.rows > 0)
            .map(|(lot, open)| frame(lot, open))
            .collect()
    }

    fn add_row(
        &mut self,
        rows: &Rows<'_>,
        row: usize,
        full: &mut Vec<Frame>,
    ) -> Result<(), Problem> {
        let body = rows.body.filled(row).ok_or(Problem::NoBody)?;
        if body.len() > self.rules.size_max {
            return Err(Problem::BodySize(body.len()));
        }
        let planned = planned_key(&self.hash, self.rows);
        let given = rows.unique.and_then(|texts| texts.filled(row));
        let key = given.unwrap_or(&planned);
        self.rows += 1;
        let delay = rows
            .delay
            .and_then(|levels| number32(levels, row))
            .unwrap_or(0);
        self.text.clear();
        properties::write(rows, row, delay, key, &self.rules.left_out, &mut self.text)?;
        if self.text.len() > PROPERTIES_SIZE_MAX {
            return Err(Problem::PropertiesSize);
        }
        let size = ELEMENT_SIZE_MIN + body.len() + self.text.len();
        if size > self.rules.size_max && !self.rules.alone && delay == 0 {
            return Err(Problem::BatchSize);
        }
        let lot = number32(rows.lots, row).unwrap_or(0);
        let open = self.open.entry(lot).or_default();
        if open.rows > 0 && open.body.len() + size > self.rules.size_max {
            let chunk = open.chunk;
            full.push(frame(lot, std::mem::take(open)));
            open.chunk = chunk;
        }
        if open.rows == 0 {
            open.first_key = key.to_vec();
        }
        let element = Element {
            flag: 0,
            body,
            properties: &self.text,
        };
        batch::encode(&element, &mut open.body).map_err(|_| Problem::BatchSize)?;
        open.rows += 1;
        open.chunk += 1;
        if open.chunk >= self.rules.chunk_rows {
            full.push(frame(lot, std::mem::take(open)));
        }
        Ok(())
    }
}

fn frame(lot: i32, open: Open) -> Frame {
    Frame {
        lot,
        body: open.body,
        rows: open.rows,
        first_key: open.first_key,
    }
}

/// The key of a row of a plan: half of a hash, in hexadecimal digits.
fn planned_key(prefix: &Sha256, row: u64) -> [u8; 32] {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let hash = prefix
        .clone()
        .chain_update(row.to_string().as_bytes())
        .finalize();
    let mut key = [0; 32];
    for (two, byte) in key.chunks_exact_mut(2).zip(hash.iter()) {
        for (digit, half) in two.iter_mut().zip([byte >> 4, byte & 15]) {
            *digit = DIGITS.get(usize::from(half)).copied().unwrap_or_default();
        }
    }
    key
}

/// The key that the row of a number gets behind a prefix.
pub fn key_of_row(prefix: &str, row: u64) -> String {
    let hash = Sha256::new().chain_update(prefix.as_bytes());
    String::from_utf8_lossy(&planned_key(&hash, row)).into_owned()
}

#[cfg(test)]
mod tests;
