//! BT051: the VM has a bug that a later version fixes, and the node shows it or meets the conditions for it.
//!
//! A bug that is only possible is latent: it is listed in a separate section and needs no action.

use std::collections::BTreeSet;

use beamtune_flags::{ChangeKind, OtpVersion};
use beamtune_model::{Account, Code, Evidence, Missing, Period, Subject, facts, metrics};

use crate::fixes::{FIXES, Fix, Sign};
use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT051"),
    name: "known-fixes",
    question: "Does the node show a bug that a later version fixes?",
    confirm: "run the release with the fix under the same load (beamtune compare --a-env, --b-env), or the test case of the fix",
    needs: &[&metrics::PROCESS_COUNT],
    account: Account::Delay,
    judge,
    ..Rule::COMMON
};

/// Severity of bugs whose effect the node shows: a warning at most, because the effect may have another cause.
const SHOWN: f64 = 30.0;
/// Severity of bugs for which the node only meets the conditions.
const POSSIBLE: f64 = 10.0;

/// Minimum versions of these branches, regardless of the bugs found. Earlier ones corrupt memory when they build binaries (OTP-19462).
/// Those of ERTS 13 and 14 with the fixes for signals to dirty processes could crash because of these fixes (OTP-18957).
const MIN_VERSIONS: &[&str] = &["13.2.2.13", "14.2.5.7", "15.2.2"];

/// OTP release minus ERTS release: ERTS 13 is OTP 25.
const OTP_MINUS_ERTS: u32 = 12;

/// Versions of ERTS, with the OTP version that contains each, ascending (otp_versions.table of erlang/otp).
const RELEASES: &[(&str, &str)] = &[
    ("12.3.2.9", "24.3.4.9"),
    ("13.0", "25.0"),
    ("13.1", "25.1"),
    ("13.2", "25.3"),
    ("13.2.2.5", "25.3.2.8"),
    ("13.2.2.7", "25.3.2.10"),
    ("13.2.2.9", "25.3.2.12"),
    ("13.2.2.10", "25.3.2.13"),
];

fn judge(period: &Period) -> Result<Judgement, Missing> {
    period.stat(&metrics::PROCESS_COUNT, "")?;
    let text = period.fact(facts::ERTS_VERSION)?;
    let Some(erts) = OtpVersion::parse(text) else {
        return Ok(Judgement::NotJudged {
            reason: format!("{text:?} is not a version of ERTS"),
            next: "nothing to do: this VM does not use OTP's version numbers".to_owned(),
        });
    };
    let mut found = Vec::new();
    let mut lacks = 0;
    for fix in FIXES {
        let Some(until) = fix.fixed_in(&erts) else { continue };
        lacks += 1;
        let Some(sign) = (fix.sign)(period) else { continue };
        found.push((fix, until, sign));
    }
    // The latest of these versions has all fixes of the same branch.
    let latest = found.iter().filter_map(|(_, until, _)| Some((OtpVersion::parse(until)?, *until)));
    let Some((mut enough, mut enough_text)) = latest.max_by(|a, b| a.0.cmp(&b.0)) else {
        if lacks > 0 && period.is_imported() {
            return Ok(Judgement::NotJudged {
                reason: format!(
                    "ERTS {text} has {lacks} of {} known bugs, and imported text shows few of their signs",
                    FIXES.len()
                ),
                next: "run beamtune doctor TARGET where the node runs".to_owned(),
            });
        }
        return Ok(Judgement::Healthy(format!(
            "ERTS {text} has {lacks} of {} known bugs, none possible on this node",
            FIXES.len()
        )));
    };
    // The first version of a later branch may lack other fixes.
    let fixed_after = |version: &OtpVersion| {
        found.iter().find_map(|(fix, ..)| {
            let later = fix.fixed_in(version)?;
            Some((OtpVersion::parse(later)?, later))
        })
    };
    while let Some(later) = fixed_after(&enough) {
        (enough, enough_text) = later;
    }
    let is_higher = |min: &&str| {
        OtpVersion::parse(min).is_some_and(|min| min.release() == enough.release() && min > enough)
    };
    let min_version = MIN_VERSIONS.iter().copied().find(is_higher);
    let advice = Advice {
        erts: text,
        enough: enough_text,
        min_version,
        release: enough.release() + OTP_MINUS_ERTS,
        lacks,
        node: period,
    };
    let (shown, possible): (Vec<_>, Vec<_>) = found.into_iter().partition(|(_, _, sign)| sign.shown);
    let mut drafts = Vec::new();
    if !shown.is_empty() {
        drafts.push(advice.shown(&shown));
    }
    if !possible.is_empty() {
        drafts.push(advice.possible(&possible));
    }
    Ok(Judgement::Found(drafts))
}

/// A bug, the version that fixes it, and its sign.
type Defect = (&'static Fix, &'static str, Sign);

/// The version that fixes all bugs found.
struct Advice<'a> {
    /// The node's version.
    erts: &'a str,
    /// The first version with all fixes.
    enough: &'static str,
    /// The minimum version of its branch, if that is later.
    min_version: Option<&'static str>,
    /// The OTP release of that version.
    release: u32,
    /// Number of bugs in the node's version, possible on this node or not.
    lacks: usize,
    node: &'a Period,
}

impl Advice<'_> {
    /// Drafts a finding about bugs whose effect the node shows.
    fn shown(&self, defects: &[Defect]) -> Draft {
        let count = match defects.len() {
            1 => "Known bug".to_owned(),
            several => format!("{several} known bugs"),
        };
        let draft = Draft::new(
            SHOWN,
            format!(
                "{count} of ERTS {} likely in effect, fixed in {} (OTP {})",
                self.erts, self.enough, self.release
            ),
        )
        .counter_evidence("the signs may have another cause: see the other findings first");
        let draft = defects.iter().fold(draft, |draft, (fix, ..)| draft.detail(fix.what));
        self.complete(draft, defects)
    }

    /// Drafts a finding about bugs for which the node only meets the conditions.
    fn possible(&self, defects: &[Defect]) -> Draft {
        let (first, more) = match defects {
            [] => ("", String::new()),
            [(fix, ..)] => (fix.what, String::new()),
            [(fix, ..), others @ ..] => (fix.what, format!("; {} more", others.len())),
        };
        let lacks = text::counted(self.lacks as f64, "known bug", "known bugs");
        let draft = Draft::new(
            POSSIBLE,
            format!("Known bug that may apply, fixed in ERTS {}: {first}{more}", self.target()),
        )
        .detail(format!("no effect observed; ERTS {} has {lacks}", self.erts));
        self.complete(draft.latent(), defects)
    }

    /// The version to upgrade to, with the OTP version that contains it.
    fn target(&self) -> String {
        let target = self.min_version.unwrap_or(self.enough);
        let parsed = OtpVersion::parse(target);
        let before = RELEASES.iter().rev().find(|(erts, _)| {
            let erts = OtpVersion::parse(erts);
            erts <= parsed
                && erts.as_ref().map(OtpVersion::release) == parsed.as_ref().map(OtpVersion::release)
        });
        match before {
            Some((erts, otp)) if *erts == target => format!("{target} (OTP {otp})"),
            Some((_, otp)) => format!("{target} (after OTP {otp})"),
            None => format!("{target} (OTP {})", self.release),
        }
    }

    /// Adds the bugs as evidence, and the upgrade as the remedy.
    fn complete(&self, mut draft: Draft, defects: &[Defect]) -> Draft {
        draft = draft.about(Subject::Emulator { name: format!("ERTS {}", self.erts) });
        for (fix, until, sign) in defects {
            let text = format!("{}; {}; fixed in ERTS {until}", fix.what, sign.seen);
            draft = draft.evidence(Evidence::text(fix.id, text));
        }
        let refused = refused(self.node, self.release);
        let min_version = self.min_version.map(|min| {
            let text =
                format!("{min}: earlier versions can corrupt memory when they build binaries (OTP-19462)");
            Evidence::text("minimum version of the branch", text)
        });
        draft
            .because_some(min_version)
            .but_if(
                !refused.is_empty(),
                format!("OTP {} refuses or ignores flags of this node: {}", self.release, refused.join(", ")),
            )
            .remedy(remedy::of(
                self.node,
                "build.otp_version",
                &format!(
                    "upgrade ERTS {} → {} or later, preferably its latest patch",
                    self.erts,
                    self.target()
                ),
                "it has the fix",
                "erlang:system_info(version); then run the same load for as long as the bug took to show, on an old and a new node",
            ))
    }
}

/// Flags of the node that the given release refuses or ignores.
fn refused(period: &Period, release: u32) -> Vec<String> {
    let Some(now) = period.facts.otp_release() else { return Vec::new() };
    let gone: BTreeSet<&str> = beamtune_flags::changes(now, release)
        .into_iter()
        .filter(|change| matches!(change.kind, ChangeKind::Removed | ChangeKind::WithoutEffect))
        .map(|change| change.id)
        .collect();
    gone.into_iter()
        .filter(|id| view::emulator_flag(&period.facts, id).value().is_some())
        .map(str::to_owned)
        .collect()
}
