//! News of the store's threads for those threads of connections that wait for some.

use std::sync::Arc;

use super::lane::Lane;
use crate::store::events::{News, Watcher};

/// Wakes the threads that have held pulls or waiting sends, and no other.
pub(super) struct Wakes {
    pub(super) lanes: Vec<Arc<Lane>>,
}

impl Watcher for Wakes {
    fn flushed(&self, _offset: u64) {
        for lane in self.lanes.iter().filter(|lane| lane.parks()) {
            lane.flushed();
        }
    }

    fn copied(&self, offset: u64) {
        self.lanes.iter().for_each(|lane| lane.replicated(offset));
    }

    fn dispatched(&self, news: &[News]) {
        for lane in self.lanes.iter().filter(|lane| lane.holds()) {
            lane.arrived(news);
        }
    }
}
