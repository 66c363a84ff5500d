//! A disk in memory that can lose power, fill up and break.
//!
//! It keeps two images: what the process sees, and what is durable. Content becomes durable with a
//! sync of the file, names with a sync of their folder, nothing otherwise. After a power loss every
//! page written since is old, new or torn between sectors, and every name made, changed or removed
//! since is there or not, each drawn on its own.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use super::sim_file::Inode;
use super::Rng;

pub(super) type File = Arc<Mutex<Inode>>;

/// What an operation of the disk does, for counting and failing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    Create,
    Write,
    Sync,
    SyncDir,
    Names,
    Open,
    Read,
}

/// A failure to come: the `nth` (from 0) operation of the kind fails, and with `sticky` all later ones.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// `None`: any operation that changes something.
    pub op: Option<Op>,
    pub nth: u64,
    pub sticky: bool,
    pub errno: i32,
}

/// Ways in which the disk lies, to see that the tests notice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lies {
    pub sync_does_nothing: bool,
    pub sync_dir_does_nothing: bool,
}

#[derive(Clone)]
pub(super) enum Change {
    Link(PathBuf, File),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf, File),
}

#[derive(Default)]
pub(super) struct State {
    pub(super) files: BTreeMap<PathBuf, File>,
    pub(super) dirs: BTreeSet<PathBuf>,
    pub(super) durable: BTreeMap<PathBuf, File>,
    /// Folders whose name is not durable yet.
    pub(super) new_dirs: BTreeSet<PathBuf>,
    /// Name changes not durable yet, in order.
    pub(super) changes: Vec<Change>,
    pub(super) locks: BTreeSet<PathBuf>,
    counts: BTreeMap<Op, u64>,
    changing: u64,
    fault: Option<Fault>,
    faults_hit: u64,
    power_off_at: Option<u64>,
    pub(super) off: bool,
    pub(super) lies: Lies,
    pub(super) capacity: Option<u64>,
    pub(super) allocated: BTreeMap<PathBuf, u64>,
    pub(super) now: u64,
}

/// The simulated disk; clones are the same disk.
#[derive(Clone, Default)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

impl SimDisk {
    /// An empty disk with the folder `/s`, which is durable.
    pub fn new() -> Self {
        let disk = Self::default();
        let roots = ["/", "/s"].map(PathBuf::from);
        disk.lock_state().dirs.extend(roots);
        disk
    }

    pub(super) fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics inside the disk")
    }

    /// Cuts the power at the `nth` (from 0) operation that changes something.
    pub fn power_off_at(&self, nth: u64) {
        self.lock_state().power_off_at = Some(nth);
    }

    pub fn power_off(&self) {
        self.lock_state().off = true;
    }

    pub fn is_off(&self) -> bool {
        self.lock_state().off
    }

    pub fn set_fault(&self, fault: Option<Fault>) {
        let mut state = self.lock_state();
        state.counts.clear();
        state.changing = 0;
        state.faults_hit = 0;
        state.fault = fault;
    }

    /// How often the planned fault has struck.
    pub fn faults_hit(&self) -> u64 {
        self.lock_state().faults_hit
    }

    pub fn set_lies(&self, lies: Lies) {
        self.lock_state().lies = lies;
    }

    /// Bytes that fit; `None` for no limit. What is allocated already stays.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.lock_state().capacity = bytes;
    }

    pub fn set_now(&self, ms: u64) {
        self.lock_state().now = ms;
    }

    /// Operations so far that changed something.
    pub fn changes(&self) -> u64 {
        self.lock_state().changing
    }

    pub fn count(&self, op: Op) -> u64 {
        self.lock_state().counts.get(&op).copied().unwrap_or(0)
    }

    /// One legal state of the disk after a power loss now.
    pub fn after_power_loss(&self, rng: &mut Rng) -> Self {
        let state = self.lock_state();
        let mut names = state.durable.clone();
        for change in &state.changes {
            if rng.chance(2) {
                continue;
            }
            apply(&mut names, change);
        }
        for dir in &state.new_dirs {
            if rng.chance(2) {
                names.retain(|path, _| !path.starts_with(dir));
            }
        }
        let mut seen: Vec<(File, File)> = Vec::new();
        let mut image = State {
            now: state.now,
            dirs: ["/", "/s"].map(PathBuf::from).into(),
            ..State::default()
        };
        for (path, file) in names {
            let known = seen.iter().find(|(old, _)| Arc::ptr_eq(old, &file));
            let new = known.map_or_else(
                || {
                    let inode = file.lock().expect("inode").after_power_loss(rng);
                    Arc::new(Mutex::new(inode))
                },
                |(_, new)| Arc::clone(new),
            );
            seen.push((file, Arc::clone(&new)));
            for dir in path.ancestors().skip(1) {
                image.dirs.insert(dir.to_path_buf());
            }
            image.durable.insert(path.clone(), Arc::clone(&new));
            image.files.insert(path, new);
        }
        Self {
            state: Arc::new(Mutex::new(image)),
        }
    }

    /// Lets go of what a process held that is no more.
    pub fn release_locks(&self) {
        self.lock_state().locks.clear();
    }

    /// Every file with its content, for comparing and counting images.
    pub fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let state = self.lock_state();
        let files = state.files.iter();
        files
            .map(|(path, file)| (path.clone(), file.lock().expect("inode").live.to_vec()))
            .collect()
    }

    /// Changes bytes behind the store's back, durably.
    pub fn damage(&self, path: &Path, at: usize, bytes: &[u8]) {
        let state = self.lock_state();
        let file = state.files.get(path).expect("a file to damage");
        let mut inode = file.lock().expect("inode");
        inode.write(bytes, at);
        inode.sync();
    }

    /// Puts a file there, durably.
    pub fn plant(&self, path: &Path, data: &[u8]) {
        let mut state = self.lock_state();
        let mut inode = Inode::new(data.len());
        if !data.is_empty() {
            inode.write(data, 0);
        }
        inode.sync();
        let file = Arc::new(Mutex::new(inode));
        for dir in path.ancestors().skip(1) {
            state.dirs.insert(dir.to_path_buf());
        }
        state.files.insert(path.to_path_buf(), Arc::clone(&file));
        state.durable.insert(path.to_path_buf(), file);
    }

    pub(super) fn step(&self, op: Op) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.lock_state();
        let nth = state.counts.entry(op).or_insert(0);
        let of_kind = *nth;
        *nth += 1;
        if state.off {
            return Err(io::Error::other("the power is off"));
        }
        let changing = !matches!(op, Op::Open | Op::Read);
        let of_all = state.changing;
        state.changing += u64::from(changing);
        if changing && state.power_off_at == Some(of_all) {
            state.off = true;
            // A write that the cut interrupts may have reached the disk in part.
            if matches!(op, Op::Sync | Op::SyncDir) {
                return Err(io::Error::other("the power went off"));
            }
        }
        if let Some(fault) = state.fault {
            let index = match fault.op {
                Some(wanted) if wanted == op => Some(of_kind),
                None if changing => Some(of_all),
                _ => None,
            };
            if index.is_some_and(|at| at == fault.nth || (fault.sticky && at > fault.nth)) {
                state.faults_hit += 1;
                return Err(io::Error::from_raw_os_error(fault.errno));
            }
        }
        Ok(state)
    }

    pub(super) fn find(&self, path: &Path, op: Op) -> io::Result<File> {
        let state = self.step(op)?;
        let file = state.files.get(path);
        file.cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl State {
    pub(super) fn allocate(&mut self, path: &Path, bytes: u64) -> io::Result<()> {
        let used: u64 = self.allocated.values().sum();
        if self
            .capacity
            .is_some_and(|capacity| used + bytes > capacity)
        {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        *self.allocated.entry(path.to_path_buf()).or_insert(0) += bytes;
        Ok(())
    }

    pub(super) fn change(&mut self, change: Change) {
        apply(&mut self.files, &change);
        self.changes.push(change);
    }
}

pub(super) fn apply(names: &mut BTreeMap<PathBuf, File>, change: &Change) {
    match change {
        Change::Link(path, file) => {
            names.insert(path.clone(), Arc::clone(file));
        }
        Change::Unlink(path) => {
            names.remove(path);
        }
        Change::Rename(from, to, file) => {
            names.remove(from);
            names.insert(to.clone(), Arc::clone(file));
        }
    }
}

impl Change {
    pub(super) fn is_in(&self, dir: &Path) -> bool {
        match self {
            Self::Link(path, _) | Self::Unlink(path) => path.parent() == Some(dir),
            Self::Rename(from, to, _) => from.parent() == Some(dir) || to.parent() == Some(dir),
        }
    }
}
