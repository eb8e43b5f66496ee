//! Bugs of the VM that a later version fixes, with the affected versions of ERTS and the signs of each on a node.
//!
//! ERTS is the emulator's own version (`system_info(version)`): it is always recorded, and the release notes use it. ERTS 13 belongs to OTP
//! 25, and so on. If a range ends with a patch of an older branch, later patches of that branch have the fix.

use beamtune_flags::OtpVersion;
use beamtune_model::memory::allocators;
use beamtune_model::{Group, LockRow, Period, ProcessRow, facts, metrics};

use crate::contention;
use crate::signals::memory;
use crate::signals::stack;
use crate::view::{self, kind};

/// A bug, with the fix.
pub(crate) struct Fix {
    /// OTP's number of the fix, if known, and the issue or pull request.
    pub id: &'static str,
    /// The effect of the bug, without a full stop.
    pub what: &'static str,
    /// The affected versions of ERTS as ascending ranges: from the first version up to, but not including, the second, which has the fix.
    pub affected: &'static [(&'static str, &'static str)],
    /// Finds a sign of the bug on this node; `None` if the bug can do no harm here, or nothing shows it.
    pub sign: fn(&Period) -> Option<Sign>,
}

/// A sign of a bug on a node.
pub(crate) struct Sign {
    /// What was observed.
    pub seen: String,
    /// Whether this is an effect of the bug, rather than a condition for it.
    pub shown: bool,
}

/// A condition for the bug, if it holds.
fn needs(holds: bool, seen: impl Into<String>) -> Option<Sign> {
    holds.then(|| Sign { seen: seen.into(), shown: false })
}

/// An effect of the bug, if it shows.
fn shows(holds: bool, seen: impl Into<String>) -> Option<Sign> {
    holds.then(|| Sign { seen: seen.into(), shown: true })
}

impl Fix {
    /// The first version of the same branch that has the fix; `None` if `erts` has the fix or never had the bug.
    pub fn fixed_in(&self, erts: &OtpVersion) -> Option<&'static str> {
        self.affected.iter().find_map(|(from, until)| {
            let (from, end) = (OtpVersion::parse(from)?, OtpVersion::parse(until)?);
            (from <= *erts && *erts < end).then_some(*until)
        })
    }
}

/// All bugs, the latest first.
pub(crate) const FIXES: &[Fix] = &[
    Fix {
        id: "OTP-19983, erlang/otp#10651",
        what: "a hibernating process with a large heap may miss its wake-up message",
        // Since OTP 27.0, by the notes of ERTS 16.2.1, which name no patch of OTP 27 with the fix.
        affected: &[("15.0", "16.2.1")],
        sign: |period| {
            let asleep = rows(period).filter(|row| {
                memory::hibernates(row) && row.total_heap_words.unwrap_or(0) > memory::LARGE_HEAP_WORDS
            });
            let count = asleep.count();
            needs(count > 0, format!("{count} processes with large heaps hibernate"))
        },
    },
    Fix {
        id: "erlang/otp#9594",
        what: "idle schedulers that search for work contend for run queue locks: 40 % CPU instead of 30 % on many cores",
        affected: &[("0", "16.0")],
        sign: |period| {
            // Nothing steals from the run queues of dirty schedulers, which are numbered after those of the normal ones.
            let schedulers = period.facts.number(facts::SCHEDULERS).unwrap_or(0);
            let number = |lock: &LockRow| lock.id.as_deref().and_then(|id| id.parse::<i64>().ok());
            let hot = |lock: &&LockRow| lock.class == "run_queue" && is_contended(period, lock);
            let all = || period.locks.iter().filter(hot);
            let normal = all().find(|lock| number(lock).is_some_and(|id| (1..=schedulers).contains(&id)));
            let lock = normal.or_else(|| all().find(|lock| lock.id.is_none()))?;
            let seen = format!("{} of {} attempts to lock a run queue collided", lock.collisions, lock.tries);
            Some(Sign { seen, shown: normal.is_some() })
        },
    },
    Fix {
        id: "OTP-19154, erlang/otp#8613",
        what: "a scheduler can hang forever while it takes a carrier out of the pool, and block other schedulers",
        affected: &[("12.3", "13.2.2.10"), ("14.0", "14.2.5.2"), ("15.0", "15.1")],
        sign: |period| {
            let pooled: i64 =
                allocators(period).iter().fold(0, |sum, allocator| sum.saturating_add(allocator.pool.count));
            needs(pooled >= 100, format!("{pooled} carriers are in the pool"))
        },
    },
    Fix {
        id: "OTP-19209, erlang/otp#8751",
        what: "GCs copy the whole heap although a minor GC would suffice",
        affected: &[("15.0.1", "15.1")],
        sign: |period| {
            let collecting = view::gc(period, &[kind::SCHEDULER, kind::DIRTY_CPU]).ok()?;
            let share = collecting.share() * 100.0;
            shows(collecting.gc >= 0.1 && share >= 15.0, format!("GC takes {share:.0} % of the work"))
        },
    },
    Fix {
        id: "OTP-19015",
        what: "re:run/3 never returns for some subjects that are not valid UTF-8",
        affected: &[("10.5", "12.3.2.17"), ("13.0", "13.2.2.7"), ("14.0", "14.2.4")],
        sign: |period| {
            let stuck = period.processes.iter().find(|process| {
                let function = process.row.as_ref().and_then(|row| row.current_function.as_deref());
                function.is_some_and(|function| function.starts_with("re:") || function.contains("re_run"))
                    && process.status_samples >= 5
                    && process.runnable == process.status_samples
            })?;
            // A parser that is always busy is in that function, too.
            needs(true, format!("{} was always running, and was sampled in this function", stuck.title()))
        },
    },
    Fix {
        id: "OTP-18971, erlang/otp#8044",
        what: "a process that exits can leave its binaries in a reference cycle, and memory grows without bound",
        affected: &[("13.0", "13.2.2.7"), ("14.0", "14.2.3")],
        sign: |period| binaries_grow(period),
    },
    Fix {
        id: "OTP-19008, OTP-18647, erlang/otp#8119",
        what: "a process with message_queue_data off_heap may not be woken by the next message",
        affected: &[("13.0", "13.2.2.7"), ("14.0", "14.2.3")],
        sign: |period| off_heap(period),
    },
    Fix {
        id: "OTP-18838, OTP-18839, erlang/otp#7801",
        what: "a process can become runnable and never run again, after process_info or dirty work; process_info then hangs",
        affected: &[("13.0", "13.2.2.5"), ("14.0", "14.2")],
        sign: |period| {
            let dirty = view::activity(period, kind::DIRTY_CPU).map_or(0.0, |activity| activity.cores());
            off_heap(period).or_else(|| {
                needs(dirty >= 0.05, format!("dirty CPU schedulers are busy for {dirty:.2} cores"))
            })
        },
    },
    Fix {
        id: "OTP-18841, erlang/otp#7801",
        what: "a process that waits for a dirty scheduler handles no signals, so process_info for it takes long",
        affected: &[("13.2.2.3", "13.2.2.5"), ("14.1", "14.2")],
        sign: |period| {
            let queue = view::run_queue(period, "dirty_cpu").unwrap_or(0.0);
            shows(queue >= 1.0, format!("{queue:.1} processes wait for a dirty CPU scheduler"))
        },
    },
    Fix {
        id: "OTP-18885, erlang/otp#7834",
        what: "messages of more than 64 kB from other nodes, to callers that no longer wait, are never freed",
        affected: &[("12.0", "12.3.2.15"), ("13.0", "13.2.2.5")],
        sign: |period| distributed(period).then(|| binaries_grow(period)).flatten(),
    },
    Fix {
        id: "OTP-18645, OTP-18999, erlang/otp#7401, erlang/otp#7928",
        what: "the VM does not detect the CPU quota of its control group",
        affected: &[("11.0", "13.2.2.9"), ("14.0", "14.2.5")],
        sign: |period| {
            let quota = view::known_quota(period).ok().flatten()?;
            // No release reads the quota of a control group above its own.
            let [tightest, own] =
                [facts::CGROUP_PATH, facts::CGROUP_OWN_PATH].map(|fact| period.facts.get(fact));
            if own.is_some() && own != tightest {
                return None;
            }
            let seen = period.facts.number(facts::CPU_QUOTA);
            let (detected, missed) = match seen {
                None => ("none".to_owned(), true),
                Some(seen) => (seen.to_string(), seen as f64 > quota.ceil()),
            };
            // If the number of schedulers was set, or does not exceed the quota, the bug does no harm.
            let is_hit = view::emulator_flag(&period.facts, "+S").value().is_none()
                && view::schedulers_online(period).is_ok_and(|online| online > quota.ceil());
            missed.then(|| Sign {
                shown: is_hit,
                seen: format!("the quota is {quota:.1} cores, but the VM detects {detected}"),
            })
        },
    },
    Fix {
        id: "OTP-18520, erlang/otp#6455",
        what: "gen_tcp:send scans the whole message queue of its caller",
        affected: &[("0", "14.0")],
        sign: |period| {
            let slow = period.processes.iter().find(|process| {
                let function =
                    process.row.as_ref().and_then(|row| row.current_function.as_deref()).unwrap_or_default();
                process.queue_max >= 1_000
                    && ["prim_inet:send", "gen_tcp:send", "inet_tcp:send"]
                        .iter()
                        .any(|send| function.starts_with(send))
            })?;
            // A process that only waits for its peer does not search its queue.
            let looks = stack::runnable_share(slow).is_some_and(|share| share >= 0.5);
            Some(Sign {
                shown: looks,
                seen: format!("{} sends with {} messages waiting", slow.title(), slow.queue_max),
            })
        },
    },
    Fix {
        id: "OTP-18496, erlang/otp#6947",
        what: "a process that exits during a call leaks a little fix_alloc memory",
        affected: &[("12.0", "12.3.2.10"), ("13.0", "13.2")],
        sign: |period| {
            let fixed = allocators(period).into_iter().find(|allocator| allocator.name == "fix_alloc")?;
            let each = fixed.all().blocks_size as f64
                / period.stat(&metrics::PROCESS_COUNT, "").ok()?.mean().max(1.0);
            let bytes = fixed.all().blocks_size as f64;
            // Monitors and timers that are in use, or leaked, look the same.
            needs(
                bytes >= 64e6 && each >= 4_096.0,
                format!("fix_alloc holds {}, {each:.0} bytes for each process", memory::format_bytes(bytes)),
            )
        },
    },
    Fix {
        id: "OTP-18463, OTP-18457",
        what: "a process that exceeds max_heap_size may hang forever instead of being killed",
        affected: &[("12.0", "12.3.2.9"), ("13.0", "13.2")],
        sign: |period| {
            let limit = view::emulator_flag(&period.facts, "+hmax");
            needs(limit.value().is_some_and(|words| words != "0"), format!("+hmax {limit} is set"))
        },
    },
    Fix {
        id: "OTP-17340, erlang/otp#6133",
        what: "a process with a very long queue blocks its scheduler while literals or its queue are moved",
        affected: &[("0", "13.1")],
        sign: |period| {
            let longest = period.stat(&metrics::SCAN_LONGEST_QUEUE, "").ok()?.max;
            needs(longest >= 100_000, format!("longest queue: {longest} messages"))
        },
    },
    Fix {
        id: "OTP-17824",
        what: "free parts of pooled carriers are released (MADV_FREE) and faulted in again, which costs more than it saves",
        affected: &[("10.4", "13.0")],
        sign: |period| {
            let lazy: i64 = (period.entities(Group::HostMapping).iter())
                .filter_map(|entity| period.stat(&metrics::MAPPING_LAZY_FREE, entity).ok())
                .map(|stat| stat.last.value)
                .sum();
            let faults = period.rate(&metrics::MINOR_FAULTS, "").ok()?;
            needs(lazy >= 64_000_000 && faults >= 5_000.0, format!("{faults:.0} page faults per second"))
        },
    },
    Fix {
        id: "OTP-16982, erlang/otp#5020",
        what: "many senders to one process contend for the lock of its queue; after the fix, message_queue_data off_heap avoids that",
        affected: &[("0", "13.0")],
        sign: |period| {
            let hot =
                period.locks.iter().find(|lock| lock.class == "proc_msgq" && is_contended(period, lock))?;
            shows(true, format!("{} of {} attempts to lock a queue collided", hot.collisions, hot.tries))
        },
    },
    Fix {
        id: "OTP-16852, OTP-17602, erlang/otp#5195",
        what: "minor GCs scan all binaries that a process refers to",
        affected: &[("0", "13.0")],
        sign: |period| {
            let collecting = view::gc(period, &[kind::SCHEDULER, kind::DIRTY_CPU]).ok()?;
            let holder = rows(period).filter_map(|row| row.binary_bytes).max().unwrap_or(0);
            needs(
                collecting.gc >= 0.1 && holder >= 64_000_000,
                format!(
                    "GC takes {:.2} cores, and a process refers to {}",
                    collecting.gc,
                    memory::format_bytes(holder as f64)
                ),
            )
        },
    },
    Fix {
        id: "OTP-18077, erlang/otp#5876",
        what: "a sender that is killed in the middle of a large message leaks the received part on the other node",
        affected: &[("10.0", "12.3.2")],
        sign: |period| distributed(period).then(|| binaries_grow(period)).flatten(),
    },
    Fix {
        id: "OTP-17796, erlang/otp#5473",
        what: "when code is purged or a persistent term is erased, all processes are scheduled at once, and other work waits",
        affected: &[("10.0", "10.7.2.16"), ("11.0", "11.2.2.9"), ("12.0", "12.2")],
        sign: |period| {
            let processes = period.stat(&metrics::PROCESS_COUNT, "").ok()?.mean();
            let collector = rows(period).any(|row| {
                row.initial_call
                    .as_deref()
                    .is_some_and(|call| call.starts_with("erts_literal_area_collector:"))
            });
            needs(
                collector && processes >= 10_000.0,
                format!("literals are garbage-collected on a node with {processes:.0} processes"),
            )
        },
    },
    Fix {
        id: "OTP-17363, erlang/otp#4728",
        what: "all dirty schedulers share one instance of each allocator; after the fix, +Mdai max gives each its own",
        affected: &[("0", "12.2")],
        sign: |period| {
            let gc = view::states(period, &[kind::DIRTY_CPU]).ok()?.gc();
            needs(gc >= 0.5, format!("GC on dirty schedulers takes {gc:.2} cores"))
        },
    },
];

/// Whether at least one in twenty attempts to take the lock collides, and too often or for too long to be chance.
fn is_contended(period: &Period, lock: &LockRow) -> bool {
    let often = lock.collisions >= 1_000;
    let long = contention::counting_duration(period)
        .is_some_and(|length| lock.wait_time.saturating_mul(100) >= length);
    lock.collisions.saturating_mul(20) >= lock.tries.max(1) && (often || long)
}

fn rows(period: &Period) -> impl Iterator<Item = &ProcessRow> {
    period.processes.iter().filter_map(|process| process.row.as_ref())
}

/// A condition: a process keeps its messages off the heap, by its own setting or by the node's default.
fn off_heap(period: &Period) -> Option<Sign> {
    let default = period.facts.get(facts::MESSAGE_QUEUE_DATA) == Some("off_heap");
    // OTP's own processes exist on every node, so they are no sign.
    let own = |row: &&ProcessRow| {
        let is_kernel = row.name.as_deref().is_some_and(|name| name == "rex" || name.starts_with("logger"));
        let begins = |call: &str| ["erts_", "logger_"].iter().any(|begin| call.starts_with(begin));
        is_kernel || row.initial_call.as_deref().is_some_and(begins)
    };
    let one = rows(period)
        .filter(|row| !own(row))
        .find(|row| row.message_queue_data.as_deref() == Some("off_heap"));
    match one {
        _ if default => needs(true, "messages are off the heap by default (+hmqd)"),
        Some(row) => {
            needs(true, format!("{} has its messages off the heap", row.title().unwrap_or(&row.pid)))
        }
        None => None,
    }
}

/// Whether the node has distribution connections.
fn distributed(period: &Period) -> bool {
    !period.entities(Group::Dist).is_empty()
}

/// Returns a sign if binaries grew by a quarter and by at least 64 MB, and ended near their maximum.
fn binaries_grow(period: &Period) -> Option<Sign> {
    let stat = period.find(Group::Memory, "", "binary")?;
    let (first, last) = (stat.first.value as f64, stat.last.value as f64);
    let grown = last - first;
    needs(
        grown >= 64e6 && grown >= 0.25 * first && last >= 0.9 * stat.max as f64,
        format!("binaries grew by {}", memory::format_bytes(grown)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> OtpVersion {
        OtpVersion::parse(text).expect(text)
    }

    #[test]
    fn every_bug_has_a_source_and_ascending_ranges() {
        for fix in FIXES {
            let has_source = ["OTP-", "erlang/otp#"].iter().any(|start| fix.id.starts_with(start));
            assert!(has_source, "{}", fix.id);
            let mut before = None;
            for (from, until) in fix.affected {
                let (from, until) = (version(from), version(until));
                assert!(from < until && before.is_none_or(|before| before <= from), "{}", fix.id);
                before = Some(until);
            }
        }
        assert!(FIXES.len() >= 12);
    }

    #[test]
    fn a_patch_of_an_older_branch_has_the_fix_too() {
        let fix = FIXES.iter().find(|fix| fix.id.starts_with("OTP-19154")).expect("the bug");
        let check = |erts: &str, expect| assert_eq!(fix.fixed_in(&version(erts)), expect, "{erts}");
        check("13.1.5", Some("13.2.2.10"));
        check("13.2.2.10", None);
        check("13.2.2.16", None);
        check("14.2.5.1", Some("14.2.5.2"));
        check("15.0.1", Some("15.1"));
        check("15.2.7", None);
        check("17.1", None);
        check("10.0", None);
    }
}
