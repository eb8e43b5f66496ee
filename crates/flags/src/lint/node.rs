//! Collects the settings in all files of a node, and determines which settings belong together and which one takes effect.
//!
//! Certain and uncertain facts are distinguished. The text of a word with a template or a variable is unknown, and the word may contain
//! any flags, so no flag is reported as missing. A setting overrides another one only if the order of their places is known.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::deployment::{Deployment, Site};
use super::fixes::DraftFix;
use super::release_tool::{ReleaseTool, release_tool};
use super::{File, Fix, Target};
use crate::arguments::both_take_effect;
use crate::catalog::recognise;
use crate::entry;
use crate::entry::{Entry, Kind};
use crate::source::{Change, Fragment, Order, Place, Role, Word, WriteMode};

/// The files of a node and their settings.
pub(super) struct Node<'a> {
    pub(super) target: &'a Target,
    pub(super) parts: Vec<Part<'a>>,
    /// All settings, in the order of files and words.
    pub(super) settings: Vec<Setting<'a>>,
    /// Flags for `init`, in the order of files and words.
    pub(super) arguments: Vec<InitFlag>,
    /// Settings by scope and id. Only the last of repeated settings in one part is included.
    index: BTreeMap<(usize, &'static str), Vec<usize>>,
    /// Scopes with words that may contain unknown flags.
    opaque: BTreeSet<usize>,
    /// Scopes of a product such as RabbitMQ.
    of_product: BTreeSet<usize>,
    /// Fixes that are not verified yet.
    drafts: RefCell<Vec<DraftFix<'a>>>,
    /// The number of bytes that further fixes may write. The number is limited because each fix may rewrite a whole value.
    room: Cell<usize>,
}

/// A fragment and its file.
pub(super) struct Part<'a> {
    pub(super) file: usize,
    pub(super) fragment: &'a Fragment,
    pub(super) site: Site,
    /// The number of the scope. Parts of different scopes belong to different nodes.
    pub(super) scope: usize,
    /// The requested releases that read the fragment.
    pub(super) releases: Vec<u32>,
    /// Whether one of the words may contain unknown flags.
    pub(super) opaque: bool,
    /// The indices of the words after `-extra`.
    pub(super) extra: Range<usize>,
    /// The tool that builds a release from the file.
    pub(super) release_tool: ReleaseTool,
}

/// The way in which a setting is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SettingKind {
    /// A flag among words.
    Flag,
    /// A variable that the VM reads, or a variable of a product that sets a flag.
    Variable,
    /// `-env NAME value`.
    Env,
    /// `-kernel name value`.
    Kernel,
}

/// The value of a setting.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Value {
    /// No value, and none is required.
    Absent,
    /// No value, although one is required.
    Missing,
    /// A known value.
    Text(String),
    /// A template, a variable, or a conditional word.
    Unknown,
}

/// One occurrence of a setting.
#[derive(Debug)]
pub(super) struct Setting<'a> {
    /// Index of the part.
    pub(super) part: usize,
    /// The indices of the words in the fragment, including the value.
    pub(super) words: Range<usize>,
    pub(super) kind: SettingKind,
    /// The name in the file: `+h`, `ERL_MAX_PORTS`, `POLL`.
    pub(super) name: &'a str,
    /// The usual spelling: `+hms`, `+MBas`.
    pub(super) flag: String,
    /// The entry in the catalogue; `None` for an unknown flag.
    pub(super) entry: Option<&'static Entry>,
    /// The letter of the allocator.
    pub(super) letter: Option<char>,
    pub(super) value: Value,
    pub(super) conditional: bool,
    /// Whether a variable sets several flags to this value, and this is not the first of these flags.
    pub(super) repeated: bool,
}

/// A flag for `init`.
#[derive(Debug)]
pub(super) struct InitFlag {
    pub(super) part: usize,
    /// Index of the word with the flag.
    pub(super) at: usize,
    /// Indices of the words with the values.
    pub(super) values: Vec<usize>,
}

/// Maximum number of bytes that all fixes together may write.
const MAX_FIX_BYTES: usize = 16 << 20;

/// Maximum number of occurrences of a flag that are compared. Beyond it, the effective one is treated as unknown.
const MAX_CANDIDATES: usize = 256;

impl<'a> Node<'a> {
    pub(super) fn new(files: &'a [File<'a>], target: &'a Target) -> Node<'a> {
        let mut node = Node {
            target,
            parts: Vec::new(),
            settings: Vec::new(),
            arguments: Vec::new(),
            index: BTreeMap::new(),
            opaque: BTreeSet::new(),
            of_product: BTreeSet::new(),
            drafts: RefCell::new(Vec::new()),
            room: Cell::new(MAX_FIX_BYTES),
        };
        for (file, File { fragments }) in files.iter().enumerate() {
            let deployment = Deployment::of_file(fragments);
            for fragment in *fragments {
                node.parts.push(Part {
                    file,
                    fragment,
                    site: deployment.site(fragment.span().start),
                    scope: 0,
                    releases: releases_of(&fragment.place, target),
                    opaque: false,
                    extra: 0..0,
                    release_tool: release_tool(fragment),
                });
            }
        }
        node.assign_scopes();
        for part in 0..node.parts.len() {
            node.parse_part(part);
        }
        node.make_index();
        let scopes =
            |holds: fn(&&Part<'_>) -> bool| node.parts.iter().filter(holds).map(|part| part.scope).collect();
        (node.opaque, node.of_product) =
            (scopes(|part| part.opaque), scopes(|part| is_of_product(&part.fragment.place)));
        node
    }

    fn make_index(&mut self) {
        for (at, setting) in self.settings.iter().enumerate() {
            let Some(entry) = setting.entry else { continue };
            let scope = self.parts.get(setting.part).map_or(0, |part| part.scope);
            let same = self.index.entry((scope, entry.id.as_str())).or_default();
            let is_overridden = |other: &usize| {
                self.settings.get(*other).is_some_and(|other| {
                    other.part == setting.part && other.flag == setting.flag && other.kind == setting.kind
                }) && !setting.conditional
            };
            // The flags of different allocators share an entry, so the last 16 settings are searched.
            match same.iter().rev().take(16).position(is_overridden) {
                Some(back) => {
                    let index = same.len() - 1 - back;
                    same.remove(index);
                    same.push(at);
                }
                None => same.push(at),
            }
        }
    }

    /// Assigns scopes: parts with the same scope certainly belong to one node. Each container of a file is a different node, and so is a
    /// command-line tool; if a file has a single container, that container is assumed to be the node of the other files. Each command
    /// starts its own VM: if there are several, it is unknown to which one the other parts belong.
    fn assign_scopes(&mut self) {
        let keys: Vec<Option<(usize, usize)>> = self
            .parts
            .iter()
            .map(|part| part.site.container.map(|container| (part.file, container)))
            .collect();
        let mut next = 1;
        let mut named: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        // Because the set is sorted, a file has only one container if its first and its last element are equal.
        let containers: BTreeSet<(usize, usize)> = keys.iter().flatten().copied().collect();
        let of_file = |file: usize| containers.range((file, 0)..=(file, usize::MAX));
        let several = self.several_commands();
        let mut of_commands: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for (index, key) in keys.iter().enumerate() {
            let part = &self.parts[index];
            let is_one_of_several = several.contains(&(part.file, part.site.container));
            let command = part.fragment.command().filter(|_| is_one_of_several);
            let mut new = || {
                next += 1;
                next - 1
            };
            let scope = match (command, key) {
                _ if is_separate(&part.fragment.place) => new(),
                (Some(command), _) => *of_commands.entry((part.file, command)).or_insert_with(new),
                (None, None) => 0,
                (None, Some(key)) => *named.entry(*key).or_insert_with(|| {
                    let alone = of_file(key.0).next() == of_file(key.0).next_back();
                    if alone { 0 } else { new() }
                }),
            };
            if let Some(part) = self.parts.get_mut(index) {
                part.scope = scope;
            }
        }
    }

    /// Returns the files and containers that have several commands.
    fn several_commands(&self) -> BTreeSet<(usize, Option<usize>)> {
        let mut first = BTreeMap::new();
        let mut several = BTreeSet::new();
        for part in &self.parts {
            let Some(command) = part.fragment.command() else { continue };
            let site = (part.file, part.site.container);
            if *first.entry(site).or_insert(command) != command {
                several.insert(site);
            }
        }
        several
    }

    fn parse_part(&mut self, index: usize) {
        let Some(part) = self.parts.get(index) else { return };
        let fragment = part.fragment;
        match &fragment.place {
            Place::ArgsFile { .. } | Place::CommandLine { .. } => self.words(index, fragment),
            Place::RunningNode => self.live_words(index, fragment),
            Place::FileNames => {}
            Place::Variable { effect, .. } if effect.ignored.is_some() => {}
            Place::Variable { name, effect } => match effect.role {
                Role::Words => self.words(index, fragment),
                Role::ValueOf(flags) => {
                    for (nth, flag) in flags.iter().enumerate() {
                        let found = recognise(flag).map(|found| found.entry);
                        self.variable(index, fragment, name, flag, found, nth > 0);
                    }
                }
                Role::ReadByVm => self.variable(index, fragment, name, name, entry(name), false),
            },
        }
    }

    fn variable(
        &mut self,
        part: usize,
        fragment: &'a Fragment,
        name: &'a str,
        flag: &str,
        entry: Option<&'static Entry>,
        repeated: bool,
    ) {
        // An empty variable sets nothing. If there are several words, flags were appended to the value.
        let [word] = fragment.words.as_slice() else { return };
        self.settings.push(Setting {
            part,
            words: 0..1,
            kind: SettingKind::Variable,
            name,
            flag: flag.to_owned(),
            entry,
            letter: None,
            value: if word.dynamic { Value::Unknown } else { Value::Text(word.text.clone()) },
            conditional: word.conditional,
            repeated,
        });
    }

    /// Returns the init flags of a part.
    pub(super) fn arguments_of(&self, part: usize) -> &[InitFlag] {
        let begin = self.arguments.partition_point(|flag| flag.part < part);
        let end = self.arguments.partition_point(|flag| flag.part <= part);
        self.arguments.get(begin..end).unwrap_or_default()
    }

    /// Returns the part that contains a setting.
    pub(super) fn part_of(&self, setting: &Setting<'_>) -> &Part<'a> {
        // The index is valid, because settings are created from parts.
        &self.parts[setting.part]
    }

    /// Returns the words of a setting, as the VM receives them.
    pub(super) fn words_of(&self, setting: &Setting<'_>) -> &'a [Word] {
        self.part_of(setting).fragment.words.get(setting.words.clone()).unwrap_or_default()
    }

    /// Returns the byte range of a setting in its file. For a variable, the range includes the name if the name is found before the value.
    pub(super) fn span_of(&self, setting: &Setting<'_>) -> Range<usize> {
        let part = self.part_of(setting);
        if setting.kind == SettingKind::Variable {
            return self.span_of_variable(part, setting.name);
        }
        match (self.words_of(setting).first(), self.words_of(setting).last()) {
            (Some(first), Some(last)) => first.span.start..last.span.end,
            _ => part.fragment.span(),
        }
    }

    /// Returns the byte range of a variable with its value, or only of the name if the value is on another line.
    pub(super) fn span_of_variable(&self, part: &Part<'_>, name: &str) -> Range<usize> {
        // Only quotes, keys and spaces separate name and value.
        const MAX_DISTANCE_BYTES: usize = 200;
        let value = part.fragment.span();
        let text = part.fragment.file_text();
        let far = value.start.saturating_sub(name.len() + MAX_DISTANCE_BYTES);
        let far = (far..value.start).find(|at| text.is_char_boundary(*at)).unwrap_or(value.start);
        let near = text.get(far..value.start).and_then(|near| near.rfind(name));
        let begin = near.map(|begin| far + begin).filter(|begin| {
            let between = text.get(begin + name.len()..value.start).unwrap_or_default();
            between.len() < MAX_DISTANCE_BYTES && between.matches('\n').count() < 3
        });
        match begin {
            Some(begin) if text.get(begin..value.end).is_some_and(|all| !all.contains('\n')) => {
                begin..value.end
            }
            Some(begin) => begin..begin + name.len(),
            None => value,
        }
    }

    /// Returns a setting as written in the file: `+sbwt none`, `POLL=true`, `-env ERL_MAX_PORTS 4096`.
    pub(super) fn written(&self, setting: &Setting<'_>) -> String {
        let words: Vec<&str> = self.words_of(setting).iter().map(|word| shown(&word.text)).collect();
        match setting.kind {
            SettingKind::Variable => format!("{}={}", setting.name, words.join(" ")),
            SettingKind::Kernel => format!("-kernel {}", words.join(" ")),
            _ => words.join(" "),
        }
    }

    /// Whether a setting certainly takes effect after another one of the same node.
    pub(super) fn is_later(&self, earlier: &Setting<'_>, later: &Setting<'_>) -> bool {
        if later.conditional || later.repeated && earlier.repeated && earlier.words == later.words {
            return false;
        }
        if earlier.part == later.part {
            return earlier.words.start < later.words.start;
        }
        let (one, other) = (self.part_of(earlier), self.part_of(later));
        if one.scope != other.scope || same_variable(one.fragment, other.fragment) {
            return false;
        }
        match (one.fragment.place.order(), other.fragment.place.order()) {
            (Some(one), Some(other)) => one < other,
            _ => false,
        }
    }

    /// Whether two settings belong to one node.
    pub(super) fn are_together(&self, one: &Setting<'_>, other: &Setting<'_>) -> bool {
        let (a, b) = (self.part_of(one), self.part_of(other));
        one.part == other.part || (a.scope == b.scope && !same_variable(a.fragment, b.fragment))
    }

    /// Finds the effective setting of an id in the node of `subject`, for the allocator of `subject` if it has one. `None` if there is no
    /// such setting, or if it is uncertain which one takes effect.
    pub(super) fn effective<'n>(&'n self, subject: &Setting<'_>, id: &str) -> Option<&'n Setting<'a>> {
        let scope = self.part_of(subject).scope;
        let candidates = self.of_id(scope, id);
        if candidates.len() > MAX_CANDIDATES {
            return None;
        }
        let mut last: Option<&Setting<'a>> = None;
        for setting in candidates.iter().filter_map(|at| self.settings.get(*at)) {
            if !self.are_together(subject, setting) || !applies_to(subject.letter, setting.letter) {
                continue;
            }
            match last {
                None => last = Some(setting),
                Some(before) if self.is_later(before, setting) => last = Some(setting),
                Some(before) if self.is_later(setting, before) => {}
                Some(_) => return None,
            }
        }
        last.filter(|setting| !setting.conditional)
    }

    /// Finds the setting that overrides this one: one of the same flag, or of the flag that overrides a variable.
    pub(super) fn overriding<'n>(&'n self, setting: &Setting<'_>) -> Option<&'n Setting<'a>> {
        let entry = setting.entry?;
        if setting.kind == SettingKind::Kernel || setting.repeated {
            return None;
        }
        let scope = self.part_of(setting).scope;
        if entry.kind == Kind::Environment {
            let flag =
                crate::entries().iter().find(|flag| flag.fallback.as_deref() == Some(entry.id.as_str()))?;
            let beats = |other: &&Setting<'_>| !other.conditional && self.are_together(setting, other);
            let same = self.of_id(scope, &flag.id).iter().filter_map(|at| self.settings.get(*at));
            return same.take(MAX_CANDIDATES).find(beats);
        }
        let takes_its_place = |other: &Setting<'_>| {
            self.is_later(setting, other)
                && !both_take_effect(&setting.flag, given_value(setting), given_value(other))
        };
        if let Some(last) = self.effective(setting, &entry.id).filter(|last| takes_its_place(last)) {
            return Some(last);
        }
        // Even if the effective setting is uncertain, the last one in the same part overrides this one.
        let same = self.of_id(scope, &entry.id).iter().rev().take(MAX_CANDIDATES);
        same.filter_map(|at| self.settings.get(*at)).find(|other| {
            other.part == setting.part && applies_to(setting.letter, other.letter) && takes_its_place(other)
        })
    }

    /// Whether any setting of an id in the node of `subject` fulfils a condition. Returns true if there are too many settings to check.
    pub(super) fn is_any(
        &self,
        subject: &Setting<'_>,
        id: &str,
        holds: impl Fn(&Setting<'_>) -> bool,
    ) -> bool {
        let candidates = self.of_id(self.part_of(subject).scope, id);
        let mut settings = candidates.iter().filter_map(|at| self.settings.get(*at));
        candidates.len() > MAX_CANDIDATES
            || settings.any(|other| self.are_together(subject, other) && holds(other))
    }

    /// Whether the scope has any setting of this id.
    pub(super) fn is_given(&self, scope: usize, id: &str) -> bool {
        !self.of_id(scope, id).is_empty()
    }

    fn of_id(&self, scope: usize, id: &str) -> &[usize] {
        entry(id)
            .and_then(|entry| self.index.get(&(scope, entry.id.as_str())))
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    /// Whether this scope has words that may contain unknown flags.
    pub(super) fn is_opaque(&self, scope: usize) -> bool {
        self.opaque.contains(&scope)
    }

    /// Returns the fixes created so far, and removes them from the node.
    pub(super) fn take_drafts(&self) -> Vec<DraftFix<'a>> {
        self.drafts.take()
    }

    /// Whether a product (RabbitMQ) adds its own flags to the command line, including busy-wait flags.
    pub(super) fn is_of_product(&self, scope: usize) -> bool {
        self.of_product.contains(&scope)
    }

    /// Creates a fix, if the syntax around the words seems to allow it; [`verify`](super::fixes::verify) verifies the fix later.
    pub(super) fn fix(&self, part: &Part<'a>, what: String, safe: bool, changes: &[Change]) -> Option<Fix> {
        let room = self.room.get();
        if room == 0 {
            return None;
        }
        let edits =
            part.fragment.unverified(changes, WriteMode::InPlace).filter(|edits| !edits.is_empty())?;
        let written = edits.iter().map(|edit| edit.replacement.len()).sum();
        self.room.set(room.saturating_sub(written));
        let draft = DraftFix {
            file: part.file,
            fragment: part.fragment,
            changes: changes.to_vec(),
            edits: edits.clone(),
        };
        self.drafts.borrow_mut().push(draft);
        Some(Fix { what, safe, edits })
    }

    /// Creates a fix that removes a setting.
    pub(super) fn removal(&self, setting: &Setting<'_>, safe: bool) -> Option<Fix> {
        if setting.kind != SettingKind::Flag && setting.kind != SettingKind::Env {
            return None;
        }
        let part = self.part_of(setting);
        let mut words = setting.words.clone();
        // Further words after an init flag are removed, too; otherwise they would become values of the previous flag.
        let arguments = self.arguments_of(setting.part);
        let own = arguments.binary_search_by_key(&words.start, |flag| flag.at).ok();
        for at in own.and_then(|own| arguments.get(own)).map(|flag| &flag.values[..]).unwrap_or_default() {
            if *at < words.end {
                continue;
            }
            let word = part.fragment.words.get(*at)?;
            let is_certain = *at == words.end && word.conditional == setting.conditional;
            if !is_certain || word.dynamic || !is_plain(&word.text) {
                // The word may contain unknown flags.
                return None;
            }
            words.end = at + 1;
        }
        let texts: Vec<&str> =
            part.fragment.words.get(words.clone())?.iter().map(|word| shown(&word.text)).collect();
        let what = format!("Remove `{}`", texts.join(" "));
        let safe = safe && !setting.conditional && setting.value != Value::Unknown;
        self.fix(part, what, safe, &[Change::Remove { words }])
    }

    /// Creates a fix that changes the value of a setting.
    pub(super) fn new_value(&self, setting: &Setting<'_>, value: &str, safe: bool) -> Option<Fix> {
        let at = setting.words.end.checked_sub(1)?;
        let word = self.part_of(setting).fragment.words.get(at)?;
        let Value::Text(old) = &setting.value else { return None };
        let kept = word.text.strip_suffix(old.as_str())?;
        let text = format!("{kept}{value}");
        let change = Change::Replace { word: at, text };
        let what = format!("Replace `{}` with `{value}`", shown(old));
        self.fix(self.part_of(setting), what, safe && !setting.conditional, &[change])
    }
}

/// Whether a word is certainly not a placeholder of another tool, such as `@OPTS@` or `__OPTS__`.
fn is_plain(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.:,/=".contains(c);
    text.chars().all(plain) && !text.starts_with("__")
}

/// Returns a word for output; an empty word is shown as two quotes.
pub(super) fn shown(text: &str) -> &str {
    if text.is_empty() { "''" } else { text }
}

impl Setting<'_> {
    /// Returns the value if it is known; empty for a flag without a value.
    pub(super) fn known_value(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            Value::Absent => Some(""),
            Value::Missing | Value::Unknown => None,
        }
    }

    /// Returns the id of the entry; empty for an unknown flag.
    pub(super) fn id(&self) -> &str {
        self.entry.map_or("", |entry| entry.id.as_str())
    }
}

/// Returns the value; `None` if the flag has no value or an unknown value.
fn given_value<'s>(setting: &'s Setting<'_>) -> Option<&'s str> {
    setting.known_value().filter(|value| !value.is_empty())
}

/// Whether a flag with the letter `its` applies to the allocator `mine`. Flags with the letter `u` or without a letter apply to all.
fn applies_to(mine: Option<char>, its: Option<char>) -> bool {
    its.is_none() || mine == its || (mine.is_some() && its == Some('u'))
}

/// Returns the requested releases that read a place: only one for a variable such as `ERL_OTP27_FLAGS`, all for any other place.
fn releases_of(place: &Place, target: &Target) -> Vec<u32> {
    let only = match place {
        Place::Variable { name, effect } if effect.order == Order::OtpFlags => name
            .strip_prefix("ERL_OTP")
            .and_then(|rest| rest.strip_suffix("_FLAGS"))
            .and_then(|release| release.parse::<u32>().ok()),
        _ => None,
    };
    target.releases.iter().copied().filter(|release| only.is_none_or(|only| only == *release)).collect()
}

/// Whether the words of a place are for no node, or for a separate node such as a command-line tool.
fn is_separate(place: &Place) -> bool {
    match place {
        Place::Variable { effect, .. } => effect.for_tool || effect.ignored.is_some(),
        Place::FileNames => true,
        Place::ArgsFile { .. } | Place::CommandLine { .. } | Place::RunningNode => false,
    }
}

/// Whether a place shows that the node runs a product (RabbitMQ).
fn is_of_product(place: &Place) -> bool {
    match place {
        Place::Variable { name, effect } => name.starts_with("RABBITMQ_") && effect.role != Role::ReadByVm,
        _ => false,
    }
}

/// Whether two fragments set the same variable, so that only one can take effect.
fn same_variable(one: &Fragment, other: &Fragment) -> bool {
    match (&one.place, &other.place) {
        (Place::Variable { name: one, .. }, Place::Variable { name: other, .. }) => one == other,
        _ => false,
    }
}

/// Whether a fragment is an args file, either a separate file or embedded in another one.
pub(super) fn is_args_file(fragment: &Fragment) -> bool {
    matches!(fragment.place, Place::ArgsFile { .. })
}
