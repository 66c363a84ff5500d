//! TLS of a pair: certificates from PEM, and who is trusted.
//!
//! Brokers are reached at addresses that name servers hand out, and the authority is private: the
//! peer's certificate has to lead to one of the trusted ones, whatever name it has. A trusted
//! certificate may be shown itself, also when it is an authority's: small set-ups share one
//! self-signed certificate.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::Resumption;
use rustls::crypto::{
    ring, verify_tls12_signature, verify_tls13_signature, CryptoProvider, WebPkiSupportedAlgorithms,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, TrustAnchor, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::NoServerSessionStorage;
use rustls::{
    ClientConfig, ClientConnection, Connection, DigitallySignedStruct, DistinguishedName, Error,
    ServerConfig, ServerConnection, SignatureScheme,
};
use std::sync::Arc;
use webpki::{EndEntityCert, ExtendedKeyUsageValidator, KeyUsage};

use crate::tls::{first_of, refusal};

/// PEM files of one side.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pem<'a> {
    /// The certificate to show, with what leads to its authority.
    pub cert: Option<&'a [u8]>,
    /// Its private key; it may stand in the certificate's file instead.
    pub key: Option<&'a [u8]>,
    /// Who must have signed the other side's certificate; a master without it asks for none.
    pub trust: Option<&'a [u8]>,
}

/// How one side of a pair speaks TLS, 1.2 or 1.3. A connection keeps what it began with.
#[derive(Clone, Debug)]
pub enum PairTls {
    /// A master's.
    Master(Arc<ServerConfig>),
    /// A slave's.
    Slave(Arc<ClientConfig>),
}

impl PairTls {
    /// Reads a master's files. The error says what is wrong with them.
    pub fn master(pem: Pem<'_>) -> Result<Self, String> {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = match pem.trust {
            Some(trust) => builder.with_client_cert_verifier(Trusted::new(trust, &provider)?),
            None => builder.with_no_client_auth(),
        };
        let (chain, key) = shown(pem)?.ok_or("a master needs a certificate")?;
        let mut config = builder.with_single_cert(chain, key).map_err(unfit)?;
        // A pair connects once in a while: a ticket would only be one thing more to keep secret.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Self::Master(Arc::new(config)))
    }

    /// Reads a slave's files. The error says what is wrong with them.
    pub fn slave(pem: Pem<'_>) -> Result<Self, String> {
        let provider = Arc::new(ring::default_provider());
        let trust = pem.trust.ok_or("a slave has to know whom to trust")?;
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Trusted::new(trust, &provider)?);
        let mut config = match shown(pem)? {
            Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(unfit)?,
            None => builder.with_no_client_auth(),
        };
        config.resumption = Resumption::disabled();
        config.enable_sni = false;
        Ok(Self::Slave(Arc::new(config)))
    }

    /// Begins a connection.
    pub(super) fn open(&self) -> Result<Connection, Error> {
        Ok(match self {
            Self::Master(config) => ServerConnection::new(Arc::clone(config))?.into(),
            Self::Slave(config) => {
                // The name is neither sent nor looked at.
                let name = ServerName::IpAddress(std::net::Ipv4Addr::UNSPECIFIED.into());
                ClientConnection::new(Arc::clone(config), name)?.into()
            }
        })
    }
}

type Shown = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn shown(pem: Pem<'_>) -> Result<Option<Shown>, String> {
    let Some(cert) = pem.cert else {
        return Ok(None);
    };
    let chain = certificates(cert).map_err(|why| format!("certificate: {why}"))?;
    let key = PrivateKeyDer::from_pem_slice(pem.key.unwrap_or(cert)).map_err(|error| {
        format!("key: no private key in PEM without a password is found ({error})")
    })?;
    Ok(Some((chain, key)))
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| error.to_string())?;
    if found.is_empty() {
        return Err("no certificate in PEM is found".to_owned());
    }
    Ok(found)
}

// Handed over as an argument of `map_err`.
#[allow(clippy::needless_pass_by_value)]
fn unfit(error: Error) -> String {
    match error {
        Error::InconsistentKeys(_) => "the key is not the certificate's".to_owned(),
        other => other.to_string(),
    }
}

/// Accepts who shows a trusted certificate, or one that a trusted one has signed.
#[derive(Debug)]
struct Trusted {
    certificates: Vec<CertificateDer<'static>>,
    anchors: Vec<TrustAnchor<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Trusted {
    fn new(pem: &[u8], provider: &CryptoProvider) -> Result<Arc<Self>, String> {
        let certificates = certificates(pem).map_err(|why| format!("trusted: {why}"))?;
        let anchors: Result<Vec<_>, _> = certificates
            .iter()
            .map(|one| webpki::anchor_from_trusted_cert(one).map(|anchor| anchor.to_owned()))
            .collect();
        let anchors = anchors.map_err(|error| format!("trusted: {error}"))?;
        Ok(Arc::new(Self {
            certificates,
            anchors,
            algorithms: provider.signature_verification_algorithms,
        }))
    }

    fn check(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
        usage: impl ExtendedKeyUsageValidator,
    ) -> Result<(), Error> {
        let between: Vec<_> = first_of(between).cloned().collect();
        let checked = EndEntityCert::try_from(shown).and_then(|cert| {
            cert.verify_for_usage(
                self.algorithms.all,
                &self.anchors,
                &between,
                now,
                usage,
                None,
                None,
            )
            .map(drop)
        });
        match checked {
            Ok(()) => Ok(()),
            // Its dates were looked at before.
            Err(webpki::Error::CaUsedAsEndEntity) if self.lists(shown) => Ok(()),
            Err(error) => Err(refusal(error)),
        }
    }

    fn lists(&self, shown: &CertificateDer<'_>) -> bool {
        self.certificates
            .iter()
            .any(|one| one.as_ref() == shown.as_ref())
    }
}

impl ServerCertVerifier for Trusted {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity, intermediates, now, KeyUsage::server_auth())
            .map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for Trusted {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity, intermediates, now, KeyUsage::client_auth())
            .map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
