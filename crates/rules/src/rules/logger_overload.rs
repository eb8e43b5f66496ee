//! BT042: the logger cannot keep up: processes that log wait for it, or events are dropped.
//!
//! A log handler that writes is a process with overload protection. With ten queued messages or more, each process that logs waits until
//! its event is written. With 200 or more, events are dropped; with 1,000 or more, the whole queue is flushed. The process `error_logger`,
//! which passes events to handlers written before OTP 21, has no protection, so its queue grows. So does that of a handler whose limits
//! were raised so far that they never apply.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, ProcessActivity, Remedy, Scale, Signal, Threshold, Unit,
    facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::blocking;
use crate::signals::stack;
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT042"),
    name: "logger-overload",
    question: "Do processes that log wait for the logger?",
    confirm: "call logger:set_primary_config(level, error) for a minute: processes that log are fast again, and the queue is empty",
    needs: &[&metrics::SCAN_LONGEST_QUEUE],
    account: Account::Delay,
    judge,
    thresholds: &[SYNC, DROP, QUEUE],
    ..Rule::COMMON
};

/// A log handler with its protection. `logger_proxy` is not one of them: it forwards events of other nodes and of the VM, and has its own
/// limits.
struct Handler {
    /// Its registered name, or a prefix of it that ends in `_`.
    name: &'static str,
    /// Queue length at which callers start to wait.
    sync: i64,
    /// Queue length at which the handler starts to drop events.
    drop: i64,
    /// Names of these settings.
    settings: &'static str,
}

const HANDLERS: &[Handler] = &[
    Handler { name: "logger_std_h_", sync: 10, drop: 200, settings: "sync_mode_qlen and drop_mode_qlen" },
    Handler {
        name: "logger_disk_log_h_",
        sync: 10,
        drop: 200,
        settings: "sync_mode_qlen and drop_mode_qlen",
    },
    Handler { name: "Elixir.Logger", sync: 20, drop: 500, settings: "sync_threshold and discard_threshold" },
];

/// Settings of a handler.
struct Settings {
    id: String,
    sync: i64,
    drop: i64,
    flush: i64,
    limits_bursts: bool,
    burst: i64,
}

/// Defaults (logger_olp.hrl, `SYNC_MODE_QLEN` and the following ones; the same from OTP 21 to 29).
const DEFAULT_SYNC: i64 = 10;
const DEFAULT_DROP: i64 = 200;
const DEFAULT_FLUSH: i64 = 1_000;
const DEFAULT_BURST: i64 = 500;

/// At or above this sync_mode_qlen, the queue length is judged instead of waiting callers (judgement: ten times the default of
/// drop_mode_qlen). No events are dropped earlier either, because drop_mode_qlen is never smaller.
const MIN_UNPROTECTED_SYNC: i64 = 10 * DEFAULT_DROP;

/// At or above this sync_mode_qlen, the protection counts as off (judgement: the critical queue length).
const MIN_OFF_SYNC: i64 = 100_000;

impl Settings {
    /// Returns the settings recorded for the handler with the name of this process.
    fn of(period: &Period, process: &ProcessActivity) -> Option<Self> {
        let name = process.row.as_ref()?.name.as_deref()?;
        let handlers = period.facts.object(facts::LOG_HANDLERS)?;
        let mut words = handlers.get(name)?.splitn(6, ' ');
        let mut next = || words.next();
        Some(Settings {
            sync: next()?.parse().ok()?,
            drop: next()?.parse().ok()?,
            flush: next()?.parse().ok()?,
            limits_bursts: next()?.parse().ok()?,
            burst: next()?.parse().ok()?,
            id: next()?.to_owned(),
        })
    }

    fn is_unprotected(&self) -> bool {
        self.sync >= MIN_UNPROTECTED_SYNC
    }

    /// Returns the settings above their defaults, as text and as entries of an Erlang map that resets them.
    fn raised(&self) -> (Vec<String>, Vec<String>) {
        let numbers = [
            ("sync_mode_qlen", self.sync, DEFAULT_SYNC),
            ("drop_mode_qlen", self.drop, DEFAULT_DROP),
            ("flush_qlen", self.flush, DEFAULT_FLUSH),
            ("burst_limit_max_count", self.burst, DEFAULT_BURST),
        ];
        let raised = || numbers.iter().filter(|(_, value, default)| value > default);
        let mut texts: Vec<String> =
            raised().map(|(name, value, default)| format!("{name} {value} (default {default})")).collect();
        let mut resets: Vec<String> =
            raised().map(|(name, _, default)| format!("{name} => {default}")).collect();
        if !self.limits_bursts {
            texts.push("burst_limit_enable false (default true)".to_owned());
            resets.push("burst_limit_enable => true".to_owned());
        }
        (texts, resets)
    }
}

/// Up to this release, each event costs time in proportion to the queue length: `logger_olp:check_load/1` reads the memory of the process
/// (erlang/otp#7417).
const MAX_RELEASE_OF_SLOW_CHECK: i64 = 25;

const SYNC: Threshold = Threshold::new(
    "logger-overload.sync_share",
    "share of samples in which a handler is in sync mode",
    Scale {
        notice: 0.10,
        warning: 0.40,
        critical: 1.01,
        source: "from sync_mode_qlen (10) on processes that log wait: logger's own protection; the shares are judgement",
    },
);

const DROP: Threshold = Threshold::new(
    "logger-overload.drop_share",
    "share of samples in which a handler drops events",
    Scale {
        notice: 0.05,
        warning: 0.15,
        critical: 0.40,
        source: "from drop_mode_qlen (200) on events are lost: logger's own protection; the shares are judgement",
    },
);

/// The process that passes events to handlers written before OTP 21. No process waits for it, and it drops nothing.
const UNPROTECTED: &str = "error_logger";

const QUEUE: Threshold = Threshold::new(
    "logger-overload.queue_length",
    "mean queue length of error_logger, or of a handler without protection",
    Scale {
        notice: 1_000.0,
        warning: 5_000.0,
        critical: 100_000.0,
        source: "judgement: from flush_qlen (1,000) on a handler with protection flushes its queue",
    },
);

/// If this share of the waiting callers logs the end of a process, crash reports fill the log (judgement).
const MIN_END_SHARE: f64 = 0.5;

const MIN_SAMPLES: f64 = 5.0;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    period.stat(&metrics::SCAN_LONGEST_QUEUE, "")?;
    // A queue is recorded only while it is among the longest. Processes are sampled with each sample of the VM.
    let samples = f64::from(period.vm_ticks);
    if samples < MIN_SAMPLES {
        return Ok(Judgement::NotJudged {
            reason: format!("only {samples:.0} samples of processes"),
            next: "record for longer: --for 10s".to_owned(),
        });
    }
    let mut longest = 0;
    let mut drafts = Vec::new();
    for process in &period.processes {
        if is_unprotected(process) {
            longest = longest.max(process.queue_max);
            let mean = recorded_share(process, samples) * view::mean_queue(process);
            drafts.extend(
                QUEUE.of(period).severity(mean).map(|severity| unprotected(period, process, mean, severity)),
            );
        }
        let Some(handler) = handler(process) else { continue };
        longest = longest.max(process.queue_max);
        let settings = Settings::of(period, process);
        let load = Load::of(process, handler, settings.as_ref(), samples);
        if let Some(settings) = settings.as_ref().filter(|settings| settings.is_unprotected()) {
            let mean = recorded_share(process, samples) * load.mean;
            if let Some(severity) = QUEUE.of(period).severity(mean) {
                drafts.push(without_protection(period, process, settings, mean, severity));
                continue;
            }
        }
        let severity = [SYNC.of(period).severity(load.waits), DROP.of(period).severity(load.drops)]
            .into_iter()
            .flatten()
            .reduce(f64::max);
        drafts.extend(
            severity.map(|severity| describe(period, process, handler, settings.as_ref(), &load, severity)),
        );
    }
    let longest = text::number(longest as f64);
    Ok(Judgement::found_or_healthy(drafts, format!("longest queue of a log handler: {longest}")))
}

fn is_unprotected(process: &ProcessActivity) -> bool {
    process.row.as_ref().and_then(|row| row.name.as_deref()) == Some(UNPROTECTED)
}

fn handler(process: &ProcessActivity) -> Option<&'static Handler> {
    let row = process.row.as_ref()?;
    let name = row.name.as_deref()?;
    // Handlers of other applications, such as RabbitMQ's, have other names but the same initial call.
    let name = match row.initial_call.as_deref() {
        Some("logger_olp:init/1") if name != "logger_proxy" => HANDLERS.first()?.name,
        _ => name,
    };
    HANDLERS.iter().find(|handler| match handler.name.ends_with('_') {
        true => name.starts_with(handler.name),
        false => name == handler.name,
    })
}

/// Returns the share of the samples in which a process was recorded, because it was among the busiest or had one of the longest queues.
fn recorded_share(process: &ProcessActivity, samples: f64) -> f64 {
    (f64::from(process.ticks) / samples).min(1.0)
}

/// How far a handler was behind, and how often.
struct Load {
    /// Queue lengths at which callers start to wait, and at which the handler starts to drop events.
    limits: (i64, i64),
    /// Share of the samples in which callers wait.
    waits: f64,
    /// Share of the samples in which events are dropped.
    drops: f64,
    /// Mean queue length while the handler was recorded.
    mean: f64,
}

impl Load {
    fn of(process: &ProcessActivity, handler: &Handler, settings: Option<&Settings>, samples: f64) -> Load {
        let lengths: Vec<i64> = process.queue.points().iter().map(|point| point.1).collect();
        let points = lengths.len().max(1) as f64;
        // In samples without a record, the handler was not behind.
        let recorded = recorded_share(process, samples);
        let share = |min: i64| lengths.iter().filter(|length| **length >= min).count() as f64 / points;
        let limits = settings.map_or((handler.sync, handler.drop), |settings| (settings.sync, settings.drop));
        Load {
            limits,
            waits: recorded * share(limits.0),
            drops: recorded * share(limits.1),
            mean: lengths.iter().sum::<i64>() as f64 / points,
        }
    }
}

fn describe(
    period: &Period,
    process: &ProcessActivity,
    handler: &Handler,
    settings: Option<&Settings>,
    load: &Load,
    severity: f64,
) -> Draft {
    let drops = DROP.of(period).severity(load.drops).is_some();
    let ending = end_share(period, process).filter(|share| *share >= MIN_END_SHARE);
    let what = if drops { "events dropped" } else { "callers wait" };
    let subject = process.subject();
    Draft::new(
        severity,
        format!(
            "Log handler {}: {} events queued, {what}",
            text::name(&subject),
            text::number(load.mean.round())
        ),
    )
    .detail(text::pid(&subject))
    .detail(format!("callers waited in {:.0} % of samples", load.waits * 100.0))
    .detail(if drops { format!("events dropped in {:.0} % of samples", load.drops * 100.0) } else { String::new() })
    .detail(ending.map_or("", |_| "most callers log that a process has ended"))
    .about(subject)
    .signals(ending.map(|_| Signal::LogsEnds))
    .costs(Cost::Waiting(load.mean))
    .evidence(
        Evidence::number("samples with callers waiting", load.waits, Unit::Ratio)
            .against_scale(SYNC.of(period))
            .with_text(format!("{} or more messages queued", load.limits.0)),
    )
    .evidence(
        Evidence::number("samples with events dropped", load.drops, Unit::Ratio)
            .against_scale(DROP.of(period))
            .with_text(format!("{} or more messages queued", load.limits.1)),
    )
    .evidence(Evidence::number("longest queue", process.queue_max as f64, Unit::Count))
    .because_some(settings.and_then(raised_settings))
    .because_some(stack::runnable_share(process).map(|share| {
        let text = if share > 0.5 { "writes as fast as it can" } else { "waits for its device" };
        Evidence::number("samples running or runnable", share, Unit::Ratio).with_text(text)
    }))
    .because_some(stack::current_function_of(process).map(|place| Evidence::text("current function", place)))
    .because_some(
        ending.map(|share| Evidence::number("callers that log the exit of a process", share, Unit::Ratio)),
    )
    .but_if(
        settings.is_none(),
        format!("judged by the defaults of {}: the settings of this node are not recorded", handler.settings),
    )
    .remedy(match ending {
        None => remedy::of(
            period,
            "kernel.logger_level",
            "log less: -kernel logger_level warning (in Elixir config :logger, level: :warning), or a level per module \
             (logger:set_module_level/2)",
            "events below the level cost a function call only",
            "queue length of the handler and p99 of requests that log, under the same load",
        ),
        // Crash reports are errors, which no usual log level suppresses.
        Some(_) => remedy::of(
            period,
            "code.fewer_ends",
            "see in the log why processes end, and fix that; keep large states out of the reports with format_status/1 (format_status/2 before OTP 25)",
            "each exit is logged twice, by the process and by proc_lib, with its state",
            "exits per second and queue length of the handler",
        ),
    })
    .fix_if(!handler.name.starts_with("Elixir"), || {
        remedy::of(
            period,
            "logger.drop_mode_qlen",
            "if no request may wait for the log: set drop_mode_qlen as low as sync_mode_qlen, so that events are dropped instead",
            "between the two, each process that logs waits until its event is written",
            "p99 of requests that log, and the logger's reports of dropped events",
        )
    })
    .remedy(remedy::of(
        period,
        "code.faster_log",
        "check its device: a terminal or pipe that is read slowly, a full or shared disk, a synced file; give frequent events a \
         handler and file of their own",
        "one process writes all events of a handler, one after the other",
        "queue length of the handler",
    ))
}

/// Returns the settings that allow a longer queue than the defaults, as evidence.
fn raised_settings(settings: &Settings) -> Option<Evidence> {
    let (texts, _) = settings.raised();
    (!texts.is_empty()).then(|| Evidence::text("handler settings", texts.join(", ")))
}

/// Drafts the finding about settings that neither make callers wait nor drop events before the queue is long.
fn without_protection(
    period: &Period,
    process: &ProcessActivity,
    settings: &Settings,
    mean: f64,
    severity: f64,
) -> Draft {
    let (_, resets) = settings.raised();
    let reset = format!(
        "logger:update_handler_config({}, config, #{{{}}}), and the same in the configuration",
        atom(&settings.id),
        resets.join(", ")
    );
    let release = period.facts.number(facts::OTP_RELEASE);
    let is_slow = release.is_some_and(|release| release <= MAX_RELEASE_OF_SLOW_CHECK);
    let ending = end_share(period, process).filter(|share| *share >= MIN_END_SHARE);
    let protection = match settings.sync {
        sync if sync >= MIN_OFF_SYNC => "overload protection off".to_owned(),
        sync => format!("sync_mode_qlen is {sync}"),
    };
    Draft::new(
        severity,
        format!("Log handler {}: {} events queued, {protection}", settings.id, text::number(mean.round())),
    )
    .detail(process.title())
    .detail(format!("longest queue {}", text::number(process.queue_max as f64)))
    .about(process.subject())
    .signals(ending.map(|_| Signal::LogsEnds))
    .costs(Cost::Waiting(mean))
    .evidence(
        Evidence::number("mean queue length", mean, Unit::Count).against_scale(QUEUE.of(period)),
    )
    .evidence(Evidence::number("longest queue", process.queue_max as f64, Unit::Count))
    .because_some(raised_settings(settings))
    .because_some(is_slow.then(|| {
        Evidence::text(
            "cost per event",
            "proportional to the queue length up to OTP 25 (logger_olp:check_load/1, erlang/otp#7417)",
        )
    }))
    .because_some(stack::current_function_of(process).map(|place| Evidence::text("current function", place)))
    .remedy(remedy::of(
        period,
        "logger.drop_mode_qlen",
        &reset,
        "with these settings the queue grows; with the defaults callers wait, and then events are dropped and counted",
        "queue length of the handler, and the logger's reports of dropped events",
    ))
    .remedy(log_less(period))
}

/// Formats an atom in Erlang syntax.
fn atom(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'@';
    let starts_plain = name.starts_with(|first: char| first.is_ascii_lowercase());
    if starts_plain && name.bytes().all(is_plain) { name.to_owned() } else { format!("'{name}'") }
}

fn log_less(period: &Period) -> Option<Remedy> {
    remedy::of(
        period,
        "kernel.logger_level",
        "log less: -kernel logger_level warning, or a level per module (logger:set_module_level/2)",
        "events below the level cost a function call only",
        "its queue length and the node's memory",
    )
}

/// Returns the share of its waiting callers that log the exit of a process; `None` if few were sampled.
fn end_share(period: &Period, process: &ProcessActivity) -> Option<f64> {
    let holds = blocking::blocking_processes(period).ok()?;
    let its = holds.iter().find(|hold| hold.process.is_some_and(|one| std::ptr::eq(one, process)))?;
    Some(its.ending)
}

/// Drafts the finding about `error_logger`.
fn unprotected(period: &Period, process: &ProcessActivity, mean: f64, severity: f64) -> Draft {
    let subject = process.subject();
    Draft::new(
        severity,
        format!(
            "{} has {} messages queued and no overload protection",
            text::name(&subject),
            text::number(mean.round())
        ),
    )
    .detail(text::pid(&subject))
    .detail(format!("longest queue {}", text::number(process.queue_max as f64)))
    .detail("callers do not wait, and nothing is dropped")
    .about(subject)
    .costs(Cost::Waiting(mean))
    .evidence(Evidence::number("mean queue length", mean, Unit::Count).against_scale(QUEUE.of(period)))
    .evidence(Evidence::number("longest queue", process.queue_max as f64, Unit::Count))
    .because_some(stack::current_function_of(process).map(|place| Evidence::text("current function", place)))
    .remedy(remedy::of(
        period,
        "code.faster_log",
        "replace handlers of error_logger (error_logger:which_report_handlers/0), added by a library or an old configuration, by logger \
         handlers",
        "handlers of logger are protected: callers wait for them, and then events are dropped",
        "its queue length; without such handlers the process does not exist",
    ))
    .remedy(log_less(period))
}
