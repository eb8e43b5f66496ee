//! Size of the binary, and memory use while it records.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::Bench;
use super::figure::{Figure, Verdict};
use super::node::{Load, Node, PROCESSES, TABLES};
use super::process::pause;
use super::window::Recorder;

const BINARY_LIMIT_MB: f64 = 20.0;
const MEMORY_LIMIT_MB: f64 = 80.0;
/// Duration of the recording. After a minute, the recorder compresses, which is when it needs the most memory.
const RECORDED: Duration = Duration::from_millis(64_500);

/// Returns the description of the method for the page.
pub fn method() -> String {
    "Memory is `VmHWM`.".to_owned()
}

/// Measures the binary and `beamtune record`.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let mut figures = binary(bench)?;
    figures.extend(memory(bench)?);
    Ok(figures)
}

fn binary(bench: &Bench) -> Result<Vec<Figure>> {
    let bytes = fs::metadata(&bench.beamtune)?.len();
    let size =
        Figure::below("size of the binary", bytes as f64 / 1e6, BINARY_LIMIT_MB, |mb| format!("{mb:.1} MB"));
    let is_static = !has_interpreter(&bench.beamtune)?;
    let linking = Figure {
        what: "linking of the binary, by the ELF interpreter".into(),
        value: if is_static { "static" } else { "dynamic" }.into(),
        limit: "static".into(),
        verdict: if is_static { Verdict::Met } else { Verdict::Missed },
    };
    Ok(vec![size, linking])
}

/// Measures `beamtune record` on a default node and on a node with many schedulers, at the same time.
fn memory(bench: &Bench) -> Result<Vec<Figure>> {
    let otp = bench.own_otp()?;
    let mut recorded = Vec::new();
    for (label, flags) in [("as many schedulers as cores", &[][..]), ("`+S 64:64`", &["+S", "64:64"])] {
        let node = Node::start(otp, flags, Load::Idle)?;
        let recorder = Recorder::start(&bench.beamtune, &node, bench.folder.path())?;
        recorded.push((label, node, recorder));
    }
    pause(RECORDED)?;
    let mut figures = Vec::new();
    for (label, _node, recorder) in recorded {
        let what = format!(
            "peak RSS of `beamtune record` after {} s, node with {PROCESSES} processes, {TABLES} tables, {label}",
            RECORDED.as_secs()
        );
        let mb = recorder.peak_rss_bytes()? as f64 / 1e6;
        recorder.stop(RECORDED.as_secs() as usize)?;
        figures.push(Figure::below(what, mb, MEMORY_LIMIT_MB, |mb| format!("{mb:.1} MB")));
    }
    Ok(figures)
}

/// Whether an executable needs a dynamic loader.
fn has_interpreter(path: &Path) -> Result<bool> {
    let elf = fs::read(path)?;
    let types =
        program_header_types(&elf).with_context(|| format!("{} is not a 64-bit ELF file", path.display()))?;
    ensure!(!types.is_empty(), "{} has no program headers", path.display());
    Ok(types.contains(&PT_INTERP))
}

/// The program header that names the loader (elf(5)).
const PT_INTERP: u32 = 3;

/// Returns the types of the program headers of a 64-bit little-endian ELF file; the offsets are those of elf(5).
fn program_header_types(elf: &[u8]) -> Option<Vec<u32>> {
    if !elf.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let number = |at: usize, bytes: usize| {
        let field = elf.get(at..at.checked_add(bytes)?)?;
        field.iter().rev().try_fold(0_usize, |sum, byte| Some(sum.checked_mul(256)? + usize::from(*byte)))
    };
    let (table, size, count) = (number(0x20, 8)?, number(0x36, 2)?, number(0x38, 2)?);
    let types = (0..count).map(|index| number(table.checked_add(index * size)?, 4)?.try_into().ok());
    types.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates an ELF header with program headers of these types.
    fn elf(types: &[u8]) -> Vec<u8> {
        let mut elf = vec![0; 64];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (elf[0x20], elf[0x36], elf[0x38]) = (64, 56, types.len() as u8);
        for kind in types {
            elf.extend([*kind].into_iter().chain([0; 55]));
        }
        elf
    }

    #[test]
    fn program_header_types_are_read() {
        let check =
            |elf: &[u8], expect: Option<&[u32]>| assert_eq!(program_header_types(elf).as_deref(), expect);
        check(&elf(&[6, 3, 1]), Some(&[6, 3, 1]));
        check(&elf(&[1, 2]), Some(&[1, 2]));
        check(&elf(&[1, 2])[..100], None);
        check(b"#!/bin/sh\n", None);
        check(b"", None);
    }

    #[test]
    fn the_linking_of_the_shell_agrees_with_ldd() {
        let shell = fs::canonicalize("/bin/sh").expect("a shell");
        let ldd = std::process::Command::new("ldd").arg(&shell).output().expect("ldd");
        assert_eq!(has_interpreter(&shell).expect("an ELF file"), ldd.status.success());
    }
}
