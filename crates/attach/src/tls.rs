//! TLS below the distribution: what is trusted and what is shown, and where both are found.
//!
//! A node with `-proto_dist inet_tls` or `inet6_tls` is the server. Whether it wants a certificate of ours is its
//! own affair (`verify_peer` and `fail_if_no_peer_cert`); of ours it checks the issuer, and the host's name only if
//! `inet_tls_dist:verify_client/3` is its `verify_fun` or `net_kernel:allow/1` was called (lib/ssl/src/inet_tls_dist.erl).
//! We always check its certificate, unless we were told not to.
//!
//! For a node on this host everything is found by itself: its options name the file with the certificate that it shows,
//! and it must show the very same ([`verify`]). For others, [`Given`] says it.
//!
//! As with the cookie, nothing here reads a file by itself.

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
use session::Asked;
pub(crate) use session::Session;
use verify::{Trust, Verifier};

/// What the user gave.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// That the node speaks TLS.
    pub wanted: bool,
    /// A file with certificates to trust in: issuers, or the node's own.
    pub trusted: Option<PathBuf>,
    /// A file with the certificate to show.
    pub certificate: Option<PathBuf>,
    /// The file with its key, if that is another one.
    pub key: Option<PathBuf>,
    /// The name that the node's certificate must be for.
    pub server_name: Option<String>,
    /// Not to check the node's certificate at all.
    pub unverified: bool,
}

impl Given {
    /// Whether TLS is meant: whoever says how, says so.
    fn is_meant(&self) -> bool {
        let named = self.trusted.is_some() || self.certificate.is_some() || self.server_name.is_some();
        self.wanted || self.unverified || named
    }
}

/// What is trusted and shown in connections to one node.
#[derive(Clone)]
pub struct Tls {
    trust: Arc<Trust>,
    shown: Option<Arc<CertifiedKey>>,
    /// The host that the certificate must be for, where it is not the one that is connected to.
    server_name: Option<ServerName<'static>>,
    /// What of the node's own files could not be used.
    remarks: Vec<String>,
}

impl fmt::Debug for Tls {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("trust", &self.trust)
            .field("remarks", &self.remarks)
            .finish_non_exhaustive()
    }
}

impl Tls {
    /// Trusts whoever answers, to find out who does. Nothing must be said in such a session.
    pub(crate) fn of_a_stranger() -> Tls {
        Tls { trust: Arc::new(Trust::anybody()), shown: None, server_name: None, remarks: Vec::new() }
    }

    /// Begins a session, with its first message.
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
        let asked = Arc::new(Asked::new(self.shown.clone()));
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_cert_resolver(Arc::clone(&asked) as Arc<_>);
        // A session is never taken up again: nodes are attached to one at a time, and for long.
        config.resumption = rustls::client::Resumption::disabled();
        let connection = ClientConnection::new(Arc::new(config), name).map_err(failed)?;
        Session::begin(connection, socket, asked, located, self.remarks.clone(), deadline)
    }
}

/// What is remarked of a node's options whose file holds `file`.
#[cfg(feature = "fuzzing")]
pub(crate) fn remarks(process: &crate::process::Process, file: &[u8]) -> Vec<String> {
    options::Options::of(process, |_| Ok(file.to_vec())).remarks
}

fn server_name(name: &str) -> Result<ServerName<'static>, AttachError> {
    ServerName::try_from(name.to_owned()).map_err(|_| AttachError::BadServerName { name: printable(name) })
}
