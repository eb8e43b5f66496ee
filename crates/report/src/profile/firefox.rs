//! A profile for https://profiler.firefox.com: its processed profile format.
//!
//! The format is defined by the types in https://github.com/firefox-devtools/profiler/blob/main/src/types/profile.ts. The crate
//! fxprof-processed-profile 0.8 cannot write the lines and modules of functions without code addresses, which Erlang functions are here.

use std::collections::HashMap;

use beamtune_model::units::SECOND_NS;
use beamtune_model::{CpuState, Frame, FrameKind, Nanos, Profile, StackSample};
use serde_json::{Value, json};

use super::{Page, source_name};
use crate::text;

/// Version of the processed format. Firefox Profiler reads this version and older ones; its command line, profiler-cli 0.8, was tried.
const PROCESSED_VERSION: u32 = 70;
/// Version of the format that Firefox itself writes; the processed format has it, too.
const GECKO_VERSION: u32 = 36;

/// What the CPU did, by the innermost function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Category {
    Other,
    Erlang,
    Native,
    GarbageCollection,
    Kernel,
    BusyWait,
    Scheduling,
    Polling,
    Ports,
    Idle,
}

/// Categories in the order of [`Category`], with the names of colours that the format permits. The first grey one is the default, and
/// "transparent" is meant for idle threads.
const CATEGORIES: [(Category, &str, &str); 10] = [
    (Category::Other, "Other", "grey"),
    (Category::Erlang, "Erlang", "orange"),
    (Category::Native, "BIF or NIF", "lightblue"),
    (Category::GarbageCollection, "Garbage collection", "red"),
    (Category::Kernel, "Kernel", "purple"),
    (Category::BusyWait, "Busy wait", "yellow"),
    (Category::Scheduling, "Scheduling", "blue"),
    (Category::Polling, "Polling for I/O", "green"),
    (Category::Ports, "Ports", "brown"),
    (Category::Idle, "Sleep and wake-up", "transparent"),
];

impl Category {
    /// The category of a frame in a sample. C code and the kernel have that of the thread's state, except while processes and ports run.
    fn of(kind: FrameKind, state: CpuState, is_innermost: bool) -> Category {
        match (state, kind) {
            (_, FrameKind::Erlang | FrameKind::Fragment) if !is_innermost => Category::Erlang,
            (CpuState::GarbageCollection, _) => Category::GarbageCollection,
            (CpuState::Scheduling, _) => Category::Scheduling,
            (CpuState::BusyWait, _) => Category::BusyWait,
            (CpuState::Polling, _) => Category::Polling,
            (CpuState::SleepAndWake | CpuState::Waiting, _) => Category::Idle,
            (_, FrameKind::Kernel) => Category::Kernel,
            (CpuState::Port, _) => Category::Ports,
            (_, FrameKind::Erlang | FrameKind::Fragment) => Category::Erlang,
            (CpuState::Process, _) => Category::Native,
            (CpuState::Other, _) => Category::Other,
        }
    }

    fn index(self) -> usize {
        CATEGORIES.iter().position(|(category, ..)| *category == self).unwrap_or_default()
    }
}

/// When and where a profile was taken.
#[derive(Debug, Clone, Copy)]
pub struct Origin {
    /// Begin, in milliseconds since 1970.
    pub begin_unix_ms: f64,
    /// The VM's process id.
    pub pid: u32,
}

/// The file: each thread of the VM that was sampled, with the Erlang process as outermost function.
pub fn firefox(page: &Page<'_>, origin: Origin) -> String {
    let profile = page.profile;
    let mut tables = Tables::default();
    let threads: Vec<Value> =
        (0..profile.threads.len()).filter_map(|index| thread(page, origin, index, &mut tables)).collect();
    let category = |(_, name, colour): &(Category, &str, &str)| json!({"name": name, "color": colour, "subcategories": ["Other"]});
    let document = json!({
        "meta": {
            "interval": 1e3 / f64::from(page.profile.rate_hz.max(1)),
            "startTime": origin.begin_unix_ms,
            "profilingStartTime": 0,
            "profilingEndTime": milliseconds(profile.length),
            "processType": 0,
            "product": text::clean(page.node),
            "importedFrom": "beamtune",
            "stackwalk": 1,
            "version": GECKO_VERSION,
            "preprocessedProfileVersion": PROCESSED_VERSION,
            "categories": CATEGORIES.iter().map(category).collect::<Vec<_>>(),
            "markerSchema": [],
            "sampleUnits": {"time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns"},
            "symbolicated": true,
            "symbolicationNotSupported": true,
            "usesOnlyOneStackType": true,
            "sourceCodeIsNotOnSearchfox": true,
        },
        "libs": [],
        "shared": tables.document(),
        "threads": threads,
    });
    format!("{document}\n")
}

fn milliseconds(time: Nanos) -> f64 {
    time as f64 / 1e6
}

/// A thread with its samples; `None` if it has none. Equal samples of a second are one, with their number as weight. Their order in the
/// second is not known, so they take parts of it in proportion to their number, and the graph of the CPU use is right for each second.
fn thread(page: &Page<'_>, origin: Origin, index: usize, tables: &mut Tables) -> Option<Value> {
    let profile = page.profile;
    let own: Vec<&StackSample> =
        profile.samples.iter().filter(|sample| sample.thread as usize == index).collect();
    if own.is_empty() {
        return None;
    }
    let (mut stacks, mut times, mut weights, mut deltas) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for second in own.chunk_by(|a, b| a.t.div_euclid(SECOND_NS) == b.t.div_euclid(SECOND_NS)) {
        let begin = second.first().map_or(0, |sample| sample.t - sample.t.rem_euclid(SECOND_NS));
        let length = (profile.length - begin).clamp(1, SECOND_NS);
        let count: u32 = second.iter().map(|sample| sample.count).sum();
        let mut until = 0;
        for sample in second {
            until += sample.count;
            stacks.push(tables.stack(profile, sample));
            times.push(
                milliseconds(begin) + milliseconds(length) * f64::from(until) / f64::from(count.max(1)),
            );
            weights.push(sample.count);
            deltas.push(sample.weight);
        }
    }
    let thread = profile.threads.get(index)?;
    Some(json!({
        "name": text::clean(&thread.name),
        "tid": thread.tid,
        "pid": origin.pid.to_string(),
        "processName": text::clean(page.node),
        "processType": "default",
        "processStartupTime": 0,
        "processShutdownTime": null,
        "registerTime": 0,
        "unregisterTime": null,
        "pausedRanges": [],
        "isMainThread": thread.tid == origin.pid,
        "samples": {
            "length": stacks.len(),
            "stack": stacks,
            "time": times,
            "weight": weights,
            "weightType": "samples",
            "threadCPUDelta": deltas,
        },
        "markers": {
            "length": 0, "data": [], "name": [], "startTime": [], "endTime": [], "phase": [], "category": [],
        },
    }))
}

/// The tables that all threads share: each string, source, function, frame and stack once.
#[derive(Debug, Default)]
struct Tables {
    strings: Interner<String>,
    /// Names of source files, as strings.
    sources: Interner<usize>,
    /// Name and source.
    functions: Interner<(usize, Option<usize>)>,
    /// Function, line and category; processes have no category.
    frames: Interner<(usize, Option<u32>, Option<Category>)>,
    /// The stack of the callers, and the frame.
    stacks: Interner<(Option<usize>, usize)>,
}

impl Tables {
    /// The index of a sample's stack; `None` if nothing is known of it.
    fn stack(&mut self, profile: &Profile, sample: &StackSample) -> Option<usize> {
        let process = sample.process.and_then(|number| profile.processes.get(&number));
        let mut stack = process.map(|name| {
            let name = self.strings.index(format!("process {}", text::sentence(name)));
            let function = self.functions.index((name, None));
            let frame = self.frames.index((function, None, None));
            self.stacks.index((None, frame))
        });
        let mut frames = profile.frames_of(sample.stack).peekable();
        while let Some(frame) = frames.next() {
            let frame = self.frame(frame, Category::of(frame.kind, sample.state, frames.peek().is_none()));
            stack = Some(self.stacks.index((stack, frame)));
        }
        stack
    }

    fn frame(&mut self, frame: &Frame, category: Category) -> usize {
        let name = self.strings.index(text::clean(&frame.name));
        let source = self.strings.index(source_name(frame));
        let source = self.sources.index(source);
        let function = self.functions.index((name, Some(source)));
        self.frames.index((function, frame.line, Some(category)))
    }

    fn document(&self) -> Value {
        let (sources, functions) = (&self.sources.rows, &self.functions.rows);
        let (frames, stacks) = (&self.frames.rows, &self.stacks.rows);
        let category = |category: &Option<Category>| category.map(Category::index);
        // 0 stands for no callers. Callers always come first, so the offset is positive otherwise.
        let offset = |(index, (callers, _)): (usize, &(Option<usize>, usize))| {
            callers.map_or(0, |callers| index - callers)
        };
        json!({
            "stringArray": self.strings.rows,
            "sources": {
                "length": sources.len(),
                "id": nulls(sources.len()),
                "filename": sources,
                "startLine": vec![1; sources.len()],
                "startColumn": vec![1; sources.len()],
                "sourceMapURL": nulls(sources.len()),
                "content": nulls(sources.len()),
            },
            "sourceLocationTable": {"length": 0, "source": [], "line": [], "column": []},
            "resourceTable": {"length": 0, "name": [], "host": [], "type": []},
            "nativeSymbols": {"length": 0, "libIndex": [], "address": [], "name": [], "functionSize": []},
            "funcTable": {
                "length": functions.len(),
                "name": functions.iter().map(|(name, _)| name).collect::<Vec<_>>(),
                "isJS": vec![false; functions.len()],
                "relevantForJS": vec![false; functions.len()],
                "resource": vec![-1; functions.len()],
                "source": functions.iter().map(|(_, source)| source).collect::<Vec<_>>(),
                "lineNumber": nulls(functions.len()),
                "columnNumber": nulls(functions.len()),
                "originalLocation": nulls(functions.len()),
            },
            "frameTable": {
                "length": frames.len(),
                "address": vec![-1; frames.len()],
                "lib": vec![-1; frames.len()],
                "inlineDepth": vec![0; frames.len()],
                "category": frames.iter().map(|(.., found)| category(found)).collect::<Vec<_>>(),
                "subcategory": frames.iter().map(|(.., found)| found.map(|_| 0)).collect::<Vec<_>>(),
                "func": frames.iter().map(|(function, ..)| function).collect::<Vec<_>>(),
                "nativeSymbol": nulls(frames.len()),
                "innerWindowID": vec![0; frames.len()],
                "line": frames.iter().map(|(_, line, _)| line).collect::<Vec<_>>(),
                "column": nulls(frames.len()),
                "originalLocation": nulls(frames.len()),
            },
            "stackTable": {
                "length": stacks.len(),
                "frame": stacks.iter().map(|(_, frame)| frame).collect::<Vec<_>>(),
                "prefixOffset": stacks.iter().enumerate().map(offset).collect::<Vec<_>>(),
            },
        })
    }
}

fn nulls(length: usize) -> Vec<Value> {
    vec![Value::Null; length]
}

/// Rows of a table, each once.
#[derive(Debug)]
struct Interner<Row> {
    rows: Vec<Row>,
    known: HashMap<Row, usize>,
}

impl<Row> Default for Interner<Row> {
    fn default() -> Self {
        Interner { rows: Vec::new(), known: HashMap::new() }
    }
}

impl<Row: Clone + Eq + std::hash::Hash> Interner<Row> {
    fn index(&mut self, row: Row) -> usize {
        let (rows, next) = (&mut self.rows, self.known.len());
        *self.known.entry(row).or_insert_with_key(|row| {
            rows.push(row.clone());
            next
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::tests::profile;
    use super::*;

    const ORIGIN: Origin = Origin { begin_unix_ms: 1_700_000_000_000.0, pid: 7 };

    fn document(profile: &Profile) -> Value {
        serde_json::from_str(&firefox(&Page { node: "shop@web1", profile }, ORIGIN)).unwrap()
    }

    /// Three kinds of samples in two seconds.
    fn sampled() -> Profile {
        let mut profile = profile(&[
            ("shop:loop/1;jsx:encode/2;k:read", 30, CpuState::Process),
            ("shop:loop/1;jsx:encode/2", 10, CpuState::GarbageCollection),
            ("k:futex_wait", 20, CpuState::SleepAndWake),
        ]);
        profile.rate_hz = 100;
        profile.frames[0].line = Some(12);
        profile.processes.insert(80, "shop_server".to_owned());
        profile.samples[2].process = None;
        profile.samples[2].t = SECOND_NS;
        profile
    }

    /// Types of values, as in the documentation of the format.
    fn kind(value: &Value) -> &'static str {
        match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        }
    }

    /// Checks that a table has exactly these columns, each with a value of a permitted type for each row.
    fn check_table(table: &Value, columns: &[(&str, &[&str])]) {
        let rows = table["length"].as_u64().unwrap() as usize;
        let expected: HashSet<&str> = columns.iter().map(|(name, _)| *name).chain(["length"]).collect();
        let found: HashSet<&str> = table.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(found, expected);
        for (name, kinds) in columns {
            let column = table[name].as_array().unwrap();
            assert_eq!(column.len(), rows, "{name}");
            assert!(column.iter().all(|value| kinds.contains(&kind(value))), "{name}: {column:?}");
        }
    }

    /// The columns and types of src/types/profile.ts in https://github.com/firefox-devtools/profiler, version 70.
    #[test]
    fn tables_have_the_documented_columns() {
        const NUMBER: &[&str] = &["number"];
        const MAYBE: &[&str] = &["number", "null"];
        const BOOLEAN: &[&str] = &["boolean"];
        let document = document(&sampled());
        let shared = &document["shared"];
        assert!(shared["stringArray"].as_array().unwrap().iter().all(Value::is_string));
        check_table(&shared["stackTable"], &[("frame", NUMBER), ("prefixOffset", NUMBER)]);
        check_table(
            &shared["frameTable"],
            &[
                ("address", NUMBER),
                ("lib", NUMBER),
                ("inlineDepth", NUMBER),
                ("category", MAYBE),
                ("subcategory", MAYBE),
                ("func", NUMBER),
                ("nativeSymbol", MAYBE),
                ("innerWindowID", MAYBE),
                ("line", MAYBE),
                ("column", MAYBE),
                ("originalLocation", MAYBE),
            ],
        );
        check_table(
            &shared["funcTable"],
            &[
                ("name", NUMBER),
                ("isJS", BOOLEAN),
                ("relevantForJS", BOOLEAN),
                ("resource", NUMBER),
                ("source", MAYBE),
                ("lineNumber", MAYBE),
                ("columnNumber", MAYBE),
                ("originalLocation", MAYBE),
            ],
        );
        check_table(
            &shared["sources"],
            &[
                ("id", &["string", "null"]),
                ("filename", NUMBER),
                ("startLine", NUMBER),
                ("startColumn", NUMBER),
                ("sourceMapURL", MAYBE),
                ("content", &["string", "null"]),
            ],
        );
        check_table(&shared["resourceTable"], &[("name", NUMBER), ("host", MAYBE), ("type", NUMBER)]);
        check_table(
            &shared["nativeSymbols"],
            &[("libIndex", NUMBER), ("address", NUMBER), ("name", NUMBER), ("functionSize", MAYBE)],
        );
        check_table(
            &shared["sourceLocationTable"],
            &[("source", NUMBER), ("line", NUMBER), ("column", NUMBER)],
        );
        let thread = &document["threads"][0];
        let samples = &thread["samples"];
        assert_eq!(samples["weightType"], "samples");
        let mut columns = samples.clone();
        columns.as_object_mut().unwrap().remove("weightType");
        check_table(
            &columns,
            &[("stack", MAYBE), ("time", NUMBER), ("weight", NUMBER), ("threadCPUDelta", MAYBE)],
        );
        assert_eq!(thread["markers"]["length"], 0);
        for (key, kinds) in [
            ("processType", "string"),
            ("processStartupTime", "number"),
            ("processShutdownTime", "null"),
            ("registerTime", "number"),
            ("unregisterTime", "null"),
            ("pausedRanges", "array"),
            ("name", "string"),
            ("isMainThread", "boolean"),
            ("pid", "string"),
            ("tid", "number"),
        ] {
            assert_eq!(kind(&thread[key]), kinds, "{key}");
        }
    }

    #[test]
    fn indices_exist_and_callers_come_first() {
        let document = document(&sampled());
        let shared = &document["shared"];
        let lengths = |table: &str| shared[table]["length"].as_u64().unwrap();
        let strings = shared["stringArray"].as_array().unwrap().len() as u64;
        let check = |column: &Value, below: u64| {
            for index in column.as_array().unwrap().iter().filter(|index| !index.is_null()) {
                assert!(index.as_u64().unwrap() < below, "{column} below {below}");
            }
        };
        check(&shared["stackTable"]["frame"], lengths("frameTable"));
        check(&shared["frameTable"]["func"], lengths("funcTable"));
        check(&shared["frameTable"]["category"], CATEGORIES.len() as u64);
        check(&shared["funcTable"]["name"], strings);
        check(&shared["funcTable"]["source"], lengths("sources"));
        check(&shared["sources"]["filename"], strings);
        check(&document["threads"][0]["samples"]["stack"], lengths("stackTable"));
        for (index, offset) in shared["stackTable"]["prefixOffset"].as_array().unwrap().iter().enumerate() {
            assert!(offset.as_u64().unwrap() <= index as u64);
        }
        let categories = document["meta"]["categories"].as_array().unwrap();
        let colours = [
            "transparent",
            "purple",
            "green",
            "orange",
            "yellow",
            "lightblue",
            "blue",
            "brown",
            "magenta",
            "red",
            "lightred",
            "darkgrey",
            "grey",
        ];
        assert!(categories.iter().all(|category| colours.contains(&category["color"].as_str().unwrap())));
        assert!(categories.iter().all(|category| category["subcategories"][0] == "Other"));
        assert_eq!(categories[0]["color"], "grey");
    }

    /// The stacks of the thread's samples, outermost first: function, line and category.
    fn stacks(document: &Value) -> Vec<Vec<String>> {
        let shared = &document["shared"];
        let at = |value: &Value, index: &Value| value[index.as_u64().unwrap() as usize].clone();
        let describe = |frame: &Value| {
            let function = at(&shared["frameTable"]["func"], frame);
            let name = at(&shared["stringArray"], &at(&shared["funcTable"]["name"], &function));
            let category = at(&shared["frameTable"]["category"], frame);
            let category = match category.as_u64() {
                Some(index) => document["meta"]["categories"][index as usize]["name"].as_str().unwrap(),
                None => "-",
            };
            let line = at(&shared["frameTable"]["line"], frame);
            let line = line.as_u64().map(|line| format!(":{line}")).unwrap_or_default();
            format!("{}{line} {category}", name.as_str().unwrap())
        };
        let samples = document["threads"][0]["samples"]["stack"].as_array().unwrap();
        let chain = |stack: &Value| {
            let mut index = stack.as_u64().unwrap();
            let mut names = Vec::new();
            loop {
                names.push(describe(&at(&shared["stackTable"]["frame"], &json!(index))));
                match at(&shared["stackTable"]["prefixOffset"], &json!(index)).as_u64().unwrap() {
                    0 => break,
                    offset => index -= offset,
                }
            }
            names.reverse();
            names
        };
        samples.iter().map(chain).collect()
    }

    #[test]
    fn stacks_begin_with_the_process_and_categories_follow_the_state() {
        let document = document(&sampled());
        assert_eq!(
            stacks(&document),
            [
                vec!["process shop_server -", "shop:loop/1:12 Erlang", "jsx:encode/2 Erlang", "read Kernel"],
                vec!["process shop_server -", "shop:loop/1:12 Erlang", "jsx:encode/2 Garbage collection"],
                vec!["futex_wait Sleep and wake-up"],
            ]
        );
        let shared = &document["shared"];
        let file = &shared["sources"]["filename"][1];
        assert_eq!(shared["stringArray"][file.as_u64().unwrap() as usize], "jsx");
    }

    #[test]
    fn samples_of_a_second_share_it_by_their_number() {
        let document = document(&sampled());
        let samples = &document["threads"][0]["samples"];
        assert_eq!(samples["time"], json!([750.0, 1000.0, 2000.0]));
        assert_eq!(samples["weight"], json!([30, 10, 20]));
        assert_eq!(samples["threadCPUDelta"], json!([300_000_000, 100_000_000, 200_000_000]));
        assert_eq!(
            (&document["threads"][0]["isMainThread"], &document["meta"]["interval"]),
            (&json!(true), &json!(10.0))
        );
    }
}
