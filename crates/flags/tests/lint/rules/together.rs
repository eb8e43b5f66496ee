//! Tests of rules about several flags: which one takes effect, and which ones require or exclude each other.

use beamtune_flags::source::{Format, Template};

use super::{EEX, OVERLAY, args, check, check_files};
use crate::linted;

#[test]
fn bf008_overridden_values() {
    args("+sbwt none\n+sbwt short", &["BF008 warning +sbwt"]);
    args("+sbwt none\n+sbwt none", &["BF008 note +sbwt"]);
    args("+hms 233\n+h 376", &["BF008 warning +hms"]);
    // No value takes effect if the VM does not start.
    args("+sbwt none\n+sbwt off", &["BF003 error +sbwt"]);
    args("+sbwt none\n+sbwt", &["BF005 error +sbwt"]);
    args("+hmax 0\n+hmax 300", &["BF004 error +hmax"]);
    args(
        "+t 1048576\n+t 8192",
        &["BF008 warning +t in 23", "BF004 error +t in 25,27,29", "BF015 warning +t in 23"],
    );
    args("+MBacul 30\n+Muacul 40", &["BF008 warning +MBacul"]);
    // Each letter is a separate switch.
    args("+B i\n+B\n+Bc", &[]);
    args("+Bi\n+B i", &["BF008 note +Bi"]);
    args("+Muacul 40\n+MBacul 30", &[]);
    check(
        Format::Shell,
        "ERL_AFLAGS='+S 4'\nERL_FLAGS='+S 8'\nERL_ZFLAGS='+S 16'\n",
        &["BF008 warning +S", "BF008 warning +S"],
    );
    // The order of the files does not matter.
    let files = [(Format::EnvFile, "ERL_FLAGS=+sbwt none\n"), (Format::VmArgs, "+sbwt short\n")];
    check_files(&files, &["BF008 warning +sbwt"]);
    assert_eq!(linted(&files)[0].file, 1);
    check(Format::EnvFile, "ERL_MAX_PORTS=65536\nERL_FLAGS=+Q 65536\n", &["BF008 warning ERL_MAX_PORTS"]);
    // A flag overrides the corresponding variable, whichever comes first.
    for (text, place) in [
        ("+Q 131072\n-env ERL_MAX_PORTS 65536", "before it"),
        ("-env ERL_MAX_PORTS 65536\n+Q 131072", "after it"),
    ] {
        args(text, &["BF008 warning ERL_MAX_PORTS"]);
        let found = &linted(&[(Format::VmArgs, text)])[0];
        assert!(found.message.contains(&format!("is overridden by `+Q 131072` {place}")), "{found:?}");
        assert!(found.reason.starts_with("ERL_MAX_PORTS is used only if +Q is not given"), "{found:?}");
        assert!(found.fix.as_ref().is_some_and(|fix| fix.safe), "{found:?}");
    }
    check(
        Format::EnvFile,
        "ERL_OTP27_FLAGS=+sbwt none\nERL_FLAGS=+sbwt short\n",
        &["BF008 warning +sbwt in 27"],
    );
    // Only one of the two flags may be present at run time.
    check(EEX, "+sbwt none\n<%= if x do %>\n+sbwt short\n<% end %>\n", &[]);
    check(Format::Shell, "ERL_FLAGS='+sbwt none'\nERL_FLAGS='+sbwt short'\n", &[]);
    // Two containers are two nodes.
    check(
        Format::Compose,
        "services:\n  a:\n    environment:\n      ERL_FLAGS: +sbwt none\n  b:\n    environment:\n      ERL_ZFLAGS: +sbwt none\n",
        &[],
    );
    check(
        Format::Compose,
        "services:\n  a:\n    environment:\n      ERL_FLAGS: +P 2097152\n      ERL_ZFLAGS: +P 1048576\n",
        &["BF008 warning +P"],
    );
    check(
        Format::Dockerfile,
        "FROM a AS b\nENV ERL_FLAGS=\"+P 2097152\"\nFROM c\nENV ERL_ZFLAGS=\"+P 1048576\"\n",
        &[],
    );
    // A command-line tool runs in a VM of its own.
    check(Format::RabbitmqEnv, "CTL_ERL_ARGS='+P 2097152'\nSERVER_ADDITIONAL_ERL_ARGS='+P 1048576'\n", &[]);
}

#[test]
fn bf009_flags_that_cancel_each_other() {
    args("+sub true\n+scl true", &["BF009 warning +sub"]);
    args("+scl true\n+sub true", &["BF009 warning +scl"]);
    args("+scl false\n+sub true", &[]);
    args("+IOt 2\n+IOPt 50", &["BF009 warning +IOPt"]);
    args("+Mea min\n+MBlmbcs 4096", &["BF015 warning +Mea", "BF009 warning +MBlmbcs"]);
    args("+MBe false\n+MBlmbcs 4096", &["BF009 warning +MBlmbcs"]);
    args("+Mea min\n+MBe true\n+MBlmbcs 4096", &["BF015 warning +Mea"]);
    args("+MBe false\n+MHlmbcs 4096", &[]);
    args("+MBas aobf\n+MBacul 50", &["BF009 warning +MBas"]);
    args("+MBacul 50\n+MBas aobf", &["BF009 warning +MBacul", "BF015 warning +MBas"]);
    args("+stbt db\n+ssrct", &["BF009 warning +stbt in 25,27,29", "BF002 error +ssrct in 23"]);
    args(
        "+pad true\n+zdbbl 4096",
        &["BF002 error +pad in 23", "BF002 warning +pad in 25", "BF009 warning +pad in 25,27,29"],
    );
}

#[test]
fn bf010_flags_that_together_prevent_the_start() {
    args("+IOt 2\n+IOp 4", &["BF010 error +IOp"]);
    args("+IOp 2\n+IOt 2", &[]);
    args("+IOp 2", &["BF010 error +IOp"]);
    args("+IOp 1", &[]);
    check(OVERLAY, "+IOp 2\n+IOt ${N}\n", &[]);
    args("+sbt db\n+sct L0-1c0-1", &["BF010 error +sbt in 25,27,29"]);
    args("+sct L0-1c0-1\n+sbt db", &[]);
    args("+ssrct\n+sbt db", &["BF002 error +ssrct in 23", "BF010 error +sbt in 25,27,29"]);
    args("+hms 2000000\n+hmax 1000000", &["BF010 error +hmax"]);
    args("+hms 2000000\n+hmax 0", &[]);
}

#[test]
fn bf024_node_names() {
    args("-name a@b.c\n-sname a", &["BF024 warning -name"]);
    args("-sname a\n-name a@b.c", &["BF024 warning -name"]);
    args("-sname a b\n", &["BF024 warning -sname"]);
    // The first name takes effect, unless it is invalid.
    args("-sname a\n-name a@b.c\n-sname b", &["BF024 warning -name", "BF024 warning -sname"]);
    args("-sname a b\n-sname c", &["BF024 warning -sname"]);
    let message = |text: &str, at: usize| linted(&[(Format::VmArgs, text)])[at].message.clone();
    assert_eq!(message("-sname a\n-sname b", 0), "`-sname b` has no effect: the `-sname` before it is used");
    assert_eq!(
        message("-name a@b.c\n-sname a", 0),
        "`-name a@b.c` has no effect: the `-sname` after it is used"
    );
    assert!(
        message("-sname a b\n-name c@d", 0)
            .ends_with("another word follows (`b`); the `-name` after it is used")
    );
    assert!(
        message("-sname a b\n-sname c", 0)
            .ends_with("another word follows (`b`); the node starts without a name")
    );
    let places = [(Format::EnvFile, "ERL_FLAGS=-sname b\n"), (Format::VmArgs, "-sname a\n")];
    check_files(&places, &["BF024 warning -sname"]);
    assert_eq!(linted(&places)[0].file, 0);
    check(Format::Shell, "ERL_FLAGS='-sname a'\nERL_FLAGS='-sname b'\n", &[]);
    args("-sname a\n-setcookie b", &[]);
    args("-name a", &["BF024 note -name"]);
    args("-name a\n-sname b", &["BF024 warning -name"]);
    check(OVERLAY, "-name ${NAME}", &[]);
    args("-setcookie a\n-setcookie b", &["BF024 warning -setcookie"]);
    let places = [(Format::VmArgs, "-setcookie a\n"), (Format::EnvFile, "ERL_FLAGS=-setcookie b\n")];
    check_files(&places, &["BF024 warning -setcookie"]);
    check(Format::Shell, "ERL_FLAGS='-setcookie a'\nERL_FLAGS='-setcookie b'\n", &[]);
    let erb = Format::VmArgsTemplate(Template::Erb);
    check(erb, "<% if x %>\n-name a@b.c\n<% else %>\n-sname a\n<% end %>\n", &[]);
}

#[test]
fn bf024_names_and_cookies_of_mix_releases() {
    check(EEX, "-setcookie <%= @release.options[:cookie] %>", &["BF024 warning -setcookie"]);
    check(EEX, "-name <%= @release.name %>@127.0.0.1\n", &["BF024 warning -name"]);
    check(EEX, "-sname a\n-setcookie b\n", &["BF024 warning -sname", "BF024 warning -setcookie"]);
    check(EEX, "-name a\n-sname b\n", &["BF024 warning -name", "BF024 warning -sname"]);
    check(EEX, "<%= if x do %>\n-sname a\n<% end %>", &["BF024 warning -sname"]);
    // These nodes are not started by a script that sets name and cookie.
    check(EEX, "## For Nerves\n-setcookie a\n-sname b", &[]);
    check(EEX, "-setcookie a\n-user elixir", &[]);
    check(EEX, "-name <%= release_name %>@127.0.0.1\n-setcookie a", &[]);
    let erb = Format::VmArgsTemplate(Template::Erb);
    check(erb, "-name <%= node['riak']['name'] %>\n-setcookie a", &[]);
    args("-name a@b.c\n-setcookie a", &[]);
}

#[test]
fn bf026_flags_that_require_another_setting() {
    args("-heart", &["BF026 warning -heart"]);
    check(EEX, "-heart", &["BF026 warning -heart"]);
    // erlinit of Nerves may set the variable.
    check(EEX, "## Options for Nerves\n-heart", &["BF026 note -heart"]);
    check(EEX, "-heart\n-noshell\n-user elixir\n", &["BF026 note -heart"]);
    args("-heart -env ERL_CRASH_DUMP_SECONDS 10", &[]);
    let elsewhere = [(Format::VmArgs, "-heart\n"), (Format::EnvFile, "ERL_CRASH_DUMP_SECONDS=10\n")];
    check_files(&elsewhere, &[]);
    // The unknown words may contain the setting.
    check(Format::Shell, "ERL_FLAGS=\"-heart $MORE\"\n", &[]);
}

#[test]
fn bf031_distribution_ports() {
    args(
        "-kernel inet_dist_listen_min 9200 inet_dist_listen_max 9100",
        &["BF031 warning -kernel inet_dist_listen_max"],
    );
    args("-kernel inet_dist_listen_max 9100", &["BF031 warning -kernel inet_dist_listen_max"]);
    args("-kernel inet_dist_listen_min 9100\n-kernel inet_dist_listen_max 9200", &[]);
    args("-kernel inet_dist_listen_min 9100", &[]);
    check(OVERLAY, "-kernel inet_dist_listen_min ${A} inet_dist_listen_max 9100", &[]);
    // A single port suffices for the node, but not if further VMs are started next to it.
    const ONE: &str = "-kernel inet_dist_listen_min 9177 inet_dist_listen_max 9177";
    const ONE_PORT_FINDING: &[&str] = &["BF031 warning -kernel inet_dist_listen_min"];
    args(ONE, &[]);
    let env =
        |line: &str, expect: &[&str]| check(Format::EnvFile, &format!("RELEASE_NODE=a@b\n{line}\n"), expect);
    env(&format!("ERL_AFLAGS={ONE}"), ONE_PORT_FINDING);
    env("ERL_FLAGS=-kernel inet_dist_listen_min 9177", ONE_PORT_FINDING);
    env("ERL_FLAGS=-kernel inet_dist_listen_min 9177 inet_dist_listen_max 9180", &[]);
    env(&format!("ERL_FLAGS={ONE} -name a@b.c"), &[]);
    env(&format!("ERL_FLAGS={ONE} -dist_listen false"), &[]);
    env(&format!("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS={ONE}"), &[]);
    check(Format::EnvFile, &format!("ERL_FLAGS={ONE}\n"), &[]);
    check(Format::Shell, &format!("export ELIXIR_ERL_OPTIONS='{ONE}'\n"), ONE_PORT_FINDING);
    check(Format::Shell, &format!("if x; then export ELIXIR_ERL_OPTIONS='{ONE}'; fi\n"), &[]);
    check(Format::Shell, &format!("export ELIXIR_ERL_OPTIONS=\"{ONE} $MORE\"\n"), &[]);
    let unit = |more: &str| {
        format!("[Service]\nEnvironment=RELEASE_NODE=a\nEnvironment=\"ERL_FLAGS={ONE}\"\n{more}")
    };
    check(Format::SystemdUnit, &unit(""), &[]);
    check(Format::SystemdUnit, &unit("ExecStop=/opt/x/bin/x stop\n"), ONE_PORT_FINDING);
}
