//! Finds the TLS configuration: from the user's files, or from the node's own.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};

use super::options::Options;
use super::verify::Trust;
use super::{Tls, TlsSettings, files, server_name};
use crate::error::{AttachError, printable};
use crate::process::Process;

/// Returns the TLS configuration, from the user's settings and, for a node on this host, from the options of its process. `host`
/// is the host part of the node's name, if known; `read` reads a file. Returns `None` if nothing indicates that the node uses
/// TLS.
///
/// If one of the user's files cannot be used, that is an error. If one of the node's files cannot be used, that is mentioned only
/// if connecting fails.
pub fn find(
    given: &TlsSettings,
    process: Option<&Process>,
    host: Option<&str>,
    read: impl FnMut(&Path) -> io::Result<Vec<u8>>,
) -> Result<Option<Tls>, AttachError> {
    if !given.requests_tls() && !process.is_some_and(Process::speaks_tls) {
        return Ok(None);
    }
    let mut reader = Reader { read, remarks: Vec::new() };
    let options = process.map(|process| Options::of(process, &mut reader.read)).unwrap_or_default();
    let path =
        |name: &str| process.map(|process| process.path_from_here(Path::new(name))).unwrap_or_default();

    let mut trust = if given.unverified { Trust::any() } else { Trust::none() };
    if let Some(file) = &given.trusted {
        trust.trust(reader.certificates(file)?);
    } else {
        for (own, _) in &options.server.own {
            // The first certificate in the file is the node's; the others are those of its issuers.
            let chain = reader.try_certificates(&path(own));
            chain.into_iter().take(1).for_each(|own| trust.expect(own));
        }
        for issuers in &options.client.trusted {
            trust.trust(reader.try_certificates(&path(issuers)));
        }
    }
    let own = match &given.certificate {
        Some(file) => Some(reader.certified_key(file, given.key.as_ref().unwrap_or(file))?),
        None => {
            let pairs = options.client.own.iter().chain(&options.server.own);
            let mut pairs = pairs.map(|(own, key)| (path(own), path(key.as_ref().unwrap_or(own))));
            pairs.find_map(|(own, key)| reader.try_certified_key(&own, &key))
        }
    };
    let server_name = match (&given.server_name, host) {
        (Some(name), _) => Some(server_name(name)?),
        // The host part of a node's name may not be a valid server name. The node's certificate can be trusted nevertheless.
        (None, host) => host.and_then(|host| server_name(host).ok()),
    };
    let remarks = [options.remarks, reader.remarks].concat();
    Ok(Some(Tls { trust: Arc::new(trust), own: own.map(Arc::new), server_name, remarks }))
}

struct Reader<R> {
    read: R,
    /// Optional files that could not be used, and why.
    remarks: Vec<String>,
}

impl<R: FnMut(&Path) -> io::Result<Vec<u8>>> Reader<R> {
    fn content(&mut self, path: &Path) -> Result<Vec<u8>, AttachError> {
        (self.read)(path).map_err(|error| bad_file(path, &error.to_string()))
    }

    fn certificates(&mut self, path: &Path) -> Result<Vec<CertificateDer<'static>>, AttachError> {
        files::certificates(&self.content(path)?).map_err(|what| bad_file(path, &what))
    }

    fn certified_key(&mut self, own: &Path, key: &Path) -> Result<CertifiedKey, AttachError> {
        let chain = self.certificates(own)?;
        let found = files::key(&self.content(key)?).map_err(|what| bad_file(key, &what))?;
        let signing = ring::default_provider().key_provider.load_private_key(found);
        let signing = signing.map_err(|error| bad_file(key, &format!("its private key: {error}")))?;
        let pair = CertifiedKey::new(chain, signing);
        match pair.keys_match() {
            Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => Err(bad_file(
                key,
                &format!("its private key is not that of the certificate in {}", own.display()),
            )),
            // If rustls cannot compare the two, as for a version 1 certificate, the node will check them.
            _ => Ok(pair),
        }
    }

    fn try_certificates(&mut self, path: &Path) -> Vec<CertificateDer<'static>> {
        let found = self.certificates(path);
        self.or_remark(found).unwrap_or_default()
    }

    fn try_certified_key(&mut self, own: &Path, key: &Path) -> Option<CertifiedKey> {
        let found = self.certified_key(own, key);
        self.or_remark(found)
    }

    fn or_remark<T>(&mut self, result: Result<T, AttachError>) -> Option<T> {
        result
            .map_err(|error| {
                let remark = error.to_string();
                if !self.remarks.contains(&remark) {
                    self.remarks.push(remark);
                }
            })
            .ok()
    }
}

fn bad_file(path: &Path, what: &str) -> AttachError {
    AttachError::BadTlsFile { path: printable(&path.display().to_string()), what: printable(what) }
}
