//! `beamtune flags`: what is known of the VM.

use std::process::ExitCode;

use anyhow::{Result, bail};
use beamtune_flags::{OtpVersion, is_init_flag};
use beamtune_report::flags::{self, Topic};

use crate::releases::{parse_release, parse_span};
use crate::terminal;

/// Rows of a search; who wants more adds a word.
const ROWS: usize = 25;

/// Explain a flag, a lock, a msacc state or an allocator, search them by words, or tell what an upgrade changes.
///
/// Without a name: the list of all. Names are found with or without + or -, with any allocator's letter (+MBas), and by former
/// spellings.
#[derive(clap::Args)]
pub struct Args {
    /// A name (+sbwt, MBas, ERL_FLAGS, db_tab, check_io), or words to search for (busy wait).
    // Apart from the others, so that `-heart` can be a name and `--json` behind it is none.
    #[arg(value_name = "NAME|WORD", allow_hyphen_values = true)]
    name: Option<String>,
    /// More of them.
    #[arg(value_name = "NAME|WORD")]
    more: Vec<String>,
    /// Tell what holds in this OTP release.
    #[arg(long, value_name = "RELEASE", value_parser = parse_release)]
    otp: Option<u32>,
    /// What an upgrade of OTP changes, the most important first: 25..29.
    #[arg(long, value_name = "FROM..TO", value_parser = parse_span, conflicts_with_all = ["name", "otp"])]
    changed: Option<(OtpVersion, OtpVersion)>,
    /// Print JSON.
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

/// Pages of what is named; else what the words are found in.
fn found(args: &Args) -> Result<String> {
    let style = terminal::style();
    let words: Vec<&String> = args.name.iter().chain(&args.more).collect();
    let query = words.iter().map(|word| word.as_str()).collect::<Vec<_>>().join(" ");
    // As one name first (`-kernel net_ticktime`), then as several.
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
    // Who writes one flag with its sign asks for that, and not for whatever has such a word in it.
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
        // A word may be a name and be meant as a word all the same.
        if is_word && !others.is_empty() {
            text.push_str(&format!(
                "\nOthers that are about {query}:\n{}",
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
        bail!("there is no page about {shown}: it is for init or the launcher (manuals of erl and init)");
    }
    if near.is_empty() {
        bail!("nothing is known of {shown}; beamtune flags lists everything");
    }
    bail!("nothing is known of {shown}; similar: {}", near.join(", "))
}
