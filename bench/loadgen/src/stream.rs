//! A connection to the broker, plain or over TLS.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{ring, CryptoProvider};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, StreamOwned};

use crate::options::Options;

pub enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    /// Connects as the options say.
    pub fn connect(options: &Options) -> io::Result<Self> {
        let socket = TcpStream::connect(&options.address)?;
        socket.set_nodelay(true)?;
        if !options.flag("tls") {
            return Ok(Self::Plain(socket));
        }
        let name = ServerName::from(socket.peer_addr()?.ip());
        let client = ClientConnection::new(Arc::new(config()?), name).map_err(io::Error::other)?;
        Ok(Self::Tls(Box::new(StreamOwned::new(client, socket))))
    }

    /// Lets reading give up after a time.
    pub fn set_read_timeout(&self, after: Duration) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.set_read_timeout(Some(after)),
            Self::Tls(stream) => stream.sock.set_read_timeout(Some(after)),
        }
    }

    /// The same connection for a second thread; there is none over TLS.
    pub fn into_plain(self) -> io::Result<TcpStream> {
        match self {
            Self::Plain(socket) => Ok(socket),
            Self::Tls(_) => Err(io::Error::new(io::ErrorKind::Unsupported, "no fixed rate over TLS")),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

fn config() -> io::Result<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(AnyCertificate(provider.clone()));
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(io::Error::other)?;
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

/// Takes every certificate: the broker under measurement made its own.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(&self, _: &[u8], _: &CertificateDer<'_>, _: &DigitallySignedStruct) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(&self, _: &[u8], _: &CertificateDer<'_>, _: &DigitallySignedStruct) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
