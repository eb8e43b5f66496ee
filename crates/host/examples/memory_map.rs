//! Prints the mappings and memory contents of a VM: `cargo run -p beamtune-host --example memory_map PID`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example that is run manually")]

use std::process::ExitCode;
use std::time::Instant;

use beamtune_host::LocalTree;
use beamtune_host::memory::{Depth, MemoryReader};
use beamtune_host::tree::FileTree;
use beamtune_model::{Clock, Nanos};

struct RealClock(Instant);

impl Clock for RealClock {
    fn now(&self) -> Nanos {
        i64::try_from(self.0.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
    }

    fn wall(&self) -> i64 {
        0
    }

    fn sleep_until(&self, _: Nanos) {}
}

fn main() -> ExitCode {
    let Some(pid) = std::env::args().nth(1).and_then(|pid| pid.parse().ok()) else {
        eprintln!("usage: memory_map PID");
        return ExitCode::FAILURE;
    };
    let (tree, clock) = (LocalTree::default(), RealClock(Instant::now()));
    let names = tree.list(&format!("/proc/{pid}/task"), 5_000).unwrap_or_default();
    let threads: Vec<(u32, String)> = names
        .iter()
        .filter_map(|tid| {
            let comm = tree.read(&format!("/proc/{pid}/task/{tid}/comm"), 64).ok()?;
            let entity = beamtune_host::threads::vm_thread(comm.trim_ascii_end());
            let kind = entity.as_deref().and_then(|entity| entity.split('/').next()).unwrap_or("other");
            Some((tid.parse().ok()?, kind.to_owned()))
        })
        .collect();
    let mut reader = MemoryReader::default();
    // The memory is read twice, since the first read also searches for the landmarks.
    for _ in 0..2 {
        let kinds = threads.iter().map(|(tid, kind)| (*tid, kind.as_str()));
        let map = match reader.read(&tree, pid, kinds, Depth::Contents, &clock, 10_000_000_000) {
            Ok(map) => map,
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        };
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        println!(
            "\n{:<32} {:>7} {:>12} {:>12} {:>12} {:>9}",
            "mapped", "count", "size", "resident", "pss", "swapped"
        );
        for (kind, sum) in &map.mappings {
            println!(
                "{kind:<32} {:>7} {:>12.3} {:>12.3} {:>12.3} {:>9.3}",
                sum.count,
                mib(sum.size),
                mib(sum.resident),
                mib(sum.pss),
                mib(sum.swapped)
            );
        }
        let all: u64 = map.mappings.values().map(|sum| sum.resident).sum();
        println!("{:<32} {:>33.3}", "all", mib(all));
        match &map.contents {
            Some(Ok(contents)) => {
                println!(
                    "\n{:<32} {:>7} {:>12} {:>12} {:>12} {:>9}",
                    "content", "count", "size", "resident", "in use", "swapped"
                );
                for (entity, sum) in contents {
                    let in_use = sum.in_use.map_or(String::new(), |bytes| format!("{:.3}", mib(bytes)));
                    println!(
                        "{entity:<32} {:>7} {:>12.3} {:>12.3} {in_use:>12} {:>9.3}",
                        sum.count,
                        mib(sum.size),
                        mib(sum.resident),
                        mib(sum.swapped)
                    );
                }
                let sum: u64 = contents.values().map(|sum| sum.resident).sum();
                println!("{:<32} {:>33.3}", "all", mib(sum));
            }
            Some(Err(error)) => println!("\n{error}"),
            None => {}
        }
        println!(
            "malloc: {}; {} lists truncated; {:.1} ms",
            map.malloc.unwrap_or("unknown"),
            map.cut_lists,
            map.cost_ns as f64 / 1e6
        );
    }
    ExitCode::SUCCESS
}
