//! Seeded damage to every file of a store: never a panic, never a body that nobody sent, and what
//! the log can give back comes back.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // A test may.

use super::common::sim_disk::SimDisk;
use super::common::Rng;
use super::store_help::{config, Folder, Made};
use roquet_core::disk::file_disk::FileDisk;
use roquet_core::disk::{Disk, DiskFile, Space};
use roquet_core::store::config::Value;
use roquet_core::store::env::Env;
use roquet_core::store::error::{ErrorKind, StoreError};
use roquet_core::store::Store;
use std::io;
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

const CUT: u64 = 8_192;
const TALL: (&str, Value) = ("mappedFileSizeCommitLog", Value::Int(32_768));

/// Cuts a file that others have open: its pages behind `CUT` cannot be read any more.
fn make_unreadable(path: &Path) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_len(CUT).unwrap();
}

/// A disk that has a page of a file's tail go bad once it is open.
struct Failing(FileDisk, PathBuf);

impl Disk for Failing {
    fn create(&self, path: &Path, len: u64, space: Space) -> io::Result<Arc<dyn DiskFile>> {
        self.0.create(path, len, space)
    }
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.0.open(path)?;
        if path == self.1 {
            make_unreadable(path);
        }
        Ok(file)
    }
    fn read_front(&self, path: &Path, most: usize) -> io::Result<Option<Vec<u8>>> {
        self.0.read_front(path, most)
    }
    fn write(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        self.0.write(path, data)
    }
    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.0.sync_file(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.0.remove_dir(path)
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.0.create_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.0.sync_dir(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<(PathBuf, bool, u64)>> {
        self.0.list(path)
    }
    fn modified_ms(&self, path: &Path) -> io::Result<u64> {
        self.0.modified_ms(path)
    }
    fn space(&self, path: &Path) -> io::Result<(u64, u64)> {
        self.0.space(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.0.lock(path)
    }
}

fn numbered(number: usize) -> Vec<u8> {
    let mut body = format!("{number:08}").into_bytes();
    body.resize(1_000, b'.');
    body
}

/// A store of two log files with a message a kilobyte; returns where each ends in the log.
fn of_two_files(folder: &Folder) -> (Arc<Store>, Vec<u64>) {
    let store = folder.open(&[TALL]);
    store.start().unwrap();
    let placed = (0..40).map(|number| store.send("T", 0, &numbered(number), b""));
    let ends = placed.map(|it| it.physical_offset + it.size).collect();
    store.settle();
    (store, ends)
}

#[test]
fn messages_that_the_disk_cannot_read_are_passed_over_and_counted_and_others_served() {
    let folder = Folder::new("unreadable");
    let (store, ends) = of_two_files(&folder);
    make_unreadable(&folder.path("commitlog/00000000000000000000"));
    let lost = |end: &u64| (CUT..32_768).contains(&(end - 1));
    let want: Vec<_> = (0..40).filter(|n| !lost(&ends[*n])).map(numbered).collect();
    assert!(want.len() > 10 && want.len() < 30, "{}", want.len());
    assert_eq!(store.read_all("T", 0), want);
    let damaged = u64::try_from(40 - want.len()).unwrap();
    assert_eq!(store.log().damage.total(), damaged);
    assert!(store
        .log()
        .damage
        .last()
        .contains("the disk cannot read its record"));
    assert!(store.copyable(0, 4_096).unwrap().is_some());
    let refused = store.copyable(CUT, 4_096).err().unwrap();
    assert!(
        refused.text.contains("pages that cannot be read"),
        "{refused}"
    );
    store.close().unwrap();
}

#[test]
fn start_whose_log_cannot_be_read_is_refused_and_cuts_nothing() {
    let folder = Folder::new("unreadable-start");
    let (store, _) = of_two_files(&folder);
    store.close().unwrap();
    // As a start after a kill, which reads the log from its beginning.
    std::fs::write(folder.path("abort"), b"1").unwrap();
    std::fs::remove_file(folder.path("checkpoint")).unwrap();
    let second = folder.path("commitlog/00000000000000032768");
    let before = std::fs::read(&second).unwrap();
    let log = folder.path("commitlog/00000000000000000000");
    let disk = Arc::new(Failing(FileDisk::new(), log));
    let env = Env {
        disk,
        ..Env::system()
    };
    let refused = Store::open(config(&folder.0, &[TALL]), env).err().unwrap();
    assert_eq!(refused.kind, ErrorKind::Io);
    assert!(
        refused.text.contains("pages that cannot be read"),
        "{refused}"
    );
    assert_eq!(std::fs::read(&second).unwrap(), before);
}
