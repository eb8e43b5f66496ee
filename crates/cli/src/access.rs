//! The options for access to a node: its cookie, and TLS.

use std::path::PathBuf;

use anyhow::{Context, Result};
use beamtune_attach::tls::TlsSettings;
use beamtune_node::access::AccessOptions;

use crate::terminal;

const TLS: &str = "TLS distribution (-proto_dist inet_tls)";

/// Options for access to a node.
#[derive(clap::Args, Debug, Clone, Default)]
pub struct AccessArgs {
    /// File with the node's cookie
    ///
    /// Default: the environment variable BEAMTUNE_COOKIE; if it is not set, the cookie that the node itself uses.
    #[arg(long, value_name = "FILE")]
    cookie_file: Option<PathBuf>,
    /// Connect with TLS
    ///
    /// Not needed for a node on this host, or if another TLS option is given.
    #[arg(long, help_heading = TLS)]
    tls: bool,
    /// Trusted certificates: the issuer's, or the node's own
    ///
    /// Default for a node on this host: the files that the node itself uses.
    #[arg(long, value_name = "FILE", help_heading = TLS)]
    tls_ca: Option<PathBuf>,
    /// Client certificate
    ///
    /// Default for a node on this host: the node's own certificate.
    #[arg(long, value_name = "FILE", help_heading = TLS)]
    tls_cert: Option<PathBuf>,
    /// Private key of the client certificate, if in another file
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = TLS)]
    tls_key: Option<PathBuf>,
    /// Expected name in the node's certificate, if not the host name
    #[arg(long, value_name = "NAME", help_heading = TLS)]
    tls_server_name: Option<String>,
    /// Do not verify the node's certificate (insecure)
    ///
    /// Anybody between beamtune and the node can read and change the traffic.
    #[arg(long, conflicts_with_all = ["tls_ca", "tls_server_name"], help_heading = TLS)]
    tls_no_verify: bool,
}

impl AccessArgs {
    /// Returns the options, whose warnings are printed.
    pub fn options(&self) -> AccessOptions {
        AccessOptions {
            cookie_file: self.cookie_file.clone(),
            tls: TlsSettings {
                requested: self.tls,
                trusted: self.tls_ca.clone(),
                certificate: self.tls_cert.clone(),
                key: self.tls_key.clone(),
                server_name: self.tls_server_name.clone(),
                unverified: self.tls_no_verify,
            },
            print: terminal::complain,
        }
    }

    /// Returns the same options as command-line words that are valid in any working directory.
    pub fn words(&self) -> Result<Vec<String>> {
        let mut words = Vec::new();
        let files = [
            ("--cookie-file", &self.cookie_file),
            ("--tls-ca", &self.tls_ca),
            ("--tls-cert", &self.tls_cert),
            ("--tls-key", &self.tls_key),
        ];
        for (option, file) in files {
            if let Some(file) = file {
                let file = std::path::absolute(file).context(option)?;
                words.extend([option.to_owned(), file.display().to_string()]);
            }
        }
        if let Some(name) = &self.tls_server_name {
            words.extend(["--tls-server-name".to_owned(), name.clone()]);
        }
        let switches = [("--tls", self.tls), ("--tls-no-verify", self.tls_no_verify)];
        words.extend(switches.iter().filter(|(_, on)| *on).map(|(option, _)| (*option).to_owned()));
        Ok(words)
    }
}
