//! BT064: a flag in effect is a trap, or does not do what it says. `beamtune lint` judges files by the same rules.
//!
//! Only what the linter is sure of and warns of is told. What would keep a VM from starting cannot be: this one runs.

use beamtune_flags::lint::{self, File, Level, Target};
use beamtune_flags::source::live_node;
use beamtune_flags::{Origin, Setting, emulator_words, init_words, parse_emu_args, parse_with_environment};
use beamtune_model::diagnosis::MINOR;
use beamtune_model::{Account, Code, Evidence, Missing, Period, Subject, facts};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule, WARNING};
use crate::signals::products;

pub const RULE: Rule = Rule {
    code: Code("BT064"),
    name: "flag-traps",
    question: "Do the node's own flags do what they say, and nothing else?",
    confirm: "beamtune lint TARGET names it with its page; the same load without the flag (beamtune compare) shows what it does",
    needs: &[],
    account: Account::HeadRoom,
    judge,
    ..Rule::COMMON
};

/// The linter's rule for values with an effect that few expect. All others are of flags that do nothing or something else, which harms
/// only who relies on them.
const TRAP: &str = "BF015";
/// A later flag takes the place of an earlier one.
const OVERRIDDEN: &str = "BF008";

/// What shows that it is mended.
const PROVE: &str =
    "beamtune lint TARGET does not name it any more; and CPU, memory and latency under the same load";

/// More than this many are a list, and no diagnosis: `beamtune lint TARGET` shows all.
const MAX_FINDINGS: usize = 5;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    period.fact(facts::EMU_ARGS)?;
    let release = period.fact_number(facts::OTP_RELEASE)?;
    let release = u32::try_from(release).unwrap_or(0);
    let args = period.facts.list(facts::EMU_ARGS).unwrap_or_default();
    let init = init_words(&period.facts.list(facts::INIT_ARGS).unwrap_or_default());
    // As people write them: the emulator gets flags with a minus.
    let emulator: Vec<String> = emulator_words(&args).iter().map(|word| written(word)).collect();
    let count = parse_emu_args(&args).len();
    let words = [emulator, vec!["--".to_owned()], init].concat();
    let fragments = [live_node(&words)];
    let target = Target { releases: vec![release], machine: None };
    let puts_first = products::of(period).is_some_and(|product| product.puts_flags_first);
    let mut told: Vec<lint::Finding> = lint::lint(&[File { fragments: &fragments }], &target)
        .into_iter()
        .filter(|finding| finding.level == Level::Warning)
        .filter(|finding| !puts_first || !is_of_product(finding))
        .collect();
    told.sort_by_key(|finding| !is_trap(finding));
    told.truncate(MAX_FINDINGS);
    let environment: Vec<(String, String)> =
        period.facts.object(facts::ENVIRONMENT).unwrap_or_default().into_iter().collect();
    let settings = parse_with_environment(&args, &environment, release);
    let drafts = told.iter().map(|finding| describe(period, finding, &settings)).collect();
    Ok(Judgement::found_or_healthy(
        drafts,
        format!("none of the {count} emulator flags in effect is a trap in OTP {release}"),
    ))
}

fn written(word: &str) -> String {
    match word.strip_prefix('-') {
        Some(name) if name.starts_with(|c: char| c.is_ascii_alphabetic()) => format!("+{name}"),
        _ => word.to_owned(),
    }
}

/// What a product that puts its own flags first means as it is. Parameters of applications on the command line are its, too.
fn is_of_product(finding: &lint::Finding) -> bool {
    finding.code.as_str() == OVERRIDDEN || !finding.flag.starts_with('+')
}

/// A flag of the emulator. What parameters of applications do is no matter of how the VM runs.
fn is_trap(finding: &lint::Finding) -> bool {
    finding.code.as_str() == TRAP && finding.flag.starts_with('+')
}

fn describe(period: &Period, finding: &lint::Finding, settings: &[Setting]) -> Draft {
    let of_it = settings.iter().find(|setting| is_of(setting, &finding.flag));
    let origin = of_it.and_then(|setting| match &setting.origin {
        Origin::Environment(name) => Some(name.clone()),
        Origin::CommandLine => Some("the command line, or an args file such as vm.args".to_owned()),
        // The environment at hand does not tell.
        Origin::Start | Origin::Default => None,
    });
    let page = format!("{}, docs/lint/{}.md", finding.code, finding.code);
    let instead = finding.remedy.trim_end_matches('.');
    let remedy = of_it.and_then(|setting| setting.entry).and_then(|entry| {
        remedy::by_entry(period, entry, instead, finding.reason.trim_end_matches('.'), PROVE)
    });
    let missing = remedy.is_none().then(|| Evidence::text("what to do", instead));
    Draft::new(if is_trap(finding) { WARNING } else { MINOR }, finding.message.clone())
        .about(Subject::Flag { name: of_it.map_or(finding.flag.clone(), |setting| setting.flag.clone()) })
        .because_some(origin.map(|origin| Evidence::text("given by", origin)))
        .because_some(missing)
        .because(Evidence::text("rule of the linter", page))
        .fix(remedy)
}

/// Whether a setting is that of a flag as the linter shows it: its name, and the value where both are one word.
fn is_of(setting: &Setting, flag: &str) -> bool {
    parse_emu_args(&[flag.to_owned()]).first().is_some_and(|named| named.flag == setting.flag)
}
