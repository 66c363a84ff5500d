//! What OpenSSL looks at in a certificate (RFC 5280) and webpki does not, and certificates that webpki
//! does not take at all: of the first version, or of an authority where a client's is expected.
//!
//! Nothing here says whom to trust: that is [`super::clients`].

use rustls::pki_types::{CertificateDer, SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer};
use webpki::RawPublicKeyEntity;

const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OID: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const ISSUER_ID: u8 = 0x81;
const SUBJECT_ID: u8 = 0x82;
const EXTENSIONS: u8 = 0xa3;

const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
const NAME_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x1e];
/// Other names, where to ask for revoked ones, policies: understood, or of no meaning where no policy is asked for.
const HARMLESS: [&[u8]; 6] = [
    &[0x55, 0x1d, 0x11],
    &[0x55, 0x1d, 0x1f],
    &[0x55, 0x1d, 0x20],
    &[0x55, 0x1d, 0x21],
    &[0x55, 0x1d, 0x24],
    &[0x55, 0x1d, 0x36],
];
const NETSCAPE_TYPE: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x86, 0xf8, 0x42, 0x01, 0x01];
const CLIENT_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02];

const DIGITAL_SIGNATURE: u8 = 0x80;
const KEY_AGREEMENT: u8 = 0x08;
const CERT_SIGN: u8 = 0x04;
const NETSCAPE_CLIENT: u8 = 0x80;

/// A certificate that was taken apart.
#[derive(Debug, Default)]
pub(super) struct Certificate<'a> {
    /// 0 is the first one.
    pub(super) version: u8,
    pub(super) issuer: &'a [u8],
    pub(super) subject: &'a [u8],
    /// First and last second, in Unix time.
    validity: (i64, i64),
    /// The whole `SubjectPublicKeyInfo`.
    key: &'a [u8],
    signed: &'a [u8],
    algorithm: &'a [u8],
    signature: &'a [u8],
    /// What the basic constraints say, if there are any.
    is_authority: Option<bool>,
    /// How many authorities may be between it and a client.
    pub(super) path_max: Option<usize>,
    usage: Option<u8>,
    netscape: Option<u8>,
    /// Whether it is for clients; `None`: for everything.
    is_for_clients: Option<bool>,
    pub(super) constrains_names: bool,
    /// Something must be understood that is not.
    pub(super) has_unknown: bool,
}

impl<'a> Certificate<'a> {
    /// Takes one apart; `None` when it is none.
    pub(super) fn read(der: &'a CertificateDer<'_>) -> Option<Self> {
        let mut all = Der(der.as_ref());
        let mut outer = Der(all.take(SEQUENCE)?);
        let (tag, body, signed) = outer.next()?;
        let mut found = Self {
            signed,
            algorithm: outer.take(SEQUENCE)?,
            signature: whole_bytes(outer.take(BIT_STRING)?)?,
            ..Self::default()
        };
        let ends = tag == SEQUENCE && outer.is_empty() && all.is_empty();
        (ends && found.read_body(Der(body)).is_some()).then_some(found)
    }

    fn read_body(&mut self, mut body: Der<'a>) -> Option<()> {
        if let Some(version) = body.take_if(VERSION) {
            self.version = *Der(version).take(INTEGER)?.last()?;
        }
        body.take(INTEGER)?;
        if body.take(SEQUENCE)? != self.algorithm {
            return None;
        }
        self.issuer = body.take(SEQUENCE)?;
        let mut validity = Der(body.take(SEQUENCE)?);
        self.validity = (validity.time()?, validity.time()?);
        self.subject = body.take(SEQUENCE)?;
        let (tag, _, key) = body.next()?;
        self.key = key;
        body.take_if(ISSUER_ID);
        body.take_if(SUBJECT_ID);
        if let Some(extensions) = body.take_if(EXTENSIONS) {
            let mut list = Der(Der(extensions).take(SEQUENCE)?);
            let mut seen = Vec::new();
            while !list.is_empty() {
                let mut one = Der(list.take(SEQUENCE)?);
                let id = one.take(OID)?;
                let is_critical = one.take_if(BOOLEAN).is_some_and(|it| it != [0]);
                if seen.contains(&id) {
                    return None;
                }
                seen.push(id);
                self.extension(id, is_critical, one.take(OCTET_STRING)?)?;
            }
        }
        (tag == SEQUENCE && body.is_empty()).then_some(())
    }

    fn extension(&mut self, id: &[u8], is_critical: bool, value: &[u8]) -> Option<()> {
        let mut value = Der(value);
        match id {
            BASIC_CONSTRAINTS => {
                let mut it = Der(value.take(SEQUENCE)?);
                self.is_authority = Some(it.take_if(BOOLEAN).is_some_and(|it| it != [0]));
                self.path_max = it.take_if(INTEGER).map(count);
            }
            KEY_USAGE => self.usage = Some(first_byte(value.take(BIT_STRING)?)?),
            NETSCAPE_TYPE => self.netscape = Some(first_byte(value.take(BIT_STRING)?)?),
            EXTENDED_KEY_USAGE => {
                let mut purposes = Der(value.take(SEQUENCE)?);
                let mut is_for_clients = false;
                while !purposes.is_empty() {
                    is_for_clients |= purposes.take(OID)? == CLIENT_AUTH;
                }
                self.is_for_clients = Some(is_for_clients);
            }
            NAME_CONSTRAINTS => self.constrains_names = true,
            _ => self.has_unknown |= is_critical && !HARMLESS.contains(&id),
        }
        Some(())
    }

    /// Whether it names itself as its issuer.
    pub(super) fn is_self_issued(&self) -> bool {
        self.issuer == self.subject
    }

    /// How a moment, in seconds of Unix time, lies to its validity.
    pub(super) fn compare_to(&self, now_s: i64) -> std::cmp::Ordering {
        let (first, last) = self.validity;
        if now_s < first {
            std::cmp::Ordering::Less
        } else if now_s > last {
            std::cmp::Ordering::Greater
        } else {
            std::cmp::Ordering::Equal
        }
    }

    /// Whether a client may show it.
    pub(super) fn may_be_shown(&self) -> bool {
        self.is_for_clients != Some(false)
            && allows(self.usage, DIGITAL_SIGNATURE | KEY_AGREEMENT)
            && allows(self.netscape, NETSCAPE_CLIENT)
    }

    /// Whether it may sign certificates of clients.
    pub(super) fn may_sign(&self) -> bool {
        // One of before the constraints were invented says by its key's usage, or not at all, what it is.
        let is_authority = self
            .is_authority
            .unwrap_or(self.version < 2 || self.usage.is_some());
        is_authority && self.is_for_clients != Some(false) && allows(self.usage, CERT_SIGN)
    }

    /// Its public key.
    pub(super) fn key(&self) -> SubjectPublicKeyInfoDer<'a> {
        SubjectPublicKeyInfoDer::from(self.key)
    }

    /// Whether the other's key has signed it.
    pub(super) fn is_signed_by(
        &self,
        other: &Certificate<'_>,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
    ) -> bool {
        let key = other.key();
        let Ok(key) = RawPublicKeyEntity::try_from(&key) else {
            return false;
        };
        let mut fit = algorithms
            .iter()
            .filter(|one| one.signature_alg_id().as_ref() == self.algorithm);
        fit.any(|one| {
            key.verify_signature(*one, self.signed, self.signature)
                .is_ok()
        })
    }
}

/// Whether one of these bits is set where there are any.
fn allows(bits: Option<u8>, wanted: u8) -> bool {
    bits.is_none_or(|bits| bits & wanted != 0)
}

fn whole_bytes(bits: &[u8]) -> Option<&[u8]> {
    bits.split_first()
        .filter(|(unused, _)| **unused == 0)
        .map(|(_, bytes)| bytes)
}

/// The first eight of some bits, of which there may be none.
fn first_byte(bits: &[u8]) -> Option<u8> {
    let (_, bytes) = bits.split_first()?;
    Some(bytes.first().copied().unwrap_or(0))
}

/// A number; one that is too large or below 0 allows nothing.
fn count(bytes: &[u8]) -> usize {
    match bytes {
        [one] if *one < 0x80 => usize::from(*one),
        _ => 0,
    }
}

/// Values of DER (X.690) one behind the other.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next value: its tag, what is in it, and all of it.
    fn next(&mut self) -> Option<(u8, &'a [u8], &'a [u8])> {
        let (tag, rest) = self.0.split_first()?;
        let (first, mut rest) = rest.split_first()?;
        let mut size = usize::from(*first);
        if size >= 0x80 {
            // Three bytes are more than any record of TLS has.
            let (bytes, behind) = rest
                .split_at_checked(size - 0x80)
                .filter(|(it, _)| (1..=3).contains(&it.len()))?;
            size = bytes
                .iter()
                .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            rest = behind;
        }
        let (inner, behind) = rest.split_at_checked(size)?;
        let whole = self.0.get(..self.0.len() - behind.len())?;
        self.0 = behind;
        Some((*tag, inner, whole))
    }

    fn take(&mut self, wanted: u8) -> Option<&'a [u8]> {
        let (tag, inner, _) = self.next()?;
        (tag == wanted).then_some(inner)
    }

    fn take_if(&mut self, wanted: u8) -> Option<&'a [u8]> {
        if self.0.first() == Some(&wanted) {
            self.take(wanted)
        } else {
            None
        }
    }

    /// A moment, in seconds of Unix time.
    fn time(&mut self) -> Option<i64> {
        let (tag, text, _) = self.next()?;
        let (year, rest) = match tag {
            UTC_TIME => {
                let (year, rest) = digits(text)?;
                (if year < 50 { 2000 + year } else { 1900 + year }, rest)
            }
            GENERALIZED_TIME => {
                let (century, rest) = digits(text)?;
                let (year, rest) = digits(rest)?;
                (100 * century + year, rest)
            }
            _ => return None,
        };
        let (month, rest) = digits(rest)?;
        let (day, rest) = digits(rest)?;
        let (hour, rest) = digits(rest)?;
        let (minute, rest) = digits(rest)?;
        let (second, rest) = digits(rest)?;
        let fits = (1..=12).contains(&month) && (1..=31).contains(&day) && rest == b"Z";
        let day = fits.then(|| days(year, month, day))?;
        Some(((day * 24 + hour) * 60 + minute) * 60 + second)
    }
}

/// A number of two digits, and what follows.
fn digits(text: &[u8]) -> Option<(i64, &[u8])> {
    let (two, rest) = text.split_at_checked(2)?;
    let number = two.iter().try_fold(0, |sum, digit| {
        let digit = digit.is_ascii_digit().then(|| digit - b'0')?;
        Some(10 * sum + i64::from(digit))
    });
    Some((number?, rest))
}

/// Days from the first of January 1970 to a day of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years that begin in March have their leap day at the end.
    let year = if month < 3 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let leaps = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    365 * year + leaps + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::{days, Der};

    #[test]
    fn moment_is_counted_from_the_first_of_january_1970() {
        for (text, wanted) in [
            (&b"\x17\x0d700101000000Z"[..], Some(0)),
            (b"\x17\x0d000229235959Z", Some(951_868_799)),
            (b"\x18\x0f20380119031408Z", Some(2_147_483_648)),
            (b"\x17\x0d500101000000Z", Some(-631_152_000)),
            (b"\x17\x0d701301000000Z", None),
            (b"\x17\x0d7001010000+0Z", None),
            (b"\x17\x0c70010100000Z", None),
        ] {
            assert_eq!(Der(text).time(), wanted, "{text:?}");
        }
        assert_eq!(days(2000, 3, 1) - days(2000, 2, 28), 2);
        assert_eq!(days(1900, 3, 1) - days(1900, 2, 28), 1);
    }

    #[test]
    fn value_that_is_cut_or_longer_than_what_there_is_is_none() {
        for bytes in [
            &b""[..],
            b"\x30",
            b"\x30\x01",
            b"\x30\x80",
            b"\x30\x81",
            b"\x30\x84\x00\x00\x00\x01\x00",
            b"\x30\x82\xff\xff\x00",
        ] {
            assert_eq!(Der(bytes).next(), None, "{bytes:?}");
        }
        assert_eq!(
            Der(b"\x30\x81\x01\x07\x09").next(),
            Some((0x30, &[7][..], &b"\x30\x81\x01\x07"[..]))
        );
    }
}
