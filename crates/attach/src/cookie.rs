//! Finds a node's cookie, the shared secret of its cluster.
//!
//! [`places`] lists where the cookie may be, in OTP's order, from data about the node's process. [`find`] searches these places.
//! File access is injected.
//!
//! Source of OTP's order: lib/kernel/src/auth.erl (`init_cookie/0`, `read_cookie/0`), tested on OTP 23, 25, 27 and 29.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{AttachError, printable};
use crate::process::Process;

/// A cookie. It is never printed; its bytes are only used in digests.
#[derive(Clone, PartialEq, Eq)]
pub struct Cookie(Vec<u8>);

impl Cookie {
    /// Creates a cookie from its text. Errors name `origin` as the place where it was found.
    pub fn new(text: &str, origin: &str) -> Result<Cookie, AttachError> {
        let bad = |reason| AttachError::BadCookie { origin: origin.to_owned(), reason };
        // Erlang digests the atom's characters as bytes, which limits them to Latin-1.
        let bytes: Option<Vec<u8>> = text.chars().map(|character| u8::try_from(character).ok()).collect();
        match bytes {
            Some(bytes) if bytes.is_empty() => Err(bad("it is empty")),
            Some(bytes) if bytes.len() > 255 => Err(bad("it is longer than an atom's 255 characters")),
            Some(bytes) => Ok(Cookie(bytes)),
            None => Err(bad("it has characters beyond Latin-1")),
        }
    }

    /// Parses the content of a cookie file as `auth:read_cookie/2` does: printable ASCII, followed only by white space.
    fn from_file(content: &[u8], origin: &str) -> Result<Cookie, AttachError> {
        let end = content.iter().position(|byte| !(b' '..=b'~').contains(byte)).unwrap_or(content.len());
        let (text, rest) = content.split_at(end);
        if !rest.iter().all(|byte| b"\r\n ".contains(byte)) {
            return Err(AttachError::BadCookie {
                origin: origin.to_owned(),
                reason: "it has characters that are not printable ASCII",
            });
        }
        Cookie::new(&String::from_utf8_lossy(text), origin)
    }

    pub(crate) fn secret(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cookie(not shown)")
    }
}

/// The user's cookie settings.
#[derive(Debug, Clone, Default)]
pub struct CookieSettings {
    /// `--cookie-file`.
    pub file: Option<PathBuf>,
    /// `BEAMTUNE_COOKIE`.
    pub environment: Option<Cookie>,
    /// `HOME` in beamtune's own environment.
    pub home: Option<PathBuf>,
    /// `XDG_CONFIG_HOME` in beamtune's own environment.
    pub config_home: Option<PathBuf>,
}

/// A place where a cookie may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A cookie from a command line or an environment variable.
    Text {
        /// The cookie.
        cookie: Cookie,
        /// Where it was found, for messages.
        origin: String,
    },
    /// A file that may contain the cookie.
    File {
        /// The file.
        path: PathBuf,
        /// A user who can read it, for messages.
        owner: String,
        /// Whether a missing file is an error.
        required: bool,
    },
}

/// A cookie and where it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundCookie {
    /// The cookie.
    pub cookie: Cookie,
    /// Where it was found, for messages.
    pub origin: String,
}

/// Lists the places where the cookie may be, in order. Without a process (the target is a name, or on another host), the last
/// ones are the user's own cookie files.
pub fn places(given: &CookieSettings, process: Option<&Process>) -> Result<Vec<Place>, AttachError> {
    if let Some(file) = &given.file {
        return Ok(vec![Place::File { path: file.clone(), owner: "its owner".to_owned(), required: true }]);
    }
    if let Some(cookie) = &given.environment {
        return Ok(vec![Place::Text { cookie: cookie.clone(), origin: "BEAMTUNE_COOKIE".to_owned() }]);
    }
    let mut places = Vec::new();
    let Some(process) = process else {
        let file =
            |path| Place::File { path, owner: "the user that the node runs as".to_owned(), required: false };
        places.extend(home_files(given.home.as_deref(), given.config_home.as_deref()).map(file));
        return Ok(places);
    };
    if let Some(text) = from_arguments(process) {
        let origin = "the node's command line".to_owned();
        places.push(Place::Text { cookie: Cookie::new(&text, &origin)?, origin });
    }
    if let Some(text) = process.variable("RELEASE_COOKIE") {
        let origin = "RELEASE_COOKIE in the node's environment".to_owned();
        places.push(Place::Text { cookie: Cookie::new(text, &origin)?, origin });
    }
    let file = |path: PathBuf| Place::File {
        path: process.path_from_here(&path),
        owner: process.owner.clone(),
        required: false,
    };
    if let Some(release) = process.variable("RELEASE_ROOT") {
        places.push(file(Path::new(release).join("releases/COOKIE")));
    }
    // The node uses the home directory that erlexec passes in the flag -home.
    let home = process
        .flag_values("home")
        .into_iter()
        .find_map(|values| values.first().map(PathBuf::from))
        .or_else(|| process.variable("HOME").map(PathBuf::from))
        .or_else(|| process.owner_home.clone());
    let config_home = process.variable("XDG_CONFIG_HOME").map(Path::new);
    places.extend(home_files(home.as_deref(), config_home).map(file));
    Ok(places)
}

/// Returns the cookie from the first place that has one. `read` reads a file. Missing files are skipped unless they are required.
/// A file that cannot be read is an error, because it probably contains the node's cookie.
pub fn find(
    places: &[Place],
    mut read: impl FnMut(&Path) -> io::Result<Vec<u8>>,
) -> Result<FoundCookie, AttachError> {
    let mut looked_at = Vec::new();
    for place in places {
        match place {
            Place::Text { cookie, origin } => {
                return Ok(FoundCookie { cookie: cookie.clone(), origin: origin.clone() });
            }
            Place::File { path, owner, required } => {
                let origin = printable(&path.display().to_string());
                match read(path) {
                    Ok(content) => {
                        return Ok(FoundCookie { cookie: Cookie::from_file(&content, &origin)?, origin });
                    }
                    Err(error) if error.kind() == io::ErrorKind::NotFound && !required => {
                        looked_at.push(origin);
                    }
                    Err(error) => {
                        return Err(AttachError::CookieUnreadable {
                            path: origin,
                            owner: printable(owner),
                            reason: error.to_string(),
                        });
                    }
                }
            }
        }
    }
    Err(AttachError::NoCookie { looked_at })
}

fn home_files(home: Option<&Path>, config_home: Option<&Path>) -> impl Iterator<Item = PathBuf> {
    let config = config_home.map(Path::to_owned).or_else(|| home.map(|home| home.join(".config")));
    let in_home = home.map(|home| home.join(".erlang.cookie"));
    in_home.into_iter().chain(config.map(|config| config.join("erlang/.erlang.cookie")))
}

/// Returns the cookie that a VM takes from its command line. It does so only if `-setcookie COOKIE` occurs exactly once; if it
/// occurs twice, the VM uses the cookie file. `-setcookie NODE COOKIE` sets the cookie for another node and does not count. (OTP
/// 23 does count it; that is ignored here.)
fn from_arguments(process: &Process) -> Option<String> {
    let own: Vec<_> =
        process.flag_values("setcookie").into_iter().filter(|values| values.len() <= 1).collect();
    if let [only] = own.as_slice()
        && let [cookie] = only.as_slice()
    {
        return Some((*cookie).to_owned());
    }
    if own.is_empty() && !process.flag_values("nocookie").is_empty() {
        return Some("nocookie".to_owned());
    }
    None
}

#[cfg(test)]
mod tests;
