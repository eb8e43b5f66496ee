//! A CPU profile: call stacks of a VM's threads, sampled by their CPU time.
//!
//! A stack leads from Erlang code through C code of the VM to the kernel. It belongs to a thread, and to a process if one ran. Each sample
//! represents an equal amount of CPU time, so a sleeping thread has no samples.

mod agent;

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::WorkSample;
use crate::units::{Nanos, SECOND_NS, text_names};

/// What a thread does with the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CpuState {
    /// Runs a process: Erlang code, BIFs and NIFs.
    Process,
    /// Collects garbage of a process.
    GarbageCollection,
    /// Chooses the next process, balances run queues, runs timers and auxiliary jobs.
    Scheduling,
    /// Waits for work without going to sleep.
    BusyWait,
    /// Checks for I/O.
    Polling,
    /// Runs a port: a driver, or an external program's pipe.
    Port,
    /// Goes to sleep, or wakes up.
    SleepAndWake,
    /// A process waits; only in profiles of waits.
    Waiting,
    /// None of these, or not known.
    Other,
}

text_names!(CpuState {
    Process => "process",
    GarbageCollection => "garbage_collection",
    Scheduling => "scheduling",
    BusyWait => "busy_wait",
    Polling => "polling",
    Port => "port",
    SleepAndWake => "sleep_and_wake",
    Waiting => "waiting",
    Other => "other",
});

impl CpuState {
    /// Whether the CPU time is that of a process, GC included.
    pub fn is_of_process(self) -> bool {
        matches!(self, CpuState::Process | CpuState::GarbageCollection)
    }
}

/// The kind of a frame's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FrameKind {
    /// An Erlang function.
    Erlang,
    /// A BIF: an Erlang function that is part of the emulator.
    Bif,
    /// Shared code of the JIT, which belongs to no module.
    Fragment,
    /// C code of the emulator.
    Emulator,
    /// A library: a NIF, a driver, libc.
    Library,
    /// The kernel.
    Kernel,
}

text_names!(FrameKind {
    Erlang => "erlang",
    Bif => "bif",
    Fragment => "fragment",
    Emulator => "emulator",
    Library => "library",
    Kernel => "kernel",
});

/// A function, or a place in code without a name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Frame {
    /// The kind of its code.
    pub kind: FrameKind,
    /// The Erlang function or BIF as `module:function/arity`; a C function; or `file+0x1f2e` for code without a name. Untrusted text.
    pub name: String,
    /// Line of Erlang code.
    pub line: Option<u32>,
}

/// A call stack.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CallStack {
    /// Indices of frames, outermost first.
    pub frames: Vec<u32>,
    /// Whether the outermost function of the process or thread was reached.
    pub is_complete: bool,
}

/// A sampled thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfiledThread {
    /// Its id in the kernel.
    pub tid: u32,
    /// `scheduler`, `dirty_cpu_scheduler`, `dirty_io_scheduler`, `aux`, `poll`, `async`, or `other`.
    pub kind: String,
    /// Its name in the kernel. Untrusted text.
    pub name: String,
}

/// Equal samples of one second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackSample {
    /// Time of the first of them, since the start of the profile.
    pub t: Nanos,
    /// Index of the thread.
    pub thread: u32,
    /// Number of the process that ran, as in [`Profile::processes`].
    pub process: Option<u64>,
    /// What the thread did.
    pub state: CpuState,
    /// Index of the stack.
    pub stack: u32,
    /// Number of samples.
    pub count: u32,
    /// The CPU time that they represent.
    #[serde(rename = "cpu")]
    pub weight: Nanos,
}

/// What the samples of a profile weigh.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProfileKind {
    /// CPU time of threads, measured.
    #[default]
    Cpu,
    /// CPU time of processes, estimated by samples in the VM.
    SafePoints,
    /// Time that processes wait.
    Waits,
}

text_names!(ProfileKind { Cpu => "cpu", SafePoints => "safe_points", Waits => "waits" });

/// A profile.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// What its samples weigh.
    #[serde(default)]
    pub kind: ProfileKind,
    /// How long it was sampled.
    pub length: Nanos,
    /// Samples per second of CPU time of each thread; 0 if processes were sampled.
    pub rate_hz: u32,
    /// Whether the kernel's part of stacks was sampled.
    #[serde(default)]
    pub has_kernel: bool,
    /// Frames, each once.
    pub frames: Vec<Frame>,
    /// Stacks, each once.
    pub stacks: Vec<CallStack>,
    /// Threads.
    pub threads: Vec<ProfiledThread>,
    /// The samples, by time.
    pub samples: Vec<StackSample>,
    /// Names of processes by number: registered name, label, or first function. Untrusted text.
    pub processes: HashMap<u64, String>,
    /// Samples that were dropped because the reader was too slow.
    #[serde(rename = "lost_samples")]
    pub lost: u64,
    /// Samples of a process whose Erlang frames are missing: it had been switched out before they were read.
    #[serde(rename = "samples_without_frames")]
    pub without_frames: u64,
    /// What is missing and why, in sentences.
    pub remarks: Vec<String>,
}

impl Profile {
    /// CPU time of all samples.
    pub fn total(&self) -> Nanos {
        self.cpu_of(|_| true)
    }

    /// Number of samples.
    pub fn sample_count(&self) -> u32 {
        self.samples.iter().fold(0, |sum, sample| sum.saturating_add(sample.count))
    }

    /// CPU time by state.
    pub fn by_state(&self) -> Vec<(CpuState, Nanos)> {
        let mut times = HashMap::<CpuState, Nanos>::new();
        for sample in &self.samples {
            let time = times.entry(sample.state).or_default();
            *time = time.saturating_add(sample.weight);
        }
        CpuState::ALL.iter().filter_map(|state| Some((*state, *times.get(state)?))).collect()
    }

    /// The thread of a sample.
    pub fn thread(&self, sample: &StackSample) -> Option<&ProfiledThread> {
        self.threads.get(sample.thread as usize)
    }

    /// CPU time of the samples that `is_counted` selects.
    pub fn cpu_of(&self, is_counted: impl Fn(&StackSample) -> bool) -> Nanos {
        let counted = self.samples.iter().filter(|sample| is_counted(sample));
        counted.fold(0, |sum: Nanos, sample| sum.saturating_add(sample.weight))
    }

    /// CPU time as mean use, in cores.
    pub fn cores(&self, cpu: Nanos) -> f64 {
        if self.length > 0 { cpu as f64 / self.length as f64 } else { 0.0 }
    }

    /// The samples of processes, GC included, as call stacks of Erlang functions and BIFs. `name` returns the name of a process by its number.
    pub fn work_samples(&self, name: impl Fn(u64) -> Option<String>) -> Vec<WorkSample> {
        type Key<'a> = (Option<u64>, bool, Vec<&'a str>);
        let mut counts = HashMap::<Key<'_>, i64>::new();
        for sample in &self.samples {
            if !sample.state.is_of_process() {
                continue;
            }
            let functions = self.frames_of(sample.stack);
            let functions =
                functions.filter(|frame| matches!(frame.kind, FrameKind::Erlang | FrameKind::Bif));
            let mut stack: Vec<&str> = functions.map(|frame| frame.name.as_str()).collect();
            stack.reverse();
            let is_collecting = sample.state == CpuState::GarbageCollection;
            let count = counts.entry((sample.process, is_collecting, stack)).or_default();
            *count = count.saturating_add(i64::from(sample.count));
        }
        let mut samples: Vec<WorkSample> = counts
            .into_iter()
            .map(|((process, is_collecting, stack), samples)| WorkSample {
                kind: process.and_then(&name),
                stack: stack.into_iter().map(str::to_owned).collect(),
                samples,
                is_collecting,
                is_runnable: false,
            })
            .collect();
        samples.sort_by(|a, b| {
            b.samples.cmp(&a.samples).then_with(|| (&a.kind, &a.stack).cmp(&(&b.kind, &b.stack)))
        });
        samples
    }

    /// The frames of a stack, outermost first.
    pub fn frames_of(&self, stack: u32) -> impl Iterator<Item = &Frame> {
        let stack = self.stacks.get(stack as usize);
        stack.into_iter().flat_map(|stack| &stack.frames).filter_map(|frame| self.frames.get(*frame as usize))
    }
}

/// A profile in a recording.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProfileRow {
    /// Its end, since the start of the recording.
    pub t: Nanos,
    /// The profile.
    pub profile: Profile,
}

/// The number of a process by its pid, as in [`Profile::processes`]: `<0.123.0>` is 123. `None` for any other text.
///
/// The low 15 bits are in the second part of the pid, the others in the third; where the VM uses longer second parts, the third one is 0.
pub fn process_number(pid: &str) -> Option<u64> {
    let mut parts = pid.strip_prefix("<0.")?.strip_suffix('>')?.split('.');
    let (number, serial): (u64, u64) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next().is_none().then(|| number.wrapping_add(serial.wrapping_shl(15)))
}

/// Builds a profile: each frame and each stack is kept once.
#[derive(Debug, Default)]
pub struct ProfileBuilder {
    profile: Profile,
    frames: HashMap<Frame, u32>,
    stacks: HashMap<CallStack, u32>,
    /// The sample of the current second with the same thread, process, state and stack.
    current: HashMap<(u32, Option<u64>, CpuState, u32), usize>,
    second: Nanos,
}

/// Length of the intervals in which equal samples are summed up.
const INTERVAL: Nanos = SECOND_NS;

impl ProfileBuilder {
    /// The index of a frame.
    pub fn frame(&mut self, frame: Frame) -> u32 {
        let (profile, next) = (&mut self.profile, self.frames.len() as u32);
        *self.frames.entry(frame).or_insert_with_key(|frame| {
            profile.frames.push(frame.clone());
            next
        })
    }

    /// The index of a stack.
    pub fn stack(&mut self, stack: CallStack) -> u32 {
        let (profile, next) = (&mut self.profile, self.stacks.len() as u32);
        *self.stacks.entry(stack).or_insert_with_key(|stack| {
            profile.stacks.push(stack.clone());
            next
        })
    }

    /// The index of a new thread.
    pub fn thread(&mut self, thread: ProfiledThread) -> u32 {
        self.profile.threads.push(thread);
        self.profile.threads.len() as u32 - 1
    }

    /// Adds a sample; samples come in the order of their time.
    pub fn add(&mut self, sample: StackSample) {
        let second = sample.t.div_euclid(INTERVAL);
        if second != self.second {
            self.current.clear();
            self.second = second;
        }
        let key = (sample.thread, sample.process, sample.state, sample.stack);
        let samples = &mut self.profile.samples;
        let index = *self.current.entry(key).or_insert_with(|| {
            samples.push(StackSample { count: 0, weight: 0, ..sample });
            samples.len() - 1
        });
        if let Some(known) = samples.get_mut(index) {
            known.count = known.count.saturating_add(sample.count);
            known.weight = known.weight.saturating_add(sample.weight);
        }
    }

    /// Number of different samples so far.
    pub fn sample_count(&self) -> usize {
        self.profile.samples.len()
    }

    /// Appends another profile of the same VM.
    pub fn append(&mut self, other: &Profile) {
        let frames: Vec<u32> = other.frames.iter().map(|frame| self.frame(frame.clone())).collect();
        let stacks: Vec<u32> = other
            .stacks
            .iter()
            .map(|stack| {
                let of_stack = stack.frames.iter().filter_map(|frame| frames.get(*frame as usize)).copied();
                self.stack(CallStack { frames: of_stack.collect(), is_complete: stack.is_complete })
            })
            .collect();
        let threads: Vec<u32> = other
            .threads
            .iter()
            .map(|thread| match self.profile.threads.iter().position(|known| known == thread) {
                Some(index) => index as u32,
                None => self.thread(thread.clone()),
            })
            .collect();
        let begin = self.profile.length;
        for sample in &other.samples {
            let (stack, thread) = (stacks.get(sample.stack as usize), threads.get(sample.thread as usize));
            if let (Some(&stack), Some(&thread)) = (stack, thread) {
                self.add(StackSample { t: begin.saturating_add(sample.t), stack, thread, ..*sample });
            }
        }
        let profile = &mut self.profile;
        profile.length = begin.saturating_add(other.length);
        (profile.rate_hz, profile.has_kernel) = (other.rate_hz, other.has_kernel);
        profile.processes.extend(other.processes.iter().map(|(number, name)| (*number, name.clone())));
        profile.lost = profile.lost.saturating_add(other.lost);
        profile.without_frames = profile.without_frames.saturating_add(other.without_frames);
        for remark in &other.remarks {
            if !profile.remarks.contains(remark) {
                profile.remarks.push(remark.clone());
            }
        }
    }

    /// The parts of the profile that are not built step by step.
    pub fn profile(&mut self) -> &mut Profile {
        &mut self.profile
    }

    /// The profile.
    pub fn finish(self) -> Profile {
        self.profile
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn erlang(name: &str) -> Frame {
        Frame { kind: FrameKind::Erlang, name: name.to_owned(), line: None }
    }

    /// Two seconds of one thread: `main -> a` three times, `main -> a -> a` once.
    fn profile() -> Profile {
        let mut builder = ProfileBuilder::default();
        let thread =
            builder.thread(ProfiledThread { tid: 7, kind: "scheduler".to_owned(), name: String::new() });
        let (main, a) = (builder.frame(erlang("m:main/0")), builder.frame(erlang("m:a/1")));
        assert_eq!(builder.frame(erlang("m:main/0")), main);
        let once = builder.stack(CallStack { frames: vec![main, a], is_complete: true });
        let twice = builder.stack(CallStack { frames: vec![main, a, a], is_complete: true });
        for (t, stack) in [(0, once), (INTERVAL / 2, once), (INTERVAL - 1, twice), (INTERVAL, once)] {
            let state = CpuState::Process;
            builder.add(StackSample { t, thread, process: Some(80), state, stack, count: 1, weight: 10 });
        }
        builder.finish()
    }

    #[test]
    fn equal_samples_of_a_second_are_summed_up() {
        let profile = profile();
        let samples: Vec<_> =
            profile.samples.iter().map(|sample| (sample.t, sample.stack, sample.count)).collect();
        assert_eq!(samples, [(0, 0, 2), (INTERVAL - 1, 1, 1), (INTERVAL, 0, 1)]);
        assert_eq!((profile.total(), profile.by_state()), (40, vec![(CpuState::Process, 40)]));
    }

    #[test]
    fn appended_profiles_share_frames_stacks_and_threads() {
        let (one, mut other) = (Profile { length: 2 * INTERVAL, ..profile() }, profile());
        other.frames.insert(0, erlang("m:unused/0"));
        other.stacks.iter_mut().for_each(|stack| stack.frames.iter_mut().for_each(|frame| *frame += 1));
        let mut builder = ProfileBuilder::default();
        builder.append(&one);
        builder.append(&other);
        let joined = builder.finish();
        assert_eq!(
            (joined.frames.len(), joined.stacks.len(), joined.threads.len(), joined.total()),
            (3, 2, 1, 80)
        );
        let names =
            |stack: u32| joined.frames_of(stack).map(|frame| &*frame.name).collect::<Vec<_>>().join(" ");
        let samples =
            joined.samples.iter().map(|sample| (sample.t / INTERVAL, names(sample.stack), sample.count));
        let (once, twice) = ("m:main/0 m:a/1".to_owned(), "m:main/0 m:a/1 m:a/1".to_owned());
        assert_eq!(
            samples.collect::<Vec<_>>(),
            [
                (0, once.clone(), 2),
                (0, twice.clone(), 1),
                (1, once.clone(), 1),
                (2, once.clone(), 2),
                (2, twice, 1),
                (3, once, 1)
            ]
        );
    }

    #[test]
    fn work_samples_are_erlang_functions_and_bifs_innermost_first() {
        let mut profile = profile();
        profile.frames.push(Frame { kind: FrameKind::Emulator, name: "ets_lookup_2".to_owned(), line: None });
        profile.frames.push(Frame { kind: FrameKind::Bif, name: "ets:lookup/2".to_owned(), line: None });
        profile.stacks[0].frames.extend([3, 2]);
        profile.samples[2].state = CpuState::GarbageCollection;
        profile.samples[1].state = CpuState::BusyWait;
        let name = |number: u64| (number == 80).then(|| "shop".to_owned());
        let sample = |samples, is_collecting| WorkSample {
            kind: Some("shop".to_owned()),
            stack: ["ets:lookup/2", "m:a/1", "m:main/0"].map(str::to_owned).to_vec(),
            samples,
            is_collecting,
            is_runnable: false,
        };
        assert_eq!(profile.work_samples(name), [sample(2, false), sample(1, true)]);
    }

    #[test]
    fn number_of_a_process_is_in_two_parts_of_its_pid() {
        assert_eq!(process_number("<0.123.0>"), Some(123));
        assert_eq!(process_number("<0.5.2>"), Some(5 + 2 * 32_768));
        assert_eq!(process_number("<0.100000.0>"), Some(100_000));
        assert_eq!(process_number("<7.5.2>"), None);
        assert_eq!(process_number("shop"), None);
    }
}
