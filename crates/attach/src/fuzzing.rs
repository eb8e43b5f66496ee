//! What the fuzz targets need of the inside of this crate. No part of its interface.

use beamtune_model::{Sample, SampleBuilder, SeriesTable, Span, Tick};

use crate::agent::Word;
use crate::etf::{Document, Limits};
use crate::process::Process;
use crate::sample::{Life, Offset, identity};
use crate::tls;

/// Nanoseconds between two samples.
const SECOND_NS: i64 = 1_000_000_000;

/// Samples that are read of one input at most.
const MOST_SAMPLES: usize = 8;

/// What a session makes of words of the agent that stand one behind the other: the samples among them, of one life of a VM.
pub fn samples(words: &[u8], table: &mut SeriesTable) -> Vec<Sample> {
    let limits = Limits { bytes: 1 << 20, terms: 1 << 16, ..Limits::default() };
    let (mut samples, mut life, mut at) = (Vec::new(), Life::default(), 0);
    while at < words.len() && samples.len() < MOST_SAMPLES {
        let Ok((document, end)) = Document::decode_prefix(words.to_vec(), at, limits) else { break };
        at = end;
        let Ok(Word::Sample(answer)) = Word::parse(document) else { continue };
        let _ = identity(&answer);
        let sent = samples.len() as i64 * SECOND_NS;
        let arrived = sent + SECOND_NS / 10;
        let offset = Offset(0).corrected(sent, &answer, arrived);
        let clock = offset.between(sent, arrived);
        let span = Span { begin: clock.to_recorder(answer.begin_ns), end: clock.to_recorder(answer.end_ns) };
        let tick = Tick { t: sent, incarnation: 0, vm: Some(span), host: None, late: 0 };
        let mut out = SampleBuilder::new(table, tick);
        let _ = life.add(&answer, clock, &mut out);
        samples.push(out.sample);
    }
    samples
}

/// What is remarked of the TLS options of a node with this command line, whose file of options holds that.
pub fn tls_remarks(command_line: &str, file: &[u8]) -> Vec<String> {
    let arguments = command_line.split_whitespace().map(str::to_owned).collect();
    tls::remarks(&Process { arguments, ..Process::default() }, file)
}
