//! Every rule on texts as small as can be: one that it finds something in, and one like it in which there is nothing.

use beamtune_flags::source::{Format, Template};

use super::{linted, shown};

fn check_files(files: &[(Format, &str)], expect: &[&str]) {
    let found: Vec<String> = linted(files).iter().map(shown).collect();
    assert_eq!(found, expect, "{files:?}");
}

fn check(format: Format, text: &str, expect: &[&str]) {
    check_files(&[(format, text)], expect);
}

fn args(text: &str, expect: &[&str]) {
    check(Format::VmArgs, text, expect);
}

const EEX: Format = Format::VmArgsTemplate(Template::Eex);
const OVERLAY: Format = Format::VmArgsTemplate(Template::Overlay);

#[test]
fn bf001_unknown_flags() {
    args("+MBscs 256", &["BF001 error +MBscs"]);
    args("+JPfp true", &["BF001 error +JPfp"]);
    args("+xyz", &["BF001 error +xyz"]);
    args("+IOp4", &["BF001 error +IOp4"]);
    args("+sbwt none\n+S4\n+swsdefault\n+fnuw\n+MBas aoffcbf", &[]);
    // Somebody else's words.
    args("-xyz a\n", &[]);
    args("-noshell\n+ sbwt none", &["BF001 error +"]);
    // It starts, and takes this for +L.
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
    // All but the oldest versions of the release have it.
    args("+Mucp :", &[]);
    args("+Muacful 20", &["BF002 error +Muacful in 23"]);
    check(OVERLAY, "+zhft ${X}", &["BF002 error +zhft in 23,25"]);
}

#[test]
fn bf003_values_that_are_refused() {
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
    args("-kernel dist_auto_connect always", &["BF003 warning -kernel dist_auto_connect"]);
    args("+Bd\n+B", &["BF008 warning +Bd"]);
    args("+Bfoo", &["BF003 error +Bfoo"]);
    // Only the first letter behind it is read.
    args("+Bix", &[]);
    args("-kernel logger_level \"'warning'\" net_ticktime 30", &[]);
    check(OVERLAY, "+sbwt ${WAIT}\n+P ${N:-100}", &[]);
    // The words of a condition are not those of the flag.
    check(EEX, "+sbwt <%= if x do %>\nloud\n<% end %>\n", &[]);
    check(Format::Shell, "ERL_FLAGS=\"+sbwt off\"", &["BF003 error +sbwt"]);
    check(Format::EjabberdCtl, "ERL_PROCESSES=100\n", &["BF003 error ERL_PROCESSES"]);
}

#[test]
fn bf004_values_that_kill() {
    args("+Mea r9c", &["BF004 error +Mea"]);
    args("+MIscs 1", &["BF004 error +MIscs"]);
    args("+MMscs 1G", &["BF004 error +MMscs"]);
    args("+hmax 300", &["BF004 error +hmax"]);
    args("+t 8192", &["BF004 error +t in 25,27,29", "BF015 warning +t in 23"]);
    args("+Mea max\n+MIscs 1024\n+hmax 0\n+t 1048576", &[]);
    args("+V", &["BF004 error +V"]);
    args("-noshell\n-version", &["BF004 error -version"]);
    // Another one takes its place.
    args("+MIscs 1\n+MIscs 1024", &["BF008 warning +MIscs"]);
    // But this one is carried out where it stands.
    args("+Mea r9c\n+Mea max", &["BF004 error +Mea", "BF008 warning +Mea"]);
}

#[test]
fn bf005_values_that_are_missing() {
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
fn bf006_parameters_of_sasl_without_its_old_mode() {
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
fn bf007_settings_that_are_outdated() {
    args("+A 64", &["BF007 warning +A"]);
    args("+e 256000", &["BF007 warning +e"]);
    args("-env ERL_MAX_PORTS 65536", &["BF007 warning ERL_MAX_PORTS"]);
    args("+A 1", &[]);
    check(Format::EnvFile, "ERL_MAX_ETS_TABLES=5000\n", &["BF007 warning ERL_MAX_ETS_TABLES"]);
    check(Format::RabbitmqEnv, "IO_THREAD_POOL_SIZE=1\n", &[]);
}

#[test]
fn bf008_values_that_do_not_count() {
    args("+sbwt none\n+sbwt short", &["BF008 warning +sbwt"]);
    args("+sbwt none\n+sbwt none", &["BF008 note +sbwt"]);
    args("+hms 233\n+h 376", &["BF008 warning +hms"]);
    args("+MBacul 30\n+Muacul 40", &["BF008 warning +MBacul"]);
    // Each letter is a switch of its own.
    args("+B i\n+B\n+Bc", &[]);
    args("+Bi\n+B i", &["BF008 note +Bi"]);
    args("+Muacul 40\n+MBacul 30", &[]);
    check(
        Format::Shell,
        "ERL_AFLAGS='+S 4'\nERL_FLAGS='+S 8'\nERL_ZFLAGS='+S 16'\n",
        &["BF008 warning +S", "BF008 warning +S"],
    );
    // The files may come in any order.
    let files = [(Format::EnvFile, "ERL_FLAGS=+sbwt none\n"), (Format::VmArgs, "+sbwt short\n")];
    check_files(&files, &["BF008 warning +sbwt"]);
    assert_eq!(linted(&files)[0].file, 1);
    check(Format::EnvFile, "ERL_MAX_PORTS=65536\nERL_FLAGS=+Q 65536\n", &["BF008 warning ERL_MAX_PORTS"]);
    // A flag beats its variable in either order.
    for (text, place) in [
        ("+Q 131072\n-env ERL_MAX_PORTS 65536", "before it"),
        ("-env ERL_MAX_PORTS 65536\n+Q 131072", "behind it"),
    ] {
        args(text, &["BF008 warning ERL_MAX_PORTS"]);
        let found = &linted(&[(Format::VmArgs, text)])[0];
        assert!(found.message.contains(&format!("the `+Q 131072` {place} does")), "{found:?}");
        assert!(found.reason.starts_with("ERL_MAX_PORTS counts only where +Q is not given"), "{found:?}");
        assert!(found.fix.as_ref().is_some_and(|fix| fix.safe), "{found:?}");
    }
    check(
        Format::EnvFile,
        "ERL_OTP27_FLAGS=+sbwt none\nERL_FLAGS=+sbwt short\n",
        &["BF008 warning +sbwt in 27"],
    );
    // Perhaps only one of them is there.
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
    // A tool has a VM of its own.
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
fn bf010_flags_that_stop_the_vm_together() {
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
fn bf011_values_that_are_changed() {
    args("+P 1500000", &["BF011 note +P"]);
    args("+MMmcs 50", &["BF011 note +MMmcs"]);
    args("+A 0", &["BF011 note +A"]);
    // Deprecated, but it counts.
    let ports = |value: &str, level: &str| {
        let told = format!("BF011 {level} ERL_MAX_PORTS");
        args(&format!("-env ERL_MAX_PORTS {value}"), &["BF007 warning ERL_MAX_PORTS", &told]);
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
    // A sentence for people.
    let reason = &linted(&[(Format::VmArgs, "+P 1500000")])[0].reason;
    assert!(
        reason.starts_with("It takes 1024 to 134217727 processes, rounded up to a power of two; or legacy.")
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
fn bf014_a_minus_for_a_plus() {
    args("-sbwt none", &["BF014 warning -sbwt"]);
    args("-P 2000000", &["BF014 warning -P"]);
    check(OVERLAY, "-sbwt ${WAIT}", &["BF014 warning -sbwt"]);
    args("-s app\n-pa ebin\n-mode embedded\n-t x\n-P x\n-n\n-c -d -r\n-K maybe", &[]);
    args("-sbwt", &[]);
    args("-A30\n-a16\n-S4:4", &["BF014 warning -A30", "BF014 warning -a16", "BF014 warning -S4:4"]);
    args("-h2 port 80\n-R16\n-x5\n-A30x\n-sbwtnone\n-s3", &[]);
    let found = linted(&[(Format::VmArgs, "-P5000000")]);
    assert!(found[0].remedy.contains("`+P8388608`") && found[0].fix.is_some(), "{found:?}");
    let found = linted(&[(Format::VmArgs, "-P 2000000")]);
    assert!(found[0].remedy.contains("`+P 2097152`"), "{found:?}");
    let fix = |text: &str| linted(&[(Format::VmArgs, text)])[0].fix.is_some();
    assert!(fix("-sbwt none") && !fix("-setcookie a -sbwt none b"));
}

#[test]
fn bf015_traps() {
    // Less than without it; a warning where more was meant.
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
        found[0].message.contains("there are 262144, and 1048576 from OTP 27.0 on, in OTP 23"),
        "{found:?}"
    );
    // Large tables and buffers.
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

#[test]
fn bf016_comments_inside_of_words() {
    args("-setcookie pa#ss", &["BF016 warning -setcookie"]);
    args("-setcookie 'pa#ss'\n+Q 65536# ports\n+P 2097152 #x", &[]);
}

#[test]
fn bf017_lines_that_are_continued() {
    args("+sbwt none \\\n+zdbbl 8192\n", &["BF017 warning \\"]);
    args("-kernel a 1 \\\n  b 2\n", &["BF017 error \\"]);
    args("-kernel a 1\n  b 2\n", &[]);
    // In a shell, it does join them.
    check(Format::Shell, "ERL_FLAGS=\"+sbwt none \\\n +zdbbl 8192\"\n", &[]);
}

#[test]
fn bf018_what_is_no_comment() {
    args("%% a comment\n+P 2097152\n", &[]);
    args("%% +P 2097152\n", &["BF018 warning +P"]);
    args("-noshell\n// quiet\n", &["BF018 warning //"]);
    args("-noshell\n# 100 %\n", &[]);
}

#[test]
fn bf019_several_words_in_one() {
    args("\"+P 2097152\"", &["BF019 note +P 2097152"]);
    args("'-kernel a 1'", &["BF019 warning -kernel a 1"]);
    args("'+sbwt none'", &["BF003 error +sbwt none"]);
    check(
        Format::Compose,
        "services:\n  a:\n    environment:\n      - ERL_FLAGS=\"+S 2:2 +P 2097152\"\n",
        &["BF019 warning +S 2:2 +P 2097152"],
    );
    args("-eval \"a() + b().\"", &[]);
    let rabbit = |value: &str| {
        format!("services:\n  a:\n    environment:\n      RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS: {value}\n")
    };
    check(Format::Compose, &rabbit("'\"+P 2097152 -heart\"'"), &["BF019 note +P"]);
    check(Format::Compose, &rabbit("'-rabbit x \"y\"'"), &[]);
}

#[test]
fn bf020_characters_that_are_not_seen() {
    args("\u{feff}+sbwt none", &["BF020 warning +sbwt"]);
    args("+P 2097152 \u{a0}-noshell", &["BF020 warning -noshell"]);
    args("\u{2013}kernel a 1", &["BF020 warning -kernel"]);
    args("-setcookie gr\u{fc}n", &[]);
}

#[test]
fn bf021_values_that_are_no_terms() {
    args("-kernel error_logger {file,\"x/y\"}", &["BF021 error -kernel"]);
    args("-kernel a 1 b", &["BF021 warning -kernel"]);
    args("-kernel a/b 1", &["BF021 error -kernel"]);
    args("-stdlib a /x", &["BF021 error -stdlib"]);
    args("-mnesia dir /var/lib/x", &["BF021 warning -mnesia"]);
    args("-mnesia dir '\"/var/lib/x\"'", &[]);
    args("-boot_var A /x -config /x/y -pa /a /b\n-couch_ini /a /b\n-ssl_dist_opt server_certfile /x", &[]);
    args("-hosts web1 10.0.0.2", &[]);
    check(OVERLAY, "-kernel a ${B}\n-kernel ${C}\n-mnesia dir ${D}/x", &[]);
    // A shell that splits a variable leaves quotes alone.
    check(
        Format::Compose,
        "services:\n  a:\n    environment:\n      RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS: -rabbit x \"/y\"\n",
        &[],
    );
}

#[test]
fn bf022_variables_that_are_set_to_no_effect() {
    args("-env ERL_FLAGS '+P 2097152'", &["BF022 warning -env"]);
    args("-env ERL_OTP27_FLAGS '+P 2097152'", &["BF022 warning -env"]);
    args("-env A=1 b", &["BF022 warning -env"]);
    args("-env A=1\n+sbwt none", &["BF022 warning -env", "BF022 warning +sbwt"]);
    args("-env ERL_CRASH_DUMP /x", &[]);
    args("-env ERTS_MAX_PORTS 4096", &["BF022 warning -env"]);
    args(
        "-env INET_DIST_LISTEN_MIN 9000\n-env RUN_ERL_LOG_MAXSIZE 100000",
        &["BF022 warning -env", "BF022 warning -env"],
    );
    args("-env MY_OWN 1\n-env HEART_COMMAND x", &[]);
}

#[test]
fn no_rule_tells_a_cookie() {
    for text in [
        "'-setcookie SECRET'",
        "-setcookie my#SECRET",
        "-setcookie a -setcookie SECRET",
        "-env RELEASE_COOKIE=SECRET +P",
        "% -setcookie SECRET",
        "+setcookie SECRET",
        "\u{a0}-setcookie SECRET",
        "+sbwt -setcookie SECRET",
        "-extra -setcookie SECRET +P 5000",
    ] {
        let found = linted(&[(Format::VmArgs, text)]);
        assert!(!found.is_empty(), "{text}");
        for finding in found {
            let fix = finding.fix.map(|fix| fix.what).unwrap_or_default();
            let told = [finding.message, finding.reason, finding.remedy, finding.flag, fix];
            assert!(!told.join("\n").contains("SECRET"), "{text}: {told:?}");
        }
    }
}

#[test]
fn bf023_paths_of_args_files() {
    args("-args_file more.args", &["BF023 warning -args_file"]);
    args("-args_file /etc/more.args", &[]);
    check(OVERLAY, "-args_file ${MORE}", &[]);
}

#[test]
fn bf024_names_of_nodes() {
    args("-name a@b.c\n-sname a", &["BF024 warning -name"]);
    args("-sname a\n-name a@b.c", &["BF024 warning -name"]);
    args("-sname a b\n", &["BF024 warning -sname"]);
    // The first counts, unless it is none.
    args("-sname a\n-name a@b.c\n-sname b", &["BF024 warning -name", "BF024 warning -sname"]);
    args("-sname a b\n-sname c", &["BF024 warning -sname"]);
    let says = |text: &str, at: usize| linted(&[(Format::VmArgs, text)])[at].message.clone();
    assert_eq!(says("-sname a\n-sname b", 0), "`-sname b` does not count: the `-sname` before it does");
    assert_eq!(says("-name a@b.c\n-sname a", 0), "`-name a@b.c` does not count: the `-sname` behind it does");
    assert!(says("-sname a b\n-name c@d", 0).ends_with("it is not valid, and the `-name` behind it counts"));
    assert!(says("-sname a b\n-sname c", 0).ends_with("it is not valid, and the node starts without a name"));
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
    // No start script gives these.
    check(EEX, "## For Nerves\n-setcookie a\n-sname b", &[]);
    check(EEX, "-setcookie a\n-user elixir", &[]);
    check(EEX, "-name <%= release_name %>@127.0.0.1\n-setcookie a", &[]);
    let erb = Format::VmArgsTemplate(Template::Erb);
    check(erb, "-name <%= node['riak']['name'] %>\n-setcookie a", &[]);
    args("-name a@b.c\n-setcookie a", &[]);
}

#[test]
fn bf025_variables_that_nobody_fills_in() {
    check(EEX, "-name a@${HOST}\n", &["BF024 warning -name", "BF025 warning -name"]);
    check(EEX, "+P ${N}\n", &["BF025 warning +P"]);
    check(EEX, "-setcookie <%= release.profile.cookie %>\n-name a@${HOST}\n", &[]);
    check(EEX, "-pa <%= \"a@#{host}\" %>\n-x <%= \"${y}\" %>", &[]);
    check(Format::VmArgsTemplate(Template::Erb), "-heart <%= @x %>\n+P ${N}\n", &[]);
    let remedy = |text: &str, at: usize| linted(&[(EEX, text)])[at].remedy.clone();
    assert!(remedy("+P ${N}", 0).contains("ERL_FLAGS"));
    assert!(remedy("-name a@${HOST}", 1).contains("RELEASE_NODE"));
    assert!(remedy("-setcookie ${C}", 1).contains("RELEASE_COOKIE"));
    check(OVERLAY, "-name a@${HOST}\n", &[]);
}

#[test]
fn bf026_flags_that_need_another() {
    args("-heart", &["BF026 warning -heart"]);
    check(EEX, "-heart", &["BF026 warning -heart"]);
    // erlinit of Nerves may set it.
    check(EEX, "## Options for Nerves\n-heart", &["BF026 note -heart"]);
    check(EEX, "-heart\n-noshell\n-user elixir\n", &["BF026 note -heart"]);
    args("-heart -env ERL_CRASH_DUMP_SECONDS 10", &[]);
    let elsewhere = [(Format::VmArgs, "-heart\n"), (Format::EnvFile, "ERL_CRASH_DUMP_SECONDS=10\n")];
    check_files(&elsewhere, &[]);
    // It may be in there.
    check(Format::Shell, "ERL_FLAGS=\"-heart $MORE\"\n", &[]);
}

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
    assert!(reason.contains("about 12 MB up to OTP 25, 16 MB from OTP 26 on, used or not"), "{reason}");
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
    // Its shell keeps them to itself, so nothing else is told of them.
    check(Format::RabbitmqEnv, "ERL_FLAGS='+P 512000 +K true'\n", &["BF030 warning ERL_FLAGS"]);
    check(Format::RabbitmqEnv, "ERL_MAX_PORTS=4096\n", &["BF030 warning ERL_MAX_PORTS"]);
    check(Format::RabbitmqEnv, "export ERL_FLAGS='+K true'\n", &["BF006 warning +K"]);
    check(Format::RabbitmqEnv, "ERL_FLAGS='+K true'\nexport ERL_FLAGS\n", &["BF006 warning +K"]);
    check(Format::Shell, "ERL_FLAGS='+K true'\n", &["BF006 warning +K"]);
}

#[test]
fn bf031_ports_for_other_nodes() {
    args(
        "-kernel inet_dist_listen_min 9200 inet_dist_listen_max 9100",
        &["BF031 warning -kernel inet_dist_listen_max"],
    );
    args("-kernel inet_dist_listen_max 9100", &["BF031 warning -kernel inet_dist_listen_max"]);
    args("-kernel inet_dist_listen_min 9100\n-kernel inet_dist_listen_max 9200", &[]);
    args("-kernel inet_dist_listen_min 9100", &[]);
    check(OVERLAY, "-kernel inet_dist_listen_min ${A} inet_dist_listen_max 9100", &[]);
    // One port is enough for the node, and too little for what is started beside it.
    const ONE: &str = "-kernel inet_dist_listen_min 9177 inet_dist_listen_max 9177";
    const TOLD: &[&str] = &["BF031 warning -kernel inet_dist_listen_min"];
    args(ONE, &[]);
    let env =
        |line: &str, expect: &[&str]| check(Format::EnvFile, &format!("RELEASE_NODE=a@b\n{line}\n"), expect);
    env(&format!("ERL_AFLAGS={ONE}"), TOLD);
    env("ERL_FLAGS=-kernel inet_dist_listen_min 9177", TOLD);
    env("ERL_FLAGS=-kernel inet_dist_listen_min 9177 inet_dist_listen_max 9180", &[]);
    env(&format!("ERL_FLAGS={ONE} -name a@b.c"), &[]);
    env(&format!("ERL_FLAGS={ONE} -dist_listen false"), &[]);
    env(&format!("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS={ONE}"), &[]);
    check(Format::EnvFile, &format!("ERL_FLAGS={ONE}\n"), &[]);
    check(Format::Shell, &format!("export ELIXIR_ERL_OPTIONS='{ONE}'\n"), TOLD);
    check(Format::Shell, &format!("if x; then export ELIXIR_ERL_OPTIONS='{ONE}'; fi\n"), &[]);
    check(Format::Shell, &format!("export ELIXIR_ERL_OPTIONS=\"{ONE} $MORE\"\n"), &[]);
    let unit = |more: &str| {
        format!("[Service]\nEnvironment=RELEASE_NODE=a\nEnvironment=\"ERL_FLAGS={ONE}\"\n{more}")
    };
    check(Format::SystemdUnit, &unit(""), &[]);
    check(Format::SystemdUnit, &unit("ExecStop=/opt/x/bin/x stop\n"), TOLD);
}

#[test]
fn bf032_flags_behind_extra() {
    args("-extra +P 2097152", &["BF032 warning +P"]);
    args("-extra --no-halt +", &[]);
    // An argument of Elixir's own program.
    args("-user Elixir.IEx.CLI -extra --no-halt +iex", &[]);
}

#[test]
fn bf033_flags_that_are_misspelled() {
    args("-evn ERL_FULLSWEEP_AFTER 10", &["BF033 warning -evn"]);
    args("--proto_dist inet6_tcp", &["BF033 warning --proto_dist"]);
    args("-setcokie abc", &["BF033 warning -setcokie"]);
    args("-kernal net_ticktime 30", &["BF033 warning -kernal"]);
    // They may be flags of applications.
    args(
        "-evn A b\n-kernal x 1\n-nam a\n--dot-iex x\n-hiden\n-code_path_choice strict\n-enable-feature all",
        &[],
    );
    args("-extra --proto_dist x", &[]);
    check(OVERLAY, "-setcooki${E} abc", &[]);
}

#[test]
fn bf034_comments_about_another_flag() {
    let told = &["BF034 warning +MBmmmbc"];
    args("## +MBmmsbc 1024: more single-block carriers of mseg_alloc\n+MBmmmbc 1024\n", told);
    args("+MBmmmbc 1024 # +MBmmsbc 1024 for the large binaries of ours\n", told);
    // A flag that was commented out, other numbers, the same flag, and one that is given, too.
    args("##+sbwtdcpu none\n+sbwtdio none\n", &[]);
    args("## +MBmmsbc 512: more single-block carriers of mseg_alloc\n+MBmmmbc 1024\n", &[]);
    args("## +MBmmmbc 1024, not +MBmmsbc 1024, for large binaries\n+MBmmmbc 1024\n", &[]);
    args("+MBmmsbc 1024\n## +MBmmsbc 1024: and the same for carriers of many blocks\n+MBmmmbc 1024\n", &[]);
}

#[test]
fn a_live_node_is_judged_by_the_same_rules() {
    use beamtune_flags::lint::{File, lint};
    let args: Vec<String> = "/usr/bin/beam.smp -sbwt none -K true -future 1 -sbwt short -- -root /x -- -home /y -- -heart -sbwt x"
        .split(' ')
        .map(str::to_owned)
        .collect();
    let fragments = [beamtune_flags::source::live_node(&args)];
    let found = lint(&[File { fragments: &fragments }], &super::target(&[27]));
    let shown: Vec<String> =
        found.iter().map(|finding| format!("{} {}", finding.code, finding.flag)).collect();
    assert_eq!(shown, ["BF008 -sbwt", "BF006 -K"]);
    assert!(found.iter().all(|finding| finding.fix.is_none()));
}

#[test]
fn only_releases_that_were_asked_for_are_judged() {
    use beamtune_flags::lint::{File, lint};
    let fragments = super::fragments(Format::VmArgs, "+zhft infinity\n+hmaxib true\n");
    let of = |releases: &[u32]| lint(&[File { fragments: &fragments }], &super::target(releases)).len();
    assert_eq!(of(&[27, 28, 29]), 0);
    assert_eq!(of(&[26]), 1);
    assert_eq!(of(&[25]), 2);
    assert_eq!(of(&[]), 0);
}
