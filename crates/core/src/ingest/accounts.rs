//! Accounts as rows of the admission table: whose signed frames the fast path may answer.
//!
//! A frame that is not permitted here is not refused: it goes to the processors, whose guard looks
//! again and says exactly what is wrong. What this module does not know for sure it does not permit.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use base64::engine::general_purpose::STANDARD;
use base64::Engine;
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

use super::{pull, send};
use crate::command::{Ext, Header};
use crate::host;

/// Field with the name of the account.
const ACCESS_KEY: &str = "AccessKey";
/// Field with the signature.
const SIGNATURE: &str = "Signature";
/// Everybody with an account may publish message traces.
const TRACE_TOPIC: &str = "RMQ_SYS_TRACE_TOPIC";
/// Topics that begin so are their group's.
const RETRY_PREFIX: &str = "%RETRY%";

/// Bytes of a body above which the processors look at the signature, so that no read takes long.
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

/// What one account may do: bits [`PUBLISH`] and [`SUBSCRIBE`], none where it is denied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Whether everything is allowed.
    pub unlimited: bool,
    /// With topics that are not named.
    pub default_topic: u8,
    /// With consumer groups that are not named.
    pub default_group: u8,
    /// By topic.
    pub topics: HashMap<Box<str>, u8>,
    /// By consumer group.
    pub groups: HashMap<Box<str>, u8>,
}

impl Rights {
    fn topic(&self, name: &str, wanted: u8) -> bool {
        if name.starts_with(RETRY_PREFIX) {
            return self.group(name);
        }
        self.topics.get(name).unwrap_or(&self.default_topic) & wanted != 0
    }

    fn group(&self, name: &str) -> bool {
        let name = name.strip_prefix(RETRY_PREFIX).unwrap_or(name);
        self.groups.get(name).unwrap_or(&self.default_group) & SUBSCRIBE != 0
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
        may(&account.rights, header)?;
        let given = header.get(SIGNATURE)?;
        if body.len() > BODY_MAX {
            return None;
        }
        is_signed(&account.mac, ext, body, given).then_some(())
    }
}

/// Whether the rights suffice for a frame; requests of other kinds are never answered here.
fn may(rights: &Rights, header: &Header<'_>) -> Option<()> {
    let allowed = match header.code {
        send::SEND => publishes(rights, header.get("topic").unwrap_or_default()),
        send::SEND_SHORT | send::SEND_BATCH => {
            publishes(rights, header.get("b").unwrap_or_default())
        }
        pull::PULL | pull::LITE_PULL => {
            let topic = header.get("topic").unwrap_or_default();
            let group = header.get("consumerGroup").unwrap_or_default();
            rights.unlimited || (rights.topic(topic, SUBSCRIBE) && rights.group(group))
        }
        _ => false,
    };
    allowed.then_some(())
}

fn publishes(rights: &Rights, topic: &str) -> bool {
    rights.unlimited || topic == TRACE_TOPIC || rights.topic(topic, PUBLISH)
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
    fields.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    let mut mac = mac.clone();
    let mut before = None;
    for (name, value) in fields {
        if before == Some(name) || !name.is_ascii() {
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
mod tests {
    use super::{Accounts, Rights, White, PUBLISH, SUBSCRIBE};
    use crate::command::Header;
    use base64::Engine;
    use hmac::{KeyInit, Mac};
    use std::borrow::Cow;

    const SECRET: &[u8] = b"12345678";
    const HOST: [u8; 8] = [10, 0, 0, 9, 0, 0, 1, 1];

    fn accounts() -> Accounts {
        let mut found = Accounts::default();
        let rights = Rights {
            topics: [("T".into(), PUBLISH), ("S".into(), SUBSCRIBE)].into(),
            groups: [("g".into(), SUBSCRIBE)].into(),
            ..Rights::default()
        };
        found.add("RocketMQ", SECRET, White::default(), rights);
        found
    }

    fn signed(code: i32, fields: &[(&'static str, &'static str)], body: &[u8]) -> Header<'static> {
        let mut fields = fields.to_vec();
        fields.push(("AccessKey", "RocketMQ"));
        fields.sort_unstable();
        let mut mac = hmac::Hmac::<sha1::Sha1>::new_from_slice(SECRET).unwrap();
        for (_, value) in &fields {
            mac.update(value.as_bytes());
        }
        mac.update(body);
        let text = super::STANDARD.encode(mac.finalize().into_bytes());
        let mut header = Header::empty();
        header.code = code;
        let mut ext: Vec<_> = fields
            .into_iter()
            .map(|(name, value)| (Cow::Borrowed(name), Cow::Borrowed(value)))
            .collect();
        ext.insert(0, (Cow::Borrowed("Signature"), Cow::Owned(text)));
        header.ext = Some(ext);
        header
    }

    #[test]
    fn what_is_signed_and_allowed_is_permitted_and_nothing_else() {
        let accounts = accounts();
        let host = Some(HOST.as_slice());
        let send = signed(310, &[("b", "T"), ("i", "p")], b"body");
        assert!(accounts.permit(&send, b"body", host));
        assert!(!accounts.permit(&send, b"bodY", host));
        assert!(!accounts.permit(&signed(310, &[("b", "S")], b""), b"", host));
        assert!(!accounts.permit(&signed(310, &[("b", "other")], b""), b"", host));
        assert!(accounts.permit(
            &signed(310, &[("b", "RMQ_SYS_TRACE_TOPIC")], b""),
            b"",
            host
        ));
        assert!(accounts.permit(&signed(320, &[("b", "T")], b"many"), b"many", host));
        assert!(accounts.permit(&signed(10, &[("topic", "T")], b""), b"", host));
        // Which field names the topic depends on the code.
        assert!(!accounts.permit(&signed(10, &[("b", "T")], b""), b"", host));
        let pull = [("topic", "S"), ("consumerGroup", "g")];
        assert!(accounts.permit(&signed(11, &pull, b""), b"", host));
        assert!(accounts.permit(&signed(361, &pull, b""), b"", host));
        let other = [("topic", "S"), ("consumerGroup", "h")];
        assert!(!accounts.permit(&signed(11, &other, b""), b"", host));
        let write_only = [("topic", "T"), ("consumerGroup", "g")];
        assert!(!accounts.permit(&signed(11, &write_only, b""), b"", host));
        // Requests that are never answered here.
        assert!(!accounts.permit(&signed(25, &[("topic", "T")], b""), b"", host));
    }

    #[test]
    fn odd_fields_are_left_to_the_processors() {
        let accounts = accounts();
        let good = signed(310, &[("b", "T")], b"");
        assert!(accounts.permit(&good, b"", None));
        let mut twice = good.clone();
        twice.ext.as_mut().unwrap().push(("b".into(), "T".into()));
        assert!(!accounts.permit(&twice, b"", None));
        assert!(!accounts.permit(&signed(310, &[("b", "T"), ("é", "x")], b""), b"", None));
        for text in [
            "",
            "AAAA",
            "no base64 at all",
            "AAAAAAAAAAAAAAAAAAAAAAAAAAB=",
        ] {
            let mut bad = good.clone();
            bad.ext.as_mut().unwrap()[0].1 = text.into();
            assert!(!accounts.permit(&bad, b"", None), "{text}");
        }
        let mut unknown = good.clone();
        unknown
            .ext
            .as_mut()
            .unwrap()
            .retain(|(name, _)| name != "AccessKey");
        assert!(!accounts.permit(&unknown, b"", None));
        assert!(!accounts.permit(&Header::empty(), b"", None));
        let large = vec![0; super::BODY_MAX + 1];
        assert!(!accounts.permit(&signed(310, &[("b", "T")], &large), &large, None));
    }

    #[test]
    fn white_lists_are_those_of_addresses() {
        let ranges = vec![(10, 10), (0, 3), (0, 0), (0, 255)];
        let white = White {
            everyone: false,
            ranges: vec![ranges],
        };
        let mut accounts = Accounts::new(vec![white.clone()]);
        accounts.add("RocketMQ", SECRET, white, Rights::default());
        let within: [u8; 20] = [
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 3, 0, 7, 0, 0, 0, 1,
        ];
        let (beside, v6) = ([10, 4, 0, 9, 0, 0, 1, 1], [0; 20]);
        let mut plain = Header::empty();
        plain.code = 310;
        plain.ext = Some(vec![("AccessKey".into(), "RocketMQ".into())]);
        for (host, good) in [
            (HOST.as_slice(), true),
            (&within, true),
            (&beside, false),
            (&v6, false),
        ] {
            assert_eq!(accounts.trusts(Some(host)), good);
            assert_eq!(accounts.permit(&plain, b"", Some(host)), good);
        }
        assert!(!accounts.trusts(None));
        let everyone = White {
            everyone: true,
            ..White::default()
        };
        assert!(Accounts::new(vec![everyone]).trusts(None));
        assert_eq!(format!("{accounts:?}"), "Accounts(1)");
    }
}
