//! Terraform's hints in the terms of a Stack: nobody passes flags to the terraform of a Stack.

/// What terraform says of a variable without a value, after it has named the variable. It breaks the lines at the width of
/// its terminal, and the end may be cut off.
const USE_A_FLAG: &str = "Use a -var or -var-file command line argument to provide a value for this variable.";

/// The words by which the hint is recognised.
const RECOGNISED: usize = 5;

/// What a Stack's user does instead.
const USE_THE_SPEC: &str = "Set it in spec.variables of the Stack, or in a Secret or ConfigMap of spec.variablesFrom.";

/// The message of a Run, for the status of its Stack.
pub(super) fn of_stack(message: &str) -> String {
    let words: Vec<(usize, &str)> = words(message).collect();
    let hint: Vec<&str> = USE_A_FLAG.split(' ').collect();
    let mut text = String::with_capacity(message.len());
    let (mut next, mut copied) = (0, 0);
    while let Some(&(start, _)) = words.get(next) {
        let found = length(&words[next..], &hint);
        if found < RECOGNISED {
            next += 1;
            continue;
        }
        let is_cut_off = |(_, word): &(usize, &str)| found < hint.len() && word.ends_with('…');
        next += found;
        next += usize::from(words.get(next).is_some_and(is_cut_off));
        text.push_str(&message[copied..start]);
        text.push_str(USE_THE_SPEC);
        copied = words.get(next - 1).map_or(message.len(), |(last, word)| last + word.len());
    }
    text.push_str(&message[copied..]);
    text
}

/// The number of words that `found` has in common with the hint. OpenTofu and old versions of terraform say "option" for
/// "argument".
fn length(found: &[(usize, &str)], hint: &[&str]) -> usize {
    let same = |((_, word), expect): &(&(usize, &str), &&str)| {
        word == *expect || (*word == "option" && **expect == "argument")
    };
    found.iter().zip(hint).take_while(same).count()
}

/// The words of a text, with their places.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut end = 0;
    text.split_whitespace().map(move |word| {
        let start = end + text[end..].find(word).unwrap_or_default();
        end = start + word.len();
        (start, word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_named_flags_of_terraform_that_its_user_cannot_pass() {
        let rows = [
            (
                "Error: No value for required variable\n  on main.tf line 1:\nThe root module input variable \"size\" is not set, and has no default value.\nUse a -var or -var-file command line\nargument to provide a value for this variable.",
                "Error: No value for required variable\n  on main.tf line 1:\nThe root module input variable \"size\" is not set, and has no default value.\nSet it in spec.variables of the Stack, or in a Secret or ConfigMap of spec.variablesFrom.",
            ),
            (
                "\"a\" is not set. Use a -var or -var-file command line option to provide a value for this variable. And more.",
                "\"a\" is not set. Set it in spec.variables of the Stack, or in a Secret or ConfigMap of spec.variablesFrom. And more.",
            ),
            (
                "\"a\" is not set. Use a -var or -var-file comm…",
                "\"a\" is not set. Set it in spec.variables of the Stack, or in a Secret or ConfigMap of spec.variablesFrom.",
            ),
            ("Use a -var of another kind\n\n to be sure", "Use a -var of another kind\n\n to be sure"),
            ("", ""),
        ];
        for (message, expect) in rows {
            assert_eq!(of_stack(message), expect);
        }
    }
}
