//! A profile for `go tool pprof` and the services that read its format: profile.proto, compressed by gzip.
//!
//! Field numbers: https://github.com/google/pprof/blob/main/proto/profile.proto.

use std::collections::HashMap;
use std::io::Write;

use beamtune_model::Profile;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::source_name;
use crate::text;

/// Field numbers of profile.proto.
mod field {
    pub mod profile {
        pub const SAMPLE_TYPE: u64 = 1;
        pub const SAMPLE: u64 = 2;
        pub const LOCATION: u64 = 4;
        pub const FUNCTION: u64 = 5;
        pub const STRING_TABLE: u64 = 6;
        pub const DURATION_NANOS: u64 = 10;
        pub const PERIOD_TYPE: u64 = 11;
        pub const PERIOD: u64 = 12;
    }
    pub mod value_type {
        pub const TYPE: u64 = 1;
        pub const UNIT: u64 = 2;
    }
    pub mod sample {
        pub const LOCATION_ID: u64 = 1;
        pub const VALUE: u64 = 2;
        pub const LABEL: u64 = 3;
    }
    pub mod label {
        pub const KEY: u64 = 1;
        pub const STR: u64 = 2;
    }
    pub mod location {
        pub const ID: u64 = 1;
        pub const LINE: u64 = 4;
    }
    pub mod line {
        pub const FUNCTION_ID: u64 = 1;
        pub const LINE: u64 = 2;
    }
    pub mod function {
        pub const ID: u64 = 1;
        pub const NAME: u64 = 2;
        pub const SYSTEM_NAME: u64 = 3;
        pub const FILENAME: u64 = 4;
    }
}

/// A message in the protobuf encoding.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u64, value: u64) -> &mut Message {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    fn bytes(&mut self, field: u64, value: &[u8]) -> &mut Message {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    fn message(&mut self, field: u64, value: &Message) -> &mut Message {
        self.bytes(field, &value.0)
    }
}

/// Strings, each once; the first one is empty.
struct Strings {
    all: Vec<String>,
    known: HashMap<String, u64>,
}

impl Strings {
    fn index(&mut self, text: &str) -> u64 {
        let (all, next) = (&mut self.all, self.known.len() as u64);
        *self.known.entry(text.to_owned()).or_insert_with_key(|text| {
            all.push(text.clone());
            next
        })
    }
}

/// The file: values are the number of samples, and CPU time in nanoseconds. Labels: thread kind, state and process.
pub fn pprof(profile: &Profile) -> Vec<u8> {
    let rate = profile.rate_hz;
    let mut strings = Strings { all: Vec::new(), known: HashMap::new() };
    strings.index("");
    let mut out = Message::default();
    let value_type = |strings: &mut Strings, kind: &str, unit: &str| {
        let mut message = Message::default();
        message
            .number(field::value_type::TYPE, strings.index(kind))
            .number(field::value_type::UNIT, strings.index(unit));
        message
    };
    let (samples, cpu) =
        (value_type(&mut strings, "samples", "count"), value_type(&mut strings, "cpu", "nanoseconds"));
    out.message(field::profile::SAMPLE_TYPE, &samples).message(field::profile::SAMPLE_TYPE, &cpu);
    for sample in &profile.samples {
        let mut message = Message::default();
        let stack = profile.stacks.get(sample.stack as usize);
        for frame in stack.into_iter().flat_map(|stack| stack.frames.iter().rev()) {
            message.number(field::sample::LOCATION_ID, u64::from(*frame) + 1);
        }
        message.number(field::sample::VALUE, u64::from(sample.count));
        message.number(field::sample::VALUE, sample.weight.max(0).unsigned_abs());
        let process = sample.process.and_then(|number| profile.processes.get(&number));
        let labels = [
            ("thread", profile.thread(sample).map(|thread| thread.kind.clone())),
            ("state", Some(sample.state.text().to_owned())),
            ("process", process.map(|name| text::clean(name))),
        ];
        for (key, value) in labels {
            let Some(value) = value else { continue };
            let mut label = Message::default();
            label
                .number(field::label::KEY, strings.index(key))
                .number(field::label::STR, strings.index(&value));
            message.message(field::sample::LABEL, &label);
        }
        out.message(field::profile::SAMPLE, &message);
    }
    for (index, frame) in profile.frames.iter().enumerate() {
        // A location and a function for each frame: a frame is a function with a line.
        let id = index as u64 + 1;
        let mut line = Message::default();
        line.number(field::line::FUNCTION_ID, id)
            .number(field::line::LINE, u64::from(frame.line.unwrap_or(0)));
        let mut location = Message::default();
        location.number(field::location::ID, id).message(field::location::LINE, &line);
        out.message(field::profile::LOCATION, &location);
        let name = text::clean(&frame.name);
        let mut function = Message::default();
        function
            .number(field::function::ID, id)
            .number(field::function::NAME, strings.index(&name))
            .number(field::function::SYSTEM_NAME, strings.index(&name))
            .number(field::function::FILENAME, strings.index(&source_name(frame)));
        out.message(field::profile::FUNCTION, &function);
    }
    out.number(field::profile::DURATION_NANOS, profile.length.max(0).unsigned_abs());
    out.message(field::profile::PERIOD_TYPE, &cpu);
    out.number(field::profile::PERIOD, 1_000_000_000 / u64::from(rate.max(1)));
    for text in &strings.all {
        out.bytes(field::profile::STRING_TABLE, text.as_bytes());
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to memory does not fail.
    let _ = encoder.write_all(&out.0);
    encoder.finish().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use beamtune_model::CpuState;
    use flate2::read::GzDecoder;

    use super::super::tests::profile;
    use super::*;

    /// The fields of a message: number, and value or bytes.
    fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, Vec<u8>)> {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let mut value = 0;
            for shift in (0..).step_by(7) {
                let (first, rest) = bytes.split_first().unwrap();
                *bytes = rest;
                value |= u64::from(first & 0x7f) << shift;
                if first & 0x80 == 0 {
                    break;
                }
            }
            value
        }
        let mut out = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes);
            let value = varint(&mut bytes);
            let content = match tag & 7 {
                2 => {
                    let (content, rest) = bytes.split_at(value as usize);
                    bytes = rest;
                    content.to_vec()
                }
                _ => Vec::new(),
            };
            out.push((tag >> 3, value, content));
        }
        out
    }

    #[test]
    fn a_file_has_samples_locations_functions_and_names() {
        let profile = profile(&[("a:b/1;c:d/2", 300, CpuState::Process), ("a:b/1", 1, CpuState::BusyWait)]);
        let mut content = Vec::new();
        GzDecoder::new(&*pprof(&profile)).read_to_end(&mut content).unwrap();
        let all = fields(&content);
        let of =
            |number: u64| all.iter().filter(move |(field, ..)| *field == number).map(|(.., content)| content);
        let strings: Vec<String> = of(6).map(|text| String::from_utf8(text.clone()).unwrap()).collect();
        assert_eq!(strings[0], "");
        assert!(
            ["c:d/2", "busy_wait", "scheduler", "nanoseconds"]
                .iter()
                .all(|name| strings.contains(&(*name).to_owned()))
        );
        let first = fields(of(2).next().unwrap());
        let values = |number: u64| {
            first.iter().filter(move |(field, ..)| *field == number).map(|(_, value, _)| *value)
        };
        assert_eq!(values(1).collect::<Vec<_>>(), [2, 1], "innermost first");
        assert_eq!(values(2).collect::<Vec<_>>(), [300, 3_000_000_000]);
        assert_eq!((of(4).count(), of(5).count()), (2, 2));
    }
}
