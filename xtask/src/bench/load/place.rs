//! Where servers and generators run: each on one core, with as many descriptors as the system allows, and no longer than we do.

use std::ffi::OsStr;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use crate::bench::process::command;

/// The cores of a measurement; the same one twice where there is no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cores {
    /// Of the server.
    pub server: usize,
    /// Of the generator.
    pub generator: usize,
}

impl Cores {
    /// The first and the last that this process may use.
    pub fn of_this_process() -> Result<Cores> {
        let status = fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
        ends(&status).context("cannot understand Cpus_allowed_list in /proc/self/status")
    }
}

/// proc(5): a list of numbers and ranges, as `0,2-5`.
fn ends(status: &str) -> Option<Cores> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim();
    let mut numbers = list.split([',', '-']).map(|number| number.parse().ok());
    let server = numbers.next()??;
    Some(Cores { server, generator: numbers.next_back().unwrap_or(Some(server))? })
}

/// A program on a core. It ends with this program, even if that is killed.
pub fn on_core(core: usize, program: impl AsRef<OsStr>) -> Result<Command> {
    let mut placed = bound_to_us()?;
    placed.args(["taskset", "-c", &core.to_string()]).arg(program);
    Ok(placed)
}

/// The same on any core.
pub fn anywhere(program: impl AsRef<OsStr>) -> Result<Command> {
    let mut placed = bound_to_us()?;
    placed.arg(program);
    Ok(placed)
}

fn bound_to_us() -> Result<Command> {
    let mut placed = command("setpriv");
    placed.args(["--pdeathsig", "KILL", "prlimit", &format!("--nofile={}", descriptors()?)]);
    Ok(placed)
}

/// How many a process may have.
pub fn descriptors() -> Result<u64> {
    let limits = fs::read_to_string("/proc/self/limits").context("cannot read /proc/self/limits")?;
    most_descriptors(&limits).context("cannot understand /proc/self/limits")
}

/// The hard limit.
fn most_descriptors(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_and_generator_have_the_outermost_cores() {
        let check = |list: &str, expect: Option<(usize, usize)>| {
            let found = ends(&format!("Name:\tx\nCpus_allowed_list:\t{list}\n"));
            assert_eq!(found.map(|cores| (cores.server, cores.generator)), expect, "{list}");
        };
        check("0-1", Some((0, 1)));
        check("2,4-6,9", Some((2, 9)));
        check("3", Some((3, 3)));
        check("", None);
    }

    #[test]
    fn the_hard_limit_of_descriptors_stands_second() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max open files            1024                 20000                files     \n";
        assert_eq!(most_descriptors(limits), Some(20_000));
        assert_eq!(most_descriptors(""), None);
    }
}
