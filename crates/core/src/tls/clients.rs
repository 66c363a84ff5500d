//! Whose certificates a port takes of clients: those that OpenSSL takes with the same file of trust.
//!
//! webpki builds and checks the chains. What is added is what OpenSSL looks at and it does not: dates and
//! length of path of the last authority, what keys may be used for, and host names in the subject; and what OpenSSL takes and it
//! does not: a certificate of the first version, or of an authority (as `openssl req -x509` makes them), shown
//! by a client. Such a one must itself be trusted or be signed by one that is: no chains are built here.
//!
//! Only self-issued certificates end a chain; others in the file of trust may be part of one.

use std::cmp::Ordering;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    verify_tls12_signature, verify_tls13_signature, verify_tls13_signature_with_raw_key,
    CryptoProvider, WebPkiSupportedAlgorithms,
};
use rustls::pki_types::{CertificateDer, Der, TrustAnchor, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};
use webpki::{EndEntityCert, KeyUsage, RawPublicKeyEntity, VerifiedPath};

use super::x509::Certificate;

/// How many of the certificates that a stranger shows beside its own are looked at, and how many of these
/// may have one name: webpki tries every order of those with one name, up to 200,000 of them.
const BETWEEN_MAX: usize = 16;
const SAME_NAME_MAX: usize = 3;

/// Judges the certificates of clients.
#[derive(Debug)]
pub(super) struct ClientCertificates {
    roots: Vec<Root>,
    /// Trusted ones that others have issued.
    between: Vec<CertificateDer<'static>>,
    demands: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

#[derive(Debug)]
struct Root {
    der: CertificateDer<'static>,
    anchor: TrustAnchor<'static>,
}

impl Root {
    fn read(&self) -> Option<Certificate<'_>> {
        Certificate::read(&self.der)
    }

    /// The certificate, where it may sign those of clients now.
    fn signs(&self, now_s: i64) -> Option<Certificate<'_>> {
        let fits = |it: &Certificate<'_>| {
            it.may_sign() && !it.has_unknown && it.compare_to(now_s) == Ordering::Equal
        };
        self.read().filter(fits)
    }
}

impl ClientCertificates {
    /// Trusts these; with `demands` a client has to show one. The error says what is wrong with them.
    pub(super) fn new(
        trusted: Vec<CertificateDer<'static>>,
        demands: bool,
        provider: &CryptoProvider,
    ) -> Result<Arc<Self>, String> {
        let mut it = Self {
            roots: Vec::new(),
            between: Vec::new(),
            demands,
            algorithms: provider.signature_verification_algorithms,
        };
        for der in trusted {
            let read = Certificate::read(&der).ok_or("a certificate cannot be read")?;
            if read.is_self_issued() {
                let anchor = webpki::anchor_from_trusted_cert(&der);
                let anchor = anchor.map_err(|error| error.to_string())?.to_owned();
                it.roots.push(Root { der, anchor });
            } else {
                it.between.push(der);
            }
        }
        Ok(Arc::new(it))
    }

    fn check(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let now_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let read = Certificate::read(shown).ok_or(CertificateError::BadEncoding)?;
        if !read.may_be_shown() {
            return Err(CertificateError::InvalidPurpose.into());
        }
        if self.roots.iter().any(|root| root.der == *shown) {
            return in_force(&read, now_s);
        }
        match self.check_chain(shown, between, now) {
            Err(webpki::Error::CaUsedAsEndEntity | webpki::Error::UnsupportedCertVersion) => {
                in_force(&read, now_s)?;
                self.check_alone(&read, now_s)
            }
            checked => checked.map_err(refusal),
        }
    }

    fn check_chain<'a>(
        &'a self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), webpki::Error> {
        let now_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let signs = |root: &'a Root| Some((&root.anchor, root.signs(now_s)?));
        let signers: Vec<_> = self.roots.iter().filter_map(signs).collect();
        let anchors: Vec<_> = signers
            .iter()
            .map(|(anchor, _)| (*anchor).clone())
            .collect();
        let between: Vec<_> = first_of(between).chain(&self.between).cloned().collect();
        let cert = EndEntityCert::try_from(shown)?;
        let read = Certificate::read(shown).ok_or(webpki::Error::BadDer)?;
        cert.verify_for_usage(
            self.algorithms.all,
            &anchors,
            &between,
            now,
            KeyUsage::client_auth(),
            None,
            Some(&|path| check_path(path, &read, &signers)),
        )
        .map(drop)
    }

    /// Checks one that webpki does not take: a trusted one must have signed it.
    fn check_alone(&self, shown: &Certificate<'_>, now_s: i64) -> Result<(), Error> {
        let mut signers = self.roots.iter().filter_map(|root| root.signs(now_s));
        let is_signed = signers.any(|root| {
            root.subject == shown.issuer
                // Names would have to be compared, which webpki does.
                && !root.constrains_names
                && shown.is_signed_by(&root, self.algorithms.all)
        });
        if is_signed {
            Ok(())
        } else {
            Err(CertificateError::UnknownIssuer.into())
        }
    }
}

/// Looks at what webpki leaves out of a chain from a client's certificate to one of the signers.
fn check_path(
    path: &VerifiedPath<'_>,
    shown: &Certificate<'_>,
    signers: &[(&TrustAnchor<'_>, Certificate<'_>)],
) -> Result<(), webpki::Error> {
    let mut length = 0;
    for cert in path.intermediate_certificates() {
        let der = cert.der();
        let read = Certificate::read(&der).ok_or(webpki::Error::BadDer)?;
        if !read.may_sign() {
            return Err(webpki::Error::EndEntityUsedAsCa);
        }
        if !read.host_names.allow(shown) {
            return Err(webpki::Error::NameConstraintViolation);
        }
        length += usize::from(!read.is_self_issued());
    }
    let ends_with = |anchor: &TrustAnchor<'_>| anchor == path.anchor();
    let ends = signers.iter().filter(|(anchor, _)| ends_with(anchor));
    let mut allowed = ends
        .filter(|(_, root)| root.path_max.is_none_or(|most| length <= most))
        .peekable();
    if allowed.peek().is_none() {
        Err(webpki::Error::PathLenConstraintViolated)
    } else if allowed.any(|(_, root)| root.host_names.allow(shown)) {
        Ok(())
    } else {
        Err(webpki::Error::NameConstraintViolation)
    }
}

/// Checks what webpki would have.
fn in_force(cert: &Certificate<'_>, now_s: i64) -> Result<(), Error> {
    if cert.has_unknown {
        return Err(CertificateError::UnhandledCriticalExtension.into());
    }
    match cert.compare_to(now_s) {
        Ordering::Less => Err(CertificateError::NotValidYet.into()),
        Ordering::Greater => Err(CertificateError::Expired.into()),
        Ordering::Equal => Ok(()),
    }
}

/// Those of the certificates between a peer's and a trusted one with which a chain is built.
pub(crate) fn first_of<'a, 'b>(
    between: &'a [CertificateDer<'b>],
) -> impl Iterator<Item = &'a CertificateDer<'b>> {
    let mut names: Vec<Der<'_>> = Vec::new();
    between.iter().take(BETWEEN_MAX).filter(move |one| {
        let Ok(read) = webpki::anchor_from_trusted_cert(one) else {
            return false; // it is part of no chain
        };
        let same = names.iter().filter(|name| **name == read.subject).count();
        names.push(read.subject);
        same < SAME_NAME_MAX
    })
}

/// The error of TLS for one of a certificate.
pub(crate) fn refusal(error: webpki::Error) -> Error {
    Error::InvalidCertificate(match error {
        webpki::Error::UnknownIssuer => CertificateError::UnknownIssuer,
        webpki::Error::CertExpired { .. } => CertificateError::Expired,
        webpki::Error::CertNotValidYet { .. } => CertificateError::NotValidYet,
        other => CertificateError::Other(OtherError(Arc::new(other))),
    })
}

impl ClientCertVerifier for ClientCertificates {
    fn client_auth_mandatory(&self) -> bool {
        self.demands
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // As OpenSSL: a client shows what it has, also when another name has signed that.
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity, intermediates, now)
            .map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let read = Certificate::read(cert).ok_or(CertificateError::BadEncoding)?;
        if read.version == 2 {
            return verify_tls12_signature(message, cert, dss, &self.algorithms);
        }
        let key = read.key();
        let key = RawPublicKeyEntity::try_from(&key).map_err(refusal)?;
        let mut schemes = self.algorithms.mapping.iter();
        let fit = schemes.find(|(scheme, _)| *scheme == dss.scheme);
        let mut fit = fit.map_or(&[][..], |(_, algorithms)| algorithms).iter();
        if fit.any(|one| key.verify_signature(*one, message, dss.signature()).is_ok()) {
            Ok(HandshakeSignatureValid::assertion())
        } else {
            Err(CertificateError::BadSignature.into())
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let read = Certificate::read(cert).ok_or(CertificateError::BadEncoding)?;
        if read.version == 2 {
            verify_tls13_signature(message, cert, dss, &self.algorithms)
        } else {
            verify_tls13_signature_with_raw_key(message, &read.key(), dss, &self.algorithms)
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
