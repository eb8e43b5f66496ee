//! Where the repository is, and the other releases of OTP that its script has installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Its folder.
pub fn root() -> Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask has no parent folder")
}

/// The releases in chroots, with their folders.
pub fn chroots() -> Result<Vec<(u32, PathBuf)>> {
    let listed = Command::new(root()?.join("scripts/otp.sh"))
        .arg("list")
        .output()
        .context("scripts/otp.sh does not start")?;
    ensure!(
        listed.status.success(),
        "scripts/otp.sh list failed: {}",
        String::from_utf8_lossy(&listed.stderr).trim()
    );
    let listed = String::from_utf8_lossy(&listed.stdout);
    let of_line = |line: &str| {
        let (release, root) = line.split_once(' ').context("scripts/otp.sh list prints RELEASE FOLDER")?;
        Ok((release.parse().with_context(|| format!("scripts/otp.sh list: {line}"))?, PathBuf::from(root)))
    };
    listed.lines().map(of_line).collect()
}
