//! BT051: the VM has a defect that was mended in a later version, and the node shows it, or has what it needs to happen.
//!
//! What is only possible is latent: it stands in a section of its own, and is no finding to act on.

use std::collections::BTreeSet;

use beamtune_flags::{OtpVersion, What};
use beamtune_model::{Account, Code, Evidence, Missing, Period, Subject, facts, metrics};

use crate::fixes::{FIXES, Fix, Sign};
use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT051"),
    name: "known-fixes",
    question: "Does the node show a defect that a later version has not?",
    confirm: "the release that has the fix, under the same load (beamtune compare --a-env, --b-env), or the fix's own test case",
    needs: &[&metrics::PROCESS_COUNT],
    account: Account::Delay,
    judge,
    ..Rule::COMMON
};

/// What the node shows may have another cause, too: a warning, and never more.
const SHOWN: f64 = 30.0;
/// What it only has the conditions for.
const POSSIBLE: f64 = 10.0;

/// Below these no version is enough, whatever it mends: binaries were built in a way that corrupts memory (OTP-19462), and those of ERTS 13
/// and 14 that brought the fixes of signals to dirty processes could crash by them (OTP-18957).
const FLOORS: &[&str] = &["13.2.2.13", "14.2.5.7", "15.2.2"];

/// The releases of OTP go by 12 before those of ERTS: ERTS 13 is of OTP 25.
const OTP_AHEAD: u32 = 12;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    period.stat(&metrics::PROCESS_COUNT, "")?;
    let text = period.fact(facts::ERTS_VERSION)?;
    let Some(erts) = OtpVersion::parse(text) else {
        return Ok(Judgement::NotJudged {
            reason: format!("{text:?} is no version of ERTS"),
            next: "nothing: this VM's versions are not OTP's own".to_owned(),
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
    // The same branch has all of them from the latest of these versions on.
    let latest = found.iter().filter_map(|(_, until, _)| Some((OtpVersion::parse(until)?, *until)));
    let Some((mut enough, mut enough_text)) = latest.max_by(|a, b| a.0.cmp(&b.0)) else {
        if lacks > 0 && period.is_imported() {
            return Ok(Judgement::NotJudged {
                reason: format!(
                    "of {} defects that are known here ERTS {text} has {lacks}, and most of their signs do not stand in text",
                    FIXES.len()
                ),
                next: "beamtune doctor TARGET, where the node runs".to_owned(),
            });
        }
        return Ok(Judgement::Healthy(format!(
            "of {} defects that are known here ERTS {text} has {lacks}, and the node has to do with none of these",
            FIXES.len()
        )));
    };
    // If that is of a later branch, others may not be mended in its first version.
    let mended_after = |version: &OtpVersion| {
        found.iter().find_map(|(fix, ..)| {
            let later = fix.fixed_in(version)?;
            Some((OtpVersion::parse(later)?, later))
        })
    };
    while let Some(later) = mended_after(&enough) {
        (enough, enough_text) = later;
    }
    let is_floor = |floor: &&str| {
        OtpVersion::parse(floor).is_some_and(|floor| floor.release() == enough.release() && floor > enough)
    };
    let floor = FLOORS.iter().copied().find(is_floor);
    let advice = Advice {
        erts: text,
        enough: enough_text,
        floor,
        release: enough.release() + OTP_AHEAD,
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

/// A defect, the version that mends it, and its sign.
type Defect = (&'static Fix, &'static str, Sign);

/// What mends all defects that were found.
struct Advice<'a> {
    /// The node's version.
    erts: &'a str,
    /// From this version on all are mended,
    enough: &'static str,
    /// or from this one, where that has worse.
    floor: Option<&'static str>,
    /// Its release.
    release: u32,
    /// Defects that the node's version has, whether the node has to do with them or not.
    lacks: usize,
    node: &'a Period,
}

impl Advice<'_> {
    /// Defects that are seen at work.
    fn shown(&self, defects: &[Defect]) -> Draft {
        let count = match defects.len() {
            1 => "a known defect that this node seems to show".to_owned(),
            several => format!("{several} known defects that this node seems to show"),
        };
        let draft = Draft::new(
            SHOWN,
            format!("ERTS {} has {count}, mended in ERTS {} (OTP {})", self.erts, self.enough, self.release),
        )
        .but("what is seen may have another cause: the other findings first");
        self.complete(draft, defects)
    }

    /// Those that the node only has the conditions for.
    fn possible(&self, defects: &[Defect]) -> Draft {
        let version = match self.node.facts.get(facts::OTP_VERSION) {
            Some(otp) => format!("OTP {otp}"),
            None => format!("ERTS {}", self.erts),
        };
        let lacks = match self.lacks {
            1 => "1 known defect".to_owned(),
            several => format!("{several} known defects"),
        };
        let draft = Draft::new(
            POSSIBLE,
            format!(
                "{version} has {lacks} that later versions mend; this node may meet {}, and shows none of them at work",
                defects.len()
            ),
        );
        self.complete(draft.latent(), defects)
    }

    fn complete(&self, mut draft: Draft, defects: &[Defect]) -> Draft {
        draft = draft.about(Subject::Emulator { name: format!("ERTS {}", self.erts) });
        for (fix, until, sign) in defects {
            let text = format!("{}; {}; mended in ERTS {until}", fix.what, sign.seen);
            draft = draft.because(Evidence::text(fix.id, text));
        }
        let stopped = refused(self.node, self.release);
        let floor = self.floor.map(|floor| {
            let text = format!("versions of this branch below {floor} can corrupt memory where binaries are built (OTP-19462)");
            Evidence::text("why a later one", text)
        });
        draft
            .because_some(floor)
            .but_if(
                !stopped.is_empty(),
                format!(
                    "OTP {} refuses or ignores what this node is started with: {}",
                    self.release,
                    stopped.join(", ")
                ),
            )
            .fix(remedy::of(
                self.node,
                "build.otp_version",
                &format!(
                    "OTP {} with ERTS {} or later; best the latest patch of that release, or of a newer one",
                    self.release,
                    self.floor.unwrap_or(self.enough)
                ),
                "the defect is not there any more",
                "erlang:system_info(version); then the same load for as long as it took to show, beside an old node",
            ))
    }
}

/// Flags of the node that a release refuses, or takes to no effect.
fn refused(period: &Period, release: u32) -> Vec<String> {
    let Some(now) = period.facts.otp_release() else { return Vec::new() };
    let gone: BTreeSet<&str> = beamtune_flags::changes(now, release)
        .into_iter()
        .filter(|change| matches!(change.what, What::Removed | What::WithoutEffect))
        .map(|change| change.id)
        .collect();
    gone.into_iter()
        .filter(|id| view::emulator_flag(&period.facts, id).value().is_some())
        .map(str::to_owned)
        .collect()
}
