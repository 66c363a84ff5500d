//! Upkeep of one queue: cutting, expiring, syncing.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use super::load::clear;
use super::queue::{Queue, State};
use super::UNIT_SIZE;

impl Queue {
    /// Puts a queue that loading has changed on the set's list; says whether it is new there.
    pub(super) fn list_if_dirty(&self) -> bool {
        let mut state = self.lock();
        let news = state.needs_sync() && !state.listed;
        state.listed |= news;
        // The last run may not have been able to make its names durable: the first sync does.
        state.names_dirty = true;
        news
    }

    /// Cuts units whose record starts at `phy` or later; says whether the set must list the queue.
    pub(super) fn truncate(&self, phy: u64) -> io::Result<bool> {
        let mut state = self.lock();
        if state.last.is_none_or(|last| last.physical_offset < phy) {
            return Ok(false);
        }
        let mut cut = state.max;
        let mut last = None;
        self.walk_back(&state, |offset, unit| {
            if unit.is_filler() {
                return true;
            }
            if unit.physical_offset < phy {
                last = Some(unit);
                return false;
            }
            cut = offset;
            true
        })?;
        self.write_out(&mut state)?;
        self.drop_tail(&mut state);
        self.clear_from(&mut state, cut)?;
        state.max = cut;
        state.written = cut;
        state.tail_from = cut;
        state.last = last;
        state.head = state.head.filter(|(at, _)| *at < cut);
        state.min = state.min.min(cut);
        let news = !state.listed;
        state.listed = true;
        Ok(news)
    }

    /// Zeroes the units from `cut` on; whole files go, but never the first.
    fn clear_from(&self, state: &mut State, cut: u64) -> io::Result<()> {
        let at = cut * UNIT_SIZE;
        let first = state.files.first().copied();
        self.remove_files(state, |base| base >= at && Some(base) != first)?;
        let size = self.shared.file_size;
        let kept: Vec<u64> = (state.files.iter().copied())
            .filter(|base| base + size > at)
            .collect();
        for base in kept {
            let file = self.file(base)?;
            clear(&*file, at.saturating_sub(base), size)?;
            state.mark(base);
        }
        Ok(())
    }

    /// Moves the min offset up to the first message at `min_phy` or later.
    pub(super) fn correct_min(&self, min_phy: u64) -> io::Result<()> {
        let mut state = self.lock();
        if state.last.is_none_or(|last| last.physical_offset < min_phy) {
            state.min = state.max;
            return Ok(());
        }
        let first = state.first();
        // Asked for every queue at each start and each cleaning: mostly nothing has changed.
        let head = state
            .head
            .filter(|(at, _)| *at == state.min && *at >= first);
        if head.is_some_and(|(_, unit)| unit.physical_offset >= min_phy) {
            return Ok(());
        }
        // A foreign store may begin in the middle of a queue whose older files are elsewhere.
        let (mut low, mut high) = (state.min.max(first), state.max);
        if self.keeps(&state, low, min_phy)? {
            high = low;
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if self.keeps(&state, middle, min_phy)? {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        let mut head = self.unit(&state, low)?;
        while head.is_some_and(|unit| unit.is_filler()) {
            low += 1;
            head = self.unit(&state, low)?;
        }
        state.min = low;
        state.head = head.map(|unit| (low, unit));
        Ok(())
    }

    /// Whether the first message at or after `offset` lies at `min_phy` or later.
    fn keeps(&self, state: &State, offset: u64, min_phy: u64) -> io::Result<bool> {
        let mut at = offset;
        while at < state.max {
            match self.unit(state, at)? {
                Some(unit) if !unit.is_filler() => return Ok(unit.physical_offset >= min_phy),
                _ => at += 1,
            }
        }
        Ok(true)
    }

    /// Deletes whole files before `min_phy`: (how many, whether the set must list the queue).
    pub(super) fn delete_expired(&self, min_phy: u64) -> io::Result<(usize, bool)> {
        self.correct_min(min_phy)?;
        let mut state = self.lock();
        let keep_from = state.min * UNIT_SIZE;
        let newest = state.files.last().copied();
        let size = self.shared.file_size;
        let expired: Vec<u64> = (state.files.iter().copied())
            .filter(|base| base + size <= keep_from && Some(*base) != newest)
            .collect();
        let deleted = expired.len();
        for (number, base) in expired.into_iter().enumerate() {
            if number > 0 {
                // A power cut must leave no hole: the files behind one are not believed, and the
                // newest is the only one to know the queue's next offset.
                self.shared.disk.sync_dir_if_there(&self.dir)?;
            }
            self.remove_files(&mut state, |other| other == base)?;
        }
        let news = deleted > 0 && !state.listed;
        state.listed |= news;
        Ok((deleted, news))
    }

    /// Writes the units that wait into the files; what fails now fails again in [`Self::sync`].
    pub(super) fn write_early(&self) {
        let mut state = self.lock();
        if !state.gone {
            let _ = self.write_out(&mut state);
        }
    }

    /// Writes out and syncs the files; notes folders that must be synced after them.
    pub(super) fn sync(&self, dirs: &mut BTreeSet<PathBuf>) -> io::Result<()> {
        let (dirty, names) = {
            let mut state = self.lock();
            state.listed = false;
            if state.gone {
                return Ok(());
            }
            self.write_out(&mut state)?;
            if self.shared.crowded() {
                self.drop_tail(&mut state);
            }
            let names = std::mem::take(&mut state.names_dirty);
            (state.dirty.clone(), names)
        };
        if names {
            // One by one: `append` would build the whole set anew for each queue.
            dirs.extend(self.dirs());
        }
        for (base, write) in dirty {
            let file = match self.file(base) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                file => file?,
            };
            let synced = file.sync();
            self.shared.watch(synced)?;
            let mut state = self.lock();
            state.dirty.retain(|entry| *entry != (base, write));
        }
        Ok(())
    }
}

impl State {
    fn needs_sync(&self) -> bool {
        !self.dirty.is_empty() || self.names_dirty || self.written < self.max
    }
}
