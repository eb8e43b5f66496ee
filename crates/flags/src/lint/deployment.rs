//! Finds out from a file whether the VM runs in a container, and its limits of CPU and open files.
//!
//! A YAML file may describe several containers with different flags and limits, so the limits are searched in the mapping that contains
//! the flags. No limits are known for a template that is not valid YAML.

use std::cmp::Reverse;
use std::ops::Range;

use saphyr_parser::{Event, Parser};

use crate::source::{Format, Fragment, stages};

/// The known properties of the environment in which the VM runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Site {
    /// The index of the container in the file; `None` if the file does not distinguish containers.
    pub(super) container: Option<usize>,
    /// Whether the VM runs in a container, which usually shares its host with others.
    pub(super) shared: bool,
    /// The CPU quota in thousandths of a CPU, with its byte range in the file.
    pub(super) quota: Option<(u64, Range<usize>)>,
    /// The byte range of the CPU request, which is not a limit.
    pub(super) request: Option<Range<usize>>,
    /// The limit of open files (`u64::MAX` for unlimited), with its byte range in the file.
    pub(super) open_files: Option<(u64, Range<usize>)>,
}

/// Finds the site in which each fragment of a file is used.
pub(super) struct Deployment {
    sites: Sites,
}

enum Sites {
    /// One site for the whole file.
    One(Site),
    /// One site per build stage, with the offset of each stage.
    Stages(Vec<usize>),
    /// One site per mapping of a container, sorted by start; the innermost one around the flags applies.
    Mappings(Vec<Mapping>),
}

/// The mapping of one container, with its site.
struct Mapping {
    range: Range<usize>,
    /// The index of the surrounding mapping.
    around: Option<usize>,
    site: Site,
}

impl Deployment {
    pub(super) fn of_file(fragments: &[Fragment]) -> Deployment {
        let Some(first) = fragments.first() else {
            return Deployment { sites: Sites::One(Site::default()) };
        };
        let text = first.file_text();
        let sites = match first.format() {
            Format::Compose | Format::Kubernetes => Sites::Mappings(mappings(text)),
            Format::Dockerfile => Sites::Stages(stages(text).iter().map(|stage| stage.begin).collect()),
            Format::SystemdUnit => Sites::One(unit(text)),
            Format::Shell | Format::EjabberdCtl => Sites::One(script(text)),
            _ => Sites::One(Site::default()),
        };
        Deployment { sites }
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

/// Reads the site of a systemd unit.
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

/// Reads the site of a script: `ulimit -n 1048576`. Indented lines are skipped, because they may be conditional.
fn script(text: &str) -> Site {
    let mut site = Site::default();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let begin = at;
        at += line.len();
        let mut words = line.split_whitespace();
        let is_limit = line.starts_with("ulimit") && words.next() == Some("ulimit");
        // The hard limit alone does not change how many files the VM may open.
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

/// Parses a number of CPUs (`500m`, `1.5`, `2`) as thousandths of a CPU.
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

/// A YAML collection that the parser has entered.
struct Open {
    begin: usize,
    /// The key in the surrounding mapping; empty for list items.
    under: String,
    /// The key of the next value.
    key: Option<String>,
    is_mapping: bool,
    expects_value: bool,
    site: Site,
}

/// Returns the mappings of containers, sorted by start. Whole documents are included.
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

/// Returns the mappings of containers with their sites, sorted by end; empty if the text is not valid YAML.
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

/// Marks a value of the surrounding mapping as complete.
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

/// Whether a mapping describes one container: a service of Compose, an item of `containers`, or a whole document.
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

/// A function that stores a value in a site.
type Set = fn(&mut Site, &str, Range<usize>);

/// Stores a value, if it is a limit, in the site of the surrounding container.
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
    // A custom resource has `resources` in its `spec`; the limit then applies to the whole document.
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

/// Returns the byte offset of each character; `None` if byte and character offsets are equal.
fn offsets(text: &str) -> Option<Vec<usize>> {
    (!text.is_ascii()).then(|| text.char_indices().map(|(at, _)| at).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, piece: &str) -> Site {
        let place = text.find(piece).expect(piece);
        Deployment { sites: Sites::Mappings(mappings(text)) }.site(place)
    }

    #[test]
    fn cpus_are_parsed_in_every_notation() {
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
    fn each_compose_service_has_its_own_limits() {
        let text = "services:\n  a:\n    cpus: 0.5\n    environment:\n      - FIRST\n    ulimits:\n      nofile:\n        soft: 7\n        hard: 8\n  b:\n    environment: {X: SECOND}\n    deploy:\n      resources:\n        limits: {cpus: '2'}\n    ulimits: {nofile: 65536}\n";
        let (first, second) = (at(text, "FIRST"), at(text, "SECOND"));
        assert_eq!(first.quota.as_ref().map(|quota| quota.0), Some(500));
        assert_eq!(first.open_files.as_ref().map(|files| (files.0, &text[files.1.clone()])), Some((7, "7")));
        assert_eq!(second.quota.map(|quota| quota.0), Some(2000));
        assert_eq!(second.open_files.map(|files| files.0), Some(65536));
        assert!(first.container.is_some() && first.container != second.container);
    }

    #[test]
    fn limits_belong_to_the_container_or_to_the_document_of_a_custom_resource() {
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
    fn innermost_mapping_around_a_flag_applies() {
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
    fn limits_of_a_systemd_unit_are_read() {
        let site = unit("[Service]\nCPUQuota=150%\nLimitNOFILE=infinity\n");
        assert_eq!(site.quota.map(|quota| quota.0), Some(1500));
        assert_eq!(site.open_files.map(|files| files.0), Some(u64::MAX));
        assert!(!site.shared);
        assert_eq!(unit("CPUQuota=\nLimitNOFILE=1024:2048").open_files.map(|files| files.0), Some(1024));
    }

    #[test]
    fn last_limit_of_open_files_in_a_script_applies() {
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
    fn invalid_yaml_has_no_mappings() {
        assert!(mappings("a: {{ b }}\n- c: [").is_empty());
    }
}
