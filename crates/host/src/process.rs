//! Parsers for the files of one process: `/proc/PID/stat`, `status`, `smaps_rollup`, `limits`.
//!
//! See proc(5) and the kernel's Documentation/filesystems/proc.rst.

use beamtune_model::Nanos;
use beamtune_model::units::SECOND_NS;

use crate::error::HostError;
use crate::text::{self, Garble};
use crate::tree::FileTree;

/// Size limit of a file about one process or thread; actual files have less than 10 kB.
pub(crate) const SMALL_FILE_BYTES: usize = 64 * 1024;
/// The bit of [`Stat::flags`] that marks kernel threads (PF_KTHREAD).
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Returns the duration of a clock tick, the unit of process times: 10 ms on nearly all hosts.
pub fn tick_ns() -> Nanos {
    let per_second = rustix::param::clock_ticks_per_second();
    SECOND_NS / i64::try_from(per_second).unwrap_or(100).clamp(1, SECOND_NS)
}

/// Calculates the host's page size from a process's resident memory in bytes and in pages; `None` if the two values are inconsistent.
/// They are not read at the same time, so the ratio is rounded to a power of two: 4 kB on most hosts, 16 or 64 kB on some.
pub(crate) fn page_bytes(rss_bytes: i64, rss_pages: i64) -> Option<i64> {
    let ratio = rss_bytes as f64 / rss_pages as f64;
    (12..=16).map(|bits| 1_i64 << bits).find(|size| (0.75..1.5).contains(&(ratio / *size as f64)))
}

/// The fields of `/proc/PID/stat` or `/proc/PID/task/TID/stat` that beamtune uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat<'a> {
    /// The short name: at most 15 arbitrary bytes, set by the process.
    pub comm: &'a [u8],
    /// `R`, `S`, `D`, `Z` …
    pub state: u8,
    /// Process id of the parent.
    pub ppid: u32,
    /// Process id of the session leader, which may have ended; 0 for kernel threads.
    pub session: u32,
    /// The kernel's task flags.
    pub flags: u64,
    /// Page faults that needed no I/O.
    pub minor_faults: i64,
    /// Page faults that needed I/O.
    pub major_faults: i64,
    /// CPU time in user mode, in clock ticks.
    pub user_ticks: i64,
    /// CPU time in the kernel, in clock ticks.
    pub system_ticks: i64,
    /// CPU time of descendants that have ended and were waited for, in clock ticks.
    pub children_ticks: i64,
    /// Number of threads.
    pub threads: i64,
    /// Start time, in clock ticks since boot.
    pub start_ticks: i64,
    /// Resident memory, in pages.
    pub rss_pages: Option<i64>,
}

impl<'a> Stat<'a> {
    /// Parses the line. The short name is in parentheses and may itself contain spaces and parentheses, so it ends at the last
    /// closing parenthesis.
    pub fn parse(content: &'a [u8]) -> Result<Self, Garble> {
        let garble = |expected| Garble::new(expected, content);
        let open = content.iter().position(|byte| *byte == b'(').ok_or(garble("a name in parentheses"))?;
        let close = content.iter().rposition(|byte| *byte == b')').ok_or(garble("a name in parentheses"))?;
        let comm = content.get(open + 1..close).ok_or(garble("a name in parentheses"))?;
        // Fields are numbered as in proc(5); two precede the state.
        let fields: Vec<&[u8]> =
            text::fields(content.get(close + 1..).unwrap_or_default().trim_ascii_end()).take(23).collect();
        let field = |index: usize| fields.get(index - 3).copied();
        let number = |index| field(index).and_then(text::reading);
        let all = || {
            // Another field must follow; otherwise, the last number may be truncated.
            field(23)?;
            Some(Stat {
                comm,
                state: *field(3)?.first()?,
                ppid: u32::try_from(number(4)?).ok()?,
                session: u32::try_from(number(6)?).ok()?,
                flags: text::number(field(9)?)?,
                minor_faults: number(10)?,
                major_faults: number(12)?,
                user_ticks: number(14)?,
                system_ticks: number(15)?,
                children_ticks: number(16)?.saturating_add(number(17)?),
                threads: number(20)?,
                start_ticks: number(22)?,
                rss_pages: field(25).and(number(24)),
            })
        };
        all().ok_or(garble("the numbers of proc(5) after the name"))
    }

    /// CPU time of the process and of children that were waited for, in clock ticks.
    pub(crate) fn all_ticks(&self) -> i64 {
        self.user_ticks.saturating_add(self.system_ticks).saturating_add(self.children_ticks)
    }

    /// Whether the process has ended or is ending, and thus has no memory and no open files.
    pub fn is_ending(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// Whether this is a kernel thread.
    pub fn is_kernel_thread(&self) -> bool {
        self.flags & KERNEL_THREAD != 0
    }
}

/// The fields of `/proc/PID/status` that beamtune uses; `None` for those that the kernel does not provide.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Effective user id.
    pub uid: Option<u32>,
    /// Resident memory.
    pub rss_bytes: Option<i64>,
    /// Swapped-out memory.
    pub swap_bytes: Option<i64>,
    /// Number of threads.
    pub threads: Option<i64>,
    /// CPUs that it may run on, in the kernel's list format: `0-3,8`.
    pub cpus_allowed: Option<String>,
    /// Its process id in each PID namespace, from the reader's to its innermost one.
    pub pids: Vec<u32>,
}

impl Status {
    /// Parses the available fields.
    pub fn parse(content: &[u8]) -> Self {
        let list = |key| text::value(content, key).into_iter().flat_map(text::fields);
        let small = |field: &[u8]| u32::try_from(text::number(field)?).ok();
        Status {
            uid: list("Uid:").nth(1).and_then(small),
            rss_bytes: text::kilobytes(content, "VmRSS:"),
            swap_bytes: text::kilobytes(content, "VmSwap:"),
            threads: text::value(content, "Threads:").and_then(text::reading),
            cpus_allowed: text::value(content, "Cpus_allowed_list:")
                .map(|list| text::printable(&String::from_utf8_lossy(list))),
            pids: list("NSpid:").map_while(small).take(32).collect(),
        }
    }
}

/// Parses the number of voluntary and involuntary context switches in `/proc/PID/task/TID/status`. The search starts at the end, because
/// they are in the last two lines, and this function is called for every thread in every sample.
pub fn switches(status: &[u8]) -> Option<(i64, i64)> {
    let mut lines = status.trim_ascii_end().rsplit(|byte| *byte == b'\n');
    let involuntary = lines.find_map(|line| line.strip_prefix(b"nonvoluntary_ctxt_switches:"))?;
    let voluntary = lines.next()?.strip_prefix(b"voluntary_ctxt_switches:")?;
    Some((text::reading(voluntary.trim_ascii())?, text::reading(involuntary.trim_ascii())?))
}

/// Counts the CPUs in a kernel list: 5 for `0-3,8`. `None` if the list is invalid.
pub fn cpus_in_list(list: &str) -> Option<i64> {
    list.split(',').try_fold(0_i64, |sum, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text::reading(text.trim().as_bytes());
        let (first, last) = (number(first)?, number(last)?);
        sum.checked_add(last.checked_sub(first).filter(|more| *more >= 0)?.checked_add(1)?)
    })
}

/// The fields of `/proc/PID/smaps_rollup` that beamtune uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rollup {
    /// Proportional set size: each shared page counts as its size divided by the number of processes that share it.
    pub pss_bytes: Option<i64>,
    /// Memory in transparent huge pages.
    pub anon_huge_bytes: Option<i64>,
}

impl Rollup {
    /// Parses the available fields.
    pub fn parse(content: &[u8]) -> Self {
        Rollup {
            pss_bytes: text::kilobytes(content, "Pss:"),
            anon_huge_bytes: text::kilobytes(content, "AnonHugePages:"),
        }
    }
}

/// Parses the soft and the hard limit of open files in `/proc/PID/limits`: numbers, or `unlimited`.
pub fn open_files_limit(limits: &[u8]) -> Option<(String, String)> {
    let mut values = text::fields(text::value(limits, "Max open files")?);
    let mut limit = || {
        let field = values.next()?;
        (field == b"unlimited" || text::number(field).is_some())
            .then(|| String::from_utf8_lossy(field).into_owned())
    };
    Some((limit()?, limit()?))
}

/// Identifies a process. Process ids are reused, so the start time is part of the identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Process id in our namespace.
    pub pid: u32,
    /// Start time, in clock ticks since boot.
    pub start_ticks: i64,
}

impl Identity {
    /// Identifies the process that currently has this id.
    pub fn of(tree: &impl FileTree, pid: u32) -> Result<Self, HostError> {
        let mut content = Vec::new();
        let stat = read_stat(tree, pid, &mut content)?;
        Ok(Identity { pid, start_ticks: stat.start_ticks })
    }

    /// Returns a text that distinguishes this process from any other, even after a reboot.
    pub fn boot(&self, tree: &impl FileTree) -> String {
        let boot_id = tree.read("/proc/sys/kernel/random/boot_id", SMALL_FILE_BYTES).unwrap_or_default();
        format!("{} ticks after boot {}", self.start_ticks, text::printable(&text::first_line(&boot_id)))
    }
}

/// Reads `/proc/PID/stat`. Fails if the process has ended or is ending.
pub(crate) fn read_stat<'a>(
    tree: &impl FileTree,
    pid: u32,
    content: &'a mut Vec<u8>,
) -> Result<Stat<'a>, HostError> {
    let path = format!("/proc/{pid}/stat");
    tree.read_start(&path, SMALL_FILE_BYTES, content).map_err(|error| match error {
        HostError::Missing { .. } => HostError::Ended { pid },
        other => other,
    })?;
    match Stat::parse(content) {
        Ok(stat) if stat.is_ending() => Err(HostError::Ended { pid }),
        Ok(stat) => Ok(stat),
        Err(garble) => Err(HostError::garbled(&path, garble)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STAT: &str = "23503 (beam.smp) S 23499 23503 23499 0 -1 4194304 51523 2 17 3 28712 155 1 2 20 0 19 0 \
                        5571 2379137024 36513 18446744073709551615 1 1 0 0 0 0 0 4096 134759 0 0 0 17 1 0 0 0 0 0 0 0 \
                        0 0 0 0 0 0\n";

    #[test]
    fn fields_of_a_process_are_parsed() {
        let stat = Stat::parse(STAT.as_bytes()).unwrap();
        let expect = Stat {
            comm: b"beam.smp",
            state: b'S',
            ppid: 23499,
            session: 23499,
            flags: 4_194_304,
            minor_faults: 51_523,
            major_faults: 17,
            user_ticks: 28_712,
            system_ticks: 155,
            children_ticks: 3,
            threads: 19,
            start_ticks: 5_571,
            rss_pages: Some(36_513),
        };
        assert_eq!(stat, expect);
        assert!(!stat.is_ending() && !stat.is_kernel_thread());
    }

    #[test]
    fn a_name_may_contain_spaces_and_parentheses() {
        let check = |name: &str| {
            let content = STAT.replacen("beam.smp", name, 1);
            let stat = Stat::parse(content.as_bytes()).unwrap();
            assert_eq!((stat.comm, stat.start_ticks), (name.as_bytes(), 5_571), "{name:?}");
        };
        check("a b");
        check(") S 1 (");
        check("");
        check("((");
        check("1) Z 2 3 4 5\n6");
    }

    #[test]
    fn a_truncated_or_garbled_line_is_refused_with_a_reason() {
        let check = |content: &str, expect: &str| {
            let garble = Stat::parse(content.as_bytes()).unwrap_err();
            assert_eq!(garble.expected, expect, "{content:?}");
        };
        check("", "a name in parentheses");
        check("1 beam.smp S", "a name in parentheses");
        check("1 )beam( S", "a name in parentheses");
        check("1 (beam.smp) S 2", "the numbers of proc(5) after the name");
        check(&STAT.replace("28712", "-1"), "the numbers of proc(5) after the name");
        check(&STAT.replace("5571", "99999999999999999999"), "the numbers of proc(5) after the name");
    }

    #[test]
    fn kernel_threads_and_zombies_are_recognized() {
        let kernel = STAT.replace("4194304", "2129984");
        assert!(Stat::parse(kernel.as_bytes()).unwrap().is_kernel_thread());
        let zombie = STAT.replace(") S", ") Z");
        assert!(Stat::parse(zombie.as_bytes()).unwrap().is_ending());
    }

    #[test]
    fn available_status_fields_are_parsed() {
        let content =
            b"Name:\tbeam.smp\nUid:\t0\t112\t0\t0\nNSpid:\t4711\t17\nVmRSS:\t  146052 kB\nVmSwap:\t 12 kB\n\
                        Threads:\t21\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1\n";
        let expect = Status {
            uid: Some(112),
            rss_bytes: Some(146_052 * 1024),
            swap_bytes: Some(12 * 1024),
            threads: Some(21),
            cpus_allowed: Some("0-1".to_owned()),
            pids: vec![4711, 17],
        };
        assert_eq!(Status::parse(content), expect);
        assert_eq!(Status::parse(b"Name:\tbeam.smp\nVmRSS: much\n"), Status::default());
    }

    #[test]
    fn switches_are_parsed_from_the_end() {
        let check = |content: &str, expect| assert_eq!(switches(content.as_bytes()), expect, "{content:?}");
        check(
            "Name:\tx\nvoluntary_ctxt_switches:\t1274\nnonvoluntary_ctxt_switches:\t18\n",
            Some((1274, 18)),
        );
        check(
            "voluntary_ctxt_switches:\t1\nnonvoluntary_ctxt_switches:\t2\nx86_Thread_features:\t\n",
            Some((1, 2)),
        );
        check("voluntary_ctxt_switches:\t1274\n", None);
        check("nonvoluntary_ctxt_switches:\t18\n", None);
        check("voluntary_ctxt_switches:\tx\nnonvoluntary_ctxt_switches:\t18\n", None);
        check("", None);
    }

    #[test]
    fn cpus_in_a_list_are_counted() {
        let check = |list, expect| assert_eq!(cpus_in_list(list), expect, "{list:?}");
        check("0", Some(1));
        check("0-3,8", Some(5));
        check("0-1023", Some(1024));
        check("", None);
        check("3-1", None);
        check("a-b", None);
        check("0-9223372036854775807", None);
    }

    #[test]
    fn limits_may_be_missing_or_unlimited() {
        let limits =
            |line: &str| format!("Limit   Soft Limit   Hard Limit   Units\nMax cpu time unlimited\n{line}\n");
        let check = |line: &str, expect: Option<(&str, &str)>| {
            let expect = expect.map(|(soft, hard)| (soft.to_owned(), hard.to_owned()));
            assert_eq!(open_files_limit(limits(line).as_bytes()), expect, "{line}");
        };
        check(
            "Max open files            20000                unlimited            files     ",
            Some(("20000", "unlimited")),
        );
        check("Max open files            20000", None);
        check("Max open files            lots                 many                 files", None);
        check("", None);
    }

    #[test]
    fn page_size_follows_from_memory_in_bytes_and_pages() {
        let check = |bytes, pages, expect| assert_eq!(page_bytes(bytes, pages), expect, "{bytes} in {pages}");
        check(146_052 << 10, 36_513, Some(4 << 10));
        check(146_052 << 10, 9_128, Some(16 << 10));
        check(146_048 << 10, 2_282, Some(64 << 10));
        // The memory grew or shrank between the two reads.
        check(190_000 << 10, 9_128, Some(16 << 10));
        check(120_000 << 10, 9_128, Some(16 << 10));
        check(0, 9_128, None);
        check(146_052 << 10, 0, None);
        check(0, 0, None);
        check(1_000, 9_128, None);
        check(i64::MAX, 1, None);
    }

    #[test]
    fn a_rollup_is_parsed() {
        let content = b"55d0-7ffd ---p 00000000 00:00 0    [rollup]\nRss:  149824 kB\nPss:  145555 kB\n\
                        Pss_Anon: 1 kB\nAnonHugePages:     2048 kB\n";
        let expect = Rollup { pss_bytes: Some(145_555 * 1024), anon_huge_bytes: Some(2048 * 1024) };
        assert_eq!(Rollup::parse(content), expect);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(content in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Stat::parse(&content);
            let _ = Status::parse(&content);
            let _ = Rollup::parse(&content);
            let _ = switches(&content);
            let _ = open_files_limit(&content);
            let _ = cpus_in_list(&String::from_utf8_lossy(&content));
        }

        #[test]
        fn a_truncated_line_is_parsed_correctly_or_refused(cut in 0..STAT.len()) {
            if let Ok(stat) = Stat::parse(&STAT.as_bytes()[..cut]) {
                prop_assert_eq!(stat.start_ticks, 5_571);
            }
        }
    }
}
