//! Parses certificates, for what webpki does not support: error messages, host names in the subject's common name, and X.509
//! version 1.
//!
//! People often make such certificates for their own nodes (`openssl x509 -req` made version 1 certificates if no extension
//! was requested), and OTP accepts them: `public_key:pkix_verify_hostname/2` falls back to the common name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustls::pki_types::{ServerName, UnixTime};
use x509_cert::certificate::{CertificateInner, Raw, Version};
use x509_cert::der::Decode;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{BasicConstraints, SubjectAltName};
use x509_cert::name::Name;
use x509_cert::spki::SubjectPublicKeyInfoOwned;
use x509_cert::time::Time;

use crate::error::printable;

/// A certificate.
#[derive(Debug)]
pub(super) struct Certificate {
    /// The subject.
    pub subject: String,
    /// The issuer.
    pub issuer: String,
    /// Host names and addresses in the subjectAltName extension.
    pub names: Vec<String>,
    /// The subject's common name.
    common_name: Option<String>,
    not_before: Time,
    not_after: Time,
    /// Whether it may issue certificates: its basic constraints say so, or it has none and is self-signed.
    pub can_issue: bool,
    /// Whether it is of X.509 version 1, which has no extensions.
    pub is_version_1: bool,
    /// The public key.
    pub key: SubjectPublicKeyInfoOwned,
}

impl Certificate {
    /// Parses a certificate in DER; `None` if it is malformed.
    pub fn read(der: &[u8]) -> Option<Certificate> {
        let certificate = CertificateInner::<Raw>::from_der(der).ok()?;
        let content = certificate.tbs_certificate();
        let common_name = content.subject().common_name().ok().flatten();
        let (names, common_name) = match content.get_extension::<SubjectAltName>() {
            Ok(Some((_, SubjectAltName(names)))) => (names.iter().filter_map(host).collect(), common_name),
            Ok(None) => (Vec::new(), common_name),
            Err(_) => (Vec::new(), None),
        };
        let can_issue = match content.get_extension::<BasicConstraints>() {
            Ok(Some((_, constraints))) => constraints.ca,
            Ok(None) => content.issuer() == content.subject(),
            Err(_) => false,
        };
        Some(Certificate {
            subject: name(content.subject()),
            issuer: name(content.issuer()),
            names,
            common_name: common_name.map(|name| printable(&name.value())),
            not_before: content.validity().not_before,
            not_after: content.validity().not_after,
            can_issue,
            is_version_1: content.version() == Version::V1,
            key: content.subject_public_key_info().clone(),
        })
    }

    /// Returns a description of the error if the certificate has expired or is not valid yet.
    pub fn validity_error(&self, now: UnixTime) -> Option<String> {
        let now = now.as_secs();
        if now > self.not_after.to_unix_duration().as_secs() {
            Some(format!("it expired at {}", self.not_after.to_date_time()))
        } else if now < self.not_before.to_unix_duration().as_secs() {
            Some(format!("it is not valid before {}", self.not_before.to_date_time()))
        } else {
            None
        }
    }

    /// Returns whether `host` is the common name. The common name is considered only if the certificate has no other names.
    pub fn has_common_name(&self, host: &ServerName<'_>) -> bool {
        let common = self.common_name.as_ref().filter(|_| self.names.is_empty());
        common.is_some_and(|name| name.eq_ignore_ascii_case(&host.to_str()))
    }

    /// Returns all host names and addresses for which the certificate is valid.
    pub fn all_names(&self) -> Vec<String> {
        if self.names.is_empty() { self.common_name.iter().cloned().collect() } else { self.names.clone() }
    }
}

/// Formats a distinguished name in DER; returns `None` if it is malformed.
pub(super) fn distinguished_name(der: &[u8]) -> Option<String> {
    Name::from_der(der).ok().map(|found| name(&found))
}

fn name(name: &Name) -> String {
    let text = printable(&name.to_string());
    if text.is_empty() { "(no name)".to_owned() } else { text }
}

fn host(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::DnsName(name) => Some(printable(name.as_str())),
        GeneralName::IpAddress(address) => {
            let bytes = address.as_bytes();
            let v4 = <[u8; 4]>::try_from(bytes).map(|bytes| IpAddr::from(Ipv4Addr::from(bytes)));
            let v6 = || <[u8; 16]>::try_from(bytes).map(|bytes| IpAddr::from(Ipv6Addr::from(bytes)));
            Some(v4.or_else(|_| v6()).ok()?.to_string())
        }
        _ => None,
    }
}
