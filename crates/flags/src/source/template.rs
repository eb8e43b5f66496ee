//! Finds the tags of templates. Tags are never expanded.
//!
//! Args files, and the files that contain them, are often templates: EEx in Mix releases (`<%= … %>`; ERB in Puppet and Chef has the same
//! syntax), relx and rebar3 (`{{ … }}` expanded at build time, `${…}` at start), Jinja (Ansible) and Go templates (Helm). The content of a
//! tag only determines whether the tag opens or closes a part that may be absent.

use std::ops::Range;

use super::layer::Tag;

/// The kind of template of an args file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Template {
    /// EEx of Mix releases and Distillery: `<%= … %>`; also `${VAR}`, which Distillery expands at start.
    Eex,
    /// Files with the same syntax that are not for Mix: ERB of Chef and Puppet, and `vm.args` of Distillery.
    Erb,
    /// relx and rebar3: `{{ overlay }}`, and `${VAR}` or `${VAR:-default}` from the environment at start.
    Overlay,
    /// Jinja, as Ansible uses it: `{{ … }}`, `{% … %}`, `{# … #}`.
    Jinja,
}

impl Template {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Template::Eex => "EEx",
            Template::Erb => "ERB",
            Template::Overlay => "a relx overlay",
            Template::Jinja => "Jinja",
        }
    }
}

/// The role of a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TagRole {
    /// The tag is replaced by a text.
    Output,
    /// The tag begins a part that may be absent or repeated.
    Open,
    /// The tag ends a part that may be absent or repeated.
    Close,
    /// Any other tag: a comment, `else`, an assignment.
    Control,
}

/// The delimiters of a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delimiters {
    /// `<%` and `%>`.
    Angle,
    /// `{{` and `}}`.
    Double,
    /// `{%` and `%}`.
    Percent,
    /// `{#` and `#}`.
    Hash,
    /// `${` and `}`.
    Dollar,
}

impl Delimiters {
    const ALL: [(Delimiters, &'static str, &'static str); 5] = [
        (Delimiters::Angle, "<%", "%>"),
        (Delimiters::Double, "{{", "}}"),
        (Delimiters::Percent, "{%", "%}"),
        (Delimiters::Hash, "{#", "#}"),
        (Delimiters::Dollar, "${", "}"),
    ];

    fn belongs_to(self, template: Template) -> bool {
        match template {
            Template::Eex | Template::Erb => matches!(self, Delimiters::Angle | Delimiters::Dollar),
            Template::Overlay => matches!(self, Delimiters::Double | Delimiters::Dollar),
            Template::Jinja => matches!(
                self,
                Delimiters::Double | Delimiters::Percent | Delimiters::Hash | Delimiters::Dollar
            ),
        }
    }
}

/// The tags of a text, and the parts that may be absent or repeated; both in ascending order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tags {
    pub(crate) tags: Vec<Tag>,
    pub(crate) conditional: Vec<Range<usize>>,
}

/// An error in a template.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Unclosed { at: usize, tag: &'static str },
    Unknown { at: usize, tag: &'static str },
}

/// Finds the tags of an args file that is a template.
pub(crate) fn of_args_file(text: &str, template: Template) -> Result<Tags, Fault> {
    let mut finder = Finder::default();
    let mut at = 0;
    while let Some((delimiters, open, close, begin)) = next_tag(text, at) {
        if !delimiters.belongs_to(template) {
            // `{{1,2}}` and `{%` may be Erlang terms; `<%` occurs only in templates.
            if delimiters == Delimiters::Angle {
                return Err(Fault::Unknown { at: begin, tag: open });
            }
            if matches!(delimiters, Delimiters::Percent) && template == Template::Overlay {
                return Err(Fault::Unknown { at: begin, tag: open });
            }
            at = begin + open.len();
            continue;
        }
        let inside = begin + open.len();
        if delimiters == Delimiters::Double && !is_name(&text[inside..]) {
            at = inside;
            continue;
        }
        let Some(length) = text[inside..].find(close) else {
            return Err(Fault::Unclosed { at: begin, tag: open });
        };
        at = finder.add(text, delimiters, begin, inside + length, close);
    }
    Ok(finder.finish(text.len()))
}

/// Finds the complete tags of any other file, of all kinds of templates. Incomplete tags are ignored.
pub(crate) fn of_any_file(text: &str) -> Tags {
    let mut finder = Finder::default();
    let (mut doubles, mut percents) = (LineSearch::of("}}"), LineSearch::of("%}"));
    let mut at = 0;
    while let Some((delimiters, open, close, begin)) = next_tag(text, at) {
        let inside = begin + open.len();
        at = inside;
        let end = match delimiters {
            Delimiters::Angle => text[inside..].find(close).map(|length| inside + length),
            Delimiters::Double if is_name(&text[inside..]) => doubles.find(text, inside),
            Delimiters::Percent if is_statement(&text[inside..]) => percents.find(text, inside),
            // `${VAR}` belongs to the syntax of the file; in most files, `{#` is not a tag.
            Delimiters::Double | Delimiters::Percent | Delimiters::Hash | Delimiters::Dollar => None,
        };
        match end {
            Some(end) => at = finder.add(text, delimiters, begin, end, close),
            // The rest of the file has no closing delimiter, so there are no further tags of this kind.
            None if delimiters == Delimiters::Angle => break,
            None => {}
        }
    }
    finder.finish(text.len())
}

/// Finds the closing delimiter of a tag on the same line only, so that two stray braces do not hide the rest of the file.
struct LineSearch {
    close: &'static str,
    /// No closing delimiter is on the line before this offset. Searching for each tag would take quadratic time.
    none_before: usize,
}

impl LineSearch {
    fn of(close: &'static str) -> LineSearch {
        LineSearch { close, none_before: 0 }
    }

    /// Returns the end of the content of a tag; the content starts at `inside`.
    fn find(&mut self, text: &str, inside: usize) -> Option<usize> {
        if inside < self.none_before {
            return None;
        }
        let line = text[inside..].split('\n').next().unwrap_or_default();
        let length = line.find(self.close);
        if length.is_none() {
            self.none_before = inside + line.len() + 1;
        }
        length.map(|length| inside + length)
    }
}

/// Finds the first opening delimiter from `at` on.
fn next_tag(text: &str, at: usize) -> Option<(Delimiters, &'static str, &'static str, usize)> {
    let bytes = text.as_bytes();
    let mut from = at;
    while let Some(found) = bytes.get(from..)?.iter().position(|byte| matches!(byte, b'<' | b'{' | b'$')) {
        let begin = from + found;
        for (delimiters, open, close) in Delimiters::ALL {
            if bytes[begin..].starts_with(open.as_bytes()) {
                return Some((delimiters, open, close, begin));
            }
        }
        from = begin + 1;
    }
    None
}

/// Whether the text after `{{` is the start of a name, path or section of a template, and not of an Erlang tuple of numbers or tuples.
fn is_name(inside: &str) -> bool {
    let inside = inside.trim_start_matches(['-', ' ', '\t']);
    inside.starts_with(|c: char| {
        c.is_ascii_alphabetic()
            || matches!(c, '_' | '.' | '$' | '#' | '^' | '/' | '&' | '>' | '!' | '"' | '`' | '(' | '{')
    }) && !inside.starts_with("{{")
        && !inside.starts_with('}')
}

/// Whether the text after `{%` is a Jinja statement.
fn is_statement(inside: &str) -> bool {
    const WORDS: [&str; 12] = [
        "if", "elif", "else", "endif", "for", "endfor", "set", "endset", "block", "endblock", "include",
        "macro",
    ];
    WORDS.contains(&first_word(inside.trim_start_matches(['-', '+'])))
}

#[derive(Debug, Default)]
struct Finder {
    found: Tags,
    /// The starts of the open parts.
    open: Vec<usize>,
}

impl Finder {
    /// Adds the tag that starts at `begin` and whose content ends at `end`. Returns the end of the tag.
    fn add(&mut self, text: &str, delimiters: Delimiters, begin: usize, end: usize, close: &str) -> usize {
        let content = text.get(begin + 2..end).unwrap_or_default();
        let mut after = end + close.len();
        // `{{{ name }}}` is an unescaped name.
        if delimiters == Delimiters::Double && content.starts_with('{') && text[after..].starts_with('}') {
            after += 1;
        }
        let role = role(delimiters, content);
        match role {
            TagRole::Open => self.open.push(after),
            TagRole::Close => {
                if let Some(start) = self.open.pop()
                    && self.open.is_empty()
                {
                    self.found.conditional.push(start..begin);
                }
            }
            TagRole::Output | TagRole::Control => {}
        }
        self.found.tags.push(Tag { range: begin..after, silent: role != TagRole::Output });
        after
    }

    fn finish(mut self, length: usize) -> Tags {
        // An unclosed part extends to the end of the file.
        if let Some(start) = self.open.first() {
            self.found.conditional.push(*start..length);
        }
        self.found
    }
}

fn role(delimiters: Delimiters, content: &str) -> TagRole {
    match delimiters {
        Delimiters::Angle => angle(content),
        Delimiters::Double => double(content),
        Delimiters::Percent => percent(content),
        Delimiters::Hash => TagRole::Control,
        Delimiters::Dollar => TagRole::Output,
    }
}

fn first_word(content: &str) -> &str {
    let content = content.trim_start();
    let end = content.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(content.len());
    &content[..end]
}

fn angle(content: &str) -> TagRole {
    if content.starts_with(['#', '!']) {
        return TagRole::Control;
    }
    // `<%%` is a literal `<%`.
    if content.starts_with('%') {
        return TagRole::Output;
    }
    let output = content.starts_with('=');
    let code = content.trim_matches(['=', '-', ' ', '\t', '\n', '\r']);
    let first = first_word(code);
    let block =
        code.ends_with(" do") || code.ends_with("->") || (code.ends_with('|') && code.contains(" do "));
    match first {
        "end" if !block => TagRole::Close,
        "else" | "elsif" | "when" | "rescue" | "end" => TagRole::Control,
        // `x ->` is a clause of `case … do`, but `fn x ->` opens a part.
        _ if code.ends_with("->") && !code.contains("fn ") => TagRole::Control,
        _ if block => TagRole::Open,
        _ if output => TagRole::Output,
        // Blocks of ERB have no `do`.
        "if" | "unless" | "case" | "for" | "while" | "until" | "begin" if !code.contains("do:") => {
            TagRole::Open
        }
        _ => TagRole::Control,
    }
}

fn double(content: &str) -> TagRole {
    let content = content.trim_matches(['-', ' ', '\t']);
    match content.chars().next() {
        Some('#' | '^') => return TagRole::Open,
        Some('/') if !content.starts_with("/*") => return TagRole::Close,
        Some('!' | '/') => return TagRole::Control,
        _ => {}
    }
    match first_word(content) {
        "if" | "range" | "with" | "define" | "block" => TagRole::Open,
        "end" => TagRole::Close,
        "else" | "break" | "continue" => TagRole::Control,
        _ if content.starts_with('$') && content.contains('=') => TagRole::Control,
        _ => TagRole::Output,
    }
}

fn percent(content: &str) -> TagRole {
    let content = content.trim_start_matches(['-', '+']);
    match first_word(content) {
        "if" | "for" | "macro" | "block" | "filter" | "call" | "raw" => TagRole::Open,
        word if word.starts_with("end") => TagRole::Close,
        "include" => TagRole::Output,
        _ => TagRole::Control,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats the tags of an args file, with control tags in parentheses, followed by the parts that may be absent.
    fn shown(text: &str, template: Template) -> String {
        let found = of_args_file(text, template).unwrap_or_else(|fault| panic!("{text:?}: {fault:?}"));
        show(text, &found)
    }

    fn show(text: &str, found: &Tags) -> String {
        let tags = found.tags.iter().map(|tag| {
            let piece = &text[tag.range.clone()];
            if tag.silent { format!("({piece})") } else { piece.to_owned() }
        });
        let parts = found.conditional.iter().map(|part| format!("[{}]", text[part.clone()].trim()));
        tags.chain(parts).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn tags_of_eex_and_erb_are_distinguished_from_text() {
        let check = |text: &str, expect: &str| assert_eq!(shown(text, Template::Eex), expect, "{text:?}");
        check("+S <%= System.schedulers() %>:<%= 2 %>", "<%= System.schedulers() %> <%= 2 %>");
        check(
            "<%= if a do %>+P 1<% else %>+P 2<% end %>",
            "(<%= if a do %>) (<% else %>) (<% end %>) [+P 1<% else %>+P 2]",
        );
        check("<% if a %>+P 1<% end -%>", "(<% if a %>) (<% end -%>) [+P 1]");
        check("<%= for x <- [1] do %>+P 1<% end %>", "(<%= for x <- [1] do %>) (<% end %>) [+P 1]");
        check("<%= Enum.map(l, fn x -> %>a<% end) %>", "(<%= Enum.map(l, fn x -> %>) (<% end) %>) [a]");
        check(
            "<% case a do %><% 1 -> %>a<% end %>",
            "(<% case a do %>) (<% 1 -> %>) (<% end %>) [<% 1 -> %>a]",
        );
        check("<%# if a do %> <%!-- x --%> <%% y %>", "(<%# if a do %>) (<%!-- x --%>) <%% y %>");
        check("<%= if a, do: 1, else: 2 %>", "<%= if a, do: 1, else: 2 %>");
        check("-name ${NODE} {{x}} {1,2}", "${NODE}");
        check(
            "<%= if a do %><% if b do %>1<% end %>2<% end %>",
            "(<%= if a do %>) (<% if b do %>) (<% end %>) (<% end %>) [<% if b do %>1<% end %>2]",
        );
    }

    #[test]
    fn overlays_are_distinguished_from_erlang_terms() {
        let check = |text: &str, expect: &str| assert_eq!(shown(text, Template::Overlay), expect, "{text:?}");
        check("-name {{ node }}@${HOST:-localhost}", "{{ node }} ${HOST:-localhost}");
        check(
            "{{#dist}}-a{{/dist}} {{^x}}{{! why }}",
            "({{#dist}}) ({{/dist}}) ({{^x}}) ({{! why }}) [-a] [{{! why }}]",
        );
        check("{{{ raw }}} x", "{{{ raw }}}");
        check("-kernel inet_dist_use_interface {127,0,0,1} -x [{{1,2},3}]", "");
    }

    #[test]
    fn jinja_statements_are_recognised() {
        let check = |text: &str, expect: &str| assert_eq!(shown(text, Template::Jinja), expect, "{text:?}");
        check(
            "{% if a %}+P {{ p }}{% endif %}{# why #}",
            "({% if a %}) {{ p }} ({% endif %}) ({# why #}) [+P {{ p }}]",
        );
        check("{%- set x = 1 -%} {{ x | int }}", "({%- set x = 1 -%}) {{ x | int }}");
    }

    #[test]
    fn unclosed_tags_and_tags_of_other_templates_are_errors() {
        let check = |text: &str, template: Template, fault: Fault| {
            assert_eq!(of_args_file(text, template), Err(fault), "{text:?}");
        };
        check("+P <%= x", Template::Eex, Fault::Unclosed { at: 3, tag: "<%" });
        check("-name ${A", Template::Eex, Fault::Unclosed { at: 6, tag: "${" });
        check("-name {{ a", Template::Overlay, Fault::Unclosed { at: 6, tag: "{{" });
        check("+P <%= x %>", Template::Overlay, Fault::Unknown { at: 3, tag: "<%" });
        check("{% if x %}", Template::Overlay, Fault::Unknown { at: 0, tag: "{%" });
    }

    #[test]
    fn only_complete_tags_are_found_in_other_files() {
        let check = |text: &str, expect: &str| assert_eq!(show(text, &of_any_file(text)), expect, "{text:?}");
        check("A={{ .Values.x }} {{ y\n}} <%= z %> <% w", "{{ .Values.x }} <%= z %>");
        check(
            "{{- if .x }}\na\n{{- else }}\nb\n{{- end }}",
            "({{- if .x }}) ({{- else }}) ({{- end }}) [a\n{{- else }}\nb]",
        );
        check(
            "{{/* a comment */}} {{ $x := 1 }} {{ include \"a\" . }}",
            "({{/* a comment */}}) ({{ $x := 1 }}) {{ include \"a\" . }}",
        );
        check("A='{% if x == 'y' %}b{% endif %}'", "({% if x == 'y' %}) ({% endif %}) [b]");
        check("${VAR} {% x %} {% if\n %} {{1,2}}", "");
    }
}
