//! The page of one topic of the reference.

use beamtune_flags::{
    AbsentBehavior, AcceptedValues, Allocator, Argument, DefaultSince, Entry, Evidence, FatalValues, Kind,
    LockClass, LockKind, Microstate, OtpVersion, ThreadType, allocator, lock_classes, microstates,
    thread_types,
};

use super::{RELEASES, Topic, from_version, kind_name};
use crate::Style;
use crate::text::{clean, wrap};

/// Width of the labels.
const LABEL: usize = 12;

/// Renders the page of a topic; with a release, the values in this release come first.
pub fn page(topic: &Topic, otp: Option<u32>, style: Style) -> String {
    let mut page = Page { out: String::new(), style };
    match topic {
        Topic::Setting { entry, flag } => page.setting(entry, flag.as_deref(), otp),
        Topic::Lock(class) => page.lock(class, otp),
        Topic::State(state) => page.state(state),
        Topic::Thread(thread) => page.thread(thread),
        Topic::Allocator(allocator) => page.allocator(allocator, otp),
    }
    page.out
}

struct Page {
    out: String,
    style: Style,
}

impl Page {
    fn title(&mut self, name: &str, kind: &str) {
        self.out.push_str(&format!("{}  {}\n", self.style.bold(&clean(name)), self.style.dim(kind)));
    }

    fn text(&mut self, text: &str) {
        let wrapped = wrap(text, self.style.width.saturating_sub(2), "  ");
        self.out.push_str(&format!("  {wrapped}\n\n"));
    }

    /// Adds a labelled text; no line if the text is empty.
    fn row(&mut self, label: &str, text: &str) {
        if text.is_empty() {
            return;
        }
        let indent = " ".repeat(2 + LABEL);
        let wrapped = wrap(text, self.style.width.saturating_sub(indent.len()), &indent);
        self.out.push_str(&format!("  {}{wrapped}\n", self.style.dim(&format!("{label:<LABEL$}"))));
    }

    /// Adds several texts under one label.
    fn rows(&mut self, label: &str, texts: impl IntoIterator<Item = String>) {
        for (index, text) in texts.into_iter().enumerate() {
            self.row(if index == 0 { label } else { "" }, &text);
        }
    }

    fn setting(&mut self, entry: &Entry, flag: Option<&str>, otp: Option<u32>) {
        let letter = flag.and_then(|flag| entry.allocator_in(flag));
        self.title(flag.unwrap_or(&entry.id), kind_name(entry.kind));
        self.text(&entry.description);
        if entry.spelling() != entry.id {
            self.row("spelling", entry.spelling());
        }
        if let Some(letter) = letter {
            let whose = match letter {
                'u' => "all allocators that have it".to_owned(),
                letter => allocator(&letter.to_string())
                    .map_or_else(|| letter.to_string(), |known| format!("{}: {}", known.name, known.holds)),
            };
            self.row("allocator", &whose);
            self.row(
                "",
                &format!("{} covers all allocators: <S> is the letter of one, u means all", entry.id),
            );
        }
        self.row("also", &entry.aliases.join(", "));
        self.rows(
            "formerly",
            entry.former_spellings.iter().map(|old| format!("{} before {}", old.is, old.until)),
        );
        if let Some(otp) = otp {
            self.row(&format!("in OTP {otp}"), &in_release(entry, letter, otp));
        }
        self.rows("values", values(entry, letter));
        self.row("", entry.values.as_deref().unwrap_or_default());
        self.rows("default", entry.default.iter().map(|step| default(step, entry.default.len())));
        self.row(
            "",
            &entry
                .fallback
                .as_deref()
                .map(|name| format!("if it is not set, {name} applies"))
                .unwrap_or_default(),
        );
        self.row("example", &given_as(entry));
        self.rows("fatal", entry.fatal.iter().map(fatal));
        self.row("releases", &entry.releases(None));
        self.row("unsupported", &where_absent(entry));
        self.rows(
            "changes",
            entry.effect_changes.iter().map(|news| format!("in {}: {}", news.at, news.text)),
        );
        self.row("query", entry.read.as_deref().unwrap_or_default());
        if let Some(effective) =
            entry.effective.as_deref().filter(|effective| Some(*effective) != entry.read.as_deref())
        {
            self.row("in effect", effective);
        }
        self.row("at run time", &running(entry));
        self.row("risk", &entry.risk);
        self.row("evidence", &evidence(entry));
        self.row("rules", &entry.rules.join(", "));
        self.row("helps", &helps(&entry.id));
    }

    fn lock(&mut self, class: &LockClass, otp: Option<u32>) {
        self.title(&class.name, "lock");
        self.text(&class.protects);
        self.rows(
            "kind",
            class.kind.iter().map(|step| match step.from {
                Some(from) => format!("{} from OTP {from}", lock_kind(step.is)),
                None => lock_kind(step.is).to_owned(),
            }),
        );
        self.row("category", &class.category);
        self.row("instances", &class.instances);
        self.row("only in", class.only_in.as_deref().unwrap_or_default());
        self.row("contended", &class.contended_by);
        self.row("remedy", &class.remedy_text());
        self.row("settings", &class.settings.join(", "));
        let seen: Vec<String> = class.seen_in.iter().map(u32::to_string).collect();
        self.row("seen in", &format!("OTP {} ({})", seen.join(", "), class.source));
        if let Some(otp) = otp {
            let text = match class.exists_in(otp) {
                Some(true) => "it exists",
                Some(false) => "the lock does not exist",
                None => "unknown: the source of this release was not inspected",
            };
            self.row(&format!("in OTP {otp}"), text);
        }
    }

    fn state(&mut self, state: &Microstate) {
        self.title(&state.name, "msacc state");
        self.text(&state.is);
        if state.extra {
            self.row("only in", "emulators configured with --with-microstate-accounting=extra");
        }
        self.row("other builds", state.otherwise_in.as_deref().unwrap_or_default());
        self.row("if high", &state.high);
        self.row("then", &state.next);
        self.row("settings", &state.settings.join(", "));
    }

    fn thread(&mut self, thread: &ThreadType) {
        self.title(&thread.name, "msacc thread");
        self.text(&thread.is);
        self.row("since", &thread.since.as_ref().map(ToString::to_string).unwrap_or_default());
        self.row("if high", &thread.high);
        self.row("then", &thread.next);
        self.row("settings", &thread.settings.join(", "));
    }

    fn allocator(&mut self, allocator: &Allocator, otp: Option<u32>) {
        self.title(&allocator.name, "allocator");
        self.text(&allocator.holds);
        self.row("letter", &format!("{}, so +M{}as sets its strategy", allocator.letter, allocator.letter));
        self.row("counted in", &allocator.counted_in);
        let yes_no = |yes: bool| if yes { "yes" } else { "no" };
        self.row("carriers", yes_no(allocator.carriers));
        self.row("pooled", yes_no(allocator.pooled));
        self.row(
            "instances",
            if allocator.per_scheduler {
                "one for each scheduler, and one for all other threads"
            } else {
                "one"
            },
        );
        self.row("removed in", &allocator.removed_in.as_ref().map(ToString::to_string).unwrap_or_default());
        let release = otp.unwrap_or(*RELEASES.end());
        // Some defaults are divided by the number of schedulers, so those for one scheduler are the totals.
        let options: Vec<String> = allocator
            .default_options(release, 1)
            .into_iter()
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        self.row("options", &options.join(", "));
        if !options.is_empty() {
            self.row(
                "",
                &format!(
                    "the defaults of OTP {release} with one scheduler; change one with +M{}NAME VALUE",
                    allocator.letter
                ),
            );
        }
    }
}

/// Returns the values in one release, in a line.
pub(super) fn in_release(entry: &Entry, letter: Option<char>, otp: u32) -> String {
    if !entry.exists_in(otp) {
        return format!("it does not exist; {}", where_absent(entry));
    }
    if !entry.works_in(otp) {
        return "accepted, but without effect".to_owned();
    }
    let mut parts = Vec::new();
    if let Some(takes) = entry.accepted_for(letter, &OtpVersion::from(otp)) {
        parts.push(format!("accepts {}", takes.describe()));
    }
    if let Some(default) = entry.default_in(otp) {
        parts.push(format!("default {default}"));
    }
    if parts.is_empty() { "it exists".to_owned() } else { parts.join("; ") }
}

/// Returns the accepted values: one line per version that changed them.
fn values(entry: &Entry, letter: Option<char>) -> Vec<String> {
    let steps: Vec<&AcceptedValues> = entry
        .accepts
        .iter()
        .filter(|step| match (&step.letters, letter) {
            (Some(letters), Some(letter)) => letters.contains(letter),
            _ => true,
        })
        .collect();
    let mut described: Vec<(String, String)> = steps
        .into_iter()
        .map(|step| {
            let mut text = step.describe();
            if let Some(depends) = &step.depends {
                text.push_str(&format!("; some depend on {}", depends.on));
            }
            if !step.refuses.is_empty() {
                text.push_str(&format!("; not {}", step.refuses.join(", ")));
            }
            let letters = step.letters.as_ref().map(|letters| format!(" for {letters}")).unwrap_or_default();
            (format!("{}{letters}", from_version(step.from.as_ref())), text)
        })
        .collect();
    // Two versions may differ only in data that this page does not show.
    described.dedup_by(|a, b| a.1 == b.1);
    match described.as_slice() {
        [(_, text)] => vec![text.clone()],
        steps => steps.iter().map(|(when, text)| format!("{when}: {text}")).collect(),
    }
}

fn default(step: &DefaultSince, steps: usize) -> String {
    if steps > 1 {
        format!("{}: {}", from_version(step.from.as_ref()), step.text())
    } else {
        step.text().to_owned()
    }
}

fn fatal(fatal: &FatalValues) -> String {
    let mut which = fatal.words.clone();
    if let Some(range) = &fatal.integer {
        which.push(match (range.min, range.max) {
            (Some(min), Some(max)) if min == max => min.to_string(),
            (Some(min), Some(max)) => format!("{min}..{max}"),
            (Some(min), None) => format!("{min} or more"),
            (None, Some(max)) => format!("at most {max}"),
            (None, None) => "any number".to_owned(),
        });
    }
    let when = match (&fatal.from, &fatal.until) {
        (None, None) => String::new(),
        (Some(from), None) => format!(" from {from}"),
        (None, Some(until)) => format!(" before {until}"),
        (Some(from), Some(until)) => format!(" from {from} to before {until}"),
    };
    format!("{}{when}: {}", which.join(", "), fatal.why)
}

/// Returns how the setting is written on a command line.
fn given_as(entry: &Entry) -> String {
    let (Some(argument), Some(example)) = (entry.argument, entry.example.as_deref()) else {
        return String::new();
    };
    let flag = entry.spelling().replace("<S>", "u");
    match argument {
        Argument::None => flag,
        Argument::Required | Argument::Optional if entry.glued => {
            format!("{flag} {example}, or {flag}{example}")
        }
        Argument::Required | Argument::Optional => format!("{flag} {example}"),
        Argument::Glued | Argument::GluedOptional => format!("{flag}{example}"),
    }
}

/// Returns how releases without this setting react to it.
fn where_absent(entry: &Entry) -> String {
    if entry.releases(None) == "all" {
        return String::new();
    }
    match (&entry.absent_behavior, entry.kind) {
        (AbsentBehavior::Refused, Kind::EmulatorFlag) => {
            "prevents the start of releases that do not have it".to_owned()
        }
        (AbsentBehavior::Refused, _) => "rejected by releases that do not have it".to_owned(),
        (AbsentBehavior::Ignored, _) => "ignored by releases that do not have it".to_owned(),
        (AbsentBehavior::ReadAs { flag, value }, _) => {
            format!("releases that do not have it parse it as {flag} {value}")
        }
    }
}

fn running(entry: &Entry) -> String {
    match (&entry.run_time_change, entry.at_run_time()) {
        (Some(how), true) => format!("can be changed: {how}"),
        (Some(how), false) => format!("cannot be changed directly; {how}"),
        (None, _) => match entry.kind {
            Kind::EmulatorFlag | Kind::InitFlag => "needs a restart".to_owned(),
            _ => String::new(),
        },
    }
}

fn evidence(entry: &Entry) -> String {
    let texts: Vec<&str> = entry
        .evidence
        .iter()
        .map(|evidence| match evidence {
            Evidence::Run => "tested on OTP 23, 25, 27 and 29",
            Evidence::Source => "the emulator's source",
            Evidence::Manual => "manual or release notes",
        })
        .collect();
    texts.join(", ")
}

/// Returns the locks, microstates and threads for which this setting may help.
fn helps(id: &str) -> String {
    let has = |settings: &[String]| settings.iter().any(|setting| setting == id);
    let locks = lock_classes()
        .iter()
        .filter(|class| has(&class.settings))
        .map(|class| format!("lock {}", class.name));
    let states = microstates()
        .iter()
        .filter(|state| has(&state.settings))
        .map(|state| format!("msacc state {}", state.name));
    let threads = thread_types()
        .iter()
        .filter(|thread| has(&thread.settings))
        .map(|thread| format!("msacc thread {}", thread.name));
    states.chain(threads).chain(locks).collect::<Vec<_>>().join(", ")
}

fn lock_kind(kind: LockKind) -> &'static str {
    match kind {
        LockKind::Mutex => "mutex: one thread at a time; waiting threads spin, then sleep",
        LockKind::RwMutex => "read-write mutex: one writer, or any number of readers",
        LockKind::Spinlock => "spinlock: waiting threads spin",
        LockKind::ProcessLock => "one of the locks of a process",
    }
}

#[cfg(test)]
mod tests {
    use beamtune_flags::{Verdict, allocators, entries, entry};

    use super::*;
    use crate::flags::named;

    fn page_of(name: &str, otp: Option<u32>) -> String {
        let topics = named(name);
        assert_eq!(topics.len(), 1, "{name}");
        page(&topics[0], otp, Style::PLAIN)
    }

    #[test]
    fn page_of_a_flag_has_range_defaults_and_effect_in_a_release() {
        let page = page_of("+P", Some(25));
        for part in [
            "+P  emulator flag",
            "in OTP 25",
            "1024..134217727 processes",
            "default     always: 262144",
            "from 27.0: 1048576",
            "erlang:system_info(process_limit)",
            "needs a restart",
            "tested on OTP 23, 25, 27 and 29",
        ] {
            assert!(page.contains(part), "no {part:?} in\n{page}");
        }
    }

    #[test]
    fn a_flag_of_one_allocator_names_it() {
        let page = page_of("+MBas", None);
        assert!(page.starts_with("+MBas  emulator flag"), "{page}");
        assert!(page.contains("binary_alloc") && page.contains("+M<S>as"), "{page}");
    }

    #[test]
    fn page_says_what_a_release_without_the_flag_does() {
        let page = page_of("+hmaxib", Some(25));
        assert!(page.contains("it does not exist"), "{page}");
        assert!(page_of("+K", Some(25)).contains("without effect"));
    }

    #[test]
    fn everything_has_a_page_and_no_line_is_too_wide() {
        let topics = entries()
            .iter()
            .map(|entry| Topic::Setting { entry, flag: None })
            .chain(lock_classes().iter().map(Topic::Lock))
            .chain(microstates().iter().map(Topic::State))
            .chain(thread_types().iter().map(Topic::Thread))
            .chain(allocators().iter().map(Topic::Allocator));
        for topic in topics {
            for otp in [None, Some(21), Some(29)] {
                let text = page(&topic, otp, Style::PLAIN);
                assert!(text.lines().count() > 3, "{text}");
                for line in text.lines() {
                    // A word that is longer than a line has its own line.
                    let words = line.trim().split(' ').count();
                    assert!(line.chars().count() <= Style::PLAIN.width || words == 1, "{line}");
                }
            }
        }
    }

    #[test]
    fn no_example_stops_a_vm() {
        for entry in entries().iter().filter(|entry| entry.example.is_some()) {
            for otp in RELEASES.filter(|otp| entry.exists_in(*otp)) {
                let verdict = entry.check(entry.example.as_deref(), otp);
                let starts = matches!(verdict, Verdict::Accepted { .. } | Verdict::Unknown { .. });
                assert!(starts, "{} {:?} in OTP {otp}", entry.id, entry.example);
            }
        }
    }

    #[test]
    fn page_of_a_setting_names_the_state_for_which_it_helps() {
        let state =
            microstates().iter().find(|state| !state.settings.is_empty()).expect("a state with settings");
        let setting = entry(&state.settings[0]).expect("its entry");
        let page = page(&Topic::Setting { entry: setting, flag: None }, None, Style::PLAIN);
        assert!(page.contains(&state.name), "{page}");
    }
}
