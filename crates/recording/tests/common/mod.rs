//! Helpers shared by several tests: deterministic samples, recordings of them, and small file systems.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::path::Path;
use std::process::Command;

use beamtune_model::units::SECOND_NS;
use beamtune_model::{
    AllocationRow, BinaryHolderRow, BlockSum, CallStack, CarrierRow, CodeRow, CollectedProcessRow, CpuState,
    Event, ExitRow, Frame, FrameKind, Gap, Incarnation, LockRow, LockSession, LockWaitRow, MessageRow, Nanos,
    PortRow, ProcessRow, ProcessTick, Profile, ProfileBuilder, ProfileRow, ProfiledThread, Rank,
    RequestedGcRow, RunSampleRow, Sample, SampleBuilder, SeriesTable, SizeCount, Snapshot, Span, SpawnRow,
    StackSample, TableRow, Tick, TroubleKind, WaitSampleRow, metrics,
};
use beamtune_recording::{Existing, Reader, Writer};

/// Deterministic pseudo-random numbers (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.bits() % end
    }
}

/// Returns the tick of a second, with both sources read.
pub fn tick(second: i64, incarnation: u32) -> Tick {
    let t = second * SECOND_NS;
    Tick {
        t,
        incarnation,
        vm: Some(Span { begin: t + 1_000_000, end: t + 9_000_000 }),
        host: Some(Span { begin: t + 2_000_000, end: t + 3_000_000 }),
        late: 50_000,
    }
}

/// Returns the sample of a second, with data in all fields. The result for a second is always the same, provided that the samples of all
/// earlier seconds were created with the same table.
pub fn sample(second: i64, table: &mut SeriesTable) -> Sample {
    let mut random = Random(second as u64);
    let mut out = SampleBuilder::new(table, tick(second, u32::from(second >= 500)));
    if second == 0 || second == 500 {
        let id = u32::from(second == 500);
        out.sample.incarnation = Some(Incarnation {
            id,
            node: "rabbit@host".to_owned(),
            os_pid: Some(100 + id),
            boot: format!("boot {id}"),
            mono0: second * SECOND_NS,
            wall0: 1_700_000_000_000_000_000,
        });
        out.fact("otp_release", if id == 0 { "25" } else { "27" });
    }
    for scheduler in 1..=8 {
        let entity = format!("scheduler/{scheduler}");
        for (state, share) in [("emulator", 600), ("gc", 90), ("sleep", 310)] {
            let time = second * share * 1_000_000 + random.below(900_000) as i64;
            out.family(&metrics::MSACC, &entity, state, time);
        }
        out.metric(&metrics::THREAD_CPU, &entity, second * 700_000_000 + random.below(9_000_000) as i64);
    }
    out.metric(&metrics::REDUCTIONS, "", second * 1_000_000);
    // A series that starts late, and one with holes.
    if second > 20 {
        out.metric(&metrics::SCHEDULERS_ONLINE, "", 8);
    }
    if second % 3 != 0 {
        out.metric(&metrics::PROCESS_COUNT, "", 500 + random.below(9) as i64);
    }
    for place in 0..3 {
        out.sample.busiest.push(ProcessTick {
            pid: format!("<0.{}.0>", 100 + random.below(5)).into(),
            reductions: random.below(100_000) as i64,
            queue: place,
            runnable: [None, Some(true), Some(false)][random.below(3) as usize],
        });
    }
    if second % 10 == 0 {
        detail(second, &mut random, &mut out);
    }
    // Readers return readings in this order.
    out.sample.readings.sort_unstable_by_key(|(id, _)| *id);
    out.sample
}

fn detail(second: i64, random: &mut Random, out: &mut SampleBuilder<'_>) {
    let t = second * SECOND_NS + 5_000_000;
    for instance in 0..9 {
        let size = random.below(1_000) as i64 * 32_768;
        out.metric(&metrics::MBCS_CARRIERS_SIZE, &format!("eheap_alloc/{instance}"), size);
    }
    out.sample.processes.push(ProcessRow {
        t,
        pid: format!("<0.{}.0>", 100 + random.below(5)),
        ranks: vec![Rank::Memory, Rank::Queue],
        name: Some("rabbit_reader".to_owned()),
        label: None,
        initial_call: Some("rabbit_reader:init/2".to_owned()),
        reductions: random.below(1_000_000) as i64,
        memory_bytes: 4_096,
        binary_bytes: Some(random.below(1_000) as i64),
        total_bytes: Some(4_096 + second),
        fragment_bytes: Some(second),
        stack: vec!["prim_inet:recv0/3".to_owned(), "shop:buy/1".to_owned()],
        priority: Some("high".to_owned()),
        ..ProcessRow::default()
    });
    out.sample.tables.push(TableRow {
        t,
        id: "#Ref<0.1.2.3>".to_owned(),
        name: "sessions".to_owned(),
        owner: "<0.5.0>".to_owned(),
        owner_name: None,
        objects: second,
        memory_bytes: second * 800,
        kind: "set".to_owned(),
        protection: "public".to_owned(),
        options: vec!["compressed".to_owned(), "a \"quoted\" one".to_owned()],
    });
    out.sample.ports.push(PortRow {
        t,
        id: "#Port<0.7>".to_owned(),
        name: "tcp_inet".to_owned(),
        connected: Some("<0.5.0>".to_owned()),
        input_bytes: second * 1_000,
        ..PortRow::default()
    });
    out.sample.spawns.push(SpawnRow {
        t,
        what: "process".to_owned(),
        kind: "worker:init/1".to_owned(),
        creator: (second % 20 == 0).then(|| "worker_sup".to_owned()),
        count: 3,
        sample_size: 7,
        bytes: None,
    });
    out.sample.wait_samples.push(WaitSampleRow {
        t,
        pid: (second % 20 == 0).then(|| "<0.5.0>".to_owned()),
        status: "waiting".to_owned(),
        stack: vec!["gen:do_call/4".to_owned(), "shop:buy/1".to_owned()],
        count: 40,
        queued: 2,
        sample_size: 200,
        targets: vec![("<0.9.0>".to_owned(), 39), ("other@host".to_owned(), 1)],
        kind: (second % 20 == 10).then(|| "shop:cart/1".to_owned()),
    });
    out.sample.run_samples.push(RunSampleRow {
        t,
        pid: "<0.5.0>".to_owned(),
        stack: vec!["shop:total/1".to_owned(), "shop:buy/1".to_owned()],
        samples: 3,
        is_waiting: second % 2 == 0,
        ..RunSampleRow::default()
    });
    out.sample.run_samples.push(RunSampleRow {
        t,
        stack: vec!["shop:total/1".to_owned()],
        samples: 2,
        kind: Some("shop:request/1".to_owned()),
        is_collecting: second % 2 == 0,
        ..RunSampleRow::default()
    });
    out.sample.exits.push(ExitRow {
        t,
        parent: Some("<0.9.0>".to_owned()),
        parent_name: Some("shop_sup".to_owned()),
        parent_call: Some("supervisor:shop_sup/1".to_owned()),
        name: (second % 20 == 0).then(|| "order_server".to_owned()),
        call: Some("order_server:init/1".to_owned()),
        reason: Some("badmatch".to_owned()),
        stack: vec![("order_server:handle_info/2".to_owned(), 33)],
        count: 2,
        ..ExitRow::default()
    });
    out.sample.messages.push(MessageRow {
        t,
        pid: (second % 20 == 0).then(|| "<0.5.0>".to_owned()),
        messages: 2,
        bytes: 4_000 * second,
        off_heap: 1,
        us: 11_000,
        active: 90,
        sampled: 80,
    });
    let blocks =
        |allocator: &str, count| BlockSum { allocator: allocator.to_owned(), count, bytes: 700 * count };
    out.sample.carriers.push(CarrierRow {
        t,
        allocator: "eheap_alloc".to_owned(),
        in_pool: second % 20 == 0,
        size_log2: Some(20),
        used_tenths: Some(random.below(10) as i64),
        carriers: 3,
        bytes: 3 << 20,
        unscanned_bytes: 5_000,
        blocks: vec![blocks("eheap_alloc", second), blocks("fix_alloc", 9)],
        free: vec![SizeCount { from: 0, count: 8 }, SizeCount { from: 1_024, count: second }],
        ..CarrierRow::default()
    });
    out.sample.carriers.push(CarrierRow {
        t,
        allocator: "binary_alloc".to_owned(),
        skipped: Some("limit".to_owned()),
        carriers: 1,
        bytes: 1 << 20,
        ..CarrierRow::default()
    });
    out.sample.allocations.push(AllocationRow {
        t,
        origin: "prim_file".to_owned(),
        kind: "binary".to_owned(),
        skipped: (second % 20 == 0).then(|| "unscanned".to_owned()),
        blocks: second,
        bytes: 900 * second,
        sizes: vec![SizeCount { from: 128, count: second }],
    });
    out.sample.code.push(CodeRow {
        t,
        application: (second % 20 == 0).then(|| "stdlib".to_owned()),
        modules: 90 + second,
        bytes: 2_000_000,
        old_bytes: second,
    });
    out.sample.holders.push(BinaryHolderRow {
        t,
        pid: "<0.7.0>".to_owned(),
        name: Some("rabbit_reader".to_owned()),
        skipped: (second % 20 == 0).then(|| "no_answer".to_owned()),
        heap_bytes: 9_000,
        bytes: second,
        ..BinaryHolderRow::default()
    });
    out.sample.collections.push(RequestedGcRow {
        t,
        selection: "sample".to_owned(),
        stopped: "done".to_owned(),
        collected: second,
        memory_binary_after: (second % 20 == 0).then_some(second),
        took: 7,
        ..RequestedGcRow::default()
    });
    out.sample.collected.push(CollectedProcessRow {
        t,
        pid: "<0.7.0>".to_owned(),
        initial_call: Some("rabbit_reader:init/2".to_owned()),
        heap_before: 8_000 + second,
        heap_after: 200,
        ..CollectedProcessRow::default()
    });
    locks(t, second, out);
    out.sample.snapshots.push(Snapshot { t, kind: "carriers".to_owned(), blob: vec![second as u8; 300] });
    out.sample.events.push(Event {
        t,
        kind: "long_gc".to_owned(),
        subject: "<0.5.0>".to_owned(),
        detail: "200 ms".to_owned(),
    });
    out.sample.gaps.push(gap(t - SECOND_NS, t, "vm.ets"));
}

fn locks(t: Nanos, second: i64, out: &mut SampleBuilder<'_>) {
    out.sample.lock_sessions.push(LockSession {
        t,
        length: 5 * SECOND_NS,
        categories: vec!["allocator".to_owned(), "db".to_owned()],
        locks: 588,
        single_locks: 1,
        reductions: (second % 20 == 0).then_some(second),
        processes: Some(90),
        cost_bytes: Some(600_000),
        remark: if second % 20 == 0 { "somebody has cleared the counts".to_owned() } else { String::new() },
    });
    let class = LockRow {
        t,
        class: "db_tab".to_owned(),
        kind: "rw_mutex".to_owned(),
        locks: 20,
        file: Some("beam/erl_db.c".to_owned()),
        line: Some(400),
        tries: 1_000 + second,
        collisions: 90,
        wait_time: 7_000_000,
        waits: 88,
        histogram: vec![0, 0, 80, second],
        ..LockRow::default()
    };
    let table = LockRow {
        id: Some("sessions".to_owned()),
        entity: Some("sessions of session_store".to_owned()),
        locks: 1,
        file: None,
        line: None,
        ..class.clone()
    };
    out.sample.locks.extend([class, table]);
    out.sample.lock_waits.push(LockWaitRow {
        t,
        length: 5 * SECOND_NS,
        thread: "scheduler".to_owned(),
        how: "yield".to_owned(),
        stack: vec!["ets_update_counter_3".to_owned(), "process_main".to_owned()],
        samples: second,
        waited: 9_000_000,
    });
    out.sample.profiles.push(ProfileRow { t, profile: profile(second as u32) });
}

/// Returns a profile of one scheduler that writes to a socket.
pub fn profile(samples: u32) -> Profile {
    let mut builder = ProfileBuilder::default();
    let thread = ProfiledThread { tid: 77, kind: "scheduler".to_owned(), name: "erts_sched_1".to_owned() };
    let thread = builder.thread(thread);
    let frames = [
        (FrameKind::Erlang, "rabbit_writer:mainloop/2", Some(12)),
        (FrameKind::Bif, "erlang:port_command/3", None),
        (FrameKind::Emulator, "driver_output", None),
        (FrameKind::Kernel, "__x64_sys_writev", None),
    ];
    let frames = frames.map(|(kind, name, line)| builder.frame(Frame { kind, name: name.to_owned(), line }));
    let stack = builder.stack(CallStack { frames: frames.to_vec(), is_complete: true });
    let (process, state) = (Some(80), CpuState::Process);
    builder.add(StackSample { t: 5, thread, process, state, stack, count: samples, weight: 10_101_010 });
    let profile = builder.profile();
    (profile.length, profile.rate_hz) = (5 * SECOND_NS, 99);
    profile.processes.insert(80, "rabbit_writer".to_owned());
    profile.remarks.push("no symbols".to_owned());
    builder.finish()
}

/// Returns a gap due to a timeout.
pub fn gap(begin: Nanos, end: Nanos, source: &str) -> Gap {
    Gap {
        begin,
        end,
        source: source.to_owned(),
        kind: TroubleKind::TimedOut,
        reason: "no answer within 2 s".to_owned(),
    }
}

/// Returns the samples of the first seconds.
pub fn samples(seconds: i64) -> (Vec<Sample>, SeriesTable) {
    let mut table = SeriesTable::default();
    ((0..seconds).map(|second| sample(second, &mut table)).collect(), table)
}

/// Creates a finished recording of the first seconds; returns its samples.
pub fn recorded(path: &Path, seconds: i64) -> Vec<Sample> {
    let (samples, table) = samples(seconds);
    let mut writer = Writer::create(path, Existing::Refuse).expect("created");
    samples.iter().for_each(|sample| writer.append(sample, &table).expect("stored"));
    writer.finish().expect("finished");
    samples
}

/// Returns all samples of a recording, which must be readable.
pub fn replayed(reader: &Reader) -> Vec<Sample> {
    reader.samples().collect::<Result<_, _>>().expect("readable")
}

/// Compares samples one by one, so that the output shows the first difference.
#[track_caller]
pub fn assert_same(found: &[Sample], expect: &[Sample]) {
    for (index, (found, expect)) in found.iter().zip(expect).enumerate() {
        assert_eq!(found, expect, "sample {index}");
    }
    assert_eq!(found.len(), expect.len(), "number of samples");
}

/// A small file system, unmounted when dropped.
pub struct Disk(tempfile::TempDir);

impl Disk {
    /// Mounts a tmpfs of this size; the error says why this is impossible here.
    pub fn of(kilobytes: u32) -> Result<Self, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let size = format!("size={kilobytes}k");
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(directory.path()).output();
        match mount {
            Ok(output) if output.status.success() => Ok(Disk(directory)),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => Err(format!("mount: {error}")),
        }
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Remounts the file system read-only.
    pub fn make_read_only(&self) {
        let remount = Command::new("mount").args(["-o", "remount,ro"]).arg(self.path()).status();
        assert!(remount.expect("mount").success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily, since a failed test may still have a file open.
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
