//! Access to a node: its cookie, and TLS.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use beamtune_attach::agent::SessionOptions;
use beamtune_attach::cookie::{self, Cookie};
use beamtune_attach::locate::Route;
use beamtune_attach::process::Process;
use beamtune_attach::source::{Access, Finder};
use beamtune_attach::tls::{self, TlsSettings};
use beamtune_attach::{AttachError, Settings};
use beamtune_host::error::HostError;
use beamtune_host::tree::{FileTree, LocalTree};

use crate::Printer;

/// Maximum number of bytes read from a cookie file, which contains a single line.
const COOKIE_FILE_BYTES: usize = 4096;

/// Maximum number of bytes read from a TLS file. All public root certificates together have 220 kB.
const TLS_FILE_BYTES: usize = 4 << 20;

/// Options for access to nodes.
#[derive(Debug, Clone)]
pub struct AccessOptions {
    /// File with the cookie; `None`: the cookie in the environment, or the node's own.
    pub cookie_file: Option<PathBuf>,
    /// TLS settings. What they leave out comes from the node's own files.
    pub tls: TlsSettings,
    /// Prints warnings about access and recordings.
    pub print: Printer,
}

/// The options for access, completed by values from the environment.
pub struct Credentials {
    cookie: cookie::CookieSettings,
    tls: TlsSettings,
}

/// Why a VM cannot be attached to.
#[derive(Debug)]
pub enum AccessError {
    /// The VM has no distribution. Its process can be recorded through /proc.
    NoDistribution,
    /// The VM has a distribution, but attaching to it would fail.
    CannotAttach(anyhow::Error),
}

impl AccessError {
    /// Returns the reason, with the next step if there is one.
    pub fn reason(&self) -> String {
        match self {
            AccessError::NoDistribution => {
                "it has no distribution: start it with -sname or -name to attach".to_owned()
            }
            AccessError::CannotAttach(error) => format!("{error:#}"),
        }
    }
}

impl AccessOptions {
    /// Options without a cookie file or TLS settings.
    pub fn new(print: Printer) -> AccessOptions {
        AccessOptions { cookie_file: None, tls: TlsSettings::default(), print }
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
            tls: self.tls.clone(),
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
