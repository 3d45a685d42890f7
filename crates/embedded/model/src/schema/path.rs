//! Where in an object a walk is. Built on the stack, and printed only when something is wrong there.

use std::fmt::{self, Display};

/// One step of the way down from the root of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Path<'a> {
    Root,
    /// A field that the schema names.
    Field(&'a Path<'a>, &'a str),
    /// A key of a map.
    Key(&'a Path<'a>, &'a str),
    /// An item of a list.
    Index(&'a Path<'a>, usize),
}

impl<'a> Path<'a> {
    /// The field `name` below.
    pub fn field(&'a self, name: &'a str) -> Path<'a> {
        Path::Field(self, name)
    }

    /// The map key `key` below.
    pub fn key(&'a self, key: &'a str) -> Path<'a> {
        Path::Key(self, key)
    }

    /// The item `index` below.
    pub fn index(&'a self, index: usize) -> Path<'a> {
        Path::Index(self, index)
    }

    /// The path as the value checks of Kubernetes print it: map keys look like fields.
    pub fn dotted(&self) -> String {
        let mut out = String::new();
        _ = self.write(&mut out, true);
        out
    }

    fn write(&self, out: &mut impl fmt::Write, dotted: bool) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Key(above, key) if !dotted => {
                above.write(out, dotted)?;
                write!(out, "[{key}]")
            }
            Path::Field(above, name) | Path::Key(above, name) => {
                above.write(out, dotted)?;
                if !matches!(above, Path::Root) {
                    out.write_char('.')?;
                }
                out.write_str(name)
            }
            Path::Index(above, index) => {
                above.write(out, dotted)?;
                write!(out, "[{index}]")
            }
        }
    }
}

impl Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, false)
    }
}
