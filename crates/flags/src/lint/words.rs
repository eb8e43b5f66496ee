//! Parses the words of a fragment like the launcher and the emulator.
//!
//! A flag with `+` is for the emulator; if the flag requires a value, it takes the next word, even if that is a flag. A flag with `-` is
//! for `init` and takes all words up to the next such flag; a few flags are for the launcher itself (`-env`). Words after `-extra` are for
//! the program.

use super::node::{InitFlag, Node, Setting, SettingKind, Value};
use crate::arguments::takes_word;
use crate::catalog::recognise;
use crate::entry;
use crate::entry::{Argument, Entry, Kind};
use crate::init_flags::requires_value;
use crate::source::{Fragment, Word};

impl<'a> Node<'a> {
    /// Parses the words of an args file or a variable.
    pub(super) fn words(&mut self, part: usize, fragment: &'a Fragment) {
        let words = &fragment.words;
        // The init flag to which further words belong.
        let mut open: Option<usize> = None;
        let mut at = 0;
        while let Some(word) = words.get(at) {
            let text = word.text.as_str();
            if text == "-extra" && !word.dynamic {
                if let Some(part) = self.parts.get_mut(part) {
                    part.extra = at + 1..words.len();
                }
                break;
            }
            if text.starts_with('+') && (!word.dynamic || known_in_template(text)) {
                let setting = emulator_flag(part, words, at);
                at = setting.words.end;
                self.settings.push(setting);
                continue;
            }
            if word.dynamic
                && !self.takes_template(words, open, at)
                && let Some(part) = self.parts.get_mut(part)
            {
                part.opaque = true;
            }
            if text == "--" {
                open = None;
            } else if text.len() > 1 && text.starts_with('-') && !word.dynamic {
                let (end, opens) = self.init_flag(part, words, at);
                // The launcher removes -env, so the words after it belong to the previous flag.
                if text != "-env" {
                    open = opens.then_some(self.arguments.len().saturating_sub(1));
                }
                at = end;
                continue;
            } else if let Some(flag) = open.and_then(|open| self.arguments.get_mut(open)) {
                flag.values.push(at);
            }
            at += 1;
        }
        self.kernel(part, fragment);
    }

    /// Parses a flag with `-`. Returns the index after the words that certainly belong to it, and whether further words belong to it, too.
    fn init_flag(&mut self, part: usize, words: &'a [Word], at: usize) -> (usize, bool) {
        let Some(word) = words.get(at) else { return (at + 1, false) };
        let text = word.text.as_str();
        if let Some(found) = recognise(text).filter(|found| found.glued.is_empty()) {
            let setting = launcher_flag(part, words, at, found.entry);
            let end = setting.words.end;
            self.settings.push(setting);
            // The launcher passes the flag to init, with all words up to the next flag.
            self.arguments.push(InitFlag { part, at, values: (at + 1..end).collect() });
            return (end, true);
        }
        let mut flag = InitFlag { part, at, values: Vec::new() };
        match text {
            "-env" => {
                let end = (at + 3).min(words.len());
                flag.values.extend(at + 1..end);
                if let (Some(name), Some(value)) = (words.get(at + 1), words.get(at + 2))
                    && !name.dynamic
                {
                    self.settings.push(Setting {
                        part,
                        words: at..at + 3,
                        kind: SettingKind::Env,
                        name: &name.text,
                        flag: name.text.clone(),
                        entry: entry(&name.text).filter(|entry| entry.kind == Kind::Environment),
                        letter: None,
                        value: if value.dynamic { Value::Unknown } else { Value::Text(value.text.clone()) },
                        conditional: word.conditional || value.conditional,
                        repeated: false,
                    });
                }
                self.arguments.push(flag);
                (end, false)
            }
            "-name" | "-sname" => {
                // The launcher takes the next word, even if it is a flag; init also receives the words after that.
                if at + 1 < words.len() {
                    flag.values.push(at + 1);
                }
                let (index, mut end) = (self.arguments.len(), (at + 2).min(words.len()));
                self.arguments.push(flag);
                while let Some(word) = words.get(end)
                    && !word.dynamic
                    && !word.text.starts_with(['-', '+'])
                {
                    if let Some(flag) = self.arguments.get_mut(index) {
                        flag.values.push(end);
                    }
                    end += 1;
                }
                (end, false)
            }
            _ => {
                self.arguments.push(flag);
                (at + 1, true)
            }
        }
    }

    /// Whether a word with a template is the value of the previous flag, and not another flag.
    fn takes_template(&self, words: &[Word], open: Option<usize>, at: usize) -> bool {
        let Some(flag) = open.and_then(|open| self.arguments.get(open)) else { return false };
        let Some(name) = words.get(flag.at).map(|word| word.text.as_str()) else { return false };
        let alone = flag.values.is_empty();
        (alone && requires_value(name))
            // The word is the second of a pair, or the value after a path.
            || (flag.values.len() % 2 == 1 && flag.values.last().is_some_and(|last| last + 1 == at))
    }

    /// Adds the parameters that `-kernel` sets.
    fn kernel(&mut self, part: usize, fragment: &'a Fragment) {
        let words = &fragment.words;
        let mut found = Vec::new();
        for flag in self.arguments_of(part) {
            if words.get(flag.at).is_none_or(|word| word.text != "-kernel") {
                continue;
            }
            for pair in flag.values.chunks_exact(2) {
                let [key, value] = pair else { continue };
                let (Some(name), Some(word)) = (words.get(*key), words.get(*value)) else { continue };
                if name.dynamic {
                    break;
                }
                let Some(entry) = entry(&format!("kernel.{}", name.text)) else { continue };
                let text = word.text.trim_matches('\'').to_owned();
                found.push(Setting {
                    part,
                    words: *key..*value + 1,
                    kind: SettingKind::Kernel,
                    name: &name.text,
                    flag: entry.id.clone(),
                    entry: Some(entry),
                    letter: None,
                    value: if word.dynamic { Value::Unknown } else { Value::Text(text) },
                    conditional: name.conditional || word.conditional,
                    repeated: false,
                });
            }
        }
        self.settings.extend(found);
    }

    /// Parses the arguments of a running emulator: emulator flags with a minus up to the first `--`, then flags for init.
    pub(super) fn live_words(&mut self, part: usize, fragment: &'a Fragment) {
        let words = &fragment.words;
        let end = words.iter().position(|word| word.text == "--").unwrap_or(words.len());
        let mut at = words.iter().position(|word| word.text.starts_with(['-', '+'])).unwrap_or(end);
        while at < end {
            let Some(word) = words.get(at) else { break };
            if word.text.len() > 1 && word.text.starts_with(['-', '+']) {
                let setting = emulator_flag(part, words.get(..end).unwrap_or_default(), at);
                at = setting.words.end;
                self.settings.push(setting);
            } else {
                at += 1;
            }
        }
        let mut open: Option<usize> = None;
        for (at, word) in words.iter().enumerate().skip(end) {
            match word.text.as_str() {
                "-extra" => break,
                "--" => open = None,
                text if text.len() > 1 && text.starts_with('-') => {
                    open = Some(self.arguments.len());
                    self.arguments.push(InitFlag { part, at, values: Vec::new() });
                }
                _ => {
                    if let Some(flag) = open.and_then(|open| self.arguments.get_mut(open)) {
                        flag.values.push(at);
                    }
                }
            }
        }
        self.kernel(part, fragment);
    }
}

/// Whether a word is a known flag followed by a template: `+P${N}`.
fn known_in_template(text: &str) -> bool {
    recognise(text).is_some_and(|found| found.glued.starts_with(['$', '<', '{', '%']))
}

/// Parses an emulator flag, which starts with `+`, or with `-` in the arguments of a running emulator.
fn emulator_flag<'a>(part: usize, words: &'a [Word], at: usize) -> Setting<'a> {
    let word = &words[at];
    let name = word.text.as_str();
    let plus = format!("+{}", name.get(1..).unwrap_or_default());
    let mut setting = Setting {
        part,
        words: at..at + 1,
        kind: SettingKind::Flag,
        name,
        flag: plus.clone(),
        entry: None,
        letter: None,
        value: Value::Absent,
        conditional: word.conditional,
        repeated: false,
    };
    let Some(found) = recognise(&plus) else { return setting };
    let argument = found.entry.argument.unwrap_or(Argument::None);
    let glued = !found.glued.is_empty();
    // A longer word is an unknown flag. An entry for which every value is fatal stands for flags that do not exist.
    let longer = glued && (argument == Argument::None || !found.entry.glued);
    if longer || found.entry.fatal.iter().any(|fatal| fatal.always) {
        return setting;
    }
    setting.letter = found.entry.allocator_in(&found.flag);
    setting.entry = Some(found.entry);
    setting.flag = found.flag;
    let next = words.get(at + 1);
    setting.value = match argument {
        _ if glued && word.dynamic => Value::Unknown,
        _ if glued => Value::Text(found.glued.to_owned()),
        Argument::Required => match next {
            None => Value::Missing,
            Some(next) => {
                setting.words.end = at + 2;
                if next.dynamic || next.conditional != word.conditional {
                    Value::Unknown
                } else {
                    Value::Text(next.text.clone())
                }
            }
        },
        Argument::Glued => Value::Missing,
        Argument::Optional => match next {
            Some(next) if next.dynamic || next.conditional != word.conditional => Value::Unknown,
            Some(next) if takes_word(found.entry, &next.text) => {
                setting.words.end = at + 2;
                Value::Text(next.text.clone())
            }
            _ => Value::Absent,
        },
        Argument::GluedOptional | Argument::None => Value::Absent,
    };
    setting
}

/// Parses a flag by which the launcher selects the emulator: `-smp`.
fn launcher_flag<'a>(part: usize, words: &'a [Word], at: usize, entry: &'static Entry) -> Setting<'a> {
    let word = &words[at];
    let optional = entry.argument == Some(Argument::Optional);
    let mut setting = Setting {
        part,
        words: at..at + 1,
        kind: SettingKind::Flag,
        name: &word.text,
        flag: word.text.clone(),
        entry: Some(entry),
        letter: None,
        value: if optional { Value::Absent } else { Value::Missing },
        conditional: word.conditional,
        repeated: false,
    };
    if let Some(next) = words.get(at + 1).filter(|next| !optional || takes_word(entry, &next.text)) {
        setting.words.end = at + 2;
        setting.value = if next.dynamic || next.conditional != word.conditional {
            Value::Unknown
        } else {
            Value::Text(next.text.clone())
        };
    }
    setting
}
