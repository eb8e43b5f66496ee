//! Properties of the host: CPU time, memory, and hardware.

use crate::error::HostError;
use crate::text::{self, Garble};
use crate::tree::FileTree;

/// `/proc/stat` contains a counter per interrupt: tens of kilobytes on a large host.
pub(crate) const STAT_BYTES: usize = 1 << 20;
/// Enough for the first CPU in `/proc/cpuinfo`; the whole file has a megabyte on a large host.
pub(crate) const CPUINFO_BYTES: usize = 8 * 1024;
/// Maximum number of NUMA nodes; the largest hosts have a few hundred.
const MAX_NODES: usize = 1024;
/// Enough for one line.
const LINE_BYTES: usize = 4 * 1024;

/// One folder per NUMA node.
const NODES: &str = "/sys/devices/system/node";

/// The values of `/proc/stat` that beamtune uses. Times are in clock ticks, summed over all CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuTimes {
    /// Time that is neither idle (including waiting for I/O) nor stolen.
    pub busy_ticks: i64,
    /// Idle time, including waiting for I/O, when the CPU has nothing to run either.
    pub idle_ticks: i64,
    /// Steal: time that the hypervisor gave to other guests.
    pub steal_ticks: i64,
    /// Number of CPUs online.
    pub cpus: i64,
    /// Number of running and runnable tasks.
    pub runnable: i64,
}

impl CpuTimes {
    /// Parses the file. See proc(5), and account_user_time in kernel/sched/cputime.c: user and nice include guest time, so it is not added.
    pub fn parse(content: &[u8]) -> Result<Self, Garble> {
        let parsed = || {
            let times: Vec<i64> =
                text::fields(text::value(content, "cpu ")?).map_while(text::reading).take(8).collect();
            let &[user, nice, system, idle, iowait, irq, softirq, steal] = times.as_slice() else {
                return None;
            };
            let sum = |times: &[i64]| times.iter().try_fold(0_i64, |sum, time| sum.checked_add(*time));
            // The line for all CPUs together begins with "cpu ", without a number.
            let is_one_cpu =
                |line: &&[u8]| line.starts_with(b"cpu") && line.get(3).is_some_and(u8::is_ascii_digit);
            Some(CpuTimes {
                busy_ticks: sum(&[user, nice, system, irq, softirq])?,
                idle_ticks: sum(&[idle, iowait])?,
                steal_ticks: steal,
                cpus: text::lines(content).filter(is_one_cpu).count() as i64,
                runnable: text::reading(text::value(content, "procs_running ")?)?,
            })
        };
        parsed().ok_or_else(|| Garble::new("the times of all CPUs, and procs_running", content))
    }
}

/// Parses the memory that is available without swapping, in `/proc/meminfo`; returns bytes.
pub fn memory_available(meminfo: &[u8]) -> Option<i64> {
    text::kilobytes(meminfo, "MemAvailable:")
}

/// Parses the number of pages swapped in and out since boot, in `/proc/vmstat`; `None` if the kernel was built without swap.
pub fn swap_pages(vmstat: &[u8]) -> Option<(i64, i64)> {
    let count = |key| text::reading(text::value(vmstat, key)?);
    Some((count("pswpin ")?, count("pswpout ")?))
}

/// The host's hardware and kernel; `None` for unknown values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// Host name.
    pub name: Option<String>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// Model of the first CPU.
    pub cpu_model: Option<String>,
    /// Vendor and model from the firmware; in clouds, the instance type.
    pub model: Option<String>,
    /// Number of CPUs online.
    pub cpus: Option<i64>,
    /// CPUs of each NUMA node that has any, in the kernel's list format, ordered by node number.
    pub memory_nodes: Option<Vec<String>>,
    /// Total memory.
    pub memory_bytes: Option<i64>,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub huge_pages: Option<String>,
    /// The current clock source.
    pub clock_source: Option<String>,
}

impl Machine {
    /// Reads everything that is available.
    pub fn read(tree: &impl FileTree) -> Self {
        let start = |path: &str, max_bytes| {
            let mut content = Vec::new();
            tree.read_start(path, max_bytes, &mut content).ok().map(|()| content)
        };
        let line = |path: &str| {
            let text = text::printable(&text::first_line(&start(path, LINE_BYTES)?));
            (!text.is_empty()).then_some(text)
        };
        Machine {
            name: line("/proc/sys/kernel/hostname"),
            kernel: line("/proc/sys/kernel/osrelease"),
            cpu_model: start("/proc/cpuinfo", CPUINFO_BYTES)
                .and_then(|content| cpu_model(&content))
                .or_else(|| line("/proc/device-tree/model")),
            model: line("/sys/class/dmi/id/product_name").map(|model| {
                let maker =
                    line("/sys/class/dmi/id/sys_vendor").filter(|maker| !model.starts_with(maker.as_str()));
                maker.map_or(model.clone(), |maker| format!("{maker} {model}"))
            }),
            cpus: cpu_times(tree).ok().map(|times| times.cpus),
            memory_nodes: tree.list(NODES, MAX_NODES).ok().map(|names| {
                let mut numbers: Vec<u32> =
                    names.iter().filter_map(|name| name.strip_prefix("node")?.parse().ok()).collect();
                numbers.sort_unstable();
                numbers.iter().filter_map(|number| line(&format!("{NODES}/node{number}/cpulist"))).collect()
            }),
            memory_bytes: start("/proc/meminfo", LINE_BYTES)
                .and_then(|content| text::kilobytes(&content, "MemTotal:")),
            huge_pages: line("/sys/kernel/mm/transparent_hugepage/enabled").and_then(|line| chosen(&line)),
            clock_source: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        }
    }
}

/// Reads `/proc/stat`.
pub fn cpu_times(tree: &impl FileTree) -> Result<CpuTimes, HostError> {
    let path = "/proc/stat";
    CpuTimes::parse(&tree.read(path, STAT_BYTES)?).map_err(|garble| HostError::garbled(path, garble))
}

/// Parses the model name in `/proc/cpuinfo`. ARM kernels provide the numbers of implementer and part instead.
fn cpu_model(cpuinfo: &[u8]) -> Option<String> {
    let field = |name| {
        let value = String::from_utf8_lossy(text::value(cpuinfo, name)?).into_owned();
        let value = text::printable(value.trim_start_matches(':').trim());
        (!value.is_empty()).then_some(value)
    };
    let numbers =
        || Some(format!("ARM implementer {} part {}", field("CPU implementer")?, field("CPU part")?));
    field("model name").or_else(numbers)
}

/// Returns the word in brackets, as in `always [madvise] never`.
fn chosen(line: &str) -> Option<String> {
    let (_, rest) = line.split_once('[')?;
    let (chosen, _) = rest.split_once(']')?;
    Some(chosen.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fake::FakeHost;

    const STAT: &str = "cpu  100 20 30 4000 50 6 7 80 9 1\ncpu0 50 10 15 2000 25 3 3 40 4 0\n\
                        cpu1 50 10 15 2000 25 3 4 40 5 1\nintr 5 1 2\nctxt 7\nbtime 1700000000\nprocesses 9\n\
                        procs_running 3\nprocs_blocked 0\n";

    #[test]
    fn cpu_time_is_busy_idle_or_stolen() {
        let expect = CpuTimes { busy_ticks: 163, idle_ticks: 4_050, steal_ticks: 80, cpus: 2, runnable: 3 };
        assert_eq!(CpuTimes::parse(STAT.as_bytes()), Ok(expect));
    }

    #[test]
    fn a_truncated_or_malformed_file_is_refused() {
        let check = |content: &str| assert!(CpuTimes::parse(content.as_bytes()).is_err(), "{content:?}");
        check("");
        check("cpu  1 2 3 4\nprocs_running 1\n");
        check(&STAT.replace("procs_running 3", ""));
        check(&STAT.replacen("4000", "-4000", 1));
        check(&STAT.replacen("100", "9223372036854775807", 1));
    }

    #[test]
    fn swap_traffic_is_parsed_if_present() {
        let check = |vmstat: &str, expect| assert_eq!(swap_pages(vmstat.as_bytes()), expect, "{vmstat:?}");
        check("nr_free_pages 5\npgpgin 7\npswpin 12\npswpout 34\npgalloc_dma 1\n", Some((12, 34)));
        check("nr_free_pages 5\n", None);
        check("pswpin 12\npswpout many\n", None);
        check("pswpin 12\n", None);
    }

    #[test]
    fn available_properties_of_the_host_are_read() {
        let host = FakeHost::new();
        assert_eq!(Machine::read(&host.tree()), Machine::default());
        host.file("/proc/sys/kernel/hostname", "web-1\n")
            .file("/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
        host.file(
            "/proc/cpuinfo",
            "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) CPU @ 2.20GHz\n\nprocessor\t: 1\n",
        );
        host.file("/proc/stat", STAT).file("/proc/meminfo", "MemTotal:  16000 kB\nMemAvailable:  8000 kB\n");
        host.file("/sys/class/dmi/id/sys_vendor", "Amazon EC2\n");
        host.file("/sys/class/dmi/id/product_name", "t3.medium\n");
        host.file("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
        host.file("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n");
        // Node 2 has memory, but no CPUs.
        for (node, cpus) in [(0, "0-3\n"), (1, "4-7\n"), (2, "\n")] {
            host.file(&format!("/sys/devices/system/node/node{node}/cpulist"), cpus);
        }
        host.file("/sys/devices/system/node/online", "0-2\n");
        let some = |text: &str| Some(text.to_owned());
        let expect = Machine {
            name: some("web-1"),
            kernel: some("6.1.0-18-amd64"),
            cpu_model: some("Intel(R) Xeon(R) CPU @ 2.20GHz"),
            model: some("Amazon EC2 t3.medium"),
            cpus: Some(2),
            memory_nodes: Some(vec!["0-3".to_owned(), "4-7".to_owned()]),
            memory_bytes: Some(16_000 * 1024),
            huge_pages: some("madvise"),
            clock_source: some("tsc"),
        };
        assert_eq!(Machine::read(&host.tree()), expect);
    }

    #[test]
    fn an_arm_cpu_is_named_by_its_numbers() {
        let cpuinfo = b"processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        assert_eq!(cpu_model(cpuinfo).as_deref(), Some("ARM implementer 0x41 part 0xd0c"));
        assert_eq!(cpu_model(b"processor : 0\n"), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(content in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = CpuTimes::parse(&content);
            let _ = memory_available(&content);
            let _ = swap_pages(&content);
            let _ = cpu_model(&content);
            let _ = chosen(&String::from_utf8_lossy(&content));
        }
    }
}
