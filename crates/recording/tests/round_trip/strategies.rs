//! Proptest strategies for arbitrary samples, in any valid order.

use beamtune_model::{
    AllocationRow, BinaryHolderRow, BlockSum, CallStack, CarrierRow, CodeRow, CollectedProcessRow, CpuState,
    Event, ExitRow, Frame, FrameKind, Gap, Group, Incarnation, Kind, LockRow, LockSession, LockWaitRow,
    MessageRow, Nanos, PortRow, ProcessRow, ProcessTick, Profile, ProfileKind, ProfileRow, ProfiledThread,
    Rank, RequestedGcRow, RunSampleRow, Sample, SeriesTable, SizeCount, Snapshot, Span, SpawnRow,
    StackSample, TableRow, Tick, TroubleKind, Unit, WaitSampleRow,
};
use proptest::prelude::*;
use proptest::sample::select;

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        select(vec!["", "a", "gen_server:loop/7", "ü \"quoted\"", "nul\0inside"]).prop_map(str::to_owned),
        "\\PC{0,12}"
    ]
}

fn maybe_text() -> impl Strategy<Value = Option<String>> {
    prop::option::of(text())
}

fn span() -> impl Strategy<Value = Option<Span>> {
    prop::option::of(
        (any::<i32>(), any::<u16>()).prop_map(|(begin, length)| Span {
            begin: begin.into(),
            end: i64::from(begin) + i64::from(length),
        }),
    )
}

fn process() -> impl Strategy<Value = ProcessRow> {
    let names = (text(), maybe_text(), maybe_text(), maybe_text(), maybe_text(), maybe_text(), maybe_text());
    let ranks = prop::collection::vec(select(Rank::ALL), 0..3);
    let more = (maybe_text(), maybe_text(), ranks, prop::collection::vec(text(), 0..3), maybe_text());
    let numbers = (any::<[i64; 4]>(), any::<[Option<i64>; 7]>());
    (names, more, numbers).prop_map(|(names, more, ([t, reductions, queue, memory_bytes], options))| {
        ProcessRow {
            t,
            pid: names.0,
            ranks: more.2,
            name: names.1,
            label: names.2,
            initial_call: names.3,
            current_function: names.4,
            application: names.5,
            parent: names.6,
            status: more.0,
            reductions,
            queue,
            message_queue_data: more.1,
            memory_bytes,
            total_heap_words: options[0],
            binary_bytes: options[1],
            minor_gcs: options[2],
            fullsweep_after: options[3],
            min_heap_words: options[4],
            total_bytes: options[5],
            fragment_bytes: options[6],
            stack: more.3,
            priority: more.4,
        }
    })
}

fn table_row() -> impl Strategy<Value = TableRow> {
    (
        any::<[i64; 3]>(),
        (text(), text(), text(), maybe_text(), text(), text()),
        prop::collection::vec(text(), 0..3),
    )
        .prop_map(
            |([t, objects, memory_bytes], (id, name, owner, owner_name, kind, protection), options)| {
                TableRow { t, id, name, owner, owner_name, objects, memory_bytes, kind, protection, options }
            },
        )
}

fn port() -> impl Strategy<Value = PortRow> {
    (any::<i64>(), any::<[i64; 3]>(), text(), text(), maybe_text(), any::<Option<i64>>()).prop_map(
        |(t, [input_bytes, output_bytes, queue_bytes], id, name, connected, os_pid)| PortRow {
            t,
            id,
            name,
            connected,
            input_bytes,
            output_bytes,
            queue_bytes,
            os_pid,
        },
    )
}

fn spawn() -> impl Strategy<Value = SpawnRow> {
    (any::<[i64; 3]>(), text(), text(), maybe_text()).prop_map(|([t, count, of], what, kind, maker)| {
        SpawnRow { t, what, kind, creator: maker, count, sample_size: of, bytes: (count > 0).then_some(of) }
    })
}

fn wait_sample() -> impl Strategy<Value = WaitSampleRow> {
    let lists = (prop::collection::vec(text(), 0..3), prop::collection::vec((text(), any::<i64>()), 0..3));
    (any::<[i64; 4]>(), (maybe_text(), maybe_text()), text(), lists).prop_map(
        |([t, count, queued, of], (pid, kind), status, (stack, on))| WaitSampleRow {
            t,
            pid,
            status,
            stack,
            count,
            queued,
            sample_size: of,
            targets: on,
            kind,
        },
    )
}

fn ran() -> impl Strategy<Value = RunSampleRow> {
    (any::<[i64; 2]>(), text(), prop::collection::vec(text(), 0..3), any::<[bool; 2]>(), maybe_text())
        .prop_map(|([t, looks], pid, stack, [waits, collects], kind)| RunSampleRow {
            t,
            pid,
            stack,
            samples: looks,
            is_waiting: waits,
            kind,
            is_collecting: collects,
        })
}

fn exit() -> impl Strategy<Value = ExitRow> {
    let names =
        (maybe_text(), maybe_text(), maybe_text(), maybe_text(), maybe_text(), maybe_text(), maybe_text());
    (any::<[i64; 3]>(), names, prop::collection::vec((text(), any::<i64>()), 0..3)).prop_map(
        |([t, count, heap_limit_words], names, stack)| {
            let (parent, parent_name, parent_call, name, call, reason, callee) = names;
            ExitRow {
                t,
                parent,
                parent_name,
                parent_call,
                name,
                call,
                reason,
                stack,
                callee,
                count,
                heap_limit_words,
            }
        },
    )
}

fn message() -> impl Strategy<Value = MessageRow> {
    (any::<[i64; 7]>(), maybe_text()).prop_map(|(numbers, pid)| {
        let [t, messages, bytes, off_heap, us, active, sampled] = numbers;
        MessageRow { t, pid, messages, bytes, off_heap, us, active, sampled }
    })
}

fn carriers() -> impl Strategy<Value = CarrierRow> {
    let what = (text(), maybe_text(), any::<[bool; 2]>(), any::<[Option<i64>; 2]>(), any::<[i64; 4]>());
    let blocks = prop::collection::vec((text(), any::<[i64; 2]>()), 0..4);
    let free = prop::collection::vec(any::<[i64; 2]>(), 0..20);
    (what, blocks, free).prop_map(
        |((allocator, skipped, [in_pool, single], [size_log2, used_tenths], numbers), blocks, free)| {
            let [t, carriers, bytes, unscanned_bytes] = numbers;
            let sum = |(allocator, [count, bytes]): (String, [i64; 2])| BlockSum { allocator, count, bytes };
            let size = |[from, count]: [i64; 2]| SizeCount { from, count };
            CarrierRow {
                t,
                allocator,
                skipped,
                in_pool,
                single,
                size_log2,
                used_tenths,
                carriers,
                bytes,
                unscanned_bytes,
                blocks: blocks.into_iter().map(sum).collect(),
                free: free.into_iter().map(size).collect(),
            }
        },
    )
}

fn allocations() -> impl Strategy<Value = AllocationRow> {
    let sizes = prop::collection::vec(any::<[i64; 2]>(), 0..20);
    (text(), text(), maybe_text(), any::<[i64; 3]>(), sizes).prop_map(
        |(origin, kind, skipped, numbers, sizes)| {
            let [t, blocks, bytes] = numbers;
            let sizes = sizes.into_iter().map(|[from, count]| SizeCount { from, count }).collect();
            AllocationRow { t, origin, kind, skipped, blocks, bytes, sizes }
        },
    )
}

fn code() -> impl Strategy<Value = CodeRow> {
    (maybe_text(), any::<[i64; 4]>()).prop_map(|(application, [t, modules, bytes, old_bytes])| CodeRow {
        t,
        application,
        modules,
        bytes,
        old_bytes,
    })
}

fn holder() -> impl Strategy<Value = BinaryHolderRow> {
    let texts = (maybe_text(), maybe_text(), maybe_text(), maybe_text());
    (text(), texts, any::<[i64; 8]>()).prop_map(|(pid, (name, label, initial_call, skipped), numbers)| {
        let [t, heap_bytes, binary_vheap_bytes, references, binaries, bytes, alone, alone_bytes] = numbers;
        BinaryHolderRow {
            t,
            pid,
            name,
            label,
            initial_call,
            skipped,
            heap_bytes,
            binary_vheap_bytes,
            references,
            binaries,
            bytes,
            exclusive: alone,
            alone_bytes,
        }
    })
}

fn collection() -> impl Strategy<Value = RequestedGcRow> {
    let numbers = (any::<[i64; 9]>(), any::<[i64; 13]>(), any::<[Option<i64>; 4]>());
    (text(), text(), numbers).prop_map(|(how, stopped, (counts, sizes, memory))| {
        let [t, processes, chosen, largest, rest_bytes, collected, gone, no_answer, large] = counts;
        let [
            heap_before,
            heap_after,
            binary_before,
            binary_after,
            chance,
            chance_heap_kib,
            chance_heap_kib_squares,
            chance_binary_kib,
            chance_binary_kib_squares,
            took,
            longest,
            late,
            queue,
        ] = sizes;
        let [memory_processes_before, memory_processes_after, memory_binary_before, memory_binary_after] =
            memory;
        RequestedGcRow {
            t,
            selection: how,
            processes,
            chosen,
            largest,
            rest_bytes,
            collected,
            gone,
            no_answer,
            large,
            stopped,
            heap_before,
            heap_after,
            binary_before,
            binary_after,
            random: chance,
            chance_heap_kib,
            chance_heap_kib_squares,
            chance_binary_kib,
            chance_binary_kib_squares,
            memory_processes_before,
            memory_processes_after,
            memory_binary_before,
            memory_binary_after,
            took,
            longest,
            late,
            queue,
        }
    })
}

fn collected() -> impl Strategy<Value = CollectedProcessRow> {
    let texts = (text(), maybe_text(), maybe_text(), maybe_text());
    (texts, any::<[i64; 6]>()).prop_map(|((pid, name, label, initial_call), numbers)| {
        let [t, heap_before, heap_after, binary_before, binary_after, took] = numbers;
        CollectedProcessRow {
            t,
            pid,
            name,
            label,
            initial_call,
            heap_before,
            heap_after,
            binary_before,
            binary_after,
            took,
        }
    })
}

fn lock_session() -> impl Strategy<Value = LockSession> {
    let categories = prop::collection::vec(text(), 0..9);
    (any::<[i64; 4]>(), any::<[Option<i64>; 3]>(), categories, text()).prop_map(
        |([t, length, locks, single_locks], [reductions, processes, cost_bytes], categories, remark)| {
            LockSession {
                t,
                length,
                categories,
                locks,
                single_locks,
                reductions,
                processes,
                cost_bytes,
                remark,
            }
        },
    )
}

fn lock() -> impl Strategy<Value = LockRow> {
    let texts = (text(), text(), maybe_text(), maybe_text(), maybe_text());
    let histogram = prop::collection::vec(any::<i64>(), 0..31);
    (texts, any::<[i64; 6]>(), any::<Option<i64>>(), histogram).prop_map(
        |((class, kind, id, entity, file), numbers, line, histogram)| {
            let [t, locks, tries, collisions, waited, waits] = numbers;
            LockRow {
                t,
                class,
                kind,
                id,
                entity,
                locks,
                file,
                line,
                tries,
                collisions,
                wait_time: waited,
                waits,
                histogram,
            }
        },
    )
}

fn wait() -> impl Strategy<Value = LockWaitRow> {
    let stack = prop::collection::vec(text(), 0..9);
    (any::<[i64; 4]>(), text(), text(), stack).prop_map(|([t, length, seen, waited], thread, how, stack)| {
        LockWaitRow { t, length, thread, how, stack, samples: seen, waited }
    })
}

fn gap() -> impl Strategy<Value = Gap> {
    (any::<[i64; 2]>(), text(), select(TroubleKind::ALL), text())
        .prop_map(|([begin, end], source, kind, reason)| Gap { begin, end, source, kind, reason })
}

fn event() -> impl Strategy<Value = Event> {
    (any::<i64>(), text(), text(), text()).prop_map(|(t, kind, subject, detail)| Event {
        t,
        kind,
        subject,
        detail,
    })
}

fn profile() -> impl Strategy<Value = ProfileRow> {
    let frame = (select(FrameKind::ALL), text(), any::<Option<u32>>());
    let frame = frame.prop_map(|(kind, name, line)| Frame { kind, name, line });
    let stack = (prop::collection::vec(0..4_u32, 0..4), any::<bool>());
    let stack = stack.prop_map(|(frames, is_complete)| CallStack { frames, is_complete });
    let sample = (any::<[i64; 2]>(), any::<Option<u64>>(), select(CpuState::ALL), 0..4_u32, any::<u32>());
    let sample = sample.prop_map(|([t, weight], process, state, stack, count)| StackSample {
        t,
        thread: 0,
        process,
        state,
        stack,
        count,
        weight,
    });
    let parts = (
        prop::collection::vec(frame, 0..4),
        prop::collection::vec(stack, 0..4),
        prop::collection::vec(sample, 0..4),
        prop::collection::hash_map(any::<u64>(), text(), 0..2),
        prop::collection::vec(text(), 0..2),
    );
    (any::<[i64; 2]>(), any::<[u64; 2]>(), any::<u32>(), (text(), text()), parts).prop_map(
        |([t, length], [lost, without_frames], rate_hz, (kind, name), parts)| {
            let (frames, stacks, samples, processes, remarks) = parts;
            let threads = vec![ProfiledThread { tid: 7, kind, name }];
            let profile = Profile {
                kind: ProfileKind::Cpu,
                length,
                rate_hz,
                has_kernel: rate_hz % 2 == 0,
                frames,
                stacks,
                threads,
                samples,
                processes,
                lost,
                without_frames,
                remarks,
            };
            ProfileRow { t, profile }
        },
    )
}

fn snapshot() -> impl Strategy<Value = Snapshot> {
    (any::<i64>(), text(), prop::collection::vec(any::<u8>(), 0..200)).prop_map(|(t, kind, blob)| Snapshot {
        t,
        kind,
        blob,
    })
}

fn busiest() -> impl Strategy<Value = ProcessTick> {
    (0..30_u32, any::<[i64; 2]>(), any::<Option<bool>>()).prop_map(|(pid, [reductions, queue], runnable)| {
        ProcessTick { pid: format!("<0.{pid}.0>").into(), reductions, queue, runnable }
    })
}

/// Distances between ticks: within a chunk, across the end of a chunk, and across many chunks.
fn step() -> impl Strategy<Value = Nanos> {
    let second = 1_000_000_000;
    prop_oneof![
        6 => Just(second),
        2 => 1..2 * second,
        1 => Just(60 * second),
        2 => Just(299 * second),
        1 => Just(300 * second),
        1 => Just(100_000 * second),
    ]
}

/// An arbitrary sample, with its distance from the previous tick, and whether the node restarts before it. Readings are
/// (number of a series, value), each series at most once; `sequence` replaces the numbers by ids.
pub fn any_sample() -> impl Strategy<Value = (Nanos, bool, Sample)> {
    fn few<T: Clone + std::fmt::Debug>(item: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<T>> {
        prop_oneof![4 => Just(Vec::new()), 1 => prop::collection::vec(item, 1..4)]
    }
    let tick = (step(), prop::bool::weighted(0.1), span(), span(), 0..5_000_000_000_i64);
    let value = prop_oneof![any::<i64>(), 0..1_000_i64, Just(7)];
    let readings = prop::collection::btree_map(0..12_u32, value, 0..12);
    let rows = (few(process()), few(table_row()), few(port()), few(spawn()), few(snapshot()));
    let seen = (few(wait_sample()), few(message()), few(ran()), few(exit()));
    let rest = (few(busiest()), few(event()), few(gap()), few((text(), text())));
    let requested = (
        few(carriers()),
        few(allocations()),
        few(code()),
        few(holder()),
        few(collection()),
        few(collected()),
        (few(lock_session()), few(lock()), few(wait()), few(profile())),
    );
    (tick, readings, rows, seen, rest, requested).prop_map(
        |((step, restarts, vm, host, late), readings, rows, seen, rest, requested)| {
            let mut sample = Sample::new(Tick { t: 0, incarnation: 0, vm, host, late });
            sample.readings =
                readings.into_iter().map(|(id, value)| (beamtune_model::SeriesId(id), value)).collect();
            (sample.processes, sample.tables, sample.ports, sample.spawns, sample.snapshots) = rows;
            (sample.wait_samples, sample.messages, sample.run_samples, sample.exits) = seen;
            (sample.busiest, sample.events, sample.gaps, sample.facts) = rest;
            (
                sample.carriers,
                sample.allocations,
                sample.code,
                sample.holders,
                sample.collections,
                sample.collected,
                (sample.lock_sessions, sample.locks, sample.lock_waits, sample.profiles),
            ) = requested;
            (step, restarts, sample)
        },
    )
}

/// Creates a sequence: times increase, each restart increments the incarnation, readings have ids of the returned table.
pub fn sequence(parts: Vec<(Nanos, bool, Sample)>) -> (Vec<Sample>, SeriesTable) {
    let mut table = SeriesTable::default();
    let (mut t, mut incarnation) = (0, 0);
    let samples = parts.into_iter().enumerate().map(|(index, (step, restarts, mut sample))| {
        t += step;
        incarnation += u32::from(restarts && index > 0);
        sample.tick.t = t;
        sample.tick.incarnation = incarnation;
        if restarts || index == 0 {
            sample.incarnation = Some(Incarnation {
                id: incarnation,
                node: format!("n{incarnation}@host"),
                os_pid: (incarnation % 2 == 0).then_some(incarnation),
                boot: format!("boot {incarnation}"),
                mono0: t,
                wall0: -t,
            });
        }
        for (id, _) in &mut sample.readings {
            let number = id.0 as usize;
            let group = [Group::Msacc, Group::Vm, Group::HostThread][number % 3];
            *id = table.intern(group, &format!("e{number}"), "name", Unit::Count, Kind::ALL[number % 2]);
        }
        sample.readings.sort_unstable_by_key(|(id, _)| *id);
        sample
    });
    (samples.collect(), table)
}
