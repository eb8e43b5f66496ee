//! A CPU profile: call stacks of a VM's threads, sampled by their CPU time.
//!
//! A stack leads from Erlang code through C code of the VM to the kernel. It belongs to a thread, and to a process if one ran. Each sample
//! represents an equal amount of CPU time, so a sleeping thread has no samples.

use std::collections::HashMap;

use crate::units::{Nanos, text_names};

/// What a thread does with the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
    Other => "other",
});

/// The kind of a frame's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FrameKind {
    /// An Erlang function.
    Erlang,
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
    Fragment => "fragment",
    Emulator => "emulator",
    Library => "library",
    Kernel => "kernel",
});

/// A function, or a place in code without a name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame {
    /// The kind of its code.
    pub kind: FrameKind,
    /// The Erlang function as `module:function/arity`; a C function; or `file+0x1f2e` for code without a name. Untrusted text.
    pub name: String,
    /// Line of Erlang code.
    pub line: Option<u32>,
}

/// A call stack.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct CallStack {
    /// Indices of frames, outermost first.
    pub frames: Vec<u32>,
    /// Whether the outermost function of the process or thread was reached.
    pub is_complete: bool,
}

/// A sampled thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfiledThread {
    /// Its id in the kernel.
    pub tid: u32,
    /// `scheduler`, `dirty_cpu_scheduler`, `dirty_io_scheduler`, `aux`, `poll`, `async`, or `other`.
    pub kind: String,
    /// Its name in the kernel. Untrusted text.
    pub name: String,
}

/// Equal samples of one second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    pub weight: Nanos,
}

/// A profile.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profile {
    /// How long it was sampled.
    pub length: Nanos,
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
    pub lost: u64,
    /// Samples of a process whose Erlang frames are missing: it had been switched out before they were read.
    pub without_frames: u64,
    /// What is missing and why, in sentences.
    pub remarks: Vec<String>,
}

impl Profile {
    /// CPU time of all samples.
    pub fn total(&self) -> Nanos {
        self.samples.iter().map(|sample| sample.weight).sum()
    }

    /// Number of samples.
    pub fn sample_count(&self) -> u32 {
        self.samples.iter().map(|sample| sample.count).sum()
    }

    /// CPU time by state.
    pub fn by_state(&self) -> Vec<(CpuState, Nanos)> {
        let mut times = HashMap::<CpuState, Nanos>::new();
        for sample in &self.samples {
            *times.entry(sample.state).or_default() += sample.weight;
        }
        CpuState::ALL.iter().filter_map(|state| Some((*state, *times.get(state)?))).collect()
    }

    /// The thread of a sample.
    pub fn thread(&self, sample: &StackSample) -> Option<&ProfiledThread> {
        self.threads.get(sample.thread as usize)
    }

    /// The frames of a stack, outermost first.
    pub fn frames_of(&self, stack: u32) -> impl Iterator<Item = &Frame> {
        let stack = self.stacks.get(stack as usize);
        stack.into_iter().flat_map(|stack| &stack.frames).filter_map(|frame| self.frames.get(*frame as usize))
    }
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
const INTERVAL: Nanos = 1_000_000_000;

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
            known.count += sample.count;
            known.weight += sample.weight;
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
}
