//! Errors and warnings in terraform's words and layout. Pure, but for the width of the terminal.

use std::io::IsTerminal;

use super::human::quote;

/// The width of an output that is not a terminal.
const COLUMNS: usize = 78;

/// An error or a warning.
#[derive(Debug, PartialEq, Eq)]
pub struct Diagnostic {
    pub is_error: bool,
    summary: String,
    detail: String,
}

/// How a diagnostic is printed.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    pub colour: bool,
    pub columns: usize,
}

impl Style {
    /// The style of a stream.
    pub fn of(stream: &impl IsTerminal, colour: bool) -> Self {
        let columns = if stream.is_terminal() { usize::from(crate::run::screen_size().0) } else { COLUMNS };
        Style { colour, columns }
    }
}

impl Diagnostic {
    fn error(summary: impl Into<String>, detail: impl Into<String>) -> Self {
        Diagnostic { is_error: true, summary: summary.into(), detail: detail.into() }
    }

    pub fn no_outputs(program: &str) -> Self {
        let detail = format!(
            "The state file either has no outputs defined, or all the defined outputs are empty. Please define an output \
             in your configuration with the `output` keyword and run `{program} refresh` for it to become available. If \
             you are using interpolation, please verify the interpolated value is not empty. You can use the `{program} \
             console` command to assist."
        );
        Diagnostic { is_error: false, summary: "No outputs found".to_owned(), detail }
    }

    pub fn not_found(name: &str, program: &str) -> Self {
        Self::error(
            format!("Output {} not found", quote(name)),
            format!(
                "The output variable requested could not be found in the state file. If you recently added this to your \
                 configuration, be sure to run `{program} apply`, since the state won't be updated with new output \
                 variables until that command is run."
            ),
        )
    }

    pub fn not_raw(name: &str, why: &super::value::NotRaw) -> Self {
        let detail = match why {
            super::value::NotRaw::Type(type_) => format!(
                "The -raw option only supports strings, numbers, and boolean values, but output value {} is {type_}.\n\n\
                 Use the -json option for machine-readable representations of output values that have complex types.",
                quote(name)
            ),
            super::value::NotRaw::Null => {
                format!("The value for output value {} is null, so -raw mode cannot print it.", quote(name))
            }
        };
        Self::error("Unsupported value for raw output", detail)
    }

    pub fn unparsed(why: &str) -> Self {
        Self::error("Failed to parse command-line flags", why)
    }

    pub fn unexpected_argument() -> Self {
        Self::error(
            "Unexpected argument",
            "The output command expects exactly one argument with the name of an output variable or no arguments to show \
             all outputs.",
        )
    }

    pub fn two_forms() -> Self {
        Self::error("Invalid output format", "The -raw and -json options are mutually-exclusive.")
    }

    pub fn name_required() -> Self {
        Self::error(
            "Output name required",
            "You must give the name of a single output value when using the -raw option.",
        )
    }

    /// The text that terraform prints.
    pub fn format(&self, style: Style) -> String {
        let word = if self.is_error { "Error" } else { "Warning" };
        if !style.colour {
            let detail = wrap(&self.detail, style.columns.saturating_sub(1)).join("\n");
            return format!("\n{word}: {}\n\n{detail}\n", self.summary);
        }
        let colour = if self.is_error { "\x1b[31m" } else { "\x1b[33m" };
        let line = |text: &str| format!("{colour}│\x1b[0m \x1b[0m{text}\n");
        let mut out = format!("{colour}╷\x1b[0m\x1b[0m\n");
        out += &line(&format!("\x1b[1m{colour}{word}: \x1b[0m\x1b[0m\x1b[1m{}\x1b[0m", self.summary));
        out += &line("");
        for (number, text) in wrap(&self.detail, style.columns.saturating_sub(3)).iter().enumerate() {
            out += &line(&if number == 0 { format!("\x1b[0m{text}") } else { text.clone() });
        }
        out + &format!("{colour}╵\x1b[0m\x1b[0m\n")
    }
}

/// The lines of a text, broken between words at `width` characters.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in text.split('\n') {
        let mut line = String::new();
        for word in paragraph.split(' ') {
            let length = line.chars().count() + 1 + word.chars().count();
            if !line.is_empty() && length > width {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines
}
