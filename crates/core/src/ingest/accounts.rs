//! Accounts as rows of the admission table: whose signed frames the fast path may answer.
//!
//! A frame that is not permitted here is not refused: it goes to the handlers, whose guard looks
//! again and says exactly what is wrong. What this module does not know for sure it does not permit.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use base64::engine::general_purpose::STANDARD;
use base64::Engine;
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

use super::{pop, pull, send};
use crate::codec::command::{Ext, Header};
use crate::codec::host;

/// Field with the name of the account.
pub(super) const ACCESS_KEY: &str = "AccessKey";
/// Field with the signature.
const SIGNATURE: &str = "Signature";
/// Topics that begin so are their group's.
const RETRY_PREFIX: &str = "%RETRY%";

/// Bytes of a body above which the handlers look at the signature, so that no read takes long.
const BODY_MAX: usize = 256 * 1024;
/// Bytes of a SHA-1 digest.
const DIGEST_SIZE: usize = 20;

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
    mac: Hmac<Sha1>,
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
        // Keys of any length are allowed.
        if let Ok(mac) = Hmac::new_from_slice(secret) {
            let account = Account { mac, white, rights };
            self.by_key.insert(key.into(), account);
        }
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
    pub(super) fn permit(&self, header: &Header<'_>, body: &[u8], host: Option<&[u8]>) -> bool {
        self.check(header, body, host).is_some()
    }

    fn check(&self, header: &Header<'_>, body: &[u8], host: Option<&[u8]>) -> Option<()> {
        let ext = header.ext.as_ref()?;
        let account = self.by_key.get(header.get(ACCESS_KEY)?)?;
        if !account.white.ranges.is_empty() || account.white.everyone {
            let parts = parts(host);
            if account.white.matches(&parts) {
                return Some(());
            }
        }
        let is_batch = header.code == pop::BATCH_ACK;
        if !is_batch {
            may(&account.rights, header)?;
        }
        let given = header.get(SIGNATURE)?;
        if body.len() > BODY_MAX || !is_signed(&account.mac, ext, body, given) {
            return None;
        }
        // Only a body that is signed is worth reading.
        let allowed = !is_batch || settles(&account.rights, body);
        allowed.then_some(())
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

/// Whether `given` is the signature of the values of all other fields, sorted by name, and the body.
///
/// Fields that are there twice, and names that do not sort by their bytes, are not for here.
fn is_signed(mac: &Hmac<Sha1>, ext: &Ext<'_>, body: &[u8], given: &str) -> bool {
    let mut digest = [0; DIGEST_SIZE];
    if STANDARD.decode_slice(given, &mut digest) != Ok(DIGEST_SIZE) {
        return false;
    }
    let mut fields: Vec<&(Cow<'_, str>, Cow<'_, str>)> = ext.iter().collect();
    fields.sort_unstable_by(|one, other| order(&one.0, &other.0));
    let mut mac = mac.clone();
    let mut before = None;
    for (name, value) in fields {
        let is_twice = before.is_some_and(|before| order(before, name).is_eq());
        if is_twice || !name.is_ascii() {
            return false;
        }
        before = Some(name);
        if name != SIGNATURE {
            mac.update(value.as_bytes());
        }
    }
    mac.update(body);
    // Takes as long when the digests differ.
    mac.verify_slice(&digest).is_ok()
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
#[path = "tests/accounts.rs"]
mod tests;
