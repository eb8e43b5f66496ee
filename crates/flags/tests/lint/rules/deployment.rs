//! Tests of rules about the environment of a VM: the container or systemd unit, and the product that starts the VM.

use beamtune_flags::source::Format;

use super::{args, check};
use crate::linted;

#[test]
fn bf027_schedulers_and_cpu_limits() {
    let service = |cpus: &str, flags: &str| {
        format!("services:\n  a:\n    cpus: {cpus}\n    environment:\n      ERL_FLAGS: {flags}\n")
    };
    let compose =
        |cpus: &str, flags: &str, expect: &[&str]| check(Format::Compose, &service(cpus, flags), expect);
    compose("2", "+S 4:4 +sbwt none", &["BF027 warning +S"]);
    compose("2", "+S 2:2 +sbwt none", &[]);
    compose("0.5", "+S 1:1 +sbwt none", &[]);
    compose("2", "+sbwt short", &["BF027 warning +sbwt"]);
    compose("2", "+S 8:2", &["BF027 note +sbwt"]);
    compose("2", "$FLAGS", &[]);
    compose("${CPUS}", "+S 8:8", &[]);
    check(Format::VmArgs, "+sbwt very_long\n", &[]);
    check(
        Format::SystemdUnit,
        "[Service]\nCPUQuota=150%\nEnvironment=\"ERL_FLAGS=+S 4 +sbwt none\"\n",
        &["BF027 warning +S"],
    );
    let pod = |resources: &str| {
        format!(
            "kind: Pod\nspec:\n  containers:\n    - env:\n        - {{name: ERL_FLAGS, value: +sbwt none}}\n      resources: {resources}\n"
        )
    };
    check(Format::Kubernetes, &pod("{requests: {cpu: 250m}}"), &["BF027 note +S"]);
    check(Format::Kubernetes, &pod("{requests: {cpu: 250m}, limits: {cpu: 1}}"), &[]);
}

#[test]
fn bf028_binding_in_containers() {
    check(Format::Dockerfile, "FROM a\nENV ERL_FLAGS=\"+stbt db\"\n", &["BF028 warning +stbt"]);
    check(Format::Dockerfile, "FROM a\nENV ERL_FLAGS=\"+stbt u\"\n", &[]);
    args("+stbt db", &[]);
}

#[test]
fn bf029_port_tables() {
    let unit = |limit: &str, flags: &str| {
        format!("[Service]\nLimitNOFILE={limit}\nEnvironment=\"ERL_FLAGS={flags}\"\n")
    };
    check(Format::SystemdUnit, &unit("1048576", "+sbwt none"), &["BF029 note +Q"]);
    check(Format::SystemdUnit, &unit("infinity", "+sbwt none"), &["BF029 note +Q"]);
    check(Format::SystemdUnit, &unit("1048576", "+Q 65536"), &[]);
    check(Format::SystemdUnit, &unit("65536", "+sbwt none"), &[]);
    check(Format::Shell, "ulimit -n 120000\nexport ERL_FLAGS='+sbwt none'\n", &["BF029 note +Q"]);
    check(Format::Shell, "ulimit -n 120000\nexport ERL_FLAGS='+sbwt none +Q 65536'\n", &[]);
    // rabbitmq-env sets ERL_MAX_PORTS.
    let rabbit = "[Service]\nLimitNOFILE=1048576\nEnvironment=RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-heart\n";
    check(Format::SystemdUnit, rabbit, &["BF026 warning -heart"]);
    let reason = &linted(&[(Format::SystemdUnit, &unit("1048576", "+sbwt none"))])[0].reason;
    assert!(reason.contains("about 12 MB up to OTP 25, 16 MB from OTP 26 on, even if unused"), "{reason}");
}

#[test]
fn bf030_variables_of_products() {
    check(
        Format::EnvFile,
        "RABBITMQ_SERVER_ERL_ARGS=+P 1048576\n",
        &["BF030 warning RABBITMQ_SERVER_ERL_ARGS"],
    );
    check(Format::RabbitmqEnv, "SERVER_ERL_ARGS='+K true'\n", &["BF030 warning SERVER_ERL_ARGS"]);
    check(Format::RabbitmqEnv, "SERVER_ADDITIONAL_ERL_ARGS='+P 1048576'\n", &[]);
    // The variables are not exported and have no effect, so nothing else is reported about them.
    check(Format::RabbitmqEnv, "ERL_FLAGS='+P 512000 +K true'\n", &["BF030 warning ERL_FLAGS"]);
    check(Format::RabbitmqEnv, "ERL_MAX_PORTS=4096\n", &["BF030 warning ERL_MAX_PORTS"]);
    check(Format::RabbitmqEnv, "export ERL_FLAGS='+K true'\n", &["BF006 warning +K"]);
    check(Format::RabbitmqEnv, "ERL_FLAGS='+K true'\nexport ERL_FLAGS\n", &["BF006 warning +K"]);
    check(Format::Shell, "ERL_FLAGS='+K true'\n", &["BF006 warning +K"]);
}
