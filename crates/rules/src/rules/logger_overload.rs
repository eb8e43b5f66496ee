//! BT042: the logger cannot write what is logged, and makes those who log wait, or drops it.
//!
//! Each handler of the logger that writes is a process with a protection of its own: from ten messages in its queue on, each process that
//! logs has to wait until its event is written; from 200 on events are dropped, from 1,000 on all that waits is thrown away. The process
//! `error_logger`, which hands events on to handlers of the time before OTP 21, has none: its queue grows. So does that of a handler whose
//! settings were raised so far that they never take effect.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, ProcessUse, Remedy, Scale, Signal, Threshold, Unit,
    facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::blocking;
use crate::signals::stack;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT042"),
    name: "logger-overload",
    question: "Does who logs have to wait for the log?",
    confirm: "logger:set_primary_config(level, error) for a minute: who logs must be fast again, and the queue empty",
    needs: &[&metrics::SCAN_LONGEST_QUEUE],
    account: Account::Delay,
    judge,
    thresholds: &[SYNC, DROP, QUEUE],
    ..Rule::COMMON
};

/// A process that writes the log, with what protects it. `logger_proxy` is none: it hands on what comes from other nodes and from the VM, with
/// limits of its own.
struct Handler {
    /// The beginning of its registered name, or all of it.
    name: &'static str,
    /// From so many messages on those who log wait.
    sync: i64,
    /// From so many on events are dropped.
    drop: i64,
    /// The settings' names.
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

/// What a handler is set to.
struct Settings {
    id: String,
    sync: i64,
    drop: i64,
    flush: i64,
    limits_bursts: bool,
    burst: i64,
}

/// The defaults (logger_olp.hrl, `SYNC_MODE_QLEN` and the next ones; the same from OTP 21 to 29).
const DEFAULT_SYNC: i64 = 10;
const DEFAULT_DROP: i64 = 200;
const DEFAULT_FLUSH: i64 = 1_000;
const DEFAULT_BURST: i64 = 500;

/// Where nobody is held back before so many events are queued, it is the length of the queue that matters (judgement: ten times
/// the default of drop_mode_qlen). sync_mode_qlen is never above drop_mode_qlen, so nothing is dropped before either.
const UNPROTECTED_SYNC: i64 = 10 * DEFAULT_DROP;

/// From so many on the protection is as good as off (judgement: the critical length of the queue).
const OFF_SYNC: i64 = 100_000;

impl Settings {
    /// As recorded for the process of this name.
    fn of(period: &Period, process: &ProcessUse) -> Option<Self> {
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
        self.sync >= UNPROTECTED_SYNC
    }

    /// Those that let the queue grow longer than the defaults do: as text, and as a map of Erlang that sets them back.
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

/// Up to this release each event costs time proportional to the length of the queue: `logger_olp:check_load/1` reads the process's memory
/// (erlang/otp#7417).
const MAX_RELEASE_OF_SLOW_CHECK: i64 = 25;

/// Share of the looks in which a handler had so many messages that whoever logs waits.
const SYNC: Threshold = Threshold::new(
    "logger-overload.sync_share",
    "share of samples in which a handler is in sync mode",
    Scale {
        notice: 0.10,
        warning: 0.40,
        critical: 1.01,
        source: "from sync_mode_qlen (10) on whoever logs waits: logger's own protection; the shares are judgement",
    },
);

/// Share of the looks in which events were dropped.
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

/// Hands events on to handlers that were written for releases before 21. Nobody waits for it, and it drops nothing.
const UNPROTECTED: &str = "error_logger";

/// Messages in its queue, on the average.
const QUEUE: Threshold = Threshold::new(
    "logger-overload.queue_length",
    "mean messages in the queue of error_logger, or of a handler without protection",
    Scale {
        notice: 1_000.0,
        warning: 5_000.0,
        critical: 100_000.0,
        source: "judgement: from flush_qlen (1,000) on a handler with protection throws away what waits",
    },
);

/// From this share of those who wait on, the log is full of ends (judgement).
const MOSTLY: f64 = 0.5;

/// Looks at all that say something.
const MIN_LOOKS: f64 = 5.0;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    period.stat(&metrics::SCAN_LONGEST_QUEUE, "")?;
    // A queue is read only while it is among the longest: the looks at all processes are those of the VM's samples.
    let looks = f64::from(period.vm_ticks);
    if looks < MIN_LOOKS {
        return Ok(Judgement::NotJudged {
            reason: format!("the processes were looked at {looks:.0} times only"),
            next: "record for longer: --for 10s".to_owned(),
        });
    }
    let mut longest = 0;
    let mut drafts = Vec::new();
    for process in &period.processes {
        if is_unprotected(process) {
            longest = longest.max(process.queue_max);
            let mean = told(process, looks) * view::mean_queue(process);
            drafts.extend(
                QUEUE.of(period).severity(mean).map(|severity| unprotected(period, process, mean, severity)),
            );
        }
        let Some(handler) = handler(process) else { continue };
        longest = longest.max(process.queue_max);
        let settings = Settings::of(period, process);
        let load = Load::of(process, handler, settings.as_ref(), looks);
        if let Some(settings) = settings.as_ref().filter(|settings| settings.is_unprotected()) {
            let mean = told(process, looks) * load.mean;
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
    Ok(Judgement::found_or_healthy(
        drafts,
        format!(
            "no handler of the logger was behind; the most that one had in its queue were {longest} messages"
        ),
    ))
}

fn is_unprotected(process: &ProcessUse) -> bool {
    process.row.as_ref().and_then(|row| row.name.as_deref()) == Some(UNPROTECTED)
}

fn handler(process: &ProcessUse) -> Option<&'static Handler> {
    let row = process.row.as_ref()?;
    let name = row.name.as_deref()?;
    // Handlers of other applications (RabbitMQ's, say) have other names, but are the same process.
    let name = match row.initial_call.as_deref() {
        Some("logger_olp:init/1") if name != "logger_proxy" => HANDLERS.first()?.name,
        _ => name,
    };
    HANDLERS.iter().find(|handler| match handler.name.ends_with('_') {
        true => name.starts_with(handler.name),
        false => name == handler.name,
    })
}

/// Share of the looks in which a process is told of: where it was among the busiest or had one of the longest queues.
fn told(process: &ProcessUse, looks: f64) -> f64 {
    (f64::from(process.ticks) / looks).min(1.0)
}

/// How often a handler was behind, as shares of the looks at it.
struct Load {
    /// From so many messages on those who log wait, and events are dropped.
    limits: (i64, i64),
    waits: f64,
    drops: f64,
    mean: f64,
}

impl Load {
    fn of(process: &ProcessUse, handler: &Handler, settings: Option<&Settings>, looks: f64) -> Load {
        let lengths: Vec<i64> = process.queue.points().iter().map(|point| point.1).collect();
        let points = lengths.len().max(1) as f64;
        // In the other looks it was not behind.
        let told = told(process, looks);
        let share = |least: i64| lengths.iter().filter(|length| **length >= least).count() as f64 / points;
        let limits = settings.map_or((handler.sync, handler.drop), |settings| (settings.sync, settings.drop));
        Load {
            limits,
            waits: told * share(limits.0),
            drops: told * share(limits.1),
            mean: lengths.iter().sum::<i64>() as f64 / points,
        }
    }
}

fn describe(
    period: &Period,
    process: &ProcessUse,
    handler: &Handler,
    settings: Option<&Settings>,
    load: &Load,
    severity: f64,
) -> Draft {
    let drops = DROP.of(period).severity(load.drops).is_some();
    let most = process.queue_max;
    let ending = ending(period, process).filter(|share| *share >= MOSTLY);
    let what = if drops { "who logs waits for it, and events are dropped" } else { "who logs waits for it" };
    Draft::new(
        severity,
        format!("the logger's handler {} is behind, with {:.0} messages in its queue: {what}", process.title(), load.mean),
    )
    .about(process.subject())
    .signals(ending.map(|_| Signal::LogsEnds))
    .costs(Cost::Waiting(load.mean))
    .because(
        Evidence::number("looks in which those who log had to wait", load.waits, Unit::Ratio)
            .against_scale(SYNC.of(period))
            .with_text(format!("{} messages and more in its queue", load.limits.0)),
    )
    .because(
        Evidence::number("looks in which events were dropped", load.drops, Unit::Ratio)
            .against_scale(DROP.of(period))
            .with_text(format!("{} messages and more", load.limits.1)),
    )
    .because(Evidence::number("messages in its queue, most", most as f64, Unit::Count))
    .because_some(settings.and_then(raised_settings))
    .because_some(stack::wanted_to_run(process).map(|share| {
        let text = if share > 0.5 { "it writes as fast as it can" } else { "it waits for what it writes to" };
        Evidence::number("looks in which it ran or was runnable", share, Unit::Ratio).with_text(text)
    }))
    .because_some(stack::of(process).map(|place| Evidence::text("where it was", place)))
    .because_some(ending.map(|share| Evidence::number("of those who wait for it, processes whose end is logged", share, Unit::Ratio)))
    .but_if(
        settings.is_none(),
        format!("by the default values of {}: what this node has set is not recorded", handler.settings),
    )
    .fix(match ending {
        None => remedy::of(
            period,
            "kernel.logger_level",
            "log less: -kernel logger_level warning (in Elixir config :logger, level: :warning), or a level per module \
             (logger:set_module_level/2)",
            "what is below the level is dropped before anything is done for it",
            "messages in the handler's queue, and p99 of what logs, under the same load",
        ),
        // Reports of ends are errors, which no level in use drops.
        Some(_) => remedy::of(
            period,
            "code.fewer_ends",
            "see in the log why they end, and mend that; format_status/1 (format_status/2 before OTP 25) leaves large states out of the reports",
            "each end is logged once by the process itself and once by proc_lib, with its state",
            "processes that end a second, and messages in the handler's queue",
        ),
    })
    .fix_if(!handler.name.starts_with("Elixir"), || {
        remedy::of(
            period,
            "logger.drop_mode_qlen",
            "where no request may wait for its log: drop_mode_qlen as low as sync_mode_qlen, so that events are dropped instead",
            "between the two, each process that logs waits for its event to be written",
            "p99 of what logs, and the logger's own reports of dropped events",
        )
    })
    .fix(remedy::of(
        period,
        "code.faster_log",
        "look at what it writes to: a terminal or a pipe that is read slowly, a disk that is full or shared, a file that is synced; a \
         handler with a file of its own for what is much",
        "one process writes all events of a handler, one after the other",
        "messages in the handler's queue",
    ))
}

/// Settings that let the queue grow longer than the defaults do.
fn raised_settings(settings: &Settings) -> Option<Evidence> {
    let (texts, _) = settings.raised();
    (!texts.is_empty()).then(|| Evidence::text("settings of the handler", texts.join(", ")))
}

/// The settings keep neither those who log back nor drop anything before the queue is long.
fn without_protection(
    period: &Period,
    process: &ProcessUse,
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
    let ending = ending(period, process).filter(|share| *share >= MOSTLY);
    let protection = match settings.sync {
        sync if sync >= OFF_SYNC => "overload protection off".to_owned(),
        sync => format!("sync_mode_qlen is {sync}"),
    };
    Draft::new(
        severity,
        format!("log handler {}: {mean:.0} events queued, {protection}", settings.id),
    )
    .about(process.subject())
    .signals(ending.map(|_| Signal::LogsEnds))
    .costs(Cost::Waiting(mean))
    .because(
        Evidence::number("messages in its queue, mean", mean, Unit::Count).against_scale(QUEUE.of(period)),
    )
    .because(Evidence::number("messages in its queue, most", process.queue_max as f64, Unit::Count))
    .because_some(raised_settings(settings))
    .because_some(is_slow.then(|| {
        Evidence::text(
            "cost of each event",
            "proportional to the queue up to OTP 25 (logger_olp:check_load/1, erlang/otp#7417): the longer it is, the slower it is written",
        )
    }))
    .because_some(stack::of(process).map(|place| Evidence::text("where it was", place)))
    .fix(remedy::of(
        period,
        "logger.drop_mode_qlen",
        &reset,
        "with these settings nobody waits and nothing is dropped while the queue takes memory; at the defaults those who log wait, and then events are dropped and counted",
        "messages in the handler's queue, and the logger's own reports of dropped events",
    ))
    .fix(log_less(period))
}

/// An atom as it is typed.
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
        "what is below the level is dropped before anything is done for it",
        "messages in its queue, and the node's memory",
    )
}

/// Of those who wait for it, the share whose end is what they log; `None` where few were seen waiting.
fn ending(period: &Period, process: &ProcessUse) -> Option<f64> {
    let holds = blocking::holds(period).ok()?;
    let its = holds.iter().find(|hold| hold.process.is_some_and(|one| std::ptr::eq(one, process)))?;
    Some(its.ending)
}

/// What waits for `error_logger` is neither held back nor dropped.
fn unprotected(period: &Period, process: &ProcessUse, mean: f64, severity: f64) -> Draft {
    Draft::new(
        severity,
        format!(
            "{} is behind, with {mean:.0} messages in its queue: it holds back nobody and drops nothing, so what waits only grows",
            process.title()
        ),
    )
    .about(process.subject())
    .costs(Cost::Waiting(mean))
    .because(
        Evidence::number("messages in its queue, mean", mean, Unit::Count)
            .against_scale(QUEUE.of(period)),
    )
    .because(Evidence::number("messages in its queue, most", process.queue_max as f64, Unit::Count))
    .because_some(stack::of(process).map(|place| Evidence::text("where it was", place)))
    .fix(remedy::of(
        period,
        "code.faster_log",
        "put handlers of logger in the place of those that error_logger has (error_logger:which_report_handlers/0), which are a library's \
         or an old configuration's",
        "handlers of logger are protected: who logs waits for them, and what is too much is dropped",
        "messages in its queue; without such handlers the process is not there",
    ))
    .fix(log_less(period))
}
