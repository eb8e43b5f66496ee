//! Finds the tags of templates, which are kept as they are.
//!
//! Args files and the files around them are often templates: EEx in Mix releases (`<%= … %>`; Puppet's and Chef's ERB looks
//! the same), relx and rebar3 (`{{ … }}` filled in at build time, `${…}` at start), Jinja (Ansible) and Go templates
//! (Helm). What stands between the marks is never interpreted; only whether it opens or closes a part that may be absent.

use std::ops::Range;

use super::layer::Tag;

/// The kind of template that an args file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Template {
    /// EEx of Mix releases and Distillery: `<%= … %>`; `${VAR}` as well, which Distillery fills in at start.
    Eex,
    /// What looks the same and is not for Mix: ERB of Chef and Puppet, and Distillery's `vm.args`.
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

/// What a tag does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    /// A text comes in its place.
    Output,
    /// Begins a part that may be absent or repeated.
    Opens,
    /// Ends it.
    Closes,
    /// Anything else: a comment, `else`, an assignment.
    Steers,
}

/// The pairs of marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marks {
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

impl Marks {
    const ALL: [(Marks, &'static str, &'static str); 5] = [
        (Marks::Angle, "<%", "%>"),
        (Marks::Double, "{{", "}}"),
        (Marks::Percent, "{%", "%}"),
        (Marks::Hash, "{#", "#}"),
        (Marks::Dollar, "${", "}"),
    ];

    fn belongs_to(self, template: Template) -> bool {
        match template {
            Template::Eex | Template::Erb => matches!(self, Marks::Angle | Marks::Dollar),
            Template::Overlay => matches!(self, Marks::Double | Marks::Dollar),
            Template::Jinja => matches!(self, Marks::Double | Marks::Percent | Marks::Hash | Marks::Dollar),
        }
    }
}

/// The tags of a text, and its parts that may be absent or repeated; both ascend.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) tags: Vec<Tag>,
    pub(crate) conditional: Vec<Range<usize>>,
}

/// What is wrong with a template.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Unclosed { at: usize, tag: &'static str },
    Unknown { at: usize, tag: &'static str },
}

/// The tags of an args file that is a template.
pub(crate) fn of_args_file(text: &str, template: Template) -> Result<Found, Fault> {
    let mut finder = Finder::default();
    let mut at = 0;
    while let Some((marks, open, close, begin)) = next_mark(text, at) {
        if !marks.belongs_to(template) {
            // `{{1,2}}` and `{%` may be Erlang terms; nothing but a template has `<%`.
            if marks == Marks::Angle {
                return Err(Fault::Unknown { at: begin, tag: open });
            }
            if matches!(marks, Marks::Percent) && template == Template::Overlay {
                return Err(Fault::Unknown { at: begin, tag: open });
            }
            at = begin + open.len();
            continue;
        }
        let inside = begin + open.len();
        if marks == Marks::Double && !is_name(&text[inside..]) {
            at = inside;
            continue;
        }
        let Some(length) = text[inside..].find(close) else {
            return Err(Fault::Unclosed { at: begin, tag: open });
        };
        at = finder.add(text, marks, begin, inside + length, close);
    }
    Ok(finder.finish(text.len()))
}

/// The tags of any other file: those of every kind that are complete, and nothing is wrong with the others.
pub(crate) fn of_any_file(text: &str) -> Found {
    let mut finder = Finder::default();
    let (mut doubles, mut percents) = (OnItsLine::of("}}"), OnItsLine::of("%}"));
    let mut at = 0;
    while let Some((marks, open, close, begin)) = next_mark(text, at) {
        let inside = begin + open.len();
        at = inside;
        let end = match marks {
            Marks::Angle => text[inside..].find(close).map(|length| inside + length),
            Marks::Double if is_name(&text[inside..]) => doubles.find(text, inside),
            Marks::Percent if is_statement(&text[inside..]) => percents.find(text, inside),
            // `${VAR}` is left to the syntax of the file; `{#` begins nothing in most of them.
            Marks::Double | Marks::Percent | Marks::Hash | Marks::Dollar => None,
        };
        match end {
            Some(end) => at = finder.add(text, marks, begin, end, close),
            // There is no end anywhere behind, so looking for it once is enough.
            None if marks == Marks::Angle => break,
            None => {}
        }
    }
    finder.finish(text.len())
}

/// Finds the marks that close a tag. They are not looked for on further lines, so that two braces somewhere do not swallow the rest.
struct OnItsLine {
    close: &'static str,
    /// What was searched in vain up to here is not searched again: many tags without an end would take quadratic time.
    none_before: usize,
}

impl OnItsLine {
    fn of(close: &'static str) -> OnItsLine {
        OnItsLine { close, none_before: 0 }
    }

    /// Where the content of a tag ends that begins at `inside`.
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

/// The first mark that opens a tag from `at` on.
fn next_mark(text: &str, at: usize) -> Option<(Marks, &'static str, &'static str, usize)> {
    let bytes = text.as_bytes();
    let mut from = at;
    while let Some(found) = bytes.get(from..)?.iter().position(|byte| matches!(byte, b'<' | b'{' | b'$')) {
        let begin = from + found;
        for (marks, open, close) in Marks::ALL {
            if bytes[begin..].starts_with(open.as_bytes()) {
                return Some((marks, open, close, begin));
            }
        }
        from = begin + 1;
    }
    None
}

/// Whether what follows `{{` is a template's: a name, a path or a section. Erlang's tuples of numbers or tuples are not.
fn is_name(inside: &str) -> bool {
    let inside = inside.trim_start_matches(['-', ' ', '\t']);
    inside.starts_with(|c: char| {
        c.is_ascii_alphabetic()
            || matches!(c, '_' | '.' | '$' | '#' | '^' | '/' | '&' | '>' | '!' | '"' | '`' | '(' | '{')
    }) && !inside.starts_with("{{")
        && !inside.starts_with('}')
}

/// Whether what follows `{%` is a statement of Jinja.
fn is_statement(inside: &str) -> bool {
    const WORDS: [&str; 12] = [
        "if", "elif", "else", "endif", "for", "endfor", "set", "endset", "block", "endblock", "include",
        "macro",
    ];
    WORDS.contains(&first_word(inside.trim_start_matches(['-', '+'])))
}

#[derive(Debug, Default)]
struct Finder {
    found: Found,
    /// Begins of the parts that are open.
    open: Vec<usize>,
}

impl Finder {
    /// Adds the tag from `begin`, whose content ends at `end`; gives where it ends itself.
    fn add(&mut self, text: &str, marks: Marks, begin: usize, end: usize, close: &str) -> usize {
        let content = text.get(begin + 2..end).unwrap_or_default();
        let mut after = end + close.len();
        // `{{{ name }}}` is a name that is not escaped.
        if marks == Marks::Double && content.starts_with('{') && text[after..].starts_with('}') {
            after += 1;
        }
        let does = does(marks, content);
        match does {
            Does::Opens => self.open.push(after),
            Does::Closes => {
                if let Some(start) = self.open.pop()
                    && self.open.is_empty()
                {
                    self.found.conditional.push(start..begin);
                }
            }
            Does::Output | Does::Steers => {}
        }
        self.found.tags.push(Tag { range: begin..after, silent: does != Does::Output });
        after
    }

    fn finish(mut self, length: usize) -> Found {
        // What is never closed goes to the end.
        if let Some(start) = self.open.first() {
            self.found.conditional.push(*start..length);
        }
        self.found
    }
}

fn does(marks: Marks, content: &str) -> Does {
    match marks {
        Marks::Angle => angle(content),
        Marks::Double => double(content),
        Marks::Percent => percent(content),
        Marks::Hash => Does::Steers,
        Marks::Dollar => Does::Output,
    }
}

fn first_word(content: &str) -> &str {
    let content = content.trim_start();
    let end = content.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(content.len());
    &content[..end]
}

fn angle(content: &str) -> Does {
    if content.starts_with(['#', '!']) {
        return Does::Steers;
    }
    // `<%%` stands for `<%` itself.
    if content.starts_with('%') {
        return Does::Output;
    }
    let output = content.starts_with('=');
    let code = content.trim_matches(['=', '-', ' ', '\t', '\n', '\r']);
    let first = first_word(code);
    let block =
        code.ends_with(" do") || code.ends_with("->") || (code.ends_with('|') && code.contains(" do "));
    match first {
        "end" if !block => Does::Closes,
        "else" | "elsif" | "when" | "rescue" | "end" => Does::Steers,
        // A clause of `case … do`, but not `fn x ->`, which opens.
        _ if code.ends_with("->") && !code.contains("fn ") => Does::Steers,
        _ if block => Does::Opens,
        _ if output => Does::Output,
        // ERB's blocks have no `do`.
        "if" | "unless" | "case" | "for" | "while" | "until" | "begin" if !code.contains("do:") => {
            Does::Opens
        }
        _ => Does::Steers,
    }
}

fn double(content: &str) -> Does {
    let content = content.trim_matches(['-', ' ', '\t']);
    match content.chars().next() {
        Some('#' | '^') => return Does::Opens,
        Some('/') if !content.starts_with("/*") => return Does::Closes,
        Some('!' | '/') => return Does::Steers,
        _ => {}
    }
    match first_word(content) {
        "if" | "range" | "with" | "define" | "block" => Does::Opens,
        "end" => Does::Closes,
        "else" | "break" | "continue" => Does::Steers,
        _ if content.starts_with('$') && content.contains('=') => Does::Steers,
        _ => Does::Output,
    }
}

fn percent(content: &str) -> Does {
    let content = content.trim_start_matches(['-', '+']);
    match first_word(content) {
        "if" | "for" | "macro" | "block" | "filter" | "call" | "raw" => Does::Opens,
        word if word.starts_with("end") => Does::Closes,
        "include" => Does::Output,
        _ => Does::Steers,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tags of an args file: those that only steer in parentheses; then the parts that may be absent.
    fn shown(text: &str, template: Template) -> String {
        let found = of_args_file(text, template).unwrap_or_else(|fault| panic!("{text:?}: {fault:?}"));
        show(text, &found)
    }

    fn show(text: &str, found: &Found) -> String {
        let tags = found.tags.iter().map(|tag| {
            let piece = &text[tag.range.clone()];
            if tag.silent { format!("({piece})") } else { piece.to_owned() }
        });
        let parts = found.conditional.iter().map(|part| format!("[{}]", text[part.clone()].trim()));
        tags.chain(parts).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn eex_and_erb_are_told_apart_from_their_text() {
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
    fn overlays_are_told_apart_from_erlang_terms() {
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
    fn jinja_has_statements_of_its_own() {
        let check = |text: &str, expect: &str| assert_eq!(shown(text, Template::Jinja), expect, "{text:?}");
        check(
            "{% if a %}+P {{ p }}{% endif %}{# why #}",
            "({% if a %}) {{ p }} ({% endif %}) ({# why #}) [+P {{ p }}]",
        );
        check("{%- set x = 1 -%} {{ x | int }}", "({%- set x = 1 -%}) {{ x | int }}");
    }

    #[test]
    fn what_is_unclosed_or_of_another_template_is_a_fault() {
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
    fn in_other_files_only_complete_tags_count() {
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
