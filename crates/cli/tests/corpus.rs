//! Runs the inputs kept from fuzzing through the checks of the fuzz targets (fuzz/lib.rs). These inputs cover most of the code, or once
//! failed.

#![allow(clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

use std::fs;
use std::path::Path;

#[allow(dead_code, reason = "`run` is what the fuzz targets call")]
#[path = "../../../fuzz/lib.rs"]
mod fuzz;

#[test]
fn every_input_of_the_corpus_passes() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, check) in fuzz::TARGETS {
        let inputs: Vec<_> = fs::read_dir(corpus.join(name))
            .unwrap_or_else(|error| panic!("fuzz/corpus/{name}: {error}"))
            .map(|entry| entry.expect("an entry").path())
            .collect();
        assert!(!inputs.is_empty(), "fuzz/corpus/{name} is empty");
        for input in inputs {
            println!("{}", input.display());
            check(&fs::read(&input).expect("an input"));
        }
    }
}
