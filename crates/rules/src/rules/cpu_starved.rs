//! BT004: schedulers are runnable but get no CPU.

use beamtune_model::{
    Account, Code, Cost, CpuUse, Evidence, HostPart, Limit, Missing, Period, Scale, Signal, Subject,
    Threshold, Unit, cpu, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Role, Rule};
use crate::signals::busy_wait::{FLAGS, Spinning};
use crate::text;
use crate::view::{self, Capacity, kind};

pub const RULE: Rule = Rule {
    code: Code("BT004"),
    name: "cpu-starved",
    question: "Do the schedulers get a CPU when they are runnable?",
    confirm: "run the same load without the other processes, or on dedicated CPUs: the run-queue delay disappears",
    needs: &[
        &metrics::THREAD_CPU,
        &metrics::THREAD_WAIT,
        &metrics::CPU_BUSY,
        &metrics::PROCESS_USER,
        &metrics::CPUS_ONLINE,
        &metrics::CPUS_ALLOWED,
    ],
    account: Account::CpuUnused,
    role: Role::Symptom,
    explains_run_queue: true,
    judge,
    thresholds: &[WAIT, STEAL],
    ..Rule::COMMON
};

const WAIT: Threshold = Threshold::new(
    "cpu-starved.wait_share",
    "share of their runnable time in which schedulers wait for a CPU",
    Scale {
        notice: 0.15,
        warning: 0.30,
        critical: 0.60,
        source: "judgement; a contended host turned the effect of a flag from −52 % to +12 % CPU (measured, OTP 25)",
    },
);

const STEAL: Threshold = Threshold::new(
    "cpu-starved.steal_share",
    "steal, share of the CPU time that the host could use",
    Scale {
        notice: 0.03,
        warning: 0.10,
        critical: 0.30,
        source: "judgement; common practice calls 10 % steal a problem",
    },
);

/// Minimum run-queue delay, and minimum steal, that is reported, in cores.
const MIN_CORES: f64 = 0.05;

/// Without a quota, a shorter delay is a notice (judgement, as for busy-waiting: little work is delayed).
const MINOR_CORES: f64 = 0.20;

/// If at least this share of the CPUs that the VM may use is idle, its own threads displace each other only in bursts (judgement).
const MIN_IDLE_SHARE: f64 = 0.25;

/// A shorter delay is never critical, however large its share: a node that hardly runs is slowed, not stopped.
const MIN_CRITICAL_CORES: f64 = 0.25;

/// If the CPUs that the VM may use were busy for less than this share of the time, any wait was a burst (judgement).
const MIN_CROWDED_SHARE: f64 = 0.5;

/// If the group was throttled in at least this share of periods, the threads wait for the quota (judgement: most of the time).
const SURELY_THROTTLED: f64 = 0.5;

/// What used the CPUs that the schedulers waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// Nothing: a quota throttled the VM.
    Quota,
    /// The VM's own threads: more of them were runnable than it has CPUs.
    OwnThreads,
    /// External programs that the VM started.
    Programs,
    /// Other OS processes.
    Neighbours,
    /// Own threads or neighbours: the VM may use only some of the host's CPUs, and it is not recorded on which CPUs neighbours ran.
    Unknown,
}

/// Run-queue delay of the schedulers, in cores.
struct Waiting {
    /// On-CPU time.
    ran: f64,
    waited: f64,
    /// The part of `waited` of threads that had work; `None` if unknown.
    with_work: Option<f64>,
    /// Mean delay per time slice.
    per_turn_seconds: f64,
    /// CPU of other OS processes, on the whole host.
    foreign: f64,
    /// CPU of external programs that the VM started.
    programs: f64,
    cause: Cause,
    capacity: Capacity,
}

impl Waiting {
    /// CPU that threads with work lacked, in cores. If neighbours or programs are the cause, it is no more than they used.
    fn lacked(&self) -> f64 {
        let lacked = self.with_work.unwrap_or(self.waited).min(self.waited);
        match self.cause {
            Cause::Neighbours => lacked.min(self.foreign),
            Cause::Programs => lacked.min(self.programs),
            Cause::Quota | Cause::OwnThreads | Cause::Unknown => lacked,
        }
    }

    fn share(&self) -> f64 {
        let wanted = self.ran + self.waited;
        if wanted > 0.0 { self.waited / wanted } else { 0.0 }
    }
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let waited = view::thread_cores(period, &metrics::THREAD_WAIT, kind::SCHEDULERS)?;
    let foreign = view::neighbour_cores(period)?;
    // Programs inherit the CPUs that the VM may use.
    let programs = view::programs_cores(period).unwrap_or(0.0);
    let cpus = period.stat(&metrics::CPUS_ONLINE, "")?.mean();
    let capacity = view::capacity(period)?;
    // The part of their CPU use that did not fit on the CPUs that the VM may not use.
    let surely_here = programs + foreign - (cpus - capacity.allowed).max(0.0);
    // If other OS processes use most of the CPUs, the delay of busy-waiting threads is left out: without those processes there would be
    // none.
    let is_full_of_others = foreign + programs >= MIN_CROWDED_SHARE * capacity.allowed;
    let with_work = with_work(period);
    let wanted = with_work.filter(|_| is_full_of_others).unwrap_or(waited);
    // Neighbours that used at least half of the delay are the cause, whatever else ran.
    let cause = match wanted / 2.0 {
        _ if view::quota_used_up(period) => Cause::Quota,
        half if foreign + programs < half => Cause::OwnThreads,
        half if programs >= half && programs >= foreign => Cause::Programs,
        half if surely_here < half => Cause::Unknown,
        _ => Cause::Neighbours,
    };
    let waiting = Waiting {
        // Without the counters, every delay is regarded as a lack of CPU.
        per_turn_seconds: view::mean_run_queue_delay_seconds(period).unwrap_or(f64::INFINITY),
        ran: view::thread_cores(period, &metrics::THREAD_CPU, kind::SCHEDULERS)?,
        waited,
        with_work,
        foreign,
        programs,
        cause,
        capacity,
    };

    let used = foreign + programs + view::process_cores(period)?;
    let is_crowded = used >= MIN_CROWDED_SHARE * waiting.capacity.allowed;
    let mut drafts = Vec::new();
    // With idle CPUs, a delay as short as a wake-up is not a lack of CPU.
    let is_alone = !is_crowded || cause == Cause::OwnThreads;
    let is_short = waiting.per_turn_seconds < view::MAX_WAKE_UP_SECONDS;
    let is_waking_up =
        cause != Cause::Quota && is_short && (is_alone || waiting.waited < minor_cores(period));
    let has_bursts = cause == Cause::OwnThreads && used <= (1.0 - MIN_IDLE_SHARE) * waiting.capacity.allowed;
    if waiting.waited >= MIN_CORES
        && !is_waking_up
        && let Some(severity) = WAIT.of(period).severity(waiting.share())
    {
        let is_unsure = cause == Cause::Quota || is_short || !is_crowded;
        let draft = describe(period, &waiting, severity, cpus)
            .guess_if(is_unsure)
            .minor_if(has_bursts || waiting.lacked() < minor_cores(period))
            .at_most_warning_if(waiting.lacked() < MIN_CRITICAL_CORES)
            .but_if(has_bursts, "at least a quarter of its CPUs are idle on average: these are bursts");
        drafts.push(draft.but_if(
            !is_crowded,
            "the CPUs that it may use were idle most of the time: a burst, or bound threads",
        ));
    }
    drafts.extend(steal(period));
    Ok(Judgement::found_or_healthy(
        drafts,
        format!("schedulers: {:.2} cores on CPU, {:.2} of run-queue delay", waiting.ran, waiting.waited),
    ))
}

/// Run-queue delay of schedulers that had work, in cores: for each, no longer than it was active. Ten dirty I/O schedulers that spin after
/// each job gave a VM on two CPUs a delay of four cores, with work for half a core (measured).
fn with_work(period: &Period) -> Option<f64> {
    let threads = cpu::entities_of(period, metrics::THREAD_WAIT.group, kind::SCHEDULERS).into_iter();
    let each = threads.map(|entity| {
        let waited = period.cores(&metrics::THREAD_WAIT, entity).ok()?;
        let active = period.rate(&metrics::SCHEDULER_ACTIVE, entity).ok()?;
        let total = period.rate(&metrics::SCHEDULER_TOTAL, entity).ok().filter(|total| *total > 0.0)?;
        Some(waited.min(active / total))
    });
    each.sum()
}

fn describe(period: &Period, waiting: &Waiting, severity: f64, cpus: f64) -> Draft {
    let Waiting { ran, waited, with_work, per_turn_seconds, foreign, programs, cause, ref capacity } =
        *waiting;
    let is_short = per_turn_seconds < view::MAX_WAKE_UP_SECONDS;
    let by_quota = cause == Cause::Quota;
    let percent = 100.0 * waiting.share();
    let (title, detail) = match cause {
        Cause::Quota => (
            match view::throttled_share(period).is_some_and(|share| share >= SURELY_THROTTLED) {
                true => {
                    format!("Schedulers wait {percent:.0} % of runnable time: throttled by the CPU quota")
                }
                false => format!("Schedulers wait {percent:.0} % of runnable time, likely for the CPU quota"),
            },
            String::new(),
        ),
        Cause::OwnThreads => (
            format!("Schedulers wait {percent:.0} % of runnable time: more threads than CPUs"),
            "no other process uses these CPUs".to_owned(),
        ),
        Cause::Programs => (
            format!("Schedulers wait {percent:.0} % of runnable time for external programs"),
            format!("they use {} of {cpus:.0} cores", text::cores(programs)),
        ),
        Cause::Neighbours => (
            format!("Schedulers wait {percent:.0} % of runnable time for other OS processes"),
            format!("these use {} of {cpus:.0} cores", text::cores(foreign)),
        ),
        Cause::Unknown => (
            format!("Schedulers wait {percent:.0} % of runnable time for a CPU"),
            format!("the VM may use {:.0} of {cpus:.0} CPUs", capacity.allowed),
        ),
    };
    // Without much busy wait, disabling it gains nothing.
    let busy_wait_off =
        view::busy_waiting_off(&period.facts).filter(|_| spun(period).is_none_or(|spun| spun >= MIN_CORES));
    // More schedulers than CPUs displace each other, whatever else runs.
    let too_many = capacity.online > capacity.allowed;
    Draft::new(severity, title)
        .detail(detail)
        .detail(format!(
            "run-queue delay {} cores, on CPU {}",
            text::cores(waited),
            text::cores(ran)
        ))
        .signals((cause == Cause::OwnThreads).then_some(Signal::OwnThreads))
        // The flag has a finding of its own (BT003).
        .at_most_warning_if(cause == Cause::OwnThreads && too_many)
        .about(match cause {
            Cause::Quota => Some(Subject::limit(Limit::CpuQuota)),
            Cause::Programs => Some(Subject::host(HostPart::Programs)),
            Cause::Neighbours => Some(Subject::host(HostPart::Neighbours)),
            Cause::OwnThreads | Cause::Unknown => None,
        })
        // Delays as short as a wake-up may have cost nothing.
        .costs((!is_short).then(|| Cost::CpuCores(waiting.lacked())))
        .part(match cause {
            Cause::Programs => Some(CpuUse::ExternalPrograms),
            Cause::Neighbours => Some(CpuUse::Neighbours),
            Cause::Quota | Cause::OwnThreads | Cause::Unknown => None,
        })
        .evidence(Evidence::number("run-queue delay of schedulers", waited, Unit::Cores))
        .because_some(with_work.filter(|work| *work < waited / 2.0).map(|work| {
            Evidence::number("run-queue delay of schedulers with work", work, Unit::Cores)
                .with_text("otherwise in busy wait, or just woken")
        }))
        .evidence(Evidence::number("on-CPU time of schedulers", ran, Unit::Cores))
        .evidence(
            Evidence::number("run-queue delay, share of runnable time", waiting.share(), Unit::Ratio)
                .against_scale(WAIT.of(period)),
        )
        .evidence(Evidence::number("CPU of other processes", foreign, Unit::Cores))
        .because_some(
            (programs > 0.0).then(|| Evidence::number("CPU of external programs", programs, Unit::Cores)),
        )
        .evidence(Evidence::number("CPUs that the VM may use", capacity.allowed, Unit::Count))
        .evidence(Evidence::number("schedulers online", capacity.online, Unit::Count))
        .because_some(
            view::thread_rate(period, &metrics::INVOLUNTARY_SWITCHES, kind::SCHEDULERS)
                .ok()
                .map(|rate| Evidence::number("involuntary switches of schedulers", rate, Unit::PerSecond)),
        )
        .but_if(is_short, "each wait was shorter than 0.2 ms: that is a wake-up, not a lack of CPU")
        .but_if(by_quota, "throttled threads wait, too, which hides the effect of other processes: see cpu-throttled")
        .but_if(
            cause == Cause::Unknown,
            "it is not recorded what else used these CPUs: it may be the VM's own threads",
        )
        .fix_if(cause == Cause::Programs, || {
            remedy::of(
                period,
                "code.limit_programs",
                "run fewer of these programs at once, or with a lower priority (nice -n 10 PROGRAM); see the finding child-programs",
                "they run on the CPUs of the node",
                "run-queue delay of the scheduler threads falls towards 0",
            )
        })
        .fix_if(cause == Cause::Neighbours, || {
            remedy::of(
                period,
                "host.cpu_isolation",
                "move the other processes to another host, or give the VM its own CPUs (cpuset, a dedicated node pool)",
                "no flag helps against CPU use of other processes",
                "run-queue delay of the scheduler threads falls towards 0",
            )
        })
        .fix_if(too_many && !by_quota, || {
            let fit = capacity.allowed.floor().max(1.0) as i64;
            remedy::of(
                period,
                "+S",
                &format!("+S {fit}:{fit}"),
                "as many schedulers as CPUs do not displace each other",
                "run-queue delay and context switches under the same load",
            )
        })
        .fix_if(cause == Cause::Unknown, || {
            remedy::of(
                period,
                "host.cpu_isolation",
                "find what else runs on these CPUs (ps -eLo psr,pid,comm) and move it away, or give the VM its own CPUs, or more of them",
                "no flag helps against CPU use of other processes",
                "run-queue delay of the scheduler threads falls towards 0",
            )
        })
        .fix_if(cause == Cause::OwnThreads && !too_many, || {
            remedy::of(
                period,
                "host.cpu_isolation",
                "give the VM more CPUs: dirty schedulers and native threads run in addition to one normal scheduler per CPU",
                "sometimes more of its threads have work than it has CPUs",
                "run-queue delay and throughput under the same load",
            )
        })
        .fix_if(busy_wait_off.is_some() && !by_quota, || {
            remedy::of(
                period,
                "+sbwt",
                &busy_wait_off.unwrap_or_default(),
                "if CPU is short, busy wait takes it from threads with work, the VM's own included",
                "on a crowded host the effect can go either way (measured: −52 % CPU alone, +12 % crowded): compare under your load",
            )
        })
}

/// Busy wait of all schedulers, in cores; `None` if unknown.
fn spun(period: &Period) -> Option<f64> {
    FLAGS.iter().map(|(flag, kind)| Some(Spinning::of(period, flag, kind).ok()?.spun)).sum()
}

/// A shorter delay is a notice at most, in cores.
fn minor_cores(period: &Period) -> f64 {
    if view::quota_cores(period).is_some() { MIN_CORES } else { MINOR_CORES }
}

/// Drafts a finding about steal.
fn steal(period: &Period) -> Option<Draft> {
    let steal = period.cores(&metrics::CPU_STEAL, "").ok()?;
    let busy = period.cores(&metrics::CPU_BUSY, "").ok()?;
    let share = if busy + steal > 0.0 { steal / (busy + steal) } else { 0.0 };
    // Each process loses steal in proportion to its CPU time.
    let part = view::process_cores(period).map_or(1.0, |own| (own / busy.max(f64::MIN_POSITIVE)).min(1.0));
    let lacked = steal * part;
    // On a nearly idle guest, a large share may be stolen although little is lost.
    let severity = STEAL.of(period).severity(share).filter(|_| lacked >= MIN_CORES)?;
    Some(
        Draft::new(
            severity,
            format!("Steal: the hypervisor takes {:.0} % of the host's CPU time", share * 100.0),
        )
        .detail(format!("{} cores, {} of them from the VM", text::cores(steal), text::cores(lacked)))
        .minor_if(lacked < minor_cores(period))
        .at_most_warning_if(lacked < MIN_CRITICAL_CORES)
        .about(Subject::host(HostPart::Steal))
        .part(CpuUse::Steal)
        .costs(Cost::CpuCores(lacked))
        .evidence(Evidence::number("steal", steal, Unit::Cores))
        .evidence(
            Evidence::number("steal from the VM", lacked, Unit::Cores)
                .with_text("in proportion to its share of the host's CPU time"),
        )
        .evidence(
            Evidence::number("steal, share of CPU time", share, Unit::Ratio).against_scale(STEAL.of(period)),
        )
        .remedy(remedy::of(
            period,
            "host.cpu_isolation",
            "move to a machine type with dedicated CPUs, or to another host",
            "a guest cannot get stolen time back",
            "steal in /proc/stat falls towards 0",
        )),
    )
}
