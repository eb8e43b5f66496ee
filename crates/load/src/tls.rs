//! Whether TLS can be agreed upon with a target, asked before the start, and what it says when it cannot.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustls::{CertificateError, ClientConnection, Error, InvalidMessage};

use crate::program::Tls;

/// Agrees upon TLS once, as devices will. The error is a sentence's end that says what to do.
///
/// # Errors
/// If the target cannot be reached or does not answer in time, and if TLS is not agreed upon.
pub fn greet(address: SocketAddr, tls: &Tls, patience: Duration) -> Result<(), String> {
    let mut connection =
        ClientConnection::new(tls.config.clone(), tls.name.clone()).map_err(|error| words(&error))?;
    let mut agree = || -> io::Result<()> {
        let mut stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream)?;
        }
        Ok(())
    };
    agree().map_err(|error| match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(error) => words(error),
        None if error.kind() == io::ErrorKind::WouldBlock => "it does not answer in time".to_owned(),
        None => error.to_string(),
    })
}

/// What is wrong, and what to do about it.
pub fn words(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => untrusted(),
        // Signed by itself, as `openssl req -x509` makes it. The cause's type is not open to us.
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
                "its certificate is for {}, not for {}; say which name to ask for with tls = {{ server_name = \"NAME\" }}",
                presented.join(", "),
                expected.to_str()
            )
        }
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => "it does not speak TLS there".to_owned(),
        error => error.to_string(),
    }
}

fn untrusted() -> String {
    "nobody that is trusted vouches for its certificate; name who does with tls = { ca = \"FILE.pem\" }, or look at no certificate with tls = { verify = false }".to_owned()
}
