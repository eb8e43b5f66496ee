//! TLS below the distribution protocol: trusted certificates, our certificate, and how to find both.
//!
//! A node with `-proto_dist inet_tls` or `inet6_tls` is the TLS server. Its options decide whether it requires a client
//! certificate (`verify_peer` and `fail_if_no_peer_cert`). The node checks that certificate's issuer. It checks the host name in
//! the certificate only if the node's `verify_fun` is `inet_tls_dist:verify_client/3` or `net_kernel:allow/1` was called
//! (lib/ssl/src/inet_tls_dist.erl). We always check the node's certificate, unless the user disables this.
//!
//! For a node on this host, the user need not give any options. The node's own options name its certificate file, and it must
//! present exactly that certificate ([`verify`]). For nodes on other hosts, the user gives the settings in [`Given`].
//!
//! As with the cookie, file access is injected.

mod certificate;
mod files;
mod find;
mod options;
mod session;
mod term;
mod verify;

use std::fmt;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection};

use crate::deadline::Deadline;
use crate::error::{AttachError, printable};
use crate::locate::Located;
pub use find::find;
use session::ClientCertificate;
pub(crate) use session::Session;
use verify::{Trust, Verifier};

/// The user's TLS settings.
#[derive(Debug, Clone, Default)]
pub struct TlsSettings {
    /// Whether the user requests TLS.
    pub requested: bool,
    /// A file with trusted certificates: those of CAs, or the node's own.
    pub trusted: Option<PathBuf>,
    /// A file with our certificate.
    pub certificate: Option<PathBuf>,
    /// A file with our private key, if it is not in `certificate`.
    pub key: Option<PathBuf>,
    /// The name for which the node's certificate must be valid.
    pub server_name: Option<String>,
    /// Whether to accept any certificate.
    pub unverified: bool,
}

impl TlsSettings {
    /// Returns whether to use TLS. Any TLS setting implies it.
    fn requests_tls(&self) -> bool {
        let named = self.trusted.is_some() || self.certificate.is_some() || self.server_name.is_some();
        self.requested || self.unverified || named
    }
}

/// TLS configuration for connections to one node.
#[derive(Clone)]
pub struct Tls {
    trust: Arc<Trust>,
    /// Our certificate and key.
    own: Option<Arc<CertifiedKey>>,
    /// The host for which the certificate must be valid, if it is not the host that we connect to.
    server_name: Option<ServerName<'static>>,
    /// Which of the node's own TLS options and files could not be used, and why.
    remarks: Vec<String>,
}

impl fmt::Debug for Tls {
    /// Omits the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("trust", &self.trust)
            .field("remarks", &self.remarks)
            .finish_non_exhaustive()
    }
}

impl Tls {
    /// Creates a configuration that accepts any certificate, to find out whether the peer uses TLS. No data may be sent in such a
    /// session.
    pub(crate) fn probe() -> Tls {
        Tls { trust: Arc::new(Trust::any()), own: None, server_name: None, remarks: Vec::new() }
    }

    /// Begins a session by sending the ClientHello.
    pub(crate) fn greet(
        &self,
        socket: TcpStream,
        located: &Located,
        deadline: Deadline,
    ) -> Result<Session, AttachError> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => server_name(&located.host)?,
        };
        let failed = |error: rustls::Error| AttachError::TlsFailed {
            peer: located.label.clone(),
            what: printable(&error.to_string()),
        };
        let provider = Arc::new(ring::default_provider());
        let algorithms = provider.signature_verification_algorithms;
        let verifier = Verifier { trust: Arc::clone(&self.trust), algorithms };
        let own = Arc::new(ClientCertificate::new(self.own.clone()));
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_cert_resolver(Arc::clone(&own) as Arc<_>);
        // Session resumption would save nothing: connections are few and long.
        config.resumption = rustls::client::Resumption::disabled();
        let connection = ClientConnection::new(Arc::new(config), name).map_err(failed)?;
        Session::begin(connection, socket, own, located, self.remarks.clone(), deadline)
    }
}

/// Returns the remarks on a node's TLS options, given the content of its option file.
#[cfg(feature = "fuzzing")]
pub(crate) fn remarks(process: &crate::process::Process, file: &[u8]) -> Vec<String> {
    options::Options::of(process, |_| Ok(file.to_vec())).remarks
}

fn server_name(name: &str) -> Result<ServerName<'static>, AttachError> {
    ServerName::try_from(name.to_owned()).map_err(|_| AttachError::BadServerName { name: printable(name) })
}
