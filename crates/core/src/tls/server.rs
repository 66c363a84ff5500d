//! TLS of the port: our certificate, and whose certificates clients have to show.

use std::sync::Arc;

use pkcs8::{EncryptedPrivateKeyInfoRef, SecretDocument};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::version::{TLS12, TLS13};
use rustls::{Error, ServerConfig};

use super::clients::ClientCertificates;

const ENCRYPTED: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----";

/// What a port's TLS is made of; files are PEM.
#[derive(Clone, Copy)]
pub struct TlsFiles<'a> {
    /// The certificate to show, with what leads to its authority.
    pub cert: &'a [u8],
    /// Its private key; it may stand in the certificate's file instead.
    pub key: Option<&'a [u8]>,
    /// Opens the key.
    pub password: &'a str,
    /// Who has signed clients' certificates; without it none is asked for.
    pub trust: Option<&'a [u8]>,
    /// Whether clients have to show one.
    pub demands: bool,
    /// Whether version 1.2 is spoken, and 1.3.
    pub versions: (bool, bool),
    /// The one protocol that is spoken behind it, when clients are to name it.
    pub protocol: Option<&'static [u8]>,
}

/// How a port speaks TLS. A connection keeps what it began with.
#[derive(Clone, Debug)]
pub struct ServerTls(pub(crate) Arc<ServerConfig>);

impl ServerTls {
    /// Reads the files. The error says what is wrong with them.
    pub fn new(files: TlsFiles<'_>) -> Result<Self, String> {
        let provider = Arc::new(ring::default_provider());
        let versions: &[_] = match files.versions {
            (true, true) => &[&TLS13, &TLS12],
            (true, false) => &[&TLS12],
            _ => &[&TLS13],
        };
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(|error| error.to_string())?;
        let builder = if let Some(trust) = files.trust {
            let judge = certificates(trust)
                .and_then(|trusted| ClientCertificates::new(trusted, files.demands, &provider));
            builder.with_client_cert_verifier(judge.map_err(|why| format!("trusted: {why}"))?)
        } else {
            builder.with_no_client_auth()
        };
        let chain = certificates(files.cert).map_err(|why| format!("certificate: {why}"))?;
        let key = private_key(files.key.unwrap_or(files.cert), files.password)?;
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|error| match error {
                Error::InconsistentKeys(_) => "the key is not the certificate's".to_owned(),
                other => other.to_string(),
            })?;
        config.alpn_protocols = files.protocol.iter().map(|name| name.to_vec()).collect();
        if files.trust.is_some() {
            // Certificates are judged at each connection: who may resume a session gets the next ticket
            // with it, and would stay when the certificate has expired.
            config.send_tls13_tickets = 0;
            config.session_storage = Arc::new(NoServerSessionStorage {});
        } else {
            // Who comes back shows a ticket: nothing is kept for them here.
            config.ticketer = ring::Ticketer::new().map_err(|error| error.to_string())?;
        }
        Ok(Self(Arc::new(config)))
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| error.to_string())?;
    if found.is_empty() {
        return Err("no certificate in PEM is found".to_owned());
    }
    Ok(found)
}

fn private_key(pem: &[u8], password: &str) -> Result<PrivateKeyDer<'static>, String> {
    let text = std::str::from_utf8(pem).map_err(|_| "key: it is no text".to_owned())?;
    let Some((_, rest)) = text.split_once(ENCRYPTED) else {
        return PrivateKeyDer::from_pem_slice(pem).map_err(|error| {
            format!("key: no private key in PEM (with a password: PKCS#8) is found ({error})")
        });
    };
    let unfit = |error: String| format!("key: the password does not open it ({error})");
    let one = format!("{ENCRYPTED}{rest}");
    let end = one.find("-----END ").and_then(|at| {
        let tail = one.get(at + 9..)?;
        Some(at + 9 + tail.find("-----")? + 5)
    });
    let one = end.and_then(|end| one.get(..end)).unwrap_or(&one);
    let (_, sealed) = SecretDocument::from_pem(one).map_err(|error| unfit(error.to_string()))?;
    let opened = EncryptedPrivateKeyInfoRef::try_from(sealed.as_bytes())
        .and_then(|sealed| sealed.decrypt(password))
        .map_err(|error| unfit(error.to_string()))?;
    Ok(PrivatePkcs8KeyDer::from(opened.as_bytes().to_vec()).into())
}
