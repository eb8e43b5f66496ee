//! Finds topics of the reference by name or by words.
//!
//! A flag is found with or without its sign, with any allocator's letter (`+MBas`), and with a value in the same word. Aliases and former
//! spellings are found, too. A search for words looks in names first, then in descriptions; common synonyms are mapped to the words
//! used there.

use beamtune_flags::{
    Allocator, Entry, Form, Kind, LockClass, Microstate, SilentChange, ThreadType, Verdict, allocator,
    allocators, entries, lock_class, lock_classes, microstates, parse_emu_args, thread_types,
};

use super::{RELEASES, first_sentence};

/// A topic of the reference, which has a page.
#[derive(Debug, Clone)]
pub enum Topic {
    /// A flag or another setting.
    Setting {
        /// The entry of the setting.
        entry: &'static Entry,
        /// The flag as the user wrote it, if the entry covers several flags: `+MBas` for `+M<S>as`.
        flag: Option<String>,
    },
    /// A class of locks.
    Lock(&'static LockClass),
    /// A microstate of threads.
    State(&'static Microstate),
    /// A type of threads.
    Thread(&'static ThreadType),
    /// An allocator.
    Allocator(&'static Allocator),
}

impl Topic {
    /// The name by which [`named`] finds the topic.
    pub fn name(&self) -> &str {
        match self {
            Topic::Setting { entry, flag } => flag.as_deref().unwrap_or(&entry.id),
            Topic::Lock(class) => &class.name,
            Topic::State(state) => &state.name,
            Topic::Thread(thread) => &thread.name,
            Topic::Allocator(allocator) => &allocator.name,
        }
    }

    /// The kind of topic.
    pub fn kind(&self) -> &'static str {
        match self {
            Topic::Setting { entry, .. } => super::kind_name(entry.kind),
            Topic::Lock(_) => "lock",
            Topic::State(_) => "msacc state",
            Topic::Thread(_) => "msacc thread",
            Topic::Allocator(_) => "allocator",
        }
    }

    /// The description.
    pub fn about(&self) -> &str {
        match self {
            Topic::Setting { entry, .. } => &entry.description,
            Topic::Lock(class) => &class.protects,
            Topic::State(state) => &state.is,
            Topic::Thread(thread) => &thread.is,
            Topic::Allocator(allocator) => &allocator.holds,
        }
    }

    fn all() -> impl Iterator<Item = Topic> {
        let settings = entries().iter().map(|entry| Topic::Setting { entry, flag: None });
        settings
            .chain(lock_classes().iter().map(Topic::Lock))
            .chain(microstates().iter().map(Topic::State))
            .chain(thread_types().iter().map(Topic::Thread))
            .chain(allocators().iter().map(Topic::Allocator))
    }

    /// All names, aliases and former spellings.
    fn names(&self) -> Vec<&str> {
        match self {
            Topic::Setting { entry, .. } => {
                let mut names = vec![entry.id.as_str(), entry.spelling()];
                names.extend(entry.aliases.iter().map(String::as_str));
                names.extend(entry.former_spellings.iter().map(|formerly| formerly.is.as_str()));
                names
            }
            other => vec![other.name()],
        }
    }

    /// All texts about the topic, except [`about`](Self::about).
    fn more(&self) -> Vec<&str> {
        match self {
            Topic::Setting { entry, .. } => {
                let mut texts = vec![entry.risk.as_str()];
                texts.extend(entry.values.as_deref());
                texts.extend(entry.run_time_change.as_deref());
                texts.extend(entry.read.as_deref());
                texts.extend(entry.effect_changes.iter().map(|news| news.text.as_str()));
                texts.extend(entry.fatal.iter().map(|fatal| fatal.why.as_str()));
                texts
            }
            Topic::Lock(class) => {
                let remedy = class.remedy.iter().map(|alternative| alternative.text.as_str());
                [class.contended_by.as_str(), &class.category].into_iter().chain(remedy).collect()
            }
            Topic::State(state) => vec![&state.high, &state.next],
            Topic::Thread(thread) => vec![&thread.high, &thread.next],
            Topic::Allocator(allocator) => vec![&allocator.counted_in],
        }
    }

    /// Settings that the topic refers to.
    fn settings(&self) -> &[String] {
        match self {
            Topic::Lock(class) => &class.settings,
            Topic::State(state) => &state.settings,
            Topic::Thread(thread) => &thread.settings,
            Topic::Setting { .. } | Topic::Allocator(_) => &[],
        }
    }
}

/// Returns the topics of this name. There are several if, for example, a lock and a microstate have the same name.
pub fn named(name: &str) -> Vec<Topic> {
    let name = name.trim();
    let bare = name.trim_start_matches(['+', '-']);
    if bare.is_empty() {
        return Vec::new();
    }
    let is_bare = bare == name;
    let mut writings = vec![name.to_owned()];
    if is_bare {
        writings.extend([format!("+{name}"), format!("-{name}")]);
    } else if name.starts_with('-') {
        // The emulator's own argument list has `-` in place of `+`.
        writings.push(format!("+{bare}"));
    }
    let mut found: Vec<Topic> = Vec::new();
    for writing in &writings {
        found.extend(Topic::all().filter(|topic| topic.names().contains(&writing.as_str())));
        if let Some(topic) = of_allocator(writing) {
            found.push(topic);
        }
        if !found.is_empty() && !is_bare {
            break;
        }
    }
    if is_bare && let Some(class) = lock_class(name) {
        found.push(Topic::Lock(class));
    }
    // A single letter is the letter of an allocator only if there is no such flag.
    if is_bare && found.is_empty() {
        found.extend(allocator(name).map(Topic::Allocator));
    }
    // A flag with its value: `+S4`, `+MBasaobf`.
    if found.is_empty() && !is_bare {
        found.extend(with_value(&format!("+{bare}")));
    }
    let mut seen = Vec::new();
    found.retain(|topic| {
        let key = (topic.name().to_owned(), topic.kind());
        let new = !seen.contains(&key);
        seen.push(key);
        new
    });
    found
}

/// Finds the flag of one allocator: `+MBas`.
fn of_allocator(name: &str) -> Option<Topic> {
    let letters: Vec<char> =
        allocators().iter().filter(|known| known.carriers).map(|known| known.letter).chain(['u']).collect();
    let entry = entries()
        .iter()
        .find(|entry| entry.allocator_in(name).is_some_and(|letter| letters.contains(&letter)))?;
    Some(Topic::Setting { entry, flag: Some(name.to_owned()) })
}

fn with_value(word: &str) -> Option<Topic> {
    let settings = parse_emu_args(&[word.to_owned()]);
    let setting = settings.first()?;
    let entry = setting.entry?;
    // The word may only begin like a flag, so at least one release must accept the rest as a value.
    let value = setting.value.as_deref()?;
    let is_taken = |otp| match entry.check(Some(value), otp) {
        Verdict::Refused { .. } => false,
        // `-eval` is another flag, not +e with a value that is read as 0. Likewise, `-version` is not +v, which accepts any value.
        Verdict::Accepted { changes: altered, .. } => {
            let anything = entry.accepted_in(otp).is_some_and(|takes| takes.form == Some(Form::Any));
            !altered.contains(&SilentChange::NotANumber) && (!anything || matches!(value, "true" | "false"))
        }
        _ => true,
    };
    if !RELEASES.into_iter().any(is_taken) {
        return None;
    }
    let flag = (setting.flag != entry.id).then(|| setting.flag.clone());
    Some(Topic::Setting { entry, flag })
}

/// A hit of a search for words.
#[derive(Debug, Clone)]
pub struct Hit {
    /// The topic.
    pub topic: Topic,
    /// How well it matches; only meaningful in comparison with other hits.
    pub score: u32,
}

/// Score if a part of a name begins with the word; more than texts can add.
const IN_NAME: u32 = 1000;
/// Additional score if the word is a whole part of the name.
const WHOLE_PART: u32 = 500;
/// Additional score if the word is the whole name.
const WHOLE_NAME: u32 = 1000;
/// Score of a setting that is recommended on the page of a lock or a state with this name.
const BY_REFERENCE: u32 = 300;
/// Score if the word is in the description.
const IN_ABOUT: u32 = 100;
/// Score if the word is in another text.
const IN_MORE: u32 = 20;
/// The score of a synonym is divided by this.
const BY_SYNONYM: u32 = 2;

/// Returns the topics that contain all words, the best match first.
pub fn search(query: &str) -> Vec<Hit> {
    let words = words_of(query);
    if words.is_empty() {
        return Vec::new();
    }
    let mut hits: Vec<Hit> = Topic::all()
        .filter_map(|topic| {
            let scores: Option<Vec<u32>> = words.iter().map(|word| score(&topic, word)).collect();
            Some(Hit { score: scores?.iter().sum(), topic })
        })
        .collect();
    // Settings that help with a lock or a state of exactly this name are hits, too, even if their texts do not contain the words.
    let named: Vec<&Hit> = hits.iter().filter(|hit| hit.score >= IN_NAME + WHOLE_PART).collect();
    let referred: Vec<&String> = named.iter().flat_map(|hit| hit.topic.settings()).collect();
    let mut more = Vec::new();
    for entry in entries().iter().filter(|entry| referred.contains(&&entry.id)) {
        more.push(Hit { topic: Topic::Setting { entry, flag: None }, score: BY_REFERENCE });
    }
    for hit in more {
        match hits.iter_mut().find(|known| is_same(&known.topic, &hit.topic)) {
            Some(known) => known.score += hit.score,
            None => hits.push(hit),
        }
    }
    // With equal scores, flags come first, since most searches are for flags; then the order of the catalogue.
    hits.sort_by_key(|hit| (std::cmp::Reverse(hit.score), !is_flag(&hit.topic)));
    hits
}

fn is_same(a: &Topic, b: &Topic) -> bool {
    (a.name(), a.kind()) == (b.name(), b.kind())
}

fn is_flag(topic: &Topic) -> bool {
    matches!(topic, Topic::Setting { entry, .. } if entry.kind == Kind::EmulatorFlag)
}

/// A word of the query, and its synonyms.
struct Wanted {
    stem: String,
    synonyms: &'static [&'static str],
}

/// Common words, and the words that the texts use instead. Several common words of an entry are searched for as one.
const SYNONYMS: &[(&[&str], &[&str])] = &[
    (&["busy", "wait"], &["spin", "busy_wait"]),
    (&["fragment"], &["carrier", "multiblock"]),
    (&["garbage", "collect"], &["gc", "collect", "fullsweep", "heap"]),
    (&["garbage"], &["gc", "collect", "fullsweep", "heap"]),
    (&["gc"], &["collect", "fullsweep", "heap"]),
    (&["epoll"], &["poll"]),
    (&["affinity"], &["bind", "bound", "topology"]),
    (&["pin"], &["bind", "bound"]),
    (&["numa"], &["topology", "bind"]),
    (&["container"], &["quota", "cgroup"]),
    (&["docker"], &["quota", "cgroup"]),
    (&["kubernetes"], &["quota", "cgroup"]),
    (&["netsplit"], &["partition", "ticktime"]),
    (&["heartbeat"], &["ticktime", "heart"]),
    (&["file", "descriptor"], &["descriptor", "port", "nofile"]),
    (&["fd"], &["descriptor", "port", "nofile"]),
    (&["core", "dump"], &["crash", "dump"]),
    (&["thread", "pool"], &["async", "pool"]),
    (&["wakeup"], &["wake"]),
    (&["wake", "up"], &["wake"]),
    (&["hugepages"], &["huge", "super", "mmap"]),
    (&["backpressure"], &["watermark", "busy", "back_pressure"]),
    (&["mailbox"], &["message", "queue"]),
];

fn words_of(query: &str) -> Vec<Wanted> {
    let stems: Vec<String> = query
        .split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.' | '+' | '<' | '>')))
        .filter(|word| !word.is_empty())
        .map(|word| stem(&word.to_lowercase()))
        .collect();
    let mut wanted = Vec::new();
    let mut at = 0;
    while at < stems.len() {
        let rest = &stems[at..];
        let row = SYNONYMS
            .iter()
            .filter(|(row, _)| rest.len() >= row.len() && row.iter().zip(rest).all(|(a, b)| *a == b.as_str()))
            .max_by_key(|(row, _)| row.len());
        let length = row.map_or(1, |(row, _)| row.len());
        wanted.push(Wanted {
            stem: rest.get(..length).unwrap_or_default().join(" "),
            synonyms: row.map_or(&[], |(_, synonyms)| *synonyms),
        });
        at += length;
    }
    wanted
}

/// Removes English endings, so that `schedulers` finds `scheduler`, and `waiting` finds `wait`.
fn stem(word: &str) -> String {
    for ending in ["ation", "ing", "ed", "es", "s"] {
        if let Some(stem) = word.strip_suffix(ending)
            && stem.chars().count() >= 4
        {
            return stem.to_owned();
        }
    }
    word.to_owned()
}

/// Returns the score of a topic for a word; `None` if neither the word nor a synonym occurs.
fn score(topic: &Topic, word: &Wanted) -> Option<u32> {
    let own = score_of(topic, &word.stem);
    let others = word.synonyms.iter().filter_map(|synonym| score_of(topic, synonym));
    own.into_iter().chain(others.map(|score| score / BY_SYNONYM)).max()
}

fn score_of(topic: &Topic, stem: &str) -> Option<u32> {
    let mut total = 0;
    let bare = stem.trim_start_matches(['+', '-']);
    if bare.is_empty() {
        return None;
    }
    let in_names = topic.names().into_iter().map(|name| {
        let name = name.to_lowercase();
        if name.trim_start_matches(['+', '-']) == bare || name.replace('_', " ") == bare {
            IN_NAME + WHOLE_NAME
        } else if name.split(|c: char| !c.is_alphanumeric()).any(|part| part == bare) {
            IN_NAME + WHOLE_PART
        } else if begins_a_word(&name, bare) {
            IN_NAME
        } else {
            0
        }
    });
    total += in_names.max().unwrap_or(0);
    // The names of flags are abbreviations; the first sentence of the description contains the meaning of the name.
    if total == 0 && is_flag(topic) && begins_a_word(&first_sentence(topic.about()).to_lowercase(), stem) {
        total += IN_NAME;
    }
    if begins_a_word(&topic.about().to_lowercase(), stem) {
        total += IN_ABOUT;
    }
    if topic.more().into_iter().any(|text| begins_a_word(&text.to_lowercase(), stem)) {
        total += IN_MORE;
    }
    (total > 0).then_some(total)
}

/// Whether a word of the text begins with the stem. `_` also separates words, so that `wait` is found in `busy_wait`.
fn begins_a_word(text: &str, stem: &str) -> bool {
    text.match_indices(stem).any(|(at, _)| {
        text.get(..at).and_then(|before| before.chars().next_back()).is_none_or(|c| !c.is_alphanumeric())
    })
}

/// Returns the most similar names, the closest first; at most three.
pub fn nearest(name: &str) -> Vec<String> {
    let wanted = name.trim().trim_start_matches(['+', '-']).to_lowercase();
    // With more differences, it is another word.
    let most = (wanted.chars().count() / 3).clamp(1, 3);
    let letters = |text: &str| {
        let mut letters: Vec<char> = text.chars().collect();
        letters.sort_unstable();
        letters
    };
    // Among names at the same distance, one that has the same letters is the most likely: two letters were swapped.
    let mut near: Vec<(usize, bool, String)> = Vec::new();
    for topic in Topic::all() {
        for known in topic.names() {
            let bare = known.trim_start_matches(['+', '-']).to_lowercase();
            // In this distance, a swap of two adjacent letters is a single change.
            let distance = strsim::osa_distance(&wanted, &bare);
            if distance <= most {
                near.push((distance, letters(&wanted) != letters(&bare), known.to_owned()));
            }
        }
    }
    near.sort();
    near.dedup_by(|a, b| a.2 == b.2);
    near.into_iter().map(|(_, _, name)| name).take(3).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(topics: &[Topic]) -> Vec<String> {
        topics.iter().map(|topic| format!("{}: {}", topic.kind(), topic.name())).collect()
    }

    #[test]
    fn a_name_is_found_in_all_spellings() {
        let check = |name: &str, expect: &[&str]| assert_eq!(names(&named(name)), expect, "{name}");
        for writing in ["+sbwt", "sbwt", "-sbwt", " +sbwt ", "+sbwtnone"] {
            check(writing, &["emulator flag: +sbwt"]);
        }
        check("+P", &["emulator flag: +P"]);
        check("P", &["emulator flag: +P"]);
        check("+h", &["emulator flag: +hms"]);
        check("+MBas", &["emulator flag: +MBas"]);
        check("MHas", &["emulator flag: +MHas"]);
        check("+MBasaobf", &["emulator flag: +MBas"]);
        check("+M<S>as", &["emulator flag: +M<S>as"]);
        check("+MYas", &[]);
        check("-heart", &["init flag: -heart"]);
        check("heart", &["init flag: -heart"]);
        check("-connect_all", &["kernel parameter: kernel.connect_all"]);
        check("-kernel connect_all", &["kernel parameter: kernel.connect_all"]);
        check("ERL_MAX_PORTS", &["environment variable: ERL_MAX_PORTS"]);
        check("db_tab", &["lock: db_tab"]);
        check("check_io", &["msacc state: check_io"]);
        check("dirty_cpu_scheduler", &["msacc thread: dirty_cpu_scheduler"]);
        check("binary_alloc", &["allocator: binary_alloc"]);
        for of_init in [
            "-args_file",
            "-boot",
            "-compile",
            "-config",
            "-configfd",
            "-couch_ini",
            "-detached",
            "-dir",
            "-embedded",
            "-emu_args_exit",
            "-env",
            "-epmd_module",
            "-erl",
            "-eval",
            "-extra",
            "-home",
            "-hosts",
            "-id",
            "-init_debug",
            "-instr",
            "-kernel",
            "-loader",
            "-make",
            "-man",
            "-mnesia",
            "-name",
            "-noinput",
            "-noshell",
            "-nouser",
            "-oldshell",
            "-pa",
            "-path",
            "-pidfile",
            "-progname",
            "-pz",
            "-release_root",
            "-remsh",
            "-root",
            "-rsh",
            "-run",
            "-s",
            "-sasl",
            "-setcookie",
            "-sname",
            "-ssl",
            "-ssl_dist_opt",
            "-ssl_dist_optfile",
            "-start_epmd",
            "-stdlib",
            "-suite",
            "-test",
            "-user",
            "-user_drv",
            "-version",
            "-vm_args",
        ] {
            check(of_init, &[]);
        }
        check("+zzz", &[]);
        check("+sbtw", &[]);
        // Flags of other programs, which begin like emulator flags.
        check("-enable-feature", &[]);
        check("-erl_epmd_port", &[]);
        check("", &[]);
        check("+", &[]);
    }

    #[test]
    fn every_setting_is_found_by_its_id_and_its_spelling() {
        for entry in entries() {
            for name in [entry.id.as_str(), entry.spelling()] {
                let found = named(name);
                let hit = found.iter().any(
                    |topic| matches!(topic, Topic::Setting { entry: found, .. } if found.id == entry.id),
                );
                assert!(hit, "{name}: {:?}", names(&found));
            }
        }
    }

    fn first(query: &str, count: usize) -> Vec<String> {
        search(query).iter().take(count).map(|hit| hit.topic.name().to_owned()).collect()
    }

    #[test]
    fn common_searches_find_the_expected_topic() {
        let check = |query: &str, within: usize, expect: &str| {
            let found = first(query, within);
            assert!(found.iter().any(|name| name == expect), "{query}: {found:?}");
        };
        check("busy wait", 3, "+sbwt");
        check("busy waiting", 3, "+sbwt");
        check("spinning", 8, "+sbwt");
        check("fragmentation", 12, "+M<S>as");
        check("process limit", 10, "+P");
        check("atom", 3, "+t");
        check("ticktime", 2, "kernel.net_ticktime");
        check("db_tab", 1, "db_tab");
        check("carrier pool", 12, "+M<S>acul");
        check("time warp", 2, "+C");
        check("sbwt", 1, "+sbwt");
    }

    #[test]
    fn matches_in_names_come_before_matches_in_texts() {
        let hits = search("scheduler");
        let scores: Vec<u32> = hits.iter().map(|hit| hit.score).collect();
        assert!(scores.windows(2).all(|pair| pair[0] >= pair[1]), "{scores:?}");
        assert!(hits.len() > 10);
        assert!(hits[0].topic.name() == "scheduler", "{:?}", hits[0]);
    }

    #[test]
    fn all_words_of_a_search_must_occur() {
        assert!(search("scheduler xyzzy").is_empty());
        assert!(search("").is_empty());
        assert!(search("...").iter().all(|hit| hit.score > 0));
    }

    #[test]
    fn unknown_name_has_similar_names() {
        assert_eq!(nearest("+sbtw")[0], "+sbwt");
        assert!(nearest("+sbwtdcup").contains(&"+sbwtdcpu".to_owned()));
        assert_eq!(nearest("ERL_MAX_PORT")[0], "ERL_MAX_PORTS");
        assert!(nearest("a completely different thing").is_empty());
        assert!(nearest("xy").len() <= 3);
    }

    #[test]
    fn distances_are_counted_in_changes() {
        let check =
            |a: &str, b: &str, expect: usize| assert_eq!(strsim::osa_distance(a, b), expect, "{a} {b}");
        check("", "", 0);
        check("", "abc", 3);
        check("abc", "", 3);
        check("sbwt", "sbtw", 1);
        check("sbwt", "swt", 1);
        check("sbwt", "sbwtd", 1);
        check("abc", "xyz", 3);
    }
}
