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

use roquet_core::disk::{Bytes, Disk, DiskFile, Space};

use super::sim_file::{Inode, PAGE};
use super::Rng;

type File = Arc<Mutex<Inode>>;

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
enum Change {
    Link(PathBuf, File),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf, File),
}

#[derive(Default)]
struct State {
    files: BTreeMap<PathBuf, File>,
    dirs: BTreeSet<PathBuf>,
    durable: BTreeMap<PathBuf, File>,
    /// Name changes not durable yet, in order.
    changes: Vec<Change>,
    locks: BTreeSet<PathBuf>,
    counts: BTreeMap<Op, u64>,
    changing: u64,
    fault: Option<Fault>,
    faults_hit: u64,
    power_off_at: Option<u64>,
    off: bool,
    lies: Lies,
    capacity: Option<u64>,
    allocated: BTreeMap<PathBuf, u64>,
    now: u64,
}

/// The simulated disk; clones are the same disk.
#[derive(Clone, Default)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

struct SimFile {
    disk: SimDisk,
    path: PathBuf,
    inode: File,
}

struct Held {
    disk: SimDisk,
    path: PathBuf,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.disk.lock_state().locks.remove(&self.path);
    }
}

impl SimDisk {
    pub fn new() -> Self {
        Self::default()
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
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
        let mut seen: Vec<(File, File)> = Vec::new();
        let mut image = State {
            now: state.now,
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

    /// What a process finds that starts after another was killed: everything written, locks gone.
    pub fn after_kill(&self) -> Self {
        let disk = self.clone();
        let mut state = disk.lock_state();
        state.locks.clear();
        state.off = false;
        state.power_off_at = None;
        state.fault = None;
        drop(state);
        disk
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

    fn step(&self, op: Op) -> io::Result<MutexGuard<'_, State>> {
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

    fn find(&self, path: &Path, op: Op) -> io::Result<File> {
        let state = self.step(op)?;
        let file = state.files.get(path);
        file.cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl State {
    fn allocate(&mut self, path: &Path, bytes: u64) -> io::Result<()> {
        let used: u64 = self.allocated.values().sum();
        if self.capacity.is_some_and(|capacity| used + bytes > capacity) {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        *self.allocated.entry(path.to_path_buf()).or_insert(0) += bytes;
        Ok(())
    }

    fn change(&mut self, change: Change) {
        apply(&mut self.files, &change);
        self.changes.push(change);
    }
}

fn apply(names: &mut BTreeMap<PathBuf, File>, change: &Change) {
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
    fn is_in(&self, dir: &Path) -> bool {
        match self {
            Self::Link(path, _) | Self::Unlink(path) => path.parent() == Some(dir),
            Self::Rename(from, to, _) => from.parent() == Some(dir) || to.parent() == Some(dir),
        }
    }
}

fn as_index(offset: u64) -> usize {
    usize::try_from(offset).expect("an offset in memory")
}

impl DiskFile for SimFile {
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.step(Op::Write)?;
        let at = as_index(offset);
        let mut inode = self.inode.lock().expect("inode");
        if at + data.len() > inode.live.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if data.is_empty() {
            return Ok(());
        }
        let pages = at / PAGE..=(at + data.len() - 1) / PAGE;
        let new = pages.filter(|page| !inode.touched.contains(page)).count();
        if !state.allocated.contains_key(&self.path) || new > 0 {
            let whole = inode.live.len() as u64;
            let full = state.allocated.get(&self.path).is_some_and(|b| *b >= whole);
            if !full {
                state.allocate(&self.path, (new * PAGE) as u64)?;
            }
        }
        inode.write(data, at);
        inode.modified = state.now;
        if state.off {
            return Err(io::Error::other("the power went off"));
        }
        Ok(())
    }

    fn write_vectored_at(&self, parts: &[&[u8]], offset: u64) -> io::Result<()> {
        self.write_at(&parts.concat(), offset)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        drop(self.disk.step(Op::Read)?);
        let inode = self.inode.lock().expect("inode");
        let at = as_index(offset);
        let data = inode.live.get(at..at + buffer.len());
        buffer.copy_from_slice(data.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.inode.lock().expect("inode").live.len() as u64)
    }

    fn sync(&self) -> io::Result<()> {
        let state = self.disk.step(Op::Sync)?;
        if !state.lies.sync_does_nothing {
            self.inode.lock().expect("inode").sync();
        }
        Ok(())
    }

    fn map(&self) -> io::Result<Arc<dyn Bytes>> {
        let inode = self.inode.lock().expect("inode");
        Ok(Arc::new(Map(Arc::clone(&inode.live))))
    }

    fn seek_data(&self, from: u64) -> io::Result<Option<u64>> {
        let inode = self.inode.lock().expect("inode");
        let at = as_index(from);
        let page = inode.touched.range(at / PAGE..).next();
        let data = page.map(|page| (page * PAGE).max(at));
        Ok(data.filter(|at| *at < inode.live.len()).map(|at| at as u64))
    }
}

struct Map(Arc<super::sim_file::Region>);

impl std::ops::Deref for Map {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Disk for SimDisk {
    fn create(&self, path: &Path, len: u64, space: Space) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.step(Op::Create)?;
        if state.files.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if !path.parent().is_some_and(|dir| state.dirs.contains(dir)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.allocated.remove(path);
        if space == Space::Allocated {
            state.allocate(path, len)?;
        }
        let inode = Arc::new(Mutex::new(Inode::new(as_index(len))));
        inode.lock().expect("inode").modified = state.now;
        state.change(Change::Link(path.to_path_buf(), Arc::clone(&inode)));
        if state.off {
            return Err(io::Error::other("the power went off"));
        }
        Ok(Arc::new(SimFile {
            disk: self.clone(),
            path: path.to_path_buf(),
            inode,
        }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(SimFile {
            disk: self.clone(),
            path: path.to_path_buf(),
            inode: self.find(path, Op::Open)?,
        }))
    }

    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        match self.find(path, Op::Read) {
            Ok(file) => Ok(Some(file.lock().expect("inode").live.to_vec())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        let mut state = self.step(Op::Write)?;
        if state.capacity.is_some() {
            state.allocated.remove(path);
            state.allocate(path, data.len().next_multiple_of(PAGE) as u64)?;
        }
        if !state.files.contains_key(path) {
            if !path.parent().is_some_and(|dir| state.dirs.contains(dir)) {
                return Err(io::ErrorKind::NotFound.into());
            }
            let inode = Arc::new(Mutex::new(Inode::new(0)));
            state.change(Change::Link(path.to_path_buf(), inode));
        }
        let file = state.files.get(path).expect("just made");
        file.lock().expect("inode").replace(data);
        if state.off {
            return Err(io::Error::other("the power went off"));
        }
        Ok(())
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        let file = self.find(path, Op::Sync)?;
        if !self.lock_state().lies.sync_does_nothing {
            file.lock().expect("inode").sync();
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.step(Op::Names)?;
        let file = state.files.get(from).cloned();
        let file = file.ok_or(io::ErrorKind::NotFound)?;
        state.change(Change::Rename(from.to_path_buf(), to.to_path_buf(), file));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.step(Op::Names)?;
        if state.files.contains_key(path) {
            state.change(Change::Unlink(path.to_path_buf()));
            state.allocated.remove(path);
        }
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.step(Op::Names)?;
        if state.files.keys().any(|file| file.starts_with(path)) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        state.dirs.remove(path);
        Ok(())
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.step(Op::Names)?;
        for dir in path.ancestors() {
            state.dirs.insert(dir.to_path_buf());
        }
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.step(Op::SyncDir)?;
        if state.lies.sync_dir_does_nothing {
            return Ok(());
        }
        let changes = std::mem::take(&mut state.changes);
        for change in changes {
            if change.is_in(path) {
                apply(&mut state.durable, &change);
            } else {
                state.changes.push(change);
            }
        }
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<(PathBuf, bool, u64)>> {
        let state = self.step(Op::Read)?;
        let mut rows = Vec::new();
        for dir in &state.dirs {
            if dir.parent() == Some(path) {
                rows.push((dir.clone(), true, 0));
            }
        }
        for (name, file) in &state.files {
            if name.parent() == Some(path) {
                let len = file.lock().expect("inode").live.len() as u64;
                rows.push((name.clone(), false, len));
            }
        }
        rows.sort();
        Ok(rows)
    }

    fn modified_ms(&self, path: &Path) -> io::Result<u64> {
        Ok(self.find(path, Op::Read)?.lock().expect("inode").modified)
    }

    fn space(&self, _path: &Path) -> io::Result<(u64, u64)> {
        let state = self.lock_state();
        let total = state.capacity.unwrap_or(1 << 40);
        let used: u64 = state.allocated.values().sum();
        Ok((total.saturating_sub(used), total))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        let mut state = self.step(Op::Open)?;
        if !state.locks.insert(path.to_path_buf()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(Held {
            disk: self.clone(),
            path: path.to_path_buf(),
        }))
    }
}
