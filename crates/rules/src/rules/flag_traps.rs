//! BT064: a flag in effect is a trap, or does not do what it says. `beamtune lint` applies the same rules to files.
//!
//! Only warnings of the linter are reported: notes are not certain, and an error would have prevented the VM from starting.

use beamtune_flags::lint::{self, File, Level, Target};
use beamtune_flags::source::running_node;
use beamtune_flags::{Origin, Setting, emulator_words, init_words, parse_emu_args, parse_with_environment};
use beamtune_model::diagnosis::MINOR;
use beamtune_model::{Account, Code, Evidence, Missing, Period, Subject, facts};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule, WARNING};
use crate::signals::products;

pub const RULE: Rule = Rule {
    code: Code("BT064"),
    name: "flag-traps",
    question: "Do the node's flags do what they say, and nothing else?",
    confirm: "run beamtune lint TARGET, which names the flag and its page; run beamtune compare with and without the flag under the same load",
    needs: &[],
    account: Account::HeadRoom,
    judge,
    ..Rule::COMMON
};

/// The linter's rule for values with an unexpected effect. Its other rules are about flags without effect, which harm only users who rely
/// on these flags.
const TRAP: &str = "BF015";
/// The linter's rule for a flag that a later one overrides.
const OVERRIDDEN: &str = "BF008";

const PROVE: &str = "beamtune lint TARGET is silent; compare CPU, memory and latency under the same load";

/// Maximum number of findings; `beamtune lint TARGET` shows all.
const MAX_FINDINGS: usize = 5;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    period.fact(facts::EMU_ARGS)?;
    let release = period.fact_number(facts::OTP_RELEASE)?;
    let release = u32::try_from(release).unwrap_or(0);
    let args = period.facts.list(facts::EMU_ARGS).unwrap_or_default();
    let init = init_words(&period.facts.list(facts::INIT_ARGS).unwrap_or_default());
    // The emulator receives flags with a minus sign, where users write a plus sign.
    let emulator: Vec<String> = emulator_words(&args).iter().map(|word| written(word)).collect();
    let count = parse_emu_args(&args).len();
    let words = [emulator, vec!["--".to_owned()], init].concat();
    let fragments = [running_node(&words)];
    let target = Target { releases: vec![release], machine: None };
    let puts_first = products::of(period).is_some_and(|product| product.puts_flags_first);
    let mut found: Vec<lint::Finding> = lint::lint(&[File { fragments: &fragments }], &target)
        .into_iter()
        .filter(|finding| finding.level == Level::Warning)
        .filter(|finding| !puts_first || !is_of_product(finding))
        .collect();
    found.sort_by_key(|finding| !is_trap(finding));
    found.truncate(MAX_FINDINGS);
    let environment: Vec<(String, String)> =
        period.facts.object(facts::ENVIRONMENT).unwrap_or_default().into_iter().collect();
    let settings = parse_with_environment(&args, &environment, release);
    let drafts = found.iter().map(|finding| describe(period, finding, &settings)).collect();
    Ok(Judgement::found_or_healthy(
        drafts,
        format!("none of {count} emulator flags in effect is a trap (OTP {release})"),
    ))
}

/// The flag as users write it: with a plus sign.
fn written(word: &str) -> String {
    match word.strip_prefix('-') {
        Some(name) if name.starts_with(|c: char| c.is_ascii_alphabetic()) => format!("+{name}"),
        _ => word.to_owned(),
    }
}

/// Whether a product that puts its own flags first has set it intentionally: an overridden flag, or an application parameter.
fn is_of_product(finding: &lint::Finding) -> bool {
    finding.code.as_str() == OVERRIDDEN || !finding.flag.starts_with('+')
}

/// Whether it is about an emulator flag with an unexpected effect. Application parameters do not change how the VM runs.
fn is_trap(finding: &lint::Finding) -> bool {
    finding.code.as_str() == TRAP && finding.flag.starts_with('+')
}

fn describe(period: &Period, finding: &lint::Finding, settings: &[Setting]) -> Draft {
    let of_it = settings.iter().find(|setting| is_of(setting, &finding.flag));
    let origin = of_it.and_then(|setting| match &setting.origin {
        Origin::Environment(name) => Some(name.clone()),
        Origin::CommandLine => Some("the command line or an args file (vm.args)".to_owned()),
        // The recorded environment does not show the origin.
        Origin::Start | Origin::Default => None,
    });
    let page = format!("{}, docs/lint/{}.md", finding.code, finding.code);
    let instead = finding.remedy.trim_end_matches('.');
    let remedy = of_it.and_then(|setting| setting.entry).and_then(|entry| {
        remedy::by_entry(period, entry, instead, finding.reason.trim_end_matches('.'), PROVE)
    });
    let missing = remedy.is_none().then(|| Evidence::text("what to do", instead));
    let set_in = origin.as_ref().map_or(String::new(), |origin| format!("set in {origin}"));
    Draft::new(if is_trap(finding) { WARNING } else { MINOR }, finding.message.clone())
        .detail(set_in)
        .detail(format!("lint rule {}", finding.code))
        .about(Subject::Flag { name: of_it.map_or(finding.flag.clone(), |setting| setting.flag.clone()) })
        .because_some(origin.map(|origin| Evidence::text("set in", origin)))
        .because_some(missing)
        .evidence(Evidence::text("lint rule", page))
        .remedy(remedy)
}

/// Whether a setting is of this flag. The linter names a flag with its value if both are one word.
fn is_of(setting: &Setting, flag: &str) -> bool {
    parse_emu_args(&[flag.to_owned()]).first().is_some_and(|named| named.flag == setting.flag)
}
