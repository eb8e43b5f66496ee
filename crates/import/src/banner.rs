//! Parses the banner, the first line that a VM prints.

use beamtune_model::facts;

use crate::text::Tokens;

/// The banner: `Erlang/OTP 27 [erts-15.0] [64-bit] [smp:8:4] [ds:8:4:10] …`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Banner {
    /// OTP release: `27`.
    pub release: Option<String>,
    /// ERTS version: `15.0`.
    pub erts: Option<String>,
    /// Number of normal schedulers, and number of those online.
    pub schedulers: Option<(i64, i64)>,
    /// Number of dirty CPU schedulers, number of those online, and number of dirty I/O schedulers.
    pub dirty: Option<(i64, i64, i64)>,
    /// `jit` if the VM has the just-in-time compiler; otherwise, the banner has no such field.
    pub flavor: Option<&'static str>,
}

impl Banner {
    /// Returns the fields as facts of a recording.
    pub(crate) fn facts(&self) -> Vec<(&'static str, String)> {
        let number = |number: i64| number.to_string();
        let Banner { release, erts, schedulers, dirty, flavor } = self;
        let fields = [
            (facts::OTP_RELEASE, release.clone()),
            (facts::ERTS_VERSION, erts.clone()),
            (facts::SCHEDULERS, schedulers.map(|(all, _)| number(all))),
            (facts::SCHEDULERS_ONLINE, schedulers.map(|(_, online)| number(online))),
            (facts::DIRTY_CPU_SCHEDULERS, dirty.map(|(cpu, ..)| number(cpu))),
            (facts::DIRTY_CPU_SCHEDULERS_ONLINE, dirty.map(|(_, online, _)| number(online))),
            (facts::DIRTY_IO_SCHEDULERS, dirty.map(|(.., io)| number(io))),
            (facts::EMU_FLAVOR, flavor.map(str::to_owned)),
        ];
        fields.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }
}

/// Returns the fields in which all banners agree. A missing field contradicts nothing.
pub(crate) fn common_fields(all: &[Banner]) -> Banner {
    fn common<T: Clone + PartialEq>(all: &[Banner], of: impl Fn(&Banner) -> &Option<T>) -> Option<T> {
        let mut values = all.iter().filter_map(|banner| of(banner).as_ref());
        let first = values.next()?;
        values.all(|other| other == first).then(|| first.clone())
    }
    Banner {
        release: common(all, |banner| &banner.release),
        erts: common(all, |banner| &banner.erts),
        schedulers: common(all, |banner| &banner.schedulers),
        dirty: common(all, |banner| &banner.dirty),
        flavor: common(all, |banner| &banner.flavor),
    }
}

/// Whether a banner contradicts an earlier one.
pub(crate) fn contradicts(banner: &Banner, before: &[Banner]) -> bool {
    let facts = banner.facts();
    let is_other = |(key, value): (&str, String)| facts.iter().any(|(of, new)| *of == key && *new != value);
    before.iter().flat_map(Banner::facts).any(is_other)
}

/// The first word of a banner.
pub const FIRST_WORD: &str = "Erlang/OTP";

/// Parses the banner that begins at the current word.
pub fn read(tokens: &mut Tokens<'_>) -> Banner {
    let mut banner = Banner::default();
    let Some(first) = tokens.peek(0) else { return banner };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    for n in 1..16 {
        let Some(token) = tokens.peek(n).filter(|token| token.line == first.line) else { break };
        let inner = token.text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        match inner.and_then(|inner| inner.split_once([':', '-'])) {
            Some(("erts", version)) => banner.erts = Some(version.to_owned()),
            Some(("smp", counts)) => {
                banner.schedulers = numbers(counts)
                    .and_then(|counts| match counts.as_slice() {
                        [all, online] => Some((*all, *online)),
                        _ => None,
                    })
                    .filter(|(all, online)| (1..=*all).contains(online));
            }
            Some(("ds", counts)) => {
                banner.dirty = numbers(counts)
                    .and_then(|counts| match counts.as_slice() {
                        [cpu, online, io] => Some((*cpu, *online, *io)),
                        _ => None,
                    })
                    .filter(|(cpu, online, io)| (1..=*cpu).contains(online) && *io > 0);
            }
            _ if n == 1 && digits(token.text) => banner.release = Some(token.text.to_owned()),
            // This is the last field; the next line touches it if a line break was lost.
            _ if token.text.starts_with("[jit]") || token.text.starts_with("[jit:") => {
                banner.flavor = Some("jit");
            }
            _ => {}
        }
    }
    banner
}

fn numbers(counts: &str) -> Option<Vec<i64>> {
    counts.split(':').map(|count| count.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_and_schedulers_are_read() {
        let check = |text: &str| read(&mut Tokens::new(text));
        let banner = check(
            "Erlang/OTP 25 [erts-13.1.5] [source] [64-bit] [smp:8:4] [ds:8:4:10] [async-threads:1] [jit:ns]",
        );
        assert_eq!((banner.release.as_deref(), banner.erts.as_deref()), (Some("25"), Some("13.1.5")));
        assert_eq!((banner.schedulers, banner.dirty), (Some((8, 4)), Some((8, 4, 10))));
        assert_eq!(banner.flavor, Some("jit"));
        assert_eq!(check("Erlang/OTP 24 [erts-12.0] [jit]\"").flavor, Some("jit"));
        assert_eq!(check("Erlang/OTP 23 [erts-11.0] [hipe] [jitter]").flavor, None);
        assert_eq!(check("Erlang/OTP [smp:4:8] [ds:1:2]"), Banner::default());
    }
}
