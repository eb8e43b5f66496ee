//! BT008: the port table, or the limit of file descriptors, is nearly full or fills up.

use beamtune_model::{
    Account, Code, Evidence, Group, Limit, MemoryKind, Missing, Period, Remedy, Signal, Subject, Unit, facts,
    metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::limits::{self, FULL, LimitUsage, frequent_kind};
use crate::signals::port_queues::{self, OrphanedSockets};
use crate::signals::products;

pub const RULE: Rule = Rule {
    code: Code("BT008"),
    name: "ports-near-limit",
    question: "Is the port table full, or filling up?",
    confirm: "compare erlang:system_info(port_count) and ls /proc/PID/fd an hour apart: a leak grows without load",
    needs: &[&metrics::PORT_COUNT],
    account: Account::HeadRoom,
    judges_dumps: true,
    needs_minutes: true,
    explains_as_notice: true,
    judge,
    thresholds: &[FULL],
    ..Rule::COMMON
};

/// Default of fs.nr_open in the kernel, which rejects a higher open file limit (EPERM, kernel/sys.c).
const DEFAULT_NR_OPEN: f64 = 1_048_576.0;

const MAY_BE_LOAD: &str = "a node with more users also grows, but levels off: check whether growth continues";

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let table = period.fact_number(facts::PORT_LIMIT)? as f64;
    let ports = LimitUsage::of(period, &metrics::PORT_COUNT, table)?;
    // Files, and sockets of the module `socket`, have descriptors but no ports, so both limits are judged.
    let files = match (period.facts.number(facts::NOFILE_SOFT), period.stat(&metrics::OPEN_FDS, "")) {
        (Some(limit), Ok(_)) => Some(LimitUsage::of(period, &metrics::OPEN_FDS, limit as f64)?),
        _ => None,
    };
    let maker = frequent_kind(period, "port");
    // One leak fills both tables: the limit that is reached first is reported.
    let grown = files.as_ref().map(|files| with_growth_of(&ports, files));
    let by_files = grown.as_ref().filter(|files| files.urgency() >= ports.urgency());
    match (by_files.and_then(|files| Some((files, files.severity()?))), &files, ports.severity()) {
        (Some((_, severity)), Some(files), _) => {
            return Ok(Judgement::found(by_descriptors(period, &ports, files, severity, maker.as_ref())));
        }
        (_, _, Some(severity)) => {
            return Ok(Judgement::found(by_table_size(period, &ports, severity, maker.as_ref())));
        }
        _ => {}
    }
    let mut healthy = ports.sentence("ports");
    match &files {
        Some(files) => healthy.push_str(&format!("; {}", files.sentence(DESCRIPTORS))),
        None => healthy.push_str("; open files could not be counted"),
    }
    Ok(Judgement::Healthy(healthy))
}

/// Returns the usage of file descriptors, with the growth of ports if their own is unknown. Before Linux 6.2, open files are counted only
/// every ten seconds, too rarely for a trend in a short recording. Ports are counted every second, and usually each has a descriptor.
fn with_growth_of(ports: &LimitUsage, files: &LimitUsage) -> LimitUsage {
    LimitUsage { growth: files.growth.or(ports.growth), ..*files }
}

/// Name of open files in both findings.
const DESCRIPTORS: &str = "file descriptors";

type Maker<'a> = Option<&'a limits::FrequentKind>;

fn by_table_size(period: &Period, ports: &LimitUsage, severity: f64, maker: Maker<'_>) -> Draft {
    let leak = ports.growth.is_some();
    let next = (ports.limit * 4.0).min(134_217_727.0);
    let ended = OrphanedSockets::of(period, ports.growth.map(|trend| trend.slope));
    let draft = ports
        .draft(severity, "ports")
        .detail(ports.consequence("opening one fails with system_limit"))
        .signals(ports.is_exhausted().then_some(Signal::Exhausted));
    let draft = match &ended {
        Some(ended) => draft.detail(ended.sentence()),
        None => draft,
    };
    common(period, draft, leak, maker, ended.as_ref()).fix_if(ports.needs_room(), || {
        remedy::of(
            period,
            "+Q",
            &format!("+Q {next:.0}"),
            if leak {
                "buys time, does not fix the leak"
            } else {
                "makes room for the ports that the node needs"
            },
            "restart with the flag: system_info(port_limit) shows the new size",
        )
    })
}

fn by_descriptors(
    period: &Period,
    ports: &LimitUsage,
    files: &LimitUsage,
    severity: f64,
    maker: Maker<'_>,
) -> Draft {
    let filling = with_growth_of(ports, files);
    let leak = filling.growth.is_some();
    let frequent = FrequentKind::of(period);
    let mostly = frequent.as_ref().filter(|kind| kind.share() > 0.5);
    // If most descriptors are not ports, the opener of the few ports is not named, unless the number of ports grows.
    let is_of_ports = files.now <= 2.0 * ports.now || (files.growth.is_none() && ports.growth.is_some());
    let of_no_port = mostly.filter(|kind| kind.descriptor != Descriptor::Socket && !is_of_ports);
    let draft = filling
        .draft(severity, DESCRIPTORS)
        .detail(filling.consequence("opening one fails with emfile"))
        .signals(filling.is_exhausted().then_some(Signal::Exhausted));
    let ended =
        OrphanedSockets::of(period, filling.growth.map(|trend| trend.slope)).filter(|_| of_no_port.is_none());
    let draft = match (&ended, mostly) {
        (Some(ended), _) => draft.detail(ended.sentence()),
        (None, Some(kind)) => draft.detail(format!("most are {}", kind.what)),
        (None, None) => draft,
    };
    let silent = SilentConnections::of(period).filter(|_| leak && of_no_port.is_none() && ended.is_none());
    let draft = match &silent {
        Some(silent) => draft.detail(silent.sentence()).remedy(silent.remedy(period)),
        None => draft,
    };
    let draft = match of_no_port {
        Some(kind) => draft
            .about(Subject::Port { name: kind.what.clone(), opener: None })
            .but_if(leak, MAY_BE_LOAD)
            .fix_if(leak, || {
                let close = match kind.descriptor {
                    Descriptor::File => {
                        "close files after use (file:close/1): they stay open while their process lives"
                    }
                    _ => "close them after use: most likely native code (a NIF, a driver) opened them",
                };
                remedy::of(
                    period,
                    "code.close_ports",
                    close,
                    "a leak fills a table of any size",
                    "the number of open files stops growing under the same load",
                )
            }),
        None => common(period, draft, leak, maker.filter(|_| is_of_ports), ended.as_ref()),
    };
    let frequent = frequent.map(|kind| {
        let count = (kind.share() * files.now).round();
        Evidence::number("most frequent kind of descriptors", count, Unit::Count)
            .with_text(format!("{}: {} of {} sampled", kind.what, kind.count, kind.sampled))
    });
    draft
        .evidence(Evidence::number("ports now", ports.now, Unit::Count))
        .because_some((files.now > ports.now).then(|| {
            Evidence::number("file descriptors without a port", files.now - ports.now, Unit::Count)
                .with_text("at least; files, and sockets of the module socket")
        }))
        .because_some((ports.limit > files.limit).then(|| {
            Evidence::number("port limit (+Q)", ports.limit, Unit::Count)
                .with_text("higher than the limit of file descriptors")
        }))
        .because_some(frequent)
        .fix_if(filling.needs_room(), || {
            remedy::of(
                period,
                "host.nofile",
                &raise_files_above(files.limit * 2.0),
                if leak {
                    "buys time, does not fix the leak"
                } else {
                    "at the limit, sockets and files fail with emfile"
                },
                "/proc/PID/limits shows the new limit after a restart",
            )
        })
}

/// Connections of a listening socket that receive nothing: their peers may be gone, or may never send.
struct SilentConnections<'p> {
    address: &'p str,
    silent: f64,
    all: f64,
}

/// If silent connections are this share of the connections, and this number, they are the leak (judgement).
const MIN_SILENT_SHARE: f64 = 0.5;
const MIN_SILENT: f64 = 20.0;

impl<'p> SilentConnections<'p> {
    /// Returns those of the listening socket that has the most.
    fn of(period: &'p Period) -> Option<Self> {
        let last = |metric, address| Some(period.stat(metric, address).ok()?.last.value as f64);
        let of = |address: &'p str| {
            let (silent, all) =
                (last(&metrics::TCP_SILENT, address)?, last(&metrics::TCP_CONNECTIONS, address)?);
            Some(SilentConnections { address, silent, all })
        };
        let all = period.entities(Group::HostTcp).into_iter().filter_map(of);
        all.filter(|one| one.silent >= MIN_SILENT && one.silent >= MIN_SILENT_SHARE * one.all)
            .max_by(|a, b| a.silent.total_cmp(&b.silent))
    }

    fn sentence(&self) -> String {
        format!(
            "{:.0} of {:.0} connections at {} received nothing for 30 s or more",
            self.silent, self.all, self.address
        )
    }

    fn remedy(&self, period: &Period) -> Option<Remedy> {
        let own = products::of(period).and_then(|product| product.silent.as_deref());
        remedy::of(
            period,
            "code.close_ports",
            own.unwrap_or(
                "close silent connections: a timeout of recv or of the process, a heartbeat of the protocol, or \
                 {keepalive, true} with short times (sysctl net.ipv4.tcp_keepalive_time is two hours)",
            ),
            "only a timeout detects a peer that is gone or never sends",
            "connections at this address, and silent ones, stop growing",
        )
    }
}

fn raise_files_above(limit: f64) -> String {
    let first =
        if limit >= DEFAULT_NR_OPEN { " (raise sysctl fs.nr_open first, if it is lower)" } else { "" };
    format!("raise the open file limit above {limit:.0} (systemd: LimitNOFILE=){first}")
}

/// What a descriptor refers to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Descriptor {
    Socket,
    File,
    /// A pipe, a device, a poll set …
    Other,
}

/// The most frequent kind of open files, if they were sampled.
struct FrequentKind {
    what: String,
    descriptor: Descriptor,
    count: i64,
    sampled: i64,
}

impl FrequentKind {
    fn of(period: &Period) -> Option<FrequentKind> {
        let sampled = period.stat(&metrics::OPEN_FILES_SAMPLED, "").ok()?.last;
        // A kind that is not in the last sample is not frequent any more.
        let (kind, count) = period
            .entities(Group::HostFiles)
            .into_iter()
            .filter_map(|kind| Some((kind, period.stat(&metrics::OPEN_FILES_OF_KIND, kind).ok()?.last)))
            .filter(|(_, last)| last.t >= sampled.t)
            .map(|(kind, last)| (kind, last.value))
            .max_by_key(|&(kind, count)| (count, kind))?;
        let (what, descriptor) = match kind {
            "socket" => ("sockets".to_owned(), Descriptor::Socket),
            "pipe" => ("pipes".to_owned(), Descriptor::Other),
            device if device.starts_with("/dev/") => (format!("files opened as {device}"), Descriptor::Other),
            folder if folder.starts_with('/') => (format!("files in {folder}"), Descriptor::File),
            other => (format!("{other} descriptors"), Descriptor::Other),
        };
        Some(FrequentKind { what, descriptor, count, sampled: sampled.value })
    }

    fn share(&self) -> f64 {
        self.count as f64 / self.sampled.max(1) as f64
    }
}

fn common(
    period: &Period,
    draft: Draft,
    leak: bool,
    maker: Maker<'_>,
    ended: Option<&OrphanedSockets>,
) -> Draft {
    let draft = draft.because_some(maker.map(|maker| maker.evidence.clone()));
    let draft = match (ended, maker) {
        (Some(ended), _) => of_ended(period, draft, ended, maker),
        (None, Some(maker)) => draft.detail(maker.evidence.text.as_deref().unwrap_or_default()),
        (None, None) => draft,
    };
    draft
        .about(maker.map_or(Subject::limit(Limit::Ports), |maker| Subject::Port {
            name: maker.kind.clone(),
            opener: maker.by.clone(),
        }))
        .but_if(leak && ended.is_none(), MAY_BE_LOAD)
        .fix_if(leak && ended.is_none(), || {
            remedy::of(
                period,
                "code.close_ports",
                "close sockets and ports after use; give idle connections a timeout",
                "a leak fills a table of any size",
                "the port count stops growing under the same load",
            )
        })
}

/// Adds that sockets whose process has ended are the cause. They also explain growing binaries, if most of these wait in such sockets.
fn of_ended(period: &Period, draft: Draft, ended: &OrphanedSockets, maker: Maker<'_>) -> Draft {
    let is_most = port_queues::most_binaries(period)
        .is_some_and(|waiting| ended.have_unsent() && ended.bytes() >= MIN_QUEUE_SHARE * waiting);
    let draft = ended.evidence().into_iter().fold(draft, Draft::evidence);
    let draft = draft
        .because_some(maker.and_then(|maker| exit_rate(period, maker)))
        .signals(is_most.then_some(Signal::Grows(MemoryKind::Binary)))
        .counter_evidence("the process that opened those sockets is gone; the opener is inferred from the owners of the others")
        .confirmed_by(port_queues::CHECK);
    ended.remedies(period).into_iter().fold(draft, |draft, remedy| draft.remedy(Some(remedy)))
}

/// If such sockets hold this share of the queued bytes of all ports, they explain these (judgement).
const MIN_QUEUE_SHARE: f64 = 0.5;

/// Returns the exit rate of processes of the same kind as the owners of the other sockets.
fn exit_rate(period: &Period, maker: &limits::FrequentKind) -> Option<Evidence> {
    let by = maker.by.as_deref()?;
    let rows = period.exits.iter().filter(|row| row.call.as_deref() == Some(by));
    let most = rows.clone().max_by_key(|row| row.count)?;
    let count = rows.map(|row| row.count).fold(0, i64::saturating_add);
    let reason = most.reason.as_deref().unwrap_or("normal");
    Some(
        Evidence::number("exit rate of such processes", count as f64 / period.seconds(), Unit::PerSecond)
            .with_text(format!("{by}: {reason}")),
    )
}
