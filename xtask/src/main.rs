//! `cargo run -p xtask -- tidy`: the rules of the repository as code; `bench`, the figures of docs/benchmarks.md;
//! and others that hold the product against real VMs and write a page.
//!
//! What ARCHITECTURE.md says of the parts is checked against `cargo metadata`, so that the page cannot
//! grow old: which crate may use which, who may do I/O, who may print; and what the repository must
//! not hold.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a tool for the terminal")]

mod bench;
mod check_flags;
mod check_lint;
mod parts;
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
        Some("safety") => safety::run(std::env::args().skip(2)),
        _ => {
            let tidy = "cargo run -p xtask -- tidy";
            for usage in [tidy, bench::USAGE, check_flags::USAGE, check_lint::USAGE, safety::USAGE] {
                eprintln!("usage: {usage}");
            }
            ExitCode::from(2)
        }
    }
}

fn tidy() -> Result<Vec<String>> {
    let mut faults = parts::check()?;
    faults.extend(tree::check()?);
    Ok(faults)
}
