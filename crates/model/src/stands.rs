//! Where processes stand that wait, and whom they wait for.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::units::Nanos;

/// A place in which processes of a sample by chance stood at one look, or one in which a process stood for which others wait.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandRow {
    /// When, from the recording's start.
    pub t: Nanos,
    /// The process that others wait for; `None` of a sample by chance.
    pub pid: Option<String>,
    /// `waiting`, `running` …; those of a sample all wait.
    pub status: String,
    /// `module:function/arity`, the innermost first, eight at most; empty of a process that runs.
    pub stack: Vec<String>,
    /// How many of the sample stood so.
    pub count: i64,
    /// How many of these had messages in their queue; with a `pid`, how many messages it had.
    pub queued: i64,
    /// How many were looked at; 0 with a `pid`.
    pub of: i64,
    /// Whom they monitor as they stand there, a pid or another node's name, and how many of them do. A call monitors who is called.
    /// With a `pid` also the other ends of its TCP connections: `10.0.0.7:5432`, `[::1]:5432`.
    pub on: Vec<(String, i64)>,
    /// What they were started with, of new processes that were looked at again some seconds later: `of` are how many of this kind, and
    /// `ended` is the status of those that are not there any more. `None` of all other rows, and in recordings of an older beamtune.
    pub kind: Option<String>,
}

/// What has become of new processes of one kind some seconds later.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Newcomers {
    /// What they were started with.
    pub kind: String,
    /// How many were looked at again, in all looks together.
    pub looked_at: i64,
    /// How many of these had ended.
    pub ended: i64,
    /// Where the others stood, most first.
    pub places: Vec<Stand>,
}

/// What all looks of a period say of one place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stand {
    /// As of a [`StandRow`].
    pub pid: Option<String>,
    /// As of a [`StandRow`].
    pub status: String,
    /// As of a [`StandRow`].
    pub stack: Vec<String>,
    /// In all looks together.
    pub count: i64,
    /// In all looks together.
    pub queued: i64,
    /// In how many looks some stood there.
    pub looks: u32,
    /// Whom they monitor, those that most do first.
    pub on: Vec<Wanted>,
}

impl Stand {
    fn add_wanted(&mut self, on: Vec<(String, i64)>, most: usize) {
        for (who, count) in on {
            if let Some(wanted) = self.on.iter_mut().find(|wanted| wanted.who == who) {
                wanted.count = wanted.count.saturating_add(count);
                wanted.looks += 1;
            } else if self.on.len() < most {
                self.on.push(Wanted { who, count, looks: 1 });
            }
        }
    }
}

/// Who is monitored by those who stand somewhere, or at the other end of its connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// A pid, the name of another node, or an address.
    pub who: String,
    /// By how many, in all looks together.
    pub count: i64,
    /// In how many looks.
    pub looks: u32,
}

impl Wanted {
    /// Whether it is the other end of a connection.
    pub fn is_address(&self) -> bool {
        self.who.contains(':') && !self.who.contains('@')
    }
}

/// Where processes stood in a period.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stands {
    /// How often some were looked at.
    pub looks: u32,
    /// How many, in all looks together; one process may have been looked at several times.
    pub sampled: i64,
    /// Each place once; those where most stood first, and before them the processes that others wait for.
    pub places: Vec<Stand>,
    /// New processes that were looked at again, those of which most were first.
    pub newcomers: Vec<Newcomers>,
}

/// Adds looks up.
#[derive(Debug, Default)]
pub(crate) struct StandsBuilder {
    stands: Stands,
    last: Option<Nanos>,
    /// By kind, with the last look at each.
    newcomers: HashMap<String, (Nanos, Newcomers)>,
    by_place: HashMap<(Option<String>, String, Vec<String>), Stand>,
}

impl StandsBuilder {
    /// Adds a row; no more than `most` places are kept.
    pub(crate) fn add(&mut self, row: StandRow, most: usize) {
        if let Some(kind) = row.kind.clone() {
            return self.add_newcomers(kind, row, most);
        }
        if self.last != Some(row.t) {
            self.last = Some(row.t);
            self.stands.looks += 1;
            self.stands.sampled = self.stands.sampled.saturating_add(row.of);
        }
        let key = (row.pid, row.status, row.stack);
        if self.by_place.len() >= most && !self.by_place.contains_key(&key) {
            return;
        }
        let place = self.by_place.entry(key).or_default();
        place.count = place.count.saturating_add(row.count);
        place.queued = place.queued.saturating_add(row.queued);
        place.looks += 1;
        place.add_wanted(row.on, most);
    }

    fn add_newcomers(&mut self, kind: String, row: StandRow, most: usize) {
        if self.newcomers.len() >= most && !self.newcomers.contains_key(&kind) {
            return;
        }
        let (last, new) = self
            .newcomers
            .entry(kind.clone())
            .or_insert_with(|| (Nanos::MIN, Newcomers { kind, ..Newcomers::default() }));
        if *last != row.t {
            *last = row.t;
            new.looked_at = new.looked_at.saturating_add(row.of);
        }
        if row.status == "ended" {
            new.ended = new.ended.saturating_add(row.count);
            return;
        }
        let at = match new
            .places
            .iter()
            .position(|place| place.status == row.status && place.stack == row.stack)
        {
            Some(at) => at,
            None if new.places.len() >= most => return,
            None => {
                new.places.push(Stand { status: row.status, stack: row.stack, ..Stand::default() });
                new.places.len() - 1
            }
        };
        let Some(place) = new.places.get_mut(at) else { return };
        place.count = place.count.saturating_add(row.count);
        place.queued = place.queued.saturating_add(row.queued);
        place.looks += 1;
        place.add_wanted(row.on, most);
    }

    pub(crate) fn finish(self) -> Stands {
        let place = |((pid, status, stack), stand): ((Option<String>, String, Vec<String>), Stand)| {
            let mut on = stand.on;
            on.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.who.cmp(&b.who)));
            Stand { pid, status, stack, on, ..stand }
        };
        let mut places: Vec<Stand> = self.by_place.into_iter().map(place).collect();
        let key = |stand: &Stand| (stand.pid.is_none(), std::cmp::Reverse(stand.count));
        places.sort_by(|a, b| {
            key(a)
                .cmp(&key(b))
                .then_with(|| (&a.pid, &a.stack, &a.status).cmp(&(&b.pid, &b.stack, &b.status)))
        });
        let mut newcomers: Vec<Newcomers> = self.newcomers.into_values().map(|(_, new)| new).collect();
        newcomers.iter_mut().for_each(|new| {
            new.places.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.stack.cmp(&b.stack)));
        });
        newcomers.sort_by(|a, b| b.looked_at.cmp(&a.looked_at).then_with(|| a.kind.cmp(&b.kind)));
        Stands { places, newcomers, ..self.stands }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_at_one_place_are_added_up() {
        let row = |t, stack: &[&str], count, on: &[(&str, i64)]| StandRow {
            t,
            status: "waiting".to_owned(),
            stack: stack.iter().map(|&name| name.to_owned()).collect(),
            count,
            of: 100,
            on: on.iter().map(|&(who, count)| (who.to_owned(), count)).collect(),
            ..StandRow::default()
        };
        let mut builder = StandsBuilder::default();
        builder.add(row(1, &["gen:do_call/4", "shop:buy/1"], 40, &[("<0.9.0>", 40), ("<0.7.0>", 1)]), 10);
        builder.add(row(1, &["gen_server:loop/7"], 60, &[]), 10);
        builder.add(row(2, &["gen:do_call/4", "shop:buy/1"], 30, &[("<0.9.0>", 29)]), 10);
        let held =
            StandRow { pid: Some("<0.9.0>".to_owned()), of: 0, ..row(2, &["prim_inet:recv0/3"], 1, &[]) };
        builder.add(held, 10);
        let stands = builder.finish();
        assert_eq!((stands.looks, stands.sampled), (2, 200));
        let told: Vec<_> = stands
            .places
            .iter()
            .map(|place| (place.pid.as_deref(), &*place.stack[0], place.count, place.looks))
            .collect();
        assert_eq!(
            told,
            [
                (Some("<0.9.0>"), "prim_inet:recv0/3", 1, 1),
                (None, "gen:do_call/4", 70, 2),
                (None, "gen_server:loop/7", 60, 1),
            ]
        );
        let wanted: Vec<_> =
            stands.places[1].on.iter().map(|wanted| (&*wanted.who, wanted.count, wanted.looks)).collect();
        assert_eq!(wanted, [("<0.9.0>", 69, 2), ("<0.7.0>", 1, 1)]);
    }

    #[test]
    fn what_has_become_of_new_processes_is_apart_from_the_sample() {
        let later = |t, status: &str, count| StandRow {
            t,
            kind: Some("shop:cart/1".to_owned()),
            status: status.to_owned(),
            stack: if status == "ended" { Vec::new() } else { vec!["gen_server:loop/7".to_owned()] },
            count,
            of: 20,
            ..StandRow::default()
        };
        let mut builder = StandsBuilder::default();
        for row in
            [later(1, "waiting", 15), later(1, "ended", 5), later(2, "waiting", 18), later(2, "ended", 2)]
        {
            builder.add(row, 10);
        }
        let stands = builder.finish();
        assert_eq!((stands.looks, stands.sampled, stands.places.len()), (0, 0, 0));
        let [new] = &stands.newcomers[..] else { panic!("{:?}", stands.newcomers) };
        assert_eq!((new.kind.as_str(), new.looked_at, new.ended), ("shop:cart/1", 40, 7));
        assert_eq!((new.places.len(), new.places[0].count, new.places[0].looks), (1, 33, 2));
    }

    #[test]
    fn no_more_places_are_kept_than_there_is_room_for() {
        let mut builder = StandsBuilder::default();
        for place in 0..20 {
            builder.add(
                StandRow { stack: vec![format!("m:f/{place}")], count: 1, of: 20, ..StandRow::default() },
                5,
            );
        }
        assert_eq!(builder.finish().places.len(), 5);
    }
}
