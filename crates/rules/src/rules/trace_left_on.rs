//! BT076: processes are traced.
//!
//! Each event of a traced process is a message to one process, the tracer. A trace continues after its user has left, and costs CPU in the
//! traced processes and in the tracer.

use beamtune_model::series::PART_SEPARATOR;
use beamtune_model::{
    Account, Code, Cost, CpuUse, Evidence, Group, Missing, Period, ProcessActivity, Remedy, Scale,
    SeriesStat, Subject, Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, MINOR, Rule};
use crate::signals::{hot_code, stack};
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT076"),
    name: "trace-left-on",
    question: "Are processes traced?",
    confirm: "end the trace under the same load: CPU and latency fall, and the tracer's message queue empties",
    needs: &[&metrics::TRACE_SAMPLED],
    account: Account::CpuUsed,
    explains_as_notice: true,
    judge,
    thresholds: &[RUNS, QUEUE],
    ..Rule::COMMON
};

const RUNS: Threshold = Threshold::new(
    "trace-left-on.tracer_share",
    "share of samples in which the tracer runs or is runnable",
    Scale {
        notice: 0.02,
        warning: 0.20,
        critical: 0.90,
        source: "judgement: a tracer that always runs cannot keep up, and its message queue grows until memory is used up",
    },
);

const QUEUE: Threshold = Threshold::new(
    "trace-left-on.tracer_queue",
    "messages in the tracer's message queue",
    Scale {
        notice: 100.0,
        warning: 1_000.0,
        critical: 100_000.0,
        source: "judgement: as for any growing message queue; trace messages arrive faster than they are handled",
    },
);

/// Profilers of OTP, with the names of their trace sessions or processes.
const PROFILERS: &[&str] = &["tprof", "eprof", "fprof", "cprof", "instrument"];

/// Expression that ends all traces of a node without trace sessions.
const END_ALL: &str = "erlang:trace(all, false, [all]), erlang:trace_pattern({'_', '_', '_'}, false, [local, meta, call_count, call_time]), \
                       erlang:trace_pattern({'_', '_', '_'}, false, [])";

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let sampled = period.stat(&metrics::TRACE_SAMPLED, "")?;
    let traces = period.entities(Group::Trace).into_iter().filter_map(|entity| Trace::of(period, entity));
    // A trace that ended before the last sample is over.
    let (last, processes) = (sampled.last.t, total(sampled));
    let drafts = traces.filter(|trace| trace.last >= last).map(|trace| trace.describe(period, processes));
    Ok(Judgement::found_or_healthy(
        drafts.collect(),
        format!("none of {processes:.0} sampled processes traced, nor new ones"),
    ))
}

/// Returns the sum of all samples of a gauge.
fn total(stat: &SeriesStat) -> f64 {
    stat.mean() * f64::from(stat.samples)
}

/// A trace that sends to one tracer.
struct Trace<'a> {
    tracer: &'a str,
    session: &'a str,
    /// Number of sampled processes that it traces.
    traced: f64,
    is_new_traced: bool,
    flags: Vec<&'a str>,
    process: Option<&'a ProcessActivity>,
    /// Time of its last sample.
    last: i64,
}

impl<'a> Trace<'a> {
    fn of(period: &'a Period, entity: &'a str) -> Option<Self> {
        let (tracer, session) = entity.split_once(PART_SEPARATOR)?;
        let traced = period.stat(&metrics::TRACED, entity).ok()?;
        let flags = period.family(&metrics::TRACE_FLAGS, entity).map(|(name, _)| name);
        Some(Trace {
            tracer,
            session,
            traced: total(traced),
            is_new_traced: period.stat(&metrics::TRACE_NEW, entity).is_ok_and(|new| new.max > 0),
            flags: flags.collect(),
            process: period.process(tracer),
            last: traced.last.t,
        })
    }

    /// Whether the tracer or its session belongs to this tool: by name, initial call, stack or parent of the tracer.
    fn is_of(&self, tool: &str) -> bool {
        let row = self.process.and_then(|process| process.row.as_ref());
        let names = row
            .into_iter()
            .flat_map(|row| [&row.name, &row.initial_call, &row.current_function, &row.parent]);
        let begins = |name: &str| {
            name.strip_prefix(tool).is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '_']))
        };
        let on_stack = row.is_some_and(|row| row.stack.iter().any(|at| begins(at)));
        self.session == tool || on_stack || names.flatten().any(|name| begins(name))
    }

    fn describe(&self, period: &Period, processes: f64) -> Draft {
        let profiler = PROFILERS.iter().find(|tool| self.is_of(tool));
        let runs = self.process.and_then(stack::runnable_share);
        let queue = self.process.and_then(|process| view::queue_now(period, process));
        let by_runs = runs.and_then(|share| RUNS.of(period).severity(share));
        let by_queue = queue.and_then(|length| QUEUE.of(period).severity(length));
        let severity = by_runs.into_iter().chain(by_queue).fold(MINOR, f64::max);
        let tool = profiler.map_or("Tracing".to_owned(), |tool| format!("Profiler {tool}"));
        let state = match (queue.filter(|_| by_queue.is_some()), runs.filter(|_| by_runs.is_some())) {
            (Some(length), _) => format!("tracer has {} messages queued", text::number(length)),
            (None, Some(share)) => format!("tracer runs {:.0} % of the time", 100.0 * share),
            (None, None) if self.traced > 0.0 => {
                format!("{:.0} of {processes:.0} sampled processes traced", self.traced)
            }
            (None, None) => "new processes or ports traced".to_owned(),
        };
        let subject = match self.process {
            Some(process) => process.subject(),
            None if self.tracer.starts_with('<') => {
                Subject::Process { pid: self.tracer.to_owned(), name: None }
            }
            None => Subject::Function { name: self.tracer.to_owned() },
        };
        let traced = match (self.traced > 0.0, self.is_new_traced) {
            (true, true) => {
                format!("traced: {:.0} of {processes:.0} sampled processes and all new ones", self.traced)
            }
            (true, false) => format!("traced: {:.0} of {processes:.0} sampled processes", self.traced),
            (false, _) => "traced: all new processes or ports".to_owned(),
        };
        let is_behind = by_queue > by_runs;
        let waiting = queue.filter(|_| is_behind).map(Cost::Waiting);
        let cores = self.process.filter(|_| !is_behind).and_then(|process| {
            let share = view::reductions_share(period, &[process])?.min(1.0);
            Some(Cost::CpuCores(share * hot_code::cores(period).ok()?))
        });
        Draft::new(severity, format!("{tool} is on: {state}"))
            .detail(format!("tracer {subject}"))
            .detail(traced)
            .detail(format!("flags {}", self.flags.join(", ")))
            // A profiler is run on purpose.
            .minor_if(profiler.is_some())
            .about(subject)
            .costs(waiting.or(cores))
            .part(cores.map(|_| CpuUse::Code))
            .evidence(Evidence::text("trace flags", self.flags.join(", ")))
            .because_some(
                (!self.session.is_empty()).then(|| Evidence::text("trace session", self.session.to_owned())),
            )
            .evidence(
                Evidence::number("traced processes", self.traced, Unit::Count)
                    .with_text(format!("of {processes:.0} sampled: the busiest, and some others")),
            )
            .because_some(runs.map(|share| {
                Evidence::number("tracer running or runnable", share, Unit::Ratio)
                    .against_scale(RUNS.of(period))
            }))
            .because_some(queue.map(|length| {
                Evidence::number("message queue of the tracer", length, Unit::Count)
                    .against_scale(QUEUE.of(period))
            }))
            .counter_evidence("somebody may be tracing right now, on purpose")
            .remedy(self.end(period, profiler.copied()))
    }

    fn end(&self, period: &Period, profiler: Option<&str>) -> Option<Remedy> {
        let has_sessions = period.facts.otp_release().is_some_and(|release| release >= 27);
        let change = if let Some(tool) = profiler {
            format!("stop the profiler where it was started ({tool})")
        } else if self.is_of("recon_trace") {
            "recon_trace:clear()".to_owned()
        } else if self.is_of("redbug") {
            "redbug:stop()".to_owned()
        } else if self.is_of("dbg") {
            // Before OTP 27 dbg:stop/0 may leave trace patterns on functions.
            if has_sessions { "dbg:stop()" } else { "dbg:stop_clear()" }.to_owned()
        } else if has_sessions && !self.session.is_empty() {
            let name = self.session;
            format!(
                "[trace:session_destroy(S) || {{N, _}} = S <- trace:session_info(all), atom_to_list(N) =:= \"{name}\"]"
            )
        } else {
            END_ALL.to_owned()
        };
        remedy::of(
            period,
            "code.end_trace",
            &change,
            "each traced event is a message that the traced process sends and the tracer handles",
            "CPU per request and the tracer's message queue under the same load",
        )
    }
}
