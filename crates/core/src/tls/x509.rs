//! What OpenSSL looks at in a certificate (RFC 5280) and webpki does not, and certificates that webpki
//! does not take at all: of the first version, or of an authority where a client's is expected.
//!
//! The crate x509-cert takes certificates apart. It takes less than OpenSSL: DER alone, no number above
//! 32 bits in an object identifier, no date before 1970. What was signed is never encoded anew, since
//! two encodings may have the same meaning: the bytes that came are kept beside.
//!
//! Nothing here says whom to trust: that is [`super::clients`].

use std::collections::BTreeSet;

use rustls::pki_types::{CertificateDer, SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer};
use webpki::RawPublicKeyEntity;
use x509_cert::certificate::{CertificateInner, Raw};
use x509_cert::der::asn1::{Any, BitStringRef, ObjectIdentifier};
use x509_cert::der::oid::db::rfc5280::ID_KP_CLIENT_AUTH;
use x509_cert::der::oid::AssociatedOid;
use x509_cert::der::{self, Decode, Encode, Header, Reader, SliceReader};
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{
    BasicConstraints, CertificatePolicies, CrlDistributionPoints, ExtendedKeyUsage,
    InhibitAnyPolicy, KeyUsage, NameConstraints, PolicyConstraints, PolicyMappings, SubjectAltName,
};
use x509_cert::ext::Extension;
use x509_cert::name::Name;
use x509_cert::time::Time;

use super::hosts::HostNames;

/// Other names, where to ask for revoked ones, policies: understood, or of no meaning where no policy is asked for.
const HARMLESS: [ObjectIdentifier; 6] = [
    SubjectAltName::OID,
    CrlDistributionPoints::OID,
    CertificatePolicies::OID,
    PolicyMappings::OID,
    PolicyConstraints::OID,
    InhibitAnyPolicy::OID,
];
const NETSCAPE_TYPE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.113730.1.1");
/// The bit of that type for clients of TLS.
const NETSCAPE_CLIENT: usize = 0;

/// A certificate that was taken apart.
#[derive(Debug, Default)]
pub(super) struct Certificate<'a> {
    /// 0 is the first one.
    pub(super) version: u8,
    pub(super) issuer: Name,
    pub(super) subject: Name,
    /// First and last second, in Unix time.
    validity: (i64, i64),
    /// The whole `SubjectPublicKeyInfo`.
    key: Vec<u8>,
    /// What its issuer has signed, as it came.
    signed: &'a [u8],
    /// What is in the `AlgorithmIdentifier` of the signature.
    algorithm: Vec<u8>,
    signature: Vec<u8>,
    /// What the basic constraints say, if there are any.
    is_authority: Option<bool>,
    /// How many authorities may be between it and a client.
    pub(super) path_max: Option<usize>,
    usage: Option<KeyUsage>,
    /// Whether its type, as Netscape had them, is that of clients.
    has_client_type: Option<bool>,
    /// Whether it is for clients; `None`: for everything.
    is_for_clients: Option<bool>,
    pub(super) constrains_names: bool,
    /// Which names of hosts those below it may have.
    pub(super) host_names: HostNames,
    /// Whether names of hosts stand where they belong, in the extension of other names.
    pub(super) names_hosts: bool,
    /// Something must be understood that is not.
    pub(super) has_unknown: bool,
}

impl<'a> Certificate<'a> {
    /// Takes one apart; `None` when it is none.
    pub(super) fn read(der: &'a CertificateDer<'_>) -> Option<Self> {
        Self::decode(der.as_ref()).ok().flatten()
    }

    /// `None` where what was decoded contradicts itself.
    fn decode(der: &'a [u8]) -> der::Result<Option<Self>> {
        // The profile of RFC 5280 refuses serial numbers that OpenSSL takes.
        let parts = CertificateInner::<Raw>::from_der(der)?;
        let body = parts.tbs_certificate();
        let Some(signature) = parts.signature().as_bytes() else {
            return Ok(None);
        };
        if body.signature() != parts.signature_algorithm() {
            return Ok(None);
        }
        let validity = body.validity();
        let mut found = Self {
            version: body.version() as u8,
            issuer: body.issuer().clone(),
            subject: body.subject().clone(),
            validity: (seconds(validity.not_before), seconds(validity.not_after)),
            key: body.subject_public_key_info().to_der()?,
            signed: first_inside(der)?,
            algorithm: Any::encode_from(body.signature())?.value().to_vec(),
            signature: signature.to_vec(),
            ..Self::default()
        };
        let mut seen = BTreeSet::new();
        for one in body.extensions().into_iter().flatten() {
            if !seen.insert(one.extn_id) {
                return Ok(None);
            }
            found.extension(one)?;
        }
        Ok(Some(found))
    }

    fn extension(&mut self, one: &Extension) -> der::Result<()> {
        let value = one.extn_value.as_bytes();
        match one.extn_id {
            BasicConstraints::OID => {
                let it = BasicConstraints::from_der(value)?;
                self.is_authority = Some(it.ca);
                self.path_max = it.path_len_constraint.map(usize::from);
            }
            KeyUsage::OID => self.usage = Some(KeyUsage::from_der(value)?),
            ExtendedKeyUsage::OID => {
                let purposes = ExtendedKeyUsage::from_der(value)?.0;
                self.is_for_clients = Some(purposes.contains(&ID_KP_CLIENT_AUTH));
            }
            NETSCAPE_TYPE => {
                let bits = BitStringRef::from_der(value)?;
                self.has_client_type = Some(bits.get(NETSCAPE_CLIENT) == Some(true));
            }
            NameConstraints::OID => {
                self.constrains_names = true;
                self.host_names = HostNames::of(NameConstraints::from_der(value).ok());
            }
            SubjectAltName::OID => {
                let is_host = |it: &GeneralName| matches!(it, GeneralName::DnsName(_));
                let others = SubjectAltName::from_der(value);
                self.names_hosts = others.is_ok_and(|it| it.0.iter().any(is_host));
            }
            id => self.has_unknown |= one.critical && !HARMLESS.contains(&id),
        }
        Ok(())
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
        let signs = |it: &KeyUsage| it.digital_signature() || it.key_agreement();
        self.is_for_clients != Some(false)
            && self.has_client_type != Some(false)
            && self.usage.as_ref().is_none_or(signs)
    }

    /// Whether it may sign certificates of clients.
    pub(super) fn may_sign(&self) -> bool {
        // One of before the constraints were invented says by its key's usage, or not at all, what it is.
        let is_authority = self
            .is_authority
            .unwrap_or(self.version < 2 || self.usage.is_some());
        is_authority
            && self.is_for_clients != Some(false)
            && self.usage.as_ref().is_none_or(KeyUsage::key_cert_sign)
    }

    /// Its public key.
    pub(super) fn key(&self) -> SubjectPublicKeyInfoDer<'_> {
        SubjectPublicKeyInfoDer::from(self.key.as_slice())
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
            key.verify_signature(*one, self.signed, &self.signature)
                .is_ok()
        })
    }
}

/// The first value inside another, as it came.
fn first_inside(der: &[u8]) -> der::Result<&[u8]> {
    let mut reader = SliceReader::new(der)?;
    Header::decode(&mut reader)?;
    reader.tlv_bytes()
}

/// Seconds of Unix time; the crate takes no time before 1970.
fn seconds(time: Time) -> i64 {
    i64::try_from(time.to_unix_duration().as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use base64::prelude::{Engine, BASE64_STANDARD};
    use proptest::prelude::{any, Strategy};
    use proptest::sample::Index;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    use proptest::{collection, option, prop_assert, prop_assert_eq};
    use rustls::crypto::ring;
    use rustls::pki_types::UnixTime;
    use rustls::server::danger::ClientCertVerifier;

    use x509_cert::der::asn1::AnyRef;
    use x509_cert::der::Tagged;

    use super::super::clients::{first_of, ClientCertificates};
    use super::*;

    /// A self-signed authority over at most one other, from 2020 to 2120, as all of these.
    const ROOT: &str = "\
        MIIBZjCCAQ2gAwIBAgIUQK7vdyuZgNi4rMpeq11m9Lej+uIwCgYIKoZIzj0EAwIwDzENMAsGA1UEAwwEcm9vdDAg\
        Fw0yMDAxMDEwMDAwMDBaGA8yMTIwMDEwMTAwMDAwMFowDzENMAsGA1UEAwwEcm9vdDBZMBMGByqGSM49AgEGCCqG\
        SM49AwEHA0IABNTo2xO6Nh3iqAmig2dKKl8BVX8EdF0akVlnJxdJnmFQ79hQ8x1+0A5dhckgHSezaY89GHIy5adu\
        REgVumJod/mjRTBDMBIGA1UdEwEB/wQIMAYBAf8CAQEwDgYDVR0PAQH/BAQDAgEGMB0GA1UdDgQWBBTcXUyEKHbl\
        rzYbmRw86Hy7U5uHMDAKBggqhkjOPQQDAgNHADBEAiB/UazT4TyElTKHKYZy81FcrYHFSl2AQipmNqVpkcieTAIg\
        KCD9DWnTY5+tc9UUrMJ5yRGbD+cRHBaoPsOMEwW/1kQ=";
    /// A client's, with every kind of purpose; `ROOT` has signed it.
    const CLIENT: &str = "\
        MIIBizCCATGgAwIBAgIUEXZcDekQXvgVaEHodmMV2QOSNpAwCgYIKoZIzj0EAwIwDzENMAsGA1UEAwwEcm9vdDAg\
        Fw0yMDAxMDEwMDAwMDBaGA8yMTIwMDEwMTAwMDAwMFowETEPMA0GA1UEAwwGY2xpZW50MFkwEwYHKoZIzj0CAQYI\
        KoZIzj0DAQcDQgAEYi5nX58r8YzVz3II5DvZtUEcvG4/UDjHgI0k8OLyOx/3mygNLoLcg/7e1Dhe3fQXCKYho8Os\
        OBspfYoEgLIRaqNnMGUwDAYDVR0TAQH/BAIwADAOBgNVHQ8BAf8EBAMCB4AwHQYDVR0lBBYwFAYIKwYBBQUHAwEG\
        CCsGAQUFBwMCMBEGCWCGSAGG+EIBAQQEAwIHgDATBgNVHREBAf8ECTAHggVhLm9yZzAKBggqhkjOPQQDAgNIADBF\
        AiEA0hbqiDW8c0eaa4jDp6CXMfI+mxLWMdwKMlwP2SCY0l8CICaAlfcxxJGOce9oQHKc4c1mKrd2P67ge3cF9Wu2\
        8Zms";
    /// An authority for names below `a.org`; `ROOT` has signed it.
    const BETWEEN: &str = "\
        MIIBUzCB+qADAgECAhQhvXPOivAZEiJAN7p011QeKubyBzAKBggqhkjOPQQDAjAPMQ0wCwYDVQQDDARyb290MCAX\
        DTIwMDEwMTAwMDAwMFoYDzIxMjAwMTAxMDAwMDAwWjASMRAwDgYDVQQDDAdiZXR3ZWVuMFkwEwYHKoZIzj0CAQYI\
        KoZIzj0DAQcDQgAE+08O9NrqMaU6TiSIDvUrUMQsLAq2RfFOuX0LxcEy/NehokzIoV6KEmDrUD3joM7zMq0SOAm5\
        gid+u8zxRpHflKMvMC0wEgYDVR0TAQH/BAgwBgEB/wIBADAXBgNVHR4BAf8EDTALoAkwB4IFYS5vcmcwCgYIKoZI\
        zj0EAwIDSAAwRQIhANCdpl4N9EzX09zP+ozuHXGUcGUti/snn4TDmAoaN2eGAiAxDVK0ke+4tK9VlpdPZA468e9G\
        xBizAYcJJRwUTxPNNQ==";
    /// A client's; `BETWEEN` has signed it.
    const LEAF: &str = "\
        MIIBODCB36ADAgECAhQLNkZrNbec8bGWljDU7x9fwbGWczAKBggqhkjOPQQDAjASMRAwDgYDVQQDDAdiZXR3ZWVu\
        MCAXDTIwMDEwMTAwMDAwMFoYDzIxMjAwMTAxMDAwMDAwWjAPMQ0wCwYDVQQDDARsZWFmMFkwEwYHKoZIzj0CAQYI\
        KoZIzj0DAQcDQgAEZeJPjbSyfR/T9yqb6Ne4MFRbvOJ+9JGBRl/ZDmwYrJQUe5r93k8tCYojciH0X3MglUDisS+A\
        gCbXAM5j/+sKaaMUMBIwEAYDVR0RBAkwB4IFYS5vcmcwCgYIKoZIzj0EAwIDSAAwRQIhAKq70WBTcxbVQ0G8syro\
        IoO1lGskbYhlL4/XjpjyWfsEAiAWvl3J9TSvetfU0T57t/ThIH6o/Nr0RjZNEYNrr2NSig==";
    /// One of the first version; `ROOT` has signed it.
    const FIRST: &str = "\
        MIIBCDCBrwIBBTAKBggqhkjOPQQDAjAPMQ0wCwYDVQQDDARyb290MCAXDTIwMDEwMTAwMDAwMFoYDzIxMjAwMTAx\
        MDAwMDAwWjAQMQ4wDAYDVQQDDAVmaXJzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABMcF8OY1CHOLlPqPTTHk\
        7iwbe47EtJjV5byUh6aSoPk4gcFkPPS30PHCXYUwGaQU+700f8TAxgVm32KJIEkYyMowCgYIKoZIzj0EAwIDSAAw\
        RQIhAM56H54EtShjQj+Q8ONQEtG8msGlSnJXJgTajQMWXp7jAiAyucfxlT769HDzu94KpgCv0FZFlmjnhWAY1Bnj\
        O5zGEg==";
    /// An authority whose encoding has another of the same meaning; `ROOT` has signed it, and OpenSSL takes it of a client.
    const ODD: &str = "\
        MIIBWzCCAQGgAwIBAgIeERERERERERERERERERERERERERERERERERERERERMAoGCCqGSM49BAMCMA8xDTALBgNV\
        BAMMBHJvb3QwIhgPMjAyMDAxMDEwMDAwMDBaGA8yMDQ5MTIzMTIzNTk1OVowGTEXMAkGA1UECwwCenowCgYDVQQD\
        DANvZGQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAS1q08pILEwFE9VTo3ylJuMyQ55uECTcfOikXyLS4d/elmo\
        G4g7htsKYKU2Sm6G52FKG4txX3RELc2I/98vZJCKoyMwITAPBgNVHRMBAf8EBTADAQH/MA4GA1UdDwEBAAQEAwIB\
        hjAKBggqhkjOPQQDAgNIADBFAiAROTwbjg1SWvhkRhNTzBjXJZoO8nqWMeaQGbuXiRzoUwIhAJDTya2XVY+maXD7\
        UKn3S3Kl0+ykZX5Boqb0UE+1/9mB";
    const ALL: [&str; 6] = [ROOT, CLIENT, BETWEEN, LEAF, FIRST, ODD];
    /// The first second of 2020 and of 2120.
    const VALID_S: (i64, i64) = (1_577_836_800, 4_733_510_400);
    const MUTANTS: u32 = 20_000;

    fn der(text: &str) -> CertificateDer<'static> {
        BASE64_STANDARD.decode(text).unwrap().into()
    }

    fn takes(trusted: &CertificateDer<'_>, shown: &[&CertificateDer<'_>]) -> bool {
        let trusted = vec![trusted.clone().into_owned()];
        let Ok(judge) = ClientCertificates::new(trusted, true, &ring::default_provider()) else {
            return false;
        };
        let between: Vec<_> = shown.iter().skip(1).map(|it| (*it).clone()).collect();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_001));
        judge.verify_client_cert(shown[0], &between, now).is_ok()
    }

    fn is_signed_by(one: &Certificate<'_>, other: &Certificate<'_>) -> bool {
        let algorithms = ring::default_provider().signature_verification_algorithms;
        one.is_signed_by(other, algorithms.all)
    }

    #[test]
    fn certificates_that_openssl_takes_are_taken() {
        let [root, client, between, leaf, first, odd] = ALL.map(der);
        for shown in [&client, &first, &odd] {
            assert!(takes(&root, &[shown]), "{shown:?}");
        }
        assert!(takes(&root, &[&leaf, &between]));
        assert!(!takes(&root, &[&leaf]));
        assert!(!takes(&client, &[&leaf]));
    }

    #[test]
    fn of_what_is_shown_beside_three_of_a_name_and_sixteen_at_most_are_looked_at() {
        let all = ALL.map(der);
        let mut shown: Vec<_> = std::iter::repeat_n(all[2].clone(), 10).collect();
        shown.extend([CertificateDer::from(vec![0; 9]), all[0].clone()]);
        shown.extend(std::iter::repeat_n(all[5].clone(), 100));
        let [root, between, odd] = [0, 2, 5].map(|at| &all[at]);
        let wanted = [between, between, between, root, odd, odd, odd];
        assert_eq!(first_of(&shown).collect::<Vec<_>>(), wanted);
        let late: Vec<_> = std::iter::repeat_n(all[2].clone(), 16)
            .chain([all[0].clone()])
            .collect();
        assert_eq!(first_of(&late).count(), 3);
    }

    #[test]
    fn validity_includes_its_first_and_last_second() {
        let first = der(FIRST);
        let read = Certificate::read(&first).unwrap();
        let (from, to) = VALID_S;
        for (now_s, wanted) in [
            (i64::MIN, std::cmp::Ordering::Less),
            (from - 1, std::cmp::Ordering::Less),
            (from, std::cmp::Ordering::Equal),
            (to, std::cmp::Ordering::Equal),
            (to + 1, std::cmp::Ordering::Greater),
            (i64::MAX, std::cmp::Ordering::Greater),
        ] {
            assert_eq!(read.compare_to(now_s), wanted, "{now_s}");
        }
    }

    #[test]
    fn signature_is_checked_over_the_bytes_that_came() {
        let [root, odd] = [ROOT, ODD].map(der);
        let parts = CertificateInner::<Raw>::from_der(&odd).unwrap();
        let read = Certificate::read(&odd).unwrap();
        assert_ne!(parts.tbs_certificate().to_der().unwrap(), read.signed);
        assert!(is_signed_by(&read, &Certificate::read(&root).unwrap()));
        assert!(!is_signed_by(&read, &read));
    }

    #[test]
    fn certificate_that_is_cut_or_longer_is_none() {
        for whole in ALL.map(der) {
            for size in 0..whole.len() {
                let cut = CertificateDer::from(&whole[..size]);
                assert!(Certificate::read(&cut).is_none(), "{size}");
            }
            let longer = CertificateDer::from([&whole[..], &[0]].concat());
            assert!(Certificate::read(&longer).is_none());
        }
    }

    #[test]
    fn identifier_or_date_that_the_library_does_not_take_makes_a_certificate_unreadable() {
        let changed = |from: &[u8], to: &[u8]| {
            let mut bytes = der(CLIENT).to_vec();
            let mut windows = bytes.windows(from.len());
            let at = windows.position(|it| it == from).unwrap();
            bytes[at..at + from.len()].copy_from_slice(to);
            Certificate::read(&bytes.into()).is_some()
        };
        let id = NETSCAPE_TYPE.as_bytes();
        // 2.25 and one number, as identifiers made of a UUID are; it may have 32 bits.
        assert!(changed(id, b"\x69\x8f\xff\xff\xff\x7f\x01\x01\x01"));
        assert!(!changed(id, b"\x69\x90\x80\x80\x80\x00\x01\x01\x01"));
        assert!(changed(b"200101000000Z", b"700101000000Z"));
        assert!(!changed(b"200101000000Z", b"691231235959Z"));
    }

    /// Values one behind the other, of which one, as they are met, has other content; the sizes of those
    /// around it follow.
    fn replace(values: &[u8], at: &mut usize, content: &[u8]) -> Option<Vec<u8>> {
        let mut reader = SliceReader::new(values).ok()?;
        let mut made = Vec::new();
        while !reader.is_finished() {
            let one = AnyRef::decode(&mut reader).ok()?;
            let is_it = *at == 0;
            *at = at.wrapping_sub(1);
            let inner = if is_it {
                content.to_vec()
            } else {
                replace(one.value(), at, content).unwrap_or_else(|| one.value().to_vec())
            };
            made.extend(AnyRef::new(one.tag(), &inner).ok()?.to_der().ok()?);
        }
        Some(made)
    }

    /// A certificate with other values inside, or changed here and there, or cut.
    fn mutants() -> impl Strategy<Value = (usize, Vec<u8>)> {
        let value = (0..80_usize, collection::vec(any::<u8>(), 0..6));
        let values = collection::vec(value, 0..3);
        let changes = collection::vec((0..8_u8, any::<Index>(), any::<u8>()), 0..3);
        let cut = option::weighted(0.1, any::<Index>());
        (0..ALL.len(), values, changes, cut).prop_map(|(which, values, changes, cut)| {
            let mut bytes = der(ALL[which]).to_vec();
            for (mut at, content) in values {
                bytes = replace(&bytes, &mut at, &content).unwrap();
            }
            for (how, at, byte) in changes {
                let at = at.index(bytes.len());
                match how {
                    0 => drop(bytes.remove(at)),
                    1 => bytes.insert(at, byte),
                    2 => bytes[at] ^= 1 << (byte % 8),
                    _ => bytes[at] = byte,
                }
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len() + 1));
            }
            (which, bytes)
        })
    }

    /// Reads one, and tells whether it could be; nothing may panic, and no change may be taken.
    fn judge(which: usize, bytes: &[u8]) -> Result<bool, proptest::test_runner::TestCaseError> {
        let originals = ALL.map(der);
        let [root, client, _, leaf, ..] = &originals;
        let original = &originals[which];
        let mutant = CertificateDer::from(bytes);
        let is_changed = *original != mutant;
        prop_assert!(!(is_changed && takes(root, &[&mutant])));
        prop_assert!(!(is_changed && takes(root, &[leaf, &mutant])));
        // Whom to trust is not signed: only that nothing breaks is seen here.
        takes(&mutant, &[client]);
        takes(&mutant, &[&mutant]);
        let Some(read) = Certificate::read(&mutant) else {
            prop_assert!(is_changed);
            return Ok(false);
        };
        let has = |part: &[u8]| bytes.windows(part.len()).any(|it| it == part);
        prop_assert!(has(read.signed));
        prop_assert!(has(&read.key));
        prop_assert!(has(&read.algorithm));
        let unchanged = Certificate::read(original).unwrap();
        let root = Certificate::read(root).unwrap();
        if is_signed_by(&read, &root) {
            prop_assert_eq!(read.signed, unchanged.signed);
        }
        Ok(true)
    }

    #[test]
    fn changed_or_cut_certificate_is_refused_without_panic() {
        let config = Config {
            cases: MUTANTS,
            failure_persistence: None,
            ..Config::default()
        };
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let read = Cell::new(0);
        let checked = TestRunner::new_with_rng(config, rng).run(&mutants(), |(which, bytes)| {
            read.set(read.get() + u32::from(judge(which, &bytes)?));
            Ok(())
        });
        checked.unwrap();
        // Else only refusals to read would have been seen.
        assert!(read.get() > MUTANTS / 4, "{} were read", read.get());
    }
}
