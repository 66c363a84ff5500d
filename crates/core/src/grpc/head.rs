//! How a call began, kept as HTTP/2 decoded it: a plain call needs one or two of its fields.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{HeaderMap, Uri};

use super::authority;

/// Who speaks to whom on a connection.
pub(super) struct Origin {
    peer: SocketAddr,
    /// The same as a text.
    peer_text: String,
    /// The address that the client has connected to.
    local_text: String,
}

impl Origin {
    /// `local` is empty when it is not known.
    pub(super) fn new(peer: SocketAddr, local: String) -> Self {
        let peer = plain(peer);
        Self {
            peer,
            peer_text: peer.to_string(),
            local_text: local,
        }
    }
}

/// An address as Python writes it.
pub(super) fn shown(address: SocketAddr) -> String {
    plain(address).to_string()
}

/// An address of IPv4 that came through a socket of IPv6 as one of IPv4.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// How a call began.
pub struct Head {
    uri: Uri,
    fields: HeaderMap,
    origin: Arc<Origin>,
}

impl std::fmt::Debug for Head {
    /// Says what is called and by whom, and nothing of the fields, of which one is a signature.
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Head({} by {})", self.path(), self.peer())
    }
}

impl Head {
    pub(super) fn new(uri: Uri, fields: HeaderMap, origin: Arc<Origin>) -> Self {
        Self {
            uri,
            fields,
            origin,
        }
    }

    /// `/package.Service/Method`.
    pub fn path(&self) -> &str {
        self.uri.path()
    }

    /// `ip:port` of the client.
    pub fn peer(&self) -> &str {
        &self.origin.peer_text
    }

    /// The same.
    pub(super) fn peer_address(&self) -> SocketAddr {
        self.origin.peer
    }

    /// `ip:port` that the client has connected to.
    pub fn local(&self) -> &str {
        &self.origin.local_text
    }

    /// The host and port that the client believes to speak to.
    pub fn authority(&self) -> String {
        let found = self.uri.authority();
        found.map_or_else(String::new, authority::first)
    }

    /// Metadata that is text; names are in small letters.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &str)> {
        let fields = self.fields.iter();
        fields.filter_map(|(name, value)| Some((name.as_str(), text(value.as_bytes())?)))
    }

    /// The last text of a name, which is the one that counts.
    pub(super) fn last(&self, name: &str) -> Option<&str> {
        let mut found = self.fields.get_all(name).iter().rev();
        found.find_map(|value| text(value.as_bytes()))
    }
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::{HeaderMap, HeaderValue, Uri};

    use super::{Head, Origin};

    fn head(fields: &[(&'static str, &[u8])]) -> Head {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(*name, HeaderValue::from_bytes(value).unwrap());
        }
        let origin = Origin::new(
            "[::ffff:10.0.0.7]:81".parse().unwrap(),
            "10.0.0.1:82".into(),
        );
        let uri = Uri::from_static("http://host:8081/package.Service/Method");
        Head::new(uri, map, Arc::new(origin))
    }

    #[test]
    fn last_text_of_a_name_is_the_one_that_a_table_of_the_metadata_has() {
        let found = head(&[
            ("id", b"first"),
            ("id", b"second"),
            ("id", b"\xff"),
            ("odd", b"\xff"),
            ("other", b"x"),
        ]);
        assert_eq!(found.last("id"), Some("second"));
        assert_eq!([found.last("odd"), found.last("none")], [None, None]);
        let mut metadata: Vec<_> = found.metadata().collect();
        metadata.sort_by_key(|(name, _)| *name);
        assert_eq!(
            metadata,
            [("id", "first"), ("id", "second"), ("other", "x")]
        );
    }

    #[test]
    fn head_says_the_addresses_and_names_of_its_call_and_shows_no_field() {
        let found = head(&[("authorization", b"secret")]);
        assert_eq!(found.path(), "/package.Service/Method");
        assert_eq!(found.authority(), "host:8081");
        assert_eq!(
            [found.peer(), found.local()],
            ["10.0.0.7:81", "10.0.0.1:82"]
        );
        assert_eq!(found.peer_address().to_string(), found.peer());
        assert!(!format!("{found:?}").contains("secret"));
    }
}
