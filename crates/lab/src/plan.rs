//! Which runs an evaluation consists of.

use std::time::Duration;

use anyhow::{Result, bail};
use beamtune_node::Printer;

use crate::catalog::{self, Lab};
use crate::manifest::CORES;
use crate::otp::{self, Installed};
use crate::rows::{Kind, Run, Setting};
use crate::software::{self, Case};
use crate::{elixir, nif, synthetic};

/// Maximum number of robust labs that run at the same time; at most one per CPU.
pub(crate) const PARALLEL_LABS: usize = 2;
/// Assumed duration of a run until one has been measured: the mean of 700 runs, of which the recording takes 10 s.
pub(crate) const USUAL_RUN: Duration = Duration::from_secs(12);

/// What to evaluate.
pub struct Selection {
    /// OTP releases: this host's own, and those from `make otp`.
    pub releases: Vec<u32>,
    /// Run each lab on one release only, chosen by the seed. Labs that need the host for themselves always run in their sick variant,
    /// but only half of them also run in their healthy one.
    pub quick: bool,
    /// Names of labs, software cases and synthetic recordings; empty: all.
    pub names: Vec<String>,
    /// Run only labs that tolerate other work on the host.
    pub robust: bool,
    /// Number of CPUs to size labs for.
    pub cores: u32,
}

impl Selection {
    fn includes(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|wanted| wanted == name)
    }
}

/// The labs and the software, which runs refer to.
pub struct Cases {
    labs: Vec<Lab>,
    software: Vec<Case>,
}

impl Cases {
    /// Returns all cases.
    ///
    /// # Errors
    /// If a manifest is invalid.
    pub fn all() -> Result<Cases> {
        Ok(Cases { labs: catalog::all()?, software: software::all()? })
    }

    /// True if there is a lab, a software case or a synthetic recording with this name.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.labs.iter().any(|lab| lab.manifest.name == name)
            || self.software.iter().any(|case| case.name == name)
            || synthetic::CASES.iter().any(|case| case.name == name)
    }
}

/// A run that is to be executed.
pub(crate) struct Job<'a> {
    pub run: Run,
    pub what: Workload<'a>,
}

pub(crate) enum Workload<'a> {
    Lab(&'a Lab),
    Software(&'a Case),
    Synthetic(&'static synthetic::Case),
}

impl Job<'_> {
    pub fn is_robust(&self) -> bool {
        matches!(self.what, Workload::Lab(lab) if lab.manifest.robust)
    }

    /// True for synthetic recordings, which take no time, so that the duration of other runs cannot be estimated from them.
    pub fn is_synthetic(&self) -> bool {
        self.run.kind == Kind::Synthetic
    }
}

/// Estimates the duration of all runs, in minutes.
pub(crate) fn minutes(jobs: &[Job<'_>]) -> u64 {
    let robust = jobs.iter().filter(|job| job.is_robust()).count();
    let others = jobs.iter().filter(|job| !job.is_robust() && !job.is_synthetic()).count();
    let slots = robust.div_ceil(PARALLEL_LABS) + others;
    (slots as u64 * USUAL_RUN.as_secs()).div_ceil(60)
}

/// The runs of an evaluation, and the Erlang installations for them.
pub(crate) struct Plan<'a> {
    pub installed: Vec<Installed>,
    pub jobs: Vec<Job<'a>>,
}

impl<'a> Plan<'a> {
    /// Lists the selected runs that are possible on this host. Prints why others are skipped.
    pub fn new(selection: &Selection, master: u64, cases: &'a Cases, print: Printer) -> Result<Plan<'a>> {
        let own = otp::own();
        let planner =
            Planner { selection, master, installed: installed(selection, own.as_ref(), print), print };
        if let Some(name) = selection.names.iter().find(|name| !cases.contains(name)) {
            bail!("no lab or case {name:?}; list them with: beamtune lab list");
        }
        let mut jobs = planner.labs(&cases.labs);
        jobs.extend(planner.software(own.as_ref(), &cases.software));
        jobs.extend(planner.synthetic());
        if jobs.is_empty() {
            bail!("none of the requested runs is possible here: install Erlang, or run make otp");
        }
        Ok(Plan { installed: planner.installed, jobs })
    }
}

/// Returns the installed releases, and reports the others as skipped.
fn installed(selection: &Selection, own: Option<&Installed>, print: Printer) -> Vec<Installed> {
    let find = |release: &u32| {
        let found = otp::find(*release, own);
        match &found {
            None => skip(print, &format!("OTP {release} is not installed (make otp)")),
            Some(one) if one.erlang.root.is_some() && !is_root() => {
                skip(
                    print,
                    &format!("OTP {release} is in a root file system of its own, and chroot needs root"),
                );
                return None;
            }
            Some(_) => {}
        }
        found
    };
    selection.releases.iter().filter_map(find).collect()
}

fn skip(print: Printer, why: &str) {
    print(&format!("skipped, because {why}\n"));
}

/// Lists the runs of each kind.
struct Planner<'s> {
    selection: &'s Selection,
    master: u64,
    installed: Vec<Installed>,
    print: Printer,
}

impl Planner<'_> {
    fn skip(&self, why: &str) {
        skip(self.print, why);
    }

    fn labs<'a>(&self, labs: &'a [Lab]) -> Vec<Job<'a>> {
        let Planner { selection, master, .. } = *self;
        let (root, compiler) = (is_root(), nif::has_compiler());
        let mut jobs = Vec::new();
        for (index, lab) in labs.iter().enumerate() {
            let manifest = &lab.manifest;
            let name = &manifest.name;
            if !selection.includes(name) || (selection.robust && !manifest.robust) {
                continue;
            }
            if manifest.needs_root && !root {
                self.skip(&format!("lab {name} needs root"));
                continue;
            }
            if manifest.nif.is_some() && !compiler {
                self.skip(&format!("lab {name} needs a C compiler"));
                continue;
            }
            let mut suitable = self.suitable(lab);
            if suitable.is_empty() {
                continue;
            }
            if selection.quick {
                suitable = vec![suitable[(index + master as usize) % suitable.len()]];
            }
            for one in suitable {
                let seed = seed(master, name, one.release);
                // These labs take most of the time; half an hour is not enough for both variants of all.
                let is_sick_only = selection.quick && !manifest.robust && seed % 2 == 1;
                let settings: &[Setting] = match manifest.sick {
                    Some(_) if is_sick_only => &[Setting::Sick],
                    Some(_) => &[Setting::Sick, Setting::Cured],
                    None => &[Setting::Healthy],
                };
                jobs.extend(settings.iter().map(|setting| Job {
                    run: Run {
                        case: name.clone(),
                        kind: Kind::Lab,
                        release: one.release,
                        setting: *setting,
                        seed,
                        cores: selection.cores,
                    },
                    what: Workload::Lab(lab),
                }));
            }
        }
        jobs
    }

    /// Returns the Erlang installations that can run a lab; if none can, prints why.
    fn suitable(&self, lab: &Lab) -> Vec<&Installed> {
        let manifest = &lab.manifest;
        let new_enough = || self.installed.iter().filter(|one| one.release >= manifest.min_otp);
        let has_elixir = |one: &&Installed| manifest.elixir.is_none() || elixir::is_installed(&one.erlang);
        let suitable: Vec<&Installed> = new_enough().filter(has_elixir).collect();
        if suitable.is_empty() {
            match new_enough().next() {
                None => self.skip(&format!("lab {} needs OTP {}", manifest.name, manifest.min_otp)),
                Some(_) => self.skip(&format!("lab {} needs Elixir", manifest.name)),
            }
        }
        suitable
    }

    /// Lists the runs of software, which run on this host's own Erlang only.
    fn software<'a>(&self, own: Option<&Installed>, cases: &'a [Case]) -> Vec<Job<'a>> {
        let selection = self.selection;
        let mut jobs = Vec::new();
        let mut wanted =
            cases.iter().filter(|case| selection.includes(&case.name) && !selection.robust).peekable();
        let Some(own) = own.filter(|own| self.installed.iter().any(|one| one.release == own.release)) else {
            if wanted.peek().is_some() {
                self.skip("software needs this host's own Erlang, whose release was not requested");
            }
            return jobs;
        };
        for case in wanted {
            if let Some(why) = case.missing() {
                self.skip(&format!("{}: {why}", case.name));
                continue;
            }
            let setting = if case.expect.is_empty() { Setting::Healthy } else { Setting::Sick };
            jobs.push(Job {
                run: Run {
                    case: case.name.clone(),
                    kind: Kind::Software,
                    release: own.release,
                    setting,
                    seed: seed(self.master, &case.name, own.release),
                    cores: CORES,
                },
                what: Workload::Software(case),
            });
        }
        jobs
    }

    /// Lists the runs of synthetic recordings. They need no VM, so all requested releases are possible.
    fn synthetic(&self) -> Vec<Job<'static>> {
        let selection = self.selection;
        let mut jobs = Vec::new();
        for case in synthetic::CASES.iter().filter(|case| selection.includes(case.name)) {
            for release in case.releases().filter(|release| selection.releases.contains(release)) {
                jobs.extend([Setting::Sick, Setting::Healthy].map(|setting| Job {
                    run: Run {
                        case: case.name.to_owned(),
                        kind: Kind::Synthetic,
                        release,
                        setting,
                        seed: seed(self.master, case.name, release),
                        cores: CORES,
                    },
                    what: Workload::Synthetic(case),
                }));
            }
        }
        jobs
    }
}

/// Returns the seed of a case on a release, which is the same for all variants (FNV-1a).
fn seed(master: u64, case: &str, release: u32) -> u32 {
    let hash = format!("{master} {case} {release}").bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash >> 32) as u32 % 1_000_000
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_depend_on_case_release_and_master_seed() {
        assert_eq!(seed(1, "a", 25), seed(1, "a", 25));
        for other in [seed(2, "a", 25), seed(1, "b", 25), seed(1, "a", 27)] {
            assert_ne!(seed(1, "a", 25), other);
        }
    }
}
