//! The views as HTML. Every value is escaped by the templates; nothing here reads anything.

pub mod graph;
pub mod home;
pub mod layout;
pub mod lists;
pub mod objects;
pub mod pieces;
pub mod plan;
pub mod run;

/// A path of this page, or the first page for any other address.
pub fn own_path(next: &str) -> &str {
    let is_own = next.starts_with('/') && !next.starts_with("//") && next.bytes().all(|byte| byte.is_ascii_graphic());
    if is_own && !next.contains('\\') { next } else { "/" }
}

/// The path of the sign-in that comes back to `next`.
pub fn sign_in_path(next: &str) -> String {
    let next = own_path(next);
    if next == "/" { "/sign-in".to_owned() } else { format!("/sign-in?next={}", encoded(next)) }
}

/// A value of a query.
pub fn encoded(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let escape = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    value.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_to_another_site() {
        assert_eq!(own_path("/runs/a/b?x=1"), "/runs/a/b?x=1");
        for bad in ["", "//evil.example", "https://evil.example", "/\\evil.example", "/a\r\nb", "javascript:alert(1)"] {
            assert_eq!(own_path(bad), "/", "{bad}");
        }
        assert_eq!(sign_in_path("/runs?q=a b"), "/sign-in");
        assert_eq!(sign_in_path("/runs?q=a&b"), "/sign-in?next=/runs%3Fq%3Da%26b");
    }
}
