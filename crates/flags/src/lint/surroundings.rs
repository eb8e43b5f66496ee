//! What a file says about the place that the VM runs in: a container, its CPU limit, its limit of open files.
//!
//! One YAML file may describe several containers, each with flags and limits of its own; so the limits are looked for in
//! the mapping that the flags stand in. A file that is a template and no YAML says nothing.

use std::cmp::Reverse;
use std::ops::Range;

use saphyr_parser::{Event, Parser};

use crate::source::{Format, Fragment, stages};

/// What is known of the place.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Site {
    /// Which container of the file; `None` where the file does not tell several apart.
    pub(super) container: Option<usize>,
    /// It is a container, and shares its machine with others as a rule.
    pub(super) shared: bool,
    /// The CPU quota, in thousandths of a CPU, and where it stands.
    pub(super) quota: Option<(u64, Range<usize>)>,
    /// The CPU that is asked for, without being a limit, where it stands.
    pub(super) request: Option<Range<usize>>,
    /// The limit of open files, `u64::MAX` for none, and where it stands.
    pub(super) open_files: Option<(u64, Range<usize>)>,
}

/// Finds out where the fragments of a file are used.
pub(super) struct Surroundings {
    sites: Sites,
}

enum Sites {
    /// The same for all of the file.
    One(Site),
    /// One for each build stage, from its line on.
    Stages(Vec<usize>),
    /// One for each mapping of a container, by their begins; the innermost around the flags counts.
    Mappings(Vec<Mapping>),
}

/// A mapping that is about one container, with what it says.
struct Mapping {
    range: Range<usize>,
    /// The index of the one that it lies in.
    around: Option<usize>,
    site: Site,
}

impl Surroundings {
    pub(super) fn of_file(fragments: &[Fragment]) -> Surroundings {
        let Some(first) = fragments.first() else {
            return Surroundings { sites: Sites::One(Site::default()) };
        };
        let text = first.file_text();
        let sites = match first.format() {
            Format::Compose | Format::Kubernetes => Sites::Mappings(mappings(text)),
            Format::Dockerfile => Sites::Stages(stages(text).iter().map(|stage| stage.begin).collect()),
            Format::SystemdUnit => Sites::One(unit(text)),
            Format::Shell | Format::EjabberdCtl => Sites::One(script(text)),
            _ => Sites::One(Site::default()),
        };
        Surroundings { sites }
    }

    pub(super) fn site(&self, at: usize) -> Site {
        match &self.sites {
            Sites::One(site) => site.clone(),
            Sites::Stages(begins) => Site {
                container: Some(begins.partition_point(|begin| *begin <= at)),
                shared: true,
                ..Site::default()
            },
            Sites::Mappings(mappings) => {
                let last = mappings.partition_point(|mapping| mapping.range.start <= at).checked_sub(1);
                let mapping = |index: usize| mappings.get(index);
                let mut from_inside =
                    std::iter::successors(last.and_then(mapping), |inner| inner.around.and_then(mapping));
                let innermost = from_inside.find(|mapping| mapping.range.contains(&at));
                innermost.map_or(Site { shared: true, ..Site::default() }, |mapping| mapping.site.clone())
            }
        }
    }
}

/// What a unit of systemd says about itself.
fn unit(text: &str) -> Site {
    let mut site = Site::default();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let begin = at;
        at += line.len();
        let Some((name, value)) = line.split_once('=') else { continue };
        let span = begin..begin + line.trim_end().len();
        match name.trim() {
            "CPUQuota" => {
                let percent = value.trim().strip_suffix('%').and_then(|percent| percent.parse::<u64>().ok());
                site.quota = percent.map(|percent| (percent.saturating_mul(10), span));
            }
            "LimitNOFILE" => {
                let soft = value.trim().split(':').next().unwrap_or_default();
                site.open_files = files(soft).map(|files| (files, span));
            }
            _ => {}
        }
    }
    site
}

/// What a script says before it starts the node: `ulimit -n 1048576`. What is indented may not happen.
fn script(text: &str) -> Site {
    let mut site = Site::default();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let begin = at;
        at += line.len();
        let mut words = line.split_whitespace();
        let is_limit = line.starts_with("ulimit") && words.next() == Some("ulimit");
        // The hard limit alone does not change what the VM may open.
        let of_files = |flag: &str| matches!(flag, "-n" | "-Sn" | "-SHn" | "-HSn");
        if is_limit && words.next().is_some_and(of_files) {
            let span = begin..begin + line.trim_end().len();
            site.open_files = words.next().and_then(files).map(|files| (files, span));
        }
    }
    site
}

fn files(text: &str) -> Option<u64> {
    match text {
        "infinity" | "unlimited" | "-1" => Some(u64::MAX),
        text => text.parse().ok(),
    }
}

/// `500m`, `1.5`, `2`: in thousandths.
fn thousandths(text: &str) -> Option<u64> {
    if let Some(thousandths) = text.strip_suffix('m') {
        return thousandths.parse().ok();
    }
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if text.is_empty() || whole.len() + part.len() == 0 || !digits(whole) || !digits(part) {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let part: u64 = format!("{:0<3}", part.get(..3.min(part.len()))?).parse().ok()?;
    whole.checked_mul(1000)?.checked_add(part)
}

/// A collection that is open.
struct Open {
    begin: usize,
    /// The key that leads here in the mapping around; empty for the items of a list.
    under: String,
    /// The key whose value comes next.
    key: Option<String>,
    is_mapping: bool,
    expects_value: bool,
    site: Site,
}

/// Mappings that are about one container, by their begins. Whole documents are among them.
fn mappings(text: &str) -> Vec<Mapping> {
    let mut found = containers(text);
    found.sort_by_key(|(range, _)| (range.start, Reverse(range.end)));
    let mut mappings: Vec<Mapping> = Vec::with_capacity(found.len());
    let mut open: Vec<usize> = Vec::new();
    for (range, site) in found {
        while open
            .pop_if(|last| mappings.get(*last).is_none_or(|last| last.range.end <= range.start))
            .is_some()
        {}
        let around = open.last().copied();
        open.push(mappings.len());
        mappings.push(Mapping { range, around, site });
    }
    mappings
}

/// What mappings that are about one container say, in the order of their ends; nothing if the text is no YAML.
fn containers(text: &str) -> Vec<(Range<usize>, Site)> {
    let bytes_at = offsets(text);
    let byte = |index: usize| match &bytes_at {
        Some(offsets) => offsets.get(index).copied().unwrap_or(text.len()),
        None => index.min(text.len()),
    };
    let mut found: Vec<(Range<usize>, Site)> = Vec::new();
    let mut open: Vec<Open> = Vec::new();
    for event in Parser::new_from_str(text) {
        let Ok((event, span)) = event else { return Vec::new() };
        let (begin, end) = (byte(span.start.index()), byte(span.end.index()));
        match event {
            Event::MappingStart(..) | Event::SequenceStart(..) => {
                let under = open.last().and_then(|around| around.key.clone()).unwrap_or_default();
                open.push(Open {
                    begin,
                    under,
                    key: None,
                    is_mapping: matches!(event, Event::MappingStart(..)),
                    expects_value: false,
                    site: Site { shared: true, ..Site::default() },
                });
            }
            Event::MappingEnd | Event::SequenceEnd => {
                if let Some(mut closed) = open.pop()
                    && is_container(&open, &closed)
                {
                    closed.site.container = Some(found.len());
                    found.push((closed.begin..end.max(closed.begin), closed.site));
                }
                done(&mut open);
            }
            Event::Scalar(value, ..) => match open.last_mut() {
                Some(around) if around.is_mapping && !around.expects_value => {
                    around.key = Some(value.into_owned());
                    around.expects_value = true;
                }
                _ => {
                    fact(&mut open, &value, begin..end);
                    done(&mut open);
                }
            },
            Event::Alias(_) => done(&mut open),
            Event::DocumentStart(_) | Event::DocumentEnd => open.clear(),
            Event::Nothing | Event::StreamStart | Event::StreamEnd => {}
        }
    }
    found
}

/// A value of the mapping around is complete.
fn done(open: &mut [Open]) {
    if let Some(around) = open.last_mut()
        && around.is_mapping
    {
        around.expects_value = !around.expects_value;
        if !around.expects_value {
            around.key = None;
        }
    }
}

/// Whether a mapping, with those around it, is that of one container: a service of Compose, an item of `containers`, or a
/// whole document.
fn is_container(around: &[Open], mapping: &Open) -> bool {
    if !mapping.is_mapping {
        return false;
    }
    match around {
        [] => true,
        [.., list] if !list.is_mapping => matches!(list.under.as_str(), "containers" | "initContainers"),
        [_, services] => services.under == "services",
        _ => false,
    }
}

/// Takes note of a value in a site.
type Set = fn(&mut Site, &str, Range<usize>);

/// Takes note of a limit, for the container that it stands in.
fn fact(open: &mut [Open], value: &str, span: Range<usize>) {
    let keys: Vec<&str> =
        open.iter().rev().take(5).map(|open| open.key.as_deref().unwrap_or_default()).collect();
    let (set, up): (Set, usize) = match keys.as_slice() {
        ["cpu", "limits", "resources", ..] => (limit, 2),
        ["cpus", "limits", "resources", "deploy", ..] => (limit, 3),
        ["cpus", _, "services", ..] => (limit, 0),
        ["cpu", "requests", "resources", ..] => (request, 2),
        ["nofile", "ulimits", ..] => (nofile, 1),
        ["soft", "nofile", "ulimits", ..] => (nofile, 2),
        _ => return,
    };
    // A custom resource holds `resources` in its `spec`: there the document counts.
    let at = open.len().checked_sub(1 + up);
    let Some(at) = at else { return };
    let container = (0..=at).rev().find(|at| {
        let (around, rest) = open.split_at(*at);
        rest.first().is_some_and(|mapping| is_container(around, mapping))
    });
    if let Some(open) = container.and_then(|at| open.get_mut(at)) {
        set(&mut open.site, value, span);
    }
}

fn limit(site: &mut Site, value: &str, span: Range<usize>) {
    site.quota = thousandths(value).map(|thousandths| (thousandths, span));
}

fn request(site: &mut Site, _: &str, span: Range<usize>) {
    site.request = Some(span);
}

fn nofile(site: &mut Site, value: &str, span: Range<usize>) {
    site.open_files = files(value).map(|files| (files, span));
}

/// The byte of each character; `None` where they are the same.
fn offsets(text: &str) -> Option<Vec<usize>> {
    (!text.is_ascii()).then(|| text.char_indices().map(|(at, _)| at).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, piece: &str) -> Site {
        let place = text.find(piece).expect(piece);
        Surroundings { sites: Sites::Mappings(mappings(text)) }.site(place)
    }

    #[test]
    fn cpus_are_read_in_every_notation() {
        let check = |text: &str, expect: Option<u64>| assert_eq!(thousandths(text), expect, "{text:?}");
        check("2", Some(2000));
        check("0.5", Some(500));
        check(".25", Some(250));
        check("1.", Some(1000));
        check("1500m", Some(1500));
        check("2.12345", Some(2123));
        check("${CPUS}", None);
        check("", None);
        check(".", None);
        check("two", None);
        check("99999999999999999999", None);
    }

    #[test]
    fn a_service_of_compose_has_the_limits_of_its_own() {
        let text = "services:\n  a:\n    cpus: 0.5\n    environment:\n      - FIRST\n    ulimits:\n      nofile:\n        soft: 7\n        hard: 8\n  b:\n    environment: {X: SECOND}\n    deploy:\n      resources:\n        limits: {cpus: '2'}\n    ulimits: {nofile: 65536}\n";
        let (first, second) = (at(text, "FIRST"), at(text, "SECOND"));
        assert_eq!(first.quota.as_ref().map(|quota| quota.0), Some(500));
        assert_eq!(first.open_files.as_ref().map(|files| (files.0, &text[files.1.clone()])), Some((7, "7")));
        assert_eq!(second.quota.map(|quota| quota.0), Some(2000));
        assert_eq!(second.open_files.map(|files| files.0), Some(65536));
        assert!(first.container.is_some() && first.container != second.container);
    }

    #[test]
    fn a_container_of_kubernetes_has_its_limits_and_a_custom_resource_those_of_its_document() {
        let pod = "kind: Pod\nspec:\n  containers:\n    - name: é\n      env: [{name: A, value: FIRST}]\n      resources:\n        requests: {cpu: 250m}\n    - env: [{name: A, value: SECOND}]\n      resources: {limits: {cpu: 1500m}}\n";
        assert!(at(pod, "FIRST").quota.is_none());
        assert_eq!(at(pod, "FIRST").request.map(|span| &pod[span]), Some("250m"));
        assert_eq!(at(pod, "SECOND").quota.map(|quota| quota.0), Some(1500));
        let custom = "kind: Cluster\nspec:\n  resources:\n    limits:\n      cpu: 2\n  text: FIRST\n---\nkind: ConfigMap\ndata: {x: SECOND}\n";
        assert_eq!(at(custom, "FIRST").quota.map(|quota| quota.0), Some(2000));
        assert!(at(custom, "SECOND").quota.is_none());
        assert_ne!(at(custom, "FIRST").container, at(custom, "SECOND").container);
    }

    #[test]
    fn of_mappings_around_a_flag_the_innermost_counts() {
        let text = "a: FIRST\nspec:\n  containers:\n  - x: SECOND\n    containers: [{y: THIRD, cpus: 1}, {y: FOURTH}]\n    z: FIFTH\n  - x: SIXTH\nb: SEVENTH\n---\nc: EIGHTH\n";
        let container = |piece: &str| at(text, piece).container;
        let all = ["FIRST", "SECOND", "THIRD", "FOURTH", "SIXTH", "EIGHTH"].map(container);
        for (index, one) in all.iter().enumerate() {
            assert!(one.is_some() && !all[..index].contains(one), "{all:?}");
        }
        assert_eq!(container("FIFTH"), container("SECOND"));
        assert_eq!(container("SEVENTH"), container("FIRST"));
    }

    #[test]
    fn a_unit_has_one_quota() {
        let site = unit("[Service]\nCPUQuota=150%\nLimitNOFILE=infinity\n");
        assert_eq!(site.quota.map(|quota| quota.0), Some(1500));
        assert_eq!(site.open_files.map(|files| files.0), Some(u64::MAX));
        assert!(!site.shared);
        assert_eq!(unit("CPUQuota=\nLimitNOFILE=1024:2048").open_files.map(|files| files.0), Some(1024));
    }

    #[test]
    fn a_script_has_the_last_limit_of_open_files() {
        let check = |text: &str, expect: Option<u64>| {
            assert_eq!(script(text).open_files.map(|files| files.0), expect, "{text:?}");
        };
        check("x\nulimit -n 120000\ny", Some(120_000));
        check("ulimit -HSn unlimited", Some(u64::MAX));
        check("ulimit -n 120000 || true\nulimit -u 5", Some(120_000));
        check("if x; then\n  ulimit -n 120000\nfi", None);
        check("ulimit -n $FILES", None);
        check("ulimit -Hn 120000\nulimits -n 5", None);
    }

    #[test]
    fn what_is_no_yaml_says_nothing() {
        assert!(mappings("a: {{ b }}\n- c: [").is_empty());
    }
}
