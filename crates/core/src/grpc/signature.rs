//! Who has signed a call, before its body is read: `MQv2-HMAC-SHA1` over the text of its date.
//!
//! The rules of access control ask once more when the call is theirs. Here is only found out whose
//! bytes may be kept meanwhile, so what is not known for sure is not signed.

use std::collections::HashMap;

use hmac::{Hmac, KeyInit, Mac};
use http::HeaderMap;
use sha1::Sha1;

const AUTHORIZATION: &str = "authorization";
const DATE: &str = "x-mq-date-time";
const LENGTH_MAX: usize = 8192;
const DIGEST_SIZE: usize = 20;

/// Secrets by access key.
pub type Secrets = HashMap<String, Vec<u8>>;

/// Returns the access key of the account that has signed a call with these headers, if one has.
pub(super) fn signer<'a>(secrets: &Secrets, headers: &'a HeaderMap) -> Option<&'a str> {
    let authorization = only(headers, AUTHORIZATION)?;
    let date = only(headers, DATE)?;
    let (key, signature) = parts(authorization)?;
    let secret = secrets.get(key);
    // An unknown account takes as long as a wrong signature.
    let tried = secret.map_or(key.as_bytes(), Vec::as_slice);
    let mut mac = Hmac::<Sha1>::new_from_slice(tried).ok()?;
    mac.update(date.as_bytes());
    let is_good = mac.verify_slice(&signature).is_ok();
    (is_good && secret.is_some()).then_some(key)
}

/// The value of a header that is there once.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut found = headers.get_all(name).iter();
    let value = found.next()?.to_str().ok()?;
    found.next().is_none().then_some(value)
}

/// Returns access key and signature of the header `authorization`.
fn parts(authorization: &str) -> Option<(&str, [u8; DIGEST_SIZE])> {
    if authorization.len() > LENGTH_MAX {
        return None;
    }
    let (_, rest) = authorization.split_once(' ')?;
    let (mut key, mut signature) = ("", "");
    for piece in rest.split(',') {
        match piece.trim().split_once('=')? {
            ("Credential", value) => key = value,
            ("Signature", value) => signature = value,
            _ => {}
        }
    }
    let key = key.split('/').next()?;
    Some((key, digest(signature)?))
}

/// Reads the bytes of a digest in hexadecimal digits of either case.
fn digest(text: &str) -> Option<[u8; DIGEST_SIZE]> {
    if text.len() != 2 * DIGEST_SIZE {
        return None;
    }
    let mut found = [0; DIGEST_SIZE];
    for (byte, pair) in found.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        for &digit in pair {
            let value = char::from(digit).to_digit(16)?;
            *byte = *byte << 4 | u8::try_from(value).ok()?;
        }
    }
    Some(found)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{signer, Secrets};
    use hmac::{Hmac, KeyInit, Mac};
    use http::{HeaderMap, HeaderValue};
    use sha1::Sha1;
    use std::fmt::Write as _;

    const NOW: &str = "20261123T090000Z";

    fn signature(secret: &str, date: &str) -> String {
        let mut mac = Hmac::<Sha1>::new_from_slice(secret.as_bytes()).unwrap();
        mac.update(date.as_bytes());
        let mut text = String::new();
        for byte in mac.finalize().into_bytes() {
            write!(text, "{byte:02x}").unwrap();
        }
        text
    }

    fn headers(authorization: &str, date: &str) -> HeaderMap {
        let mut found = HeaderMap::new();
        let value = |text| HeaderValue::from_str(text).unwrap();
        found.insert("authorization", value(authorization));
        found.insert("x-mq-date-time", value(date));
        found
    }

    fn secrets() -> Secrets {
        [("anna", "her-secret"), ("otto", "his-secret")]
            .map(|(key, secret)| (key.to_owned(), secret.as_bytes().to_vec()))
            .into()
    }

    #[test]
    fn call_is_signed_by_the_secret_of_its_account_alone() {
        let good = signature("her-secret", NOW);
        let who =
            |text: &str, date| signer(&secrets(), &headers(text, date)).map(ToOwned::to_owned);
        let told = |text: &str, date| who(text, date).is_some();
        let header = |key: &str, signature: &str| {
            format!("MQv2-HMAC-SHA1 Credential={key}, SignedHeaders=x-mq-date-time, Signature={signature}")
        };
        assert_eq!(
            who(&header("anna/cn/RocketMQ", &good), NOW).as_deref(),
            Some("anna")
        );
        assert!(told(&header("anna", &good.to_uppercase()), NOW));
        assert!(!told(&header("otto", &good), NOW));
        assert!(!told(&header("", &good), NOW));
        assert!(!told(&header("nobody", &signature("nobody", NOW)), NOW));
        assert!(!told(&header("anna", &good), "20261123T090001Z"));
        assert!(!told(&header("anna", &good[1..]), NOW));
        assert!(!told(&header("anna", ""), NOW));
        assert!(!told(&format!("{}, odd", header("anna", &good)), NOW));
        assert!(!told("MQv2-HMAC-SHA1", NOW));
        assert!(signer(&secrets(), &HeaderMap::new()).is_none());
        assert!(signer(&Secrets::new(), &headers(&header("anna", &good), NOW)).is_none());
    }

    #[test]
    fn header_that_is_there_twice_signs_nothing() {
        let text = format!(
            "x Credential=anna, Signature={}",
            signature("her-secret", NOW)
        );
        let mut twice = headers(&text, NOW);
        assert!(signer(&secrets(), &twice).is_some());
        twice.append("x-mq-date-time", HeaderValue::from_static("other"));
        assert!(signer(&secrets(), &twice).is_none());
    }
}
