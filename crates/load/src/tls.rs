//! Performs a TLS handshake with the target before the start, and formats TLS errors as readable text.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustls::{CertificateError, ClientConnection, Error, InvalidMessage};

use crate::program::Tls;

/// Makes one TLS handshake, as the devices will. The error completes a sentence and says what to do.
///
/// # Errors
/// If the target cannot be reached or does not answer in time, or if the handshake fails.
pub fn check_handshake(address: SocketAddr, tls: &Tls, timeout: Duration) -> Result<(), String> {
    let mut connection =
        ClientConnection::new(tls.config.clone(), tls.name.clone()).map_err(|error| describe(&error))?;
    let mut handshake = || -> io::Result<()> {
        let mut stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream)?;
        }
        Ok(())
    };
    handshake().map_err(|error| match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(error) => describe(error),
        None if error.kind() == io::ErrorKind::WouldBlock => "no answer within the timeout".to_owned(),
        None => error.to_string(),
    })
}

/// Describes what is wrong and what to do, as text that completes a sentence.
pub fn describe(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => untrusted(),
        // This is a self-signed certificate, as created by `openssl req -x509`. The type of the cause is private to rustls.
        Error::InvalidCertificate(CertificateError::Other(cause))
            if format!("{cause:?}").contains("CaUsedAsEndEntity") =>
        {
            untrusted()
        }
        Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "its certificate has expired".to_owned()
        }
        Error::InvalidCertificate(CertificateError::NotValidForNameContext { expected, presented }) => {
            format!(
                "its certificate is for {}, not for {}; set the expected name with tls = {{ server_name = \"NAME\" }}",
                presented.join(", "),
                expected.to_str()
            )
        }
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "it does not use TLS on this port".to_owned()
        }
        error => error.to_string(),
    }
}

fn untrusted() -> String {
    "its certificate has an unknown issuer; trust it with tls = { ca = \"FILE.pem\" }, or skip the check with tls = { verify = false }".to_owned()
}
