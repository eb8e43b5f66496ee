//! How to get into a node: what the user says of its cookie and of TLS.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use beamtune_attach::agent::Terms;
use beamtune_attach::cookie::{self, Cookie};
use beamtune_attach::locate::Route;
use beamtune_attach::process::Process;
use beamtune_attach::source::{Access, Finder};
use beamtune_attach::{AttachError, Settings, tls};
use beamtune_host::error::HostError;
use beamtune_host::tree::{FileTree, LocalTree};

/// A cookie is one line.
const COOKIE_FILE_BYTES: usize = 4096;

/// The certificates of all public issuers are 220 kB.
const TLS_FILE_BYTES: usize = 4 << 20;

const TLS: &str = "TLS distribution (-proto_dist inet_tls)";

/// How to get into a node.
#[derive(clap::Args, Debug, Clone, Default)]
pub struct AccessArgs {
    /// File with the node's cookie; without it: BEAMTUNE_COOKIE, or where the node itself has it from.
    #[arg(long, value_name = "FILE")]
    cookie_file: Option<PathBuf>,
    /// Speak TLS. Not needed for a node on this host, nor with one of the following.
    #[arg(long, help_heading = TLS)]
    tls: bool,
    /// Certificates to trust in: of those who issue the nodes' certificates, or the node's own. Without it: the node's own files, for a node on this host.
    #[arg(long, value_name = "FILE", help_heading = TLS)]
    tls_ca: Option<PathBuf>,
    /// Certificate to show if the node wants to see one. Without it: the node's own, for a node on this host.
    #[arg(long, value_name = "FILE", help_heading = TLS)]
    tls_cert: Option<PathBuf>,
    /// Its private key, if that is in another file.
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = TLS)]
    tls_key: Option<PathBuf>,
    /// Name that the node's certificate must be for, if not that of the host that is connected to.
    #[arg(long, value_name = "NAME", help_heading = TLS)]
    tls_server_name: Option<String>,
    /// Do not check the node's certificate: whoever is in between can read and change everything.
    #[arg(long, conflicts_with_all = ["tls_ca", "tls_server_name"], help_heading = TLS)]
    tls_no_verify: bool,
}

/// What the user gave, by whatever way.
pub struct Given {
    cookie: cookie::Given,
    tls: tls::Given,
}

impl AccessArgs {
    /// The same options as words of a command line that works from any folder.
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

    /// With what stands in the environment.
    pub fn given(&self) -> Result<Given> {
        let environment = match std::env::var("BEAMTUNE_COOKIE") {
            Ok(text) if !text.is_empty() => Some(Cookie::new(&text, "BEAMTUNE_COOKIE")?),
            _ => None,
        };
        Ok(Given {
            cookie: cookie::Given {
                file: self.cookie_file.clone(),
                environment,
                home: std::env::var_os("HOME").map(PathBuf::from),
                config_home: std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from),
            },
            tls: tls::Given {
                wanted: self.tls,
                trusted: self.tls_ca.clone(),
                certificate: self.tls_cert.clone(),
                key: self.tls_key.clone(),
                server_name: self.tls_server_name.clone(),
                unverified: self.tls_no_verify,
            },
        })
    }
}

impl Given {
    /// How to get into a node; for one of this host its process tells what was not given, and `host` stands in its name.
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
            terms: Terms::default(),
        })
    }

    /// What must be said aloud before a connection.
    pub fn warning(&self) -> Option<&'static str> {
        self.tls.unverified.then_some(
            "warning: --tls-no-verify: the node's certificate is not checked. Whoever answers at its address, or is in \
             between, can pass for the node and read and change everything that is said\n",
        )
    }
}

/// Reads the beginning of a file. Below the root of a process in a container or chroot it is read as that process would:
/// links there must not lead into our own files.
fn read(path: &Path, process: Option<&Process>, most_bytes: usize) -> io::Result<Vec<u8>> {
    let root = process.map(|process| &*process.root).filter(|root| *root != Path::new("/"));
    let mut content = Vec::new();
    match root.and_then(|root| Some((root, path.strip_prefix(root).ok()?))) {
        Some((root, inside)) => {
            let (Some(root), Some(inside)) = (root.to_str(), inside.to_str()) else {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "its path is no UTF-8"));
            };
            LocalTree::default()
                .read_start_below(root, &format!("/{inside}"), most_bytes, &mut content)
                .map_err(io_error)?;
        }
        // Ours, or one that the user has named.
        None => {
            File::open(path)?.take(most_bytes as u64).read_to_end(&mut content)?;
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
    fn a_link_below_a_foreign_root_does_not_lead_into_our_files_whatever_it_is_called() {
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
        // What the user names is read as he sees it.
        assert_eq!(read(&secret).expect("readable"), b"ours");
        let named = ours.path().join(OsStr::from_bytes(b"named\xff"));
        symlink(&secret, &named).expect("a link");
        assert_eq!(read(&named).expect("readable"), b"ours");
    }
}
