//! Whether a certificate that a node shows is to be trusted.
//!
//! It is if the node's own files hold the very same one, or if a certificate that was given to trust in has signed it, or is
//! it, and it is for the right host and not out of date. The chain is checked by webpki, which is stricter than OTP: a
//! self-signed certificate, one of version 1 or one that names its host only in the subject's common name is commonly met
//! where people have made certificates for their nodes by themselves. For these there is the comparison with the whole
//! certificate: whoever is trusted by name there must have been given byte for byte.

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

/// Whom to trust.
#[derive(Debug)]
pub(super) struct Trust {
    /// Issuers.
    anchors: RootCertStore,
    /// The same certificates, for where one is shown itself.
    given: Vec<CertificateDer<'static>>,
    /// Those that the node's own files say that it shows. Which host they are for does not matter, nor since when.
    own: Vec<CertificateDer<'static>>,
    /// Everybody.
    anybody: bool,
}

impl Trust {
    /// Trusts in nobody.
    pub fn nobody() -> Trust {
        Trust { anchors: RootCertStore::empty(), given: Vec::new(), own: Vec::new(), anybody: false }
    }

    /// Trusts in whoever answers.
    pub fn anybody() -> Trust {
        Trust { anybody: true, ..Trust::nobody() }
    }

    /// Trusts in certificates and what they have signed.
    pub fn trust(&mut self, certificates: Vec<CertificateDer<'static>>) {
        for certificate in certificates {
            // webpki takes any anchor for an issuer. Who was given a node's certificate trusts that node, not what its key signs.
            if Certificate::read(&certificate).is_some_and(|read| read.can_issue) {
                // One that webpki cannot read can still be shown itself.
                let _ = self.anchors.add(certificate.clone());
            }
            self.given.push(certificate);
        }
    }

    /// Expects the node to show this certificate.
    pub fn expect(&mut self, certificate: CertificateDer<'static>) {
        self.own.push(certificate);
    }

    fn judge(
        &self,
        shown: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        now: UnixTime,
        algorithms: &WebPkiSupportedAlgorithms,
    ) -> Result<(), Refusal> {
        if self.anybody || self.own.contains(shown) {
            return Ok(());
        }
        let read =
            Certificate::read(shown).ok_or_else(|| Refusal::unusable("of whomever", "it cannot be read"))?;
        let parsed = ParsedCertificate::try_from(shown);
        if !self.given.contains(shown) {
            let parsed = parsed.as_ref().map_err(|error| Refusal::of(error, &read, intermediates, now))?;
            verify_server_cert_signed_by_trust_anchor(
                parsed,
                &self.anchors,
                intermediates,
                now,
                algorithms.all,
            )
            .map_err(|error| Refusal::of(&error, &read, intermediates, now))?;
        } else if let Some(when) = read.out_of_time(now) {
            return Err(Refusal::Outdated { subject: read.subject, when });
        }
        let named = parsed.is_ok_and(|parsed| verify_server_name(&parsed, host).is_ok());
        if named || read.is_commonly_named(host) {
            Ok(())
        } else {
            Err(Refusal::ForOthers { wanted: host.to_str().into_owned(), names: read.all_names() })
        }
    }
}

/// Why a certificate is not trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Nobody who is trusted has signed it.
    Untrusted { subject: String, issuer: String },
    /// It is for other hosts.
    ForOthers { wanted: String, names: Vec<String> },
    /// Its time is over, or has not come.
    Outdated { subject: String, when: String },
    /// It is of a kind that is not followed, or broken.
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
            // Signed by itself; webpki objects to that it says of itself that it is an issuer.
            Error::InvalidCertificate(CertificateError::Other(_)) if certificate.issuer == subject => {
                Refusal::Untrusted { subject, issuer: "itself".to_owned() }
            }
            Error::InvalidCertificate(_) if certificate.is_version_1 => Refusal::unusable(
                &subject,
                "it is of version 1 of X.509, which does not say what a certificate may be used for",
            ),
            Error::InvalidCertificate(CertificateError::BadSignature) => {
                let issuer = format!(
                    "{} (not with the key of the one of that name that was given)",
                    certificate.issuer
                );
                Refusal::Untrusted { subject, issuer }
            }
            Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
                // The one who must be trusted is at the end of what was shown.
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
                let outdated = |of: &Certificate| Some((of.subject.clone(), of.out_of_time(now)?));
                let found = outdated(certificate).or_else(|| chain.into_iter().find_map(|of| outdated(&of)));
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

/// Asks a [`Trust`] on behalf of rustls.
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
            // OTP 23 takes the first scheme that is offered, whatever the curve of its key. The signature is none the worse
            // for another length of its hash, and TLS 1.2 allows it.
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
    /// Checks that whoever shows a certificate has its key, where webpki does not read the certificate (one of version 1),
    /// with all that the scheme of the signature can mean.
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
