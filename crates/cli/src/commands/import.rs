//! `beamtune import`: what the VM's own tools have printed, as a recording, and what is wrong by it.

mod crash_dump;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use beamtune_import::{Banner, Imported, MAX_BYTES, lcnt};
use beamtune_model::{SampleBuilder, SeriesTable, Tick, facts};
use beamtune_recording::{Existing, Reader, Selection, Writer};
use beamtune_report::locks::{By, View};

use super::locks;
use crate::files::Snapshot;
use crate::terminal;

/// The name of standard input, and of what was read from it.
const STANDARD_INPUT: &str = "-";

/// Read what lcnt has printed, as pasted from a shell, a ticket or a page, and say what is wrong by it.
///
/// Understood are lcnt:conflicts(), lcnt:inspect(Lock), lcnt:histogram(Lock), lcnt:locations() and lcnt:information(), of Erlang's shell
/// or Elixir's, with or without line breaks (docs/import.md). What is not read is named with its place on standard error. The recording
/// that -o keeps is read by beamtune locks and beamtune diff.
///
/// A file that begins with =erl_crash_dump: is read as a crash dump, of any size: why the node died, and what can be judged by the dump.
/// Its recording is read by beamtune diagnose, show and diff.
///
/// Exit status: 0 = nothing above "notice", 1 = findings, 2 = nothing could be read.
#[derive(clap::Args)]
pub struct Args {
    /// The text, at most 64 MB, or a crash dump; - or nothing reads standard input.
    #[arg(default_value = STANDARD_INPUT)]
    file: PathBuf,
    /// Keep it as a recording, which must not exist yet. It holds what the text tells, and so no more than counts of locks.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print JSON (docs/schema/locks.schema.json; of a crash dump docs/schema/diagnosis.schema.json).
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    let name = if is_standard_input(&args.file) {
        "standard input".to_owned()
    } else {
        args.file.display().to_string()
    };
    if let Some(dump) = crash_dump::open(&args.file).with_context(|| format!("{name} cannot be imported"))? {
        return crash_dump::run(dump, &name, args);
    }
    let bytes = read(&args.file).with_context(|| format!("{name} cannot be read"))?;
    let imported = lcnt(&bytes).with_context(|| format!("nothing is imported from {name}"))?;
    for unread in &imported.unread {
        let place = format!("{name}:{}:{}", unread.line, unread.column);
        let text = if unread.text.is_empty() { String::new() } else { format!(" {}", unread.text) };
        terminal::complain(&format!("{place}: not read:{text} ({})\n", unread.why));
    }
    if imported.rows.is_empty() {
        bail!("nothing is imported from {name}: no row of it could be read");
    }
    let period = record(imported, args.output.as_deref())?.period(&Selection::default())?;
    let has_single = period.locks.iter().any(|row| row.id.is_some());
    let views: Vec<View> =
        [Some(By::Class), has_single.then_some(By::Lock)].into_iter().flatten().map(View::new).collect();
    Ok(locks::show(&period, None, &views, args.json))
}

fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == STANDARD_INPUT
}

/// At most one byte more than is taken.
fn read(path: &Path) -> Result<Vec<u8>> {
    if !is_standard_input(path) {
        return Ok(Snapshot::read(path, MAX_BYTES)?.bytes);
    }
    let mut bytes = Vec::new();
    std::io::stdin().lock().take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A recording of one sample, for which neither a VM nor a host was asked.
fn record(imported: Imported, output: Option<&Path>) -> Result<Reader> {
    let mut writer = match output {
        Some(path) => Writer::create(path, Existing::Refuse)?,
        None => Writer::in_memory()?,
    };
    let mut table = SeriesTable::default();
    let tick = Tick { t: 0, incarnation: 0, vm: None, host: None, late: 0 };
    let mut sample = SampleBuilder::new(&mut table, tick).sample;
    sample.facts.push((facts::IMPORTED_FROM.to_owned(), "lcnt".to_owned()));
    sample
        .facts
        .push((facts::RECORDED_BY.to_owned(), concat!("beamtune ", env!("CARGO_PKG_VERSION")).to_owned()));
    let Banner { release, erts, schedulers } = imported.banner;
    let told = [
        (facts::OTP_RELEASE, release),
        (facts::ERTS_VERSION, erts),
        (facts::SCHEDULERS, schedulers.map(|(all, _)| all.to_string())),
        (facts::SCHEDULERS_ONLINE, schedulers.map(|(_, online)| online.to_string())),
    ];
    sample.facts.extend(told.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
    sample.lock_sessions.push(imported.session);
    sample.locks = imported.rows;
    writer.append(&sample, &table)?;
    Ok(writer.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Erlang/OTP 27 [erts-15.0] [64-bit] [smp:8:4] [lock-counting]
1> lcnt:conflicts().
      lock   id  #tries  #collisions  collisions [%]  time [us]  duration [%]
     -----  --- ------- ------------ --------------- ---------- -------------
    db_tab    9 1000000       250000         25.0000    5000000       50.0000
ok
";

    #[test]
    fn a_text_becomes_a_recording_that_is_judged_by_its_locks_alone() {
        let imported = lcnt(TEXT.as_bytes()).expect("a table");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pasted.beamtune");
        record(imported, Some(&path)).expect("a recording");
        let period =
            Reader::open(&path).and_then(|reader| reader.period(&Selection::default())).expect("readable");
        let fact = |key| period.facts.get(key);
        assert_eq!((fact(facts::IMPORTED_FROM), fact(facts::OTP_RELEASE)), (Some("lcnt"), Some("27")));
        assert_eq!(fact(facts::SCHEDULERS_ONLINE), Some("4"));
        assert_eq!((period.locks.len(), period.locks[0].collisions), (1, 250_000));
        let diagnosis = beamtune_rules::diagnose(&period);
        let codes: Vec<_> = diagnosis.findings().iter().map(|finding| finding.code.0).collect();
        assert_eq!(codes, ["BT033"]);
        let again = lcnt(TEXT.as_bytes()).expect("a table");
        assert!(record(again, Some(&path)).is_err(), "an existing file is left alone");
    }
}
