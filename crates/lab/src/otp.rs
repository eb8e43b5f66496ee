//! The OTP releases that labs can run on: this host's own, and those from `make otp`.

use std::path::PathBuf;

use crate::erlang::Erlang;
use crate::host::Conditions;

/// An installed Erlang and its OTP release.
#[derive(Debug, Clone)]
pub struct Installed {
    pub release: u32,
    pub erlang: Erlang,
}

/// Returns this host's own Erlang; `None` if it is not installed, or does not report its release.
pub fn own() -> Option<Installed> {
    let erlang = Erlang::default();
    let mut command = erlang.command(&erlang.erl(), &Conditions::default());
    command.args(["-noshell", "-eval", "io:put_chars(erlang:system_info(otp_release)), halt()."]);
    let output = command.output().ok()?;
    let release = String::from_utf8(output.stdout).ok()?.trim().parse().ok()?;
    Some(Installed { release, erlang })
}

/// Finds an installed Erlang of this release.
pub fn find(release: u32, own: Option<&Installed>) -> Option<Installed> {
    if let Some(own) = own.filter(|own| own.release == release) {
        return Some(own.clone());
    }
    let root = roots()?.join(release.to_string());
    // The last file that scripts/otp.sh writes.
    let is_whole = root.join(".complete").exists();
    is_whole.then_some(Installed { release, erlang: Erlang { root: Some(root), erl: None } })
}

/// Returns the folder of the releases from `make otp`.
fn roots() -> Option<PathBuf> {
    match std::env::var_os("BEAMTUNE_OTP_DIR") {
        Some(folder) => Some(folder.into()),
        None => Some(cache()?.join("otp")),
    }
}

/// Returns the folder for downloads, which is outside of the repository.
pub fn cache() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("BEAMTUNE_CACHE") {
        return Some(folder.into());
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    Some(cache.or_else(home)?.join("beamtune"))
}
