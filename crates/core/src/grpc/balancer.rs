//! The PROXY protocol of HAProxy, versions 1 and 2: for whom a balancer speaks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes that tell whether there is a header, and of which version.
pub(super) const TELLING: usize = 6;
const LINE: &[u8; TELLING] = b"PROXY ";
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes of the longest line, its end included.
const LINE_MAX: usize = 107;
/// Bytes of the longest binary header behind its length.
const BINARY_MAX: usize = 2048;

type Found = Result<Option<SocketAddr>, &'static str>;

/// What a connection begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Something else.
    Nothing,
    /// Version 1.
    Line,
    /// Version 2.
    Binary,
}

impl Kind {
    /// Tells by the first bytes; None: there are too few of them.
    pub(super) fn of(seen: &[u8]) -> Option<Self> {
        for (kind, begin) in [
            (Self::Line, LINE.as_slice()),
            (Self::Binary, SIGNATURE.as_slice()),
        ] {
            let size = seen.len().min(TELLING);
            if begin.get(..size) == seen.get(..size) {
                return (size == TELLING).then_some(kind);
            }
        }
        Some(Self::Nothing)
    }
}

/// Tells whether a network, named by an address and a length in bits, has an address.
pub(super) fn contains(network: IpAddr, length: u8, address: IpAddr) -> bool {
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            let shift = 32_u32.saturating_sub(u32::from(length));
            let differ = network.to_bits() ^ address.to_bits();
            differ.checked_shr(shift).unwrap_or(0) == 0
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            let shift = 128_u32.saturating_sub(u32::from(length));
            let differ = network.to_bits() ^ address.to_bits();
            differ.checked_shr(shift).unwrap_or(0) == 0
        }
        _ => false,
    }
}

/// A header that is taken from a connection, and never a byte behind it.
///
/// **Invariant.** What is taken begins like a header for as long as `wanted` names no fault, so at most
/// 16 + 2,048 bytes are ever kept.
#[derive(Debug, Default)]
pub struct Header {
    seen: Vec<u8>,
}

impl Header {
    /// Returns how many bytes have to be taken next; 0: the header is whole.
    ///
    /// # Errors
    /// What is wrong with the bytes that were taken.
    pub fn wanted(&self) -> Result<usize, &'static str> {
        let count = self.seen.len();
        match Kind::of(&self.seen) {
            None => Ok(TELLING - count),
            Some(Kind::Nothing) => Err("it is none"),
            Some(Kind::Line) if self.seen.last() == Some(&b'\n') => Ok(0),
            Some(Kind::Line) if count == LINE_MAX => Err("the line has no end"),
            Some(Kind::Line) => Ok(1),
            Some(Kind::Binary) => match self.seen.split_first_chunk::<16>() {
                None => Ok(16 - count),
                Some(([signature @ .., _, _, high, low], body)) => {
                    if signature != SIGNATURE {
                        return Err("its signature is another one");
                    }
                    let size = usize::from(u16::from_be_bytes([*high, *low]));
                    if size > BINARY_MAX {
                        return Err("it is too long");
                    }
                    Ok(size.saturating_sub(body.len()))
                }
            },
        }
    }

    /// Takes bytes, of which there may be no more than are wanted.
    pub fn take(&mut self, bytes: &[u8]) {
        self.seen.extend_from_slice(bytes);
    }

    /// Returns the client's address that a whole header names, if it names one.
    ///
    /// # Errors
    /// What is wrong with the header.
    pub fn client(&self) -> Found {
        let found = match self.seen.split_first_chunk::<16>() {
            Some(([signature @ .., version, family, _, _], body)) if signature == SIGNATURE => {
                of_binary(*version, *family, body)
            }
            _ => of_line(&self.seen),
        }?;
        // A rule about an address of IPv4 holds for it written as one of IPv6 as well.
        Ok(found.map(|client| SocketAddr::new(client.ip().to_canonical(), client.port())))
    }
}

fn of_line(line: &[u8]) -> Found {
    let text = std::str::from_utf8(line).map_err(|_| "the line is no text")?;
    let text = text.strip_suffix("\r\n").ok_or("the line has no end")?;
    let mut words = text.split(' ');
    let _ = words.next();
    let family = words.next().unwrap_or_default();
    if family == "UNKNOWN" {
        return Ok(None);
    }
    let mut next = || words.next().ok_or("a word is missing");
    let (source, destination) = (next()?, next()?);
    let (port, _) = (next()?, next()?);
    let source: IpAddr = source.parse().map_err(|_| "an address is none")?;
    let destination: IpAddr = destination.parse().map_err(|_| "an address is none")?;
    let port: u16 = port.parse().map_err(|_| "a port is none")?;
    match (family, source, destination) {
        ("TCP4", IpAddr::V4(_), IpAddr::V4(_)) | ("TCP6", IpAddr::V6(_), IpAddr::V6(_)) => {
            Ok(Some(SocketAddr::new(source, port)))
        }
        _ => Err("the addresses are of another family"),
    }
}

fn of_binary(version: u8, family: u8, body: &[u8]) -> Found {
    match version {
        // The balancer speaks for itself, as when it checks our health.
        0x20 => return Ok(None),
        0x21 => {}
        _ => return Err("its version or command is unknown"),
    }
    let short = "its addresses are cut off";
    match family {
        0x11 => {
            let (addresses, _) = body.split_first_chunk::<12>().ok_or(short)?;
            let [a, b, c, d, _, _, _, _, high, low, ..] = *addresses;
            let port = u16::from_be_bytes([high, low]);
            Ok(Some((Ipv4Addr::new(a, b, c, d), port).into()))
        }
        0x21 => {
            let (addresses, _) = body.split_first_chunk::<36>().ok_or(short)?;
            let (source, rest) = addresses.split_first_chunk::<16>().ok_or(short)?;
            let (port, _) = rest
                .get(16..)
                .and_then(<[u8]>::split_first_chunk::<2>)
                .ok_or(short)?;
            let port = u16::from_be_bytes(*port);
            Ok(Some((Ipv6Addr::from(*source), port).into()))
        }
        // Of no address, of datagrams or of sockets of Unix: nothing is said of a client.
        _ => Ok(None),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{contains, of_binary, of_line, Header, Kind, BINARY_MAX, LINE_MAX, SIGNATURE};

    /// Has a header taken from what a peer sends; returns it with what is left.
    fn taken(mut sent: &[u8]) -> Result<(Header, &[u8]), &'static str> {
        let mut header = Header::default();
        loop {
            let wanted = header.wanted()?;
            if wanted == 0 {
                return Ok((header, sent));
            }
            let (now, rest) = sent.split_at_checked(wanted).ok_or("torn")?;
            header.take(now);
            sent = rest;
        }
    }

    #[test]
    fn header_is_taken_whole_and_nothing_behind_it() {
        let line = b"PROXY TCP4 10.1.2.3 10.0.0.1 4711 8081\r\nrest";
        let (header, rest) = taken(line).unwrap();
        assert_eq!(rest, b"rest");
        assert_eq!(header.client(), Ok(Some("10.1.2.3:4711".parse().unwrap())));
        let four = [10, 1, 2, 3, 10, 0, 0, 1, 0x12, 0x67, 0x1f, 0x91];
        let binary = [&SIGNATURE[..], &[0x21, 0x11, 0, 12], &four, b"rest"].concat();
        let (header, rest) = taken(&binary).unwrap();
        assert_eq!(rest, b"rest");
        assert_eq!(header.client(), Ok(Some("10.1.2.3:4711".parse().unwrap())));
        for end in 0..binary.len() - 4 {
            assert_eq!(taken(&binary[..end]).unwrap_err(), "torn");
        }
    }

    #[test]
    fn address_of_ipv4_is_one_in_whatever_form_it_comes() {
        let (header, _) = taken(b"PROXY TCP6 ::ffff:10.1.2.3 ::1 4711 8081\r\n").unwrap();
        assert_eq!(header.client(), Ok(Some("10.1.2.3:4711".parse().unwrap())));
    }

    #[test]
    fn header_that_is_none_or_has_no_end_is_bad_before_much_is_kept() {
        assert_eq!(taken(b"PRI * HTTP").unwrap_err(), "it is none");
        let endless = [&b"PROXY "[..], &[b'x'; 200]].concat();
        assert_eq!(taken(&endless).unwrap_err(), "the line has no end");
        let (high, low) = (
            (BINARY_MAX + 1).to_be_bytes()[6],
            (BINARY_MAX + 1).to_be_bytes()[7],
        );
        let long = [&SIGNATURE[..], &[0x21, 0x11, high, low]].concat();
        assert_eq!(taken(&long).unwrap_err(), "it is too long");
        let other = [&SIGNATURE[..11], &b"?"[..], &[0; 4]].concat();
        assert_eq!(taken(&other).unwrap_err(), "its signature is another one");
    }

    #[test]
    fn kind_is_told_by_six_bytes_and_not_before() {
        assert_eq!(Kind::of(b"PR"), None);
        assert_eq!(Kind::of(b"PROXY "), Some(Kind::Line));
        assert_eq!(Kind::of(b"PRI * "), Some(Kind::Nothing));
        assert_eq!(Kind::of(b"\x16"), Some(Kind::Nothing));
        assert_eq!(Kind::of(b"\r\n\r\n\0"), None);
        assert_eq!(Kind::of(b"\r\n\r\n\0\r"), Some(Kind::Binary));
    }

    #[test]
    fn line_names_the_client_or_nobody() {
        let told = |text: &str| of_line(text.as_bytes());
        let found = told("PROXY TCP4 10.1.2.3 10.0.0.1 4711 8081\r\n");
        assert_eq!(found, Ok(Some("10.1.2.3:4711".parse().unwrap())));
        let found = told("PROXY TCP6 fd00::7 fd00::1 4711 8081\r\n");
        assert_eq!(found, Ok(Some("[fd00::7]:4711".parse().unwrap())));
        assert_eq!(told("PROXY UNKNOWN\r\n"), Ok(None));
        for bad in [
            "PROXY\r\n",
            "PROXY TCP4 10.1.2.3\r\n",
            "PROXY TCP4 10.1.2.3 10.0.0.1 70000 1\r\n",
            "PROXY TCP6 10.1.2.3 10.0.0.1 1 1\r\n",
            "PROXY TCP4 10.1.2.3 10.0.0.1 1 1\n",
        ] {
            assert!(told(bad).is_err(), "{bad}");
        }
        // Two of the longest addresses fit.
        assert!("PROXY TCP6 ".len() + 2 * 40 + 2 * 6 < LINE_MAX);
    }

    #[test]
    fn binary_header_names_the_client_or_nobody() {
        let four = [10, 1, 2, 3, 10, 0, 0, 1, 0x12, 0x67, 0x1f, 0x91];
        let found = of_binary(0x21, 0x11, &four);
        assert_eq!(found, Ok(Some("10.1.2.3:4711".parse().unwrap())));
        let mut six = [0_u8; 36];
        (six[0], six[15], six[32], six[33]) = (0xfd, 7, 0x12, 0x67);
        let found = of_binary(0x21, 0x21, &six);
        assert_eq!(found, Ok(Some("[fd00::7]:4711".parse().unwrap())));
        assert_eq!(of_binary(0x20, 0, &[]), Ok(None));
        assert_eq!(of_binary(0x21, 0x31, &[0; 216]), Ok(None));
        assert!(of_binary(0x21, 0x11, &four[..11]).is_err());
        assert!(of_binary(0x21, 0x21, &six[..35]).is_err());
        assert!(of_binary(0x11, 0x11, &four).is_err());
        assert!(of_binary(0x22, 0x11, &four).is_err());
    }

    #[test]
    fn network_has_the_addresses_of_its_length() {
        let has = |network: &str, length, address: &str| {
            contains(network.parse().unwrap(), length, address.parse().unwrap())
        };
        assert!(has("10.0.0.0", 8, "10.255.0.1"));
        assert!(!has("10.0.0.0", 8, "11.0.0.1"));
        assert!(has("10.0.0.1", 32, "10.0.0.1"));
        assert!(!has("10.0.0.1", 32, "10.0.0.2"));
        assert!(has("0.0.0.0", 0, "1.2.3.4"));
        assert!(!has("0.0.0.0", 0, "::1"));
        assert!(has("fd00::", 16, "fd00:1::2"));
        assert!(!has("fd00::", 16, "fd01::2"));
    }
}
