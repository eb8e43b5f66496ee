//! Decodes files of the node's host, which the agent reads for the samples of the host. The content is untrusted.

use beamtune_model::{FileError, FileReply, FileRequest, SourceTrouble, ThreadFiles, TroubleKind};

use super::bounded_text;
use crate::agent::{Answer, Reading, Status};
use crate::error::printable;
use crate::etf::{Term, TermError};

/// Maximum number of threads in an honest agent's answer.
const MAX_THREADS: usize = 2_000;
/// Maximum size of one file of a thread.
const MAX_THREAD_FILE_BYTES: usize = 8 * 1024;

/// The files of an answer, and when they were read.
pub(crate) struct Files {
    /// Start of the reading, in nanoseconds of VM monotonic time.
    pub begin_ns: i64,
    /// End of the reading, in nanoseconds of VM monotonic time.
    pub end_ns: i64,
    /// The result of each request, or why the files could not be read.
    pub results: Result<Vec<(FileRequest, FileReply)>, SourceTrouble>,
}

/// Returns the results for the requests `asks`; `None` if the answer contains no files.
pub(crate) fn read(answer: &Answer, asks: Vec<FileRequest>) -> Option<Files> {
    let mut readings = answer.readings().ok()?;
    let reading = readings.find_map(|reading| reading.ok().filter(|Reading { item, .. }| *item == "host"))?;
    let trouble = |kind, reason: String| Err(SourceTrouble::new(kind, reason));
    let results = match reading.status {
        Status::Done(value) => {
            parse(value, asks).or_else(|error| trouble(TroubleKind::Garbled, error.to_string()))
        }
        Status::Unsupported => {
            let why = "the node's host is not Linux; beamtune can read files only from a Linux host";
            trouble(TroubleKind::Unsupported, why.to_owned())
        }
        Status::Failed(why) => trouble(TroubleKind::Garbled, printable(why)),
        Status::TimedOut(_) | Status::Skipped => {
            trouble(TroubleKind::TimedOut, "reading the files of the node's host took too long".to_owned())
        }
    };
    let read_ns = reading.cost_us.max(0).saturating_mul(1_000);
    Some(Files { begin_ns: reading.begin_ns, end_ns: reading.begin_ns.saturating_add(read_ns), results })
}

fn parse(value: Term<'_>, asks: Vec<FileRequest>) -> Result<Vec<(FileRequest, FileReply)>, TermError> {
    let list = value.field("told")?;
    let mut terms = list.list()?;
    let results = asks.into_iter().map(|ask| {
        let term = terms.next().ok_or_else(|| unexpected(list, "one result for each request"))?;
        let result = parse_result(&ask, term)?;
        Ok((ask, result))
    });
    results.collect()
}

/// Parses one result, which must be of the kind requested.
fn parse_result(ask: &FileRequest, term: Term<'_>) -> Result<FileReply, TermError> {
    if let (FileRequest::Threads { .. }, Ok([tag, tids, read])) = (ask, term.tuple_of()) {
        return threads(tag, tids, read);
    }
    let [tag, value] = term.tuple_of()?;
    match (tag.as_atom()?, ask) {
        ("error", _) => Ok(FileReply::Failed(trouble(value.as_atom()?))),
        ("ok", FileRequest::Read { max_bytes, .. }) => Ok(FileReply::Content(bytes(value, *max_bytes)?)),
        ("cut", FileRequest::Read { max_bytes, .. }) => {
            let content = bytes(value, *max_bytes)?;
            // The file is longer, but all requested bytes are present.
            Ok(if content.len() == *max_bytes {
                FileReply::Content(content)
            } else {
                FileReply::Truncated(content)
            })
        }
        ("link", FileRequest::Link(_)) => Ok(FileReply::Link(bounded_text(value)?.unwrap_or_default())),
        ("count", FileRequest::Count(_)) => Ok(FileReply::Count(value.as_u64()?)),
        _ => Err(unexpected(tag, "the kind of result requested")),
    }
}

fn threads(tag: Term<'_>, tids: Term<'_>, read: Term<'_>) -> Result<FileReply, TermError> {
    if !tag.is_atom("threads") {
        return Err(unexpected(tag, "the kind of result requested"));
    }
    let tids = tids.list()?.take(MAX_THREADS).map(tid).collect::<Result<_, _>>()?;
    let read = read.list()?.take(MAX_THREADS).map(thread).collect::<Result<_, _>>()?;
    Ok(FileReply::Threads { tids, read })
}

fn tid(term: Term<'_>) -> Result<u32, TermError> {
    u32::try_from(term.as_u64()?).map_err(|_| unexpected(term, "a thread id"))
}

fn thread(term: Term<'_>) -> Result<ThreadFiles, TermError> {
    let [number, stat, schedstat, status_end] = term.tuple_of()?;
    Ok(ThreadFiles {
        tid: tid(number)?,
        stat: bytes(stat, MAX_THREAD_FILE_BYTES)?,
        schedstat: bytes(schedstat, MAX_THREAD_FILE_BYTES)?,
        status_end: bytes(status_end, MAX_THREAD_FILE_BYTES)?,
    })
}

fn bytes(value: Term<'_>, max_bytes: usize) -> Result<Vec<u8>, TermError> {
    let bytes = value.as_bytes()?;
    if bytes.len() > max_bytes {
        return Err(unexpected(value, "no more bytes than requested"));
    }
    Ok(bytes.to_vec())
}

fn unexpected(term: Term<'_>, expected: &'static str) -> TermError {
    TermError::OutOfRange { expected, offset: term.offset() }
}

/// Converts the operating system's error names, and the agent's own.
fn trouble(why: &str) -> FileError {
    match why {
        "enoent" | "enotdir" | "esrch" => FileError::Missing,
        "eacces" | "eperm" => FileError::Denied,
        "enotsup" | "eopnotsupp" => FileError::Unsupported,
        "hung" => FileError::Hung,
        "late" => FileError::Late,
        other => FileError::Other(printable(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::AgentMessage;
    use crate::agent::tests::{answer, map};
    use crate::etf::{Document, Limits, Value};

    fn read_ask(path: &str, max_bytes: usize) -> FileRequest {
        FileRequest::Read { path: path.to_owned(), max_bytes }
    }

    /// Parses an agent's results.
    fn check(asks: Vec<FileRequest>, results: Value<'static>) -> Result<Vec<FileReply>, String> {
        let cost = map(&[]);
        let value = map(&[("told", results)]);
        let times = [Value::from(2_000i64), Value::from(4i64)];
        let [begin, us] = times;
        let item = Value::tuple([Value::atom("host"), Value::atom("ok"), begin, us, value]);
        let bytes = answer(vec![item], cost).to_bytes().unwrap();
        let Ok(AgentMessage::Sample(answer)) =
            AgentMessage::parse(Document::decode(bytes, 0, Limits::default()).unwrap())
        else {
            panic!("no sample")
        };
        let files = read(&answer, asks).unwrap();
        assert_eq!((files.begin_ns, files.end_ns), (2_000, 6_000));
        let results = files.results.map_err(|trouble| trouble.reason)?;
        Ok(results.into_iter().map(|(_, result)| result).collect())
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
    fn each_result_of_the_agent_is_parsed() {
        let asks = vec![
            read_ask("/a", 9),
            read_ask("/b", 2),
            read_ask("/c", 9),
            FileRequest::Link("/l".to_owned()),
            FileRequest::Threads { all: true },
        ];
        let thread = Value::tuple([Value::from(7u64), content(b"7 (x)"), content(b""), content(b"end")]);
        let results = vec![
            pair("ok", content(b"\xff\0x")),
            pair("cut", content(b"ab")),
            pair("cut", content(b"ab")),
            pair("link", content(b"cgroup:[1]")),
            threads(vec![Value::from(7u64), Value::from(8u64)], vec![thread]),
        ];
        let expect = vec![
            FileReply::Content(b"\xff\0x".to_vec()),
            FileReply::Content(b"ab".to_vec()),
            FileReply::Truncated(b"ab".to_vec()),
            FileReply::Link("cgroup:[1]".to_owned()),
            FileReply::Threads {
                tids: vec![7, 8],
                read: vec![ThreadFiles {
                    tid: 7,
                    stat: b"7 (x)".to_vec(),
                    schedstat: Vec::new(),
                    status_end: b"end".to_vec(),
                }],
            },
        ];
        assert_eq!(check(asks, Value::List(results)), Ok(expect));
        for (error, expect) in [
            ("enoent", FileError::Missing),
            ("eacces", FileError::Denied),
            ("enotsup", FileError::Unsupported),
            ("hung", FileError::Hung),
            ("late", FileError::Late),
            ("refused", FileError::Other("refused".to_owned())),
        ] {
            let results = Value::list([pair("error", Value::atom(error))]);
            let found = check(vec![FileRequest::Threads { all: true }], results);
            assert_eq!(found, Ok(vec![FileReply::Failed(expect)]));
        }
    }

    #[test]
    fn unrequested_results_are_errors() {
        let refused = |ask: FileRequest, result: Value<'static>| {
            check(vec![ask], Value::list([result])).expect_err("refused");
        };
        refused(read_ask("/a", 2), pair("ok", content(b"abc")));
        refused(read_ask("/a", 2), pair("cut", content(b"abc")));
        refused(read_ask("/a", 2), pair("count", Value::from(1u64)));
        refused(read_ask("/a", 2), pair("ok", Value::from(1u64)));
        refused(read_ask("/a", 2), Value::atom("ok"));
        refused(FileRequest::Count("/f".to_owned()), pair("count", Value::from(-1i64)));
        refused(FileRequest::Count("/f".to_owned()), pair("ok", content(b"abc")));
        refused(
            FileRequest::Threads { all: true },
            Value::tuple([Value::atom("threads"), Value::from(1u64), Value::List(vec![])]),
        );
        let long: &'static [u8] = &[b'x'; MAX_THREAD_FILE_BYTES + 1];
        for tid in [Value::from(-1i64), Value::from(1u64 << 40), content(b"1")] {
            let thread = Value::tuple([tid, content(b""), content(b""), content(b"")]);
            refused(FileRequest::Threads { all: true }, threads(vec![], vec![thread]));
        }
        let thread = Value::tuple([Value::from(1u64), content(long), content(b""), content(b"")]);
        refused(FileRequest::Threads { all: true }, threads(vec![], vec![thread]));
        // Too few results are an error; surplus threads are ignored.
        check(
            vec![FileRequest::Threads { all: true }, FileRequest::Threads { all: true }],
            Value::list([pair("error", Value::atom("late"))]),
        )
        .unwrap_err();
        let many = vec![Value::tuple([Value::from(1u64), content(b""), content(b""), content(b"")]); 3_000];
        let results = check(
            vec![FileRequest::Threads { all: true }],
            Value::list([threads(vec![Value::from(1u64); 3_000], many)]),
        )
        .unwrap();
        assert!(matches!(
            &results[..],
            [FileReply::Threads { tids, read }] if tids.len() == MAX_THREADS && read.len() == MAX_THREADS
        ));
    }

    #[test]
    fn fixtures_of_real_agents_are_parsed() {
        let asks = vec![
            read_ask("/proc/self/limits", 65_536),
            read_ask("/proc/meminfo", 9),
            FileRequest::Link("/proc/self/ns/cgroup".to_owned()),
            FileRequest::Count("/proc/self/fd".to_owned()),
            FileRequest::Threads { all: true },
            read_ask("/sys/fs/cgroup/beamtune-none/cpu.max", 64),
            read_ask("/proc/self/environ", 64),
            read_ask("/sys/fs/cgroup/../../../etc/passwd", 64),
        ];
        let fixture = |name: &str| {
            let path = format!("{}/../../agent/fixtures/{name}.etf", env!("CARGO_MANIFEST_DIR"));
            let bytes = std::fs::read(path).unwrap();
            Document::decode(bytes, 0, Limits::default()).unwrap()
        };
        // Our request must equal the one in the agent's tests.
        let request = fixture("request-sample-host");
        let [_, _, _, items, _] = request.root().tuple_of().unwrap();
        let item = items.list().unwrap().next().unwrap().to_value().unwrap();
        assert_eq!(crate::agent::host_item(&asks), item);
        for release in [23, 25, 27, 29] {
            let Ok(AgentMessage::Sample(answer)) =
                AgentMessage::parse(fixture(&format!("r{release}-sample-host")))
            else {
                panic!("no sample")
            };
            assert!(answer.os_system_us.is_some());
            let results = read(&answer, asks.clone()).unwrap().results.unwrap();
            let results: Vec<&FileReply> = results.iter().map(|(_, result)| result).collect();
            let refused = FileReply::Failed(FileError::Other("refused".to_owned()));
            let [
                FileReply::Content(limits),
                meminfo,
                FileReply::Link(link),
                FileReply::Count(files),
                threads,
                rest @ ..,
            ] = &results[..]
            else {
                panic!("{results:?}")
            };
            assert!(
                limits.starts_with(b"Limit ") && link.starts_with("cgroup:[") && *files > 2,
                "{results:?}"
            );
            assert_eq!(**meminfo, FileReply::Content(b"MemTotal:".to_vec()));
            assert!(
                matches!(threads, FileReply::Threads { tids, read } if tids.len() > 4 && !read.is_empty()),
                "{threads:?}"
            );
            assert_eq!(rest, [&FileReply::Failed(FileError::Missing), &refused, &refused]);
        }
    }
}
