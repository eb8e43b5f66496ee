//! The phrases, and what to write instead.

use super::Finding;

/// Phrases with one preferred term.
struct Phrases {
    /// What to write instead; shown after "use".
    instead: &'static str,
    /// The phrases. They match whole words: there is no match next to a letter, digit or `_`. A phrase that begins or ends with `_` also
    /// matches within identifiers at that end. A lower-case first letter matches an upper-case letter, too.
    phrases: &'static [&'static str],
    /// A match that is followed by this word is correct.
    not_before: &'static str,
}

const fn phrases(instead: &'static str, phrases: &'static [&'static str]) -> Phrases {
    Phrases { instead, phrases, not_before: "" }
}

/// The phrases of docs/glossary.md, and others that are easier to find than to explain.
const TABLE: &[Phrases] = &[
    phrases("reported, measured, recorded or printed", &["told", "told_", "_told", "tell of", "tells of"]),
    Phrases {
        instead: "is, is in, waits, or the current function",
        phrases: &["stand", "stands", "_stands"],
        not_before: "for",
    },
    phrases("the process that, the user who", &["whoever", "whosever"]),
    phrases("the caller, the client", &["who ask", "who asks"]),
    phrases("which process, for which", &["whom"]),
    phrases("unknown, not available, none, or no X", &["is none", "there are none", "there was none"]),
    phrases("a number with its unit, or \"this many\"", &["so many", "so much", "so-and-so"]),
    phrases("estimate", &["reckon", "reckons", "reckoned", "reckoning"]),
    phrases("during, inside a call", &["in the midst"]),
    phrases("follow, use, depend on", &["go by", "goes by"]),
    phrases("alone, automatically, or nothing", &["by itself"]),
    phrases("concern, relate to", &["has to do with", "have to do with"]),
    phrases(
        "MAX_, MIN_ or a noun",
        &[
            "MOST", "MOST_", "LEAST", "LEAST_", "FEWEST", "FEWEST_", "MANY", "MANY_", "OFTEN", "OFTEN_",
            "SELDOM", "SELDOM_", "ENOUGH", "ENOUGH_", "LONGEST", "LONGEST_", "LARGEST", "LARGEST_",
        ],
    ),
    phrases(
        "has, belongs to",
        &["is of no", "is of its", "is of the", "are of no", "are of its", "are of the"],
    ),
    phrases("X waits", &["it is waited"]),
    phrases(
        "is sampled, is read, is searched for",
        &[
            "is looked at",
            "is looked for",
            "are looked at",
            "are looked for",
            "was looked at",
            "were looked at",
        ],
    ),
    phrases("compared with, checked against", &["held against", "hold against", "holds against"]),
    phrases("fix", &["mend", "mends", "mended", "mending"]),
    phrases("again, new", &["anew"]),
    phrases("except", &["but for"]),
    phrases("at random, randomly sampled", &["by chance"]),
    phrases("forever, indefinitely, or the limit", &["for ever"]),
    phrases("expensive, costly", &["dear", "dearer", "dearest"]),
    phrases("on average, mean", &["in the mean"]),
    phrases("available", &["to be had"]),
    phrases("crashes on, fails on", &["fall over", "falls over", "fell over"]),
    phrases("unknown", &["not known here"]),
    phrases("passed", &["looked healthy", "looks healthy"]),
    phrases("runnable", &["want to run", "wants to run"]),
    phrases("run-queue delay", &["kept waiting", "keeps waiting"]),
    phrases("spawn rate, exit rate, or short-lived", &["come and go", "comes and goes"]),
    phrases(
        "distribution connection, busy distribution port",
        &["channel to another node", "channels to another node", "channels to other nodes"],
    ),
    phrases("carrier utilization", &["how far carriers are used"]),
    phrases("munmap, mseg_dealloc", &["segments given back"]),
    phrases("lock contention", &["threads wait for each other", "schedulers wait for each other"]),
    phrases("idle processes", &["processes that do nothing"]),
    phrases("throttled", &["stopped by the quota"]),
    phrases("blocks", &["lets others wait", "lets it wait", "let others wait"]),
];

/// Returns all phrases in a text, by line.
pub fn find(path: &str, text: &str) -> Vec<Finding> {
    let mut places: Vec<(usize, usize, &'static str)> = Vec::new();
    for Phrases { instead, phrases, not_before } in TABLE {
        for phrase in *phrases {
            let ends = occurrences(text, phrase);
            let is_right = |end: usize| !not_before.is_empty() && is_followed_by(&text[end..], not_before);
            places.extend(ends.filter(|&(_, end)| !is_right(end)).map(|(start, end)| (start, end, *instead)));
        }
    }
    places.sort_unstable();
    let (mut line, mut counted) = (1, 0);
    let mut findings = Vec::with_capacity(places.len());
    for (start, end, instead) in places {
        line += text[counted..start].matches('\n').count();
        counted = start;
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_text = text[line_start..].lines().next().unwrap_or_default().to_owned();
        let (path, phrase) = (path.to_owned(), text[start..end].to_owned());
        findings.push(Finding { path, line, text: line_text, phrase, instead });
    }
    findings
}

/// Returns start and end of each occurrence of a phrase.
fn occurrences<'t>(text: &'t str, phrase: &'static str) -> impl Iterator<Item = (usize, usize)> + 't {
    let first = phrase.chars().next().unwrap_or_default();
    let tail = phrase.strip_prefix(first).unwrap_or_default();
    text.match_indices(tail).filter_map(move |(at, _)| {
        let before = text[..at].chars().next_back()?;
        let start = at - before.len_utf8();
        let end = at + tail.len();
        let is_open_left = first == '_' || !text[..start].chars().next_back().is_some_and(is_word);
        let is_open_right = phrase.ends_with('_') || !text[end..].chars().next().is_some_and(is_word);
        let is_first = before == first || before == first.to_ascii_uppercase();
        (is_first && is_open_left && is_open_right).then_some((start, end))
    })
}

fn is_followed_by(rest: &str, word: &str) -> bool {
    let rest = rest.strip_prefix(' ').and_then(|rest| rest.strip_prefix(word));
    rest.is_some_and(|rest| !rest.chars().next().is_some_and(is_word))
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The phrases found in a line.
    fn found(line: &str) -> Vec<String> {
        find("x.rs", line).into_iter().map(|finding| finding.phrase).collect()
    }

    #[test]
    fn whole_words_are_found_with_a_first_letter_of_either_case() {
        assert_eq!(found("Told of it, it stands there"), ["Told", "stands"]);
        assert_eq!(found("he understands, withstands, untold, stolid"), [""; 0]);
        assert_eq!(found("there is none"), ["is none"]);
        assert_eq!(found("so many; So much"), ["so many", "So much"]);
    }

    #[test]
    fn a_following_word_can_make_a_phrase_correct() {
        assert_eq!(found("a letter stands for a number"), [""; 0]);
        assert_eq!(found("it stands forever, and it stands"), ["stands", "stands"]);
    }

    #[test]
    fn identifiers_are_matched_by_their_endings() {
        assert_eq!(found("let told_ms = is_told(p99_stands);"), ["told_", "_told", "_stands"]);
        assert_eq!(found("const MOST_ROWS: usize = MOST;"), ["MOST_", "MOST"]);
        assert_eq!(found("UTMOST, most, AT_MOST_ONE"), [""; 0]);
    }

    #[test]
    fn findings_are_in_the_order_of_the_lines() {
        let findings = find("x.md", "whom\n\nnothing\ntold by whom\n");
        let places: Vec<_> = findings.iter().map(|found| (found.line, found.phrase.as_str())).collect();
        assert_eq!(places, [(1, "whom"), (4, "told"), (4, "whom")]);
        assert_eq!(findings[1].text, "told by whom");
        assert_eq!(findings[1].to_string(), "x.md:4: told; use reported, measured, recorded or printed");
    }

    #[test]
    fn a_non_ascii_letter_is_part_of_a_word() {
        assert_eq!(found("…whom… ätold told"), ["whom", "told"]);
    }

    #[test]
    fn no_phrase_is_in_the_table_twice() {
        let mut all: Vec<_> = TABLE.iter().flat_map(|row| row.phrases).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
