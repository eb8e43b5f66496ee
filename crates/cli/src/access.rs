//! Options for access to a node: its cookie, and TLS.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use beamtune_attach::agent::SessionOptions;
use beamtune_attach::cookie::{self, Cookie};
use beamtune_attach::locate::Route;
use beamtune_attach::process::Process;
use beamtune_attach::source::{Access, Finder};
use beamtune_attach::{AttachError, Settings, tls};
use beamtune_host::error::HostError;
use beamtune_host::tree::{FileTree, LocalTree};

/// Maximum number of bytes read from a cookie file, which contains a single line.
const COOKIE_FILE_BYTES: usize = 4096;

/// Maximum number of bytes read from a TLS file. All public root certificates together have 220 kB.
const TLS_FILE_BYTES: usize = 4 << 20;

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

/// The options for access, completed by values from the environment.
pub struct Credentials {
    cookie: cookie::CookieSettings,
    tls: tls::TlsSettings,
}

impl AccessArgs {
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

    /// Adds the values from the environment.
    pub fn credentials(&self) -> Result<Credentials> {
        let environment = match std::env::var("BEAMTUNE_COOKIE") {
            Ok(text) if !text.is_empty() => Some(Cookie::new(&text, "BEAMTUNE_COOKIE")?),
            _ => None,
        };
        Ok(Credentials {
            cookie: cookie::CookieSettings {
                file: self.cookie_file.clone(),
                environment,
                home: std::env::var_os("HOME").map(PathBuf::from),
                config_home: std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from),
            },
            tls: tls::TlsSettings {
                requested: self.tls,
                trusted: self.tls_ca.clone(),
                certificate: self.tls_cert.clone(),
                key: self.tls_key.clone(),
                server_name: self.tls_server_name.clone(),
                unverified: self.tls_no_verify,
            },
        })
    }
}

impl Credentials {
    /// Returns the parameters of a connection. For a node on this host, its process supplies what the user did not specify. `host`
    /// is the host part of the node's name.
    pub fn access(
        &self,
        route: Route,
        finder: Option<Arc<dyn Finder>>,
        process: Option<&Process>,
        host: Option<&str>,
    ) -> Result<Access, AttachError> {
        let places = cookie::places(&self.cookie, process)?;
        Ok(Access {
            route,
            finder,
            cookie: cookie::find(&places, |path| read(path, process, COOKIE_FILE_BYTES))?,
            tls: tls::find(&self.tls, process, host, |path| read(path, process, TLS_FILE_BYTES))?,
            settings: Settings::default(),
            session_options: SessionOptions::default(),
        })
    }

    /// Returns a warning to print before connecting.
    pub fn warning(&self) -> Option<&'static str> {
        self.tls.unverified.then_some(
            "warning: --tls-no-verify: the node's certificate is not verified; anybody in between can read and change the traffic\n",
        )
    }
}

/// Reads at most `max_bytes` of a file. A path below the root of a containerized or chrooted process is resolved as that process would
/// resolve it: links cannot lead to files of this host.
fn read(path: &Path, process: Option<&Process>, max_bytes: usize) -> io::Result<Vec<u8>> {
    let root = process.map(|process| &*process.root).filter(|root| *root != Path::new("/"));
    let mut content = Vec::new();
    match root.and_then(|root| Some((root, path.strip_prefix(root).ok()?))) {
        Some((root, inside)) => {
            let (Some(root), Some(inside)) = (root.to_str(), inside.to_str()) else {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "its path is not UTF-8"));
            };
            LocalTree::default()
                .read_start_below(root, &format!("/{inside}"), max_bytes, &mut content)
                .map_err(io_error)?;
        }
        // A file of this host, or one that the user specified.
        None => {
            File::open(path)?.take(max_bytes as u64).read_to_end(&mut content)?;
        }
    }
    Ok(content)
}

fn io_error(error: HostError) -> io::Error {
    match error {
        HostError::Missing { .. } => io::ErrorKind::NotFound.into(),
        HostError::Denied { .. } => io::ErrorKind::PermissionDenied.into(),
        HostError::Io { source, .. } => source,
        other => io::Error::other(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_below_the_root_of_a_container_do_not_lead_to_files_of_this_host() {
        let (ours, root) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let secret = ours.path().join("secret");
        std::fs::write(&secret, "ours").expect("a file");
        let process = Process { root: root.path().to_owned(), ..Process::default() };
        let read = |path: &Path| read(path, Some(&process), 10);
        for name in [OsStr::new("link"), OsStr::from_bytes(b"link\xff")] {
            let link = root.path().join(name);
            symlink(&secret, &link).expect("a link");
            assert!(read(&link).is_err(), "{link:?}");
        }
        // A file that the user specifies is read from this host's root.
        assert_eq!(read(&secret).expect("readable"), b"ours");
        let named = ours.path().join(OsStr::from_bytes(b"named\xff"));
        symlink(&secret, &named).expect("a link");
        assert_eq!(read(&named).expect("readable"), b"ours");
    }
}
