//! The flags of a node: for each flag, the value in effect and its source.

use beamtune_flags::args::{FlagUse, Input, Overview, ValueSource, place_name};
use beamtune_flags::lint::contains_secret;
use beamtune_flags::source::position;
use beamtune_flags::{Origin, Setting};
use serde::Serialize;

use crate::Style;
use crate::json::pretty;
use crate::table::{Align::Left, Table};
use crate::text::{clean, clean_words, wrap};

/// Maximum length of a default that is shown in full, in characters: some defaults are sentences.
const DEFAULT_CHARS: usize = 70;

/// One flag of the sheet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// `+sbwt`.
    pub flag: String,
    /// Value in effect; `None` for a flag without a value.
    pub value: Option<String>,
    /// Source of the value: `rel/vm.args:12`, `ERL_FLAGS`, `default`.
    pub from: String,
    /// Whether the flag is not set, so that the value is the default of the release.
    pub is_default: bool,
    /// Whether the value is filled in when the node starts; `value` is then a template or a variable.
    pub dynamic: bool,
    /// Whether the flag is set in a part of the file that applies only under a condition.
    pub conditional: bool,
    /// Values that this value overrides, in descending order of precedence.
    pub instead_of: Vec<Lost>,
}

/// An overridden value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// The value; `None` for a flag without a value.
    pub value: Option<String>,
    /// Source of the value, as in [`Row::from`].
    pub from: String,
}

/// The flags of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Sheet {
    /// Flags of the emulator.
    pub emulator: Vec<Row>,
    /// Flags of `init` and of applications.
    pub others: Vec<Row>,
    /// Parts of the files that have no effect, each with the reason.
    pub idle: Vec<String>,
}

impl Sheet {
    /// Creates the sheet of a set of files; `names` are their paths, in the same order.
    pub fn of_files(names: &[&str], inputs: &[Input], overview: &Overview) -> Sheet {
        let place = |given: &FlagUse| place(names, inputs, given);
        let emulator = overview.emulator.iter().map(|known| {
            let (from, given) = match &known.source {
                ValueSource::File(given) => (place(given), Some(given)),
                ValueSource::Default => ("default".to_owned(), None),
            };
            Row {
                flag: known.flag.clone(),
                value: known.value.clone(),
                from,
                is_default: given.is_none(),
                dynamic: given.is_some_and(|given| given.dynamic),
                conditional: given.is_some_and(|given| given.conditional),
                instead_of: known
                    .overridden
                    .iter()
                    .map(|given| Lost { value: given.value(), from: place(given) })
                    .collect(),
            }
        });
        let others = overview.others.iter().map(|given| Row {
            flag: given.flag.clone(),
            value: if contains_secret(&given.flag) {
                given.value().map(|_| "*".to_owned())
            } else {
                given.value()
            },
            from: place(given),
            is_default: false,
            dynamic: given.dynamic,
            conditional: given.conditional,
            instead_of: Vec::new(),
        });
        let idle = overview.ineffective.iter().map(|idle| {
            let line = inputs.get(idle.file).map_or(0, |input| position(&input.text, idle.offset).line);
            let name = names.get(idle.file).copied().unwrap_or_default();
            format!("{name}:{line} {}: {}", idle.name, idle.why)
        });
        Sheet { emulator: emulator.collect(), others: others.collect(), idle: idle.collect() }
    }

    /// Creates the sheet of a running node, from [`in_effect`](beamtune_flags::in_effect).
    pub fn of_node(settings: &[Setting]) -> Sheet {
        let row = |setting: &Setting| Row {
            flag: setting.flag.clone(),
            value: setting.value.clone(),
            from: origin(&setting.origin),
            is_default: setting.origin == Origin::Default,
            dynamic: false,
            conditional: false,
            instead_of: setting
                .overridden
                .iter()
                .rev()
                .map(|earlier| Lost { value: earlier.value.clone(), from: origin(&earlier.origin) })
                .collect(),
        };
        let (given, default): (Vec<&Setting>, Vec<&Setting>) =
            settings.iter().partition(|setting| setting.origin != Origin::Default);
        Sheet { emulator: given.into_iter().chain(default).map(row).collect(), ..Sheet::default() }
    }
}

fn origin(origin: &Origin) -> String {
    match origin {
        Origin::Environment(name) => name.clone(),
        Origin::CommandLine => "command line or args file".to_owned(),
        Origin::Start => "set at start".to_owned(),
        Origin::Default => "default".to_owned(),
    }
}

/// Formats the place of a flag: `docker-compose.yml:7 ERL_FLAGS`.
fn place(names: &[&str], inputs: &[Input], given: &FlagUse) -> String {
    let name = names.get(given.file).copied().unwrap_or_default();
    let Some(input) = inputs.get(given.file) else { return name.to_owned() };
    let line = position(&input.text, given.span.start).line;
    let within = input.fragments.get(given.fragment).map_or("", |fragment| place_name(&fragment.place));
    format!("{name}:{line} {within}").trim_end().to_owned()
}

/// Renders the sheet as tables: emulator flags that are set, flags for `init` and applications, and emulator flags at their default.
pub fn text(sheet: &Sheet, style: Style) -> String {
    let mut out = String::new();
    let (given, default): (Vec<&Row>, Vec<&Row>) = sheet.emulator.iter().partition(|row| !row.is_default);
    let others: Vec<&Row> = sheet.others.iter().collect();
    let mut section = |title: &str, rows: &[&Row]| {
        if !rows.is_empty() {
            out.push_str(&format!("{}\n{}\n", style.bold(title), table(rows).render(style)));
        }
    };
    section("Emulator flags that are set", &given);
    section("Flags for init and applications", &others);
    section("Emulator flags at their default", &default);
    if !sheet.idle.is_empty() {
        out.push_str(&format!("{}\n", style.bold("Without effect on the node")));
        for line in &sheet.idle {
            out.push_str(&format!("{}\n", wrap(&clean_words(line), style.width, "    ")));
        }
        out.push('\n');
    }
    out
}

fn table(rows: &[&Row]) -> Table {
    let has_losers = rows.iter().any(|row| !row.instead_of.is_empty());
    let mut columns = vec![("flag", Left), ("value", Left)];
    if rows.iter().any(|row| !row.is_default) {
        columns.push(("from", Left));
    }
    if has_losers {
        columns.push(("overrides", Left));
    }
    let mut table = Table::new(&columns);
    for row in rows {
        let mut value = clean(row.value.as_deref().unwrap_or_default());
        // Long defaults are shown in full on the page of the flag.
        if row.is_default && value.chars().count() > DEFAULT_CHARS {
            value = value.chars().take(DEFAULT_CHARS - 1).chain(['…']).collect();
        }
        if row.conditional {
            value.push_str(" (conditional)");
        } else if row.dynamic {
            value.push_str(" (template)");
        }
        let from = if row.is_default { String::new() } else { clean(&row.from) };
        let losers: Vec<String> = row
            .instead_of
            .iter()
            .map(|lost| {
                format!("{} ({})", clean(lost.value.as_deref().unwrap_or("no value")), clean(&lost.from))
            })
            .collect();
        table.row([clean(&row.flag), value, from, losers.join(", ")]);
    }
    table
}

/// Renders the sheet as JSON.
pub fn json(sheet: &Sheet) -> String {
    pretty(sheet)
}

#[cfg(test)]
mod tests {
    use beamtune_flags::args::effective_flags;
    use beamtune_flags::source::Format;
    use beamtune_flags::{OtpVersion, effective_settings};

    use super::*;

    fn sheet(files: &[(&str, Format, &str)]) -> Sheet {
        let names: Vec<&str> = files.iter().map(|(name, _, _)| *name).collect();
        let inputs: Vec<Input> =
            files.iter().map(|(_, format, text)| Input::read(*format, *text).expect(text)).collect();
        let overview = effective_flags(&inputs, &OtpVersion::from(25)).expect("one node");
        Sheet::of_files(&names, &inputs, &overview)
    }

    #[test]
    fn each_value_has_its_place_and_the_overridden_values() {
        let sheet = sheet(&[
            (
                "rel/vm.args",
                Format::VmArgs,
                "-name a@b\n-setcookie secret\n-env RELEASE_COOKIE secret\n+P 1000\n+sbwt none\n",
            ),
            (
                "compose.yml",
                Format::Compose,
                "a:\n  environment:\n    ERL_FLAGS: +P 5000 +Q ${N}\n    RABBITMQ_CTL_ERL_ARGS: +P 1\n",
            ),
        ]);
        let text = text(&sheet, Style::PLAIN);
        let expect = "\
Emulator flags that are set
flag   value                       from                     overrides
+P     5000                        compose.yml:3 ERL_FLAGS  1000 (rel/vm.args:4)
+sbwt  none                        rel/vm.args:5
+Q     ${N} (template)      compose.yml:3 ERL_FLAGS

Flags for init and applications
flag                 value  from
-name                a@b    rel/vm.args:1
-setcookie           *      rel/vm.args:2
-env RELEASE_COOKIE  *      rel/vm.args:3

Emulator flags at their default
";
        let squeezed =
            |text: &str| text.split(' ').filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
        assert!(squeezed(&text).starts_with(&squeezed(expect)), "{text}");
        assert!(!text.contains("secret"), "{text}");
        assert!(text.contains("compose.yml:4 RABBITMQ_CTL_ERL_ARGS: for a command-line tool"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&json(&sheet)).expect("JSON");
        assert_eq!(json["emulator"][0]["instead_of"][0]["from"], "rel/vm.args:4");
    }

    #[test]
    fn flags_of_a_running_node_have_their_source() {
        let args = ["-P", "1000", "-P", "5000"].map(str::to_owned);
        let environment = [("ERL_FLAGS".to_owned(), "+P 5000".to_owned())];
        let sheet = Sheet::of_node(&effective_settings(&args, &environment, 25));
        let row = sheet.emulator.first().expect("a flag");
        assert_eq!(
            (row.flag.as_str(), row.value.as_deref(), row.from.as_str()),
            ("+P", Some("5000"), "ERL_FLAGS")
        );
        assert_eq!(row.instead_of[0].from, "command line or args file");
        assert!(sheet.emulator.iter().skip(1).all(|row| row.is_default));
    }
}
