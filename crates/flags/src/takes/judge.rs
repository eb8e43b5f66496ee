//! Determines how a VM of one version treats a value of a setting.

use super::number::{NumberParsing, low_32_bits, read, round};
use super::{AboveMax, AcceptedValues, BelowMin, HostCpus, Integer, OtherValues, Rounding};
use crate::OtpVersion;
use crate::entry::{AbsentBehavior, Entry};

/// A value of a setting, with everything that may affect how a VM treats the value.
#[derive(Debug, Clone, Copy)]
pub struct ValueQuery<'q> {
    /// The value; `None` for a flag that is given without a value.
    pub value: Option<&'q str>,
    /// The version of the VM.
    pub otp: &'q OtpVersion,
    /// The letter of the allocator in a flag such as `+MBas`: `B`.
    pub allocator: Option<char>,
    /// The host of the VM, if known.
    pub host_cpus: Option<HostCpus>,
}

/// How a VM treats a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The VM starts with the value.
    Accepted {
        /// The effective value as [`Entry::effective`] prints it; `None` if it cannot be derived from the value alone.
        effective: Option<String>,
        /// The silent changes to the value; empty if it is accepted unchanged.
        changes: Vec<SilentChange>,
    },
    /// The VM prints its usage and exits with status 1.
    Refused {
        /// The reason.
        why: String,
    },
    /// The VM crashes, hangs or exits while it starts.
    Fatal {
        /// What happens to the VM.
        why: String,
    },
    /// It is unknown how the VM treats the value.
    Unknown {
        /// The reason.
        why: String,
    },
}

/// A silent change to a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SilentChange {
    /// Rounded, or replaced by the nearest possible value.
    Rounded,
    /// Raised to the lowest possible value.
    Raised,
    /// Lowered to the highest possible value.
    Lowered,
    /// Truncated to the number of bits in which the VM stores the value.
    Wrapped,
    /// This suffix is ignored: `k` of `8k`. The VM does not support units.
    Cut(String),
    /// The value is not a number, so the VM uses 0.
    NotANumber,
    /// Only the first letter matters.
    FirstLetter,
    /// The value has no effect: this release ignores the setting, or replaces the value by the default.
    Ignored,
    /// This release parses the setting as another flag.
    ReadAs {
        /// The other flag.
        flag: String,
        /// The value of the other flag.
        value: String,
    },
}

impl Verdict {
    pub(super) fn accepted(effective: Option<String>) -> Verdict {
        Verdict::Accepted { effective, changes: Vec::new() }
    }

    pub(super) fn first_letter(text: &str) -> Verdict {
        let effective = text.chars().next().map(String::from);
        Verdict::Accepted { effective, changes: vec![SilentChange::FirstLetter] }
    }

    pub(super) fn refused(why: impl Into<String>) -> Verdict {
        Verdict::Refused { why: why.into() }
    }

    pub(super) fn unknown(why: impl Into<String>) -> Verdict {
        Verdict::Unknown { why: why.into() }
    }
}

impl Entry {
    /// Determines how a VM of this version treats a value; `None` is the flag without a value. A flag such as `+M<S>as`
    /// is treated as the flag for all allocators (`+Muas`); [`judge`](Self::judge) takes the letter of a single one.
    pub fn check(&self, value: Option<&str>, otp: impl Into<OtpVersion>) -> Verdict {
        self.judge(&ValueQuery { value, otp: &otp.into(), allocator: None, host_cpus: None })
    }

    /// Determines how a VM treats a value, for an allocator and a host.
    pub fn judge(&self, question: &ValueQuery<'_>) -> Verdict {
        let otp = question.otp;
        if !self.exists_in(otp.clone()) {
            return match &self.absent_behavior {
                AbsentBehavior::Refused => Verdict::refused(format!("OTP {otp} does not have {}", self.id)),
                AbsentBehavior::Ignored => {
                    Verdict::Accepted { effective: None, changes: vec![SilentChange::Ignored] }
                }
                AbsentBehavior::ReadAs { flag, value } => Verdict::Accepted {
                    effective: None,
                    changes: vec![SilentChange::ReadAs { flag: flag.clone(), value: value.clone() }],
                },
            };
        }
        let Some(takes) = self.accepted_for(question.allocator, otp) else {
            return Verdict::unknown("the catalogue does not list its values");
        };
        let mut verdict = self.judge_value(takes, question);
        if let Verdict::Accepted { effective, changes: altered } = &mut verdict {
            if !self.works_in(otp.clone()) {
                altered.push(SilentChange::Ignored);
            }
            *effective = effective.take().and_then(|value| takes.shown(value));
        }
        verdict
    }

    fn judge_value(&self, takes: &AcceptedValues, question: &ValueQuery<'_>) -> Verdict {
        let text = question.value.unwrap_or_default();
        let number = takes.integer.as_ref().map(|_| read(text, takes.reads));
        let number = number.as_ref().and_then(|number| number.as_ref().ok()).map(|number| number.value);
        let fatal = self.fatal.iter().filter(|fatal| fatal.holds_in(question.otp)).find(|fatal| {
            fatal.always
                || fatal.words.iter().any(|word| word == text)
                || fatal.integer.is_some_and(|range| number.is_some_and(|number| range.holds(number)))
        });
        if let Some(fatal) = fatal {
            return Verdict::Fatal { why: fatal.why.clone() };
        }
        match takes.judge(text, question) {
            Verdict::Refused { .. } if takes.otherwise == OtherValues::Ignored => {
                Verdict::Accepted { effective: None, changes: vec![SilentChange::Ignored] }
            }
            verdict => verdict,
        }
    }

    /// Returns the values that this version accepts; `None` if the version does not have the setting or the catalogue
    /// lists no values. For a flag such as `+M<S>as` these are the values of the flag for all allocators.
    pub fn accepted_in(&self, otp: impl Into<OtpVersion>) -> Option<&AcceptedValues> {
        let otp = otp.into();
        if self.exists_in(otp.clone()) { self.accepted_for(None, &otp) } else { None }
    }

    /// Returns the accepted values for one allocator, given by its letter, whether or not the version has the setting.
    pub fn accepted_for(&self, allocator: Option<char>, otp: &OtpVersion) -> Option<&AcceptedValues> {
        let allocator = allocator.unwrap_or('u');
        self.accepts
            .iter()
            .filter(|step| step.from.as_ref().is_none_or(|from| otp >= from))
            .filter(|step| step.letters.as_ref().is_none_or(|letters| letters.contains(allocator)))
            .max_by_key(|step| (step.letters.is_some(), step.from.as_ref()))
    }
}

impl AcceptedValues {
    fn judge(&self, text: &str, question: &ValueQuery<'_>) -> Verdict {
        if let Some(verdict) = self.form.and_then(|form| form.judge(text, &self.words, question)) {
            return verdict;
        }
        if let Some(depends) = &self.depends
            && depends.words.iter().any(|word| word == text)
        {
            return Verdict::unknown(format!("depends on {}", depends.on));
        }
        if self.words.iter().any(|word| word == text) {
            return Verdict::accepted(Some(text.to_owned()));
        }
        match &self.integer {
            Some(integer) if question.value.is_some() && !self.refuses.iter().any(|word| word == text) => {
                self.judge_number(text, integer)
            }
            _ if text.is_empty() => Verdict::refused(format!("missing value; accepted: {}", self.describe())),
            _ => Verdict::refused(format!("`{text}` is not valid; accepted: {}", self.describe())),
        }
    }

    fn judge_number(&self, text: &str, integer: &Integer) -> Verdict {
        let read = match read(text, self.reads) {
            Ok(read) => read,
            Err(why) => return Verdict::refused(format!("`{text}`: {why} ({})", self.describe())),
        };
        let mut altered = Vec::new();
        if read.none {
            altered.push(SilentChange::NotANumber);
        } else if !read.rest.is_empty() {
            altered.push(SilentChange::Cut(read.rest.to_owned()));
        }
        if read.wrapped {
            altered.push(SilentChange::Wrapped);
        }
        let refused = || Verdict::refused(format!("`{text}` is not valid; accepted: {}", self.describe()));
        let mut number = read.value;
        if let Some(min) = integer.min.filter(|&min| number < min) {
            match self.below {
                BelowMin::Refused => return refused(),
                BelowMin::Raised => {
                    altered.push(SilentChange::Raised);
                    number = min;
                }
                BelowMin::Wraps => {
                    altered.push(SilentChange::Wrapped);
                    number = wrap(number, integer);
                }
            }
        }
        if let Some(max) = integer.max.filter(|&max| number > max) {
            match self.above {
                AboveMax::Refused => return refused(),
                AboveMax::Capped => {
                    altered.push(SilentChange::Lowered);
                    number = max;
                }
                AboveMax::Wraps => {
                    altered.push(SilentChange::Wrapped);
                    number = wrap(number, integer);
                }
            }
        }
        if let Some(depends) = &self.depends
            && depends.integer.is_some_and(|range| range.holds(read.value) || range.holds(number))
        {
            return Verdict::unknown(format!("depends on {}", depends.on));
        }
        // Rounding never exceeds the maximum.
        let rounded = round(number, self.rounds).map(|rounded| match (self.rounds, integer.max) {
            (Some(Rounding::PowerOfTwo), Some(max)) => rounded.min(max),
            _ => rounded,
        });
        if rounded.is_some_and(|rounded| rounded != number) {
            altered.push(SilentChange::Rounded);
        }
        // Rounding may exceed the range of an `int`.
        let kept = match self.reads {
            NumberParsing::Int | NumberParsing::SomeInt => {
                rounded.map(|rounded| i64::from(low_32_bits(rounded)))
            }
            _ => rounded,
        };
        if kept != rounded {
            altered.push(SilentChange::Wrapped);
        }
        // If another setting may change the value, the effective value is known only if `shows` lists it.
        let effective = kept.or_else(|| self.shows.contains_key(&number.to_string()).then_some(number));
        Verdict::Accepted { effective: effective.map(|number| number.to_string()), changes: altered }
    }

    /// Returns what [`Entry::effective`] prints for an effective value.
    fn shown(&self, value: String) -> Option<String> {
        match self.shows.get(&value) {
            Some(shown) => (!shown.is_empty()).then(|| shown.clone()),
            None => (!value.is_empty()).then_some(value),
        }
    }
}

fn wrap(number: i64, integer: &Integer) -> i64 {
    integer.max.and_then(|max| max.checked_add(1)).map_or(number, |size| number.rem_euclid(size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry;

    fn judged(id: &str, value: &str, otp: &str) -> Verdict {
        let value = (!value.is_empty()).then_some(value);
        entry(id).expect(id).check(value, OtpVersion::parse(otp).expect(otp))
    }

    /// Formats the effective value and its changes, or the kind of rejection.
    fn shown(verdict: &Verdict) -> String {
        match verdict {
            Verdict::Accepted { effective, changes: altered } => {
                let altered: Vec<_> = altered.iter().map(|altered| format!("{altered:?}")).collect();
                [&[effective.clone().unwrap_or_else(|| "?".to_owned())], altered.as_slice()]
                    .concat()
                    .join(" ")
            }
            Verdict::Refused { .. } => "refused".to_owned(),
            Verdict::Fatal { .. } => "fatal".to_owned(),
            Verdict::Unknown { .. } => "unknown".to_owned(),
        }
    }

    #[test]
    fn values_are_accepted_changed_or_rejected() {
        let check = |id: &str, value: &str, otp: &str, expect: &str| {
            assert_eq!(shown(&judged(id, value, otp)), expect, "{id} {value} in OTP {otp}");
        };
        check("+P", "262144", "25", "262144");
        check("+P", "1025", "25", "2048 Rounded");
        check("+P", "1023", "25", "refused");
        check("+P", "134217728", "25", "refused");
        check("+P", "legacy", "25", "262144");
        check("+P", "legacy", "27", "1048576");
        check("+P", "zzz", "25", "refused");
        check("+P", "", "25", "refused");
        check("+zdbbl", "8k", "25", "8 Cut(\"k\")");
        check("+sbwt", "none", "25", "none");
        check("+sbwt", "loud", "25", "refused");
        check("+sbt", "ns", "25", "no_spread");
        check("+A", "0", "22", "0");
        check("+A", "0", "23", "1 Rounded");
        check("+hms", "8k", "25", "12 Cut(\"k\") Rounded");
        check("+hmbs", "32768", "25", "46422 Rounded");
        check("+hmbs", "2147483647", "25", "-1756144687 Rounded Wrapped");
        check("+K", "true", "25", "? Ignored");
        check("+C", "multi_time_warp", "25", "multi_time_warp");
        check("+c", "", "25", "false");
        check("+W", "warning", "25", "warning FirstLetter");
        check("+W", "x", "25", "refused");
        check("ERL_FULLSWEEP_AFTER", "70000", "25", "4464 Wrapped");
        check("ERL_MAX_PORTS", "10", "25", "1024 Raised");
        check("HEART_BEAT_TIMEOUT", "5", "25", "? Ignored");
        check("ERL_CRASH_DUMP_BYTES", "8k", "25", "? Ignored");
        check("+M<S>rsbcst", "200", "25", "100 Rounded");
    }

    #[test]
    fn release_without_the_setting_rejects_ignores_or_misparses_it() {
        assert_eq!(shown(&judged("+zhft", "infinity", "25")), "refused");
        assert_eq!(shown(&judged("+zhft", "infinity", "27")), "infinity");
        assert_eq!(shown(&judged("-emu_flavor", "smp", "23")), "? Ignored");
        let read_as = SilentChange::ReadAs { flag: "+hmax".to_owned(), value: "ib".to_owned() };
        assert_eq!(
            judged("+hmaxib", "true", "25"),
            Verdict::Accepted { effective: None, changes: vec![read_as] }
        );
        assert_eq!(shown(&judged("+hmaxib", "true", "26")), "true");
    }

    #[test]
    fn fatal_values_are_distinguished_from_rejected_ones() {
        for (id, value) in
            [("+Mea", "r9c"), ("+MIscs", "0"), ("+MMscs", "1G"), ("+hmax", "300"), ("+t", "8192")]
        {
            assert_eq!(shown(&judged(id, value, "25")), "fatal", "{id} {value}");
        }
        assert_eq!(shown(&judged("+hmax", "0", "25")), "0");
    }

    #[test]
    fn accepted_values_depend_on_the_allocator() {
        let check = |letter: char, id: &str, value: &str, expect: &str| {
            let otp = OtpVersion::from(27);
            let question =
                ValueQuery { value: Some(value), otp: &otp, allocator: Some(letter), host_cpus: None };
            assert_eq!(shown(&entry(id).expect(id).judge(&question)), expect, "{letter} {id} {value}");
        };
        check('B', "+M<S>acul", "de", "60");
        check('H', "+M<S>acul", "de", "45");
        check('u', "+M<S>acul", "101", "refused");
        check('T', "+M<S>acul", "50", "refused");
        check('T', "+M<S>e", "false", "refused");
        check('B', "+M<S>e", "false", "false");
        check('B', "+M<S>as", "af", "gf");
        check('T', "+M<S>as", "af", "af");
        check('I', "+M<S>t", "true", "refused");
    }
}
