//! Accounts as rows of the admission table: whose signed frames the fast path may answer.
//!
//! A frame that is not permitted here is not refused: it goes to the handlers, whose guard looks
//! again and says exactly what is wrong. What this module does not know for sure it does not permit.

pub(super) mod turns;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use base64::engine::general_purpose::STANDARD;
use base64::Engine;

use super::{pop, pull, send};
use crate::codec::command::{Ext, Header};
use crate::codec::host;
use crate::keyed_hash::{self, Digest, Key, Text, DIGEST_SIZE};

/// Field with the name of the account.
pub(super) const ACCESS_KEY: &str = "AccessKey";
/// Field with the signature.
const SIGNATURE: &str = "Signature";
/// Topics that begin so are their group's.
const RETRY_PREFIX: &str = "%RETRY%";

/// Bytes of a body above which the handlers look at the signature, so that no read takes long.
const BODY_MAX: usize = 256 * 1024;

/// Bit: messages may be published.
pub const PUBLISH: u8 = 4;
/// Bit: messages may be read.
pub const SUBSCRIBE: u8 = 8;

/// Addresses that need no signature: lowest and highest value of each of 4 or 8 parts.
pub type Ranges = Vec<(u16, u16)>;

/// The peers of a white list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct White {
    /// Whether these are all peers.
    pub everyone: bool,
    /// Any of these.
    pub ranges: Vec<Ranges>,
}

impl White {
    fn matches(&self, parts: &[u16]) -> bool {
        self.everyone
            || self.ranges.iter().any(|ranges| {
                ranges.len() == parts.len()
                    && parts
                        .iter()
                        .zip(ranges)
                        .all(|(part, (low, high))| low <= part && part <= high)
            })
    }
}

/// Bits [`PUBLISH`] and [`SUBSCRIBE`] by name: those of the name itself, else those of the longest
/// prefix of it that is here, else those of all others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    exact: HashMap<Box<str>, u8>,
    prefixes: HashMap<Box<str>, u8>,
    /// Lengths of the prefixes in bytes, the longest first.
    sizes: Vec<usize>,
    others: u8,
}

impl Names {
    /// Takes rights by name, by prefix, and with all other names.
    pub fn new(exact: HashMap<Box<str>, u8>, prefixes: HashMap<Box<str>, u8>, others: u8) -> Self {
        let mut sizes: Vec<usize> = prefixes.keys().map(|prefix| prefix.len()).collect();
        sizes.sort_unstable_by(|one, other| other.cmp(one));
        sizes.dedup();
        Self {
            exact,
            prefixes,
            sizes,
            others,
        }
    }

    /// The rights with a name.
    fn bits(&self, name: &str) -> u8 {
        if let Some(bits) = self.exact.get(name) {
            return *bits;
        }
        // A prefix ends where a character ends.
        let mut prefixes = self.sizes.iter().filter_map(|size| name.get(..*size));
        prefixes
            .find_map(|prefix| self.prefixes.get(prefix))
            .copied()
            .unwrap_or(self.others)
    }
}

/// What one account may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Whether everything is allowed.
    pub unlimited: bool,
    /// With topics.
    pub topics: Names,
    /// With consumer groups.
    pub groups: Names,
}

impl Rights {
    fn topic(&self, name: &str, wanted: u8) -> bool {
        if name.starts_with(RETRY_PREFIX) {
            return self.group(name);
        }
        self.topics.bits(name) & wanted != 0
    }

    fn group(&self, name: &str) -> bool {
        let name = name.strip_prefix(RETRY_PREFIX).unwrap_or(name);
        self.groups.bits(name) & SUBSCRIBE != 0
    }
}

/// One account.
#[derive(Clone)]
struct Account {
    /// The keyed hash, ready for the bytes of a request.
    key: Key,
    white: White,
    rights: Rights,
}

/// The accounts in force.
#[derive(Clone, Default)]
pub struct Accounts {
    white: Vec<White>,
    by_key: HashMap<Box<str>, Account>,
}

impl std::fmt::Debug for Accounts {
    /// Says how many there are and nothing of what they know.
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Accounts({})", self.by_key.len())
    }
}

impl Accounts {
    /// Begins with peers that need no account.
    pub fn new(white: Vec<White>) -> Self {
        Self {
            white,
            by_key: HashMap::new(),
        }
    }

    /// Adds an account.
    pub fn add(&mut self, key: &str, secret: &[u8], white: White, rights: Rights) {
        let account = Account {
            key: Key::new(secret),
            white,
            rights,
        };
        self.by_key.insert(key.into(), account);
    }

    /// Whether a peer (8 or 20 bytes) needs no account; asked once for each read.
    pub(super) fn trusts(&self, host: Option<&[u8]>) -> bool {
        if self.white.is_empty() {
            return false;
        }
        let parts = parts(host);
        self.white.iter().any(|white| white.matches(&parts))
    }

    /// Whether there is an account of this name.
    pub(super) fn knows(&self, key: &str) -> bool {
        self.by_key.contains_key(key)
    }

    /// Whether a frame may be answered here: signed by an account, or from one of its peers, that
    /// may do what the frame asks for.
    pub(super) fn permit(&self, asked: Asked<'_>, host: Option<&[u8]>, room: &mut Room) -> bool {
        let [text, _] = &mut room.0;
        self.judge(asked, host, text).alone(asked, text)
    }

    /// The same of two frames of one peer. Each is judged as if it were alone.
    pub(super) fn permit_both(
        &self,
        asked: [Asked<'_>; 2],
        host: Option<&[u8]>,
        room: &mut Room,
    ) -> [bool; 2] {
        let ([one, other], [first, second]) = (asked, &mut room.0);
        let judged = [
            self.judge(one, host, first),
            self.judge(other, host, second),
        ];
        if let [Judged::If(by), Judged::If(by_other)] = &judged {
            let digests = keyed_hash::two([by.key, by_other.key], [first, second]);
            return [
                by.holds(one, &digests[0]),
                by_other.holds(other, &digests[1]),
            ];
        }
        let [judged, judged_other] = judged;
        [judged.alone(one, first), judged_other.alone(other, second)]
    }

    /// Judges a frame as far as that goes without a hash, and puts together what is signed.
    fn judge(&self, asked: Asked<'_>, host: Option<&[u8]>, text: &mut Text) -> Judged<'_> {
        self.look(asked, host, text).unwrap_or(Judged::No)
    }

    fn look(
        &self,
        (header, body): Asked<'_>,
        host: Option<&[u8]>,
        text: &mut Text,
    ) -> Option<Judged<'_>> {
        let ext = header.ext.as_ref()?;
        let account = self.by_key.get(header.get(ACCESS_KEY)?)?;
        if !account.white.ranges.is_empty() || account.white.everyone {
            let parts = parts(host);
            if account.white.matches(&parts) {
                return Some(Judged::Yes);
            }
        }
        let is_batch = header.code == pop::BATCH_ACK;
        if !is_batch {
            may(&account.rights, header)?;
        }
        let given = header.get(SIGNATURE)?;
        if body.len() > BODY_MAX {
            return None;
        }
        Some(Judged::If(Signed {
            key: &account.key,
            given: digest(given)?,
            settles: is_batch.then_some(&account.rights),
        }))
        .filter(|_| gather(ext, body, text))
    }
}

/// A frame: its header and its body.
type Asked<'a> = (&'a Header<'a>, &'a [u8]);

/// Room for what is signed, which may be used again.
#[derive(Default)]
pub(super) struct Room([Text; 2]);

impl std::fmt::Debug for Room {
    /// Says nothing of what was signed.
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("Room")
    }
}

/// What is known of a frame before its signature is looked at.
enum Judged<'a> {
    Yes,
    No,
    If(Signed<'a>),
}

impl Judged<'_> {
    fn alone(&self, asked: Asked<'_>, text: &mut Text) -> bool {
        match self {
            Self::Yes => true,
            Self::No => false,
            Self::If(by) => by.holds(asked, &keyed_hash::one(by.key, text)),
        }
    }
}

/// A frame that is permitted if it is signed.
struct Signed<'a> {
    key: &'a Key,
    given: Digest,
    /// What has to allow each message that the body names.
    settles: Option<&'a Rights>,
}

impl Signed<'_> {
    /// Whether the signature is the digest. Only a body that is signed is worth reading.
    fn holds(&self, (_, body): Asked<'_>, digest: &Digest) -> bool {
        // Takes as long when the digests differ.
        let both = self.given.iter().zip(digest);
        let differs = both.fold(0, |differs, (one, other)| differs | (one ^ other));
        std::hint::black_box(differs) == 0
            && self.settles.is_none_or(|rights| settles(rights, body))
    }
}

/// Whether the rights suffice for a frame; requests of other kinds are never answered here.
fn may(rights: &Rights, header: &Header<'_>) -> Option<()> {
    let allowed = match header.code {
        send::SEND => publishes(rights, header.get("topic").unwrap_or_default()),
        send::SEND_SHORT | send::SEND_BATCH => {
            publishes(rights, header.get("b").unwrap_or_default())
        }
        pull::PULL | pull::LITE_PULL | pop::ACK | pop::CHANGE | pop::POP => {
            let topic = header.get("topic").unwrap_or_default();
            // Whose a pop retry topic is takes a closer look at its name.
            if !matches!(header.code, pull::PULL | pull::LITE_PULL)
                && topic.starts_with(RETRY_PREFIX)
            {
                return None;
            }
            let group = header.get("consumerGroup").unwrap_or_default();
            rights.unlimited || (rights.topic(topic, SUBSCRIBE) && rights.group(group))
        }
        _ => false,
    };
    allowed.then_some(())
}

/// Whether the rights suffice for every message of a batch of acknowledgements.
fn settles(rights: &Rights, body: &[u8]) -> bool {
    let allowed = |batch: &pop::batches::Batch| {
        !batch.topic.starts_with(RETRY_PREFIX)
            && rights.topic(&batch.topic, SUBSCRIBE)
            && rights.group(&batch.group)
    };
    rights.unlimited
        || pop::batches::read(body).is_some_and(|(_, batches)| batches.iter().all(allowed))
}

fn publishes(rights: &Rights, topic: &str) -> bool {
    rights.unlimited || rights.topic(topic, PUBLISH)
}

/// Reads a signature.
fn digest(text: &str) -> Option<Digest> {
    let mut digest = [0; DIGEST_SIZE];
    let size = STANDARD.decode_slice(text, &mut digest).ok()?;
    (size == DIGEST_SIZE).then_some(digest)
}

/// Puts together what is signed: the values of all other fields, sorted by name, and the body.
///
/// Fields that are there twice, and names that do not sort by their bytes, are not for here.
fn gather(ext: &Ext<'_>, body: &[u8], text: &mut Text) -> bool {
    let mut fields: Vec<&(Cow<'_, str>, Cow<'_, str>)> = ext.iter().collect();
    fields.sort_unstable_by(|one, other| order(&one.0, &other.0));
    text.clear();
    let mut before = None;
    for (name, value) in fields {
        let is_twice = before.is_some_and(|before| order(before, name).is_eq());
        if is_twice || !name.is_ascii() {
            return false;
        }
        before = Some(name);
        if name != SIGNATURE {
            text.add(value.as_bytes());
        }
    }
    text.add(body);
    true
}

/// The order of two names by their bytes. Most differ in the first one, and comparing texts is a call.
fn order(one: &str, other: &str) -> Ordering {
    let first = |name: &str| name.as_bytes().first().copied();
    first(one).cmp(&first(other)).then_with(|| one.cmp(other))
}

/// The numbers of an address, an IPv4 address within IPv6 being an IPv4 address; none when it is
/// not known.
fn parts(bytes: Option<&[u8]>) -> Vec<u16> {
    match bytes.and_then(host::parts) {
        Some((IpAddr::V4(ip), _)) => ip.octets().map(u16::from).to_vec(),
        Some((IpAddr::V6(ip), _)) => v6_parts(ip),
        None => Vec::new(),
    }
}

fn v6_parts(ip: Ipv6Addr) -> Vec<u16> {
    match ip.to_ipv4_mapped() {
        Some(ip) => ip.octets().map(u16::from).to_vec(),
        None => ip.segments().to_vec(),
    }
}

#[cfg(test)]
#[path = "../tests/accounts.rs"]
mod tests;
