//! Internals exposed to the fuzz targets. This is not part of the crate's interface.

use beamtune_model::{Sample, SampleBuilder, SeriesTable, Span, Tick};

use crate::agent::AgentMessage;
use crate::etf::{Document, Limits};
use crate::process::Process;
use crate::sample::{Decoder, Offset, identity};
use crate::tls;

/// Nanoseconds between two samples.
const SECOND_NS: i64 = 1_000_000_000;

/// Maximum number of samples read from one input.
const MAX_SAMPLES: usize = 8;

/// Decodes concatenated messages of the agent, and returns the samples among them, all of one incarnation.
pub fn samples(messages: &[u8], table: &mut SeriesTable) -> Vec<Sample> {
    let limits = Limits { bytes: 1 << 20, terms: 1 << 16, ..Limits::default() };
    let (mut samples, mut decoder, mut at) = (Vec::new(), Decoder::default(), 0);
    while at < messages.len() && samples.len() < MAX_SAMPLES {
        let Ok((document, end)) = Document::decode_prefix(messages.to_vec(), at, limits) else { break };
        at = end;
        let Ok(AgentMessage::Sample(answer)) = AgentMessage::parse(document) else { continue };
        let _ = identity(&answer);
        let sent = samples.len() as i64 * SECOND_NS;
        let arrived = sent + SECOND_NS / 10;
        let offset = Offset(0).corrected(sent, &answer, arrived);
        let clock = offset.between(sent, arrived);
        let span = Span { begin: clock.to_recorder(answer.begin_ns), end: clock.to_recorder(answer.end_ns) };
        let tick = Tick { t: sent, incarnation: 0, vm: Some(span), host: None, late: 0 };
        let mut out = SampleBuilder::new(table, tick);
        let _ = decoder.add(&answer, clock, &mut out);
        samples.push(out.sample);
    }
    samples
}

/// Returns the remarks on the TLS options of a node that has this command line and this content of its option file.
pub fn tls_remarks(command_line: &str, file: &[u8]) -> Vec<String> {
    let arguments = command_line.split_whitespace().map(str::to_owned).collect();
    tls::remarks(&Process { arguments, ..Process::default() }, file)
}
