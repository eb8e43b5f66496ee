//! The page as JSON. `docs/schema/locks.schema.json` defines the format. New fields may be added within a version.

use beamtune_model::units::seconds;
use beamtune_model::{LockSession, LockWaitRow, Nanos, Period};
use serde::Serialize;

use super::lines::{By, Line, View, lines};
use super::look::{Blocked, Look};
use super::{Page, Remains, length, of_duration};
use crate::json::{self, Judged, Node, Span};

/// Version of the format; increased when a field changes its meaning or is removed.
pub const VERSION: u32 = 3;

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    node: Node<'a>,
    period: Span,
    look: Option<LookDocument<'a>>,
    session: Option<SessionDocument<'a>>,
    classes: Vec<LineDocument>,
    locks: Vec<LineDocument>,
    places: Vec<LineDocument>,
    watched_seconds: Option<f64>,
    waits: Vec<WaitDocument<'a>>,
    remains: Vec<RemainsDocument<'a>>,
    #[serde(flatten)]
    judged: Judged<'a>,
}

#[derive(Serialize)]
struct LookDocument<'a> {
    threads_wait: &'static str,
    seconds: f64,
    kinds: Vec<BlockedDocument<'a>>,
    means: &'a [String],
}

#[derive(Serialize)]
struct BlockedDocument<'a> {
    kind: &'a str,
    threads: usize,
    awake_share: Option<f64>,
    blocked_share: Option<f64>,
    sleeps_per_s: Option<f64>,
    wait: &'static str,
    why: &'a str,
}

impl<'a> From<&'a Look> for LookDocument<'a> {
    fn from(look: &'a Look) -> Self {
        let kind = |kind: &'a Blocked| BlockedDocument {
            kind: &kind.kind,
            threads: kind.threads,
            awake_share: kind.awake_share,
            blocked_share: kind.blocked_share,
            sleeps_per_s: kind.sleeps_per_second,
            wait: kind.answer.text(),
            why: &kind.why,
        };
        LookDocument {
            threads_wait: look.answer.text(),
            seconds: seconds(look.length),
            kinds: look.kinds.iter().map(kind).collect(),
            means: &look.means,
        }
    }
}

#[derive(Serialize)]
struct SessionDocument<'a> {
    /// `None` if unknown.
    seconds: Option<f64>,
    categories: &'a [String],
    locks: i64,
    told: i64,
    reductions: Option<i64>,
    processes: Option<i64>,
    cost_bytes: Option<i64>,
    remark: &'a str,
}

impl<'a> From<&'a LockSession> for SessionDocument<'a> {
    fn from(session: &'a LockSession) -> Self {
        SessionDocument {
            seconds: (session.length > 0).then(|| seconds(session.length)),
            categories: &session.categories,
            locks: session.locks,
            told: session.single_locks,
            reductions: session.reductions,
            processes: session.processes,
            cost_bytes: session.cost_bytes,
            remark: &session.remark,
        }
    }
}

#[derive(Serialize)]
struct LineDocument {
    class: String,
    kind: Option<String>,
    id: Option<String>,
    entity: Option<String>,
    locks: Option<i64>,
    is_whole: bool,
    file: Option<String>,
    line: Option<i64>,
    tries: i64,
    collisions: i64,
    collision_pct: f64,
    waited_us: i64,
    duration_pct: Option<f64>,
    histogram: Vec<i64>,
}

fn document(line: Line, length: Option<Nanos>) -> LineDocument {
    let (collision_pct, waited_us, duration_pct) =
        (line.collision_pct(), line.waited_us(), line.duration_pct(length));
    let (file, number) = line.place.map_or((None, None), |(file, number)| (Some(file), Some(number)));
    LineDocument {
        class: line.class,
        kind: Some(line.kind).filter(|kind| !kind.is_empty()),
        id: line.id,
        entity: line.entity,
        locks: Some(line.locks).filter(|locks| *locks > 0),
        is_whole: line.is_whole,
        file,
        line: number,
        tries: line.tries,
        collisions: line.collisions,
        collision_pct,
        waited_us,
        duration_pct,
        histogram: line.histogram,
    }
}

#[derive(Serialize)]
struct WaitDocument<'a> {
    thread: &'a str,
    how: &'a str,
    stack: &'a [String],
    seen: i64,
    waited_us: i64,
}

impl<'a> From<&'a LockWaitRow> for WaitDocument<'a> {
    fn from(row: &'a LockWaitRow) -> Self {
        WaitDocument {
            thread: &row.thread,
            how: &row.how,
            stack: &row.stack,
            seen: row.samples,
            waited_us: row.waited / 1_000,
        }
    }
}

#[derive(Serialize)]
struct RemainsDocument<'a> {
    without: &'a str,
    waited_us: i64,
    duration_pct: Option<f64>,
    next: Option<&'a str>,
    next_waited_us: Option<i64>,
}

fn remains(rest: &Remains, length: Option<Nanos>) -> RemainsDocument<'_> {
    RemainsDocument {
        without: &rest.without,
        waited_us: rest.waited / 1_000,
        duration_pct: of_duration(rest.waited, length),
        next: rest.next.as_ref().map(|(next, _)| next.as_str()),
        next_waited_us: rest.next.as_ref().map(|(_, waited)| waited / 1_000),
    }
}

/// Renders the page as a JSON document, indented, with a final newline. It contains all counts, including those that the views leave out.
pub fn render(period: &Period, page: &Page<'_>) -> String {
    let length = length(period);
    let all = |by| lines(period, &View::all(by)).into_iter().map(|line| document(line, length)).collect();
    let document = Document {
        version: VERSION,
        node: Node::of(period),
        period: Span::of(period),
        look: page.look.map(Into::into),
        session: period.lock_session.as_ref().map(Into::into),
        classes: all(By::Class),
        locks: all(By::Lock),
        places: all(By::Place),
        watched_seconds: period.lock_sampling_length().map(seconds),
        waits: period.lock_waits.iter().map(Into::into).collect(),
        remains: page.remains.iter().map(|rest| remains(rest, length)).collect(),
        judged: Judged::of(period, page.verdicts),
    };
    json::pretty(&document)
}
