//! Tables in kubectl's layout: columns separated by three spaces.

use std::fmt;

use owo_colors::{OwoColorize, Style};

use super::visible_line;
use crate::style;

/// The meaning of a cell, which decides its colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    #[default]
    Plain,
    Good,
    Busy,
    /// Waiting for a person.
    Waits,
    Bad,
    Quiet,
}

impl Tone {
    fn style(self) -> Style {
        match self {
            Tone::Plain => Style::new(),
            Tone::Good => Style::new().green(),
            Tone::Busy => Style::new().cyan(),
            Tone::Waits => Style::new().yellow(),
            Tone::Bad => Style::new().red(),
            Tone::Quiet => Style::new().dimmed(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub fn new(text: impl Into<String>, tone: Tone) -> Self {
        // A message of several lines would break the table.
        let text: String = text.into();
        let text = if text.contains(['\n', '\r', '\t']) {
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        } else {
            text
        };
        Cell { text: visible_line(&text), tone }
    }

    /// A plain cell, empty without a value.
    pub fn optional(text: Option<String>) -> Self {
        Cell::new(text.unwrap_or_default(), Tone::Plain)
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Cell::new(text, Tone::Plain)
    }
}

#[derive(Clone, Debug, Default)]
pub struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
    colour: bool,
    most_columns: Option<usize>,
}

impl Table {
    /// Creates a table. It is coloured when standard output is.
    #[must_use]
    pub fn new(head: &[&'static str]) -> Self {
        Table { head: head.to_vec(), rows: Vec::new(), colour: style::stdout_is_coloured(), most_columns: None }
    }

    /// Truncates lines to the width of the screen.
    #[must_use]
    pub fn at_most(mut self, columns: usize) -> Self {
        self.most_columns = Some(columns);
        self
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |text: &str| text.chars().count();
        let mut widths: Vec<usize> = self.head.iter().map(|head| width(head)).collect();
        for row in &self.rows {
            for (column, cell) in row.iter().enumerate().take(widths.len()) {
                widths[column] = widths[column].max(width(&cell.text));
            }
        }
        let head: Vec<Cell> = self.head.iter().map(|head| Cell::from(*head)).collect();
        for row in std::iter::once(&head).chain(&self.rows) {
            let mut used = 0;
            let last = row.iter().rposition(|cell| !cell.text.is_empty()).unwrap_or_default();
            for (column, cell) in row.iter().enumerate().take(last + 1) {
                let left = self.most_columns.map_or(usize::MAX, |most| most.saturating_sub(used));
                let text: String = cell.text.chars().take(left).collect();
                used += width(&text);
                if self.colour && cell.tone != Tone::Plain {
                    write!(f, "{}", text.style(cell.tone.style()))?;
                } else {
                    f.write_str(&text)?;
                }
                // The last cell of a line needs no padding.
                if column < last {
                    let room = widths[column] + 3 - width(&cell.text);
                    let room = self.most_columns.map_or(room, |most| room.min(most.saturating_sub(used)));
                    used += room;
                    write!(f, "{:room$}", "")?;
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table { colour: false, ..Table::new(&["NAME", "PHASE", "AGE"]) };
        table.row(["net-apply-x7k".into(), Cell::new("Failed", Tone::Bad), "3s".into()]);
        table.row(["ü".into(), "".into(), "12m".into()]);
        table.row(["last".into(), "".into(), "".into()]);
        table
    }

    #[test]
    fn columns_stand_below_each_other() {
        assert_eq!(
            table().to_string(),
            "NAME            PHASE    AGE\nnet-apply-x7k   Failed   3s\nü                        12m\nlast\n"
        );
    }

    #[test]
    fn colours_take_no_room_and_lines_fit() {
        let coloured = Table { colour: true, ..table() }.to_string();
        assert!(coloured.contains("\u{1b}[31mFailed\u{1b}[0m   3s"), "{coloured:?}");
        for line in table().at_most(20).to_string().lines() {
            assert!(line.chars().count() <= 20, "{line:?}");
        }
    }
}
