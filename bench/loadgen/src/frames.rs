//! Requests as bytes, and answers cut out of a stream.

use std::io::{self, Read};

use crate::options::Options;

/// One request as (code, opaque, fields, body), in the encoding of the options and signed when they have an account.
pub fn push(out: &mut Vec<u8>, options: &Options, code: u32, opaque: u32, fields: &[(&str, &str)], body: &[u8]) {
    let Some(signer) = &options.signer else {
        return push_plain(out, options.binary_header(), code, opaque, fields, body);
    };
    let (mut all, signature) = signer.signed(fields, body);
    all.push(("Signature", &signature));
    push_plain(out, options.binary_header(), code, opaque, &all, body);
}

fn push_plain(out: &mut Vec<u8>, binary: bool, code: u32, opaque: u32, fields: &[(&str, &str)], body: &[u8]) {
    let start = out.len();
    out.extend_from_slice(&[0; 8]);
    // Codes of POP do not fit in a binary header.
    let small = u16::try_from(code).ok().filter(|_| binary);
    if let Some(code) = small {
        push_binary(out, code, opaque, fields);
    } else {
        push_json(out, code, opaque, fields);
    }
    let header = (out.len() - start - 8) as u32;
    let total = 4 + header + body.len() as u32;
    out[start..start + 4].copy_from_slice(&total.to_be_bytes());
    out[start + 4..start + 8].copy_from_slice(&(header | u32::from(small.is_some()) << 24).to_be_bytes());
    out.extend_from_slice(body);
}

fn push_binary(out: &mut Vec<u8>, code: u16, opaque: u32, fields: &[(&str, &str)]) {
    out.extend_from_slice(&code.to_be_bytes());
    out.push(0);
    out.extend_from_slice(&475u16.to_be_bytes());
    out.extend_from_slice(&opaque.to_be_bytes());
    out.extend_from_slice(&[0; 8]);
    let length: usize = fields.iter().map(|(name, value)| 6 + name.len() + value.len()).sum();
    out.extend_from_slice(&(length as u32).to_be_bytes());
    for (name, value) in fields {
        out.extend_from_slice(&(name.len() as u16).to_be_bytes());
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(&(value.len() as u32).to_be_bytes());
        out.extend_from_slice(value.as_bytes());
    }
}

fn push_json(out: &mut Vec<u8>, code: u32, opaque: u32, fields: &[(&str, &str)]) {
    out.extend_from_slice(format!("{{\"code\":{code},\"extFields\":{{").as_bytes());
    for (index, (name, value)) in fields.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"\"" } else { b",\"" });
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":\"");
        for &byte in value.as_bytes() {
            match byte {
                1 => out.extend_from_slice(b"\\u0001"),
                2 => out.extend_from_slice(b"\\u0002"),
                _ => out.push(byte),
            }
        }
        out.push(b'"');
    }
    out.extend_from_slice(
        format!("}},\"flag\":0,\"language\":\"JAVA\",\"opaque\":{opaque},\"serializeTypeCurrentRPC\":\"JSON\",\"version\":475}}")
            .as_bytes(),
    );
}

/// The stream of answers of one connection. Answers carry JSON headers (no broker mirrors ours).
pub struct Answers {
    buffer: Vec<u8>,
    from: usize,
}

impl Answers {
    pub fn new() -> Self {
        Self { buffer: Vec::with_capacity(1 << 20), from: 0 }
    }

    /// Hands (header, body) of every whole frame to `take`, after reading at least once when there is none.
    pub fn read(&mut self, stream: &mut impl Read, mut take: impl FnMut(&str, &[u8])) -> io::Result<usize> {
        loop {
            let mut seen = 0;
            while let Some((header_end, end)) = self.whole()? {
                let header = std::str::from_utf8(&self.buffer[self.from + 8..header_end]).unwrap_or("");
                take(header, &self.buffer[header_end..end]);
                self.from = end;
                seen += 1;
            }
            if seen > 0 {
                return Ok(seen);
            }
            self.buffer.drain(..self.from);
            self.from = 0;
            let old = self.buffer.len();
            self.buffer.resize(old + (1 << 18), 0);
            let read = stream.read(&mut self.buffer[old..]);
            // Also when nothing came in time: no zeros may stay that nobody sent.
            self.buffer.truncate(old + read.as_ref().unwrap_or(&0));
            let got = read?;
            if got == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn whole(&self) -> io::Result<Option<(usize, usize)>> {
        let rest = &self.buffer[self.from..];
        let Some(head) = rest.first_chunk::<8>() else { return Ok(None) };
        let total = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let header = u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize;
        if head[4] != 0 || header + 4 > total {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "an answer that is no JSON frame"));
        }
        if rest.len() < 4 + total {
            return Ok(None);
        }
        Ok(Some((self.from + 8 + header, self.from + 4 + total)))
    }
}

/// The text after `"name":`, which has no quotes in it.
pub fn text<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    let rest = &header[header.find(&format!("\"{name}\":\""))? + name.len() + 4..];
    rest.split('"').next()
}

/// The digits after `"name":` (quoted or bare), as a number.
pub fn number(header: &str, name: &str) -> Option<i64> {
    let rest = &header[header.find(&format!("\"{name}\":"))? + name.len() + 3..];
    let rest = rest.trim_start_matches('"');
    let end = rest.find(|c: char| c != '-' && !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}
