//! BT008: the port table, or the file descriptors behind it, is nearly full or filling up.

use beamtune_model::{
    Account, Code, Evidence, Group, Limit, MemoryKind, Missing, Period, Remedy, Signal, Subject, Unit, facts,
    metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::limits::{FULL, Filling, maker};
use crate::signals::port_queues::{self, Ended};
use crate::signals::products;

pub const RULE: Rule = Rule {
    code: Code("BT008"),
    name: "ports-near-limit",
    question: "Is the port table full, or filling up?",
    confirm: "erlang:system_info(port_count) and ls /proc/PID/fd an hour apart: a leak grows without load",
    needs: &[&metrics::PORT_COUNT],
    account: Account::HeadRoom,
    judges_dumps: true,
    needs_minutes: true,
    explains_as_notice: true,
    judge,
    thresholds: &[FULL],
    ..Rule::COMMON
};

/// What a kernel lets a limit of open files be (fs.nr_open) unless it was told otherwise: a higher one is refused (EPERM, kernel/sys.c).
const USUAL_NR_OPEN: f64 = 1_048_576.0;

const STILL_ARRIVING: &str = "a node that has just got more users grows too: look whether it goes on";

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let table = period.fact_number(facts::PORT_LIMIT)? as f64;
    let ports = Filling::of(period, &metrics::PORT_COUNT, table)?;
    // Files and sockets of the `socket` module have descriptors and no ports, so both limits are looked at.
    let files = match (period.facts.number(facts::NOFILE_SOFT), period.stat(&metrics::OPEN_FDS, "")) {
        (Some(limit), Ok(_)) => Some(Filling::of(period, &metrics::OPEN_FDS, limit as f64)?),
        _ => None,
    };
    let maker = maker(period, "port");
    // One leak fills both; the limit that is met first is the one to be named.
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
        Some(files) => healthy.push_str(&format!("; {}", files.sentence("open files"))),
        None => healthy.push_str("; how many files are open could not be read"),
    }
    Ok(Judgement::Healthy(healthy))
}

/// Before Linux 6.2 open files are counted every ten seconds only, too seldom for a trend in a short recording; ports every
/// second, and as a rule each has a descriptor: their growth stands in, however full the limit is already.
fn with_growth_of(ports: &Filling, files: &Filling) -> Filling {
    Filling { growth: files.growth.or(ports.growth), ..*files }
}

type Maker<'a> = Option<&'a crate::signals::limits::Maker>;

fn by_table_size(period: &Period, ports: &Filling, severity: f64, maker: Maker<'_>) -> Draft {
    let leak = ports.growth.is_some();
    let next = (ports.limit * 4.0).min(134_217_727.0);
    let ended = Ended::of(period, ports.growth.map(|trend| trend.slope));
    let draft = ports.draft(severity, "ports");
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
                "gives time, cures nothing"
            } else {
                "makes room for as many ports as the node really needs"
            },
            "restart with the flag: system_info(port_limit) shows the new size",
        )
    })
}

fn by_descriptors(
    period: &Period,
    ports: &Filling,
    files: &Filling,
    severity: f64,
    maker: Maker<'_>,
) -> Draft {
    let filling = with_growth_of(ports, files);
    let leak = filling.growth.is_some();
    let commonest = Commonest::of(period);
    let mostly = commonest.as_ref().filter(|kind| kind.share() > 0.5);
    // Where they are no ports', whoever made the few ports is not to be named, unless these are what grows.
    let is_of_ports = files.now <= 2.0 * ports.now || (files.growth.is_none() && ports.growth.is_some());
    let of_no_port = mostly.filter(|kind| kind.descriptor != Descriptor::Socket && !is_of_ports);
    let draft = filling.draft(severity, "open files");
    let ended = Ended::of(period, filling.growth.map(|trend| trend.slope)).filter(|_| of_no_port.is_none());
    let draft = match (&ended, mostly) {
        (Some(ended), _) => draft.detail(ended.sentence()),
        (None, Some(kind)) => draft.detail(format!("most are {}", kind.what)),
        (None, None) => draft,
    };
    let silent = Silent::of(period).filter(|_| leak && of_no_port.is_none() && ended.is_none());
    let draft = match &silent {
        Some(silent) => draft.detail(silent.sentence()).fix(silent.remedy(period)),
        None => draft,
    };
    match of_no_port {
        Some(kind) => draft
            .about(Subject::Port { name: kind.what.clone(), opener: None })
            .but_if(leak, STILL_ARRIVING)
            .fix_if(leak, || {
                let close = match kind.descriptor {
                    Descriptor::File => {
                        "close files when their work is done (file:close/1): they stay open for as long as the process that opened them lives"
                    }
                    _ => "close them when their work is done: most likely native code (a NIF, a driver) has opened them",
                };
                remedy::of(
                    period,
                    "code.close_ports",
                    close,
                    "a table that leaks is full one day, whatever its size",
                    "the number of open files must stop growing under the same load",
                )
            }),
        None => common(period, draft, leak, maker.filter(|_| is_of_ports), ended.as_ref()),
    }
        .because(Evidence::number("ports now", ports.now, Unit::Count))
        .because_some((files.now > ports.now).then(|| {
            Evidence::number("open files that are no port's", files.now - ports.now, Unit::Count)
                .with_text("at least so many; files, and sockets of the module socket")
        }))
        .because_some((ports.limit > files.limit).then(|| {
            Evidence::number("ports that the table has room for (+Q)", ports.limit, Unit::Count)
                .with_text("more than files may be open")
        }))
        .because_some(commonest.map(|kind| {
            Evidence::number("open files of the commonest kind", (kind.share() * files.now).round(), Unit::Count)
                .with_text(format!("{}: {} of {} that were looked at", kind.what, kind.count, kind.looked_at))
        }))
        .fix_if(filling.needs_room(), || {
            remedy::of(
                period,
                "host.nofile",
                &raise_files_above(files.limit * 2.0),
                if leak { "gives time, cures nothing" } else { "sockets and files fail with emfile when it is reached" },
                "restart; /proc/PID/limits shows the new limit",
            )
        })
}

/// Connections of a listening socket on which nothing comes: their peers may be gone, or never say anything.
struct Silent<'p> {
    address: &'p str,
    silent: f64,
    all: f64,
}

/// From this share of its connections on, and so many, it is what piles up there (judgement).
const SILENT_SHARE: f64 = 0.5;
const SILENT_LEAST: f64 = 20.0;

impl<'p> Silent<'p> {
    /// The listening socket with most of them.
    fn of(period: &'p Period) -> Option<Self> {
        let last = |metric, address| Some(period.stat(metric, address).ok()?.last.value as f64);
        let of = |address: &'p str| {
            let (silent, all) =
                (last(&metrics::TCP_SILENT, address)?, last(&metrics::TCP_CONNECTIONS, address)?);
            Some(Silent { address, silent, all })
        };
        let all = period.entities(Group::HostTcp).into_iter().filter_map(of);
        all.filter(|one| one.silent >= SILENT_LEAST && one.silent >= SILENT_SHARE * one.all)
            .max_by(|a, b| a.silent.total_cmp(&b.silent))
    }

    fn sentence(&self) -> String {
        format!(
            "{:.0} of {:.0} connections at {} have received nothing for 30 s or more",
            self.silent, self.all, self.address
        )
    }

    fn remedy(&self, period: &Period) -> Option<Remedy> {
        let own = products::of(period).and_then(|product| product.silent.as_deref());
        remedy::of(
            period,
            "code.close_ports",
            own.unwrap_or(
                "close connections on which nothing comes: a time-out of recv or of the process, a heartbeat of the protocol, or {keepalive, true} \
                 with short times (sysctl net.ipv4.tcp_keepalive_time is two hours)",
            ),
            "nothing tells a node that a peer is gone, or has never meant to speak, but a time-out",
            "connections at this address, and those of them that are silent, must stop growing",
        )
    }
}

fn raise_files_above(limit: f64) -> String {
    let first = if limit >= USUAL_NR_OPEN { " (raise sysctl fs.nr_open first, if it is lower)" } else { "" };
    format!("raise the limit of open files above {limit:.0} (systemd: LimitNOFILE=){first}")
}

/// What a descriptor is of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Descriptor {
    Socket,
    File,
    /// A pipe, a device, a poll set …
    Other,
}

/// What most of the open files are, where that was looked at.
struct Commonest {
    what: String,
    descriptor: Descriptor,
    /// Of so many that were looked at.
    count: i64,
    looked_at: i64,
}

impl Commonest {
    fn of(period: &Period) -> Option<Commonest> {
        let looked_at = period.stat(&metrics::OPEN_FILES_LOOKED_AT, "").ok()?.last;
        // A kind that was not told of in the last look is no common one any more.
        let (kind, count) = period
            .entities(Group::HostFiles)
            .into_iter()
            .filter_map(|kind| Some((kind, period.stat(&metrics::OPEN_FILES_OF_KIND, kind).ok()?.last)))
            .filter(|(_, last)| last.t >= looked_at.t)
            .map(|(kind, last)| (kind, last.value))
            .max_by_key(|&(kind, count)| (count, kind))?;
        let (what, descriptor) = match kind {
            "socket" => ("sockets".to_owned(), Descriptor::Socket),
            "pipe" => ("pipes".to_owned(), Descriptor::Other),
            device if device.starts_with("/dev/") => (format!("files opened as {device}"), Descriptor::Other),
            folder if folder.starts_with('/') => (format!("files in {folder}"), Descriptor::File),
            other => (format!("of the kind {other}"), Descriptor::Other),
        };
        Some(Commonest { what, descriptor, count, looked_at: looked_at.value })
    }

    fn share(&self) -> f64 {
        self.count as f64 / self.looked_at.max(1) as f64
    }
}

fn common(period: &Period, draft: Draft, leak: bool, maker: Maker<'_>, ended: Option<&Ended>) -> Draft {
    let draft = draft.because_some(maker.map(|maker| maker.evidence.clone()));
    let draft = match ended {
        Some(ended) => of_ended(period, draft, ended, maker),
        None => draft,
    };
    draft
        .about(maker.map_or(Subject::limit(Limit::Ports), |maker| Subject::Port {
            name: maker.kind.clone(),
            opener: maker.by.clone(),
        }))
        .but_if(leak && ended.is_none(), STILL_ARRIVING)
        .fix_if(leak && ended.is_none(), || {
            remedy::of(
                period,
                "code.close_ports",
                "close sockets and ports when their work is done; give idle connections a time-out",
                "a table that leaks is full one day, whatever its size",
                "the port count must stop growing under the same load",
            )
        })
}

/// Sockets that nobody owns any more are the cause; and of binaries, where most of these wait in them.
fn of_ended(period: &Period, draft: Draft, ended: &Ended, maker: Maker<'_>) -> Draft {
    let is_most = port_queues::most_binaries(period)
        .is_some_and(|waiting| ended.have_unsent() && ended.bytes() >= MOST_OF_QUEUES * waiting);
    let draft = ended.evidence().into_iter().fold(draft, Draft::because);
    let draft = draft
        .because_some(maker.and_then(|maker| ends(period, maker)))
        .signals(is_most.then_some(Signal::Grows(MemoryKind::Binary)))
        .but("who opened those sockets is gone: it is guessed by the processes that own the others")
        .confirmed_by(port_queues::CHECK);
    ended.remedies(period).into_iter().fold(draft, |draft, remedy| draft.fix(Some(remedy)))
}

/// From this share of what waits in all ports on, it is what these sockets hold (judgement).
const MOST_OF_QUEUES: f64 = 0.5;

/// How often processes end that run what the owners of the other sockets run.
fn ends(period: &Period, maker: &crate::signals::limits::Maker) -> Option<Evidence> {
    let by = maker.by.as_deref()?;
    let rows = period.exits.iter().filter(|row| row.call.as_deref() == Some(by));
    let most = rows.clone().max_by_key(|row| row.count)?;
    let count = rows.map(|row| row.count).fold(0, i64::saturating_add);
    let reason = most.reason.as_deref().unwrap_or("in order");
    Some(
        Evidence::number(
            "ends of processes that were seen",
            count as f64 / period.seconds(),
            Unit::PerSecond,
        )
        .with_text(format!("{by}: {reason}")),
    )
}
