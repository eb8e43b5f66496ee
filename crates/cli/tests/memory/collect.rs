//! Processes that hold binaries, the effect of a garbage collection of one process, and the estimate for all processes.

use std::time::Instant;

use serde_json::Value;

use super::common::{TIMEOUT, TestNode, all_otps, beamtune, eval_in, folder, run};
use super::{bytes, memory, page};

/// `keeper` holds sub-binaries of 200 bytes, which refer to 80 binaries of 1 MB that no other process refers to. `dropper` has dropped 60
/// such binaries, and has been idle since.
const KEEPER_AND_DROPPER: &str = "Self = self(),
    spawn(fun() ->
        register(keeper, self()),
        put(kept, [binary:part(binary:copy(<<3>>, 1000000), 5, 200) || _ <- lists:seq(1, 80)]),
        garbage_collect(),
        Self ! made, receive stop -> ok end
    end),
    spawn(fun() ->
        register(dropper, self()),
        put(dropped, length([binary:copy(<<4>>, 1000000) || _ <- lists:seq(1, 60)])),
        Self ! made, receive stop -> ok end
    end),
    receive made -> receive made -> ok end end";

/// 4,000 idle processes, which had lists of different lengths before. Every tenth also had a binary.
const IDLE: &str = "Self = self(),
    [spawn(fun() ->
         put(sum, lists:sum(lists:seq(1, 10 + rand:uniform(2000)))),
         case I rem 10 of 0 -> put(size, byte_size(binary:copy(<<5>>, 100000))); _ -> ok end,
         Self ! made, receive stop -> ok end
     end) || I <- lists:seq(1, 4000)],
    [receive made -> ok end || _ <- lists:seq(1, 4000)]";

fn rows<'p>(page: &'p Value, key: &str) -> &'p [Value] {
    page[key].as_array().expect("an array")
}

#[test]
fn processes_with_binaries_are_named_and_gc_frees_dropped_binaries() {
    for otp in all_otps() {
        let node = TestNode::start(&otp, &[], KEEPER_AND_DROPPER);
        let memory_page = page(&node, &["--holders"]);
        let keeper =
            rows(&memory_page, "holders").iter().find(|row| row["name"] == "keeper").expect("the keeper");
        assert_eq!(
            (&keeper["skipped"], &keeper["binaries"], &keeper["alone"]),
            (&Value::Null, &80.into(), &80.into())
        );
        assert!(bytes(&keeper["alone_bytes"]) >= 80e6 && bytes(&keeper["heap_bytes"]) < 1e6, "{keeper}");
        assert!(bytes(&memory_page["held_bytes"]) >= 140e6, "{}", memory_page["held_bytes"]);
        let found = rows(&memory_page, "findings").iter().filter(|finding| finding["code"] == "BT026");
        let subjects: Vec<_> = found.filter_map(|finding| finding["subject"]["name"].as_str()).collect();
        assert!(subjects.contains(&"keeper"), "OTP {}: {subjects:?}", otp.release);

        let collect = |name: &str| {
            let deadline = Instant::now() + TIMEOUT;
            loop {
                let page = page(&node, &["--for", "1s", "--collect", name]);
                let collections = rows(&page, "collections");
                assert!(collections.len() <= 1, "{page:#}");
                // On a busy host, the node may answer late, or other processes may have to wait too long. The GC then ends before it
                // begins.
                if let [row] = collections {
                    assert_eq!((&row["how"], &row["processes"]), (&"named".into(), &1.into()));
                    if row["stopped"] == "done" {
                        return row.clone();
                    }
                    assert_eq!((&row["stopped"], &row["collected"]), (&"latency".into(), &0.into()), "{row}");
                }
                assert!(Instant::now() < deadline, "OTP {}: {page:#}", otp.release);
            }
        };
        let freed =
            |row: &Value| bytes(&row["node_binary_before_bytes"]) - bytes(&row["node_binary_after_bytes"]);
        let keeper = collect("keeper");
        assert!(keeper["collected"] == 1 && freed(&keeper).abs() < 2e6, "OTP {}: {keeper}", otp.release);
        let pid = eval_in(&node, "list_to_binary(pid_to_list(whereis(dropper)))");
        let pid = pid.trim_matches(|letter| "<\">".contains(letter));
        let dropper = collect(&format!("<{pid}>"));
        assert!(dropper["collected"] == 1 && freed(&dropper) > 55e6, "OTP {}: {dropper}", otp.release);
        let nobody = memory(&node, &["--for", "1s", "--collect", "no_such_process"]);
        assert!(nobody.stdout.contains("the node has no such process"), "{}", nobody.stdout);
    }
}

#[test]
fn interval_of_the_estimate_contains_the_true_value() {
    for otp in all_otps() {
        // On a busy host, other processes may have to wait too long. Then the GC ends early, as it should.
        let deadline = Instant::now() + 3 * TIMEOUT;
        let (node, row, returns) = loop {
            let node = TestNode::start(&otp, &[], IDLE);
            let page = page(&node, &["--for", "1s", "--what-if", "collect"]);
            let [row] = rows(&page, "collections") else { panic!("{page:#}") };
            if row["stopped"] == "done" {
                break (node, row.clone(), page["returns"].clone());
            }
            assert!(Instant::now() < deadline, "every attempt was stopped, last: {row}");
        };
        assert!(bytes(&row["processes"]) > 4_000.0 && row["collected"] == 1_000, "{row}");
        // The memory that a GC of all other processes frees.
        let rest = eval_in(
            &node,
            "Memory = fun() -> [N || {_, N} <- erlang:memory([processes, binary])] end,
             Before = Memory(),
             [garbage_collect(P) || P <- processes(), P =/= self()],
             %% Memory that another scheduler allocated is freed later, by that scheduler. The caller's heap grows meanwhile.
             Settled = fun Settled(0, Was) -> exit({does_not_settle, Was});
                           Settled(Left, [Heaps, Binaries]) ->
                               receive after 100 -> ok end,
                               case Memory() of
                                   [H, Binaries] when abs(H - Heaps) < 100000 -> [H, Binaries];
                                   Is -> Settled(Left - 1, Is)
                               end
                       end,
             [Now, Then] = [Settled(100, Memory()), Before],
             list_to_binary(lists:join(\" \", [integer_to_list(B - A) || {B, A} <- lists:zip(Then, Now)]))",
        );
        let rest: Vec<f64> = rest
            .trim_matches(|letter| "<\">".contains(letter))
            .split(' ')
            .map(|number| number.parse().unwrap_or_else(|_| panic!("{rest}")))
            .collect();
        for (kind, node_kind, rest) in [("heaps", "processes", rest[0]), ("binaries", "binary", rest[1])] {
            let at = |when: &str| bytes(&row[format!("node_{node_kind}_{when}_bytes")]);
            let truth = at("before") - at("after") + rest;
            let end = |key: &str| bytes(&returns[kind][key]);
            let (low, estimate, high) = (end("low_bytes"), end("bytes"), end("high_bytes"));
            eprintln!(
                "OTP {}: {kind}: estimated {estimate:.0} ({low:.0} to {high:.0}), true {truth:.0}",
                otp.release
            );
            // Other processes and the agent allocate memory during the measurement.
            let slack = 0.03 * truth + 1e6;
            assert!(
                low <= truth + slack && truth - slack <= high,
                "OTP {}: {kind}: {returns} of {truth}",
                otp.release
            );
            assert!(
                (estimate - truth).abs() < 0.3 * truth,
                "OTP {}: {kind}: {estimate} of {truth}",
                otp.release
            );
        }
    }
}

#[test]
fn gc_is_refused_for_a_recording_and_its_cost_is_printed_first() {
    let Some(otp) = all_otps().pop() else { return };
    let node = TestNode::start(&otp, &[], "ok");
    let folder = folder();
    let file = folder.path().join("memory.btr");
    let path = file.to_str().expect("a path");
    let live = memory(&node, &["--for", "1s", "--holders", "--what-if", "collect", "-o", path]);
    assert!(live.stderr.contains("garbage collection of up to 1000 processes"), "{}", live.stderr);
    assert!(live.stderr.contains("listing the binaries of up to"), "{}", live.stderr);
    let again = run(beamtune().args(["memory", path]));
    assert!(
        again.stdout.contains("GC of ") && again.stdout.contains("refers to binaries"),
        "{}",
        again.stdout
    );
    for more in [&["--collect", "init"][..], &["--what-if", "collect"], &["--holders"]] {
        run(beamtune().args(["memory", path]).args(more)).assert_refused(&["is a recording"]);
    }
}
