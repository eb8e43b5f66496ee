//! Tests of what rules derive from a CPU profile.

use beamtune_model::{
    CallStack, Confidence, CpuState, Finding, Frame, FrameKind, KernelWork, Nanos, Outcome, Period,
    PeriodBuilder, Profile, ProfileBuilder, ProfileRow, ProfiledThread, Signal, StackSample, WorkSample,
    facts, metrics, units::SECOND_NS,
};

use super::hot_code::found;
use super::node::node;
use super::{Read, outcome};
use crate::view;

/// CPU time of a sample at 99 Hz.
const SAMPLE: Nanos = 10_101_010;

/// A stack, outermost function first: `e:` Erlang, `b:` BIF, `c:` emulator, `k:` kernel; with the state and number of samples.
type Stack = (CpuState, &'static str, u32);

/// A profile of ten seconds of one scheduler.
fn profile(stacks: &[Stack]) -> Profile {
    let mut builder = ProfileBuilder::default();
    let thread = ProfiledThread { tid: 7, kind: "scheduler".to_owned(), name: "erts_sched_1".to_owned() };
    let thread = builder.thread(thread);
    for (state, text, count) in stacks {
        let frames = text.split_whitespace().map(|frame| {
            let (kind, name) = frame.split_at(2);
            let kind = match kind {
                "e:" => FrameKind::Erlang,
                "b:" => FrameKind::Bif,
                "c:" => FrameKind::Emulator,
                _ => FrameKind::Kernel,
            };
            Frame { kind, name: name.to_owned(), line: None }
        });
        let frames = frames.map(|frame| builder.frame(frame)).collect();
        let stack = builder.stack(CallStack { frames, is_complete: true });
        let process = state.is_of_process().then_some(80);
        let weight = Nanos::from(*count) * SAMPLE;
        builder.add(StackSample { t: 0, thread, process, state: *state, stack, count: *count, weight });
    }
    builder.profile().length = 10 * SECOND_NS;
    (builder.profile().rate_hz, builder.profile().has_kernel) = (99, true);
    builder.profile().processes.insert(80, "shop_web".to_owned());
    builder.finish()
}

/// A node that uses one and a half cores, with a profile; the agent sampled another function.
fn profiled(stacks: &[Stack]) -> Period {
    let node = node().with(|n| (n.utilization, n.cpu) = (1.5, 1.5));
    let mut builder = PeriodBuilder::default();
    builder.profile(ProfileRow { t: 0, profile: profile(stacks) });
    let of_profile = builder.finish();
    let mut period = node.period();
    period.work_samples = vec![WorkSample {
        kind: Some("shop:request/1".to_owned()),
        stack: vec!["shop:waits/0".to_owned()],
        samples: 30,
        is_collecting: false,
        is_runnable: false,
    }];
    (period.profile, period.profiled_samples) = (of_profile.profile, of_profile.profiled_samples);
    period
}

const RENDER: &str = "e:shop_web:request/1 e:shop_web:render/2 b:erlang:term_to_binary/1";
const TOTAL: &str = "e:shop_web:request/1 e:shop_web:total/1";

fn hot(stacks: &[Stack]) -> Option<Finding> {
    found(&profiled(stacks), "BT073")
}

#[test]
fn a_profile_names_the_function_and_its_share_of_cpu_time() {
    let finding = hot(&[
        (CpuState::Process, RENDER, 750),
        (CpuState::Process, TOTAL, 150),
        (CpuState::GarbageCollection, TOTAL, 100),
        (CpuState::BusyWait, "c:scheduler_wait", 400),
    ]);
    let finding = finding.expect("a finding");
    assert_eq!(finding.subject_text().as_deref(), Some("shop_web:render/2"));
    assert!(finding.title.starts_with("75 % of Erlang CPU time is in "), "{}", finding.title);
    // Nearly all of it is in a known function, so it is not only the program's own work.
    assert_eq!(finding.confidence, Confidence::Measured);
    let with_few = hot(&[(CpuState::Process, RENDER, 60), (CpuState::Process, TOTAL, 30)]);
    let by_agent = with_few.expect("a finding by the agent's samples");
    assert_eq!(by_agent.title, "100 % of stack samples are in shop:waits/0");
}

#[test]
fn a_profile_without_data_of_the_vm_names_the_function() {
    let profiled = profiled(&[(CpuState::Process, RENDER, 800), (CpuState::Process, TOTAL, 100)]);
    // Only the host and the threads were recorded.
    let mut host = node()
        .with(|n| n.missing_metrics.extend([&metrics::SCHEDULER_ACTIVE, &metrics::SCHEDULERS_ONLINE]))
        .period();
    (host.profile, host.profiled_samples) = (profiled.profile, profiled.profiled_samples);
    host.facts.set(facts::SCHEDULERS_ONLINE, "");
    let finding = found(&host, "BT073").expect("a finding");
    assert_eq!(finding.subject_text().as_deref(), Some("shop_web:render/2"));
    assert!(finding.detail.contains("0.81 of"), "{}", finding.detail);
}

#[test]
fn a_profile_corrects_the_share_of_gc() {
    let share = |stacks: &[Stack]| {
        let gc = view::gc(&profiled(stacks), &[view::kind::SCHEDULER]).expect("a share");
        (100.0 * gc.share()).round()
    };
    let by_msacc = share(&[]);
    let half = [(CpuState::GarbageCollection, TOTAL, 500), (CpuState::Process, TOTAL, 500)];
    assert_eq!(share(&half), 50.0);
    assert_eq!(share(&[(CpuState::Process, TOTAL, 500)]), 0.0);
    assert_eq!(share(&[(CpuState::GarbageCollection, TOTAL, 500)]), 100.0);
    // Too few samples.
    assert_eq!(share(&[(CpuState::GarbageCollection, TOTAL, 90)]), by_msacc);
}

const WRITES: &str =
    "e:shop_web:send/2 b:erlang:port_command/3 c:writev k:do_syscall_64 k:__x64_sys_writev k:tcp_sendmsg";
const POLLS: &str = "c:erts_check_io k:do_syscall_64 k:__x64_sys_epoll_wait";

#[test]
fn time_in_the_kernel_is_named_by_system_call_and_caller() {
    let stacks =
        [(CpuState::Process, WRITES, 700), (CpuState::Polling, POLLS, 150), (CpuState::Process, TOTAL, 150)];
    let period = profiled(&stacks);
    let finding = found(&period, "BT088").expect("a finding");
    assert_eq!(finding.title, "85 % of CPU time is in the kernel, most of it sending");
    assert_eq!(finding.detail, "for shop_web:send/2 (100 %); 0.86 cores");
    assert!(finding.has(&Signal::Kernel(KernelWork::Output)));
    let calls = finding.evidence.iter().find(|one| one.what == "system calls and exceptions");
    assert_eq!(calls.and_then(|one| one.text.as_deref()), Some("writev (70 %), epoll_wait (15 %)"));
    // Most of the time in the program's own code; too little time in all; no kernel functions; no profile.
    let healthy = |stacks: &[Stack]| matches!(outcome(&profiled(stacks), "BT088"), Outcome::Healthy(_));
    assert!(healthy(&[(CpuState::Process, WRITES, 300), (CpuState::Process, TOTAL, 700)]));
    assert!(healthy(&[(CpuState::Process, WRITES, 100)]));
    assert!(healthy(&[(CpuState::Process, TOTAL, 700)]));
    let without_profile = node().with(|n| n.is_profiled = false).period();
    assert!(matches!(outcome(&without_profile, "BT088"), Outcome::NotJudged { .. }));
    let mut without_kernel = profiled(&[(CpuState::Process, TOTAL, 700)]);
    without_kernel.profile.as_mut().expect("a profile").has_kernel = false;
    assert!(matches!(outcome(&without_kernel, "BT088"), Outcome::NotJudged { .. }));
}
