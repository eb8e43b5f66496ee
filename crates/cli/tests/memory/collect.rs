//! Who holds binaries, what a collection of one process gives back, and what one of all would.

use std::time::Instant;

use serde_json::Value;

use super::common::{PATIENCE, TestNode, all_otps, beamtune, eval_in, folder, run};
use super::{bytes, page, said};

/// `keeper` has parts of 200 bytes of 80 binaries of 1 MB each, of which nobody else knows; `dropper` has dropped 60 such ones, and
/// does nothing since.
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

/// 4,000 processes that have had lists of different lengths, and each tenth of them a binary, and do nothing since.
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
fn who_keeps_binaries_alive_is_named_and_a_collection_gives_back_what_was_dropped() {
    for otp in all_otps() {
        let node = TestNode::start(&otp, &[], KEEPER_AND_DROPPER);
        let told = page(&node, &["--holders"]);
        let keeper = rows(&told, "holders").iter().find(|row| row["name"] == "keeper").expect("the keeper");
        assert_eq!(
            (&keeper["skipped"], &keeper["binaries"], &keeper["alone"]),
            (&Value::Null, &80.into(), &80.into())
        );
        assert!(bytes(&keeper["alone_bytes"]) >= 80e6 && bytes(&keeper["heap_bytes"]) < 1e6, "{keeper}");
        assert!(bytes(&told["held_bytes"]) >= 140e6, "{}", told["held_bytes"]);
        let found = rows(&told, "findings").iter().filter(|finding| finding["code"] == "BT026");
        let subjects: Vec<_> = found.filter_map(|finding| finding["subject"]["name"].as_str()).collect();
        assert!(subjects.contains(&"keeper"), "OTP {}: {subjects:?}", otp.release);

        let one = |name: &str| {
            let deadline = Instant::now() + PATIENCE;
            loop {
                let page = page(&node, &["--for", "1s", "--collect", name]);
                let collections = rows(&page, "collections");
                assert!(collections.len() <= 1, "{page:#}");
                // Beside the other tests, the node may not answer in time, or somebody may have to wait too long: then it ends before it
                // has begun.
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
        let binary =
            |row: &Value| bytes(&row["node_binary_before_bytes"]) - bytes(&row["node_binary_after_bytes"]);
        let kept = one("keeper");
        assert!(kept["collected"] == 1 && binary(&kept).abs() < 2e6, "OTP {}: {kept}", otp.release);
        let pid = eval_in(&node, "list_to_binary(pid_to_list(whereis(dropper)))");
        let pid = pid.trim_matches(|letter| "<\">".contains(letter));
        let dropped = one(&format!("<{pid}>"));
        assert!(dropped["collected"] == 1 && binary(&dropped) > 55e6, "OTP {}: {dropped}", otp.release);
        let nobody = said(&node, &["--for", "1s", "--collect", "no_such_process"]);
        assert!(nobody.stdout.contains("the node has no such process"), "{}", nobody.stdout);
    }
}

#[test]
fn what_a_collection_of_all_would_return_is_estimated_within_its_interval() {
    for otp in all_otps() {
        // Beside the other tests, somebody may have to wait too long: then it ends, as it should.
        let deadline = Instant::now() + 3 * PATIENCE;
        let (node, row, returns) = loop {
            let node = TestNode::start(&otp, &[], IDLE);
            let page = page(&node, &["--for", "1s", "--what-if", "collect"]);
            let [row] = rows(&page, "collections") else { panic!("{page:#}") };
            if row["stopped"] == "done" {
                break (node, row.clone(), page["returns"].clone());
            }
            assert!(Instant::now() < deadline, "each collection was stopped, the last so: {row}");
        };
        assert!(bytes(&row["processes"]) > 4_000.0 && row["collected"] == 1_000, "{row}");
        // What the others return.
        let rest = eval_in(
            &node,
            "Memory = fun() -> [N || {_, N} <- erlang:memory([processes, binary])] end,
             Before = Memory(),
             [garbage_collect(P) || P <- processes(), P =/= self()],
             %% What another scheduler has allocated is freed by that one, and later. Our own heap grows meanwhile.
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
            let (low, told, high) = (end("low_bytes"), end("bytes"), end("high_bytes"));
            eprintln!("OTP {}: {kind}: told {told:.0} ({low:.0} to {high:.0}), true {truth:.0}", otp.release);
            // Others on the node allocate meanwhile, and the agent does.
            let slack = 0.03 * truth + 1e6;
            assert!(
                low <= truth + slack && truth - slack <= high,
                "OTP {}: {kind}: {returns} of {truth}",
                otp.release
            );
            assert!((told - truth).abs() < 0.3 * truth, "OTP {}: {kind}: {told} of {truth}", otp.release);
        }
    }
}

#[test]
fn a_recording_collects_nothing_and_the_cost_is_said_first() {
    let Some(otp) = all_otps().pop() else { return };
    let node = TestNode::start(&otp, &[], "ok");
    let folder = folder();
    let file = folder.path().join("memory.btr");
    let path = file.to_str().expect("a path");
    let live = said(&node, &["--for", "1s", "--holders", "--what-if", "collect", "-o", path]);
    assert!(live.stderr.contains("collecting the garbage of at most 1000 processes"), "{}", live.stderr);
    assert!(live.stderr.contains("which binaries they refer to"), "{}", live.stderr);
    let again = run(beamtune().args(["memory", path]));
    assert!(
        again.stdout.contains("Collected were") && again.stdout.contains("who holds binaries"),
        "{}",
        again.stdout
    );
    for more in [&["--collect", "init"][..], &["--what-if", "collect"], &["--holders"]] {
        run(beamtune().args(["memory", path]).args(more)).assert_refused(&["is a recording"]);
    }
}
