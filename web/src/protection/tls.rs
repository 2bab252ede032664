//! TLS of a listener, from certificates and keys in PEM.

use std::{fmt, sync::Arc};

use thiserror::Error;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, RootCertStore, ServerConfig,
        crypto::ring,
        pki_types::{
            CertificateDer, PrivateKeyDer,
            pem::{self, PemObject},
        },
        server::{VerifierBuilderError, WebPkiClientVerifier},
        version::{TLS12, TLS13},
    },
};

/// Protocol over TLS. Without it, a client might choose HTTP/2.
const ALPN: &[u8] = b"http/1.1";

/// TLS of a listener. Cheap to clone.
#[derive(Clone)]
pub struct Tls(Arc<ServerConfig>);

/// Contents of the files of TLS, in PEM.
#[derive(Clone, Copy)]
pub struct TlsFiles<'a> {
    /// Certificate of the server, and those between it and its authority.
    pub certificates: &'a [u8],
    /// Private key of that certificate.
    pub key: &'a [u8],
    /// Authorities of client certificates; `None` if clients need no certificate.
    pub client_authorities: Option<&'a [u8]>,
}

/// Version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// Reason why files are no TLS.
#[derive(Debug, Error)]
pub enum TlsError {
    /// The certificates cannot be read.
    #[error("no certificate in PEM: {0}")]
    Certificates(pem::Error),
    /// The key cannot be read.
    #[error("no private key in PEM: {0}")]
    Key(pem::Error),
    /// The key does not belong to the certificate, or is of an unknown kind.
    #[error("certificate and key are not accepted: {0}")]
    Identity(rustls::Error),
    /// The authorities cannot be read.
    #[error("no certificate of a client authority in PEM: {0}")]
    ClientAuthorities(pem::Error),
    /// An authority is invalid.
    #[error("a certificate of a client authority is not accepted: {0}")]
    ClientAuthority(rustls::Error),
    /// Client certificates cannot be verified.
    #[error("client certificates cannot be verified: {0}")]
    ClientVerifier(VerifierBuilderError),
}

impl Tls {
    /// TLS with these files and versions.
    ///
    /// # Errors
    /// See [`TlsError`].
    pub fn new(files: TlsFiles<'_>, versions: &[TlsVersion]) -> Result<Self, TlsError> {
        let TlsFiles { certificates, key, client_authorities } = files;
        let certificates = self::certificates(certificates).map_err(TlsError::Certificates)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(TlsError::Key)?;
        let provider = Arc::new(ring::default_provider());
        let versions: Vec<_> = versions.iter().map(|version| version.protocol()).collect();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_protocol_versions(&versions).map_err(TlsError::Identity)?;
        let builder = match client_authorities {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                for authority in self::certificates(pem).map_err(TlsError::ClientAuthorities)? {
                    roots.add(authority).map_err(TlsError::ClientAuthority)?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(TlsError::ClientVerifier)?)
            }
        };
        let mut config = builder.with_single_cert(certificates, key).map_err(TlsError::Identity)?;
        config.alpn_protocols = vec![ALPN.to_owned()];
        Ok(Self(Arc::new(config)))
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        Arc::clone(&self.0).into()
    }
}

/// All certificates of a text, of which there is at least one.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, pem::Error> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>()?;
    if certificates.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(certificates) }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl fmt::Debug for TlsFiles<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsFiles")
    }
}

impl TlsVersion {
    const fn protocol(self) -> &'static rustls::SupportedProtocolVersion {
        match self {
            Self::Tls12 => &TLS12,
            Self::Tls13 => &TLS13,
        }
    }
}
