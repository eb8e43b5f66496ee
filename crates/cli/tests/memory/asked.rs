//! Items that are read only on request, and memory that is explained by the content of pages.

use serde_json::Value;

use super::common::{TestNode, all_otps, beamtune, eval_in, is_root, read_until_agreed, run};
use super::{STEADY, bytes, page, sum};

/// Expression for the bytes of all carriers.
const CARRIERS: &str = "lists:sum([element(2, lists:keyfind(carriers_size, 1, Values)) || \
    A <- erlang:system_info(alloc_util_allocators), Instances <- [erlang:system_info({allocator_sizes, A})], \
    is_list(Instances), {instance, _, Sets} <- Instances, {Set, Values} <- Sets, \
    lists:member(Set, [mbcs, mbcs_pool, sbcs])])";
/// The heaps of the agent and of the caller vary by this much.
const TOLERANCE_BYTES: f64 = 3e6;

#[test]
fn carriers_and_code_are_shown_on_request_after_the_cost_is_printed() {
    for otp in all_otps() {
        let node = TestNode::start(&otp, &[], STEADY);
        let memory = |more: &[&str]| {
            let output = run(beamtune()
                .args(["memory", &node.name, "--for", "1s"])
                .args(more)
                .env("BEAMTUNE_COOKIE", &node.cookie));
            assert!(matches!(output.status, Some(0 | 1)), "{}", output.stderr);
            output
        };
        let without = memory(&[]);
        let heading = |line: &str| line.contains("largest free block") || line.starts_with("code of ");
        assert!(!without.stdout.lines().any(heading), "{}", without.stdout);
        let with = memory(&["--carriers", "--code"]);
        assert!(with.stderr.contains("blocks a scheduler for at most"), "{}", with.stderr);
        let line = |begin: &str, also: &str| {
            with.stdout.lines().any(|line| line.starts_with(begin) && line.contains(also))
        };
        assert!(line("binary_alloc", "multiblock") && line("ets_alloc", "multiblock"), "{}", with.stdout);
        assert!(line("system", "binary"), "types of allocations are missing: {}", with.stdout);
        assert!(line("stdlib", "B") && line("kernel", "B"), "{}", with.stdout);
        assert!(with.stdout.contains("persistent terms take"), "{}", with.stdout);
    }
}

#[test]
fn resident_memory_is_explained_by_the_content_of_pages() {
    if !is_root() {
        eprintln!("skipped, because only root may read the pages of other processes on every host");
        return;
    }
    for otp in all_otps() {
        let node = TestNode::start(&otp, &[], STEADY);
        // Host and VM are not read at the same moment.
        let read_carriers = || -> f64 { eval_in(&node, CARRIERS).trim().parse().expect("a number") };
        let is_same = |before: &f64, after: &f64| (before - after).abs() < TOLERANCE_BYTES;
        // Bytes in mappings that the host recognises as carriers, and bytes of carriers according to the VM.
        let carriers = |page: &Value| -> (f64, f64) {
            let contents = page["contents"].as_array().expect("contents").iter();
            let found = contents
                .filter(|part| part["entity"].as_str().is_some_and(|entity| entity.starts_with("carriers/")))
                .map(|part| bytes(&part["mapped_bytes"]));
            (found.sum(), sum(page, "carriers_bytes"))
        };
        let differ = |_: &f64, page: &Value| {
            let (found, counted) = carriers(page);
            let differs = (found - counted).abs() >= TOLERANCE_BYTES;
            differs.then(|| format!("carriers of OTP {}: found {found}, counted {counted}", otp.release))
        };
        let (_, page) = read_until_agreed("carriers", read_carriers, is_same, || page(&node, &[]), differ);
        let (resident, unexplained) = (bytes(&page["resident_bytes"]), bytes(&page["unexplained_bytes"]));
        assert!(resident > 60e6, "{page:#}");
        assert!(
            unexplained.abs() <= (0.03 * resident).max(8e6),
            "OTP {}: {unexplained} of {resident}",
            otp.release
        );
    }
}
