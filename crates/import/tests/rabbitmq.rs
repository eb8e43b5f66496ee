//! Output of rabbitmq-diagnostics, as text and as JSON. RabbitMQ's own sums are not mixed with the VM's numbers.
#![allow(clippy::expect_used, clippy::panic, reason = "these are tests")]

mod contents;

use beamtune_model::facts;
use contents::*;

#[test]
fn the_status_is_read_without_rabbitmqs_own_sums() {
    let contents = import(&fixture("rabbitmq-status-otp25"));
    check(
        &contents,
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
    assert!(!contents.keys().any(|key| key.contains("other") || key.contains("plugins")), "{contents:#?}");
    assert!(contents[facts::IMPORTED_REMARK].contains("rounded"));
    let msacc = import(&fixture("rabbitmq-runtime_thread_stats-otp25"));
    check(&msacc, &[(facts::DIRTY_IO_SCHEDULERS, "10"), ("msacc.sleep scheduler/1", "1000494")]);
    let breakdown = import(&fixture("rabbitmq-memory_breakdown-otp25"));
    check(&breakdown, &[("memory.atom ", "1300000")]);
}

#[test]
fn watermark_and_alarms_become_facts() {
    let healthy = import(&fixture("rabbitmq-status-otp25"));
    check(&healthy, &[(facts::MEMORY_WATERMARK_BYTES, "10110600000")]);
    assert!(!healthy.contains_key(facts::MEMORY_ALARMS));
    let alarmed = import(&fixture("rabbitmq-alarms-otp25"));
    check(&alarmed, &[(facts::MEMORY_WATERMARK_BYTES, "60000000"), (facts::MEMORY_ALARMS, "1")]);
    check(&import(&fixture("rabbitmq-check_alarms-otp25")), &[(facts::MEMORY_ALARMS, "1")]);
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
        check(&import(&format!("{setting} {size}\n")), &[(facts::MEMORY_WATERMARK_BYTES, bytes)]);
    }
    assert!(reasons(&format!("{setting} 1.5 parsecs\n"))[0].2.contains("not a size with a unit"));
    assert!(
        reasons("Memory high watermark setting: 0.6 of available\n")[0].2.contains("copy the whole line")
    );
    let two = "Memory alarm on node a@x\nFree disk space alarm on node a@x\nMemory alarm on node b@x\nMemory alarm on node b@x\n";
    check(&import(two), &[(facts::MEMORY_ALARMS, "2")]);
    check(&import(&two.replace('\n', "")[..75]), &[(facts::MEMORY_ALARMS, "1")]);
    for other in ["Free disk space", "File descriptor limit"] {
        let alone = format!("RabbitMQ version: 3.10.8\n{other} alarm on node a@x\n");
        assert!(!import(&alone).contains_key(facts::MEMORY_ALARMS), "{other}");
        assert!(reasons(&alone).is_empty(), "{:?}", reasons(&alone));
        let between =
            format!("Memory alarm on node a@x\n{other} alarm on node a@x\nMemory alarm on node b@x\n");
        check(&import(&between), &[(facts::MEMORY_ALARMS, "2")]);
    }
    for unit in ["MB", "mb", "Mb", "megabytes", "MEGABYTES"] {
        let text = format!(
            "Total memory used: 127.9 {unit}\nCalculation strategy: rss\ncode: 31.3 {unit} (24.5%)\n"
        );
        check(&import(&text), &[("host_process.rss ", "127900000"), ("memory.code ", "31300000")]);
    }
    assert!(reasons("Memory alarm on node a@x")[0].2.contains("the node name may be incomplete"));
}

#[test]
fn a_breakdown_of_memory_is_read_in_every_unit() {
    check(&import(&fixture("rabbitmq-memory_breakdown-kb-otp25")), &[("memory.code ", "31337774")]);
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
        assert_eq!(import(&text).contains_key(facts::IMPORTED_REMARK), unit != "bytes", "{unit}");
        for how in 0..ALL_WAYS {
            let contents = import(&mangled(&text, how));
            check(&contents, &[("memory.code ", shown[0]), ("memory.binary ", shown[1])]);
            assert!(!contents.keys().any(|key| key.contains("unallocated")), "{contents:#?}");
        }
    }
}

#[test]
fn facts_in_which_banners_differ_are_omitted() {
    let banner = |release: &str| {
        format!(
            "Erlang/OTP {release} [erts-{release}.1] [smp:8:4]\n1> erlang:memory().\n[{{total,3}},{{processes,1}},{{system,2}}]\n"
        )
    };
    let text = banner("25") + &banner("27");
    let contents = import(&text);
    check(&contents, &[(facts::SCHEDULERS_ONLINE, "4"), ("memory.total ", "3")]);
    assert!(
        !contents.contains_key(facts::OTP_RELEASE) && !contents.contains_key(facts::ERTS_VERSION),
        "{contents:#?}"
    );
    let other = reasons(&text);
    assert!(other.len() == 1 && other[0].0 == 4 && other[0].2.contains("this banner differs"), "{other:?}");
    let twice = banner("25") + &banner("25");
    check(&import(&twice), &[(facts::OTP_RELEASE, "25")]);
    assert!(reasons(&twice).is_empty(), "{:?}", reasons(&twice));
}

#[test]
fn exact_sizes_replace_rounded_ones() {
    let rounded = "code: 0.0313 gb (24.5 %)\n";
    let exact =
        "1> erlang:memory().\n[{total,40000000},{processes,8750000},{system,31250000},{code,31250000}]\n";
    for text in [format!("{rounded}{exact}"), format!("{exact}{rounded}")] {
        check(&import(&text), &[("memory.code ", "31250000"), ("memory.total ", "40000000")]);
        assert!(reasons(&text).is_empty(), "{text}: {:?}", reasons(&text));
    }
    let again = format!("{rounded}{}", rounded.replace('3', "4"));
    assert!(reasons(&again)[0].2.contains("contradicts earlier output"), "{:?}", reasons(&again));
}

/// Output of `rabbitmq-diagnostics status --formatter json`: one line with exact sizes.
const STATUS: &str = "{\"alarms\":[{\"node\":\"rabbit@broker1\",\"resource\":\"memory\",\"type\":\"resource_limit\"},{\"node\":\"rabbit@broker1\",\
    \"resource\":\"disk\",\"type\":\"resource_limit\"}],\"config_files\":[],\"erlang_version\":\"Erlang/OTP 25 [erts-13.1.5] [source] [64-bit] \
    [smp:2:2] [ds:2:2:10] [async-threads:1] [jit:ns]\",\"is_under_maintenance\":false,\"memory\":{\"allocated_unused\":18000000,\"atom\":1310720,\
    \"binary\":204800,\"code\":31250123,\"other_proc\":18800000,\"strategy\":\"rss\",\"total\":{\"erlang\":70000001,\"rss\":127900004,\
    \"allocated\":88000002}},\"processes\":{\"limit\":1048576,\"used\":268},\"rabbitmq_version\":\"3.10.8\",\"run_queue\":1,\"totals\":[],\
    \"uptime\":140,\"vm_memory_calculation_strategy\":\"rss\",\"vm_memory_high_watermark_limit\":10110582784,\
    \"vm_memory_high_watermark_setting\":{\"relative\":0.4}}";

#[test]
fn sizes_in_json_are_exact() {
    let of_vm = import(&fixture("rabbitmq-status-json-otp25"));
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
    let contents = import(&format!("$ rabbitmq-diagnostics status --formatter json\n{STATUS}\n"));
    check(
        &contents,
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
    assert!(!contents.contains_key(facts::IMPORTED_REMARK), "{contents:#?}");
    assert!(!contents.keys().any(|key| key.contains("other") || key.contains("unused")), "{contents:#?}");
    let check_reasons = |text: &str, why: &str| {
        let reasons = reasons(text);
        assert!(
            reasons.iter().any(|(line, column, text)| (*line, *column) == (1, 1) && text.contains(why)),
            "{text}: {reasons:?}"
        );
    };
    check_reasons(&STATUS.replace("\"rss\":127900004,", ""), "a size or a number is missing");
    check_reasons(&STATUS.replace("\"used\":268", "\"used\":2000000"), "a size or a number is missing");
    check_reasons(&STATUS.replace("3.10.8", "unknown"), "a size or a number is missing");
    // If RabbitMQ cannot read the resident size, it prints the size of carriers instead.
    let windows = import(&STATUS.replace("127900004", "88000002"));
    assert!(!windows.contains_key("host_process.rss "), "{windows:#?}");
    check(&windows, &[("allocator.carriers_size ", "88000002")]);
    let healthy = import(&STATUS.replace("\"resource\":\"memory\"", "\"resource\":\"disk\""));
    assert!(!healthy.contains_key(facts::MEMORY_ALARMS));
    // Exact sizes do not contradict rounded ones.
    let rounded = "code: 0.0313 gb (24.5 %)\n";
    for text in [format!("{rounded}{STATUS}\n"), format!("{STATUS}\n{rounded}")] {
        check(&import(&text), &[("memory.code ", "31250123")]);
        assert!(reasons(&text).is_empty(), "{:?}", reasons(&text));
    }
    let pretty = STATUS.replace("\":", "\": ").replace(',', ",\n  ").replace('{', "{\n  ");
    assert_eq!(import(&pretty), import(STATUS));
}

#[test]
fn a_breakdown_and_alarms_are_read_as_json() {
    let breakdown = "{\"reserved_unallocated\":{\"bytes\":80500123,\"percentage\":63.0},\"code\":{\"bytes\":31250123,\"percentage\":24.49},\
                     \"atom\":{\"bytes\":1310720,\"percentage\":1.04},\"binary\":{\"bytes\":204800,\"percentage\":0.15}}";
    let contents = import(breakdown);
    check(
        &contents,
        &[("memory.code ", "31250123"), ("memory.atom ", "1310720"), ("memory.binary ", "204800")],
    );
    assert!(!contents.contains_key(facts::IMPORTED_REMARK), "{contents:#?}");
    assert!(!contents.keys().any(|key| key.contains("unallocated")), "{contents:#?}");
    check(&import(&fixture("rabbitmq-memory_breakdown-json-otp25")), &[("memory.binary ", "166600")]);
    check(&import(&fixture("rabbitmq-alarms-json-otp25")), &[(facts::MEMORY_ALARMS, "1")]);
    let odd = reasons(&breakdown.replace("{\"bytes\":80500123,", "{"));
    assert!(odd.len() == 1 && odd[0].2.contains("a size is missing"), "{odd:?}");
    let status = STATUS.replacen("{\"alarms\":[", "{\"log_files\":[", 1);
    for cut in [&breakdown[..120], &status[..400]] {
        let reasons =
            reasons(&format!("1> erlang:memory().\n[{{total,3}},{{processes,1}},{{system,2}}]\n{cut}"));
        let is_named = |(line, column, why): &(usize, usize, String)| {
            (*line, *column) == (3, 1) && why.contains("ends within")
        };
        assert!(reasons.iter().any(is_named), "{cut}: {reasons:?}");
    }
    let alarms = "{\"global\":[\"Memory alarm on node rabbit@b\"],\"local\":[\"Free disk space alarm on node rabbit@a\",\
                  \"Memory alarm on node rabbit@a\"],\"message\":\"Node rabbit@a reported alarms\",\"result\":\"ok\"}\n";
    check(&import(alarms), &[(facts::MEMORY_ALARMS, "2")]);
    let twice = alarms.replace("rabbit@b", "rabbit@a");
    check(&import(&twice), &[(facts::MEMORY_ALARMS, "1")]);
}
