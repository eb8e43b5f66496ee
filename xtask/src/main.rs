//! Development tasks: `cargo run -p xtask -- TASK`.
//!
//! `tidy` checks the repository's rules: the crate table of ARCHITECTURE.md against `cargo metadata`, the permitted content of source
//! files, and the phrases that docs/glossary.md replaces. `picture` creates the pictures of docs/images. `bench`, `safety`, `check-flags`
//! and `check-lint` test beamtune on real VMs; the first three write a page of docs/.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a tool for the terminal")]

mod bench;
mod check_flags;
mod check_lint;
mod crate_table;
mod picture;
mod prose;
mod repository;
mod safety;
mod tree;
mod workers;

use std::process::ExitCode;

use anyhow::Result;

fn main() -> ExitCode {
    let task = std::env::args().nth(1);
    match task.as_deref() {
        Some("tidy") => match tidy() {
            Ok(faults) if faults.is_empty() => ExitCode::SUCCESS,
            Ok(faults) => {
                for fault in &faults {
                    eprintln!("{fault}");
                }
                eprintln!("tidy: {} faults", faults.len());
                ExitCode::FAILURE
            }
            Err(error) => {
                eprintln!("tidy could not run: {error:#}");
                ExitCode::FAILURE
            }
        },
        Some("bench") => bench::run(std::env::args().skip(2)),
        Some("check-flags") => check_flags::run(std::env::args().skip(2)),
        Some("check-lint") => check_lint::run(std::env::args().skip(2)),
        Some("picture") => picture::run(),
        Some("prose") => prose::run(std::env::args().skip(2)),
        Some("safety") => safety::run(std::env::args().skip(2)),
        _ => {
            let tidy = "cargo run -p xtask -- tidy";
            let others = [
                prose::USAGE,
                picture::USAGE,
                bench::USAGE,
                check_flags::USAGE,
                check_lint::USAGE,
                safety::USAGE,
            ];
            for usage in [tidy].into_iter().chain(others) {
                eprintln!("usage: {usage}");
            }
            ExitCode::from(2)
        }
    }
}

fn tidy() -> Result<Vec<String>> {
    let mut faults = crate_table::check()?;
    faults.extend(tree::check()?);
    faults.extend(prose::check()?);
    Ok(faults)
}
