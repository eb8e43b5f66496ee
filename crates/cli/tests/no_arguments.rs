//! `beamtune` without arguments.

mod common;

use common::{beamtune, run};

#[test]
fn without_arguments_the_most_important_commands_are_printed() {
    let output = run(&mut beamtune());
    let commands = ["beamtune nodes", "beamtune doctor NODE", "beamtune record NODE", "beamtune --help"];
    output.assert_refused(&commands);
    assert_eq!(output.stdout, "");
}
