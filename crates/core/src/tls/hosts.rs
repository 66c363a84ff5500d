//! Which names of hosts an authority allows in the subject of a client's certificate (RFC 5280, 4.2.1.10).
//!
//! webpki looks at the extension of other names alone; OpenSSL also at common names that look like a host's.

use x509_cert::der::oid::db::rfc4519::CN;
use x509_cert::ext::pkix::constraints::name::GeneralSubtree;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::NameConstraints;

use super::x509::Certificate;

/// The names of hosts that an authority's certificate says are allowed below it.
#[derive(Debug, Default)]
pub(super) struct HostNames {
    /// All are when none is listed.
    permitted: Vec<String>,
    excluded: Vec<String>,
}

impl HostNames {
    /// `None` stands for constraints that cannot be read, which allow nothing.
    pub(super) fn of(constraints: Option<NameConstraints>) -> Self {
        let Some(constraints) = constraints else {
            return Self {
                permitted: vec!["\0".to_owned()],
                ..Self::default()
            };
        };
        let hosts = |trees: Option<Vec<GeneralSubtree>>| {
            let trees = trees.into_iter().flatten();
            let host = |tree: GeneralSubtree| match tree.base {
                GeneralName::DnsName(name) => Some(name.as_str().to_ascii_lowercase()),
                _ => None,
            };
            trees.filter_map(host).collect()
        };
        Self {
            permitted: hosts(constraints.permitted_subtrees),
            excluded: hosts(constraints.excluded_subtrees),
        }
    }

    /// Whether the common names of a client's certificate are allowed: as OpenSSL sees it, they are names of
    /// hosts where they look so and no other name is one. Other names are webpki's to look at.
    pub(super) fn allow(&self, client: &Certificate<'_>) -> bool {
        if client.names_hosts || (self.permitted.is_empty() && self.excluded.is_empty()) {
            return true;
        }
        let names = client.subject.iter().filter(|it| it.oid == CN);
        let texts = names.map(|it| String::from_utf8_lossy(it.value.value()).to_ascii_lowercase());
        texts.filter(|text| is_host(text)).all(|host| {
            let is_below = |tree: &String| is_below(&host, tree);
            (self.permitted.is_empty() || self.permitted.iter().any(is_below))
                && !self.excluded.iter().any(is_below)
        })
    }
}

/// Whether a text is a name of a host: labels of letters, digits, `-` and `_` between dots, two at least.
fn is_host(text: &str) -> bool {
    let is_label = |label: &str| {
        let fits = |it: char| it.is_ascii_alphanumeric() || it == '-' || it == '_';
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(fits)
    };
    text.contains('.') && text.split('.').all(is_label)
}

fn is_below(host: &str, tree: &str) -> bool {
    let Some(above) = host.strip_suffix(tree) else {
        return false;
    };
    above.is_empty() || tree.is_empty() || tree.starts_with('.') || above.ends_with('.')
}
