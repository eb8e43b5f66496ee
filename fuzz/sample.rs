//! Sources of samples: the agent's answers, and files of the kernel. Both are followed up to the printed output.

use std::collections::BTreeMap;
use std::sync::Arc;

use beamtune_attach::fuzzing;
use beamtune_host::process::Identity;
use beamtune_host::tree::{FileTree, ReadAt};
use beamtune_host::{AnnouncedBy, HostError, HostSource, discover};
use beamtune_model::{
    Clock, Facts, Nanos, Outcome, Period, PeriodBuilder, Sample, SampleBuilder, SampleRequest, SeriesTable,
    Source, Tick, Verdict,
};
use beamtune_report::diagnosis::Verbosity;
use beamtune_report::locks::{By, Page};
use beamtune_report::show::View;
use beamtune_report::{Style, diagnosis, diff, json, locks, show};

use super::assert_harmless;

const VIEWS: [View; 8] = [
    View::Summary,
    View::Msacc,
    View::Alloc,
    View::Flags,
    View::Processes,
    View::Ets,
    View::Schedulers,
    View::Host,
];

/// Maximum length of a text in a sample: names have up to 512 characters, a call has three of them, plus some words.
const MAX_TEXT_BYTES: usize = 16_384;

/// Terms of the agent, one after the other.
pub fn agent(bytes: &[u8]) {
    let mut table = SeriesTable::default();
    let samples = fuzzing::samples(bytes, &mut table);
    for sample in &samples {
        assert_sound(sample);
    }
    judge(&period(&samples, &table));
}

fn assert_sound(sample: &Sample) {
    let mut ids: Vec<_> = sample.readings.iter().map(|(id, _)| *id).collect();
    ids.sort_unstable();
    assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "a series occurs twice");
    for gap in &sample.gaps {
        assert!(gap.begin <= gap.end, "{gap:?}");
        assert!(gap.reason.len() <= MAX_TEXT_BYTES, "{} bytes", gap.reason.len());
    }
    for event in &sample.events {
        assert!(event.t >= 0 && event.subject.len() + event.detail.len() <= MAX_TEXT_BYTES, "{event:?}");
    }
    for row in &sample.processes {
        let texts = [&row.name, &row.label, &row.initial_call, &row.current_function, &row.application];
        assert!(texts.into_iter().flatten().all(|text| text.len() <= MAX_TEXT_BYTES));
    }
}

fn period(samples: &[Sample], table: &SeriesTable) -> Period {
    let mut builder = PeriodBuilder::new(None, Facts::default(), 1);
    for sample in samples {
        builder.tick(&sample.tick);
        builder.sample(sample, table);
    }
    builder.finish()
}

/// Diagnoses a period and renders it in every format. The diagnosis is deterministic.
pub(crate) fn judge(period: &Period) {
    let period = &Arc::new(period.clone());
    let verdict = beamtune_rules::diagnose(period);
    // The engine catches panics of rules, so they must be detected here.
    let is_fault = |verdict: &&Verdict| matches!(&verdict.outcome, Outcome::NotJudged { reason, .. } if reason.starts_with("fault"));
    assert_eq!(verdict.verdicts.iter().find(is_fault), None);
    for verbosity in [Verbosity::Brief, Verbosity::Evidence, Verbosity::Checks] {
        let view = diagnosis::View {
            verbosity,
            invocation: Some(diagnosis::Invocation { command: "doctor", target: "shop@web1" }),
            ..diagnosis::View::PLAIN
        };
        assert_harmless(&diagnosis::render(period, &verdict, &view));
    }
    let document = json::render(period, &verdict);
    assert_harmless(&document);
    assert_eq!(document, json::render(period, &beamtune_rules::diagnose(period)));
    for view in VIEWS {
        assert_harmless(&show::render(period, view, Style::PLAIN));
    }
    let views = [By::Class, By::Lock, By::Place].map(locks::View::all);
    let page = Page { look: None, contended: &[], views: &views, remains: &[], verdicts: &verdict };
    assert_harmless(&locks::render(period, &page, &diagnosis::View::PLAIN));
    assert_harmless(&locks::json(period, &page));
    assert_harmless(&diff::render(period, period, Style::PLAIN));
    assert_harmless(&diff::render(period, &Period::default(), Style::PLAIN));
}

/// A host: sequences of `=== PATH` and the content of that file (for a link, its target). Process 7 is sampled; for its
/// memory, see [`super::memory`].
pub fn host(bytes: &[u8]) {
    let tree = SyntheticHost::read(bytes);
    if let Ok(found) = discover(&tree) {
        for vm in found.vms {
            let _ = (
                vm.cores(),
                vm.distribution.possible_ports(),
                vm.command_line.redacted(),
                vm.environment.shown(),
            );
            for name in vm.distribution.name.iter().filter_map(|name| name.full()) {
                assert!(name.len() <= bytes.len() + 256);
            }
        }
    }
    let _ = Identity::of(&tree, 7);
    let mut source = match HostSource::new(tree, 7, AnnouncedBy::HostSource) {
        Ok(source) => source,
        Err(error) => return assert!(error.to_string().len() < 4096),
    };
    let clock = Steady;
    let (mut table, mut samples) = (SeriesTable::default(), Vec::new());
    for seq in 0..3 {
        let t = seq as Nanos * 1_000_000_000;
        let tick = Tick { t, incarnation: 0, vm: None, host: None, late: 0 };
        let mut out = SampleBuilder::new(&mut table, tick);
        let asked = source.request(SampleRequest { seq, t, detail: seq != 1 }, &clock);
        let span = asked.and_then(|()| source.collect(t + 1_000_000_000, &clock, &mut out));
        let mut sample = out.sample;
        sample.tick.host = span.ok().map(|span| beamtune_model::Span {
            begin: t.saturating_add(span.begin),
            end: t.saturating_add(span.end),
        });
        samples.push(sample);
    }
    judge(&period(&samples, &table));
}

/// A clock that does not advance, so that runs are deterministic.
pub(crate) struct Steady;

impl Clock for Steady {
    fn now(&self) -> Nanos {
        0
    }

    fn wall(&self) -> i64 {
        1_700_000_000_000_000_000
    }

    fn sleep_until(&self, _: Nanos) {}
}

/// Files in memory.
#[derive(Debug)]
pub(crate) struct SyntheticHost(BTreeMap<String, Vec<u8>>);

impl SyntheticHost {
    /// Parses sequences of `=== PATH` and the content of that file.
    pub(crate) fn read(bytes: &[u8]) -> SyntheticHost {
        let mut files = BTreeMap::new();
        let mut path = None;
        for line in bytes.split_inclusive(|&byte| byte == b'\n') {
            if let Some(name) = line.strip_prefix(b"=== ") {
                let name = String::from_utf8_lossy(name).trim_end().to_owned();
                files.insert(name.clone(), Vec::new());
                path = Some(name);
            } else if let Some(content) = path.as_ref().and_then(|path| files.get_mut(path)) {
                content.extend_from_slice(line);
            }
        }
        SyntheticHost(files)
    }

    /// All files, by path.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(path, content)| (path.as_str(), content.as_slice()))
    }

    /// The content of a file, or of the target of a link to an executable.
    pub(crate) fn resolved(&self, path: &str) -> Result<&[u8], HostError> {
        let content = self.get(path)?;
        let target = path.ends_with("/exe").then(|| String::from_utf8_lossy(content).trim_end().to_owned());
        Ok(target.and_then(|target| self.get(&target).ok()).unwrap_or(content))
    }

    pub(crate) fn get(&self, path: &str) -> Result<&[u8], HostError> {
        self.0.get(path).map(Vec::as_slice).ok_or_else(|| HostError::Missing { path: path.to_owned() })
    }
}

impl FileTree for SyntheticHost {
    fn read_start(&self, path: &str, max_bytes: usize, into: &mut Vec<u8>) -> Result<(), HostError> {
        let content = self.resolved(path)?;
        into.clear();
        into.extend_from_slice(&content[..content.len().min(max_bytes)]);
        Ok(())
    }

    fn read_start_below(
        &self,
        dir: &str,
        path: &str,
        max_bytes: usize,
        into: &mut Vec<u8>,
    ) -> Result<(), HostError> {
        self.read_start(&format!("{}{path}", dir.trim_end_matches('/')), max_bytes, into)
    }

    fn list(&self, path: &str, max: usize) -> Result<Vec<String>, HostError> {
        let prefix = format!("{}/", path.trim_end_matches('/'));
        let mut names: Vec<String> = self
            .0
            .keys()
            .filter_map(|name| name.strip_prefix(&prefix)?.split('/').next().map(str::to_owned))
            .collect();
        names.dedup();
        match names.len() {
            0 => Err(HostError::Missing { path: path.to_owned() }),
            found if found > max => Err(HostError::TooLarge { path: path.to_owned(), max }),
            _ => Ok(names),
        }
    }

    fn count(&self, path: &str, max: usize) -> Result<u64, HostError> {
        Ok(self.list(path, max)?.len() as u64)
    }

    fn open(&self, path: &str) -> Result<Box<dyn ReadAt>, HostError> {
        super::memory::open(self, path)
    }

    fn read_link(&self, path: &str) -> Result<String, HostError> {
        Ok(String::from_utf8_lossy(self.get(path)?).trim_end().to_owned())
    }
}
