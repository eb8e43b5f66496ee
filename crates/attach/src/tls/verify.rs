//! Verifies the certificate of a node.
//!
//! The certificate is trusted if the node's own files contain the same one. Otherwise, it must be signed by a trusted
//! certificate, or be one itself. It must also be in date and valid for the right host. webpki verifies the chain, and is
//! stricter than OTP. It rejects self-signed certificates, version 1 certificates, and host names that appear only in the
//! subject's common name. The certificates that people make for their own nodes are often of these kinds. They are trusted only
//! if the identical certificate was given, byte for byte.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{
    WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
    verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme};
use x509_cert::der::Encode;
use x509_cert::spki::SubjectPublicKeyInfoOwned;

use super::certificate::Certificate;

/// Trusted certificates.
#[derive(Debug)]
pub(super) struct Trust {
    /// Certificates of trusted issuers.
    anchors: RootCertStore,
    /// All certificates that were given, of issuers and nodes, for comparison with the one presented.
    given: Vec<CertificateDer<'static>>,
    /// Certificates from the node's own files. For these, the host and the validity period are not checked.
    own: Vec<CertificateDer<'static>>,
    /// Whether every certificate is trusted.
    any: bool,
}

impl Trust {
    /// Creates a store that trusts no certificate.
    pub fn none() -> Trust {
        Trust { anchors: RootCertStore::empty(), given: Vec::new(), own: Vec::new(), any: false }
    }

    /// Creates a store that trusts every certificate.
    pub fn any() -> Trust {
        Trust { any: true, ..Trust::none() }
    }

    /// Adds trusted certificates. Certificates that are signed by them are trusted, too.
    pub fn trust(&mut self, certificates: Vec<CertificateDer<'static>>) {
        for certificate in certificates {
            // webpki accepts any trust anchor as an issuer. But a user who gives a node's certificate trusts only that node, not
            // certificates that are signed with its key.
            if Certificate::read(&certificate).is_some_and(|read| read.can_issue) {
                // A certificate that webpki cannot parse can still be compared.
                let _ = self.anchors.add(certificate.clone());
            }
            self.given.push(certificate);
        }
    }

    /// Adds a certificate from the node's own files.
    pub fn expect(&mut self, certificate: CertificateDer<'static>) {
        self.own.push(certificate);
    }

    fn judge(
        &self,
        presented: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        now: UnixTime,
        algorithms: &WebPkiSupportedAlgorithms,
    ) -> Result<(), Refusal> {
        if self.any || self.own.contains(presented) {
            return Ok(());
        }
        let read = Certificate::read(presented)
            .ok_or_else(|| Refusal::unusable("subject unknown", "it cannot be parsed"))?;
        let parsed = ParsedCertificate::try_from(presented);
        if !self.given.contains(presented) {
            let parsed = parsed.as_ref().map_err(|error| Refusal::of(error, &read, intermediates, now))?;
            verify_server_cert_signed_by_trust_anchor(
                parsed,
                &self.anchors,
                intermediates,
                now,
                algorithms.all,
            )
            .map_err(|error| Refusal::of(&error, &read, intermediates, now))?;
        } else if let Some(when) = read.validity_error(now) {
            return Err(Refusal::Outdated { subject: read.subject, when });
        }
        let is_named = parsed.is_ok_and(|parsed| verify_server_name(&parsed, host).is_ok());
        if is_named || read.has_common_name(host) {
            Ok(())
        } else {
            Err(Refusal::ForOthers { wanted: host.to_str().into_owned(), names: read.all_names() })
        }
    }
}

/// Why a certificate is not trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is not signed by a trusted CA.
    Untrusted { subject: String, issuer: String },
    /// It is valid only for other hosts.
    ForOthers { wanted: String, names: Vec<String> },
    /// It has expired, or is not valid yet.
    Outdated { subject: String, when: String },
    /// It is malformed, or of an unsupported kind.
    Unusable { subject: String, what: String },
}

impl Refusal {
    fn unusable(subject: &str, what: impl fmt::Display) -> Refusal {
        Refusal::Unusable { subject: subject.to_owned(), what: what.to_string() }
    }

    fn of(
        error: &Error,
        certificate: &Certificate,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Refusal {
        let subject = certificate.subject.clone();
        match error {
            // A self-signed certificate: webpki rejects it because it is marked as an issuer.
            Error::InvalidCertificate(CertificateError::Other(_)) if certificate.issuer == subject => {
                Refusal::Untrusted { subject, issuer: "itself".to_owned() }
            }
            Error::InvalidCertificate(_) if certificate.is_version_1 => Refusal::unusable(
                &subject,
                "it is an X.509 version 1 certificate, which cannot state its permitted uses",
            ),
            Error::InvalidCertificate(CertificateError::BadSignature) => {
                let issuer =
                    format!("{} (the given certificate of that name has another key)", certificate.issuer);
                Refusal::Untrusted { subject, issuer }
            }
            Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
                // The issuer to trust is that of the last certificate in the presented chain.
                let last = intermediates.iter().rev().find_map(|last| Certificate::read(last));
                let issuer = last.map_or_else(|| certificate.issuer.clone(), |last| last.issuer);
                Refusal::Untrusted { subject, issuer }
            }
            Error::InvalidCertificate(
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYetContext { .. },
            ) => {
                let chain = intermediates.iter().filter_map(|issuer| Certificate::read(issuer));
                let outdated = |one: &Certificate| Some((one.subject.clone(), one.validity_error(now)?));
                let found =
                    outdated(certificate).or_else(|| chain.into_iter().find_map(|one| outdated(&one)));
                let (subject, when) =
                    found.unwrap_or_else(|| (subject, "it or one of its issuers is out of date".to_owned()));
                Refusal::Outdated { subject, when }
            }
            Error::InvalidCertificate(CertificateError::Other(OtherError(what))) => {
                Refusal::unusable(&subject, what)
            }
            Error::InvalidCertificate(what) => Refusal::unusable(&subject, format!("{what:?}")),
            other => Refusal::unusable(&subject, other),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Refusal {}

/// Adapts a [`Trust`] to rustls.
#[derive(Debug)]
pub(super) struct Verifier {
    pub trust: Arc<Trust>,
    pub algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.trust.judge(end_entity, intermediates, server_name, now, &self.algorithms) {
            Ok(()) => Ok(ServerCertVerified::assertion()),
            Err(refusal) => {
                Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(refusal)))))
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if ParsedCertificate::try_from(certificate).is_ok() {
            return verify_tls12_signature(message, certificate, signed, &self.algorithms);
        }
        self.check_with_bare_key(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let checked = if ParsedCertificate::try_from(certificate).is_ok() {
            verify_tls13_signature(message, certificate, signed, &self.algorithms)
        } else {
            let key = key(certificate)?.to_der().map_err(|_| CertificateError::BadEncoding)?;
            verify_tls13_signature_with_raw_key(message, &key.into(), signed, &self.algorithms)
        };
        match checked {
            // OTP 23 uses the first signature scheme offered, regardless of the curve of its key. A hash of another length does
            // not weaken the signature, and TLS 1.2 allows it.
            Err(Error::InvalidCertificate(
                CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. },
            )) => self.check_with_bare_key(message, certificate, signed),
            checked => checked,
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl Verifier {
    /// Checks that the peer has the certificate's private key, without webpki, which cannot parse version 1 certificates. Tries
    /// all algorithms that the signature scheme may stand for.
    fn check_with_bare_key(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = key(certificate)?;
        let key = key.subject_public_key.raw_bytes();
        let mut algorithms = self.algorithms.mapping.iter().filter(|(scheme, _)| *scheme == signed.scheme);
        let valid = algorithms.any(|(_, algorithms)| {
            algorithms
                .iter()
                .any(|algorithm| algorithm.verify_signature(key, message, signed.signature()).is_ok())
        });
        if valid {
            Ok(HandshakeSignatureValid::assertion())
        } else {
            Err(CertificateError::BadSignature.into())
        }
    }
}

fn key(certificate: &CertificateDer<'_>) -> Result<SubjectPublicKeyInfoOwned, Error> {
    Ok(Certificate::read(certificate).ok_or(CertificateError::BadEncoding)?.key)
}
