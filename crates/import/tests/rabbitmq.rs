//! What rabbitmq-diagnostics prints, as text and as JSON: its own numbers are told from those of the VM.
#![allow(clippy::expect_used, clippy::panic, reason = "these are tests")]

mod told;

use beamtune_model::facts;
use told::*;

#[test]
fn rabbitmqs_own_lines_are_read_and_its_sums_are_not_taken_for_the_vms() {
    let told = told_by(&fixture("rabbitmq-status-otp25"));
    check(
        &told,
        &[
            (facts::PRODUCT, "RabbitMQ 3.10.8"),
            (facts::OTP_RELEASE, "25"),
            (facts::SCHEDULERS_ONLINE, "2"),
            (facts::PROCESS_LIMIT, "1048576"),
            ("vm.process_count ", "268"),
            ("host_process.rss ", "127900000"),
            ("memory.code ", "31300000"),
            ("memory.binary ", "200000"),
        ],
    );
    assert!(!told.keys().any(|key| key.contains("other") || key.contains("plugins")), "{told:#?}");
    assert!(told[facts::IMPORTED_REMARK].contains("rounded"));
    let msacc = told_by(&fixture("rabbitmq-runtime_thread_stats-otp25"));
    check(&msacc, &[(facts::DIRTY_IO_SCHEDULERS, "10"), ("msacc.sleep scheduler/1", "1000494")]);
    let breakdown = told_by(&fixture("rabbitmq-memory_breakdown-otp25"));
    check(&breakdown, &[("memory.atom ", "1300000")]);
}

#[test]
fn rabbitmqs_watermark_and_alarms_are_facts() {
    let healthy = told_by(&fixture("rabbitmq-status-otp25"));
    check(&healthy, &[(facts::MEMORY_WATERMARK_BYTES, "10110600000")]);
    assert!(!healthy.contains_key(facts::MEMORY_ALARMS));
    let alarmed = told_by(&fixture("rabbitmq-alarms-otp25"));
    check(&alarmed, &[(facts::MEMORY_WATERMARK_BYTES, "60000000"), (facts::MEMORY_ALARMS, "1")]);
    check(&told_by(&fixture("rabbitmq-check_alarms-otp25")), &[(facts::MEMORY_ALARMS, "1")]);
    let setting = "Memory high watermark setting: 0.6 of available memory, computed to:";
    for (size, bytes) in [
        ("2 tib", "2199023255552"),
        ("0.5 mib", "524288"),
        ("3 kib", "3072"),
        ("1.5 tb", "1500000000000"),
        ("0.5 pib", "562949953421312"),
        ("0.5 pb", "500000000000000"),
        ("3 ki", "3072"),
        ("0.5 Mi", "524288"),
        ("2 ti", "2199023255552"),
        ("3.5 k", "3500"),
        ("0.5 m", "500000"),
        ("1.5 G", "1500000000"),
        ("1.5 t", "1500000000000"),
    ] {
        check(&told_by(&format!("{setting} {size}\n")), &[(facts::MEMORY_WATERMARK_BYTES, bytes)]);
    }
    assert!(whys(&format!("{setting} 1.5 parsecs\n"))[0].2.contains("no size with a unit"));
    assert!(whys("Memory high watermark setting: 0.6 of available\n")[0].2.contains("copy the whole line"));
    let two = "Memory alarm on node a@x\nFree disk space alarm on node a@x\nMemory alarm on node b@x\nMemory alarm on node b@x\n";
    check(&told_by(two), &[(facts::MEMORY_ALARMS, "2")]);
    check(&told_by(&two.replace('\n', "")[..75]), &[(facts::MEMORY_ALARMS, "1")]);
    for other in ["Free disk space", "File descriptor limit"] {
        let alone = format!("RabbitMQ version: 3.10.8\n{other} alarm on node a@x\n");
        assert!(!told_by(&alone).contains_key(facts::MEMORY_ALARMS), "{other}");
        assert!(whys(&alone).is_empty(), "{:?}", whys(&alone));
        let between =
            format!("Memory alarm on node a@x\n{other} alarm on node a@x\nMemory alarm on node b@x\n");
        check(&told_by(&between), &[(facts::MEMORY_ALARMS, "2")]);
    }
    for unit in ["MB", "mb", "Mb", "megabytes", "MEGABYTES"] {
        let text = format!(
            "Total memory used: 127.9 {unit}\nCalculation strategy: rss\ncode: 31.3 {unit} (24.5%)\n"
        );
        check(&told_by(&text), &[("host_process.rss ", "127900000"), ("memory.code ", "31300000")]);
    }
    assert!(whys("Memory alarm on node a@x")[0].2.contains("whether the node's name ends here"));
}

#[test]
fn a_breakdown_of_memory_is_read_in_every_unit() {
    check(&told_by(&fixture("rabbitmq-memory_breakdown-kb-otp25")), &[("memory.code ", "31337774")]);
    for (unit, code, binary, shown) in [
        ("bytes", "31250123", "204800", ["31250123", "204800"]),
        ("kb", "31250.123", "204.8", ["31250123", "204800"]),
        ("mb", "31.2501", "0.2048", ["31250100", "204800"]),
        ("gb", "0.0313", "0.0002", ["31300000", "200000"]),
    ] {
        let text = format!(
            "Reporting memory breakdown on node rabbit@broker1...\nreserved_unallocated: 0.5 {unit} (63.33%)\n\
             code: {code} {unit} (24.27%)\nbinary: {binary} {unit} (0.15%)\n"
        );
        assert_eq!(told_by(&text).contains_key(facts::IMPORTED_REMARK), unit != "bytes", "{unit}");
        for how in 0..ALL_WAYS {
            let told = told_by(&mangled(&text, how));
            check(&told, &[("memory.code ", shown[0]), ("memory.binary ", shown[1])]);
            assert!(!told.keys().any(|key| key.contains("unallocated")), "{told:#?}");
        }
    }
}

#[test]
fn what_two_banners_tell_otherwise_is_not_taken() {
    let banner = |release: &str| {
        format!(
            "Erlang/OTP {release} [erts-{release}.1] [smp:8:4]\n1> erlang:memory().\n[{{total,3}},{{processes,1}},{{system,2}}]\n"
        )
    };
    let text = banner("25") + &banner("27");
    let told = told_by(&text);
    check(&told, &[(facts::SCHEDULERS_ONLINE, "4"), ("memory.total ", "3")]);
    assert!(!told.contains_key(facts::OTP_RELEASE) && !told.contains_key(facts::ERTS_VERSION), "{told:#?}");
    let other = whys(&text);
    assert!(other.len() == 1 && other[0].0 == 4 && other[0].2.contains("another banner"), "{other:?}");
    let twice = banner("25") + &banner("25");
    check(&told_by(&twice), &[(facts::OTP_RELEASE, "25")]);
    assert!(whys(&twice).is_empty(), "{:?}", whys(&twice));
}

#[test]
fn sizes_that_rabbitmq_has_rounded_give_way_to_exact_ones() {
    let rounded = "code: 0.0313 gb (24.5 %)\n";
    let exact =
        "1> erlang:memory().\n[{total,40000000},{processes,8750000},{system,31250000},{code,31250000}]\n";
    for text in [format!("{rounded}{exact}"), format!("{exact}{rounded}")] {
        check(&told_by(&text), &[("memory.code ", "31250000"), ("memory.total ", "40000000")]);
        assert!(whys(&text).is_empty(), "{text}: {:?}", whys(&text));
    }
    let again = format!("{rounded}{}", rounded.replace('3', "4"));
    assert!(whys(&again)[0].2.contains("told before"), "{:?}", whys(&again));
}

/// As `rabbitmq-diagnostics status --formatter json` prints it: exact sizes, in one line.
const STATUS: &str = "{\"alarms\":[{\"node\":\"rabbit@broker1\",\"resource\":\"memory\",\"type\":\"resource_limit\"},{\"node\":\"rabbit@broker1\",\
    \"resource\":\"disk\",\"type\":\"resource_limit\"}],\"config_files\":[],\"erlang_version\":\"Erlang/OTP 25 [erts-13.1.5] [source] [64-bit] \
    [smp:2:2] [ds:2:2:10] [async-threads:1] [jit:ns]\",\"is_under_maintenance\":false,\"memory\":{\"allocated_unused\":18000000,\"atom\":1310720,\
    \"binary\":204800,\"code\":31250123,\"other_proc\":18800000,\"strategy\":\"rss\",\"total\":{\"erlang\":70000001,\"rss\":127900004,\
    \"allocated\":88000002}},\"processes\":{\"limit\":1048576,\"used\":268},\"rabbitmq_version\":\"3.10.8\",\"run_queue\":1,\"totals\":[],\
    \"uptime\":140,\"vm_memory_calculation_strategy\":\"rss\",\"vm_memory_high_watermark_limit\":10110582784,\
    \"vm_memory_high_watermark_setting\":{\"relative\":0.4}}";

#[test]
fn rabbitmqs_json_is_read_and_its_sizes_are_exact() {
    let of_vm = told_by(&fixture("rabbitmq-status-json-otp25"));
    check(
        &of_vm,
        &[
            (facts::PRODUCT, "RabbitMQ 3.10.8"),
            (facts::OTP_RELEASE, "25"),
            (facts::SCHEDULERS_ONLINE, "2"),
            (facts::PROCESS_LIMIT, "1048576"),
            (facts::MEMORY_WATERMARK_BYTES, "60000000"),
            (facts::MEMORY_ALARMS, "1"),
            ("vm.process_count ", "267"),
            ("host_process.rss ", "149344256"),
            ("allocator.carriers_size ", "50307072"),
            ("memory.total ", "68335936"),
            ("memory.code ", "31311718"),
        ],
    );
    let told = told_by(&format!("$ rabbitmq-diagnostics status --formatter json\n{STATUS}\n"));
    check(
        &told,
        &[
            (facts::PRODUCT, "RabbitMQ 3.10.8"),
            (facts::OTP_RELEASE, "25"),
            (facts::EMU_FLAVOR, "jit"),
            (facts::PROCESS_LIMIT, "1048576"),
            (facts::MEMORY_WATERMARK_BYTES, "10110582784"),
            (facts::MEMORY_ALARMS, "1"),
            ("vm.process_count ", "268"),
            ("host_process.rss ", "127900004"),
            ("allocator.carriers_size ", "88000002"),
            ("memory.total ", "70000001"),
            ("memory.code ", "31250123"),
            ("memory.atom ", "1310720"),
            ("memory.binary ", "204800"),
        ],
    );
    assert!(!told.contains_key(facts::IMPORTED_REMARK), "{told:#?}");
    assert!(!told.keys().any(|key| key.contains("other") || key.contains("unused")), "{told:#?}");
    let check_whys = |text: &str, why: &str| {
        let whys = whys(text);
        assert!(
            whys.iter().any(|(line, column, text)| (*line, *column) == (1, 1) && text.contains(why)),
            "{text}: {whys:?}"
        );
    };
    check_whys(&STATUS.replace("\"rss\":127900004,", ""), "a size or a number is missing");
    check_whys(&STATUS.replace("\"used\":268", "\"used\":2000000"), "a size or a number is missing");
    check_whys(&STATUS.replace("3.10.8", "unknown"), "a size or a number is missing");
    // Where nobody told of resident memory, the carriers stand in its place.
    let windows = told_by(&STATUS.replace("127900004", "88000002"));
    assert!(!windows.contains_key("host_process.rss "), "{windows:#?}");
    check(&windows, &[("allocator.carriers_size ", "88000002")]);
    let healthy = told_by(&STATUS.replace("\"resource\":\"memory\"", "\"resource\":\"disk\""));
    assert!(!healthy.contains_key(facts::MEMORY_ALARMS));
    // Exact sizes say nothing against rounded ones.
    let rounded = "code: 0.0313 gb (24.5 %)\n";
    for text in [format!("{rounded}{STATUS}\n"), format!("{STATUS}\n{rounded}")] {
        check(&told_by(&text), &[("memory.code ", "31250123")]);
        assert!(whys(&text).is_empty(), "{:?}", whys(&text));
    }
    let pretty = STATUS.replace("\":", "\": ").replace(',', ",\n  ").replace('{', "{\n  ");
    assert_eq!(told_by(&pretty), told_by(STATUS));
}

#[test]
fn a_breakdown_and_alarms_are_read_as_json() {
    let breakdown = "{\"reserved_unallocated\":{\"bytes\":80500123,\"percentage\":63.0},\"code\":{\"bytes\":31250123,\"percentage\":24.49},\
                     \"atom\":{\"bytes\":1310720,\"percentage\":1.04},\"binary\":{\"bytes\":204800,\"percentage\":0.15}}";
    let told = told_by(breakdown);
    check(&told, &[("memory.code ", "31250123"), ("memory.atom ", "1310720"), ("memory.binary ", "204800")]);
    assert!(!told.contains_key(facts::IMPORTED_REMARK), "{told:#?}");
    assert!(!told.keys().any(|key| key.contains("unallocated")), "{told:#?}");
    check(&told_by(&fixture("rabbitmq-memory_breakdown-json-otp25")), &[("memory.binary ", "166600")]);
    check(&told_by(&fixture("rabbitmq-alarms-json-otp25")), &[(facts::MEMORY_ALARMS, "1")]);
    let odd = whys(&breakdown.replace("{\"bytes\":80500123,", "{"));
    assert!(odd.len() == 1 && odd[0].2.contains("a size is missing"), "{odd:?}");
    let status = STATUS.replacen("{\"alarms\":[", "{\"log_files\":[", 1);
    for cut in [&breakdown[..120], &status[..400]] {
        let whys = whys(&format!("1> erlang:memory().\n[{{total,3}},{{processes,1}},{{system,2}}]\n{cut}"));
        let is_named = |(line, column, why): &(usize, usize, String)| {
            (*line, *column) == (3, 1) && why.contains("ends before")
        };
        assert!(whys.iter().any(is_named), "{cut}: {whys:?}");
    }
    let alarms = "{\"global\":[\"Memory alarm on node rabbit@b\"],\"local\":[\"Free disk space alarm on node rabbit@a\",\
                  \"Memory alarm on node rabbit@a\"],\"message\":\"Node rabbit@a reported alarms\",\"result\":\"ok\"}\n";
    check(&told_by(alarms), &[(facts::MEMORY_ALARMS, "2")]);
    let twice = alarms.replace("rabbit@b", "rabbit@a");
    check(&told_by(&twice), &[(facts::MEMORY_ALARMS, "1")]);
}
