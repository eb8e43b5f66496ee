//! The numbers of allocators agree with those of the VM's own tools, or are right where those tools are wrong.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::common::{all_otps, eval_in, folder, read_until_agreed, run, text};
use super::{STEADY, TestNode, all_sets, allocator, bytes, page, sum};

/// Two readings of an idle node differ by the memory used for reading: agent and heap of the caller. The agent takes 2.0 to 2.9 MB at
/// 10,000 processes (agent/README.md). The memory of the second reading is additional, and the first heap has its own carrier.
const READING_BYTES: f64 = 4e6;
/// Blocks are steady if two readings differ by less than this. A connection to the node takes some memory.
const STEADY_BYTES: f64 = 1e6;

/// Describes the first pair of numbers that differ: name, ours, theirs.
fn first_difference(numbers: impl IntoIterator<Item = (String, f64, f64)>) -> Option<String> {
    let mut numbers = numbers.into_iter();
    let (what, ours, theirs) =
        numbers.find(|(_, ours, theirs)| (ours - theirs).abs() > READING_BYTES.max(0.01 * theirs))?;
    Some(format!("{what}: {ours} against {theirs}"))
}

/// Names of allocators, with the bytes of carriers and of blocks.
type Sizes = Vec<(String, f64, f64)>;

/// True if carriers are unchanged (one carrier is larger than [`READING_BYTES`]), and blocks almost unchanged.
fn are_steady(before: &Sizes, after: &Sizes) -> bool {
    let is_steady = |((name, carriers, blocks), (same, others, other_blocks)): (&_, &_)| {
        name == same && carriers == others && f64::abs(blocks - other_blocks) < STEADY_BYTES
    };
    before.len() == after.len() && before.iter().zip(after).all(is_steady)
}

#[test]
fn carriers_and_blocks_agree_with_instrument() {
    for otp in all_otps() {
        let node = TestNode::start(&otp, &[], STEADY);
        // [{Allocator, InPool, TotalSize, UnscannedSize, [{Type, Count, Size}], FreeBlocks}]
        let question = "begin {ok, {_, Carriers}} = instrument:carriers(), \
             [{A, lists:sum([T || {B, _, T, _, _, _} <- Carriers, B =:= A]), \
               lists:sum([S || {B, _, _, _, Types, _} <- Carriers, B =:= A, {_, _, S} <- Types])} \
              || A <- [binary_alloc, ets_alloc, fix_alloc]] end";
        let read_theirs = || triples(&eval_in(&node, question));
        // Blocks that another scheduler allocated are freed when that scheduler wakes, and their carriers with them.
        let differ = |theirs: &Sizes, page: &Value| {
            first_difference(theirs.iter().flat_map(|(name, carriers, blocks)| {
                let ours = allocator(page, name);
                let what = format!("{name} of OTP {}", otp.release);
                [
                    (format!("carriers of {what}"), all_sets(ours, "carriers_bytes"), *carriers),
                    (format!("blocks of {what}"), all_sets(ours, "blocks_bytes"), *blocks),
                ]
            }))
        };
        read_until_agreed("carriers and blocks", read_theirs, are_steady, || page(&node, &[]), differ);
    }
}

/// Parses `[{name,1,2},…]`.
fn triples(text: &str) -> Sizes {
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{text:?} is not a number"));
    let rows = text.trim().trim_matches(['[', ']']).split("},");
    rows.map(|row| {
        let fields: Vec<&str> = row.trim_matches(['{', '}']).split(',').collect();
        let [name, carriers, blocks] = fields[..] else { panic!("{text}") };
        (name.to_owned(), number(carriers), number(blocks))
    })
    .collect()
}

/// Copies recon from RabbitMQ's package to a folder that the release can read. `None` if it is not installed.
fn recon(root: Option<&PathBuf>) -> Option<(tempfile::TempDir, String)> {
    let listed =
        run(Command::new("sh").args(["-c", "ls -d /usr/lib/rabbitmq/lib/*/plugins/recon-*/ebin | head -1"]));
    let ebin = PathBuf::from(listed.stdout.trim());
    if !ebin.is_dir() {
        return None;
    }
    let copied = match root {
        Some(root) => tempfile::tempdir_in(root.join("tmp")).expect("a folder"),
        None => folder(),
    };
    std::fs::copy(ebin.join("recon_alloc.beam"), copied.path().join("recon_alloc.beam")).expect("copied");
    let root = root.map_or(Path::new("/"), |root| root.as_path());
    let seen = Path::new("/").join(copied.path().strip_prefix(root).expect("below"));
    Some((copied, text(&seen)))
}

#[test]
fn totals_agree_with_recon_except_for_literals() {
    for otp in all_otps() {
        // Debian compiled recon with OTP 25, so OTP 23 cannot load it.
        if otp.release < 25 {
            eprintln!("skipped, because OTP {} does not load Debian's recon", otp.release);
            continue;
        }
        let Some((_folder, path)) = recon(otp.root.as_ref()) else {
            eprintln!("skipped, because there is no recon (RabbitMQ brings it: scripts/install.sh test)");
            return;
        };
        let node = TestNode::start(&otp, &["-pa", &path], STEADY);
        let question = "[{all, recon_alloc:memory(allocated), recon_alloc:memory(used)}, \
              {binary, proplists:get_value(binary_alloc, recon_alloc:memory(allocated_types)), 0}]";
        let read_theirs = || triples(&eval_in(&node, question));
        // The first call loads code.
        read_theirs();
        let release = otp.release;
        let differ = |theirs: &Sizes, page: &Value| {
            let literal = allocator(page, "literal_alloc");
            let ours = |field: &str| sum(page, field) - bytes(&literal["multiblock"][field]);
            let binaries = all_sets(allocator(page, "binary_alloc"), "carriers_bytes");
            first_difference([
                (format!("carriers by recon on OTP {release}"), ours("carriers_bytes"), theirs[0].1),
                (format!("blocks by recon on OTP {release}"), ours("blocks_bytes"), theirs[0].2),
                (format!("carriers of binaries by recon on OTP {release}"), binaries, theirs[1].1),
            ])
        };
        let (_, page) =
            read_until_agreed("carriers and blocks", read_theirs, are_steady, || page(&node, &[]), differ);
        assert!(bytes(&allocator(&page, "literal_alloc")["multiblock"]["carriers_bytes"]) > 0.0);
    }
}

/// Tools that read only `mbcs` report too little memory, and too high a utilization, if most carriers are in the pool.
#[test]
fn carriers_in_the_pool_are_counted() {
    for otp in all_otps() {
        // With the highest limit, carriers move to the pool as soon as they have holes.
        let node = TestNode::start(&otp, &["+S", "2:2", "+MBacul", "100"], STEADY);
        let read_theirs = || -> f64 {
            let theirs = eval_in(
                &node,
                "lists:sum([element(2, lists:keyfind(carriers_size, 1, Pool)) || \
                 {instance, _, Parts} <- erlang:system_info({allocator, binary_alloc}), {mbcs_pool, Pool} <- Parts])",
            );
            theirs.trim().parse().expect("a number")
        };
        // Reading may fetch a carrier from the pool, which is more than the tolerance.
        let differ = |theirs: &f64, page: &Value| {
            let pool = bytes(&allocator(page, "binary_alloc")["pool"]["carriers_bytes"]);
            first_difference([(format!("the pool on OTP {}", otp.release), pool, *theirs)])
        };
        let (theirs, _) = read_until_agreed("the pool", read_theirs, f64::eq, || page(&node, &[]), differ);
        assert!(theirs > 20e6, "OTP {}: the pool holds {theirs}", otp.release);
    }
}

#[test]
fn kinds_of_memory_add_up_to_erlang_memory() {
    for otp in all_otps() {
        let node = TestNode::start(&otp, &[], STEADY);
        let read_theirs =
            || -> f64 { eval_in(&node, "erlang:memory(total)").trim().parse().expect("a number") };
        let is_same = |before: &f64, after: &f64| (before - after).abs() < READING_BYTES;
        let all_kinds = |page: &Value| -> f64 {
            page["kinds"].as_array().expect("kinds").iter().map(|row| bytes(&row["bytes"])).sum()
        };
        let differ = |theirs: &f64, page: &Value| {
            first_difference([("all kinds".to_owned(), all_kinds(page), *theirs)])
        };
        let (theirs, page) =
            read_until_agreed("erlang:memory(total)", read_theirs, is_same, || page(&node, &[]), differ);
        let kinds = page["kinds"].as_array().expect("kinds");
        let of = |kind: &str| {
            kinds.iter().find(|row| row["kind"] == kind).map_or(f64::NAN, |row| bytes(&row["bytes"]))
        };
        // All memory kinds are in blocks, except code generated by the JIT. Scratch memory is in blocks, but is not a memory kind.
        let temporary = bytes(&allocator(&page, "temp_alloc")["multiblock"]["blocks_bytes"]);
        let blocks = sum(&page, "blocks_bytes") - temporary;
        assert!(
            (theirs - blocks).abs() < 0.08 * theirs,
            "OTP {}: {theirs} in blocks of {blocks}",
            otp.release
        );
        assert!(of("binary") > 20e6 && of("ets") > 10e6, "{page:#}");
        let table = &kinds.iter().find(|row| row["kind"] == "ets").expect("tables")["owners"][0];
        assert_eq!(table["name"], "steady");
    }
}
