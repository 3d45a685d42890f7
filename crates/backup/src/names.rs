//! Names of objects of Kubernetes as parts of a path.

/// The longest name of an object.
const LONGEST: usize = 253;

/// Whether `name` can be one part of a path: a DNS subdomain, as all kinds that are copied have it.
pub(crate) fn is_part(name: &str) -> bool {
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    name.len() <= LONGEST && is_end(name.chars().next()) && is_end(name.chars().last()) && name.chars().all(is_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_objects_become_parts_of_a_path() {
        let long = "a".repeat(254);
        let rows = [
            ("net", true),
            ("net-1.blue", true),
            ("", false),
            (".", false),
            ("..", false),
            ("a/b", false),
            ("-a", false),
            ("a.", false),
            ("A", false),
            ("a\n", false),
            ("a%2fb", false),
            (long.as_str(), false),
        ];
        for (name, expect) in rows {
            assert_eq!(is_part(name), expect, "{name:?}");
        }
    }
}
