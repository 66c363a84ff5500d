//! Seeded damage to every file of a store: never a panic, never a body that nobody sent, and what
//! the log can give back comes back.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // A test may.

use super::common::sim_disk::SimDisk;
use super::common::Rng;
use super::store_help::{config, Made};
use roquet_core::store::config::Value;
use roquet_core::store::env::Env;
use roquet_core::store::error::{ErrorKind, StoreError};
use roquet_core::store::Store;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const COUNT: usize = 150;
const ROUNDS: u64 = 250;

fn open(disk: &SimDisk) -> Result<Arc<Store>, StoreError> {
    let env = Env {
        disk: Arc::new(disk.clone()),
        clock: Arc::new(|| 1_700_000_000_000),
        boot: 7,
        ..Env::system()
    };
    let small = [("mappedFileSizeCommitLog", Value::Int(8_192))];
    Store::open(config(Path::new("/s"), &small), env)
}

fn body(number: usize) -> Vec<u8> {
    let mut body = format!("{number:08}").into_bytes();
    body.resize(50 + number * 7 % 300, b'.');
    body
}

/// A store with messages in two queues; `checkpoints` writes derived files as it goes.
fn filled(checkpoints: bool) -> (SimDisk, Arc<Store>) {
    let disk = SimDisk::new();
    let store = open(&disk).unwrap();
    assert!(store.start_stepped().unwrap());
    for number in 0..COUNT {
        let queue = i32::try_from(number % 2).unwrap();
        store.send("T", queue, &body(number), b"KEYS\x01k\x02TAGS\x01A\x02");
        while store.dispatch().unwrap() {}
        if checkpoints && number % 40 == 39 {
            store.checkpoint().unwrap();
        }
    }
    (disk, store)
}

/// What a killed process leaves, on a disk of its own.
fn killed(disk: &SimDisk) -> SimDisk {
    let copy = SimDisk::new();
    for (path, bytes) in disk.files() {
        copy.plant(&path, &bytes);
    }
    copy
}

/// Damages one file at a seeded place; returns which.
fn hurt(disk: &SimDisk, rng: &mut Rng) -> PathBuf {
    let mut files = disk.files();
    files.retain(|(path, bytes)| !bytes.is_empty() && !path.ends_with("abort"));
    let pick = usize::try_from(rng.below(files.len() as u64)).unwrap();
    let (path, bytes) = files.swap_remove(pick);
    // Most of a file is empty: damage where something is.
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) + 1;
    let at = usize::try_from(rng.below(used as u64)).unwrap();
    let new = match rng.below(4) {
        0 => vec![bytes[at] ^ (1 << rng.below(8))],
        1 => vec![0; 512.min(bytes.len() - at)],
        2 => vec![0; 4096.min(bytes.len() - at)],
        _ => (0..64.min(bytes.len() - at))
            .map(|_| u8::try_from(rng.below(256)).unwrap())
            .collect(),
    };
    disk.damage(&path, at, &new);
    path
}

/// Bodies by queue; each must be one that was sent.
fn bodies(store: &Store, seed: u64, path: &Path) -> Vec<Vec<Vec<u8>>> {
    let known: Vec<_> = (0..COUNT).map(body).collect();
    let read = |queue| -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut at = store.queues().min("T", queue).cast_signed();
        let max = store.queues().max("T", queue).cast_signed();
        while at < max {
            let got = store.read("T", queue, at, None);
            assert!(got.next > at, "seed {seed}, {}", path.display());
            all.extend(super::store_help::bodies(&got));
            at = got.next;
        }
        all
    };
    let both: Vec<_> = [0, 1].map(read).into();
    for body in both.iter().flatten() {
        assert!(known.contains(body), "seed {seed}, {}", path.display());
    }
    both
}

fn expected() -> Vec<Vec<Vec<u8>>> {
    let of = |queue| (0..COUNT).filter(|n| n % 2 == queue).map(body).collect();
    vec![of(0), of(1)]
}

#[test]
fn after_a_kill_only_the_log_matters() {
    let (disk, _store) = filled(false);
    let (mut whole, mut refused) = (0, 0);
    for seed in 0..ROUNDS {
        let disk = killed(&disk);
        let path = hurt(&disk, &mut Rng(seed));
        let in_log = path.starts_with("/s/commitlog");
        match open(&disk) {
            Ok(store) => {
                let found = bodies(&store, seed, &path);
                if !in_log {
                    assert_eq!(found, expected(), "seed {seed}, {}", path.display());
                    whole += 1;
                }
            }
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::Corrupt, "seed {seed}: {error}");
                assert!(in_log, "seed {seed}, {}: {error}", path.display());
                refused += 1;
            }
        }
    }
    assert!(whole > 20 && refused > 20, "{whole} {refused}");
}

#[test]
fn after_a_kill_with_checkpoints_the_derived_files_are_repaired() {
    let (disk, _store) = filled(true);
    for seed in 0..ROUNDS {
        let disk = killed(&disk);
        let path = hurt(&disk, &mut Rng(seed));
        match open(&disk) {
            Ok(store) => {
                let found = bodies(&store, seed, &path);
                if path.ends_with("checkpoint") {
                    assert_eq!(found, expected(), "seed {seed}");
                }
            }
            Err(error) => assert_eq!(error.kind, ErrorKind::Corrupt, "seed {seed}: {error}"),
        }
    }
}

#[test]
fn after_an_orderly_stop_damage_is_met_without_harm() {
    let (disk, store) = filled(true);
    store.close().unwrap();
    for seed in 0..ROUNDS {
        let disk = killed(&disk);
        let path = hurt(&disk, &mut Rng(seed));
        let in_old_log = path.starts_with("/s/commitlog");
        match open(&disk) {
            Ok(store) => {
                if !in_old_log {
                    bodies(&store, seed, &path);
                }
            }
            Err(error) => assert_eq!(error.kind, ErrorKind::Corrupt, "seed {seed}: {error}"),
        }
    }
}
