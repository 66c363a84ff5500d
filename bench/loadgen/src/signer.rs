//! Signatures of requests: HMAC-SHA1 over the values of all fields in the order of their names, and the body.

use ring::hmac::{Context, Key, HMAC_SHA1_FOR_LEGACY_USE_ONLY};

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub struct Signer {
    access_key: String,
    key: Key,
}

impl Signer {
    pub fn new(access_key: &str, secret_key: &str) -> Self {
        Self { access_key: access_key.to_string(), key: Key::new(HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret_key.as_bytes()) }
    }

    /// The fields with those that say who asks, and the signature of all of it.
    pub fn signed<'a>(&'a self, fields: &[(&'a str, &'a str)], body: &[u8]) -> (Vec<(&'a str, &'a str)>, String) {
        let mut all = fields.to_vec();
        all.push(("AccessKey", &self.access_key));
        all.sort_unstable_by_key(|(name, _)| *name);
        let mut context = Context::with_key(&self.key);
        for (_, value) in &all {
            context.update(value.as_bytes());
        }
        context.update(body);
        (all, base64(context.sign().as_ref()))
    }
}

fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let number = group.iter().enumerate().fold(0u32, |sum, (at, byte)| sum | u32::from(*byte) << (16 - 8 * at));
        for place in 0..4 {
            let digit = ALPHABET[(number >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= group.len() { char::from(digit) } else { '=' });
        }
    }
    text
}
