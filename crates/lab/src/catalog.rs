//! The labs and their sources, which are embedded in the binary.

use anyhow::{Context, Result};
use include_dir::{Dir, include_dir};

use crate::manifest::Manifest;

pub(crate) static FILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../lab");

/// A lab with its sources.
pub struct Lab {
    /// Its manifest.
    pub manifest: Manifest,
    folder: &'static Dir<'static>,
}

impl Lab {
    /// Returns the name of the workload's module.
    pub fn module(&self) -> String {
        format!("lab_{}", self.manifest.name.replace('-', "_"))
    }

    /// Returns name and text of the source of the lab's native library, if it has one.
    pub fn nif(&self) -> Result<Option<(&str, &'static [u8])>> {
        self.source(self.manifest.nif.as_deref())
    }

    /// Returns name and text of the workload's source, if it is written in Elixir.
    pub fn elixir(&self) -> Result<Option<(&str, &'static [u8])>> {
        self.source(self.manifest.elixir.as_deref())
    }

    fn source<'a>(&self, name: Option<&'a str>) -> Result<Option<(&'a str, &'static [u8])>> {
        let Some(name) = name else { return Ok(None) };
        let file = self.folder.get_file(self.folder.path().join(name));
        let file = file.with_context(|| format!("the lab {} has no {name}", self.manifest.name))?;
        Ok(Some((name, file.contents())))
    }

    /// True if this lab, or a module that it uses, draws a parameter of this name from the seed.
    pub fn draws(&self, key: &str) -> bool {
        let source_of = |name: &str| {
            let is_it =
                |(other, _): &(&str, &[u8])| other.rsplit_once('.').map(|(stem, _)| stem) == Some(name);
            let in_elixir = self.elixir().ok().flatten().filter(is_it);
            let (_, text) = sources().find(is_it).or(in_elixir)?;
            std::str::from_utf8(text).ok()
        };
        let draws = |source: &str| {
            // `lab:int(Context, key, 1, 9)`, and in Elixir `:lab.int(context, :key, 1, 9)`.
            source.contains(&format!(", {key}, ")) || source.contains(&format!(", :{key}, "))
        };
        let Some(own) = source_of(&self.module()) else { return false };
        let parts = own.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        draws(own) || parts.filter(|word| word.starts_with("lab_")).filter_map(source_of).any(draws)
    }

    /// Returns the lab's README.
    pub fn readme(&self) -> Option<&'static str> {
        self.folder.get_file(self.folder.path().join("README.md"))?.contents_utf8()
    }
}

/// Returns all labs, sorted by name.
pub fn all() -> Result<Vec<Lab>> {
    let mut labs = Vec::new();
    for folder in FILES.dirs() {
        let path = folder.path().join("lab.toml");
        let Some(file) = folder.get_file(&path) else { continue };
        let text = file.contents_utf8().with_context(|| format!("lab/{} is not UTF-8", path.display()))?;
        let manifest = Manifest::parse(text).with_context(|| format!("lab/{}", path.display()))?;
        labs.push(Lab { manifest, folder });
    }
    labs.sort_by(|a, b| a.manifest.name.cmp(&b.manifest.name));
    Ok(labs)
}

/// Returns name and text of all Erlang sources of the labs. A lab may use modules of other labs.
pub(crate) fn sources() -> impl Iterator<Item = (&'static str, &'static [u8])> {
    let of = |dir: &'static Dir<'static>| {
        dir.files().filter_map(|file| {
            let name = file.path().file_name()?.to_str()?;
            name.ends_with(".erl").then_some((name, file.contents()))
        })
    };
    of(&FILES).chain(FILES.dirs().flat_map(of))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{judge, software};

    #[test]
    fn every_folder_contains_a_lab_with_readme_and_module() {
        let labs = all().expect("manifests");
        let folders = FILES.dirs().filter(|folder| folder.path() != Path::new(software::FOLDER));
        assert_eq!(labs.len(), folders.count());
        for lab in &labs {
            let name = &lab.manifest.name;
            assert_eq!(lab.folder.path().to_str(), Some(name.as_str()), "folder and name");
            let readme = lab.readme().expect("a README");
            assert!(readme.starts_with(&format!("# {name}")), "{name}: README");
            assert!(readme.contains("\n**Seen in** "), "{name}: README says where it was seen");
            let module = lab.module();
            match lab.elixir().expect("its source") {
                Some((source, _)) => assert_eq!(source, format!("{module}.ex"), "{name}"),
                None => assert!(
                    sources().any(|(source, _)| source == format!("{module}.erl")),
                    "{name}: {module}"
                ),
            }
            let nif = lab.nif().expect("its source").map(|(source, _)| source.to_owned());
            assert!(nif.is_none_or(|nif| nif == format!("{}.c", lab.module())), "{name}: its native library");
        }
    }

    #[test]
    fn labs_draw_the_parameters_that_their_readme_lists() {
        for lab in all().expect("manifests") {
            let readme = lab.readme().expect("a README");
            let drawn = readme.split_once("Drawn from the seed").map_or("", |(_, rest)| rest);
            for line in drawn.lines().filter(|line| line.starts_with("- `")) {
                let names = line.split_once(':').map_or("", |(names, _)| names);
                for key in names.split('`').skip(1).step_by(2) {
                    assert!(lab.draws(key), "{}: {key}", lab.manifest.name);
                }
            }
            assert!(!lab.draws("no_such_number"), "{}", lab.manifest.name);
        }
    }

    #[test]
    fn every_expected_code_belongs_to_a_rule() {
        for lab in all().expect("manifests") {
            let expectations =
                lab.manifest.expect.iter().chain(&lab.manifest.allow).chain(&lab.manifest.counted);
            for code in expectations.flat_map(|expectation| judge::codes(expectation)) {
                let known = beamtune_rules::RULES.iter().any(|rule| rule.code.0 == code);
                assert!(known, "{}: {code}", lab.manifest.name);
            }
            let manifest = &lab.manifest;
            let is_expected = |cause: &String| manifest.expect.contains(cause);
            assert!(manifest.cause.as_ref().is_none_or(is_expected), "{}: its cause", manifest.name);
        }
    }
}
