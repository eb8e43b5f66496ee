//! Installs an emulator next to that of a release, or creates the Dockerfile lines that add one to an image.
//!
//! Only this module writes into an installation, and only on request: one file, which is started only with `-emu_type`.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::PathBuf;

use crate::cache::CachedEmulator;
use crate::error::Error;
use crate::installation::Installation;
use crate::kind::{Flavor, Type, Variant, is_version};
use crate::needs::{PackageManager, packages};
use crate::program::Program;
use crate::recipe::{Layout, Recipe};
use crate::source::{tarball_url, version};

/// The result of an installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// The file.
    pub file: PathBuf,
    /// Whether an identical file was already installed.
    pub was_installed: bool,
}

/// Checks that an emulator of this type can be installed next to the release's own.
///
/// # Errors
/// If both would have the same file name.
pub fn check_type(kind: Type) -> Result<(), Error> {
    match kind {
        Type::Lcnt => Ok(()),
        Type::Opt => Err(Error::Usage(format!(
            "an opt emulator has the name of the release's own, {}, which is not overwritten: start it with beamtune emulator run \
             --type opt",
            kind.file()
        ))),
    }
}

/// Installs an emulator.
///
/// # Errors
/// If it does not fit the release, has the name of the release's own emulator, or a different file has its name.
pub fn install(kept: &CachedEmulator, installation: &Installation) -> Result<Installed, Error> {
    let identity = &kept.manifest.identity;
    let kind = identity.variant.kind;
    check_type(kind)?;
    let own = Program::read(&installation.emulator())?;
    let fits = (&own.erts, &own.elf.architecture, own.elf.libc)
        == (&identity.erts, &identity.architecture, identity.libc);
    if !fits {
        return Err(Error::WrongVersion {
            what: installation.emulator().display().to_string(),
            found: format!(
                "{}, {}, {}",
                version(Some(&own.erts), None),
                own.elf.architecture,
                own.elf.libc.name()
            ),
            wanted: identity.to_string(),
            next: "build one for this release: beamtune emulator build --for FOLDER".to_owned(),
        });
    }
    let file = installation.bin.join(kind.file());
    let io = |source| Error::io(&file, source);
    let bytes = fs::read(&kept.file).map_err(|source| Error::io(&kept.file, source))?;
    match fs::read(&file) {
        Ok(there) if there == bytes => return Ok(Installed { file, was_installed: true }),
        Ok(_) => return Err(Error::Exists { path: file }),
        Err(_) if fs::symlink_metadata(&file).is_ok() => return Err(Error::Exists { path: file }),
        Err(_) => {}
    }
    let new = tempfile::Builder::new().prefix(".beamtune-").tempfile_in(&installation.bin);
    let new = new.map_err(|source| Error::io(&installation.bin, source))?;
    fs::write(new.path(), &bytes).map_err(io)?;
    let like = fs::metadata(installation.emulator()).map_err(io)?;
    // If we are root, the file must belong to the release's owner. Any other user is the owner already.
    let own = new.as_file().metadata().map_err(io)?;
    if (own.uid(), own.gid()) != (like.uid(), like.gid()) {
        fchown(new.as_file(), Some(like.uid()), Some(like.gid())).map_err(io)?;
    }
    new.as_file().set_permissions(Permissions::from_mode(like.mode() & 0o777 | 0o500)).map_err(io)?;
    new.as_file().sync_all().map_err(io)?;
    new.persist_noclobber(&file).map_err(|error| io(error.error))?;
    // Make the new name durable; not every file system supports this.
    let _ = File::open(&installation.bin).and_then(|folder| folder.sync_all());
    Ok(Installed { file, was_installed: false })
}

/// A container image to which an emulator is added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Version of OTP: `27.3.4.1`.
    pub otp: String,
    /// Version of ERTS, if it is known. The build fails for any other version.
    pub erts: Option<String>,
    /// The base image, which determines architecture and C library: `debian:bookworm`, `alpine:3.22`.
    pub base: String,
    /// The folder in the image that contains `erts-VERSION`.
    pub root: String,
    /// Type, flavor and options.
    pub variant: Variant,
}

/// The folder of Erlang in images that are based on the official one.
pub const DEFAULT_ROOT: &str = "/usr/local/lib/erlang";

impl Image {
    /// Returns lines for a Dockerfile: a build stage, and the lines that the last stage needs.
    ///
    /// # Errors
    /// If a field is not safe in a Dockerfile, or the type is `opt`, which would replace the image's own emulator.
    pub fn dockerfile(&self) -> Result<String, Error> {
        let Image { otp, erts, base, root, variant } = self;
        let usage = |text: String| Err(Error::Usage(text));
        if variant.kind == Type::Opt {
            return usage("only an lcnt emulator can be added to an image; an opt emulator would replace the image's own".to_owned());
        }
        if !is_version(otp) {
            return usage(format!("{otp:?} is not a version of OTP: write it as 27.3.4.1"));
        }
        let is_plain = |text: &str, more: &str| {
            !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
        };
        if !is_plain(base, ".-_/:@") {
            return usage(format!("{base:?} is not the name of an image: write it as debian:bookworm"));
        }
        if !root.starts_with('/') || !is_plain(root, ".-_/+~") {
            return usage(format!("{root:?} is not a folder in an image: write it as {DEFAULT_ROOT}"));
        }
        let manager = package_manager(base);
        let list = packages(manager, variant.flavor).join(" ");
        let url = tarball_url(otp);
        let (install, wget) = match manager {
            PackageManager::Apt => (
                format!(
                    "apt-get update && apt-get install -y --no-install-recommends ca-certificates wget {list}"
                ),
                "wget -qO-",
            ),
            PackageManager::Dnf => (format!("dnf install -y curl {list}"), "curl -fsSL"),
            // BusyBox has wget and tar.
            PackageManager::Apk => (format!("apk add --no-cache {list}"), "wget -qO-"),
        };
        // All ERTS versions since OTP 24 are configured in the same way; older ones have no flavors.
        let release: u32 = otp.split('.').next().and_then(|major| major.parse().ok()).unwrap_or_default();
        let like_erts = format!("{}.0", release.saturating_sub(12));
        let layout = Layout { make_configure: release >= 24 };
        let recipe = Recipe::new("/otp", &like_erts, *variant, layout, true, "$(nproc)");
        let file = variant.kind.file();
        let environment = recipe.environment.iter().map(|(name, value)| format!("{name}={value}"));
        let environment = environment.collect::<Vec<_>>().join(" ");
        let steps = recipe.shell(variant.kind, &format!("/{file}")).join(" && \\\n    ");
        let check = erts.as_ref().map(|erts| format!("test \"$erts\" = {erts} && ")).unwrap_or_default();
        let root = root.trim_end_matches('/');
        let emu_type = variant.kind.name();
        Ok(format!(
            "# The {emu_type} emulator of OTP {otp}, built on the image's own base: architecture and C library must be the same.\n\
             FROM {base} AS beamtune-emulator\n\
             RUN {install}\n\
             WORKDIR /otp\n\
             RUN {wget} {url} | tar -xz --strip-components=1\n\
             ENV {environment}\n\
             RUN {steps}\n\
             # The folder's name contains the version, so an ERTS of another version never uses this emulator.\n\
             RUN erts=$(sed -n 's/^VSN *= *//p' erts/vsn.mk) && {check}install -D -m 755 /{file} /out/erts-$erts/bin/{file}\n\
             \n\
             # In the last stage, after the lines that install Erlang or the release in {root}:\n\
             COPY --from=beamtune-emulator /out/ {root}/\n\
             # Starts every VM of the image with it; to choose at each start, omit this and pass the variable to docker run.\n\
             ENV ERL_AFLAGS=\"-emu_type {emu_type}\"\n"
        ))
    }
}

/// Returns the package manager of an image, derived from the image's name.
pub fn package_manager(base: &str) -> PackageManager {
    const DNF: [&str; 9] =
        ["fedora", "rocky", "alma", "centos", "redhat", "rhel", "ubi", "amazonlinux", "oraclelinux"];
    let has = |names: &[&str]| names.iter().any(|name| base.to_ascii_lowercase().contains(name));
    match () {
        () if has(&["alpine"]) => PackageManager::Apk,
        () if has(&DNF) => PackageManager::Dnf,
        () => PackageManager::Apt,
    }
}

/// Returns the image that a system is most likely based on, derived from its `/etc/os-release`.
pub fn base_image(os_release: &str) -> Option<String> {
    let field = |name: &str| {
        let values = os_release.lines().filter_map(|line| line.split_once('='));
        let mut values = values.filter(|(found, _)| *found == name);
        values.next().map(|(_, value)| value.trim_matches(['"', '\'']).to_owned())
    };
    let id = field("ID")?;
    let number = field("VERSION_ID");
    let tag = match id.as_str() {
        "debian" | "ubuntu" => field("VERSION_CODENAME").or(number)?,
        // Tags of Alpine's images contain only the first two numbers.
        "alpine" => number?.splitn(3, '.').take(2).collect::<Vec<_>>().join("."),
        "fedora" => number?,
        "rocky" => return Some(format!("rockylinux/rockylinux:{}", number?)),
        "almalinux" => number?,
        "amzn" => return Some(format!("amazonlinux:{}", number?)),
        _ => return None,
    };
    Some(format!("{id}:{tag}"))
}

/// Returns the default flavor of an OTP version: the JIT from OTP 24 on, on the architectures that the JIT supports.
pub fn default_flavor(otp: &str, architecture: &str) -> Flavor {
    let release: u32 = otp.split('.').next().and_then(|major| major.parse().ok()).unwrap_or_default();
    match architecture {
        "x86_64" if release >= 24 => Flavor::Jit,
        "aarch64" if release >= 25 => Flavor::Jit,
        _ => Flavor::Emu,
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::cache::tests::filled;
    use crate::installation::tests::{erlang, file};
    use crate::kind::Options;
    use crate::program::tests::{elf, emulator};

    fn into(release: &TempDir) -> Result<Installed, Error> {
        let folder = tempfile::tempdir().expect("a folder");
        let (_, kept) = filled(&folder);
        install(&kept, &Installation::at(release.path()).expect("a release"))
    }

    #[test]
    fn an_emulator_is_installed_next_to_the_releases_own_once() {
        let release = erlang();
        let own = fs::read(release.path().join("erts-13.1.5/bin/beam.smp")).expect("read");
        let installed = into(&release).expect("installed");
        assert_eq!(fs::read_to_string(&installed.file).expect("read"), "lcnt");
        assert_eq!(fs::metadata(&installed.file).expect("a file").mode() & 0o777, 0o755);
        assert!(!installed.was_installed && into(&release).expect("there").was_installed);
        assert_eq!(fs::read(release.path().join("erts-13.1.5/bin/beam.smp")).expect("read"), own);
        fs::write(&installed.file, "another").expect("written");
        assert!(matches!(into(&release), Err(Error::Exists { .. })));
    }

    #[test]
    fn an_emulator_that_does_not_fit_is_not_installed() {
        let check = |beam: Vec<u8>, expect: &str| {
            let release = erlang();
            file(&release.path().join("erts-13.1.5/bin/beam.smp"), &beam);
            let error = into(&release).expect_err("it does not fit").to_string();
            assert!(error.contains(expect), "{error}");
            assert!(!release.path().join("erts-13.1.5/bin/beam.lcnt.smp").exists());
        };
        let text = "Erlang/OTP 25%s [erts-13.1.5] [64-bit] [jit:ns%s]";
        // The version in the file is compared, not the one in the folder's name.
        check(emulator(&text.replace("13.1.5", "13.1.4")), "ERTS 13.1.4");
        check(elf(62, "/lib/ld-musl-x86_64.so.1", text), "x86_64, musl");
        check(elf(183, "/lib/ld-linux-aarch64.so.1", text), "aarch64, glibc");
    }

    fn image(otp: &str, base: &str) -> Image {
        let variant = Variant { kind: Type::Lcnt, flavor: Flavor::Jit, options: Options::default() };
        Image { otp: otp.to_owned(), erts: None, base: base.to_owned(), root: "/app".to_owned(), variant }
    }

    #[test]
    fn dockerfile_uses_the_package_manager_of_its_base() {
        let check = |base, parts: &[&str]| {
            let text = image("27.3.4.1", base).dockerfile().expect("lines");
            for part in parts {
                assert!(text.contains(part), "no {part:?} in\n{text}");
            }
        };
        let common = [
            "otp_src_27.3.4.1.tar.gz | tar -xz",
            "make -C erts/emulator -j$(nproc) lcnt FLAVOR=jit && \\\n",
            "COPY --from=beamtune-emulator /out/ /app/\n",
            "ENV ERL_TOP=/otp LC_ALL=C.UTF-8 ERTS_SKIP_DEPEND=true\n",
        ];
        check("debian:bookworm", &common);
        check("debian:bookworm", &["FROM debian:bookworm AS beamtune-emulator\n", " libncurses-dev "]);
        check("alpine:3.22", &["apk add --no-cache gcc musl-dev ", " ncurses-dev ", " linux-headers "]);
        check("fedora:43", &["dnf install -y curl gcc glibc-devel ", " gcc-c++ "]);
        check("ubuntu:24.04", &["apt-get install "]);
        check("registry.access.redhat.com/ubi9/ubi", &["dnf install "]);
    }

    #[test]
    fn unsafe_dockerfile_fields_are_refused() {
        for (otp, base, root) in [
            ("27;x", "debian", "/app"),
            ("27.3", "debian\nRUN x", "/app"),
            ("27.3", "debian", "app"),
            ("27.3", "debian", "/a b"),
        ] {
            let image = Image { root: root.to_owned(), ..image(otp, base) };
            assert!(image.dockerfile().is_err(), "{image:?}");
        }
        let mut opt = image("27.3", "debian");
        opt.variant.kind = Type::Opt;
        assert!(opt.dockerfile().is_err());
    }

    #[test]
    fn dockerfile_checks_a_known_erts_version() {
        let image = Image { erts: Some("15.2.7".to_owned()), ..image("27.3.4.1", "debian:trixie") };
        assert!(image.dockerfile().expect("lines").contains("test \"$erts\" = 15.2.7 && install -D "));
    }

    #[test]
    fn base_image_is_derived_from_os_release() {
        let check =
            |text: &str, expect: Option<&str>| assert_eq!(base_image(text).as_deref(), expect, "{text}");
        check(
            "PRETTY_NAME=\"Debian\"\nVERSION_ID=\"12\"\nVERSION_CODENAME=bookworm\nID=debian\n",
            Some("debian:bookworm"),
        );
        check("ID=alpine\nVERSION_ID=3.22.1\n", Some("alpine:3.22"));
        check("ID=ubuntu\nVERSION_ID=\"24.04\"\nVERSION_CODENAME=noble\n", Some("ubuntu:noble"));
        check("ID=\"rocky\"\nVERSION_ID=\"9.5\"\n", Some("rockylinux/rockylinux:9.5"));
        check("ID=nixos\nVERSION_ID=\"25.05\"\n", None);
        check("", None);
    }

    #[test]
    fn default_flavor_depends_on_release_and_architecture() {
        let check =
            |otp, machine, flavor| assert_eq!(default_flavor(otp, machine), flavor, "{otp} {machine}");
        check("23.3", "x86_64", Flavor::Emu);
        check("24.0", "x86_64", Flavor::Jit);
        check("24.0", "aarch64", Flavor::Emu);
        check("27.3.4.1", "aarch64", Flavor::Jit);
        check("27.3.4.1", "riscv64", Flavor::Emu);
    }
}
