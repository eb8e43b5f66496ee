//! Rendering of documentation pages for a terminal.

use termimad::MadSkin;

use crate::text::Style;

/// Renders a Markdown page: headings in bold, paragraphs wrapped, tables drawn, links replaced by their text.
pub fn render(markdown: &str, style: Style) -> String {
    let skin = if style.colour { MadSkin::default_dark() } else { MadSkin::no_style() };
    let text = skin.text(&without_links(markdown), Some(style.width)).to_string();
    // Tables and centred headings have trailing spaces.
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Replaces `[text](address)` by `text`.
fn without_links(markdown: &str) -> String {
    let mut out = String::with_capacity(markdown.len());
    let mut rest = markdown;
    while let Some(begin) = rest.find('[') {
        let (before, link) = rest.split_at(begin);
        out.push_str(before);
        let parts =
            link[1..].split_once("](").and_then(|(text, after)| Some((text, after.split_once(')')?.1)));
        match parts.filter(|(text, _)| !text.contains(['[', '\n'])) {
            Some((text, after)) => {
                out.push_str(text);
                rest = after;
            }
            None => {
                out.push('[');
                rest = &link[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_replaced_by_their_text() {
        assert_eq!(without_links("see [gc-share](gc-share.md), [x] and a[1](b)"), "see gc-share, [x] and a1");
        assert_eq!(without_links("`[{a, [b]}]` stays"), "`[{a, [b]}]` stays");
    }

    #[test]
    fn a_page_is_wrapped_to_the_terminal() {
        let text = render(
            "# BT001 x\n\nOne two three four five six seven eight nine ten eleven twelve.\n",
            Style { width: 40, ..Style::PLAIN },
        );
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        assert!(text.contains("BT001 x") && !text.contains('\u{1b}'), "{text}");
    }
}
