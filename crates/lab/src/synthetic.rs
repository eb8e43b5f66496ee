//! Recordings of synthetic nodes, for faults that cannot be produced. Each also has a healthy variant, without the fault.
//!
//! They are written and read like any recording. Since they were not measured, they are counted separately.

use anyhow::{Result, bail};
use beamtune_model::facts;
use beamtune_recording::{Reader, Writer};
use beamtune_synthetic::{SyntheticAllocator, SyntheticNode, node};

/// OTP releases of synthetic nodes, and the ERTS version used for each.
const RELEASES: [(u32, &str); 4] = [(23, "11.1.8"), (25, "13.2.2.16"), (27, "15.2.7.4"), (29, "17.1")];

/// The default release of `beamtune lab synthetic`.
pub const DEFAULT_RELEASE: u32 = 25;

/// First and last release.
const ALL: (u32, u32) = (23, 29);

const MB: i64 = 1 << 20;

/// A synthetic node with a fault, and its healthy variant.
pub struct Case {
    /// The name.
    pub name: &'static str,
    /// The fault.
    pub title: &'static str,
    /// Expected findings, as in a lab's manifest.
    pub expect: &'static [&'static str],
    /// Allowed findings, as in a lab's manifest.
    pub allow: &'static [&'static str],
    /// First and last release that can have the fault.
    releases: (u32, u32),
    /// Builds the sick (`true`) or the healthy node.
    node: fn(bool) -> SyntheticNode,
}

impl Case {
    /// Returns the releases that can have the fault.
    pub fn releases(&self) -> impl Iterator<Item = u32> {
        let (first, last) = self.releases;
        RELEASES
            .into_iter()
            .map(|(release, _)| release)
            .filter(move |release| (first..=last).contains(release))
    }

    /// Creates the recording in memory.
    pub fn recording(&self, is_sick: bool, release: u32) -> Result<Reader> {
        Ok(self.write(Writer::in_memory()?, is_sick, release)?)
    }

    /// Writes the recording, with a fact that marks it as synthetic.
    pub fn write(
        &self,
        mut writer: Writer,
        is_sick: bool,
        release: u32,
    ) -> Result<Reader, beamtune_recording::Error> {
        let setting = if is_sick { "sick" } else { "healthy" };
        let what = format!("{}; {setting}", self.title);
        let node = of_release((self.node)(is_sick), release);
        let (samples, table) = fact(node, facts::SYNTHETIC, &what).samples();
        for sample in &samples {
            writer.append(sample, &table)?;
        }
        writer.finish()
    }
}

/// Finds a case by name.
pub fn find(name: &str) -> Result<&'static Case> {
    match CASES.iter().find(|case| case.name == name) {
        Some(case) => Ok(case),
        None => bail!("no synthetic recording {name:?}; list them with: beamtune lab list"),
    }
}

/// All cases.
pub const CASES: &[Case] = &[
    Case {
        name: "stolen-cpu",
        title: "steal: the hypervisor gives the guest's CPUs to others",
        expect: &["BT004:steal"],
        allow: &[],
        releases: ALL,
        node: |is_sick| node().with(|n| n.steal = if is_sick { 0.4 } else { 0.01 }),
    },
    Case {
        name: "swapped-out",
        title: "a host short of memory, with swap in use",
        expect: &["BT019"],
        allow: &[],
        releases: ALL,
        node: |is_sick| {
            node().with(|n| (n.swapped, n.major_faults) = if is_sick { (100 * MB, 50) } else { (MB, 0) })
        },
    },
    Case {
        name: "huge-pages",
        title: "4 GB resident, 3 GB of them in transparent huge pages, and 1.5 GB used; healthy: nearly all used",
        expect: &["BT020"],
        // The VM's view of the same memory.
        allow: &["BT024"],
        releases: ALL,
        node: |is_sick| {
            let pages = fact(node(), facts::HUGE_PAGES, "always");
            pages.with(|n| {
                n.used = if is_sick { 1_500 } else { 3_800 } * MB;
                (n.resident, n.huge) = (4_000 * MB, 3_000 * MB);
                let heaps = SyntheticAllocator {
                    mbcs: [500, 3_900 * MB, 100_000, n.used - 50 * MB],
                    peak: (3_900 * MB, 3_800 * MB),
                    ..SyntheticAllocator::default()
                };
                n.allocators =
                    vec![heaps, SyntheticAllocator { name: "fix_alloc", ..SyntheticAllocator::small() }];
            })
        },
    },
    Case {
        name: "slow-clock-source",
        title: "half a core in the kernel, with a clock source that needs a system call; healthy: one without",
        expect: &["BT022"],
        allow: &[],
        releases: ALL,
        node: |is_sick| {
            let source = if is_sick { "acpi_pm" } else { "kvm-clock" };
            fact(node(), facts::CLOCKSOURCE, source).with(|n| n.system = 0.5)
        },
    },
    Case {
        name: "clock-running-off",
        title: "a VM clock that gains 1 s in 100 s and is 60 s behind the host's; healthy: both agree",
        expect: &["BT021"],
        allow: &[],
        releases: ALL,
        node: |is_sick| {
            node()
                .with(|n| (n.clock_gain, n.clock_ahead) = if is_sick { (0.0098, -60.0) } else { (0.0, 0.01) })
        },
    },
    Case {
        name: "burstable-instance",
        title: "an instance with CPU credits; healthy: one of the same size without",
        expect: &["BT036:instance type"],
        allow: &[],
        releases: ALL,
        node: |is_sick| {
            let machine = if is_sick { "Amazon EC2 t3.medium" } else { "Amazon EC2 m5.large" };
            fact(node(), facts::MACHINE, machine)
        },
    },
    Case {
        name: "two-memory-nodes",
        title: "CPUs of two NUMA nodes; healthy: the VM uses those of one",
        expect: &["BT052:*"],
        allow: &[],
        releases: ALL,
        node: |is_sick| {
            let nodes = fact(node(), facts::NUMA_NODES, r#"["0-1","2-3"]"#);
            fact(nodes, facts::CPUS_ALLOWED, if is_sick { "0-3" } else { "0-1" })
        },
    },
    Case {
        name: "poll-in-place-of-epoll",
        title: "a build without kernel poll, with 5,000 sockets; healthy: one with it",
        expect: &["BT013"],
        allow: &[],
        releases: ALL,
        node: |is_sick| node().with(|n| (n.epoll, n.descriptors) = (!is_sick, 5_000)),
    },
    Case {
        name: "poll-thread-full",
        title: "one poll thread for 40,000 busy sockets, which uses a core; healthy: half a core",
        expect: &["BT059"],
        allow: &[],
        releases: ALL,
        node: |is_sick| {
            hundred_cores(16).with(|n| {
                (n.cpus, n.utilization, n.cpu, n.active_tasks, n.descriptors) = (16, 0.45, 0.5, 8, 40_000);
                n.poll_threads = vec![if is_sick { (0.98, 0.7) } else { (0.5, 0.4) }];
            })
        },
    },
    Case {
        name: "interpreter",
        title: "a busy node with an interpreting emulator; healthy: one with the JIT",
        expect: &["BT034:interpreter"],
        allow: &[],
        releases: (24, 29),
        node: |is_sick| {
            fact(node(), facts::EMU_FLAVOR, if is_sick { "emu" } else { "jit" }).with(|n| n.cpu = 0.6)
        },
    },
    Case {
        name: "known-defect",
        title: "off-heap messages in an OTP version that may not wake receivers; healthy: one that does",
        expect: &["BT051:ERTS 13.1.5"],
        allow: &[],
        releases: (25, 25),
        node: |is_sick| {
            let version = if is_sick { "13.1.5" } else { "13.2.2.16" };
            fact(fact(node(), facts::MESSAGE_QUEUE_DATA, "off_heap"), facts::ERTS_VERSION, version)
        },
    },
    Case {
        name: "hundred-cores-few-schedulers",
        title: "100 CPUs and 64 schedulers, all busy; healthy: 100 schedulers for the same work",
        expect: &["BT035"],
        allow: &[],
        releases: ALL,
        node: |is_sick| {
            let (schedulers, active, tasks) = if is_sick { (64, 0.97, 110) } else { (100, 0.62, 63) };
            hundred_cores(schedulers)
                .with(|n| (n.utilization, n.cpu, n.active_tasks) = (active, active, tasks))
        },
    },
    Case {
        name: "hundred-cores-small-quota",
        title: "100 schedulers throttled by a quota of 16 cores; healthy: 16 schedulers for the same work",
        expect: &["BT003"],
        // The quota is exhausted in some periods.
        allow: &["BT002"],
        // Older releases do not see the quota, which is another finding.
        releases: (25, 29),
        node: |is_sick| {
            let (schedulers, active) = if is_sick { (100, 0.1) } else { (16, 0.625) };
            hundred_cores(schedulers).with(|n| {
                (n.quota, n.utilization, n.cpu, n.active_tasks) = (Some(16_000), active, active, 11);
                (n.throttled_periods_of_10, n.throttled) = if is_sick { (1, 2.0) } else { (0, 0.0) };
            })
        },
    },
    Case {
        name: "hundred-cores-bound-processes",
        title: "100 schedulers, 40 of them with a run queue of 5, the others idle; healthy: evenly loaded",
        expect: &["BT050"],
        allow: &[],
        releases: ALL,
        node: |is_sick| {
            let uneven = |number| if number < 40 { (1.0, 5) } else { (0.1, 0) };
            let even = |_| (0.46, 0);
            hundred_cores(100).with(|n| {
                (n.utilization, n.cpu) = (0.46, 0.46);
                n.active_tasks = if is_sick { 246 } else { 47 };
                n.per_scheduler =
                    (0..100).map(|number| if is_sick { uneven(number) } else { even(number) }).collect();
            })
        },
    },
];

/// Inserts the facts of the release before all others, so that a case can override the version.
fn of_release(node: SyntheticNode, release: u32) -> SyntheticNode {
    let erts = RELEASES.iter().find(|(known, _)| *known == release).map(|(_, erts)| (*erts).to_owned());
    node.with(|n| {
        let version = erts.map(|erts| (facts::ERTS_VERSION, erts));
        let of = [(facts::OTP_RELEASE, release.to_string())].into_iter().chain(version);
        n.facts.splice(0..0, of);
    })
}

fn fact(node: SyntheticNode, key: &'static str, value: &str) -> SyntheticNode {
    node.with(|n| n.facts.push((key, value.to_owned())))
}

/// Returns a node on a host with 100 CPUs in one memory node.
fn hundred_cores(schedulers: usize) -> SyntheticNode {
    let node = fact(node(), facts::CPUS_ALLOWED, "0-99");
    let node = fact(node, facts::NUMA_NODES, r#"["0-99"]"#);
    let bindings = format!("[{}]", vec![r#""unbound""#; schedulers].join(","));
    fact(node, facts::SCHEDULER_BINDINGS, &bindings).with(|n| {
        (n.schedulers, n.cpus, n.idle) = (schedulers, 100, 30.0);
        n.total_reductions = 500_000_000;
    })
}

#[cfg(test)]
mod tests {
    use beamtune_recording::Selection;

    use super::*;
    use crate::judge::judge_synthetic;
    use crate::rows::{Row, Setting, tests::row};

    #[test]
    fn sick_nodes_have_the_expected_findings_and_healthy_ones_none() {
        for case in CASES {
            for (is_sick, setting) in [(true, Setting::Sick), (false, Setting::Healthy)] {
                assert!(case.releases().next().is_some(), "{}", case.name);
                for release in case.releases() {
                    let judged = judge_synthetic(case, is_sick, release, None).expect("judged");
                    assert_eq!(judged.ranks.len(), case.expect.len() * usize::from(is_sick), "{}", case.name);
                    let row = Row { judged, ..row(case.name, setting) };
                    assert_eq!(row.faults(), [""; 0], "{} on {release}: {row:?}", case.name);
                    // A healthy node must not even have allowed findings.
                    assert!(
                        is_sick || row.above_notice().next().is_none(),
                        "{} on {release}: {row:?}",
                        case.name
                    );
                }
            }
        }
    }

    #[test]
    fn recordings_are_marked_as_synthetic_and_have_unique_names() {
        let labs = crate::catalog::all().expect("labs");
        let software = crate::software::all().expect("software");
        let others =
            labs.into_iter().map(|lab| lab.manifest.name).chain(software.into_iter().map(|case| case.name));
        let mut names: Vec<String> = others.chain(CASES.iter().map(|case| case.name.to_owned())).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for case in CASES {
            for release in case.releases() {
                let recording = case.recording(true, release).expect("written");
                let period = recording.period(&Selection::default()).expect("read");
                let fact = format!("{}; sick", case.title);
                assert_eq!(period.facts.get(facts::SYNTHETIC), Some(fact.as_str()));
                assert_eq!(period.facts.otp_release(), Some(release));
            }
            assert!(case.releases().any(|release| release == DEFAULT_RELEASE), "{}", case.name);
        }
    }
}
