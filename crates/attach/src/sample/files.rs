//! Files of the node's host, which the agent reads for the source of the host: a node may say anything of them.

use beamtune_model::{FileAsk, FileTold, FileTrouble, ThreadFiles, Trouble, TroubleKind};

use super::words;
use crate::agent::{Answer, Reading, Status};
use crate::error::printable;
use crate::etf::{Term, TermError};

/// What the agent tells of threads at most; more is not an honest one's.
const MOST_THREADS: usize = 2_000;
/// Of one file of a thread.
const THREAD_BYTES: usize = 8 * 1024;

/// What an answer tells of the files that were asked for, and when they were read; `None` if they are not in it.
pub(crate) struct Files {
    /// When the first was read, VM monotonic time in nanoseconds.
    pub begin_ns: i64,
    /// When the last one was.
    pub end_ns: i64,
    /// What was told, or why nothing was.
    pub told: Result<Vec<(FileAsk, FileTold)>, Trouble>,
}

/// Finds them.
pub(crate) fn of(answer: &Answer, asks: Vec<FileAsk>) -> Option<Files> {
    let mut readings = answer.readings().ok()?;
    let reading = readings.find_map(|reading| reading.ok().filter(|Reading { item, .. }| *item == "host"))?;
    let trouble = |kind, reason: String| Err(Trouble::new(kind, reason));
    let told = match reading.status {
        Status::Done(value) => {
            told(value, asks).or_else(|error| trouble(TroubleKind::Garbled, error.to_string()))
        }
        Status::Unsupported => {
            let why = "the node runs on no Linux: what its host knows of it can be read there only";
            trouble(TroubleKind::Unsupported, why.to_owned())
        }
        Status::Failed(why) => trouble(TroubleKind::Garbled, printable(why)),
        Status::TimedOut(_) | Status::Skipped => {
            trouble(TroubleKind::TimedOut, "reading the files of the node's host took too long".to_owned())
        }
    };
    let read_ns = reading.cost_us.max(0).saturating_mul(1_000);
    Some(Files { begin_ns: reading.begin_ns, end_ns: reading.begin_ns.saturating_add(read_ns), told })
}

fn told(value: Term<'_>, asks: Vec<FileAsk>) -> Result<Vec<(FileAsk, FileTold)>, TermError> {
    let list = value.field("told")?;
    let mut terms = list.list()?;
    let told = asks.into_iter().map(|ask| {
        let term = terms.next().ok_or_else(|| unexpected(list, "as many files as were asked for"))?;
        let told = one(&ask, term)?;
        Ok((ask, told))
    });
    told.collect()
}

/// What was told must be what was asked for.
fn one(ask: &FileAsk, term: Term<'_>) -> Result<FileTold, TermError> {
    if let (FileAsk::Threads { .. }, Ok([tag, tids, read])) = (ask, term.tuple_of()) {
        return threads(tag, tids, read);
    }
    let [tag, value] = term.tuple_of()?;
    match (tag.as_atom()?, ask) {
        ("error", _) => Ok(FileTold::Failed(trouble(value.as_atom()?))),
        ("ok", FileAsk::Read { max_bytes, .. }) => Ok(FileTold::Content(bytes(value, *max_bytes)?)),
        ("cut", FileAsk::Read { max_bytes, .. }) => {
            let content = bytes(value, *max_bytes)?;
            // What was asked for is there.
            Ok(if content.len() == *max_bytes { FileTold::Content(content) } else { FileTold::Cut(content) })
        }
        ("link", FileAsk::Link(_)) => Ok(FileTold::Link(words(value)?.unwrap_or_default())),
        ("count", FileAsk::Count(_)) => Ok(FileTold::Count(value.as_u64()?)),
        _ => Err(unexpected(tag, "what was asked for")),
    }
}

fn threads(tag: Term<'_>, tids: Term<'_>, read: Term<'_>) -> Result<FileTold, TermError> {
    if !tag.is_atom("threads") {
        return Err(unexpected(tag, "what was asked for"));
    }
    let tids = tids.list()?.take(MOST_THREADS).map(tid).collect::<Result<_, _>>()?;
    let read = read.list()?.take(MOST_THREADS).map(thread).collect::<Result<_, _>>()?;
    Ok(FileTold::Threads { tids, read })
}

fn tid(term: Term<'_>) -> Result<u32, TermError> {
    u32::try_from(term.as_u64()?).map_err(|_| unexpected(term, "the number of a thread"))
}

fn thread(term: Term<'_>) -> Result<ThreadFiles, TermError> {
    let [number, stat, schedstat, status_end] = term.tuple_of()?;
    Ok(ThreadFiles {
        tid: tid(number)?,
        stat: bytes(stat, THREAD_BYTES)?,
        schedstat: bytes(schedstat, THREAD_BYTES)?,
        status_end: bytes(status_end, THREAD_BYTES)?,
    })
}

fn bytes(value: Term<'_>, max_bytes: usize) -> Result<Vec<u8>, TermError> {
    let bytes = value.as_bytes()?;
    if bytes.len() > max_bytes {
        return Err(unexpected(value, "no more bytes than were asked for"));
    }
    Ok(bytes.to_vec())
}

fn unexpected(term: Term<'_>, expected: &'static str) -> TermError {
    TermError::OutOfRange { expected, offset: term.offset() }
}

/// The system's words, and the agent's own.
fn trouble(why: &str) -> FileTrouble {
    match why {
        "enoent" | "enotdir" | "esrch" => FileTrouble::Missing,
        "eacces" | "eperm" => FileTrouble::Denied,
        "enotsup" | "eopnotsupp" => FileTrouble::Unsupported,
        "hung" => FileTrouble::Hung,
        "late" => FileTrouble::Late,
        other => FileTrouble::Other(printable(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::Word;
    use crate::agent::tests::{answer, map};
    use crate::etf::{Document, Limits, Value};

    fn read(path: &str, max_bytes: usize) -> FileAsk {
        FileAsk::Read { path: path.to_owned(), max_bytes }
    }

    /// What is made of an agent's `told`.
    fn check(asks: Vec<FileAsk>, told: Value<'static>) -> Result<Vec<FileTold>, String> {
        let cost = map(&[]);
        let value = map(&[("told", told)]);
        let times = [Value::from(2_000i64), Value::from(4i64)];
        let [begin, us] = times;
        let item = Value::tuple([Value::atom("host"), Value::atom("ok"), begin, us, value]);
        let bytes = answer(vec![item], cost).to_bytes().unwrap();
        let Ok(Word::Sample(answer)) = Word::parse(Document::decode(bytes, 0, Limits::default()).unwrap())
        else {
            panic!("no sample")
        };
        let files = of(&answer, asks).unwrap();
        assert_eq!((files.begin_ns, files.end_ns), (2_000, 6_000));
        let told = files.told.map_err(|trouble| trouble.reason)?;
        Ok(told.into_iter().map(|(_, told)| told).collect())
    }

    fn pair(tag: &'static str, value: Value<'static>) -> Value<'static> {
        Value::tuple([Value::atom(tag), value])
    }

    fn threads(tids: Vec<Value<'static>>, read: Vec<Value<'static>>) -> Value<'static> {
        Value::tuple([Value::atom("threads"), Value::List(tids), Value::List(read)])
    }

    fn content(bytes: &'static [u8]) -> Value<'static> {
        Value::binary(bytes)
    }

    #[test]
    fn each_word_of_the_agent_is_understood() {
        let asks = vec![
            read("/a", 9),
            read("/b", 2),
            read("/c", 9),
            FileAsk::Link("/l".to_owned()),
            FileAsk::Threads { all: true },
        ];
        let thread = Value::tuple([Value::from(7u64), content(b"7 (x)"), content(b""), content(b"end")]);
        let told = vec![
            pair("ok", content(b"\xff\0x")),
            pair("cut", content(b"ab")),
            pair("cut", content(b"ab")),
            pair("link", content(b"cgroup:[1]")),
            threads(vec![Value::from(7u64), Value::from(8u64)], vec![thread]),
        ];
        let expect = vec![
            FileTold::Content(b"\xff\0x".to_vec()),
            FileTold::Content(b"ab".to_vec()),
            FileTold::Cut(b"ab".to_vec()),
            FileTold::Link("cgroup:[1]".to_owned()),
            FileTold::Threads {
                tids: vec![7, 8],
                read: vec![ThreadFiles {
                    tid: 7,
                    stat: b"7 (x)".to_vec(),
                    schedstat: Vec::new(),
                    status_end: b"end".to_vec(),
                }],
            },
        ];
        assert_eq!(check(asks, Value::List(told)), Ok(expect));
        for (word, expect) in [
            ("enoent", FileTrouble::Missing),
            ("eacces", FileTrouble::Denied),
            ("enotsup", FileTrouble::Unsupported),
            ("hung", FileTrouble::Hung),
            ("late", FileTrouble::Late),
            ("refused", FileTrouble::Other("refused".to_owned())),
        ] {
            let told = Value::list([pair("error", Value::atom(word))]);
            assert_eq!(check(vec![FileAsk::Threads { all: true }], told), Ok(vec![FileTold::Failed(expect)]));
        }
    }

    #[test]
    fn what_was_not_asked_for_is_not_taken() {
        let refused = |ask: FileAsk, told: Value<'static>| {
            check(vec![ask], Value::list([told])).expect_err("refused");
        };
        refused(read("/a", 2), pair("ok", content(b"abc")));
        refused(read("/a", 2), pair("cut", content(b"abc")));
        refused(read("/a", 2), pair("count", Value::from(1u64)));
        refused(read("/a", 2), pair("ok", Value::from(1u64)));
        refused(read("/a", 2), Value::atom("ok"));
        refused(FileAsk::Count("/f".to_owned()), pair("count", Value::from(-1i64)));
        refused(FileAsk::Count("/f".to_owned()), pair("ok", content(b"abc")));
        refused(
            FileAsk::Threads { all: true },
            Value::tuple([Value::atom("threads"), Value::from(1u64), Value::List(vec![])]),
        );
        let long: &'static [u8] = &[b'x'; THREAD_BYTES + 1];
        for tid in [Value::from(-1i64), Value::from(1u64 << 40), content(b"1")] {
            let thread = Value::tuple([tid, content(b""), content(b""), content(b"")]);
            refused(FileAsk::Threads { all: true }, threads(vec![], vec![thread]));
        }
        let thread = Value::tuple([Value::from(1u64), content(long), content(b""), content(b"")]);
        refused(FileAsk::Threads { all: true }, threads(vec![], vec![thread]));
        // Too few; too many are not looked at.
        check(
            vec![FileAsk::Threads { all: true }, FileAsk::Threads { all: true }],
            Value::list([pair("error", Value::atom("late"))]),
        )
        .unwrap_err();
        let many = vec![Value::tuple([Value::from(1u64), content(b""), content(b""), content(b"")]); 3_000];
        let told = check(
            vec![FileAsk::Threads { all: true }],
            Value::list([threads(vec![Value::from(1u64); 3_000], many)]),
        )
        .unwrap();
        assert!(matches!(
            &told[..],
            [FileTold::Threads { tids, read }] if tids.len() == MOST_THREADS && read.len() == MOST_THREADS
        ));
    }

    #[test]
    fn what_real_agents_have_sent_is_understood() {
        let asks = vec![
            read("/proc/self/limits", 65_536),
            read("/proc/meminfo", 9),
            FileAsk::Link("/proc/self/ns/cgroup".to_owned()),
            FileAsk::Count("/proc/self/fd".to_owned()),
            FileAsk::Threads { all: true },
            read("/sys/fs/cgroup/beamtune-none/cpu.max", 64),
            read("/proc/self/environ", 64),
            read("/sys/fs/cgroup/../../../etc/passwd", 64),
        ];
        let fixture = |name: &str| {
            let path = format!("{}/../../agent/fixtures/{name}.etf", env!("CARGO_MANIFEST_DIR"));
            let bytes = std::fs::read(path).unwrap();
            Document::decode(bytes, 0, Limits::default()).unwrap()
        };
        // What we ask is what the agent's tests ask it.
        let request = fixture("request-sample-host");
        let [_, _, _, items, _] = request.root().tuple_of().unwrap();
        let item = items.list().unwrap().next().unwrap().to_value().unwrap();
        assert_eq!(crate::agent::host_item(&asks), item);
        for release in [23, 25, 27, 29] {
            let Ok(Word::Sample(answer)) = Word::parse(fixture(&format!("r{release}-sample-host"))) else {
                panic!("no sample")
            };
            assert!(answer.os_system_us.is_some());
            let told = of(&answer, asks.clone()).unwrap().told.unwrap();
            let told: Vec<&FileTold> = told.iter().map(|(_, told)| told).collect();
            let refused = FileTold::Failed(FileTrouble::Other("refused".to_owned()));
            let [
                FileTold::Content(limits),
                meminfo,
                FileTold::Link(link),
                FileTold::Count(files),
                threads,
                rest @ ..,
            ] = &told[..]
            else {
                panic!("{told:?}")
            };
            assert!(limits.starts_with(b"Limit ") && link.starts_with("cgroup:[") && *files > 2, "{told:?}");
            assert_eq!(**meminfo, FileTold::Content(b"MemTotal:".to_vec()));
            assert!(
                matches!(threads, FileTold::Threads { tids, read } if tids.len() > 4 && !read.is_empty()),
                "{threads:?}"
            );
            assert_eq!(rest, [&FileTold::Failed(FileTrouble::Missing), &refused, &refused]);
        }
    }
}
