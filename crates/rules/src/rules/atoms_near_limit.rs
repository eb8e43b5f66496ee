//! BT009: the atom table is nearly full, or filling up. Atoms are never freed, and a full table ends the VM.

use beamtune_model::{
    Account, Code, Evidence, Limit, Missing, Period, Signal, SpawnRow, Subject, facts, metrics,
};

use crate::remedy;
use crate::rule::{Judgement, Rule, Topic};
use crate::signals::limits::{FULL, Filling};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT009"),
    name: "atoms-near-limit",
    question: "Is the atom table full, or filling up?",
    confirm: "the newest atoms, whose look often names their source: [binary_to_term(<<131,75,(erlang:system_info(atom_count)-N):24>>) || N <- \
              lists:seq(1,20)]; those that grow while no code is loaded are made from input",
    needs: &[&metrics::ATOM_COUNT],
    account: Account::HeadRoom,
    topics: &[Topic::Memory],
    judges_dumps: true,
    needs_minutes: true,
    judge,
    thresholds: &[FULL],
    ..Rule::COMMON
};

/// Of the newest atoms, what begins alike is told where it is so many of them (judgement).
const MOSTLY: f64 = 0.5;

/// A process below this share of all reductions is not named.
const SHARE: f64 = 0.05;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let limit = period.fact_number(facts::ATOM_LIMIT)? as f64;
    let filling = Filling::of(period, &metrics::ATOM_COUNT, limit)?;
    let Some(severity) = filling.severity() else { return Ok(Judgement::Healthy(filling.sentence("atoms"))) };
    let leak = filling.growth.is_some();
    let draft = filling.draft(severity, "atoms").about(Subject::limit(Limit::Atoms));
    let draft = match commonest(period).filter(|_| leak) {
        Some(row) => draft
            .signals([Signal::NamedLike(row.kind.clone())])
            .detail(format!("the newest are mostly {}…", row.kind))
            .because(Evidence::text(
                "the newest begin with",
                format!("{} ({} of {} looked at)", row.kind, row.count, row.of),
            )),
        None => draft,
    };
    Ok(Judgement::found(
        draft
            .because_some(if leak { busiest(period) } else { None })
            .but_if(leak, "loading code makes atoms too: a release that has just started grows for a while")
            .fix_if(leak, || {
                remedy::of(
                    period,
                    "code.no_atoms_from_input",
                    "find list_to_atom, binary_to_atom, String.to_atom and keys: :atoms on outside input; use the *_existing_* forms or binaries",
                    "atoms are never freed, and when the table is full the VM ends with a crash dump",
                    "the atom count must stop growing under the same load",
                )
            })
            .fix(remedy::of(
                period,
                "+t",
                &format!("+t {:.0}", (limit * 4.0).min(2_147_483_647.0)),
                if leak { "gives time, cures nothing" } else { "makes room for the atoms that the node really needs" },
                "restart with the flag: system_info(atom_limit) shows the new size",
            )),
    ))
}

/// How most of the newest ones begin: whoever wrote the code knows it again.
fn commonest(period: &Period) -> Option<&SpawnRow> {
    let atoms = period.spawns.iter().filter(|row| row.what == "atom");
    let most = atoms.max_by_key(|row| row.count)?;
    (most.count as f64 >= MOSTLY * most.of as f64).then_some(most)
}

/// The VM does not tell who makes atoms; whoever makes thousands a second is among the busiest.
fn busiest(period: &Period) -> Option<Evidence> {
    let total = view::all_reductions(period).ok()?;
    let titles: Vec<_> = period
        .processes
        .iter()
        .filter(|process| total > 0.0 && process.reductions as f64 >= SHARE * total)
        .take(3)
        .map(|process| format!("{} ({:.0} %)", process.title(), process.reductions as f64 / total * 100.0))
        .collect();
    (!titles.is_empty())
        .then(|| Evidence::text("busiest processes meanwhile, by reductions", titles.join(", ")))
}
