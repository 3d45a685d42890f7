//! How messages look: the same words with and without colour.

use std::io::{IsTerminal, Write};

use owo_colors::{OwoColorize, Style};

/// Colours are for people: a terminal, and nobody said no.
fn coloured(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

fn paint(text: &str, style: Style, colour: bool) -> String {
    if colour { text.style(style).to_string() } else { text.to_owned() }
}

/// A line on standard output that begins with a word of state.
pub fn say(word: &str, rest: &str) {
    let colour = coloured(&std::io::stdout());
    let word = paint(word, Style::new().green().bold(), colour);
    // A reader that went away is no error.
    let _ = writeln!(std::io::stdout(), "{word} {rest}");
}

/// A line on standard output with a label and a value.
pub fn field(label: &str, value: &str) {
    let colour = coloured(&std::io::stdout());
    let label = paint(&format!("{label:>12}"), Style::new().dimmed(), colour);
    let _ = writeln!(std::io::stdout(), "{label}  {value}");
}

/// A hint on standard output.
pub fn hint(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// A note on standard error.
pub fn note(text: &str) {
    let colour = coloured(&std::io::stderr());
    let _ = writeln!(std::io::stderr(), "{} {text}", paint("note:", Style::new().yellow().bold(), colour));
}

/// An error with its causes, on standard error.
pub fn error(error: &anyhow::Error) {
    let colour = coloured(&std::io::stderr());
    let mut out = std::io::stderr();
    let _ = writeln!(out, "{} {error}", paint("error:", Style::new().red().bold(), colour));
    let mut last = error.to_string();
    for cause in error.chain().skip(1) {
        let text = cause.to_string();
        // Many errors repeat their cause in their own words.
        if !last.contains(&text) {
            let _ = writeln!(out, "  {} {text}", paint("because:", Style::new().dimmed(), colour));
        }
        last = text;
    }
}

/// Whether standard output is for people who want colours.
pub fn stdout_is_coloured() -> bool {
    coloured(&std::io::stdout())
}

/// Whether standard error is for people who want colours.
pub fn stderr_is_coloured() -> bool {
    coloured(&std::io::stderr())
}

/// A line on standard error that is no result of the command.
pub fn hint_aside(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Whether there is a person to ask.
pub fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks a person; nobody there is a no.
pub fn confirm(question: &str) -> std::io::Result<bool> {
    if !can_ask() {
        return Ok(false);
    }
    let colour = coloured(&std::io::stderr());
    write!(std::io::stderr(), "{} [y/N] ", paint(question, Style::new().bold(), colour))?;
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// A line on standard error that matters less.
pub fn quiet(text: &str) {
    let colour = coloured(&std::io::stderr());
    let _ = writeln!(std::io::stderr(), "{}", paint(text, Style::new().dimmed(), colour));
}
