//! Detects the format of a file from its name and, if the name is ambiguous, from its text.

use super::{Format, Template};

/// Detects the format of a file; `None` if the file cannot contain flags. Uses only the last two parts of the path, and the text if
/// several formats share a name.
pub fn detect(path: &str, text: &str) -> Option<Format> {
    let folder = path.rsplit('/').nth(1).unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    if is_copy_or_note(&name) {
        return None;
    }
    let (stem, template) = without_template(&name);
    if is_args_file(stem) {
        return Some(match template.or_else(|| template_in(text)) {
            Some(template) => Format::VmArgsTemplate(template),
            None => Format::VmArgs,
        });
    }
    let ends = |endings: &[&str]| endings.iter().any(|ending| stem.ends_with(ending));
    // `rabbitmq-env` without an extension is the script that reads `rabbitmq-env.conf`.
    let of_rabbitmq = stem.starts_with("rabbitmq-env") && (ends(&[".conf"]) || template.is_some());
    if of_rabbitmq {
        Some(Format::RabbitmqEnv)
    } else if stem.starts_with("ejabberdctl.cfg") || ends(&["ejabberdctl.cfg"]) {
        Some(Format::EjabberdCtl)
    } else if is_dockerfile(stem) {
        Some(Format::Dockerfile)
    } else if ends(&[".yml", ".yaml"]) {
        Some(if is_compose(stem, text) { Format::Compose } else { Format::Kubernetes })
    } else if ends(&[".service", ".container"]) || (stem.ends_with(".conf") && folder.ends_with(".service.d"))
    {
        Some(Format::SystemdUnit)
    } else if stem == ".env" || stem.starts_with(".env.") || ends(&[".env"]) {
        Some(Format::EnvFile)
    } else if ends(&[".sh", ".bash", ".envrc", ".profile", ".default", ".vars", "_vars"])
        || folder == "default"
        || is_script(text)
    {
        Some(Format::Shell)
    } else {
        None
    }
}

/// Splits the extension of a template from a name, and returns the rest of the name and the kind of template.
fn without_template(name: &str) -> (&str, Option<Template>) {
    const ENDINGS: [(&str, Template); 9] = [
        (".eex", Template::Eex),
        (".erb", Template::Erb),
        (".src", Template::Overlay),
        (".mustache", Template::Overlay),
        (".template", Template::Overlay),
        (".tmpl", Template::Overlay),
        (".in", Template::Overlay),
        (".j2", Template::Jinja),
        (".jinja2", Template::Jinja),
    ];
    for (ending, template) in ENDINGS {
        if let Some(stem) = name.strip_suffix(ending) {
            return (stem, Some(template));
        }
    }
    (name, None)
}

/// Whether a name is that of documentation, a derived file or an editor leftover: `vm.args.md`, `Dockerfile.snap`, `.vm.args.swp`.
fn is_copy_or_note(name: &str) -> bool {
    const ENDINGS: [&str; 13] = [
        ".md", ".rst", ".html", ".adoc", ".diff", ".expect", ".orig", ".patch", ".rej", ".snap", ".swo",
        ".swp", "~",
    ];
    ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Whether a name is that of an args file (`vm.args`, `remote.vm.args`, `vm.args.cloud`) and not of a program that processes args files
/// (`vm.args.exs`).
fn is_args_file(name: &str) -> bool {
    const OTHERS: [&str; 12] =
        [".ex", ".exs", ".erl", ".escript", ".js", ".json", ".py", ".rb", ".sh", ".toml", ".yaml", ".yml"];
    let other = OTHERS.iter().any(|ending| name.ends_with(ending));
    name.ends_with(".args") || name.ends_with("vm_args") || (name.contains("vm.args") && !other)
}

/// Detects the kind of template of an args file from its text, because overlays of rebar3 and templates of Distillery are called just
/// `vm.args`. A template for `mix release` is always called `vm.args.eex`.
fn template_in(text: &str) -> Option<Template> {
    if text.contains("<%") {
        return Some(Template::Erb);
    }
    if text.contains("{%") || text.contains("{#") && text.contains("#}") {
        return Some(Template::Jinja);
    }
    (text.contains("${") || text.contains("{{")).then_some(Template::Overlay)
}

fn is_dockerfile(name: &str) -> bool {
    ["dockerfile", "containerfile"].iter().any(|kind| {
        name.strip_prefix(kind).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-', '_']))
            || name.strip_suffix(kind).is_some_and(|rest| rest.ends_with(['.', '-', '_']))
    })
}

fn is_compose(name: &str, text: &str) -> bool {
    let has_key = |key: &str| text.lines().any(|line| line.starts_with(key));
    let compose = name.contains("compose") || name.contains("docker-stack");
    (compose || has_key("services:")) && !(has_key("apiVersion:") && has_key("kind:"))
}

fn is_script(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    first.starts_with("#!") && first.trim_end().ends_with("sh")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_is_detected_from_the_name() {
        let check = |path: &str, expect: Option<Format>| assert_eq!(detect(path, ""), expect, "{path}");
        check("rel/vm.args", Some(Format::VmArgs));
        check("remote.vm.args", Some(Format::VmArgs));
        check("etc/vm.args.cloud", Some(Format::VmArgs));
        check("config/vm.dev.args", Some(Format::VmArgs));
        check("rel/vm.args.eex", Some(Format::VmArgsTemplate(Template::Eex)));
        check("templates/vm.args.erb", Some(Format::VmArgsTemplate(Template::Erb)));
        check("config/vm.args.src", Some(Format::VmArgsTemplate(Template::Overlay)));
        check("roles/x/templates/vm.args.j2", Some(Format::VmArgsTemplate(Template::Jinja)));
        check(".env", Some(Format::EnvFile));
        check("/srv/.env.production", Some(Format::EnvFile));
        check("prod.env", Some(Format::EnvFile));
        check("Dockerfile", Some(Format::Dockerfile));
        check("docker/Dockerfile.alpine", Some(Format::Dockerfile));
        check("app.Dockerfile", Some(Format::Dockerfile));
        check("Containerfile", Some(Format::Dockerfile));
        check("docker-compose.override.yml", Some(Format::Compose));
        check("k8s/deployment.yaml", Some(Format::Kubernetes));
        check("lib/systemd/system/app.service", Some(Format::SystemdUnit));
        check("etc/systemd/system/app.service.d/override.conf", Some(Format::SystemdUnit));
        check("app.container", Some(Format::SystemdUnit));
        check("/etc/rabbitmq/rabbitmq-env.conf", Some(Format::RabbitmqEnv));
        check("/etc/ejabberd/ejabberdctl.cfg", Some(Format::EjabberdCtl));
        check("ejabberdctl.cfg.example", Some(Format::EjabberdCtl));
        check("rel/env.sh.eex", Some(Format::Shell));
        check("/etc/default/app", Some(Format::Shell));
        check("debian/app.default", Some(Format::Shell));
        check("rel/app_vars", Some(Format::Shell));
        check("app.vars", Some(Format::Shell));
        check("templates/rabbitmq-env.j2", Some(Format::RabbitmqEnv));
        check("templates/rabbitmq-env.conf.erb", Some(Format::RabbitmqEnv));
        check("scripts/rabbitmq-env", None);
        check("config/vars.config", None);
        check("docs/vm.args.md", None);
        check("rel/vm.args.expect", None);
        check("rel/vm.args.orig", None);
        check("rel/vm.args.eex~", None);
        check("rel/.vm.args.swp", None);
        check("test/vm.args.escript", None);
        check("make.vm.args.sh", Some(Format::Shell));
        check("Dockerfile.rej", None);
        check("README.md", None);
        check("rabbitmq.conf", None);
        check("dockerfiles.txt", None);
        check("", None);
    }

    #[test]
    fn format_is_detected_from_the_text_if_the_name_is_ambiguous() {
        let check = |path: &str, text: &str, expect: Option<Format>| {
            assert_eq!(detect(path, text), expect, "{path} {text:?}");
        };
        check("vm.args", "-name <%= name %>", Some(Format::VmArgsTemplate(Template::Erb)));
        check("vm.args", "{{node_name}}", Some(Format::VmArgsTemplate(Template::Overlay)));
        check("vm.args", "-name ${HOST}", Some(Format::VmArgsTemplate(Template::Overlay)));
        check("vm.args", "{% if x %}", Some(Format::VmArgsTemplate(Template::Jinja)));
        check("vm.args", "-kernel x {127,0,0,1}", Some(Format::VmArgs));
        check("stack.yml", "version: '3'\nservices:\n  app:\n", Some(Format::Compose));
        check("compose.yaml", "apiVersion: v1\nkind: Pod\n", Some(Format::Kubernetes));
        check("bin/start", "#!/usr/bin/env bash\n", Some(Format::Shell));
        check("bin/start", "#!/usr/bin/env escript\n", None);
    }
}
