//! Names for processes whose initial call is uninformative.

use beamtune_model::{Period, ProcessActivity, Subject};

use super::{HotCode, PART};

/// Describes the processes of a kind whose initial call is uninformative: by the labels of those that do most of the work; otherwise by the
/// module that they run. `None` if neither is known.
pub(crate) fn unnamed(period: &Period, kind: &str, hot: &HotCode) -> Option<Unnamed> {
    let of_kind = |process: &&ProcessActivity| {
        process
            .row
            .as_ref()
            .is_some_and(|row| row.name.is_none() && row.initial_call.as_deref() == Some(kind))
    };
    let mut processes: Vec<&ProcessActivity> = period.processes.iter().filter(of_kind).collect();
    let all: i64 = processes.iter().map(|process| process.reductions).sum();
    processes.retain(|process| process.reductions as f64 >= PART * all as f64);
    processes.sort_by_key(|process| std::cmp::Reverse(process.reductions));
    let has_label = |process: &ProcessActivity| process.row.as_ref().is_some_and(|row| row.label.is_some());
    if let Some(first) = processes.iter().find(|process| has_label(process)) {
        let titles = processes.iter().map(|process| match has_label(process) {
            true => process.title(),
            false => process.pid.clone(),
        });
        let words = titles.collect::<Vec<_>>().join(" and ");
        return Some(Unnamed { words, subject: Some(first.subject()) });
    }
    let (module, looks) = hot.foremost.first()?;
    let is_much = *looks as f64 >= PART * hot.samples.0 as f64;
    is_much.then(|| Unnamed { words: format!("processes that run {module}"), subject: None })
}

/// Description of processes whose initial call is uninformative.
pub(crate) struct Unnamed {
    pub words: String,
    pub subject: Option<Subject>,
}
