//! TLS client configuration: trusted certificates, and the devices' own certificate.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::LoadError;
use crate::program;
use crate::scenario::{Devices, Pem, ProtocolOptions, Tls};

/// Returns the certificates that the system trusts. Called only if a scenario does not set `ca`.
pub type SystemTrust<'t> = &'t dyn Fn() -> Vec<CertificateDer<'static>>;

/// Creates the TLS settings of an endpoint.
pub fn tls(kind: &Devices, tls: &Tls, system: SystemTrust<'_>) -> Result<program::Tls, LoadError> {
    let unfit =
        |what: &str, why: String| LoadError::Unfit { kind: kind.name.clone(), what: what.to_owned(), why };
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| unfit("tls", error.to_string()))?;
    let trusted = if tls.verify {
        let mut roots = RootCertStore::empty();
        let mut named = Vec::new();
        match &tls.ca {
            Some(pem) => {
                named = certificates(pem).map_err(|why| unfit("tls.ca", why))?;
                for certificate in &named {
                    roots
                        .add(certificate.clone())
                        .map_err(|error| unfit("tls.ca", format!("{}: {error}", pem.file)))?;
                }
            }
            None => {
                // Some of the system's certificates may be invalid; the others suffice.
                roots.add_parsable_certificates(system());
                if roots.is_empty() {
                    let why = "this system has no trusted certificates: install ca-certificates, or set ca = \"FILE.pem\"";
                    return Err(unfit("tls", why.to_owned()));
                }
            }
        }
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(|error| unfit("tls", error.to_string()))?;
        Some(TrustedCertificates { verifier, named })
    } else {
        None
    };
    let verifier = CertificateVerifier { trusted, provider };
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match &tls.identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates(certificate).map_err(|why| unfit("tls.certificate", why))?;
            let key = PrivateKeyDer::from_pem_slice(&key.bytes).map_err(|error| {
                unfit("tls.key", format!("{} contains no private key in PEM format: {error}", key.file))
            })?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| unfit("tls.certificate", error.to_string()))?
        }
    };
    if matches!(kind.protocol, ProtocolOptions::Http { .. } | ProtocolOptions::WebSocket { .. }) {
        // Without ALPN most HTTP/2 servers fall back to HTTP/1.1, but not all.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
    }
    let name = ServerName::try_from(tls.server_name.clone())
        .map_err(|error| unfit("tls", format!("{}: {error}", tls.server_name)))?;
    Ok(program::Tls { config: Arc::new(config), name })
}

fn certificates(pem: &Pem) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem.bytes).collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => {
            Err(format!("{} contains no certificate in PEM format (-----BEGIN CERTIFICATE-----)", pem.file))
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(format!("{} is not valid PEM: {error}", pem.file)),
    }
}

/// Accepted certificates: those with a trusted issuer, and those in the scenario's `ca` file. A self-signed certificate is usually a CA
/// certificate (`openssl req -x509`). Path validation rejects such a certificate for a server (RFC 5280, 4.2.1.9), so it is accepted if it
/// is in the file itself.
#[derive(Debug)]
struct TrustedCertificates {
    verifier: Arc<WebPkiServerVerifier>,
    named: Vec<CertificateDer<'static>>,
}

/// Checks a server's certificate. Whether the server has the private key is always checked.
#[derive(Debug)]
struct CertificateVerifier {
    /// `None`: any certificate is accepted (`verify = false`).
    trusted: Option<TrustedCertificates>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for CertificateVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(TrustedCertificates { verifier, named }) = &self.trusted else {
            return Ok(ServerCertVerified::assertion());
        };
        if named.contains(end_entity) {
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            return Ok(ServerCertVerified::assertion());
        }
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
