//! Profiles from the agent's samples: a view of a node whose threads cannot be sampled, because it runs on another host or rights are missing;
//! and a view of where processes wait.

use super::{
    CallStack, CpuState, Frame, FrameKind, Profile, ProfileBuilder, ProfileKind, ProfiledThread, StackSample,
};
use crate::period::Period;
use crate::rows::STACK_DEPTH;
use crate::units::Nanos;
use crate::{metrics, period};

/// Stacks of processes by name.
struct Sampled<'a> {
    builder: ProfileBuilder,
    thread: u32,
    /// The number of a process is its index.
    processes: Vec<&'a str>,
}

impl<'a> Sampled<'a> {
    fn new(kind: ProfileKind, length: Nanos) -> Self {
        let mut builder = ProfileBuilder::default();
        // The agent samples processes, not threads.
        let thread = ProfiledThread { tid: 0, kind: "process".to_owned(), name: String::new() };
        let thread = builder.thread(thread);
        let profile = builder.profile();
        (profile.kind, profile.length) = (kind, length);
        Sampled { builder, thread, processes: Vec::new() }
    }

    /// Adds samples of a stack, innermost function first.
    fn add(&mut self, name: Option<&'a str>, stack: &[String], state: CpuState, count: i64, weight: f64) {
        let process = name.map(|name| match self.processes.iter().position(|known| *known == name) {
            Some(number) => number as u64,
            None => {
                self.processes.push(name);
                self.processes.len() as u64 - 1
            }
        });
        let frame = |name: &String| Frame { kind: FrameKind::Erlang, name: name.clone(), line: None };
        let frames = stack.iter().rev().map(|name| self.builder.frame(frame(name))).collect();
        let stack = self.builder.stack(CallStack { frames, is_complete: stack.len() < STACK_DEPTH });
        self.builder.add(StackSample {
            t: 0,
            thread: self.thread,
            process,
            state,
            stack,
            count: u32::try_from(count).unwrap_or(u32::MAX),
            weight: weight as Nanos,
        });
    }

    fn finish(mut self, remarks: Vec<String>) -> Profile {
        let processes = self.processes.iter().enumerate();
        let processes = processes.map(|(number, name)| (number as u64, (*name).to_owned()));
        let profile = self.builder.profile();
        profile.processes = processes.collect();
        profile.remarks = remarks;
        self.builder.finish()
    }
}

impl Profile {
    /// The agent's samples of running processes, weighted so that they add up to the CPU time of Erlang code, `cores`.
    pub fn of_safe_points(period: &Period, cores: f64) -> Profile {
        let length = period.end - period.begin;
        let mut sampled = Sampled::new(ProfileKind::SafePoints, length);
        let (runnable, running): (Vec<&period::WorkSample>, Vec<_>) = period
            .work_samples
            .iter()
            .filter(|sample| sample.samples > 0)
            .partition(|sample| sample.is_runnable);
        // With one scheduler, none but the agent runs while it samples.
        let own = if running.is_empty() { runnable } else { running };
        let all = own.iter().fold(0, |sum: i64, sample| sum.saturating_add(sample.samples));
        for sample in own {
            let weight = cores * length as f64 * sample.samples as f64 / all as f64;
            let state = if sample.is_collecting { CpuState::GarbageCollection } else { CpuState::Process };
            sampled.add(sample.kind.as_deref(), &sample.stack, state, sample.samples, weight);
        }
        sampled.finish(vec![
            "sampled in the VM: a process answers when it yields, so code that runs on without yielding (BIFs, NIFs) counts for what follows it"
                .to_owned(),
            "a stack has at most eight functions; CPU time is estimated".to_owned(),
        ])
    }

    /// Where processes wait, weighted by the time that they waited: a process that waits for the whole period counts for its length.
    pub fn of_waits(period: &Period) -> Profile {
        let length = period.end - period.begin;
        let waits = &period.wait_samples;
        let processes = period.stat(&metrics::PROCESS_COUNT, "").map_or(0.0, |count| count.mean());
        let mut sampled = Sampled::new(ProfileKind::Waits, length);
        for place in waits.stacks.iter().filter(|place| place.pid.is_none() && !place.stack.is_empty()) {
            let share = place.count as f64 / waits.sampled.max(1) as f64;
            let weight = share * processes * length as f64;
            sampled.add(None, &place.stack, CpuState::Waiting, place.count, weight);
        }
        sampled.finish(vec![format!(
            "{} processes sampled, in {} samples; a stack has at most eight functions",
            waits.sampled, waits.samples
        )])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{WaitSample, WaitSamples, WorkSample};

    fn stack(functions: &str) -> Vec<String> {
        functions.split_whitespace().map(str::to_owned).collect()
    }

    fn shown(profile: &Profile) -> Vec<(String, Option<&str>, u32, Nanos)> {
        let name = |sample: &StackSample| profile.processes.get(&sample.process?).map(String::as_str);
        let frames = |sample: &StackSample| {
            profile.frames_of(sample.stack).map(|frame| frame.name.as_str()).collect::<Vec<_>>().join(" ")
        };
        profile
            .samples
            .iter()
            .map(|sample| (frames(sample), name(sample), sample.count, sample.weight))
            .collect()
    }

    #[test]
    fn safe_points_share_the_cpu_time_and_runnable_processes_do_not_count() {
        let sample = |kind: &str, functions: &str, samples, is_runnable| WorkSample {
            kind: Some(kind.to_owned()),
            stack: stack(functions),
            samples,
            is_collecting: false,
            is_runnable,
        };
        let mut period = Period::default();
        (period.end, period.work_samples) = (
            10_000,
            vec![
                sample("shop", "jsx:encode/2 shop:render/1", 30, false),
                sample("log", "io:format/2", 10, false),
                sample("log", "io:format/2", 60, true),
            ],
        );
        let profile = Profile::of_safe_points(&period, 0.8);
        assert_eq!(
            shown(&profile),
            [
                ("shop:render/1 jsx:encode/2".to_owned(), Some("shop"), 30, 6_000),
                ("io:format/2".to_owned(), Some("log"), 10, 2_000)
            ]
        );
        assert_eq!((profile.kind, profile.total()), (ProfileKind::SafePoints, 8_000));
        assert_eq!(Profile::of_safe_points(&Period::default(), 1.0).total(), 0);
        period.work_samples.retain(|sample| sample.is_runnable);
        assert_eq!(
            shown(&Profile::of_safe_points(&period, 0.8)),
            [("io:format/2".to_owned(), Some("log"), 60, 8_000)]
        );
    }

    #[test]
    fn waits_without_a_known_number_of_processes_weigh_nothing() {
        let place = |functions: &str, count, pid: Option<&str>| WaitSample {
            pid: pid.map(str::to_owned),
            stack: stack(functions),
            count,
            ..WaitSample::default()
        };
        let waits = WaitSamples {
            samples: 2,
            sampled: 200,
            stacks: vec![
                place("gen:do_call/4", 1, Some("<0.9.0>")),
                place("gen_server:loop/7 shop:wait/0", 50, None),
            ],
            ..WaitSamples::default()
        };
        let mut period = Period::default();
        (period.end, period.wait_samples) = (10_000, waits);
        let profile = Profile::of_waits(&period);
        assert_eq!(shown(&profile), [("shop:wait/0 gen_server:loop/7".to_owned(), None, 50, 0)]);
        assert_eq!(
            profile.remarks,
            ["200 processes sampled, in 2 samples; a stack has at most eight functions"]
        );
    }
}
