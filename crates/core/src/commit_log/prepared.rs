//! What an append wants: encoded records, and the limits of a message.

use super::PutStatus;
use crate::codec::limits::PROPERTIES_SIZE_MAX;
use crate::codec::record::{self, NewRecord, SYS_PREPARED, SYS_ROLLBACK, SYS_TRANSACTION};
use crate::consume_queue::light_queues::{self, Wish};
use std::collections::{HashMap, HashSet};

/// Longest topic of other than retry topics, and of any.
const TOPIC_MAX: usize = 127;
const RETRY_TOPIC_MAX: usize = 255;
const RETRY_PREFIX: &str = "%RETRY%";
/// How much longer than the longest body a record may be.
const RECORD_EXTRA: u64 = 65_536;
/// One record of a [`Prepared`].
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    pub(super) topic: &'a str,
    pub(super) queue_id: i32,
    pub(super) size: usize,
    pub(super) counted: bool,
    glued: bool,
}

/// The light queues of a record.
#[derive(Clone, Debug)]
struct Light {
    /// Which of the records it is.
    entry: usize,
    /// Its light queues, as its property names them.
    names: Vec<Box<str>>,
    /// Bytes of its properties, those of the offsets not yet among them.
    properties: usize,
    /// Whether it gets them even if there are too many then.
    accepted: bool,
}

/// A place among the records of a [`Prepared`].
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    bytes: usize,
    entries: usize,
}

/// Encoded records that wait for their offsets and their place in the log.
#[derive(Debug, Default)]
pub struct Prepared<'a> {
    pub(super) bytes: Vec<u8>,
    pub(super) entries: Vec<Entry<'a>>,
    /// Whether a record has a zero byte where no checksum tells it from a page never written.
    pub(super) zeros: bool,
    /// Whether messages are put into the light queues that they name.
    in_light_queues: bool,
    /// Whether messages were accepted before.
    accepted: bool,
    /// Those of the records that are in some, in order.
    lights: Vec<Light>,
}

impl<'a> Prepared<'a> {
    /// Makes an empty one with room for `bytes`.
    pub fn with_capacity(bytes: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(bytes),
            ..Self::default()
        }
    }

    /// Makes an empty one in the room of another's bytes.
    pub fn reusing(mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        Self {
            bytes,
            ..Self::default()
        }
    }

    /// Puts the records that are pushed from now on into the light queues that they name.
    #[must_use]
    pub fn in_light_queues(mut self, wanted: bool) -> Self {
        self.in_light_queues = wanted;
        self
    }

    /// Takes the records that are pushed from now on as accepted before, or not: whoever accepted a
    /// message gives it its light queues, however many there are by then.
    pub fn as_accepted(&mut self, accepted: bool) {
        self.accepted = accepted;
    }

    /// The room of its bytes, for the next one.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// How many records are in it.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of all the records.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Whether no record is in it.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Encodes a message behind the others. `glued` keeps it in one file with the one before, and
    /// lets both fail or succeed together.
    ///
    /// Returns the status of a message that is too long; nothing is added then.
    pub fn push(
        &mut self,
        topic: &'a str,
        message: &NewRecord<'_>,
        body_max: u64,
        glued: bool,
    ) -> Result<(), PutStatus> {
        check(topic, message, body_max)?;
        if self.in_light_queues {
            return self.push_wished(topic, message, glued);
        }
        self.encode(topic, message, glued)
    }

    fn encode(
        &mut self,
        topic: &'a str,
        message: &NewRecord<'_>,
        glued: bool,
    ) -> Result<(), PutStatus> {
        let size =
            record::encode(message, &mut self.bytes).map_err(|_| PutStatus::MessageIllegal)?;
        self.zeros |= message.properties.contains(&0);
        self.entries.push(Entry {
            topic,
            queue_id: message.queue_id,
            size,
            counted: is_counted(message.sys_flag),
            glued: glued && !self.entries.is_empty(),
        });
        Ok(())
    }

    /// Encodes a message without the offsets of its light queues, which only the writer knows.
    fn push_wished(
        &mut self,
        topic: &'a str,
        message: &NewRecord<'_>,
        glued: bool,
    ) -> Result<(), PutStatus> {
        if light_queues::is_light(topic) {
            // Its offsets are given out to messages of other topics.
            return Err(PutStatus::MessageIllegal);
        }
        let with = |properties| NewRecord {
            properties,
            ..*message
        };
        match light_queues::wish(topic, message.properties, PROPERTIES_SIZE_MAX) {
            Wish::None => self.encode(topic, message, glued),
            Wish::Without(text) => self.encode(topic, &with(&text), glued),
            Wish::In(names, text) => {
                self.encode(topic, &with(&text), glued)?;
                if is_counted(message.sys_flag) {
                    self.lights.push(Light {
                        entry: self.entries.len() - 1,
                        names,
                        properties: text.len(),
                        accepted: self.accepted,
                    });
                }
                Ok(())
            }
            Wish::Illegal => Err(PutStatus::MessageIllegal),
            Wish::TooLong => Err(PutStatus::PropertiesTooLong),
        }
    }

    /// Bytes of all the records at most, once their offsets in light queues are among them.
    pub(super) fn bytes_max(&self) -> usize {
        let names = self.lights.iter().map(|light| light.names.len());
        self.bytes.len() + names.map(light_queues::growth_max).sum::<usize>()
    }

    /// Drops the records from the first on that wants more new light queues than there is `room`
    /// for after those before it, with what is glued to it; returns whether there was one.
    pub(super) fn cut_at_lights(&mut self, room: usize, is_known: impl Fn(&str) -> bool) -> bool {
        let wanted = self.lights.iter().map(|light| light.names.len());
        if wanted.sum::<usize>() <= room {
            return false;
        }
        let mut fresh: HashSet<&str> = HashSet::new();
        let mut first = None;
        for light in &self.lights {
            let before = fresh.len();
            let names = light.names.iter().map(AsRef::as_ref);
            fresh.extend(names.filter(|name| !is_known(name)));
            if fresh.len() > room && fresh.len() > before && !light.accepted {
                first = Some(light.entry);
                break;
            }
        }
        let Some(mut first) = first else {
            return false;
        };
        while self.entries.get(first).is_some_and(|entry| entry.glued) {
            first -= 1;
        }
        let bytes = self.entries.iter().take(first).map(|entry| entry.size);
        self.back_to(Mark {
            bytes: bytes.sum(),
            entries: first,
        });
        true
    }

    /// Writes into each record its offsets in light queues, which begin at `next` of each.
    ///
    /// The writer calls it, and takes the offsets of each record that it writes after that.
    pub(super) fn settle_lights(&mut self, next: impl Fn(&str) -> i64) {
        if self.lights.is_empty() {
            return;
        }
        let mut given: HashMap<&str, i64> = HashMap::new();
        let mut bytes = Vec::with_capacity(self.bytes_max());
        let mut from = 0;
        let mut lights = self.lights.iter().peekable();
        for (number, entry) in self.entries.iter_mut().enumerate() {
            let record = self.bytes.get(from..from + entry.size);
            from += entry.size;
            let begin = bytes.len();
            bytes.extend_from_slice(record.unwrap_or_default());
            let Some(light) = lights.next_if(|light| light.entry == number) else {
                continue;
            };
            let place = |name: &str| given.get(name).copied().unwrap_or_else(|| next(name));
            let offsets: Vec<i64> = light.names.iter().map(|name| place(name)).collect();
            for (name, offset) in light.names.iter().zip(&offsets) {
                given.insert(name, offset.saturating_add(1));
            }
            let pair = light_queues::offsets_pair(&offsets);
            bytes.extend_from_slice(&pair);
            entry.size += pair.len();
            if let Some(place) = bytes.get_mut(begin..) {
                record::set_properties_size(place, light.properties, pair.len());
            }
        }
        self.bytes = bytes;
    }

    /// Whether a record is in a light queue.
    pub(super) fn has_lights(&self) -> bool {
        !self.lights.is_empty()
    }

    /// The light queues of entry `number`, each once.
    pub(super) fn light_queues(&self, number: usize) -> impl Iterator<Item = &str> {
        let at = self.lights.binary_search_by_key(&number, |it| it.entry);
        let names = at.ok().and_then(|at| self.lights.get(at));
        let names = names.map_or(&[][..], |light| light.names.as_slice());
        let is_first = |at: usize| {
            let before = names.get(..at).unwrap_or_default();
            names.get(at).is_some_and(|name| !before.contains(name))
        };
        let each = names.iter().enumerate().filter(|(at, _)| is_first(*at));
        each.map(|(_, name)| name.as_ref())
            .collect::<Vec<_>>()
            .into_iter()
    }

    /// Where the next record will be, to come back to.
    pub fn mark(&self) -> Mark {
        Mark {
            bytes: self.bytes.len(),
            entries: self.entries.len(),
        }
    }

    /// Forgets the records that were added since.
    pub fn back_to(&mut self, mark: Mark) {
        self.bytes.truncate(mark.bytes);
        self.entries.truncate(mark.entries);
        self.lights.retain(|light| light.entry < mark.entries);
    }

    /// The records that belong together from entry `first` on: (how many, bytes).
    pub(super) fn group(&self, first: usize) -> (usize, usize) {
        let tail = self.entries.get(first..).unwrap_or_default();
        let count = 1 + tail.iter().skip(1).take_while(|entry| entry.glued).count();
        let size = tail.iter().take(count).map(|entry| entry.size).sum();
        (count, size)
    }
}

/// Refuses what Java refuses (spec: store §3.5), and names that are no folder names.
fn check(topic: &str, message: &NewRecord<'_>, body_max: u64) -> Result<(), PutStatus> {
    if message.properties_size() > PROPERTIES_SIZE_MAX {
        return Err(PutStatus::PropertiesTooLong);
    }
    let too_long = message.body.len() as u64 > body_max
        || message.size() as u64 > body_max.saturating_add(RECORD_EXTRA)
        || topic.len() > RETRY_TOPIC_MAX
        || (topic.len() > TOPIC_MAX && !topic.starts_with(RETRY_PREFIX));
    let no_name = matches!(topic, "" | "." | "..") || topic.contains(['/', '\0']);
    if too_long || no_name || message.queue_id < 0 {
        return Err(PutStatus::MessageIllegal);
    }
    Ok(())
}

/// Whether a message has a place in a queue.
fn is_counted(sys_flag: i32) -> bool {
    let transaction = sys_flag & SYS_TRANSACTION;
    transaction != SYS_PREPARED && transaction != SYS_ROLLBACK
}
