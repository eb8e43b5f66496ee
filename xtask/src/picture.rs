//! `cargo run -p xtask -- picture`: converts the output of a terminal to an SVG picture for docs/images.
//!
//! The picture is dark, or light if the page around it is light (`prefers-color-scheme`). scripts/screenshots.sh uses this command.

use std::io::Read;
use std::process::ExitCode;

use anstyle::{Color, RgbColor};
use anstyle_svg::{Palette, Term};
use anyhow::{Context, Result, ensure};

/// Command line of the subcommand.
pub const USAGE: &str = "cargo run -p xtask -- picture <OUTPUT >PICTURE.svg";

/// Maximum size of a picture, in bytes: it is reviewed as text, and loaded with the README.
const MAX_BYTES: usize = 60_000;

/// Opacity of dim text. The 0.4 of `anstyle-svg` has too little contrast on a light page (judgement, by eye).
const DIM: &str = ".dimmed { opacity: 0.7; }";

/// The colours of a theme.
struct Theme {
    foreground: RgbColor,
    background: RgbColor,
    /// Black, red, green, yellow, blue, magenta, cyan, white; bright colours are the same.
    colours: [RgbColor; 8],
}

/// Colours of GitHub's dark theme.
const DARK: Theme = Theme {
    foreground: rgb(0xE6EDF3),
    background: rgb(0x0D1117),
    colours: [
        rgb(0x484F58),
        rgb(0xFF7B72),
        rgb(0x3FB950),
        rgb(0xD29922),
        rgb(0x58A6FF),
        rgb(0xBC8CFF),
        rgb(0x39C5CF),
        rgb(0xB1BAC4),
    ],
};

/// Colours of GitHub's light theme.
const LIGHT: Theme = Theme {
    foreground: rgb(0x1F2328),
    background: rgb(0xF6F8FA),
    colours: [
        rgb(0x24292F),
        rgb(0xCF222E),
        rgb(0x116329),
        rgb(0x7D4E00),
        rgb(0x0969DA),
        rgb(0x8250DF),
        rgb(0x1B7C83),
        rgb(0x6E7781),
    ],
};

const fn rgb(value: u32) -> RgbColor {
    let [_, red, green, blue] = value.to_be_bytes();
    RgbColor(red, green, blue)
}

impl Theme {
    fn render(&self, output: &str) -> String {
        let [black, red, green, yellow, blue, magenta, cyan, white] = self.colours;
        let normal = [black, red, green, yellow, blue, magenta, cyan, white];
        let mut all = [black; 16];
        for (colour, normal) in all.iter_mut().zip(normal.into_iter().cycle()) {
            *colour = normal;
        }
        Term::new()
            .palette(Palette(all))
            .fg_color(Color::Rgb(self.foreground))
            .bg_color(Color::Rgb(self.background))
            .min_width_px(0)
            .render_svg(output)
    }
}

/// Runs the subcommand.
pub fn run() -> ExitCode {
    let mut output = String::new();
    let picture = std::io::stdin().read_to_string(&mut output).context("cannot read standard input");
    match picture.and_then(|_| picture_of(&output)) {
        Ok(picture) => {
            print!("{picture}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("picture: {error:#}\nusage: {USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Creates the picture of an output.
fn picture_of(output: &str) -> Result<String> {
    let output = output.trim_end();
    ensure!(!output.is_empty(), "nothing on standard input");
    let picture = DARK.render(output).replace(".dimmed { opacity: 0.4; }", DIM);
    let light: String = colour_rules(&LIGHT.render(output)).map(|rule| format!("    {rule}\n")).collect();
    let picture = picture.replacen(
        "  </style>",
        &format!("    @media (prefers-color-scheme: light) {{\n{light}    }}\n  </style>"),
        1,
    );
    let picture = with_view_box(&picture).context("anstyle-svg writes no width and height")?;
    ensure!(
        picture.len() <= MAX_BYTES,
        "{} bytes, the maximum is {MAX_BYTES}: shorten the output",
        picture.len()
    );
    Ok(picture)
}

/// Returns the style rules that set colours: `.fg-red { fill: #CF222E }`.
fn colour_rules(picture: &str) -> impl Iterator<Item = &str> {
    picture.lines().take_while(|line| !line.contains("</style>")).filter(|line| {
        let line = line.trim();
        (line.starts_with(".fg") || line.starts_with(".bg")) && line.contains("fill:")
    })
}

/// Lets the picture shrink with its page: without a `viewBox` it would be cropped.
fn with_view_box(picture: &str) -> Option<String> {
    let number = |name: &str| {
        let (_, rest) = picture.split_once(&format!("{name}=\""))?;
        rest.split_once("px\"").map(|(number, _)| number.to_owned())
    };
    let view_box = format!("<svg viewBox=\"0 0 {} {}\" ", number("width")?, number("height")?);
    Some(picture.replacen("<svg ", &view_box, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_themes_have_every_colour() {
        let picture = picture_of("\x1b[1;31mCRITICAL\x1b[0m <a> \x1b[2mmore\x1b[0m\n\n").expect("a picture");
        let (dark, light) = picture.split_once("@media (prefers-color-scheme: light)").expect("two themes");
        for (theme, colour) in [(dark, "#FF7B72"), (light, "#CF222E")] {
            assert!(theme.contains(&format!(".fg-red {{ fill: {colour} }}")), "{picture}");
        }
        assert!(
            dark.contains(".bg { fill: #0D1117 }") && light.contains(".bg { fill: #F6F8FA }"),
            "{picture}"
        );
        assert!(picture.contains("&lt;a&gt;") && picture.contains(DIM), "{picture}");
    }

    #[test]
    fn a_picture_has_the_size_of_its_text() {
        let picture = picture_of(&format!("{}\nb\n", "a".repeat(100))).expect("a picture");
        assert!(picture.starts_with("<svg viewBox=\"0 0 860 56\" width=\"860px\""), "{picture}");
    }

    #[test]
    fn empty_and_too_long_output_are_refused() {
        assert!(picture_of("\n").is_err());
        assert!(picture_of(&"a line\n".repeat(5_000)).is_err());
    }
}
