//! A text table with aligned columns.

/// Rows of cells. The first row is the heading, and the first column is aligned to the left.
#[derive(Default)]
pub struct Table(Vec<Vec<String>>);

impl Table {
    pub fn row<const N: usize>(&mut self, cells: [&str; N]) {
        self.0.push(cells.iter().map(|cell| (*cell).to_owned()).collect());
    }

    pub fn lines(&self) -> Vec<String> {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or_default();
        let width = |at: usize| self.0.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|at| width(at).unwrap_or_default()).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).enumerate().map(|(at, (cell, &width))| match at {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        self.0.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::default();
        table.row(["", "ours", "theirs"]);
        table.row(["create", "12,345", "9"]);
        assert_eq!(table.lines(), ["          ours  theirs", "create  12,345       9"]);
    }
}
