use std::collections::BTreeMap;

use beamtune_model::units::SECOND_NS;
use beamtune_model::{FileReplies, Gap, Sample, facts};
use proptest::prelude::*;

use super::*;
use crate::fake::FakeHost;

/// A host with a VM (process 7) in a v2 group with limits on two levels.
fn host() -> FakeHost {
    let host = FakeHost::new();
    host.file("/proc/sys/kernel/random/boot_id", "b0-0t\n").file("/proc/sys/kernel/hostname", "web-1\n");
    host.file("/proc/sys/kernel/osrelease", "6.1.0\n").file("/proc/cpuinfo", "model name\t: Fast\n");
    host.file("/proc/stat", "cpu  100 20 30 4000 50 6 7 80 9 1\ncpu0 1 1 1 1 1 1 1 1 1 1\nprocs_running 3\n");
    host.file("/proc/meminfo", "MemTotal: 16000 kB\nMemAvailable: 8000 kB\n");
    host.file("/proc/vmstat", "pswpin 12\npswpout 34\n");
    for resource in ["cpu", "memory", "io"] {
        host.file(
            &format!("/proc/pressure/{resource}"),
            "some avg10=0.00 total=5\nfull avg10=0.00 total=3\n",
        );
    }
    let mounts = "30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    host.file("/proc/self/mountinfo", mounts).file("/proc/7/mountinfo", mounts);
    host.link("/proc/self/ns/cgroup", "cgroup:[4026531835]").link("/proc/7/ns/cgroup", "cgroup:[4026531835]");
    for group in ["", "/pod", "/pod/app"] {
        let folder = format!("/sys/fs/cgroup{group}");
        host.file(&format!("{folder}/cgroup.controllers"), "cpu memory\n");
    }
    host.file("/sys/fs/cgroup/pod/cpu.max", "50000 100000\n");
    host.file(
        "/sys/fs/cgroup/pod/cpu.stat",
        "usage_usec 90\nnr_periods 10\nnr_throttled 4\nthrottled_usec 2\n",
    );
    host.file("/sys/fs/cgroup/pod/app/cpu.max", "max 100000\n");
    host.file("/sys/fs/cgroup/pod/app/cpu.pressure", "some avg10=0.00 total=7\n");
    host.file("/sys/fs/cgroup/pod/app/memory.max", "1000000\n")
        .file("/sys/fs/cgroup/pod/app/memory.current", "9\n");
    host.file("/proc/7/stat", FakeHost::stat(7, "beam.smp", 300, 200, 500))
        .file("/proc/7/cgroup", "0::/pod/app\n");
    host.file(
        "/proc/7/status",
        "Uid:\t112\t112\t112\t112\nVmRSS:\t 1024 kB\nThreads:\t2\nCpus_allowed_list:\t0-1\n",
    );
    host.file(
        "/proc/7/limits",
        "Max open files            1024                 4096                 files\n",
    );
    host.file("/proc/7/smaps_rollup", "Pss:  90 kB\nAnonHugePages:  0 kB\n");
    host.link("/proc/7/fd/0", "/dev/null").link("/proc/7/fd/1", "/dev/null");
    host.thread(7, 7, "beam.smp", 1, 2, "5000 600 7");
    host.thread(7, 8, "1_scheduler", 3, 4, "6000 700 8");
    host
}

/// Returns the answer of an agent in the VM of this host.
fn agent_answer(host: &FakeHost, ask: &FileRequest) -> FileReply {
    let tree = host.tree();
    let real = |path: &str| path.replace("/proc/self/", "/proc/7/");
    let failed = |error: HostError| {
        FileReply::Failed(match error {
            HostError::Missing { .. } => FileError::Missing,
            other => FileError::Other(other.to_string()),
        })
    };
    let read = |path: &str, max: usize| {
        let mut content = Vec::new();
        tree.read_start(&real(path), max, &mut content).map(|()| content)
    };
    match ask {
        FileRequest::Read { path, max_bytes } => {
            read(path, *max_bytes).map_or_else(failed, FileReply::Content)
        }
        FileRequest::Link(path) => tree.read_link(&real(path)).map_or_else(failed, FileReply::Link),
        FileRequest::Count(path) => tree.count(&real(path), 10).map_or_else(failed, FileReply::Count),
        FileRequest::Threads { .. } => {
            let tids = tree.list("/proc/7/task", 10).unwrap_or_default();
            let thread = |tid: &String| {
                let file =
                    |file: &str| read(&format!("/proc/self/task/{tid}/{file}"), 1_000).unwrap_or_default();
                let (stat, schedstat, status_end) = (file("stat"), file("schedstat"), file("status"));
                ThreadFiles { tid: tid.parse().unwrap(), stat, schedstat, status_end }
            };
            let read: Vec<_> = tids.iter().map(thread).collect();
            FileReply::Threads { tids: read.iter().map(|thread| thread.tid).collect(), read }
        }
    }
}

/// A recorder that samples a remote host.
struct Far {
    board: FileExchange,
    source: RemoteHost,
    table: SeriesTable,
    seq: u64,
}

impl Far {
    fn new() -> Far {
        let board = FileExchange::default();
        Far { source: RemoteHost::new(board.clone()), board, table: SeriesTable::default(), seq: 0 }
    }

    /// Explores the host. Returns the recorder and the number of requests that this took.
    fn explored(host: &FakeHost) -> (Far, usize) {
        let mut far = Far::new();
        for round in 1..10 {
            let files = far.board.next_requests(true).into_iter().map(|ask| (agent_answer(host, &ask), ask));
            let files = Ok(files.map(|(file, ask)| (ask, file)).collect());
            far.board.put_replies(FileReplies { span: Span { begin: 0, end: 0 }, replies: files });
            if !far.source.explore() {
                return (far, round);
            }
        }
        panic!("exploration does not end");
    }

    fn sample(
        &mut self,
        detail: bool,
        answer: impl Fn(&FileRequest) -> FileReply,
    ) -> Result<Sample, SourceTrouble> {
        self.sample_in(4, detail, answer)
    }

    /// Takes a sample in which reading the files took `took` nanoseconds.
    fn sample_in(
        &mut self,
        took: Nanos,
        detail: bool,
        answer: impl Fn(&FileRequest) -> FileReply,
    ) -> Result<Sample, SourceTrouble> {
        self.seq += 1;
        let t = self.seq as i64 * SECOND_NS;
        let files =
            self.board.next_requests(detail).into_iter().map(|ask| (ask.clone(), answer(&ask))).collect();
        let span = Span { begin: t + 5, end: t + 5 + took };
        self.board.put_replies(FileReplies { span, replies: Ok(files) });
        self.collect_at(span, detail)
    }

    fn collect(&mut self, detail: bool) -> Result<Sample, SourceTrouble> {
        let t = self.seq as i64 * SECOND_NS;
        self.collect_at(Span { begin: t + 5, end: t + 9 }, detail)
    }

    fn collect_at(&mut self, expect: Span, detail: bool) -> Result<Sample, SourceTrouble> {
        let t = self.seq as i64 * SECOND_NS;
        let tick = Tick { t, incarnation: 0, vm: None, host: None, late: 0 };
        let mut out = SampleBuilder::new(&mut self.table, tick);
        let clock = FixedClock(t);
        self.source.request(SampleRequest { seq: self.seq, t, detail }, &clock)?;
        let span = self.source.collect(t + SECOND_NS, &clock, &mut out)?;
        assert_eq!(span, expect);
        Ok(out.sample)
    }

    fn readings(&self, sample: &Sample) -> BTreeMap<String, i64> {
        readings(&self.table, sample)
    }
}

fn readings(table: &SeriesTable, sample: &Sample) -> BTreeMap<String, i64> {
    let name = |id| {
        let series = table.get(id).unwrap();
        format!("{}/{}/{}", series.group, series.entity, series.name)
    };
    sample.readings.iter().map(|&(id, value)| (name(id), value)).collect()
}

/// Returns the readings and facts of a local source for the same host, after samples with and without detail.
fn near(host: &FakeHost, details: &[bool]) -> (BTreeMap<String, i64>, BTreeMap<String, String>) {
    let mut source = HostSource::new(host.tree(), 7, AnnouncedBy::OtherSource).unwrap();
    let mut table = SeriesTable::default();
    let mut last = None;
    for &detail in details {
        let tick = Tick { t: 0, incarnation: 0, vm: None, host: None, late: 0 };
        let mut out = SampleBuilder::new(&mut table, tick);
        source.request(SampleRequest { seq: 0, t: 0, detail }, &FixedClock(0)).unwrap();
        source.collect(0, &FixedClock(0), &mut out).unwrap();
        last = Some(out.sample);
    }
    let sample = last.unwrap();
    let mut readings = readings(&table, &sample);
    // The wall clock is read only from the local host.
    assert!(readings.remove("host_cpu//wall_clock").is_some());
    // The agent reports neither open files nor external programs.
    readings.retain(|name, _| !name.starts_with("host_files/") && !name.starts_with("host_programs/"));
    (readings, sample.facts.iter().cloned().collect())
}

#[test]
fn a_remote_host_has_the_same_readings_as_a_local_one() {
    let host = host();
    let (mut far, rounds) = Far::explored(&host);
    assert!(rounds <= 4, "{rounds}");
    let sample = far.sample(true, |ask| agent_answer(&host, ask)).unwrap();
    let (readings, mut facts_here) = near(&host, &[true]);
    assert_eq!(far.readings(&sample), readings);
    assert!(readings.len() > 40, "{readings:?}");
    let gaps: Vec<_> = sample.gaps.iter().map(|gap| (gap.source.as_str(), gap.reason.as_str())).collect();
    let elsewhere = "not available: the node runs on another host";
    let here_only = [
        "host.listen",
        "host.open_files",
        "host.programs",
        "host.smaps",
        "host.tcp",
        "host.tcp_closed",
        "host.udp",
    ];
    assert_eq!(gaps, here_only.map(|item| (item, elsewhere)));
    // The agent reads neither command line nor executable.
    for key in [facts::EMU_TYPE, facts::PRODUCT, facts::COMMAND_LINE, facts::NODE_NAME] {
        facts_here.remove(key);
    }
    assert_eq!(sample.facts.iter().cloned().collect::<BTreeMap<_, _>>(), facts_here);
    assert_eq!(facts_here.get(facts::CGROUP_PATH).map(String::as_str), Some("/pod"));
    // The next sample omits expensive items.
    let sample = far.sample(false, |ask| agent_answer(&host, ask)).unwrap();
    assert_eq!(far.readings(&sample), near(&host, &[true, false]).0);
    assert_eq!(sample.facts, []);
    // From now on, only the files that this sample needs are requested.
    let asked = far.board.next_requests(false);
    assert!(!asked.iter().any(|ask| matches!(ask, FileRequest::Count(_)) || is_rollup(ask)), "{asked:?}");
    assert_eq!(asked.last(), Some(&FileRequest::Threads { all: false }));
    // Each file is requested only once.
    let paths = |asks: Vec<FileRequest>| -> Vec<String> {
        let path = |ask| match ask {
            FileRequest::Read { path, .. } => Some(path),
            _ => None,
        };
        asks.into_iter().filter_map(path).collect()
    };
    for detail in [false, true] {
        let all = paths(far.board.next_requests(detail));
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{all:?}");
    }
    let sample = far.sample(false, |ask| agent_answer(&host, ask)).unwrap();
    assert_eq!(far.readings(&sample), near(&host, &[true, false]).0);
}

#[test]
fn swap_traffic_is_converted_with_the_remote_page_size() {
    let swapped = |rss: &str| {
        let host = host();
        host.file("/proc/7/status", format!("VmRSS:\t {rss} kB\nThreads:\t2\n"));
        let (mut far, _) = Far::explored(&host);
        let sample = far.sample(true, |ask| agent_answer(&host, ask)).unwrap();
        let readings = far.readings(&sample);
        let bytes = ["in", "out"].map(|way| readings.get(&format!("host_cpu//swap_{way}")).copied());
        let is_here_only = |source: &String| {
            [
                "host.listen",
                "host.open_files",
                "host.programs",
                "host.smaps",
                "host.tcp",
                "host.tcp_closed",
                "host.udp",
            ]
            .contains(&source.as_str())
        };
        let gaps = sample.gaps.into_iter().map(|gap| gap.source).filter(|source| !is_here_only(source));
        (bytes, gaps.collect::<Vec<_>>())
    };
    // The process has 256 resident pages in its `stat`.
    assert_eq!(swapped("1024"), ([Some(12 * 4_096), Some(34 * 4_096)], vec![]));
    assert_eq!(swapped("4080"), ([Some(12 * 16_384), Some(34 * 16_384)], vec![]));
    assert_eq!(swapped("16400"), ([Some(12 * 65_536), Some(34 * 65_536)], vec![]));
    assert_eq!(swapped("1"), ([None, None], vec!["host.swap_traffic".to_owned()]));
}

#[test]
fn after_a_process_is_moved_at_most_two_samples_are_lost() {
    let host = host();
    let (mut far, _) = Far::explored(&host);
    far.sample(true, |ask| agent_answer(&host, ask)).unwrap();
    far.sample(false, |ask| agent_answer(&host, ask)).unwrap();
    host.file("/sys/fs/cgroup/other/cgroup.controllers", "cpu\n")
        .file("/sys/fs/cgroup/other/cpu.max", "70000 100000\n");
    host.file("/proc/7/cgroup", "0::/other\n");
    let mut troubles = 0;
    let sample = loop {
        match far.sample(troubles == 0, |ask| agent_answer(&host, ask)) {
            Ok(sample) => break sample,
            Err(trouble) => {
                assert_eq!(trouble.kind, TroubleKind::TimedOut, "{trouble}");
                troubles += 1;
            }
        }
    };
    assert!(troubles <= 2, "{troubles}");
    assert_eq!(far.readings(&sample).get("host_cgroup/own_cpu/quota"), Some(&700));
}

#[test]
fn detailed_samples_stop_if_they_provide_no_new_files() {
    let is_detailed =
        |far: &Far, detail| far.board.next_requests(detail).contains(&FileRequest::Threads { all: true });
    let late = |_: &FileRequest| FileReply::Failed(FileError::Late);
    // There is no time to read any file, there is no answer, or the whole request fails.
    let too_long = || SourceTrouble::new(TroubleKind::TimedOut, "too long");
    let fails: [&dyn Fn(&mut Far); 3] = [
        &|far| assert_eq!(far.sample(false, late).unwrap_err().kind, TroubleKind::TimedOut),
        &|far| assert_eq!(far.collect(false).unwrap_err().kind, TroubleKind::Gone),
        &|far| {
            far.board.put_replies(FileReplies { span: Span { begin: 0, end: 0 }, replies: Err(too_long()) });
            assert_eq!(far.collect(false).unwrap_err(), too_long());
        },
    ];
    for fail in fails {
        let mut far = Far::new();
        for _ in 0..MAX_FRUITLESS {
            assert!(is_detailed(&far, false));
            fail(&mut far);
        }
        for _ in 0..5 {
            assert!(!is_detailed(&far, false));
            assert!(!far.board.next_requests(false).iter().any(is_rollup));
            assert!(is_detailed(&far, true));
            fail(&mut far);
        }
        // Once the node has time, missing files are requested as usual, even without detailed samples.
        let host = host();
        let read = (0..6).find_map(|_| far.sample(false, |ask| agent_answer(&host, ask)).ok());
        let readings = far.readings(&read.expect("a sample"));
        assert_eq!(readings.get("host_cgroup/memory/memory_limit"), Some(&1_000_000), "{readings:?}");
        far.sample(true, |ask| agent_answer(&host, ask)).unwrap();
        assert!(!is_detailed(&far, false));
    }
}

#[test]
fn a_first_sample_without_detail_omits_the_rollup() {
    let host = host();
    let (mut far, _) = Far::explored(&host);
    let sample = far.sample(false, |ask| agent_answer(&host, ask)).unwrap();
    let gaps: Vec<_> = sample.gaps.iter().map(|gap| gap.source.as_str()).collect();
    assert_eq!(
        gaps,
        [
            "host.listen",
            "host.open_files",
            "host.programs",
            "host.smaps",
            "host.smaps_rollup",
            "host.tcp",
            "host.tcp_closed",
            "host.udp"
        ]
    );
    let pss = "host_process//pss";
    assert!(!far.readings(&sample).contains_key(pss));
    let sample = far.sample(true, |ask| agent_answer(&host, ask)).unwrap();
    assert_eq!(far.readings(&sample).get(pss), Some(&(90 * 1024)));
}

/// Takes a detailed sample that takes this many milliseconds. Returns the PSS from `smaps_rollup`, or the reason for its gap.
fn rollup_after(far: &mut Far, host: &FakeHost, took_ms: i64) -> Result<i64, String> {
    let sample = far.sample_in(took_ms * 1_000_000, true, |ask| agent_answer(host, ask)).unwrap();
    let why = |gap: &Gap| (gap.source == "host.smaps_rollup").then(|| gap.reason.clone());
    match far.readings(&sample).get("host_process//pss") {
        Some(pss) => Ok(*pss),
        None => Err(sample.gaps.iter().find_map(why).expect("a reason")),
    }
}

#[test]
fn a_rollup_that_delays_a_remote_vm_is_not_read_again() {
    let host = host();
    let (mut far, _) = Far::explored(&host);
    let is_asked = |far: &Far| far.board.next_requests(true).iter().any(is_rollup);
    assert_eq!(rollup_after(&mut far, &host, 100), Ok(90 * 1024));
    assert_eq!(rollup_after(&mut far, &host, 130), Ok(90 * 1024));
    assert!(!is_asked(&far));
    let why = rollup_after(&mut far, &host, 9).unwrap_err();
    assert!(why.contains("it may have taken most of the 130 ms in which all files were read"), "{why}");
    for _ in 0..3 {
        assert!(!is_asked(&far));
        let why = rollup_after(&mut far, &host, 9).unwrap_err();
        assert!(why.contains("it took about 121 ms, blocking changes of the VM's memory mappings"), "{why}");
    }
    // The file is requested again for the next incarnation of the VM, which may have less memory.
    host.file("/proc/7/stat", FakeHost::stat(7, "beam.smp", 1, 1, 900));
    let read = (0..4).find_map(|_| {
        let sample = far.sample(true, |ask| agent_answer(&host, ask)).ok()?;
        far.readings(&sample).get("host_process//pss").copied()
    });
    assert_eq!(read, Some(90 * 1024));
}

#[test]
fn the_rollup_is_still_read_if_the_node_is_slow_without_it() {
    let host = host();
    let (mut far, _) = Far::explored(&host);
    let results: Vec<_> = (0..8).map(|_| rollup_after(&mut far, &host, 150).is_ok()).collect();
    // It is omitted while the time for the other files is measured, and in the sample after which it may be requested again.
    assert_eq!(results, [true, false, false, true, false, false, true, false]);
}

#[test]
fn a_hanging_remote_rollup_is_not_requested_again() {
    let host = host();
    let (mut far, _) = Far::explored(&host);
    let hangs = |ask: &FileRequest| match is_rollup(ask) {
        true => FileReply::Failed(FileError::Hung),
        false => agent_answer(&host, ask),
    };
    far.sample(true, hangs).unwrap();
    let why = rollup_after(&mut far, &host, 1).unwrap_err();
    assert!(why.contains("it hung, blocking"), "{why}");
    assert!(!far.board.next_requests(true).iter().any(is_rollup));
}

#[test]
fn a_restarted_vm_is_another_process() {
    let host = host();
    let (mut far, _) = Far::explored(&host);
    far.sample(true, |ask| agent_answer(&host, ask)).unwrap();
    far.sample(false, |ask| agent_answer(&host, ask)).unwrap();
    host.file("/proc/7/stat", FakeHost::stat(7, "beam.smp", 1, 1, 900));
    let samples: Vec<_> =
        (0..3).filter_map(|_| far.sample(false, |ask| agent_answer(&host, ask)).ok()).collect();
    // Its facts are reported again.
    assert!(samples.iter().any(|sample| sample.facts.iter().any(|(key, _)| key == facts::HOST_NAME)));
    assert!(samples.len() >= 2);
}

#[test]
fn threads_that_are_omitted_from_a_sample_are_not_gaps() {
    let host = host();
    let (mut far, _) = Far::explored(&host);
    far.sample(true, |ask| agent_answer(&host, ask)).unwrap();
    let only = |which: Option<u32>| {
        let host = &host;
        move |ask: &FileRequest| match agent_answer(host, ask) {
            FileReply::Threads { tids, mut read } => {
                read.retain(|thread| Some(thread.tid) == which);
                FileReply::Threads { tids, read }
            }
            other => other,
        }
    };
    let waits = |entity: &str| format!("host_thread/{entity}/run_queue_wait");
    for (which, entity) in [(Some(7), Some("other/beam.smp/7")), (Some(8), Some("scheduler/1")), (None, None)]
    {
        let sample = far.sample(false, only(which)).unwrap();
        assert_eq!(sample.gaps, []);
        let readings = far.readings(&sample);
        let found: Vec<_> =
            readings.keys().filter(|name| name.ends_with("/run_queue_wait")).cloned().collect();
        assert_eq!(found, entity.map(waits).into_iter().collect::<Vec<_>>(), "{readings:?}");
        assert!(readings.contains_key("host_process//rss"));
    }
    let late = |ask: &FileRequest| match ask {
        FileRequest::Threads { .. } => FileReply::Failed(FileError::Late),
        _ => agent_answer(&host, ask),
    };
    let sample = far.sample(false, late).unwrap();
    let gaps: Vec<_> = sample.gaps.iter().map(|gap| (gap.source.as_str(), gap.kind)).collect();
    assert_eq!(gaps, [("host.threads", TroubleKind::TimedOut)]);
    assert_eq!(sample.gaps[0].end, 5 * SECOND_NS + 9);
}

#[test]
fn an_unreadable_file_is_a_gap_with_its_reason() {
    let host = host();
    let (mut far, _) = Far::explored(&host);
    let answer = |ask: &FileRequest| match ask {
        FileRequest::Read { path, .. } if path == "/proc/pressure/cpu" => FileReply::Failed(FileError::Hung),
        FileRequest::Read { path, .. } if path.ends_with("cpu.max") => FileReply::Failed(FileError::Denied),
        FileRequest::Count(_) => FileReply::Failed(FileError::Unsupported),
        _ => agent_answer(&host, ask),
    };
    let sample = far.sample(true, answer).unwrap();
    let gaps: Vec<_> =
        sample.gaps.iter().map(|gap| format!("{} {:?}: {}", gap.source, gap.kind, gap.reason)).collect();
    assert_eq!(
        gaps,
        [
            "host.cgroup_limits Denied: the node is not allowed to read /sys/fs/cgroup/pod/app/cpu.max on its host",
            "host.listen Unsupported: not available: the node runs on another host",
            "host.open_fds Unsupported: this kernel does not provide /proc/7/fd",
            "host.pressure TimedOut: reading /proc/pressure/cpu hangs on the node's host",
            "host.programs Unsupported: not available: the node runs on another host",
            "host.smaps Unsupported: not available: the node runs on another host",
            "host.tcp Unsupported: not available: the node runs on another host",
            "host.tcp_closed Unsupported: not available: the node runs on another host",
            "host.udp Unsupported: not available: the node runs on another host",
        ]
    );
}

#[test]
fn the_reason_is_reported_if_no_file_is_readable() {
    let mut far = Far::new();
    let trouble = far.sample(true, |_| FileReply::Failed(FileError::Missing)).unwrap_err();
    assert_eq!(trouble.kind, TroubleKind::Unsupported);
    assert!(trouble.reason.contains("/proc is not mounted"), "{trouble}");
    let trouble = far.sample(true, |_| FileReply::Failed(FileError::Denied)).unwrap_err();
    assert_eq!(trouble.kind, TroubleKind::Denied);
    // The agent does not answer.
    let trouble = far.collect(false).unwrap_err();
    assert_eq!(trouble.kind, TroubleKind::Gone);
    let why = SourceTrouble::new(TroubleKind::Unsupported, "no Linux");
    far.board.put_replies(FileReplies { span: Span { begin: 0, end: 0 }, replies: Err(why.clone()) });
    assert_eq!(far.collect(false).unwrap_err(), why);
}

#[test]
fn requests_match_the_lists_of_the_agent() {
    let agent = include_str!("../../../../agent/src/parts/host_files.hrl");
    let define = |name: &str| {
        let from = agent.split(&format!("-define({name}, [")).nth(1).unwrap();
        let list = from.split("]).").next().unwrap();
        let mut names: Vec<&str> =
            list.split("<<\"").skip(1).map(|item| item.split('"').next().unwrap()).collect();
        names.sort_unstable();
        names
    };
    let sorted = |names: &[&'static str]| {
        let mut names = names.to_vec();
        names.sort_unstable();
        names
    };
    assert_eq!(define("HOST_FILES"), sorted(FILES));
    assert_eq!(define("GROUP_FILES"), sorted(GROUP_FILES));
    assert_eq!(define("HOST_LINKS"), [NAMESPACE]);
    assert_eq!(define("HOST_FOLDERS"), [OPEN_FILES]);
    for path in [
        "/proc/self/environ",
        "/proc/1/stat",
        "/etc/passwd",
        "/sys/fs/cgroup/../../../etc/cpu.max",
        "/sys/fs/cgroup//cpu.max",
        "/sys/fs/cgroup/./cpu.max",
        "/sys/fs/cgroup/a\0/cpu.max",
        "/sys/fs/cgroup/cgroup.procs",
        "/sys/fs/cgroupx/cpu.max",
        "/sys/fs/cgroup/",
    ] {
        assert!(!is_readable(path), "{path:?}");
    }
    assert!(is_readable("/sys/fs/cgroup/cpu.max") && is_readable("/sys/fs/cgroup/a b/c/cpu.stat"));
}

#[test]
fn the_number_of_requests_is_limited_if_control_groups_change() {
    let host = host();
    let (mut far, _) = Far::explored(&host);
    for number in 0..60 {
        let group = format!("/pod/{number}");
        host.file(&format!("/sys/fs/cgroup{group}/cgroup.controllers"), "cpu\n");
        host.file("/proc/7/cgroup", format!("0::{group}\n"));
        for _ in 0..4 {
            let _ = far.sample(true, |ask| agent_answer(&host, ask));
            assert!(far.board.next_requests(true).len() <= MAX_ASKS);
        }
    }
    assert!((0..4).any(|_| far.sample(true, |ask| agent_answer(&host, ask)).is_ok()));
}

proptest! {
    // Each case creates a host of about 40 files.
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn arbitrary_answers_do_not_panic(
        content in proptest::collection::vec(any::<u8>(), 0..300),
        which in 0_usize..40,
        tid in any::<u32>(),
    ) {
        let host = host();
        let (mut far, _) = Far::explored(&host);
        let rubbish = |ask: &FileRequest| match ask {
            FileRequest::Read { .. } => FileReply::Content(content.clone()),
            FileRequest::Link(_) => FileReply::Link(String::from_utf8_lossy(&content).into_owned()),
            FileRequest::Count(_) => FileReply::Count(u64::MAX),
            FileRequest::Threads { .. } => {
                let thread = ThreadFiles { tid, stat: content.clone(), schedstat: content.clone(), status_end: content.clone() };
                FileReply::Threads { tids: vec![tid, tid, 8], read: vec![thread.clone(), thread] }
            }
        };
        for _ in 0..3 {
            let asked = far.board.next_requests(true);
            let chosen = asked.get(which % asked.len()).cloned();
            let _ = far.sample(true, |ask| if Some(ask) == chosen.as_ref() { rubbish(ask) } else { agent_answer(&host, ask) });
        }
        let _ = far.sample(true, rubbish);
        prop_assert!(far.board.next_requests(true).len() <= MAX_ASKS);
    }
}
