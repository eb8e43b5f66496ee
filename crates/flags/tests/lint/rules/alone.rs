//! Tests of rules about a single flag and its value: whether a VM accepts the value, and with which effect.

use beamtune_flags::source::Format;

use super::{EEX, OVERLAY, args, check, check_files};
use crate::linted;

#[test]
fn bf001_unknown_flags() {
    args("+MBscs 256", &["BF001 error +MBscs"]);
    args("+JPfp true", &["BF001 error +JPfp"]);
    args("+xyz", &["BF001 error +xyz"]);
    args("+IOp4", &["BF001 error +IOp4"]);
    args("+sbwt none\n+S4\n+swsdefault\n+fnuw\n+MBas aoffcbf", &[]);
    // A flag with a minus may belong to an application.
    args("-xyz a\n", &[]);
    args("-noshell\n+ sbwt none", &["BF001 error +"]);
    // The VM starts, and parses `+Lx` as `+L`.
    args("+Lx\n+H", &["BF001 warning +Lx", "BF001 warning +H"]);
    args("+Dx", &["BF001 error +Dx"]);
    check(OVERLAY, "+${FLAG} 4\n", &[]);
}

#[test]
fn bf002_flags_of_other_releases() {
    args("+zhft infinity", &["BF002 error +zhft in 23,25"]);
    args("+Mit 127.0.0.1:1", &["BF002 error +Mit in 25,27,29", "BF015 warning +Mit in 23"]);
    args("+pad false", &["BF002 error +pad in 23", "BF002 warning +pad in 25"]);
    args("-kernel log_missed_net_ticks true", &["BF002 note -kernel log_missed_net_ticks in 23,25,27"]);
    // All except the oldest versions of OTP 23 have the flag.
    args("+Mucp :", &[]);
    args("+Muacful 20", &["BF002 error +Muacful in 23"]);
    check(OVERLAY, "+zhft ${X}", &["BF002 error +zhft in 23,25"]);
}

#[test]
fn bf003_refused_values() {
    args("+sbwt off", &["BF003 error +sbwt"]);
    args("+P 100", &["BF003 error +P"]);
    args("-smp disable", &["BF003 error -smp"]);
    args("+Bx\n+cyes", &["BF003 error +Bx", "BF003 error +cyes"]);
    args("+Bc\n+ctrue", &[]);
    args("+R 16", &["BF003 error +R"]);
    args("+S 2:4", &["BF003 error +S"]);
    args("+Mea config", &["BF003 error +Mea in 27,29"]);
    args("+MTe false", &["BF003 error +MTe"]);
    args("+zdbbl 0", &["BF003 error +zdbbl"]);
    args("-kernel logger_level loud", &["BF003 error -kernel logger_level"]);
    args(
        "-kernel prevent_overlapping_partitions maybe",
        &[
            "BF003 warning -kernel prevent_overlapping_partitions in 23",
            "BF003 error -kernel prevent_overlapping_partitions in 25,27,29",
        ],
    );
    args("-kernel dist_auto_connect always", &["BF003 warning -kernel dist_auto_connect"]);
    args("+Bd\n+B", &["BF008 warning +Bd"]);
    args("+Bfoo", &["BF003 error +Bfoo"]);
    args("+B foo", &["BF003 error +B in 23"]);
    args("+B ix", &[]);
    args("-noshell +B -x a", &[]);
    check(OVERLAY, "+B ${MODE}", &[]);
    // Only the first letter after the flag matters.
    args("+Bix", &[]);
    args("-kernel logger_level \"'warning'\" net_ticktime 30", &[]);
    check(OVERLAY, "+sbwt ${WAIT}\n+P ${N:-100}", &[]);
    // The word in the condition is not the value of the flag.
    check(EEX, "+sbwt <%= if x do %>\nloud\n<% end %>\n", &[]);
    check(Format::Shell, "ERL_FLAGS=\"+sbwt off\"", &["BF003 error +sbwt"]);
    check(Format::EjabberdCtl, "ERL_PROCESSES=100\n", &["BF003 error ERL_PROCESSES"]);
}

#[test]
fn bf004_fatal_values() {
    args("+Mea r9c", &["BF004 error +Mea"]);
    args("+MIscs 1", &["BF004 error +MIscs"]);
    args("+MMscs 1G", &["BF004 error +MMscs"]);
    args("+hmax 300", &["BF004 error +hmax"]);
    args("+t 8192", &["BF004 error +t in 25,27,29", "BF015 warning +t in 23"]);
    args("+Mea max\n+MIscs 1024\n+hmax 0\n+t 1048576", &[]);
    args("+V", &["BF004 error +V"]);
    args("-noshell\n-version", &["BF004 error -version"]);
    // An overridden number is harmless.
    args("+MIscs 1\n+MIscs 1024", &["BF008 warning +MIscs"]);
    // An overridden keyword is still fatal.
    args("+Mea r9c\n+Mea max", &["BF004 error +Mea", "BF008 warning +Mea"]);
}

#[test]
fn bf005_missing_values() {
    args("+sbwt", &["BF005 error +sbwt"]);
    args("+sbwt\n+sbwtdcpu none", &["BF005 error +sbwt"]);
    args("+dcg 8", &["BF005 error +dcg"]);
    args("+dcg8", &[]);
    args("+hmbs -1", &["BF003 error +hmbs"]);
    args("+zdbbl +8", &["BF003 error +zdbbl in 23"]);
    args("+secio", &["BF005 error +secio in 23", "BF005 warning +secio in 25,27,29"]);
    check(Format::Shell, "ERL_FLAGS=+sbwt none", &["BF005 error +sbwt"]);
    check(OVERLAY, "+sbwt ${WAIT}", &[]);
}

#[test]
fn bf006_flags_without_effect() {
    args("+K true", &["BF006 warning +K"]);
    args("+secio false", &["BF006 warning +secio"]);
    args("-smp auto\n-smp", &["BF006 warning -smp", "BF006 warning -smp"]);
    args("+MXe true", &["BF002 error +MXe in 25,27,29", "BF006 warning +MXe in 23"]);
    args("-env HEART_BEAT_TIMEOUT 5", &["BF006 warning HEART_BEAT_TIMEOUT"]);
    args("-env HEART_BEAT_TIMEOUT 30", &[]);
    check(Format::EjabberdCtl, "POLL=true\nSMP=auto\n", &["BF006 warning POLL", "BF006 warning SMP"]);
}

#[test]
fn bf006_parameters_of_sasl_without_compatibility_mode() {
    args("-sasl sasl_error_logger false", &["BF006 warning -sasl sasl_error_logger"]);
    args(
        "-sasl errlog_type error sasl_error_logger '{file, \"x\"}'",
        &["BF006 warning -sasl errlog_type", "BF006 warning -sasl sasl_error_logger"],
    );
    args("-sasl sasl_error_logger false\n-kernel logger_sasl_compatible true", &[]);
    let elsewhere = [
        (Format::VmArgs, "-sasl errlog_type error"),
        (Format::EnvFile, "ERL_FLAGS=-kernel logger_sasl_compatible true\n"),
    ];
    check_files(&elsewhere, &[]);
    check(OVERLAY, "-sasl errlog_type error\n${MORE}", &[]);
    args("-sasl error_logger_mf_dir '\"x\"' error_logger_mf_maxbytes 10000", &[]);
    args("-x errlog_type error", &[]);
}

#[test]
fn bf007_outdated_settings() {
    args("+A 64", &["BF007 warning +A"]);
    args("+e 256000", &["BF007 warning +e"]);
    args("-env ERL_MAX_PORTS 65536", &["BF007 warning ERL_MAX_PORTS"]);
    args("+A 1", &[]);
    check(Format::EnvFile, "ERL_MAX_ETS_TABLES=5000\n", &["BF007 warning ERL_MAX_ETS_TABLES"]);
    check(Format::RabbitmqEnv, "IO_THREAD_POOL_SIZE=1\n", &[]);
}

#[test]
fn bf011_changed_values() {
    args("+P 1500000", &["BF011 note +P"]);
    args("+MMmcs 50", &["BF011 note +MMmcs"]);
    args("+A 0", &["BF011 note +A"]);
    // ERL_MAX_PORTS is deprecated, but still takes effect.
    let ports = |value: &str, level: &str| {
        let finding = format!("BF011 {level} ERL_MAX_PORTS");
        args(&format!("-env ERL_MAX_PORTS {value}"), &["BF007 warning ERL_MAX_PORTS", &finding]);
    };
    ports("65535", "note");
    ports("3200000", "note");
    args(
        "-env ERL_MAX_PORTS 268435456",
        &["BF007 warning ERL_MAX_PORTS", "BF011 warning ERL_MAX_PORTS", "BF015 warning ERL_MAX_PORTS"],
    );
    args("-env ERL_FULLSWEEP_AFTER 70000", &["BF011 warning ERL_FULLSWEEP_AFTER"]);
    args("+hmaxib true", &["BF011 warning +hmaxib in 23,25"]);
    args("+MBlmbcs 256\n+MBsmbcs 1024", &["BF011 warning +MBlmbcs"]);
    args("+Muacul 40\n+Muacful 60", &["BF002 error +Muacful in 23", "BF011 warning +Muacful in 25,27,29"]);
    args("+S 4:4\n+SDcpu 8:8", &["BF011 warning +SDcpu"]);
    args("+P 1048576\n+Q 65536\n+P legacy\n", &["BF008 warning +P"]);
    args("+hmbs 32768", &[]);
    args("+S 4:4\n+SDcpu 2:2", &[]);
    // The accepted values are described in a sentence.
    let reason = &linted(&[(Format::VmArgs, "+P 1500000")])[0].reason;
    assert!(
        reason.starts_with("Accepted: 1024 to 134217727 processes, rounded up to a power of two; or legacy.")
    );
}

#[test]
fn bf012_units() {
    args("+zdbbl 8k", &["BF012 warning +zdbbl"]);
    args("+zdbbl 1_024", &["BF012 warning +zdbbl"]);
    args("+MYtt 8G", &["BF012 warning +MYtt"]);
    args("+zdbbl 8192", &[]);
    let found = linted(&[(Format::VmArgs, "+zdbbl 32MB")]);
    assert!(found[0].remedy.contains("`+zdbbl 32768`"), "{found:?}");
}

#[test]
fn bf013_words_that_look_like_bytes() {
    args("+hmax 536870912", &["BF013 note +hmax"]);
    args("+hmax 67108860", &[]);
    args("+hms 233", &[]);
    args("+hmax 1000000000", &["BF013 note +hmax"]);
    args("+hmax 10000000", &[]);
    args("# 100 MB (1 word = 8 bytes)\n+hmax 50000000", &["BF013 note +hmax"]);
    args("+hmax 50000000 # 400 MB", &[]);
    args("# 4 GiB\n+hmax 536870912", &[]);
    args("# 100 MB, more than the 1 MB of before\n+hmax 50000000", &[]);
    args("# the hosts have 64 GB\n+hmax 50000000", &[]);
    args("# the hosts have 64 GB\n+hmax 67108864", &["BF013 note +hmax"]);
    let found = linted(&[(Format::VmArgs, "# 100 MB\n+hmax 50000000")]);
    assert!(
        found[0].message.contains("is 400 MB") && found[0].remedy.contains("write 13107200"),
        "{found:?}"
    );
    let found = linted(&[(Format::VmArgs, "+hmax 536870912")]);
    assert!(found[0].message.contains("4 GiB") && found[0].remedy.contains("67108864"), "{found:?}");
}

#[test]
fn bf015_traps() {
    // A value below the default is a warning if the comment says that the limit is raised.
    args("+Q 4096", &["BF015 note +Q"]);
    args("## Increase number of concurrent ports/sockets\n+Q 8192", &["BF015 warning +Q"]);
    args("+Q 40000", &["BF011 note +Q"]);
    args("-env ERL_MAX_PORTS 4096", &["BF007 warning ERL_MAX_PORTS", "BF015 warning ERL_MAX_PORTS"]);
    args("-env ERL_MAX_PORTS 131072", &["BF007 warning ERL_MAX_PORTS"]);
    args("+P 131072", &["BF015 note +P"]);
    args("+P 262144", &["BF015 note +P in 27,29"]);
    args("+P 524288 # Raise the limit", &["BF015 warning +P in 27,29"]);
    args("+P 1048576\n+Q 65536\n+P legacy", &["BF008 warning +P"]);
    let found = linted(&[(Format::VmArgs, "+P 131072")]);
    assert!(
        found[0].message.contains("the default is 262144, and 1048576 from OTP 27.0 on, in OTP 23"),
        "{found:?}"
    );
    // Large tables and buffers are reported.
    args("+P 4194304\n+Q 4194304", &[]);
    args("+P 8388608\n+Q 16777216", &["BF015 note +P", "BF015 note +Q"]);
    args("+Q 134217727", &["BF015 warning +Q"]);
    args("'+Q 134217727'", &["BF015 warning +Q 134217727", "BF019 note +Q 134217727"]);
    let found = linted(&[(Format::VmArgs, "+P 16777216")]);
    assert!(found[0].message.contains("a table of 201 MB up to OTP 25, 268 MB from OTP 26 on"), "{found:?}");
    args(
        "-env ERL_FULLSWEEP_AFTER 0\n+zdbbl 1048576",
        &["BF015 note ERL_FULLSWEEP_AFTER", "BF015 note +zdbbl"],
    );
    args("-env ERL_FULLSWEEP_AFTER 10\n+zdbbl 131072", &[]);
    args("+JPperf true", &["BF002 error +JPperf in 23", "BF015 note +JPperf in 25,27,29"]);
    args("+JPperf false", &["BF002 error +JPperf in 23"]);
    args("-env ERL_CRASH_DUMP .", &["BF015 warning ERL_CRASH_DUMP"]);
    args("-env ERL_CRASH_DUMP ./erl_crash.dump", &[]);
    args("-env ERL_CRASH_DUMP /srv/app", &[]);
    args("-env ERL_CRASH_DUMP /srv/app -pa /srv/app/ebin", &["BF015 warning ERL_CRASH_DUMP"]);
    args("-env ERL_CRASH_DUMP /srv/app -pa /opt/srv/app/ebin /srv/app-1/ebin", &[]);
    let unit =
        |dir: &str| format!("[Service]\nEnvironment=APP_DIR={dir}\nEnvironment=ERL_CRASH_DUMP=\"/srv/x\"\n");
    check(Format::SystemdUnit, &unit("\"/srv/x\""), &["BF015 warning ERL_CRASH_DUMP"]);
    check(Format::SystemdUnit, &unit("/srv/x/y"), &["BF015 warning ERL_CRASH_DUMP"]);
    check(Format::SystemdUnit, &unit("/srv/xy"), &[]);
    args("+R 25", &["BF003 error +R in 23,29", "BF015 warning +R in 25,27"]);
    args("+c", &["BF015 warning +c"]);
    args("+c true", &[]);
    args("+c\n+c true", &["BF008 warning +c"]);
    args("+MBas aobf", &["BF015 warning +MBas"]);
    args("+MTas bf", &[]);
    args("+hmqd off_heap", &[]);
    args("+hmqd off_heap\n+hmax 1000001", &["BF015 warning +hmqd"]);
    args("+MMscs 1024", &["BF015 note +MMscs"]);
    args("+MMscs 1024\n+MMsco false", &[]);
    args("+MMscs 1024\n+Musac false", &["BF015 warning +MMscs"]);
    args("+SP 8", &["BF015 warning +SP"]);
    args("+SP 0", &["BF015 warning +SP"]);
    args("+SP 50:50", &[]);
    args("+S 4:4\n+SP 50:50", &["BF015 warning +SP"]);
    args("-emu_flavor emu", &["BF006 warning -emu_flavor in 23", "BF015 warning -emu_flavor in 25,27,29"]);
    args(
        "-kernel prevent_overlapping_partitions false",
        &["BF015 warning -kernel prevent_overlapping_partitions"],
    );
    check(OVERLAY, "+R ${RELEASE}\n+c ${CORRECTION}", &["BF015 warning +R"]);
}
