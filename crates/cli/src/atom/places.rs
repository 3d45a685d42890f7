//! Where the objects of a template are written: the file and the line, for messages. Pure.

use std::fmt;

use anyhow::{Result, anyhow};
use knoll_core::atom::template::{self, Error, InputValues};
use serde_json::Value;

/// A file of YAML documents.
pub struct Source {
    /// The path, as the user knows it.
    pub file: String,
    pub text: String,
}

/// A line of a file. Its text is that of compilers, `web.yaml:12`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    file: String,
    line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// An object, and where its document begins.
pub struct Located {
    pub place: Place,
    pub object: Value,
}

/// Parses the objects of all files. An error names the place of the fault.
pub fn parse(sources: &[Source]) -> Result<Vec<Located>> {
    let mut objects = Vec::new();
    for Source { file, text } in sources {
        for Document { first, begins, text } in documents(text) {
            let place = |line| Place { file: file.clone(), line };
            match template::parse(&text) {
                Ok(found) => {
                    objects.extend(found.into_iter().map(|object| Located { place: place(begins), object }));
                }
                // Other documents may have objects.
                Err(Error::Empty) => {}
                Err(Error::Field { field, .. }) => {
                    let place = place(begins);
                    return Err(anyhow!(
                        "{place}: the object has no `{field}`; every object needs apiVersion, kind and metadata.name"
                    ));
                }
                Err(Error::Yaml(why)) => {
                    let (line, why) =
                        position(&why).map_or((begins, why.as_str()), |(line, why)| (first + line - 1, why));
                    return Err(anyhow!("{}: invalid YAML: {why}", place(line)));
                }
                Err(error) => return Err(anyhow!("{}: {error}", place(begins))),
            }
        }
    }
    Ok(objects)
}

/// Inserts the values of inputs into a template, whose objects are `located`. An error about an object names its place.
pub fn render(text: &str, located: &[Located], inputs: &InputValues) -> Result<Vec<Value>> {
    template::render(text, inputs).map_err(|error| {
        let (Error::Input { object, .. } | Error::Shown { object, .. } | Error::Twice(object)) = &error else {
            return error.into();
        };
        let mut places = located.iter().filter(|found| template::key(&found.object).to_string() == *object);
        match (places.next(), places.next()) {
            (Some(first), Some(second)) => {
                anyhow!("{}: {error}\n  the first one is in {}", second.place, first.place)
            }
            (Some(only), None) => anyhow!("{}: {error}", only.place),
            (None, _) => error.into(),
        }
    })
}

/// A document of a file.
#[derive(Debug, PartialEq, Eq)]
struct Document {
    /// The number of its first line, from 1.
    first: usize,
    /// The number of its first line that is neither empty, nor a comment, nor a marker.
    begins: usize,
    text: String,
}

/// Splits a file into its YAML documents. A line that starts with `---` begins a document, even in a block of text.
fn documents(text: &str) -> Vec<Document> {
    let mut documents: Vec<Document> = Vec::new();
    let mut has_content = false;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let is_marker =
            line.strip_prefix("---").is_some_and(|rest| rest.trim_start().len() < rest.len() || rest.is_empty());
        let is_content =
            !is_marker && !line.trim().is_empty() && !line.starts_with(['%']) && !line.trim().starts_with('#');
        // Comments and directives belong to the document after them.
        if documents.is_empty() || (is_marker && has_content) {
            documents.push(Document { first: index + 1, begins: index + 1, text: String::new() });
            has_content = false;
        }
        let Some(document) = documents.last_mut() else { continue };
        // `--- {a: 1}` is a marker with content.
        let is_content = is_content || (is_marker && line.trim_end().len() > 3);
        if is_content && !has_content {
            (document.begins, has_content) = (index + 1, true);
        }
        document.text.push_str(line);
    }
    documents
}

/// The line of a message such as `line 2 column 7: unclosed bracket`, and the reason in it.
fn position(message: &str) -> Option<(usize, &str)> {
    let (line, rest) = message.strip_prefix("line ")?.split_once(" column ")?;
    let (_, why) = rest.split_once(": ")?;
    Some((line.parse().ok()?, why))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn source(file: &str, text: &str) -> Source {
        Source { file: file.into(), text: text.into() }
    }

    fn map(name: &str) -> String {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n")
    }

    #[test]
    fn documents_begin_at_their_first_line_of_content() {
        let begins = |text: &str| documents(text).iter().map(|found| (found.first, found.begins)).collect::<Vec<_>>();
        for (text, expect) in [
            ("a: 1\n", vec![(1, 1)]),
            ("# why\n\n---\na: 1\n---\n\n# why\nb: 1", vec![(1, 4), (5, 8)]),
            ("%YAML 1.2\n---\na: 1\n", vec![(1, 3)]),
            ("a: |\n  ---\n---x: 1\n", vec![(1, 1)]),
            ("--- {a: 1}\n--- {b: 1}\n", vec![(1, 1), (2, 2)]),
            ("", vec![]),
        ] {
            assert_eq!(begins(text), expect, "{text:?}");
            assert_eq!(documents(text).into_iter().map(|found| found.text).collect::<String>(), text);
        }
    }

    #[test]
    fn errors_name_the_file_and_the_line() {
        let good = source("a.yaml", &map("a"));
        for (text, expect) in [
            (format!("{}---\n# second\nkind: A\n", map("b")), "b.yaml:6: the object has no `apiVersion`;"),
            (format!("{}---\nkind: [\n", map("b")), "b.yaml:5: invalid YAML: "),
            ("a: 1\na: 2\n".to_owned(), "b.yaml:2: invalid YAML: duplicate"),
            ("token: {secret: s3cret".to_owned(), "b.yaml:1: invalid YAML: "),
        ] {
            let error = parse(&[source("a.yaml", &good.text), source("b.yaml", &text)]).err().unwrap().to_string();
            assert!(error.starts_with(expect) && !error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn errors_of_values_name_the_place_of_their_object() {
        let render = |sources: &[Source]| {
            let text: String = sources.iter().map(|source| format!("---\n{}", source.text)).collect();
            super::render(&text, &parse(sources).unwrap(), &InputValues::new()).map_err(|error| error.to_string())
        };
        let (a, uses) = (source("a.yaml", &map("a")), format!("{}data: {{k: '${{input.none}}'}}\n", map("b")));
        let error = render(&[a, source("b.yaml", &format!("\n\n{uses}"))]).unwrap_err();
        assert!(error.starts_with("b.yaml:3: `ConfigMap b` uses `${input.none}`"), "{error}");
        let error = render(&[source("a.yaml", &map("a")), source("b.yaml", &map("a"))]).unwrap_err();
        assert!(error.starts_with("b.yaml:1: ") && error.ends_with("the first one is in a.yaml:1"), "{error}");
        assert_eq!(render(&[source("a.yaml", &map("a"))]).unwrap().len(), 1);
    }
}
