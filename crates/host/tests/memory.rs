//! Memory contents of real VMs of each release, compared with the numbers that the VMs report themselves.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod common;

use std::collections::BTreeMap;
use std::process::Command;

use beamtune_model::memory::{content, mapping};
use beamtune_model::{Sample, facts, metrics};
use common::{
    Otp, Recorder, Running, WITHOUT_LIMIT, eventually, eventually_or, installed, is_root, on_each_release,
};

const MIB: i64 = 1 << 20;
/// Tolerance for the PSS: when other programs start or end, the PSS of shared libraries changes by some pages.
const PSS_MOVES: i64 = MIB / 8;

/// For the line `sizes`, prints the sizes of all carriers and the number of cached segments; evaluates any other line.
const TALK: &str = r#"
    Sizes = fun(A) ->
        Set = fun(Key, Instance) ->
            case lists:keyfind(Key, 1, Instance) of
                {_, Values} -> element(2, lists:keyfind(carriers_size, 1, Values));
                false -> 0
            end
        end,
        case erlang:system_info({allocator_sizes, A}) of
            false -> ok;
            Instances ->
                [io:format("~s/~s ~p~n", [A, Name, lists:sum([Set(Key, I) || {instance, _, I} <- Instances])])
                 || {Key, Name} <- [{mbcs, mbcs}, {sbcs, sbcs}, {mbcs_pool, pool}]]
        end
    end,
    Cached = fun() ->
        lists:sum([element(2, lists:keyfind(cached_segments, 1, Status))
                   || {instance, _, I} <- erlang:system_info({allocator, mseg_alloc}),
                      {memkind, Kind} <- I, {status, Status} <- Kind])
    end,
    Talk = fun Talk() ->
        case io:get_line("") of
            eof -> halt();
            "sizes\n" ->
                [Sizes(A) || A <- erlang:system_info(alloc_util_allocators)],
                io:format("cached ~p~nend~n", [Cached()]);
            Line ->
                {ok, Tokens, _} = erl_scan:string(Line),
                {ok, Expressions} = erl_parse:parse_exprs(Tokens),
                erl_eval:exprs(Expressions, []),
                io:format("done~n")
        end,
        Talk()
    end,
    Talk()"#;

/// Allocates 60 MB of lists, tables, and small and large binaries.
const FILL: &str = r#"
    T = ets:new(t, [public]),
    [ets:insert(T, {X, lists:seq(1, 20), <<X:800>>}) || X <- lists:seq(1, 30000)],
    put(table, T),
    put(processes, [spawn(fun() ->
        put(l, [{X, integer_to_list(X)} || X <- lists:seq(1, 10000)]),
        receive stop -> ok end
    end) || _ <- lists:seq(1, 20)]),
    put(large, [binary:copy(<<X>>, 700000 + X * 1000) || X <- lists:seq(1, 20)]),
    put(small, [binary:copy(<<X>>, 3000) || X <- lists:seq(1, 4000)])."#;

/// Frees most of this memory, in an order that leaves holes.
const EMPTY: &str = r#"
    [exit(P, kill) || P <- lists:nthtail(2, get(processes))],
    put(large, [B || {N, B} <- lists:zip(lists:seq(1, 20), get(large)), N rem 5 =:= 0]),
    put(small, [B || {N, B} <- lists:zip(lists:seq(1, 4000), get(small)), N rem 20 =:= 0]),
    ets:delete(get(table)), garbage_collect()."#;

/// A VM that evaluates expressions, and prints the sizes of its carriers.
struct Talker(Running);

impl Talker {
    fn start(otp: &Otp, arguments: &[&str]) -> Talker {
        Talker(otp.start_with_input(arguments, TALK))
    }

    fn run(&mut self, expression: &str) {
        self.0.tell(&expression.split_whitespace().collect::<Vec<_>>().join(" "));
        self.0.line("done");
    }

    /// Returns the size of carriers by allocator and list, in bytes, and the number of cached segments.
    fn sizes(&mut self) -> BTreeMap<String, i64> {
        self.0.tell("sizes");
        let lines = std::iter::from_fn(|| Some(self.0.line("")).filter(|line| line != "end"));
        let pair =
            |line: String| line.split_once(' ').map(|(name, size)| (name.to_owned(), size.parse().unwrap()));
        lines.filter_map(pair).collect()
    }

    /// Reads a memory map that agrees with the VM's own numbers from directly before and after the read. This may need several attempts:
    /// the VM empties its segment cache over time, and printing the sizes needs memory, too.
    fn quiet_map(&mut self, recorder: &mut Recorder, about: &str) -> Map {
        let what = format!("a moment without changes in {about}");
        eventually_or(&what, || {
            let before = self.sizes();
            let map = Map::read(recorder);
            let after = self.sizes();
            if after != before {
                return Err(format!("the VM's own sizes changed: {before:?} became {after:?}"));
            }
            map.differs_from(&before).map_or(Ok(map), Err)
        })
    }
}

/// Reads a memory map of a VM that prints no sizes, at a moment when its resident memory does not change.
fn still_map(pid: u32, recorder: &mut Recorder) -> Map {
    eventually_or("a moment when the resident memory does not change", || {
        let before = rollup(pid, "Rss");
        let map = Map::read(recorder);
        let after = rollup(pid, "Rss");
        let (found, recorded) = (map.all_resident(), map.rss);
        match before == after && found == recorded && recorded == after {
            true => Ok(map),
            false => Err(format!("{before} bytes, then {found} found and {recorded} recorded, then {after}")),
        }
    })
}

/// Reads the kernel's sum of a value over all mappings of a process, in bytes.
fn rollup(pid: u32, name: &str) -> i64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<i64>().unwrap() * 1024
}

/// The recorded memory map of a VM.
struct Map {
    sample: Sample,
    counts: BTreeMap<String, i64>,
    sizes: BTreeMap<String, i64>,
    resident: BTreeMap<String, i64>,
    in_use: BTreeMap<String, i64>,
    mapped: BTreeMap<String, i64>,
    pss: i64,
    rss: i64,
}

impl Map {
    fn read(recorder: &mut Recorder) -> Map {
        // After an expensive read, the memory is not read for some time.
        let sample = eventually("a sample with the memory", || {
            let sample = recorder.sample(true);
            (!recorder.values(&sample, &metrics::CONTENT_COST).is_empty()).then_some(sample)
        });
        let all = |metric| recorder.values(&sample, metric).into_iter().collect();
        let value = |metric| recorder.value(&sample, metric, "").unwrap();
        let (pss, rss) = (value(&metrics::PSS), value(&metrics::RSS));
        Map {
            counts: all(&metrics::CONTENT_COUNT),
            sizes: all(&metrics::CONTENT_SIZE),
            resident: all(&metrics::CONTENT_RESIDENT),
            in_use: all(&metrics::CONTENT_IN_USE),
            mapped: all(&metrics::MAPPING_RESIDENT),
            pss,
            rss,
            sample,
        }
    }

    fn all_resident(&self) -> i64 {
        self.resident.values().sum()
    }

    fn of(values: &BTreeMap<String, i64>, entity: &str) -> i64 {
        values.get(entity).copied().unwrap_or(0)
    }

    /// Returns the first difference from the numbers of the VM and the kernel: carriers, cached segments, resident memory.
    fn differs_from(&self, vm: &BTreeMap<String, i64>) -> Option<String> {
        let ours = |name: &str| match name {
            "cached" => Map::of(&self.counts, content::MSEG_CACHE),
            "rss" => self.all_resident(),
            carriers => Map::of(&self.sizes, &format!("{}/{carriers}", content::CARRIERS)),
        };
        let rss = ("rss".to_owned(), self.rss);
        let reported = vm.iter().map(|(name, value)| (name.clone(), *value)).chain([rss]);
        let mut differing = reported.filter(|(name, value)| ours(name) != *value);
        differing.next().map(|(name, value)| format!("{name}: {} found, {value} reported", ours(&name)))
    }

    fn assert_is_whole(&self, about: &str) {
        let gaps: Vec<_> = self.sample.gaps.iter().filter(|gap| gap.source != "host.schedstat").collect();
        assert!(gaps.is_empty(), "{about}: {gaps:?}");
        let (all, unknown) = (self.all_resident(), Map::of(&self.resident, content::UNKNOWN));
        println!("{about}: {} kB of {} kB unknown, {:?}", unknown / 1024, all / 1024, self.resident);
        assert_eq!(all, self.mapped.values().sum::<i64>(), "{about}");
        assert!(unknown <= all * 3 / 100, "{about}: {unknown} of {all} unknown: {:?}", self.resident);
    }
}

/// Creates a recorder without cost limits.
fn recorder(pid: u32) -> Recorder {
    let mut recorder = Recorder::of(pid);
    recorder.source.set_memory_budget(WITHOUT_LIMIT);
    recorder
}

#[test]
fn carriers_and_cached_segments_agree_with_the_vms_numbers() {
    on_each_release(|otp| {
        let check = |about: &str, arguments: &[&str]| {
            let mut vm = Talker::start(otp, arguments);
            let mut recorder = recorder(vm.0.pid());
            for (when, expression) in [("at first", "ok."), ("filled", FILL), ("emptied", EMPTY)] {
                vm.run(expression);
                let about = format!("OTP {} {about} {when}", otp.release);
                vm.quiet_map(&mut recorder, &about).assert_is_whole(&about);
            }
        };
        check("plain", &["+S", "2:2"]);
        check("with 8 schedulers", &["+S", "8:8"]);
        check("with a super carrier", &["+MMscs", "512"]);
        check("with a resident super carrier", &["+MMscs", "128", "+MMscrpm", "true"]);
        check("with a small super carrier", &["+MMscs", "40"]);
        check("without allocators", &["+Mea", "min"]);
    });
}

#[test]
fn each_page_is_counted_once() {
    on_each_release(|otp| {
        let mut vm = Talker::start(otp, &["+S", "3:3", "+SDcpu", "3:3", "+SDio", "4", "+A", "2"]);
        let mut recorder = recorder(vm.0.pid());
        vm.run("ok.");
        let about = format!("OTP {}", otp.release);
        // The PSS is lower while another VM that shares memory with this one runs. Between two equal values, one VM may end and another
        // start.
        let map = eventually_or("a moment when no other VM starts or ends", || {
            let before = rollup(vm.0.pid(), "Pss");
            let map = vm.quiet_map(&mut recorder, &about);
            let after = rollup(vm.0.pid(), "Pss");
            let (min, max) = (before.min(after), before.max(after));
            // Each mapping's PSS is rounded down to kilobytes.
            let is_total = min - MIB / 2 <= map.pss && map.pss <= max + PSS_MOVES;
            match max - min <= PSS_MOVES && is_total {
                true => Ok(map),
                false => Err(format!("{} bytes by mapping, {before} to {after} in total", map.pss)),
            }
        });
        for (kind, count) in [
            ("scheduler", 3),
            ("dirty_cpu_scheduler", 3),
            ("dirty_io_scheduler", 4),
            ("async", 2),
            ("poll", 1),
        ] {
            let entity = format!("{}/{kind}", content::STACKS);
            assert_eq!(map.counts.get(&entity), Some(&count), "{about}: {:?}", map.counts);
            assert!(Map::of(&map.resident, &entity) >= count * 4096, "{about}: {:?}", map.resident);
        }
        assert!(Map::of(&map.resident, content::EMULATOR) > MIB, "{about}");
        assert!(Map::of(&map.mapped, mapping::EMULATOR) > MIB, "{about}");
        assert!(map.in_use.contains_key(content::MALLOC_HEAP), "{about}: {:?}", map.in_use);
        assert!(map.in_use.contains_key(content::MALLOC_ARENAS), "{about}: {:?}", map.in_use);
        let fact = map.sample.facts.iter().find(|(key, _)| key == facts::MALLOC);
        // The fact is recorded only once, so it may be missing in this sample.
        assert!(fact.is_none_or(|(_, value)| value == "glibc"));
    });
}

#[test]
fn nif_libraries_are_recorded_when_they_are_loaded() {
    on_each_release(|otp| {
        let mut vm = Talker::start(otp, &[]);
        let mut recorder = recorder(vm.0.pid());
        let mut libraries = move || {
            let sample = Map::read(&mut recorder).sample;
            sample.facts.into_iter().find(|(key, _)| key == facts::NATIVE_LIBRARIES).map(|(_, value)| value)
        };
        assert_eq!(libraries(), None, "OTP {}", otp.release);
        vm.run("{module, crypto} = code:load_file(crypto), ok.");
        let libraries = libraries().unwrap();
        assert!(
            libraries.starts_with("[\"/") && libraries.contains("/crypto.so\""),
            "OTP {}: {libraries}",
            otp.release
        );
    });
}

#[test]
fn reading_makes_nothing_resident() {
    on_each_release(|otp| {
        let mut vm = Talker::start(otp, &[]);
        let mut recorder = recorder(vm.0.pid());
        vm.run("ok.");
        let resident = |recorder: &mut Recorder| Map::read(recorder).mapped;
        eventually_or("three identical reads", || {
            let reads = [(); 3].map(|()| resident(&mut recorder));
            let same = reads.iter().all(|read| *read == reads[0]);
            if same { Ok(()) } else { Err(format!("{reads:?}")) }
        });
    });
}

#[test]
fn malloc_memory_in_use_is_distinguished_from_free_memory() {
    on_each_release(|otp| {
        // Without its own allocators, the VM allocates all memory with malloc.
        let mut vm = Talker::start(otp, &["+Mea", "min", "+S", "1:1"]);
        let mut recorder = recorder(vm.0.pid());
        vm.run("ok.");
        let used = |map: &Map| map.in_use.values().sum::<i64>();
        let about = format!("OTP {}", otp.release);
        let before = used(&vm.quiet_map(&mut recorder, &about));
        vm.run("put(small, [binary:copy(<<X>>, 3000) || X <- lists:seq(1, 10000)]).");
        let filled = used(&vm.quiet_map(&mut recorder, &about));
        let grown = filled - before;
        assert!((30_000_000..40_000_000).contains(&grown), "{about}: {grown}");
        // One in a hundred binaries is kept.
        vm.run("put(small, [B || {N, B} <- lists:zip(lists:seq(1, 10000), get(small)), N rem 100 =:= 0]), garbage_collect().");
        let map = vm.quiet_map(&mut recorder, &about);
        let kept = map.resident.iter().filter(|(entity, _)| entity.starts_with("malloc/"));
        let (resident, used) = (kept.map(|(_, bytes)| bytes).sum::<i64>(), used(&map));
        assert!(filled - used > 28_000_000, "{about}: {filled} {used}");
        assert!(resident - used > 25_000_000, "{about}: {resident} {used}");
    });
}

#[test]
fn a_vm_with_ssl_is_explained() {
    on_each_release(|otp| {
        let mut vm = Talker::start(otp, &[]);
        vm.run("{ok, _} = application:ensure_all_started(ssl), [crypto:hash(sha256, <<X:80>>) || X <- lists:seq(1, 100)].");
        let mut recorder = recorder(vm.0.pid());
        let about = format!("OTP {} with ssl", otp.release);
        vm.quiet_map(&mut recorder, &about).assert_is_whole(&about);
    });
}

#[test]
fn a_vm_in_a_pid_namespace_is_explained() {
    let Some(otp) = installed(25) else { return println!("skipped, because OTP 25 is not installed") };
    if !is_root() {
        return;
    }
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "erl", "-noinput", "+S", "2:2"]);
    command.args(["-eval", "io:format(\"up~n\")"]);
    let outer = Running::start(command);
    outer.line("up");
    let children = format!("/proc/{0}/task/{0}/children", outer.pid());
    let pid = eventually("the VM", || {
        std::fs::read_to_string(&children).ok()?.split_whitespace().next()?.parse().ok()
    });
    let mut recorder = recorder(pid);
    let map = still_map(pid, &mut recorder);
    map.assert_is_whole(&format!("OTP {} in a namespace", otp.release));
    assert_eq!(map.counts.get("stacks/scheduler"), Some(&2), "{:?}", map.counts);
}

#[test]
fn a_vm_that_ends_during_a_read_leaves_no_partial_map() {
    let Some(otp) = installed(25) else { return println!("skipped, because OTP 25 is not installed") };
    for _ in 0..10 {
        let mut vm = otp.start(&[], "ok");
        let mut recorder = recorder(vm.pid());
        let pid = vm.pid();
        Map::read(&mut recorder);
        let killer = std::thread::spawn(move || vm.stop());
        // Until the VM has ended, a sample contains either its whole memory or nothing of it.
        while let Ok((sample, _)) = recorder.try_sample(true) {
            let map = recorder.values(&sample, &metrics::CONTENT_RESIDENT);
            let resident: i64 = map.iter().map(|(_, bytes)| bytes).sum();
            assert!(map.is_empty() || resident > 10 * MIB, "process {pid}: {map:?}");
        }
        killer.join().unwrap();
    }
}
