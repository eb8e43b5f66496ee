//! Checks which of our crates each crate may use, and where some external crates are allowed.

use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Each crate, with those of our crates that it may use. ARCHITECTURE.md has the same table.
const MAY_USE: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("flags", &[]),
    ("stats", &[]),
    ("synthetic", &["model"]),
    ("recording", &["model"]),
    ("attach", &["model"]),
    ("host", &["model"]),
    ("import", &["model"]),
    ("emulator", &["model"]),
    ("profile", &["model", "host"]),
    ("load", &["model"]),
    ("rules", &["model", "flags", "stats"]),
    ("trial", &["model", "flags", "stats"]),
    ("store", &["model"]),
    ("report", &["model", "flags", "stats"]),
    ("node", &["model", "recording", "attach", "host", "profile", "report"]),
    ("runner", &["model", "flags", "recording", "host", "load", "trial", "node"]),
    ("lab", &["model", "flags", "recording", "host", "synthetic", "rules", "report", "node", "runner"]),
    (
        "cli",
        &[
            "model",
            "flags",
            "stats",
            "recording",
            "attach",
            "host",
            "import",
            "synthetic",
            "emulator",
            "profile",
            "load",
            "rules",
            "trial",
            "store",
            "report",
            "node",
            "runner",
            "lab",
        ],
    ),
];

/// External crates, with the crates that may use them, and the reason.
const KEPT_IN: &[(&str, &[&str], &str)] = &[
    ("rusqlite", &["recording", "store"], "only recording and store use databases"),
    ("clap", &["cli"], "only the binary has a command line"),
    ("anyhow", &["node", "runner", "lab", "cli"], "other libraries define their own errors"),
    ("indicatif", &["cli"], "only cli prints"),
];

/// Returns the faults in the output of `cargo metadata`.
pub fn check() -> Result<Vec<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps"])
        .output()
        .context("cannot start cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata printed no JSON")?;
    let packages = metadata["packages"].as_array().context("no packages in cargo metadata")?;
    let mut faults = Vec::new();
    let mut seen = Vec::new();
    for package in packages {
        let manifest = package["manifest_path"].as_str().unwrap_or_default();
        let Some(part) = manifest.strip_suffix("/Cargo.toml").and_then(|path| path.rsplit('/').next()) else {
            continue;
        };
        if part == "xtask" {
            continue;
        }
        let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == part) else {
            faults.push(format!(
                "{manifest}: the crate `{part}` is in no table: add it to ARCHITECTURE.md and xtask/src/crate_table.rs"
            ));
            continue;
        };
        seen.push(part.to_owned());
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            // Dependencies of tests are not part of the program.
            if dependency["kind"].as_str() == Some("dev") {
                continue;
            }
            let name = dependency["name"].as_str().unwrap_or_default();
            if let Some(ours) = name.strip_prefix("beamtune-")
                && !allowed.contains(&ours)
            {
                faults
                    .push(format!("{manifest}: `{part}` may not use `{ours}` (ARCHITECTURE.md, \"Crates\")"));
            }
            if let Some((_, parts, why)) = KEPT_IN.iter().find(|(kept, _, _)| *kept == name)
                && !parts.contains(&part)
            {
                faults.push(format!("{manifest}: `{part}` may not use the crate {name}: {why}"));
            }
        }
    }
    for (part, _) in MAY_USE {
        if !seen.iter().any(|name| name == part) {
            faults.push(format!("xtask/src/crate_table.rs: the crate `{part}` does not exist"));
        }
    }
    Ok(faults)
}
