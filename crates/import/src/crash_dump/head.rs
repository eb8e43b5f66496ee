//! The head of a dump: why and when the VM terminated, and its version.

use beamtune_model::{SampleBuilder, facts};

use super::section::Section;

/// Maximum length of a slogan; the VM itself shortens most of them to a thousand characters.
const MAX_SLOGAN_CHARS: usize = 4_096;

#[derive(Default)]
pub(super) struct Head {
    facts: Vec<(&'static str, String)>,
    /// The thread that terminated the VM, such as `scheduler:2`; `scheduler:0` for any thread other than a normal scheduler.
    pub(super) thread: Option<String>,
    /// Word size of the VM; `None` if unknown.
    pub(super) word_bytes: Option<i64>,
}

impl Head {
    pub(super) fn of(section: &Section) -> Self {
        let mut head = Head { thread: section.text("Calling Thread"), ..Head::default() };
        let mut fact = |key, value: Option<String>| {
            head.facts.extend(value.filter(|value| !value.is_empty()).map(|value| (key, value)));
        };
        fact(facts::CRASH_TIME, section.first_line());
        fact(facts::CRASH_SLOGAN, slogan(section));
        fact(facts::CRASH_TAINTS, section.text("Taints"));
        let version = section.text("System version");
        if let Some(version) = &version {
            fact(facts::SYSTEM_VERSION, Some(version.clone()));
            let release = version.strip_prefix("Erlang/OTP ").and_then(|rest| rest.split(' ').next());
            fact(facts::OTP_RELEASE, release.map(str::to_owned));
            let parts = || version.split('[').skip(1).filter_map(|part| Some(part.split_once(']')?.0));
            let after = |prefix: &str| parts().find_map(|part| part.strip_prefix(prefix));
            fact(facts::ERTS_VERSION, after("erts-").map(str::to_owned));
            let numbers = |prefix, keys: &[&'static str]| -> Vec<(&'static str, String)> {
                let numbers = after(prefix).unwrap_or_default().split(':');
                let whole = numbers.filter(|number| number.parse::<u32>().is_ok()).map(str::to_owned);
                keys.iter().copied().zip(whole).collect()
            };
            let schedulers = numbers("smp:", &[facts::SCHEDULERS, facts::SCHEDULERS_ONLINE]);
            let dirty =
                [facts::DIRTY_CPU_SCHEDULERS, facts::DIRTY_CPU_SCHEDULERS_ONLINE, facts::DIRTY_IO_SCHEDULERS];
            let rest =
                numbers("ds:", &dirty).into_iter().chain(numbers("async-threads:", &[facts::ASYNC_THREADS]));
            schedulers.into_iter().chain(rest).for_each(|(key, value)| fact(key, Some(value)));
            if after("jit").is_some() {
                fact(facts::EMU_FLAVOR, Some("jit".to_owned()));
            }
        }
        // A 64-bit VM prints this field; a 32-bit VM prints no such field.
        head.word_bytes = version.map(|version| if version.contains("[64-bit]") { 8 } else { 4 });
        head
    }

    pub(super) fn write(self, out: &mut SampleBuilder<'_>) {
        out.fact(facts::IMPORTED_FROM, facts::CRASH_DUMP);
        for (key, value) in self.facts {
            out.fact(key, value);
        }
    }
}

/// Returns all lines of the slogan, up to the next field, since a slogan may contain line breaks.
fn slogan(section: &Section) -> Option<String> {
    let mut lines = section.lines().skip_while(|line| !line.starts_with("Slogan:"));
    let mut slogan = lines.next()?.strip_prefix("Slogan:")?.trim().to_owned();
    for line in lines.take_while(|line| !line.starts_with("System version:")) {
        slogan.push('\n');
        slogan.push_str(line.trim_end());
    }
    Some(slogan.chars().take(MAX_SLOGAN_CHARS).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(lines: &[&str], key: &str) -> Option<String> {
        let mut section = Section::default();
        section.begin(b"=erl_crash_dump:0.5");
        lines.iter().for_each(|line| section.push(line.as_bytes()));
        Head::of(&section).facts.into_iter().find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    const LINES: [&str; 6] = [
        "Mon Nov 23 05:28:30 2026",
        "Slogan: first",
        "second: line",
        "System version: Erlang/OTP 25 [erts-13.1.5] [source] [64-bit] [smp:4:2] [ds:4:2:10] [async-threads:1] [jit:ns]",
        "Taints: ",
        "Calling Thread: scheduler:2",
    ];

    #[test]
    fn version_time_and_slogan_are_read() {
        let check = |key, expect: Option<&str>| assert_eq!(fact(&LINES, key).as_deref(), expect, "{key}");
        check(facts::CRASH_TIME, Some("Mon Nov 23 05:28:30 2026"));
        check(facts::CRASH_SLOGAN, Some("first\nsecond: line"));
        check(facts::OTP_RELEASE, Some("25"));
        check(facts::ERTS_VERSION, Some("13.1.5"));
        check(facts::SCHEDULERS_ONLINE, Some("2"));
        check(facts::DIRTY_IO_SCHEDULERS, Some("10"));
        check(facts::EMU_FLAVOR, Some("jit"));
        check(facts::CRASH_TAINTS, None);
    }
}
