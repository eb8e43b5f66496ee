//! Takes CPU profiles of a VM on this host while it is recorded: one profile of a short recording, or a profile whenever the VM uses much CPU.
//!
//! Opening the VM's memory takes 50 to 300 ms of beamtune's time; a sample costs the VM 5 µs of a thread's time.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use beamtune_host::process::{self, Status};
use beamtune_host::tree::{FileTree, LocalTree};
use beamtune_model::{Event, Profile, ProfileRow, Sample, facts};
use beamtune_profile::threads::{self, ThreadSnapshot};
use beamtune_profile::{ProfileError, Profiler};
use beamtune_recording::{Stop, SystemClock};

use crate::record::SampleObserver;

/// Samples per second of CPU time of each thread: 0.05 % of a core for each busy thread. Not 100, so that it does not run in step with timers.
const RATE_HZ: u32 = 99;
/// How long CPU use is measured before a profile.
const CHECK: Duration = Duration::from_secs(1);
/// Number of checks in a row that must be above the limit: a shorter peak has passed before the profile begins (judgement).
const CHECKS_ABOVE: u32 = 3;
/// A VM that uses less CPU, in cores, is not profiled in a short recording (judgement: no rule reports so little).
const MIN_CORES: f64 = 0.1;
/// Time before the end of a short recording in which the profile is handed over, so that its last sample contains the profile.
const RESERVE: Duration = Duration::from_secs(1);
/// A shorter profile says nothing: at 99 Hz a busy thread has 50 samples.
const MIN_LENGTH: Duration = Duration::from_millis(500);
/// A longer profile says little more: at 99 Hz, the share of one busy thread's function is known to 3 points (95 %).
const MAX_LENGTH: Duration = Duration::from_secs(10);
/// Minimum pause between two profiles of a long recording: they cover at most 2 % of the time, and some 30 MB a day (judgement).
const PAUSE: Duration = Duration::from_secs(600);
/// Maximum size of `/proc/PID/status`; it has 1.5 kB.
const MAX_STATUS_BYTES: usize = 64 * 1024;

/// When a VM is profiled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ProfileWhen {
    /// Once, if it uses CPU, within a recording of this length.
    Once(Duration),
    /// Each time that its CPU use exceeds a limit, at most every ten minutes.
    Above(CpuLimit),
}

/// A limit of CPU use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CpuLimit {
    /// In cores.
    Cores(f64),
    /// In percent of the CPUs that the VM may run on.
    Percent(f64),
}

impl FromStr for CpuLimit {
    type Err = String;

    /// Parses `cpu > 90 %` or `cpu > 1.5`, the latter in cores.
    fn from_str(text: &str) -> Result<CpuLimit, String> {
        let error = || format!("{text:?} is not a condition: write 'cpu > 90 %' or, in cores, 'cpu > 1.5'");
        let limit =
            text.trim().strip_prefix("cpu").map(str::trim_start).and_then(|rest| rest.strip_prefix('>'));
        let limit = limit.map(str::trim).ok_or_else(error)?;
        let (number, is_share) = match limit.strip_suffix('%') {
            Some(number) => (number.trim_end(), true),
            None => (limit, false),
        };
        let number = number.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
        match (number.ok_or_else(error)?, is_share) {
            (percent, true) if percent >= 100.0 => Err(format!("{text:?} never holds: use less than 100 %")),
            (percent, true) => Ok(CpuLimit::Percent(percent)),
            (cores, false) => Ok(CpuLimit::Cores(cores)),
        }
    }
}

impl fmt::Display for CpuLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CpuLimit::Cores(cores) => write!(f, "cpu > {cores}"),
            CpuLimit::Percent(percent) => write!(f, "cpu > {percent} %"),
        }
    }
}

impl CpuLimit {
    /// The limit in cores; `None` if the CPUs of the process cannot be read.
    fn cores(self, pid: u32) -> Option<f64> {
        match self {
            CpuLimit::Cores(cores) => Some(cores),
            CpuLimit::Percent(percent) => {
                let content =
                    LocalTree::default().read(&format!("/proc/{pid}/status"), MAX_STATUS_BYTES).ok()?;
                let cpus = process::cpus_in_list(&Status::parse(&content).cpus_allowed?)?;
                Some(percent / 100.0 * cpus as f64)
            }
        }
    }
}

/// A profile, or the error that prevented it.
type Taken = Result<Profile, ProfileError>;

/// Profiles a VM in a thread of its own, from the first sample of the recording on.
#[derive(Debug)]
pub(crate) struct ProfileTask {
    when: ProfileWhen,
    /// Process id of the VM; changes if the VM is restarted.
    pid: Arc<AtomicU32>,
    stop: Stop,
    /// What the next sample takes.
    slot: Arc<Mutex<Option<Taken>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl ProfileTask {
    /// A task for the VM with this process id.
    pub(crate) fn new(pid: u32, when: ProfileWhen) -> ProfileTask {
        let (pid, slot) = (Arc::new(AtomicU32::new(pid)), Arc::default());
        ProfileTask { when, pid, stop: Stop::default(), slot, thread: Mutex::default() }
    }

    /// Starts the thread, unless it was started before.
    fn start(&self) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_some() {
            return;
        }
        let (when, pid, stop, slot) =
            (self.when, Arc::clone(&self.pid), self.stop.clone(), Arc::clone(&self.slot));
        let put = move |taken: Taken| *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(taken);
        let run = move || match when {
            ProfileWhen::Once(length) => {
                let end = Instant::now() + length.saturating_sub(RESERVE);
                if let Some(taken) = once(pid.load(Ordering::Relaxed), end, &stop).transpose() {
                    put(taken);
                }
            }
            ProfileWhen::Above(limit) => {
                let mut has_failed = false;
                while !stop.is_requested() {
                    let taken = above(pid.load(Ordering::Relaxed), limit, &stop).transpose();
                    // The reason is recorded once: without rights, each attempt fails.
                    if let Some(taken) = taken.filter(|taken| taken.is_ok() || !has_failed) {
                        has_failed |= taken.is_err();
                        put(taken);
                    }
                    stop.wait(PAUSE);
                }
            }
        };
        // Without a thread there is no profile; the recording does not depend on it.
        *thread = std::thread::Builder::new().name("profile".to_owned()).spawn(run).ok();
    }
}

impl SampleObserver for ProfileTask {
    fn observe(&self, sample: &mut Sample) {
        if let Some(pid) = sample.incarnation.as_ref().and_then(|incarnation| incarnation.os_pid) {
            self.pid.store(pid, Ordering::Relaxed);
        }
        self.start();
        let t = sample.tick.t;
        match self.slot.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(Ok(profile)) => {
                if let ProfileWhen::Above(_) = self.when {
                    let detail = format!("{:.2} cores", profile.cores(profile.total()));
                    let (kind, subject) = ("trigger".to_owned(), "cpu".to_owned());
                    sample.events.push(Event { t, kind, subject, detail });
                }
                sample.profiles.push(ProfileRow { t, profile });
            }
            Some(Err(error)) => {
                sample.facts.push((facts::PROFILE_MISSING.to_owned(), error.to_string()));
            }
            None => {}
        }
    }
}

impl Drop for ProfileTask {
    fn drop(&mut self) {
        self.stop.request();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic there has printed its message, and has not harmed the recording.
            let _ = thread.join();
        }
    }
}

/// Profiles a VM that uses CPU until `end`; `None` if it uses little, or too little time is left.
fn once(pid: u32, end: Instant, stop: &Stop) -> Result<Option<Profile>, ProfileError> {
    let mut meter = CpuMeter::new(pid, stop)?;
    let cores = meter.cores(stop)?;
    if stop.is_requested() || cores.is_some_and(|cores| cores < MIN_CORES) {
        return Ok(None);
    }
    let profiler = meter.profiler()?;
    let length = end.saturating_duration_since(Instant::now()).min(MAX_LENGTH);
    if length < MIN_LENGTH {
        return Ok(None);
    }
    profiler.run(length, || stop.is_requested()).map(Some)
}

/// Waits until a VM uses more CPU than the limit, and profiles it; `None` if it ended, or the recording did.
fn above(pid: u32, limit: CpuLimit, stop: &Stop) -> Result<Option<Profile>, ProfileError> {
    let mut meter = CpuMeter::new(pid, stop)?;
    let mut checks = 0;
    while !stop.is_requested() {
        let Some(limit) = limit.cores(pid) else { return Ok(None) };
        let cores = meter.cores(stop)?;
        checks = if cores.is_some_and(|cores| cores > limit) { checks + 1 } else { 0 };
        if checks >= CHECKS_ABOVE {
            return meter.profiler()?.run(MAX_LENGTH, || stop.is_requested()).map(Some);
        }
    }
    Ok(None)
}

/// Measures the CPU use of a VM.
struct CpuMeter {
    pid: u32,
    clock: SystemClock,
    last: ThreadSnapshot,
}

impl CpuMeter {
    fn new(pid: u32, stop: &Stop) -> Result<CpuMeter, ProfileError> {
        let clock = SystemClock::from(SystemClock::wall_now(), stop.clone());
        let last = threads::snapshot(&LocalTree::default(), pid, &clock)?;
        Ok(CpuMeter { pid, clock, last })
    }

    /// Waits for [`CHECK`], and returns the CPU use meanwhile, in cores; `None` if the kernel has no statistics of threads.
    fn cores(&mut self, stop: &Stop) -> Result<Option<f64>, ProfileError> {
        stop.wait(CHECK);
        let now = threads::snapshot(&LocalTree::default(), self.pid, &self.clock)?;
        let change = threads::changes(&self.last, &now);
        self.last = now;
        let ran: Option<i64> = change.threads.iter().map(|thread| thread.ran).sum();
        Ok(ran.filter(|_| change.length > 0).map(|ran| ran as f64 / change.length as f64))
    }

    /// Prepares a profile of the threads that were read last.
    fn profiler(&self) -> Result<Profiler, ProfileError> {
        Profiler::open(self.pid, &self.last.threads, RATE_HZ)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_a_share_of_the_cpus_or_a_number_of_cores() {
        let check = |text: &str, expect: Option<CpuLimit>| {
            assert_eq!(text.parse::<CpuLimit>().ok(), expect, "{text}");
            if let Some(limit) = expect {
                assert_eq!(limit.to_string().parse(), Ok(limit));
            }
        };
        check("cpu > 90 %", Some(CpuLimit::Percent(90.0)));
        check("cpu>90%", Some(CpuLimit::Percent(90.0)));
        check(" cpu > 1.5 ", Some(CpuLimit::Cores(1.5)));
        check("cpu > 100 %", None);
        check("cpu > 0", None);
        check("cpu > -1", None);
        check("cpu > nan", None);
        check("cpu < 90 %", None);
        check("memory > 90 %", None);
        check("cpu >", None);
        check("", None);
    }

    #[test]
    fn a_share_is_of_the_cpus_that_a_process_may_run_on() {
        let own = CpuLimit::Percent(50.0).cores(std::process::id());
        assert!(own.is_some_and(|cores| cores >= 0.5 && (2.0 * cores).fract() == 0.0), "{own:?}");
        assert_eq!(CpuLimit::Percent(50.0).cores(u32::MAX), None);
        assert_eq!(CpuLimit::Cores(1.5).cores(u32::MAX), Some(1.5));
    }
}
