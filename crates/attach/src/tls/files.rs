//! Parses certificates and keys in PEM files.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Parses the certificates in a file, in order. There must be at least one. The error says what is wrong with the file.
pub(super) fn certificates(content: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(content).collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => {
            Err("it contains no certificate in PEM form (-----BEGIN CERTIFICATE-----)".to_owned())
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(format!("it is not valid PEM: {error}")),
    }
}

/// Parses the private key in a file.
pub(super) fn key(content: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    // In the BEGIN marker of PKCS #8, or in a header line of the older formats.
    if String::from_utf8_lossy(content).contains("ENCRYPTED") {
        return Err(
            "its private key is encrypted with a password, which is not supported: make a copy without a \
                    password (openssl pkey -in FILE -out COPY) that only you can read, and give it with --tls-key"
                .to_owned(),
        );
    }
    PrivateKeyDer::from_pem_slice(content)
        .map_err(|_| "it contains no private key in PEM form (-----BEGIN PRIVATE KEY-----)".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_fault_of_the_file() {
        let check = |content: &str, of_certificates: &str, of_key: &str| {
            let error = certificates(content.as_bytes()).unwrap_err();
            assert!(error.contains(of_certificates), "{error}");
            let error = key(content.as_bytes()).unwrap_err();
            assert!(error.contains(of_key), "{error}");
        };
        check("", "contains no certificate", "contains no private key");
        check(
            "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
            "not valid PEM",
            "contains no private key",
        );
        check("-----BEGIN CERTIFICATE-----\nAAAA\n", "not valid PEM", "contains no private key");
        let old =
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAAAA\n";
        check(old, "no", "encrypted with a password");
        let new = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        check(new, "contains no certificate", "openssl pkey");
    }
}
