//! What no machine at hand can be sick with: recordings of made-up nodes, each with a healthy twin that differs in what makes it sick.
//!
//! They are written as any recording is and read back. Nothing here was measured, so they are never counted with what was.

use anyhow::{Result, bail};
use beamtune_made::{Allocates, Node, node};
use beamtune_model::facts;
use beamtune_recording::{Reader, Writer};

/// Releases that made-up nodes say they are of, with a version of ERTS of each.
const RELEASES: [(u32, &str); 4] = [(23, "11.1.8"), (25, "13.2.2.16"), (27, "15.2.7.4"), (29, "17.1")];

/// The release of one that is written for a person.
pub const USUAL_RELEASE: u32 = 25;

/// Any of them.
const ALL: (u32, u32) = (23, 29);

const MB: i64 = 1 << 20;

/// A machine, sick and healthy.
pub struct Case {
    pub name: &'static str,
    /// What is made up.
    pub title: &'static str,
    /// As in a lab's manifest.
    pub expect: &'static [&'static str],
    pub allow: &'static [&'static str],
    /// The first and the last release that can be sick with it.
    releases: (u32, u32),
    /// The node, sick or not.
    node: fn(bool) -> Node,
}

impl Case {
    /// The releases of which there is such a node.
    pub fn releases(&self) -> impl Iterator<Item = u32> {
        let (first, last) = self.releases;
        RELEASES
            .into_iter()
            .map(|(release, _)| release)
            .filter(move |release| (first..=last).contains(release))
    }

    /// Its recording, in memory.
    pub fn recording(&self, is_sick: bool, release: u32) -> Result<Reader> {
        Ok(self.write(Writer::in_memory()?, is_sick, release)?)
    }

    /// Writes it, and says in its facts what it is.
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

/// The case of a name.
pub fn find(name: &str) -> Result<&'static Case> {
    match CASES.iter().find(|case| case.name == name) {
        Some(case) => Ok(case),
        None => bail!("there is no synthetic recording {name:?}: beamtune lab list shows all"),
    }
}

/// All of them.
pub const CASES: &[Case] = &[
    Case {
        name: "stolen-cpu",
        title: "a guest whose CPUs the hypervisor gives to others",
        expect: &["BT004:steal"],
        allow: &[],
        releases: ALL,
        node: |is_sick| node().with(|n| n.steal = if is_sick { 0.4 } else { 0.01 }),
    },
    Case {
        name: "swapped-out",
        title: "a host that is short of memory, with swap",
        expect: &["BT019"],
        allow: &[],
        releases: ALL,
        node: |is_sick| {
            node().with(|n| (n.swapped, n.major_faults) = if is_sick { (100 * MB, 50) } else { (MB, 0) })
        },
    },
    Case {
        name: "huge-pages",
        title: "4 GB that are resident, 3 GB of them in transparent huge pages; 1.5 GB are used, or healthy, nearly all",
        expect: &["BT020"],
        // The same memory, seen from the VM.
        allow: &["BT024"],
        releases: ALL,
        node: |is_sick| {
            let pages = fact(node(), facts::HUGE_PAGES, "always");
            pages.with(|n| {
                n.used = if is_sick { 1_500 } else { 3_800 } * MB;
                (n.resident, n.huge) = (4_000 * MB, 3_000 * MB);
                let heaps = Allocates {
                    mbcs: [500, 3_900 * MB, 100_000, n.used - 50 * MB],
                    peak: (3_900 * MB, 3_800 * MB),
                    ..Allocates::default()
                };
                n.allocators = vec![heaps, Allocates { name: "fix_alloc", ..Allocates::small() }];
            })
        },
    },
    Case {
        name: "slow-clock-source",
        title: "half a core in the kernel, with a clock source that takes a call, or with one that does not",
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
        title: "a VM whose clock gains a second in 100, and is a minute behind the host's; healthy, they go together",
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
        title: "an instance that pays for CPU with credits, and one of the same size that does not",
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
        title: "CPUs of two memory nodes; healthy, the VM is kept to those of one",
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
        title: "a build without kernel poll, with 5,000 sockets; healthy, one with it",
        expect: &["BT013"],
        allow: &[],
        releases: ALL,
        node: |is_sick| node().with(|n| (n.epoll, n.descriptors) = (!is_sick, 5_000)),
    },
    Case {
        name: "poll-thread-full",
        title: "one poll thread for 40,000 busy sockets, which uses a core; healthy, half of one",
        expect: &["BT059"],
        allow: &[],
        releases: ALL,
        node: |is_sick| {
            hundred_cores(16).with(|n| {
                (n.cpus, n.active, n.cpu, n.active_tasks, n.descriptors) = (16, 0.45, 0.5, 8, 40_000);
                n.poll_threads = vec![if is_sick { (0.98, 0.7) } else { (0.5, 0.4) }];
            })
        },
    },
    Case {
        name: "interpreter",
        title: "a busy node whose emulator interprets its code; healthy, one that compiles it",
        expect: &["BT034:interpreter"],
        allow: &[],
        releases: (24, 29),
        node: |is_sick| {
            fact(node(), facts::EMU_FLAVOR, if is_sick { "emu" } else { "jit" }).with(|n| n.cpu = 0.6)
        },
    },
    Case {
        name: "known-defect",
        title: "messages off the heap under a version that may not wake their receivers; healthy, a version that does",
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
        title: "100 CPUs and 64 schedulers, all busy; healthy, 100 schedulers for the same work",
        expect: &["BT035"],
        allow: &[],
        releases: ALL,
        node: |is_sick| {
            let (schedulers, active, tasks) = if is_sick { (64, 0.97, 110) } else { (100, 0.62, 63) };
            hundred_cores(schedulers).with(|n| (n.active, n.cpu, n.active_tasks) = (active, active, tasks))
        },
    },
    Case {
        name: "hundred-cores-small-quota",
        title: "100 schedulers and a quota of 16 cores, which stops them; healthy, 16 schedulers do the same work",
        expect: &["BT003"],
        // The quota is used up in some periods.
        allow: &["BT002"],
        // Older ones do not see the quota, which is a finding of its own.
        releases: (25, 29),
        node: |is_sick| {
            let (schedulers, active) = if is_sick { (100, 0.1) } else { (16, 0.625) };
            hundred_cores(schedulers).with(|n| {
                (n.quota, n.active, n.cpu, n.active_tasks) = (Some(16_000), active, active, 11);
                (n.throttled_periods_of_10, n.throttled) = if is_sick { (1, 2.0) } else { (0, 0.0) };
            })
        },
    },
    Case {
        name: "hundred-cores-bound-processes",
        title: "100 schedulers, of which 40 have five processes waiting each, and the others nothing to do; healthy, they share the work",
        expect: &["BT050"],
        allow: &[],
        releases: ALL,
        node: |is_sick| {
            let uneven = |number| if number < 40 { (1.0, 5) } else { (0.1, 0) };
            let even = |_| (0.46, 0);
            hundred_cores(100).with(|n| {
                (n.active, n.cpu) = (0.46, 0.46);
                n.active_tasks = if is_sick { 246 } else { 47 };
                n.uneven =
                    (0..100).map(|number| if is_sick { uneven(number) } else { even(number) }).collect();
            })
        },
    },
];

/// Before what makes it sick, which may be another version.
fn of_release(node: Node, release: u32) -> Node {
    let erts = RELEASES.iter().find(|(known, _)| *known == release).map(|(_, erts)| (*erts).to_owned());
    node.with(|n| {
        let version = erts.map(|erts| (facts::ERTS_VERSION, erts));
        let of = [(facts::OTP_RELEASE, release.to_string())].into_iter().chain(version);
        n.facts.splice(0..0, of);
    })
}

fn fact(node: Node, key: &'static str, value: &str) -> Node {
    node.with(|n| n.facts.push((key, value.to_owned())))
}

/// A machine of one memory node with 100 CPUs, which reach for what the VM does.
fn hundred_cores(schedulers: usize) -> Node {
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

    use super::super::evaluate::judge_synthetic;
    use super::super::rows::{Row, Setting, tests::row};
    use super::*;

    #[test]
    fn each_is_found_sick_and_nothing_is_found_in_its_healthy_twin() {
        for case in CASES {
            for (is_sick, setting) in [(true, Setting::Sick), (false, Setting::Healthy)] {
                assert!(case.releases().next().is_some(), "{}", case.name);
                for release in case.releases() {
                    let judged = judge_synthetic(case, is_sick, release, None).expect("judged");
                    assert_eq!(judged.ranks.len(), case.expect.len() * usize::from(is_sick), "{}", case.name);
                    let row = Row { judged, ..row(case.name, setting) };
                    assert_eq!(row.faults(), [""; 0], "{} on {release}: {row:?}", case.name);
                    // Here a healthy twin is one of which not even allowed things are said.
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
    fn each_says_that_it_is_synthetic_and_has_a_name_of_its_own() {
        let labs = super::super::all().expect("labs");
        let software = super::super::software::all().expect("software");
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
                let told = format!("{}; sick", case.title);
                assert_eq!(period.facts.get(facts::SYNTHETIC), Some(told.as_str()));
                assert_eq!(period.facts.otp_release(), Some(release));
            }
            assert!(case.releases().any(|release| release == USUAL_RELEASE), "{}", case.name);
        }
    }
}
