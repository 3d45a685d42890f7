//! Formats messages. The text is the same with and without colour.

use std::io::{IsTerminal, Write};

use owo_colors::{OwoColorize, Style};

use crate::output::visible;

/// Colours are used on a terminal, unless `NO_COLOR` is set.
fn coloured(stream: &impl IsTerminal) -> bool {
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    stream.is_terminal() && wanted && std::env::var_os("TERM").is_none_or(|terminal| terminal != "dumb")
}

fn paint(text: &str, style: Style, colour: bool) -> String {
    if colour { text.style(style).to_string() } else { text.to_owned() }
}

/// Prints a line to standard output whose first word is highlighted.
pub fn say(word: &str, rest: &str) {
    let colour = coloured(&std::io::stdout());
    let word = paint(word, Style::new().green().bold(), colour);
    // A closed pipe is not an error here.
    let _ = writeln!(std::io::stdout(), "{word} {}", visible(rest));
}

/// Prints a label and a value to standard output.
pub fn field(label: &str, value: &str) {
    let colour = coloured(&std::io::stdout());
    let label = paint(&format!("{label:>12}"), Style::new().dimmed(), colour);
    let _ = writeln!(std::io::stdout(), "{label}  {}", visible(value));
}

/// Prints a hint to standard output.
pub fn hint(text: &str) {
    let _ = writeln!(std::io::stdout(), "{}", visible(text));
}

/// Prints a note to standard error.
pub fn note(text: &str) {
    let colour = coloured(&std::io::stderr());
    let _ = writeln!(std::io::stderr(), "{} {}", paint("note:", Style::new().yellow().bold(), colour), visible(text));
}

/// Prints an error and its causes to standard error.
pub fn error(error: &anyhow::Error) {
    let colour = coloured(&std::io::stderr());
    let mut out = std::io::stderr();
    let _ = writeln!(out, "{} {}", paint("error:", Style::new().red().bold(), colour), visible(&error.to_string()));
    let mut last = error.to_string();
    for cause in error.chain().skip(1) {
        let text = cause.to_string();
        // Many errors repeat their cause in their own message.
        if !last.contains(&text) {
            let _ = writeln!(out, "  {} {}", paint("caused by:", Style::new().dimmed(), colour), visible(&text));
        }
        last = text;
    }
}

pub fn stdout_is_coloured() -> bool {
    coloured(&std::io::stdout())
}

pub fn stderr_is_coloured() -> bool {
    coloured(&std::io::stderr())
}

/// Prints a hint to standard error, so that standard output holds only the command's result.
pub fn hint_aside(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", visible(text));
}

/// Whether standard input and standard error are terminals.
pub fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks a yes-or-no question. Without a terminal the answer is no.
pub fn confirm(question: &str) -> std::io::Result<bool> {
    if !can_ask() {
        return Ok(false);
    }
    let colour = coloured(&std::io::stderr());
    write!(std::io::stderr(), "{} [y/N] ", paint(&visible(question), Style::new().bold(), colour))?;
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Prints a dimmed line to standard error.
pub fn quiet(text: &str) {
    let colour = coloured(&std::io::stderr());
    let _ = writeln!(std::io::stderr(), "{}", paint(&visible(text), Style::new().dimmed(), colour));
}
