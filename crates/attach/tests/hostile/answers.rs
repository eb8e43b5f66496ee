//! Answers of an agent on a small node, and functions that change them.

#![allow(dead_code, reason = "each of the two test programs uses only a part")]

use beamtune_attach::etf::{Pid, Value};

use super::peer::send;

/// Returns a number with nearly 10,000 decimal digits, more than any clock or counter has.
pub fn huge() -> Value<'static> {
    let digits = vec![0x7F; 4_150];
    let head = [&[131, b'o'][..], &(digits.len() as u32).to_be_bytes(), &[0]].concat();
    Value::Encoded([head, digits].concat().into())
}

fn atom(name: &'static str) -> Value<'static> {
    Value::atom(name)
}

fn text(text: &str) -> Value<'static> {
    Value::binary(text.as_bytes().to_vec())
}

fn map(pairs: &[(&'static str, Value<'static>)]) -> Value<'static> {
    Value::Map(pairs.iter().map(|(key, value)| (atom(key), value.clone())).collect())
}

fn int(number: i64) -> Value<'static> {
    Value::from(number)
}

fn ints(numbers: impl IntoIterator<Item = i64>) -> Vec<Value<'static>> {
    numbers.into_iter().map(Value::from).collect()
}

fn call(module: &str) -> Value<'static> {
    Value::tuple([text(module), text("init"), int(1)])
}

/// Builds the value of an item that is read in parts, with additional pairs `more`.
fn part(more: &[(&'static str, Value<'static>)]) -> Value<'static> {
    let numbers = [("total", 40), ("scanned", 40), ("round", 1), ("part", 1)];
    let mut pairs: Vec<_> = numbers.map(|(key, number)| (key, int(number))).to_vec();
    pairs.push(("last", Value::from(true)));
    pairs.extend_from_slice(more);
    map(&pairs)
}

/// Returns the value of one item on a small node, in the `n`th sample.
pub fn item(name: &str, n: i64) -> Value<'static> {
    let second = 1_000_000_000;
    match name {
        "facts" => map(&[
            ("otp_release", text("25")),
            ("erts_version", text("13.1.5")),
            ("system_version", text("Erlang/OTP 25")),
            ("system_architecture", text("x86_64-pc-linux-gnu")),
            ("build_type", text("opt")),
            ("emu_flavor", text("jit")),
            ("word_bytes", int(8)),
            ("os_pid", int(7)),
            ("creation", int(9)),
            ("node", text("n@h.i")),
            ("start_ns", int(-10 * second)),
            ("native_per_s", int(second)),
            ("perf_counter_per_s", int(second)),
            ("emu_args", Value::list([text("beam.smp"), text("-P"), text("5000")])),
            ("init_args", Value::list([Value::tuple([text("root"), Value::list([text("/lib")])])])),
            (
                "env",
                Value::list([Value::tuple([text("ERL_FLAGS"), Value::list([text("+P"), text("5000")])])]),
            ),
            (
                "log_handlers",
                Value::list([Value::tuple([
                    text("app_log"),
                    text("app"),
                    int(10),
                    int(200),
                    int(1_000),
                    atom("true"),
                    int(500),
                ])]),
            ),
            ("schedulers", int(2)),
            ("schedulers_online", int(2)),
            ("dirty_cpu_schedulers", int(2)),
            ("dirty_cpu_schedulers_online", int(2)),
            ("dirty_io_schedulers", int(1)),
            ("scheduler_bind_type", text("unbound")),
            ("scheduler_bindings", Value::list([atom("unbound"), atom("unbound")])),
            ("logical_processors", int(2)),
            ("process_limit", int(5_000)),
            ("time_warp_mode", text("no_time_warp")),
            ("message_queue_data", text("on_heap")),
            ("alloc_util_allocators", Value::list([text("eheap_alloc")])),
            ("disabled_allocators", Value::list([])),
            (
                "applications",
                Value::list([Value::tuple([text("rabbit"), text("3.10.8"), Value::from(true)])]),
            ),
        ]),
        "msacc" => {
            let thread = |kind, id, counters: [i64; 3]| {
                Value::tuple([
                    atom(kind),
                    int(id),
                    Value::List(ints(counters.map(|count| count * n * second / 10))),
                ])
            };
            map(&[
                ("states", Value::list([atom("emulator"), atom("gc"), atom("sleep")])),
                (
                    "threads",
                    Value::list([
                        thread("scheduler", 1, [5, 1, 4]),
                        thread("scheduler", 2, [5, 1, 4]),
                        thread("aux", 1, [1, 1, 8]),
                    ]),
                ),
            ])
        }
        "scheduler_wall_time" => {
            let row = |id| Value::Tuple(ints([id, n * second / 2, n * second]));
            map(&[("rows", Value::List((1..=5).map(row).collect()))])
        }
        "run_queues" => {
            map(&[("lengths", Value::List(ints([3, 9, 0, 1]))), ("active", Value::List(ints([4, 10, 0, 1])))])
        }
        "statistics" => map(&[
            ("reductions", int(10_000_000 * n)),
            ("gc_count", int(100 * n)),
            ("gc_reclaimed_words", int(1_000_000 * n)),
            ("io_in_bytes", int(5 * n)),
            ("io_out_bytes", int(6 * n)),
            ("context_switches", int(1_000 * n)),
        ]),
        "memory" => map(&[("total", int(3 << 30)), ("processes", int(2 << 30)), ("system", int(1 << 30))]),
        "counts" => {
            map(&[("processes", int(40)), ("ports", int(5)), ("atoms", int(10_000)), ("ets", int(20))])
        }
        "check_io" => {
            let set = [text("epoll"), Value::from(false), int(1), int(5), int(2), int(0), int(10)];
            map(&[("max_fds", int(1_024)), ("pollsets", Value::list([Value::tuple(set)]))])
        }
        "procs" => part(&[
            ("delta_reductions", int(1_000_000)),
            ("new", int(1)),
            ("gone", int(2)),
            ("queue_sum", int(50_000)),
            ("queue_max", int(49_000)),
            ("queue_nonempty", int(2)),
            (
                "top_reductions",
                Value::list([Value::tuple([text("<0.1.0>"), int(900_000), int(49_000), atom("running")])]),
            ),
            (
                "top_queues",
                Value::list([Value::tuple([text("<0.2.0>"), int(49_000), int(5), atom("waiting")])]),
            ),
            ("step_us", int(50)),
            ("skipped", Value::list([Value::tuple([text("<0.3.0>"), int(60_000)])])),
        ]),
        "events" => map(&[
            ("how", atom("monitor")),
            ("floods", int(n)),
            ("counts", Value::list([Value::tuple([atom("long_gc"), int(n), int(200 * n)])])),
            ("lost", int(0)),
            (
                "rows",
                Value::list([
                    map(&[
                        ("kind", atom("long_gc")),
                        ("at_ns", int(0)),
                        ("subject", text("<0.1.0>")),
                        ("name", text("boss")),
                        ("value", int(200)),
                        ("heap_bytes", int(1 << 30)),
                        ("in", call("a")),
                        ("out", call("b")),
                    ]),
                    map(&[
                        ("kind", atom("busy_port")),
                        ("at_ns", int(5)),
                        ("subject", text("<0.2.0>")),
                        ("label", text("waiter")),
                        ("value", int(0)),
                        ("port", text("#Port<0.1>")),
                        ("port_kind", text("tcp_inet")),
                    ]),
                ]),
            ),
        ]),
        "processes" => part(&[
            (
                "at_work",
                Value::list([Value::tuple([
                    text("boss"),
                    call("shop"),
                    atom("ran"),
                    Value::list([call("shop"), call("gen_server")]),
                    int(12),
                ])]),
            ),
            (
                "rows",
                Value::list([map(&[
                    ("pid", text("<0.1.0>")),
                    ("by", Value::list([atom("queue"), atom("memory")])),
                    ("name", text("boss")),
                    ("label", text("the boss")),
                    ("initial_call", call("Elixir.My.Worker")),
                    ("current_function", call("gen_server")),
                    ("application", text("shop")),
                    ("status", atom("waiting")),
                    ("message_queue_data", atom("on_heap")),
                    ("reductions", int(1_000_000 * n)),
                    ("message_queue_len", int(49_000)),
                    ("heap_bytes", int(1 << 30)),
                    ("binary_vheap_bytes", int(1 << 28)),
                    ("memory_bytes", int(1 << 31)),
                    ("fragment_bytes", int(1 << 20)),
                    ("minor_gcs", int(3)),
                    ("fullsweep_after", int(65_535)),
                    ("min_heap_size_words", int(233)),
                    ("parent", text("<0.0.0>")),
                ])]),
            ),
        ]),
        "spawns" => map(&[
            ("new", int(20)),
            ("sampled", int(20)),
            ("given", Value::list([Value::tuple([call("worker"), text("boss"), int(5), int(5_000_000)])])),
            ("calls", Value::list([Value::tuple([call("worker"), text("boss"), call("sup"), int(20)])])),
        ]),
        "atoms" => map(&[
            ("new", int(400)),
            ("sampled", int(50)),
            ("beginnings", Value::list([Value::tuple([text("cart-"), int(45)])])),
        ]),
        "stands" => {
            let wanted = Value::list([Value::tuple([text("<0.1.0>"), int(30)])]);
            let at = || Value::list([call("gen"), call("shop")]);
            let held = [text("<0.1.0>"), atom("waiting"), int(3), at(), Value::list([text("<0.2.0>")])];
            map(&[
                ("total", int(40)),
                ("sampled", int(40)),
                ("waiting", int(35)),
                ("rows", Value::list([Value::tuple([at(), int(30), int(2), wanted])])),
                ("waited_for", Value::list([Value::tuple(held)])),
            ])
        }
        "ran" => map(&[("sampled", int(5))]),
        "broker" => map(&[
            ("connections", int(3)),
            ("channels", int(7)),
            ("queues", int(2)),
            ("connections_opened", int(10 * n)),
            ("channels_closed", int(20 * n)),
            ("queues_declared", int(5 * n)),
            ("logins_failed", int(n)),
        ]),
        "broker_clients" => {
            let client =
                Value::tuple([text("worker"), text("guest"), int(9 * n), int(8 * n), int(n), int(100)]);
            let queue = map(&[
                ("name", text("orders")),
                ("ready", int(5_000 * n)),
                ("unacked", int(100)),
                ("consumers", int(1)),
                ("prefetch", int(0)),
                ("unlimited", int(1)),
                ("ttl_ns", int(30_000_000_000)),
                ("max_length", int(1_000)),
                ("delivered", int(9 * n)),
                ("redelivered", int(8 * n)),
                ("acknowledged", int(n)),
                ("clients", Value::list([client])),
            ]);
            let connection = [text("worker"), text("guest"), int(300), Value::from(true)];
            let opener = [atom("channels"), text("worker"), text("guest"), int(40)];
            map(&[
                ("statistics", int(2)),
                ("published", int(100 * n)),
                ("dead_lettered_rejected", int(50 * n)),
                ("dead_lettered_expired", int(50 * n)),
                ("memory_alarm", int(1)),
                ("memory_limit", int(1 << 30)),
                ("disk_free", int(1 << 30)),
                ("blocked", int(1)),
                ("queue_rows", Value::list([queue])),
                ("connection_rows", Value::list([Value::tuple(connection)])),
                ("openers", Value::list([Value::tuple(opener)])),
            ])
        }
        "crashes" => {
            let frame = Value::tuple([call("shop"), int(33)]);
            let row = map(&[
                ("parent", text("<0.1.0>")),
                ("parent_name", text("shop_sup")),
                ("parent_call", call("supervisor")),
                ("call", call("shop")),
                ("reason", text("badmatch")),
                ("stack", Value::list([frame])),
                ("to", text("")),
                ("count", int(3)),
                ("heap_limit_words", int(0)),
            ]);
            map(&[
                ("monitored", int(5)),
                ("supervisors", int(9)),
                ("lost", int(0)),
                ("rows", Value::list([row])),
            ])
        }
        "weigh" => map(&[("sampled", int(30))]),
        "messages" => map(&[
            ("active", int(30)),
            ("sampled", int(30)),
            ("us", int(11_000)),
            ("off_heap", int(1)),
            ("sizes", Value::list([Value::tuple([int(4), int(400)]), Value::tuple([int(2), int(900_000)])])),
            ("rows", Value::list([Value::tuple([text("<0.1.0>"), int(2), int(900_000)])])),
        ]),
        "ets" => part(&[
            (
                "rows",
                Value::list([map(&[
                    ("id", text("")),
                    ("name", text("carts")),
                    ("memory_bytes", int(1_000_000_000)),
                    ("size", int(1_000_000)),
                    ("type", atom("set")),
                    ("protection", atom("public")),
                    ("write_concurrency", atom("auto")),
                    ("owner", text("<0.1.0>")),
                    ("owner_name", text("boss")),
                ])]),
            ),
            (
                "owners",
                Value::list([map(&[
                    ("owner", text("<0.1.0>")),
                    ("owner_name", text("boss")),
                    ("tables", int(900)),
                ])]),
            ),
        ]),
        "table_growth" => map(&[
            ("followed", int(20)),
            ("rows", Value::list([Value::tuple([text("carts"), int(100 * n), int(64_000 * n)])])),
            (
                "ended",
                Value::list([Value::tuple([text("carts"), int(100), atom("in_key"), int(100), int(98)])]),
            ),
            (
                "binaries",
                Value::list([Value::tuple([
                    text("carts"),
                    int(100 * n),
                    int(100),
                    int(0),
                    int(100),
                    int(9_000),
                    int(900_000),
                    int(900_000),
                ])]),
            ),
            (
                "holders",
                Value::list([map(&[
                    ("id", text("")),
                    ("name", text("carts")),
                    ("size", int(100 * n)),
                    ("memory_bytes", int(64_000 * n)),
                    ("type", atom("set")),
                    ("protection", atom("public")),
                    ("owner", text("<0.1.0>")),
                ])]),
            ),
        ]),
        "ports" => part(&[
            ("kinds", Value::list([Value::tuple([text("tcp_inet"), int(5)])])),
            (
                "owners",
                Value::list([map(&[
                    ("kind", text("tcp_inet")),
                    ("owner", text("<0.1.0>")),
                    ("owner_name", text("boss")),
                    ("ports", int(3)),
                ])]),
            ),
            (
                "rows",
                Value::list([map(&[
                    ("id", text("#Port<0.5>")),
                    ("kind", text("tcp_inet")),
                    ("in_bytes", int(5 * n)),
                    ("out_bytes", int(6 * n)),
                    ("queue_bytes", int(10_000_000)),
                    ("owner", text("<0.1.0>")),
                ])]),
            ),
        ]),
        "dist" => map(&[
            ("mnesia", Value::list([Value::tuple([text("other@h.i"), atom("false")])])),
            (
                "rows",
                Value::list([map(&[
                    ("node", text("other@h.i")),
                    ("in_bytes", int(5 * n)),
                    ("out_bytes", int(6 * n)),
                    ("queue_bytes", int(2 << 20)),
                ])]),
            ),
        ]),
        "traces" => map(&[
            ("sampled", int(25)),
            ("sessions", int(1)),
            (
                "rows",
                Value::list([map(&[
                    ("tracer", text("<0.1.0>")),
                    ("session", text("watch")),
                    ("traced", int(5)),
                    ("new", atom("true")),
                    ("flags", Value::list([atom("call"), atom("procs")])),
                ])]),
            ),
        ]),
        "allocators" => {
            let set = |scale: i64| {
                Value::Tuple(ints([5, 5_000, 2, 32_768, 6_000, 3, 65_536, 1, 4_096].map(|x| x * scale)))
            };
            let instance = |name, id| Value::tuple([text(name), int(id), set(1), set(1), set(1), set(n)]);
            map(&[
                ("instances", Value::list([instance("eheap_alloc", 0), instance("binary_alloc", 1)])),
                ("foreign", Value::list([Value::tuple([text("ll_alloc"), text("eheap_alloc"), int(5)])])),
                ("fixed", Value::list([Value::tuple([text("monitor"), int(128 * n)])])),
                ("mseg", Value::list([Value::Tuple(ints(0..12))])),
                ("mmap", Value::list([map(&[("kind", text("default_mmap")), ("os_bytes", int(5))])])),
            ])
        }
        // The scripted node is treated as one on another host, which has none of these files. At most 128 files are requested.
        "host" => {
            let absent = Value::tuple([atom("error"), atom("enoent")]);
            map(&[("told", Value::List(vec![absent; 128]))])
        }
        other => panic!("{other} is no item"),
    }
}

/// Applies `change` to every subterm of a value, innermost first.
pub fn each(
    value: Value<'static>,
    change: &mut impl FnMut(Value<'static>) -> Value<'static>,
) -> Value<'static> {
    let value = match value {
        Value::Tuple(elements) => Value::Tuple(elements.into_iter().map(|e| each(e, change)).collect()),
        Value::List(elements) => Value::List(elements.into_iter().map(|e| each(e, change)).collect()),
        // Keys stay unchanged, because they are looked up by name.
        Value::Map(pairs) => {
            Value::Map(pairs.into_iter().map(|(key, value)| (key, each(value, change))).collect())
        }
        leaf => leaf,
    };
    change(value)
}

/// Returns the time of a request in seconds: its sequence number. (Requests before the first sample have very high numbers, of
/// which only the lower half is used.)
fn time_of(seq: u64) -> i64 {
    i64::from(seq as u32)
}

/// Builds the frame that answers a sample request with these items.
pub fn answer(to: &Pid, seq: u64, items: impl IntoIterator<Item = (String, Value<'static>)>) -> Vec<u8> {
    let begin = time_of(seq) * 1_000_000_000;
    let item = |(name, value): (String, Value<'static>)| {
        Value::tuple([Value::Atom(name.into()), atom("ok"), int(begin), int(40), value])
    };
    let agent = map(&[
        ("agent_reductions", int(1_000)),
        ("collector_reductions", int(500)),
        ("memory_bytes", int(50_000)),
    ]);
    let content = map(&[
        ("begin_ns", int(begin)),
        ("end_ns", int(begin + 1_000_000)),
        ("agent", agent),
        ("items", Value::List(items.into_iter().map(item).collect())),
    ]);
    let word = Value::tuple([atom("beamtune"), atom("sample"), Value::from(seq), content]);
    send(to, &word.to_bytes().expect("a term"))
}

/// As [`answer`], with the items of a small node after `change` was applied to them.
pub fn usual_answer(
    to: &Pid,
    seq: u64,
    items: &[String],
    mut change: impl FnMut(&str, Value<'static>) -> Value<'static>,
) -> Vec<u8> {
    let values = items.iter().map(|name| (name.clone(), change(name, item(name, time_of(seq) + 1))));
    answer(to, seq, values.collect::<Vec<_>>())
}
