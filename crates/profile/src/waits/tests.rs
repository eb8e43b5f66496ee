use super::*;

/// Frames, innermost first; `-` is a nameless function of the VM, `[x.so]` a nameless function of a library.
fn frames(names: &str) -> Vec<Frame> {
    let frame = |name: &str| {
        let library = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        Frame {
            function: (name != "-" && library.is_none()).then(|| name.to_owned()),
            module: Some(library.unwrap_or("beam.smp").to_owned()),
            is_program: library.is_none(),
        }
    };
    names.split_whitespace().map(frame).collect()
}

fn check(names: &str, expect: Activity) {
    assert_eq!(activity(&frames(names), false), expect, "{names}");
}

fn waits_for_lock(names: &str) -> Activity {
    Activity::WaitsForLock(names.split_whitespace().map(str::to_owned).collect())
}

#[test]
fn a_locking_function_shows_a_wait_for_a_lock() {
    check(
        "sched_yield ethr_event_swait - ethr_rwmutex_rwlock - ets_update_counter_3",
        waits_for_lock("ets_update_counter_3"),
    );
    check("syscall ethr_event_swait ethr_mutex_lock alcu_alloc", waits_for_lock("alcu_alloc"));
    check("sched_yield ethr_rwmutex_rlock ets_lookup_2", waits_for_lock("ets_lookup_2"));
    // A process lock: the waiting function is static.
    check(
        "ethr_event_swait - erts_proc_lock_failed erts_queue_message erts_send_message send_2",
        waits_for_lock("erts_queue_message erts_send_message send_2"),
    );
    check(
        "ethr_event_swait - erts_proc_lock_failed erts_proc_safelock erts_pid2proc_opt",
        waits_for_lock("erts_pid2proc_opt"),
    );
    // A NIF, and the C library.
    check(
        "ethr_event_wait - ethr_mutex_lock enif_mutex_lock [rocksdb.so] [rocksdb.so]",
        waits_for_lock("[rocksdb.so]"),
    );
    check("__lll_lock_wait_private malloc sys_alloc", waits_for_lock("malloc sys_alloc"));
    check("futex_wait __lll_lock_wait ___pthread_mutex_lock [libzmq.so.5]", waits_for_lock("[libzmq.so.5]"));
    // In the C library below a lock: taking and releasing the inner lock of its queue.
    check("[libc.so.6] [libc.so.6] - ethr_rwmutex_rwlock - ets_insert_2", waits_for_lock("ets_insert_2"));
    check(
        "[libc.so.6] pthread_mutex_lock - ethr_rwmutex_rwlock - ets_insert_2",
        waits_for_lock("ets_insert_2"),
    );
    check("[libc.so.6] pthread_mutex_lock [rocksdb.so]", waits_for_lock("[rocksdb.so]"));
    // An unstripped VM.
    check(
        "sched_yield wait__ ethr_event_swait event_wait ethr_rwmutex_rwlock erts_rwmtx_rwlock_x db_lock ets_update_counter_3",
        waits_for_lock("ets_update_counter_3"),
    );
    check(
        "ethr_event_swait wait_for_locks erts_proc_lock_failed erts_proc_lock_x__ erts_queue_message",
        waits_for_lock("erts_queue_message"),
    );
    // An emulator with lock counting or lock checking.
    check("ethr_event_swait - ethr_mutex_lock erts_lcnt_lock_x ets_insert_2", waits_for_lock("ets_insert_2"));
    // The function that takes the lock has no name.
    check("ethr_event_swait - ethr_mutex_lock - -", waits_for_lock(""));
}

#[test]
fn a_thread_without_work_does_not_wait_for_a_lock() {
    let other = |function: &str| Activity::WaitsForOther(Some(function.to_owned()));
    check("syscall ethr_event_twait - erts_schedule process_main", other("erts_schedule"));
    check("ethr_event_wait - erts_schedule - -", other("erts_schedule"));
    check("syscall wait__ ethr_event_twait scheduler_wait erts_schedule", other("scheduler_wait"));
    check("ethr_event_wait - -", Activity::WaitsForOther(None));
    check("syscall ethr_event_wait", Activity::WaitsForOther(None));
    check("ethr_event_swait ethr_cond_wait async_main", other("ethr_cond_wait"));
    check(
        "ethr_event_wait erts_thr_progress_block erts_release_code_write_permission",
        other("erts_thr_progress_block"),
    );
}

#[test]
fn a_wait_inside_the_scope_of_another_lock_is_not_a_wait_for_that_lock() {
    // The thread is inside a locking function, but waits for something else that this function calls.
    let other = Activity::WaitsForOther(Some("erts_poll_wait".to_owned()));
    check("syscall erts_poll_wait erts_check_io ethr_mutex_lock erts_schedule", other);
    check("epoll_wait erts_poll_wait erts_check_io erts_schedule", Activity::Other);
    check("db_get_hash ets_lookup_2", Activity::Other);
    check("[libc.so.6] ets_lookup_2", Activity::Other);
    check("- ets_lookup_2", Activity::Other);
    check("", Activity::Other);
}

#[test]
fn taking_a_lock_is_not_waiting_for_it() {
    let locks = |name: &str| Activity::Locks(vec![name.to_owned()]);
    check("ethr_rwmutex_rlock ets_lookup_2", locks("ets_lookup_2"));
    check("ethr_mutex_lock - alcu_free", locks("alcu_free"));
    check("- ethr_rwmutex_rlock - ets_lookup_2", locks("ets_lookup_2"));
    check("ethr_mutex_unlock alcu_free", Activity::Other);
    // Unlocking wakes others.
    check(
        "syscall rwmutex_unlock_wake ets_insert_2",
        Activity::WaitsForOther(Some("rwmutex_unlock_wake".to_owned())),
    );
}

#[test]
fn spinning_inside_a_locking_function_is_waiting() {
    let check = |names: &str, expect| assert_eq!(activity(&frames(names), true), expect, "{names}");
    check("ethr_rwmutex_rwlock - ets_update_counter_3", waits_for_lock("ets_update_counter_3"));
    check("- ethr_rwmutex_rlock - ets_lookup_2", waits_for_lock("ets_lookup_2"));
    // A scheduler in busy wait.
    check("- erts_schedule process_main", Activity::Other);
    check("erts_schedule process_main", Activity::Other);
}

fn index_of(waits: &mut StackCounter, kind: &str, how: WaitKind, frames: &[u64]) -> usize {
    waits.index_of(kind, how, Stack { frames: frames.to_vec(), end: StackEnd::Generated }).unwrap()
}

/// The tens digit of an address is the function, the last digit a position in it.
fn frame(address: u64, _is_last: bool) -> Frame {
    let function = match address / 10 {
        1 => Some("ethr_event_swait"),
        2 => Some("ethr_rwmutex_rwlock"),
        3 => Some("ets_update_counter_3"),
        4 => Some("ets_insert_2"),
        5 => Some("erts_schedule"),
        6 => Some("sched_yield"),
        _ => None,
    };
    Frame { function: function.map(str::to_owned), module: Some("beam.smp".to_owned()), is_program: true }
}

fn row(thread: &str, how: &str, stack: &str, seen: i64, waited: Nanos) -> LockWaitRow {
    LockWaitRow {
        t: 0,
        length: 1_000,
        thread: thread.to_owned(),
        how: how.to_owned(),
        stack: stack.split_whitespace().map(str::to_owned).collect(),
        samples: seen,
        waited,
    }
}

#[test]
fn waits_are_summed_by_function_and_sorted_by_time() {
    let mut waits = StackCounter::default();
    let sleeping = index_of(&mut waits, "scheduler", WaitKind::Sleep, &[10, 99, 21, 31]);
    let elsewhere = index_of(&mut waits, "scheduler", WaitKind::Sleep, &[10, 99, 22, 35]);
    let inserting = index_of(&mut waits, "dirty_cpu_scheduler", WaitKind::Sleep, &[10, 21, 41]);
    let yielding = index_of(&mut waits, "scheduler", WaitKind::Yield, &[60, 11, 21, 31]);
    let idle = index_of(&mut waits, "scheduler", WaitKind::Sleep, &[12, 51]);
    let locking = index_of(&mut waits, "scheduler", WaitKind::Yield, &[23, 31]);
    assert_eq!(index_of(&mut waits, "scheduler", WaitKind::Sleep, &[10, 99, 21, 31]), sleeping);
    waits.add(sleeping, 10, Some(100));
    waits.add(sleeping, 10, Some(300));
    // Without a duration: it gets the average of the others.
    waits.add(elsewhere, 10, None);
    waits.add(inserting, 1, Some(50_000));
    (0..5).for_each(|_| waits.add(yielding, 1, Some(5)));
    waits.add(idle, 1, Some(1_000_000));
    waits.add(locking, 1, Some(5));
    let found = waits.evaluate_with(frame, |_| false, 1_000, 0);
    let expect = [
        row("dirty_cpu_scheduler", "sleep", "ets_insert_2", 1, 50_000),
        row("scheduler", "sleep", "ets_update_counter_3", 3, 6_000),
        row("scheduler", "yield", "ets_update_counter_3", 5, 25),
    ];
    assert_eq!(found.rows, expect);
    assert_eq!(found.on_cpu, 6);
    assert_eq!(found.locking, [("ets_update_counter_3".to_owned(), 1)]);
    assert_eq!(found.other, [(Some("erts_schedule".to_owned()), 1)]);
}

#[test]
fn wakeup_delay_is_not_part_of_a_wait() {
    let mut waits = StackCounter::default();
    let sleeping = index_of(&mut waits, "scheduler", WaitKind::Sleep, &[10, 21, 31]);
    let yielding = index_of(&mut waits, "scheduler", WaitKind::Yield, &[60, 11, 21, 31]);
    waits.add(sleeping, 10, Some(100));
    waits.add(sleeping, 10, Some(300));
    // The thread did not sleep, so there was no wake-up.
    waits.add(sleeping, 10, Some(0));
    waits.add(yielding, 1, Some(50));
    let waited = |late| {
        waits
            .evaluate_with(frame, |_| false, 1_000, late)
            .rows
            .iter()
            .map(|row| row.waited)
            .collect::<Vec<_>>()
    };
    assert_eq!(waited(0), [4_000, 50]);
    assert_eq!(waited(60), [2_800, 50]);
    assert_eq!(waited(5_000), [50, 0]);
}

#[test]
fn waits_without_any_duration_have_no_time() {
    let mut waits = StackCounter::default();
    let sleeping = index_of(&mut waits, "scheduler", WaitKind::Sleep, &[10, 21, 31]);
    waits.add(sleeping, 10, None);
    assert_eq!(
        waits.evaluate_with(frame, |_| false, 1_000, 0).rows,
        [row("scheduler", "sleep", "ets_update_counter_3", 1, 0)]
    );
}

#[test]
fn a_function_called_by_generated_code_is_named_by_its_tail_callers() {
    let mut waits = StackCounter::default();
    let nameless = index_of(&mut waits, "scheduler", WaitKind::Sleep, &[10, 21, 99]);
    waits.add(nameless, 1, Some(100));
    let bottom = Stack { frames: vec![10, 21, 98], end: StackEnd::Bottom };
    let bottom = waits.index_of("scheduler", WaitKind::Sleep, bottom).unwrap();
    waits.add(bottom, 1, Some(50));
    let name = |address, is_last| {
        let mut frame = frame(address, is_last);
        if is_last {
            frame.function = Some("ets_update_counter_3".to_owned());
        }
        frame
    };
    let expect =
        [row("scheduler", "sleep", "ets_update_counter_3", 1, 100), row("scheduler", "sleep", "", 1, 50)];
    assert_eq!(waits.evaluate_with(name, |_| false, 1_000, 0).rows, expect);
}

#[test]
fn different_stacks_are_bounded() {
    let mut waits = StackCounter::default();
    let index_of = |waits: &mut StackCounter, n: usize| {
        waits.index_of("scheduler", WaitKind::Sleep, Stack { frames: vec![n as u64], end: StackEnd::Bottom })
    };
    let known = (0..MAX_STACKS + 10).filter(|n| index_of(&mut waits, *n).is_some()).count();
    assert_eq!((known, waits.left_out), (MAX_STACKS, 10));
    // Known stacks are still counted.
    assert_eq!(index_of(&mut waits, 7), Some(7));
}
