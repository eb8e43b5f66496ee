//! The repository's root, its files, and the OTP releases that scripts/otp.sh installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Returns the root folder.
pub fn root() -> Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask has no parent folder")
}

/// Runs git in the root and returns its output.
pub fn git(arguments: &[&str]) -> Result<String> {
    let output =
        Command::new("git").args(arguments).current_dir(root()?).output().context("cannot start git")?;
    ensure!(
        output.status.success(),
        "git {} failed: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the files that git tracks, and new files that it does not ignore, relative to the root.
pub fn files() -> Result<Vec<String>> {
    let listing = git(&["ls-files", "--cached", "--others", "--exclude-standard"])?;
    Ok(listing.lines().map(str::to_owned).collect())
}

/// Returns the OTP releases in chroots, with their folders.
pub fn chroots() -> Result<Vec<(u32, PathBuf)>> {
    let listed = Command::new(root()?.join("scripts/otp.sh"))
        .arg("list")
        .output()
        .context("cannot start scripts/otp.sh")?;
    ensure!(
        listed.status.success(),
        "scripts/otp.sh list failed: {}",
        String::from_utf8_lossy(&listed.stderr).trim()
    );
    let listed = String::from_utf8_lossy(&listed.stdout);
    let parse = |line: &str| {
        let (release, root) = line
            .split_once(' ')
            .with_context(|| format!("scripts/otp.sh list printed {line:?}, expected RELEASE FOLDER"))?;
        Ok((release.parse().with_context(|| format!("scripts/otp.sh list: {line}"))?, PathBuf::from(root)))
    };
    listed.lines().map(parse).collect()
}
