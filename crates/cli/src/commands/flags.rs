//! `beamtune flags`: reference of flags, locks, msacc states and allocators.

use std::process::ExitCode;

use anyhow::{Result, bail};
use beamtune_flags::{OtpVersion, is_init_flag};
use beamtune_report::flags::{self, Topic};

use crate::releases::{parse_release, parse_upgrade};
use crate::terminal;

/// Maximum number of rows of a search result.
const ROWS: usize = 25;

/// Explain an emulator flag, lock, msacc state or allocator
///
/// Without a name, lists all entries. Names are found with or without + or -, with the letter of any allocator (+MBas), and by former
/// spellings. Other words are searched for in the texts.
#[derive(clap::Args)]
pub struct Args {
    /// Name (+sbwt, MBas, ERL_FLAGS, db_tab), or words to search for
    // Separate from `more`, so that `-heart` is accepted as a name, but `--json` after it is an option.
    #[arg(value_name = "NAME|WORD", allow_hyphen_values = true)]
    name: Option<String>,
    /// More names or words
    #[arg(value_name = "NAME|WORD")]
    more: Vec<String>,
    /// OTP release to describe
    #[arg(long, value_name = "RELEASE", value_parser = parse_release)]
    otp: Option<u32>,
    /// List the changes of an OTP upgrade, most important first: 25..29
    #[arg(long, value_name = "FROM..TO", value_parser = parse_upgrade, conflicts_with_all = ["name", "otp"])]
    changed: Option<(OtpVersion, OtpVersion)>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    let style = terminal::style();
    let text = if let Some((from, to)) = &args.changed {
        match args.json {
            true => flags::changed_json(from, to),
            false => flags::changed(from, to, style),
        }
    } else if args.name.is_none() {
        match args.json {
            true => flags::list_json(None, args.otp),
            false => flags::everything(args.otp, style),
        }
    } else {
        found(args)?
    };
    terminal::print(&text);
    Ok(ExitCode::SUCCESS)
}

/// Renders the pages of the named entries; if absent, the results of a search.
fn found(args: &Args) -> Result<String> {
    let style = terminal::style();
    let words: Vec<&String> = args.name.iter().chain(&args.more).collect();
    let query = words.iter().map(|word| word.as_str()).collect::<Vec<_>>().join(" ");
    // Try the words as one name first (`-kernel net_ticktime`), then as several.
    let mut topics = flags::named(&query);
    if topics.is_empty() {
        let each: Vec<Vec<Topic>> = words.iter().map(|word| flags::named(word)).collect();
        let all_signed = words.iter().all(|word| word.starts_with(['+', '-']));
        if each.iter().all(|topics| !topics.is_empty()) && (all_signed || words.len() == 1) {
            topics = each.into_iter().flatten().collect();
        } else if let [first, ..] = words.as_slice()
            && first.starts_with(['+', '-'])
        {
            // A flag with its value: `+sbwt none`.
            topics = each.into_iter().next().unwrap_or_default();
        }
    }
    // A flag with its sign is a name, not a search word.
    let is_one_flag = words.len() == 1 && query.starts_with(['+', '-']);
    let hits = if is_one_flag && topics.is_empty() { Vec::new() } else { flags::search(&query) };
    if topics.is_empty()
        && let [hit] = hits.as_slice()
    {
        topics.push(hit.topic.clone());
    }
    if !topics.is_empty() {
        if args.json {
            return Ok(flags::pages_json(&topics, args.otp));
        }
        let pages: Vec<String> = topics.iter().map(|topic| flags::page(topic, args.otp, style)).collect();
        let mut text = pages.join("\n");
        let is_word = !query.contains(['+', '-', '.', '_']);
        let others: Vec<_> = hits
            .into_iter()
            .filter(|hit| topics.iter().all(|topic| topic.name() != hit.topic.name()))
            .collect();
        // The name may also be meant as a search word.
        if is_word && !others.is_empty() {
            text.push_str(&format!(
                "\nOther entries about {query}:\n{}",
                flags::hits(&others, ROWS / 3, style)
            ));
        }
        return Ok(text);
    }
    if !hits.is_empty() {
        return Ok(match args.json {
            true => flags::list_json(Some(&hits), args.otp),
            false => flags::hits(&hits, ROWS, style),
        });
    }
    let near = flags::nearest(&query);
    let shown = beamtune_report::text::clean(&query);
    if is_init_flag(&query) {
        bail!("no page about {shown}: see the manuals of erl and init");
    }
    if near.is_empty() {
        bail!("{shown} is unknown; list all entries with: beamtune flags");
    }
    bail!("{shown} is unknown; similar: {}", near.join(", "))
}
