//! BT009: the atom table is nearly full or fills up. Atoms are never freed, and a full table terminates the VM.

use beamtune_model::{
    Account, Code, Evidence, Limit, Missing, Period, Signal, SpawnRow, Subject, facts, metrics,
};

use crate::remedy;
use crate::rule::{Judgement, Rule, Topic};
use crate::signals::limits::{FULL, LimitUsage};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT009"),
    name: "atoms-near-limit",
    question: "Is the atom table full, or filling up?",
    confirm: "list the newest atoms, whose spelling often shows their source: \
              [binary_to_term(<<131,75,(erlang:system_info(atom_count)-N):24>>) || N <- lists:seq(1,20)]; atoms from input keep growing while no code is loaded",
    needs: &[&metrics::ATOM_COUNT],
    account: Account::HeadRoom,
    topics: &[Topic::Memory],
    judges_dumps: true,
    needs_minutes: true,
    judge,
    thresholds: &[FULL],
    ..Rule::COMMON
};

/// A common prefix is reported if at least this share of the newest atoms has it (judgement).
const MIN_PREFIX_SHARE: f64 = 0.5;

/// Processes with a lower share of all reductions are not named.
const MIN_REDUCTIONS_SHARE: f64 = 0.05;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let limit = period.fact_number(facts::ATOM_LIMIT)? as f64;
    let filling = LimitUsage::of(period, &metrics::ATOM_COUNT, limit)?;
    let Some(severity) = filling.severity() else { return Ok(Judgement::Healthy(filling.sentence("atoms"))) };
    let leak = filling.growth.is_some();
    let draft = filling
        .draft(severity, "atoms")
        .detail(filling.consequence("the VM stops"))
        .about(Subject::limit(Limit::Atoms));
    let draft = match common_prefix(period).filter(|_| leak) {
        Some(row) => draft
            .signals([Signal::NamedLike(row.kind.clone())])
            .detail(format!("most of the newest atoms begin with {}", row.kind))
            .evidence(Evidence::text(
                "prefix of the newest atoms",
                format!("{} ({} of {} sampled)", row.kind, row.count, row.sample_size),
            )),
        None => draft,
    };
    Ok(Judgement::found(
        draft
            .because_some(if leak { busiest(period) } else { None })
            .but_if(leak, "loading code creates atoms, too: their number grows for a while after a start")
            .fix_if(leak, || {
                remedy::of(
                    period,
                    "code.no_atoms_from_input",
                    "find list_to_atom, binary_to_atom, String.to_atom and keys: :atoms on outside input; use the *_existing_* forms or binaries",
                    "atoms are never freed, and a full table ends the VM with a crash dump",
                    "the atom count stops growing under the same load",
                )
            })
            .remedy(remedy::of(
                period,
                "+t",
                &format!("+t {:.0}", (limit * 4.0).min(2_147_483_647.0)),
                if leak { "buys time, does not fix the leak" } else { "makes room for the atoms that the node needs" },
                "restart with the flag: system_info(atom_limit) shows the new size",
            )),
    ))
}

/// The most frequent prefix of the newest atoms. The author of the code recognises it.
fn common_prefix(period: &Period) -> Option<&SpawnRow> {
    let atoms = period.spawns.iter().filter(|row| row.what == "atom");
    let most = atoms.max_by_key(|row| row.count)?;
    (most.count as f64 >= MIN_PREFIX_SHARE * most.sample_size as f64).then_some(most)
}

/// The busiest processes. The VM does not record which process creates atoms, but a process that creates thousands per second is busy.
fn busiest(period: &Period) -> Option<Evidence> {
    let total = view::all_reductions(period).ok()?;
    let titles: Vec<_> = period
        .processes
        .iter()
        .filter(|process| total > 0.0 && process.reductions as f64 >= MIN_REDUCTIONS_SHARE * total)
        .take(3)
        .map(|process| format!("{} ({:.0} %)", process.title(), process.reductions as f64 / total * 100.0))
        .collect();
    (!titles.is_empty()).then(|| Evidence::text("busiest processes, share of reductions", titles.join(", ")))
}
