//! BT004: the schedulers want to run, and others have the CPUs.

use beamtune_model::{
    Account, Code, Cost, Evidence, HostPart, Limit, Missing, Period, Scale, Signal, Subject, Threshold, Unit,
    Use, cpu, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Role, Rule};
use crate::signals::busy_wait::{FLAGS, Spinning};
use crate::view::{self, Capacity, kind};

pub const RULE: Rule = Rule {
    code: Code("BT004"),
    name: "cpu-starved",
    question: "Do the schedulers get a CPU when they want one?",
    confirm: "the same load while the neighbours stand still, or on CPUs of its own: the wait must be gone",
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
    has_the_cpu: true,
    judge,
    thresholds: &[WAIT, STEAL],
    ..Rule::COMMON
};

/// Share of the time in which schedulers were runnable and yet not on a CPU.
const WAIT: Threshold = Threshold::new(
    "cpu-starved.wait_share",
    "share of time in which schedulers wait for a CPU",
    Scale {
        notice: 0.15,
        warning: 0.30,
        critical: 0.60,
        source: "judgement; a contended host turned the effect of a flag from −52 % to +12 % CPU (measured, OTP 25)",
    },
);

/// Of the CPU time that the machine wanted, the share that the hypervisor gave to other guests.
const STEAL: Threshold = Threshold::new(
    "cpu-starved.steal_share",
    "steal, share of the CPU time that the machine wanted",
    Scale {
        notice: 0.03,
        warning: 0.10,
        critical: 0.30,
        source: "judgement; common practice calls 10 % steal a problem",
    },
);

/// Below this the schedulers hardly wanted to run, and hardly anything was stolen.
const WORTH_CORES: f64 = 0.05;

/// Without a quota, less than this is a notice, in cores (judgement, as of busy-waiting: little work is held up).
const MINOR_CORES: f64 = 0.20;

/// From this idle share of the CPUs that the VM may use on, its own threads displace each other in bursts only (judgement).
const IDLE: f64 = 0.25;

/// Below this little is lost, however large its share: a node that hardly runs is slowed, not stopped.
const MUCH_CORES: f64 = 0.25;

/// Where the CPUs that the VM may use were busy for less than this share of the time, whatever it waited for was a burst (judgement).
const CROWDED: f64 = 0.5;

/// Who had the CPUs for which the schedulers waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    /// Nobody: a quota stopped them.
    Quota,
    /// The VM's own threads, more than there are CPUs: they displace each other.
    Itself,
    /// Programs that the VM has started.
    Programs,
    /// Other processes.
    Others,
    /// Its own threads or others: the VM may run on a part of the host's CPUs, and on which of them others ran is not recorded.
    Unknown,
}

/// What the schedulers' waiting comes to.
struct Waiting {
    ran: f64,
    waited: f64,
    /// Of that, by threads that had work; `None` where it is not known.
    with_work: Option<f64>,
    /// Waiting for each time that a thread got a CPU.
    per_turn_seconds: f64,
    /// CPU of others, of the whole host.
    foreign: f64,
    /// CPU of the programs that the VM has started.
    programs: f64,
    who: Who,
    capacity: Capacity,
}

impl Waiting {
    /// CPU that threads with work lacked, in cores: no more than others used, where these are to blame.
    fn lacked(&self) -> f64 {
        let lacked = self.with_work.unwrap_or(self.waited).min(self.waited);
        match self.who {
            Who::Others => lacked.min(self.foreign),
            Who::Programs => lacked.min(self.programs),
            Who::Quota | Who::Itself | Who::Unknown => lacked,
        }
    }

    fn share(&self) -> f64 {
        let wanted = self.ran + self.waited;
        if wanted > 0.0 { self.waited / wanted } else { 0.0 }
    }
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let waited = view::thread_cores(period, &metrics::THREAD_WAIT, kind::SCHEDULERS)?;
    let foreign = view::foreign_cores(period)?;
    // Their CPUs are those that the VM may use, unless they have changed that themselves.
    let programs = view::programs_cores(period).unwrap_or(0.0);
    let cpus = period.stat(&metrics::CPUS_ONLINE, "")?.mean();
    let capacity = view::capacity(period)?;
    // For so much there was no room on the CPUs that the VM may not use.
    let surely_here = programs + foreign - (cpus - capacity.allowed).max(0.0);
    // Where others have most of the CPUs, threads that only spin would not wait without them.
    let is_full_of_others = foreign + programs >= CROWDED * capacity.allowed;
    let with_work = with_work(period);
    let wanted = with_work.filter(|_| is_full_of_others).unwrap_or(waited);
    // Neighbours that used half of what was waited for are to blame, whatever else there is.
    let who = match wanted / 2.0 {
        _ if view::quota_used_up(period) => Who::Quota,
        half if foreign + programs < half => Who::Itself,
        half if programs >= half && programs >= foreign => Who::Programs,
        half if surely_here < half => Who::Unknown,
        _ => Who::Others,
    };
    let waiting = Waiting {
        // Without the counters every wait is taken for a lack of CPU.
        per_turn_seconds: view::wait_per_turn_seconds(period).unwrap_or(f64::INFINITY),
        ran: view::thread_cores(period, &metrics::THREAD_CPU, kind::SCHEDULERS)?,
        waited,
        with_work,
        foreign,
        programs,
        who,
        capacity,
    };

    let used = foreign + programs + view::process_cores(period)?;
    let is_crowded = used >= CROWDED * waiting.capacity.allowed;
    let mut drafts = Vec::new();
    // Where CPUs are idle, waits that are no longer than waking up takes are none for a CPU.
    let is_alone = !is_crowded || who == Who::Itself;
    let short = waiting.per_turn_seconds < view::TURN_SECONDS;
    let wakes_up = who != Who::Quota && short && (is_alone || waiting.waited < least_cores(period));
    let in_bursts = who == Who::Itself && used <= (1.0 - IDLE) * waiting.capacity.allowed;
    if waiting.waited >= WORTH_CORES
        && !wakes_up
        && let Some(severity) = WAIT.of(period).severity(waiting.share())
    {
        let is_unsure = who == Who::Quota || short || !is_crowded;
        let draft = describe(period, &waiting, severity, cpus)
            .guess_if(is_unsure)
            .minor_if(in_bursts || waiting.lacked() < least_cores(period))
            .at_most_warning_if(waiting.lacked() < MUCH_CORES)
            .but_if(in_bursts, "a quarter of its CPUs or more are idle on average: these are bursts");
        drafts.push(draft.but_if(
            !is_crowded,
            "the CPUs that it may use were idle for most of the time: it was a burst, or the threads are bound",
        ));
    }
    drafts.extend(steal(period));
    Ok(Judgement::found_or_healthy(
        drafts,
        format!(
            "the schedulers ran for {:.2} cores and waited for a CPU for {:.2}",
            waiting.ran, waiting.waited
        ),
    ))
}

/// What schedulers waited for a CPU while they had work, in cores: each for no longer than it was active. With ten dirty I/O schedulers that spin
/// a while after each job, a VM of two CPUs was seen to wait for four of them, and to have work for half a one.
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
    let Waiting { ran, waited, with_work, per_turn_seconds, foreign, programs, who, ref capacity } = *waiting;
    let short = per_turn_seconds < view::TURN_SECONDS;
    let quota = who == Who::Quota;
    let why = match who {
        Who::Quota => "the CPU quota stopped them".to_owned(),
        Who::Itself => "more of the VM's own threads wanted to run than there are CPUs".to_owned(),
        Who::Programs => format!("programs that the node started used {programs:.2} of {cpus:.0} cores"),
        Who::Others => format!("other processes used {foreign:.2} of {cpus:.0} cores"),
        Who::Unknown => format!("the VM may run on {:.0} of {cpus:.0} CPUs", capacity.allowed),
    };
    // Where little is spent on it, to switch it off wins nothing.
    let spins =
        view::busy_waiting_off(&period.facts).filter(|_| spun(period).is_none_or(|spun| spun >= WORTH_CORES));
    // They displace each other, whoever else is there.
    let too_many = capacity.online > capacity.allowed;
    Draft::new(
        severity,
        format!(
            "the schedulers waited for a CPU in {:.0} % of the time in which they wanted one: {why}",
            waiting.share() * 100.0
        ),
    )
    .signals((who == Who::Itself).then_some(Signal::OwnThreads))
    .about(match who {
        Who::Quota => Some(Subject::limit(Limit::CpuQuota)),
        Who::Programs => Some(Subject::host(HostPart::Programs)),
        Who::Others => Some(Subject::host(HostPart::Neighbours)),
        Who::Itself | Who::Unknown => None,
    })
    // Waits that are no longer than waking up takes may have cost nothing.
    .costs((!short).then(|| Cost::CpuCores(waiting.lacked())))
    .part(match who {
        Who::Programs => Some(Use::Programs),
        Who::Others => Some(Use::Others),
        Who::Quota | Who::Itself | Who::Unknown => None,
    })
    .because(Evidence::number("schedulers kept waiting for a CPU", waited, Unit::Cores))
    .because_some(with_work.filter(|work| *work < waited / 2.0).map(|work| {
        Evidence::number("of that with work to do; else they spun, or had just been woken", work, Unit::Cores)
    }))
    .because(Evidence::number("schedulers on a CPU", ran, Unit::Cores))
    .because(Evidence::number("share of waiting", waiting.share(), Unit::Ratio).against_scale(WAIT.of(period)))
    .because(Evidence::number("CPU of other processes", foreign, Unit::Cores))
    .because_some((programs > 0.0).then(|| {
        Evidence::number("CPU of programs that the node started", programs, Unit::Cores)
    }))
    .because(Evidence::number("CPUs that the VM may run on", capacity.allowed, Unit::Count))
    .because(Evidence::number("schedulers online", capacity.online, Unit::Count))
    .because_some(
        view::thread_rate(period, &metrics::INVOLUNTARY_SWITCHES, kind::SCHEDULERS)
            .ok()
            .map(|rate| Evidence::number("schedulers displaced, or yielding", rate, Unit::PerSecond)),
    )
    .but_if(short, "each wait was shorter than 0.2 ms: that is what waking up takes, not a lack of CPU")
    .but_if(quota, "threads that a quota stops wait as well: see cpu-throttled, neighbours cannot be told from it here")
    .but_if(
        who == Who::Unknown,
        "who else used these CPUs is not recorded: what others used is of the whole host, and it may be the VM's own threads that had them",
    )
    .fix_if(who == Who::Programs, || {
        remedy::of(
            period,
            "code.limit_programs",
            "run fewer of these programs at a time, or with a lower priority (nice -n 10 PROGRAM); see the finding child-programs",
            "they run on the CPUs of the node",
            "run-queue wait of the scheduler threads must fall towards 0",
        )
    })
    .fix_if(who == Who::Others, || {
        remedy::of(
            period,
            "host.cpu_isolation",
            "move the neighbours away, or give the VM CPUs of its own (cpuset, a dedicated node pool)",
            "no flag gives back CPU that others use",
            "run-queue wait of the scheduler threads must fall towards 0",
        )
    })
    .fix_if(too_many && !quota, || {
        let fit = capacity.allowed.floor().max(1.0) as i64;
        remedy::of(
            period,
            "+S",
            &format!("+S {fit}:{fit}"),
            "as many schedulers as CPUs do not displace each other",
            "run-queue wait and context switches under the same load",
        )
    })
    .fix_if(who == Who::Unknown, || {
        remedy::of(
            period,
            "host.cpu_isolation",
            "see who else runs on these CPUs (ps -eLo psr,pid,comm), and move them away, or give the VM CPUs of its own, or more of them",
            "what others have of so few CPUs no flag gives back",
            "run-queue wait of the scheduler threads must fall towards 0",
        )
    })
    .fix_if(who == Who::Itself && !too_many, || {
        remedy::of(
            period,
            "host.cpu_isolation",
            "give the VM more CPUs: dirty schedulers and native threads run beside as many normal schedulers as it has CPUs",
            "at times more of its threads have work than it has CPUs",
            "run-queue wait and throughput under the same load",
        )
    })
    .fix_if(spins.is_some() && !quota, || {
        remedy::of(
            period,
            "+sbwt",
            &spins.unwrap_or_default(),
            "where CPU is short, spinning takes it from those who have work, also from the VM's own threads",
            "with a crowded host the effect can go either way (measured: −52 % CPU alone, +12 % crowded): compare under your load",
        )
    })
}

/// Busy waiting of all schedulers, in cores; `None` where it is not known.
fn spun(period: &Period) -> Option<f64> {
    FLAGS.iter().map(|(flag, kind)| Some(Spinning::of(period, flag, kind).ok()?.spun)).sum()
}

/// What is no more than a notice below it, in cores.
fn least_cores(period: &Period) -> f64 {
    if view::quota_cores(period).is_some() { WORTH_CORES } else { MINOR_CORES }
}

fn steal(period: &Period) -> Option<Draft> {
    let steal = period.cores(&metrics::CPU_STEAL, "").ok()?;
    let busy = period.cores(&metrics::CPU_BUSY, "").ok()?;
    let share = if busy + steal > 0.0 { steal / (busy + steal) } else { 0.0 };
    // Whoever runs on the machine loses as much of it as they use of its CPU time.
    let part = view::process_cores(period).map_or(1.0, |own| (own / busy.max(f64::MIN_POSITIVE)).min(1.0));
    let lacked = steal * part;
    let severity = STEAL.of(period).severity(share).filter(|_| lacked >= WORTH_CORES)?;
    // Of a machine that wants little, a large share may be taken, and little is lost.
    Some(
        Draft::new(
            severity,
            format!(
                "the hypervisor gave {:.0} % of the CPU time that this machine wanted to other guests",
                share * 100.0
            ),
        )
        .minor_if(lacked < least_cores(period))
        .at_most_warning_if(lacked < MUCH_CORES)
        .about(Subject::host(HostPart::Steal))
        .part(Use::Stolen)
        .costs(Cost::CpuCores(lacked))
        .because(Evidence::number("stolen", steal, Unit::Cores))
        .because(Evidence::number(
            "of that from the VM, by its part of the machine's CPU time",
            lacked,
            Unit::Cores,
        ))
        .because(Evidence::number("share of steal", share, Unit::Ratio).against_scale(STEAL.of(period)))
        .fix(remedy::of(
            period,
            "host.cpu_isolation",
            "move to a machine type with dedicated CPUs, or to another host",
            "stolen time cannot be had back from inside",
            "steal in /proc/stat must fall towards 0",
        )),
    )
}
