//! An address as the wire and the disk hold it: 4 or 16 address bytes, then the port as i32.

use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes of a host with an IPv4 address.
pub const V4_SIZE: usize = 8;
/// Bytes of a host with an IPv6 address.
pub const V6_SIZE: usize = 20;

/// Writes a socket address in the stored form.
pub fn encode(address: SocketAddr) -> Vec<u8> {
    let mut bytes = match address.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    bytes.extend_from_slice(&i32::from(address.port()).to_be_bytes());
    bytes
}

/// Returns the address and port of a stored host; `None` when it is not 8 or 20 bytes long.
pub fn parts(host: &[u8]) -> Option<(IpAddr, i32)> {
    let (ip, port) = host.split_last_chunk::<4>()?;
    let ip = match ip.len() {
        4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(ip).ok()?)),
        16 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(ip).ok()?)),
        _ => return None,
    };
    Some((ip, i32::from_be_bytes(*port)))
}

/// Appends `ip:port` (`[ip]:port` for IPv6) to `out`; nothing when the host is malformed.
pub fn write_text(host: &[u8], out: &mut String) -> fmt::Result {
    match parts(host) {
        Some((IpAddr::V4(ip), port)) => write!(out, "{ip}:{port}"),
        Some((IpAddr::V6(ip), port)) => write!(out, "[{ip}]:{port}"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{encode, parts, write_text};

    #[test]
    fn both_families_round_trip() {
        for (text, size) in [("10.0.0.9:50000", 8), ("[2001:db8::1]:10911", 20)] {
            let host = encode(text.parse().unwrap());
            assert_eq!(host.len(), size);
            let mut shown = String::new();
            write_text(&host, &mut shown).unwrap();
            assert_eq!(shown, text);
        }
        assert_eq!(parts(&[0; 9]), None);
        assert_eq!(parts(&[]), None);
    }
}
