//! Reads a crash dump into a recording of one sample.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use beamtune_import::crash_dump::{GZIP_MAGIC, SIGNATURE_BYTES, is_crash_dump, read};
use beamtune_model::{SampleBuilder, SeriesTable, Span, Tick, facts};
use beamtune_recording::{Existing, Reader, Selection, Writer};

use super::{Args, is_standard_input};
use crate::commands::diagnose;
use crate::terminal;

/// An input, classified by how it begins.
pub enum Input {
    /// A crash dump, including its beginning.
    Dump(Box<dyn Read>),
    /// Other text. Contains the part of standard input that was already read; empty for a file.
    Text(Vec<u8>),
}

/// Opens a file or standard input, and checks whether it begins like a crash dump.
pub fn open(path: &Path) -> Result<Input> {
    if is_standard_input(path) {
        return classify(io::stdin().lock());
    }
    // A pipe or device is opened later, when it is read as text.
    if !fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) {
        return Ok(Input::Text(Vec::new()));
    }
    Ok(match classify(BufReader::new(File::open(path)?))? {
        Input::Text(_) => Input::Text(Vec::new()),
        dump => dump,
    })
}

/// Reads the beginning of the input, which a pipe may deliver in pieces, and checks whether it is a crash dump.
fn classify(mut input: impl Read + 'static) -> Result<Input> {
    let mut begin = Vec::new();
    input.by_ref().take(SIGNATURE_BYTES as u64).read_to_end(&mut begin)?;
    if begin.starts_with(GZIP_MAGIC) {
        bail!("compressed file; unpack it first: gunzip -c FILE | beamtune import -");
    }
    Ok(match is_crash_dump(&begin) {
        true => Input::Dump(Box::new(io::Cursor::new(begin).chain(input))),
        false => Input::Text(begin),
    })
}

/// Reads a crash dump, reports missing parts, and diagnoses the rest.
pub fn run(input: impl Read, name: &str, args: &Args) -> Result<ExitCode> {
    let reader = record(input, name, args.output.as_deref())?;
    let period = reader.period(&Selection::default())?;
    if let Some(missing) = period.facts.get(facts::CRASH_DUMP_MISSING) {
        terminal::complain(&format!("{name} is incomplete: {missing}\n"));
    }
    Ok(diagnose::judge(&args.thresholds.apply(period), &args.verbosity.view(None), args.json))
}

/// Writes a recording with one sample, at the time of the dump.
fn record(input: impl Read, name: &str, output: Option<&Path>) -> Result<Reader> {
    let mut table = SeriesTable::default();
    let moment = Some(Span { begin: 0, end: 0 });
    let tick = Tick { t: 0, incarnation: 0, vm: moment, host: None, late: 0 };
    let mut builder = SampleBuilder::new(&mut table, tick);
    builder.fact(facts::RECORDED_BY, concat!("beamtune ", env!("CARGO_PKG_VERSION")));
    read(input, &mut builder).with_context(|| format!("cannot import {name}"))?;
    let sample = builder.sample;
    let mut writer = match output {
        Some(path) => Writer::create(path, Existing::Refuse)?,
        None => Writer::in_memory()?,
    };
    writer.append(&sample, &table)?;
    Ok(writer.finish()?)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const DUMP: &str = "\
=erl_crash_dump:0.5
Mon Nov 23 05:28:30 2026
Slogan: no more index entries in atom_tab (max=20000)
System version: Erlang/OTP 27 [erts-15.2.7] [source] [64-bit] [smp:4:2] [ds:2:2:10] [async-threads:1] [jit:ns]
Calling Thread: scheduler:1
=scheduler:1
Current Process: <0.9.0>
=index_table:atom_tab
limit: 20000
entries: 20480
=proc:<0.9.0>
State: Running
Name: login_parser
Message queue length: 2
Reductions: 100
Memory: 4000
=node:'shop@127.0.0.1'
=end
";

    #[test]
    fn a_dump_becomes_a_recording_with_the_cause_of_the_crash() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("died.beamtune");
        record(DUMP.as_bytes(), "erl_crash.dump", Some(&path)).expect("a recording");
        let period =
            Reader::open(&path).and_then(|reader| reader.period(&Selection::default())).expect("readable");
        assert_eq!(period.facts.get(facts::NODE_NAME), Some("shop@127.0.0.1"));
        let diagnosis = beamtune_rules::diagnose(&Arc::new(period));
        let found: Vec<_> = diagnosis
            .findings()
            .iter()
            .map(|found| (found.code.0, found.subject.as_ref().map(ToString::to_string)))
            .collect();
        assert_eq!(found[0], ("BT038", Some("login_parser (<0.9.0>)".to_owned())));
        assert!(found.iter().any(|(code, _)| *code == "BT009"), "{found:?}");
        assert!(
            record(DUMP.as_bytes(), "erl_crash.dump", Some(&path)).is_err(),
            "an existing file is not overwritten"
        );
    }

    #[test]
    fn the_error_for_a_compressed_file_names_gunzip() {
        let error = classify(b"\x1f\x8b\x08\x00".as_slice()).err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.contains("gunzip -c")));
    }

    /// A pipe that delivers one byte at a time.
    struct Slow(io::Cursor<Vec<u8>>);

    impl Read for Slow {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            let first = room.len().min(1);
            self.0.read(&mut room[..first])
        }
    }

    #[test]
    fn dumps_are_recognised_in_small_pieces() {
        let marked = format!("\u{feff}{DUMP}");
        for (text, is_dump) in [
            (DUMP, true),
            (marked.as_str(), true),
            ("lcnt:conflicts()", false),
            ("=erl_crash_dump", false),
            ("a text that is longer than how a dump begins", false),
            ("", false),
        ] {
            let input = Slow(io::Cursor::new(text.as_bytes().to_vec()));
            let mut whole = Vec::new();
            match classify(input).expect("readable") {
                Input::Dump(mut dump) => {
                    assert!(is_dump, "{text}");
                    dump.read_to_end(&mut whole).expect("readable");
                    assert_eq!(whole, text.as_bytes());
                }
                Input::Text(begin) => {
                    assert!(!is_dump, "{text}");
                    assert!(text.as_bytes().starts_with(&begin), "what was read is passed on: {text}");
                    assert_eq!(begin.len(), text.len().min(SIGNATURE_BYTES), "{text}");
                }
            }
        }
    }
}
