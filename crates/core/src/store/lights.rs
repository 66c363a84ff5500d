//! The light queues of a store: how many there are, and which may go.
//!
//! A queue of any other topic keeps its last file for ever, for its next offset. Light queues are
//! made by whoever names one, so that they go when all their messages have gone from the log. A
//! consumer that waits at the end of one must not meet offsets that begin at 0 again: the next
//! offset is remembered longer than any read waits.

use crate::consume_queue::light_queues::{is_light, QUEUE_ID};
use crate::store::error::StoreError;
use crate::store::health::hold;
use crate::store::Store;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Twice the longest wait of a read.
const REMEMBERED: Duration = Duration::from_mins(2);

/// Light queues that went, and when.
pub(crate) type Gone = Mutex<HashMap<String, Instant>>;

impl Store {
    /// How many light queues there are, and of those that went lately.
    pub fn light_queues(&self) -> usize {
        self.log.light_queues()
    }

    /// Whether a light queue exists, or goes on where it ended when the next message comes.
    pub fn knows_light_queue(&self, name: &str) -> bool {
        self.queues().max(name, QUEUE_ID) > 0 || self.log.next_offset(name, QUEUE_ID) > 0
    }

    /// Removes the light queues that have no message any more.
    pub(crate) fn drop_expired_lights(&self) -> Result<(), StoreError> {
        if !self.config.light_queues {
            return Ok(());
        }
        self.forget_gone_lights();
        for (name, _, min, max) in self.queues().list() {
            if !is_light(&name) || max == 0 || min < max {
                continue;
            }
            self.alone(|| {
                // It may have got a message since, or one that is not in the queue yet.
                let queues = self.queues();
                let is_empty = queues.min(&name, QUEUE_ID) >= queues.max(&name, QUEUE_ID);
                let next = self.log.next_offset(&name, QUEUE_ID).cast_unsigned();
                if !is_empty || next > queues.max(&name, QUEUE_ID) {
                    return Ok(());
                }
                hold(&self.gone_lights).insert(name.clone(), Instant::now());
                queues.delete_topic(&name).map(drop)
            })?;
        }
        Ok(())
    }

    /// Lets light queues that went long ago begin at 0 if they come again.
    pub(crate) fn forget_gone_lights(&self) {
        let old: Vec<String> = {
            let mut gone = hold(&self.gone_lights);
            let is_old = |_: &String, since: &mut Instant| since.elapsed() >= REMEMBERED;
            gone.extract_if(is_old).map(|(name, _)| name).collect()
        };
        for name in old {
            self.alone(|| {
                if self.queues().max(&name, QUEUE_ID) == 0 {
                    self.log.forget_dispatched(&name, self.dispatched());
                }
            });
        }
    }
}
