//! The lab: Erlang workloads, each with one known fault, in a sick and a healthy variant, and the evaluation of diagnoses on them.
//!
//! Their sources in `lab/` are embedded in the binary, so `beamtune lab run` works wherever Erlang is installed. A lab is compiled by
//! the OTP release that runs it.
//!
//! ```text
//! all, software, synthetic --plan--> Job --execute--> recording --judge--> Row --page--> docs/evaluation.md
//! ```
//!
//! [`run`](mod@run) runs one lab. [`evaluate`] measures how often diagnoses are right. This crate does not print: messages go to a
//! [`Printer`](beamtune_node::Printer) of the caller.

mod catalog;
mod elixir;
mod erlang;
pub mod evaluate;
mod execute;
mod flag_check;
mod host;
mod judge;
mod limits;
pub mod manifest;
mod nif;
mod otp;
pub mod page;
mod plan;
pub mod recordings;
pub mod rows;
pub mod run;
pub mod software;
pub mod synthetic;

use anyhow::{Result, bail};

pub use catalog::{Lab, all};
pub use erlang::Erlang;
pub use plan::{Cases, Selection};

/// Finds a lab by name.
pub fn find(name: &str) -> Result<Lab> {
    match all()?.into_iter().find(|lab| lab.manifest.name == name) {
        Some(lab) => Ok(lab),
        None if software::all()?.iter().any(|case| case.name == name) => {
            bail!("{name} is software, not a lab; run it with: beamtune lab evaluate --labs {name}")
        }
        None if synthetic::CASES.iter().any(|case| case.name == name) => {
            bail!(
                "{name} is a synthetic recording, not a lab; write it with: beamtune lab synthetic {name} FILE"
            )
        }
        None => bail!("no lab {name:?}; list them with: beamtune lab list"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_a_case_that_is_not_a_lab_names_its_command() {
        let message = |name: &str| find(name).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(
            message("rabbitmq-idle").contains("lab evaluate --labs rabbitmq-idle"),
            "{}",
            message("rabbitmq-idle")
        );
        assert!(message("stolen-cpu").contains("lab synthetic stolen-cpu"), "{}", message("stolen-cpu"));
        assert!(message("none").contains("lab list"), "{}", message("none"));
    }
}
