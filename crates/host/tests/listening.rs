//! Accept queues of real VMs of each release.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod common;

use std::net::{TcpListener, TcpStream};
use std::process::Command;

use beamtune_model::metrics;
use common::{Recorder, Running, eventually, installed, is_root, on_each_release};

/// Returns an expression that listens, prints the port, and accepts one connection for each line of input.
fn listening(backlog: u32, address: &str) -> String {
    format!(
        "{{ok, L}} = gen_tcp:listen(0, [{{backlog, {backlog}}}, {{ip, {address}}}]), {{ok, P}} = inet:port(L),
         io:format(\"port ~b~n\", [P]),
         Accept = fun F() -> io:get_line([]), {{ok, _}} = gen_tcp:accept(L), F() end, Accept()"
    )
}

fn port(vm: &Running) -> u16 {
    vm.line("port ").parse().unwrap()
}

#[test]
fn accept_queues_are_recorded_with_their_limit() {
    on_each_release(|otp| {
        let mut vm = otp.start_with_input(&[], &listening(3, "{127,0,0,1}"));
        let port = port(&vm);
        let entity = format!("127.0.0.1:{port}");
        let mut recorder = Recorder::of(vm.pid());
        let mut queue = |wanted: i64| {
            eventually("the queue", || {
                let sample = recorder.sample(true);
                let limit = recorder.value(&sample, &metrics::ACCEPT_QUEUE_LIMIT, &entity);
                (recorder.value(&sample, &metrics::ACCEPT_QUEUE, &entity)? == wanted).then_some(limit)
            })
        };
        assert_eq!(queue(0), Some(3));
        let _clients: Vec<TcpStream> =
            (0..2).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
        queue(2);
        vm.tell("");
        queue(1);
    });
}

#[test]
fn sockets_of_other_processes_are_not_recorded() {
    let Some(otp) = installed(25) else { return println!("skipped, because OTP 25 is not installed") };
    let others = TcpListener::bind("127.0.0.1:0").unwrap();
    let entity = others.local_addr().unwrap().to_string();
    let vm = otp.start(&[], "ok");
    let mut recorder = Recorder::of(vm.pid());
    let sample = recorder.sample(true);
    assert!(recorder.value(&sample, &metrics::LISTENING_SOCKETS, "").unwrap() > 0);
    assert!(recorder.value(&sample, &metrics::LISTEN_OVERFLOWS, "").is_some());
    assert_eq!(recorder.value(&sample, &metrics::ACCEPT_QUEUE, &entity), None);
}

#[test]
fn accept_queue_in_another_network_namespace_is_read() {
    if installed(25).is_none() {
        return println!("skipped, because OTP 25 is not installed");
    }
    if !is_root() {
        return;
    }
    let mut command = Command::new("unshare");
    command.args(["--net", "erl", "-noinput", "-eval", &listening(7, "{0,0,0,0}")]);
    let vm = Running::start(command);
    let entity = format!("0.0.0.0:{}", port(&vm));
    let mut recorder = Recorder::of(vm.pid());
    let sample = recorder.sample(true);
    assert_eq!(recorder.value(&sample, &metrics::ACCEPT_QUEUE, &entity), Some(0));
    assert_eq!(recorder.value(&sample, &metrics::ACCEPT_QUEUE_LIMIT, &entity), Some(7));
    assert_eq!(
        recorder.value(&sample, &metrics::LISTENING_SOCKETS, ""),
        Some(1),
        "the only socket in this namespace"
    );
}
