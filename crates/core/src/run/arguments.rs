//! The arguments of a Run whose values are secret: `-var` and `-backend-config`.
//!
//! The client [hides](hide) their values before it writes the Run, and the hub [reveals](reveal) them for the runner.
//!
//! *Guarantee.* Revealing changes nothing but the text behind `NAME=` of such a flag: the words that a reviewer reads are
//! those that run.

/// The text in place of a value.
pub const HIDDEN: &str = "...";

/// Flags whose value is `NAME=VALUE`.
const SECRET: [&str; 2] = ["var", "backend-config"];

/// Why hidden arguments cannot be revealed. The messages have no values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RevealError {
    #[error("the input of the run has {values} values, but its arguments need {places}")]
    Count { values: usize, places: usize },
    #[error("value {0} of the run's input is for another variable than its argument names")]
    Name(usize),
}

/// Takes the secret values out of terraform's arguments, in their order. The arguments of `sh` are a script's own.
pub fn hide(command: &str, args: &mut [String]) -> Vec<String> {
    let mut values = Vec::new();
    for place in places(command, args) {
        let value = place.of(args);
        let hidden = hidden(value);
        values.push(value.to_owned());
        place.set(args, &hidden);
    }
    values
}

/// Puts the values back into the arguments that [`hide`] has left.
///
/// # Errors
/// When they are not the values of these arguments.
pub fn reveal(command: &str, args: &mut [String], values: &[String]) -> Result<(), RevealError> {
    let places = places(command, args);
    if places.len() != values.len() {
        return Err(RevealError::Count { values: values.len(), places: places.len() });
    }
    for (number, (place, value)) in places.into_iter().zip(values).enumerate() {
        if place.of(args) != hidden(value) {
            return Err(RevealError::Name(number + 1));
        }
        place.set(args, value);
    }
    Ok(())
}

/// The name and the value of each `-var` among the arguments.
pub fn variables<'a>(command: &str, args: &'a [String]) -> Vec<(&'a str, &'a str)> {
    let places = places(command, args).into_iter().filter(|place| place.flag == "var");
    places.filter_map(|place| place.of(args).split_once('=')).collect()
}

/// `NAME=VALUE` without the value. A file of `-backend-config` stays; a `-var` without a name is hidden whole.
fn hidden(value: &str) -> String {
    match value.split_once('=') {
        Some((name, _)) => format!("{name}={HIDDEN}"),
        None => HIDDEN.to_owned(),
    }
}

/// Where the value of a flag is.
struct Place {
    flag: &'static str,
    index: usize,
    /// How many bytes of the argument come before the value.
    offset: usize,
}

impl Place {
    fn of<'a>(&self, args: &'a [String]) -> &'a str {
        args.get(self.index).and_then(|arg| arg.get(self.offset..)).unwrap_or_default()
    }

    fn set(&self, args: &mut [String], value: &str) {
        if let Some(arg) = args.get_mut(self.index) {
            arg.truncate(self.offset);
            arg.push_str(value);
        }
    }
}

/// The places of all secret values. Terraform accepts one dash or two, and the value behind `=` or as the next argument.
fn places(command: &str, args: &[String]) -> Vec<Place> {
    let mut places = Vec::new();
    if command == "sh" {
        return places;
    }
    let mut index = 0;
    while let Some(arg) = args.get(index) {
        let dashes = arg.len() - arg.trim_start_matches('-').len();
        let word = arg.get(dashes..).unwrap_or_default();
        let (name, offset) = match word.split_once('=') {
            Some((name, _)) => (name, Some(dashes + name.len() + 1)),
            None => (word, None),
        };
        if let (1..=2, Some(flag)) = (dashes, SECRET.into_iter().find(|secret| *secret == name)) {
            let place = match offset {
                Some(offset) => Place { flag, index, offset },
                None => {
                    index += 1;
                    Place { flag, index, offset: 0 }
                }
            };
            let is_file = flag == "backend-config" && !place.of(args).contains('=');
            if index < args.len() && !is_file {
                places.push(place);
            }
        }
        index += 1;
    }
    places
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect()
    }

    #[test]
    fn only_the_values_of_secret_flags_are_hidden() {
        let rows = [
            ("plan", "-var=a=secret -target=x.y", "-var=a=... -target=x.y", "a=secret"),
            ("plan", "--var a=s=t -var b=", "--var a=... -var b=...", "a=s=t b="),
            ("import", "-var a=1 aws_x.y i-1", "-var a=... aws_x.y i-1", "a=1"),
            (
                "init",
                "-backend-config=key=v -backend-config=f.hcl",
                "-backend-config=key=... -backend-config=f.hcl",
                "key=v",
            ),
            ("init", "-backend-config f.hcl -upgrade", "-backend-config f.hcl -upgrade", ""),
            ("plan", "-var-file=p.tfvars -var", "-var-file=p.tfvars -var", ""),
            ("plan", "-var=broken -var broken", "-var=... -var ...", "broken broken"),
            ("plan", "---var=a=b var=a=b -variable=a=b", "---var=a=b var=a=b -variable=a=b", ""),
            ("plan", "-var -var=a=b", "-var -var=...", "-var=a=b"),
            ("sh", "-c x -var=a=b", "-c x -var=a=b", ""),
        ];
        for (command, args, expect, secret) in rows {
            let (mut hidden, args) = (words(args), words(args));
            let values = hide(command, &mut hidden);
            assert_eq!((&hidden, &values), (&words(expect), &words(secret)), "{args:?}");
            reveal(command, &mut hidden, &values).unwrap();
            assert_eq!(hidden, args);
        }
    }

    #[test]
    fn other_values_than_those_that_were_hidden_are_refused() {
        let reveal = |args: &str, values: &str| {
            let mut args = words(args);
            reveal("plan", &mut args, &words(values)).map(|()| args.join(" "))
        };
        assert_eq!(reveal("-var=a=...", "a=1"), Ok("-var=a=1".to_owned()));
        assert_eq!(reveal("-var=a=...", "b=1"), Err(RevealError::Name(1)));
        assert_eq!(reveal("-var=a=...", ""), Err(RevealError::Count { values: 0, places: 1 }));
        assert_eq!(reveal("-refresh=false", "a=1"), Err(RevealError::Count { values: 1, places: 0 }));
        // A value that is there already would run unseen.
        assert_eq!(reveal("-var=a=shown", "a=1"), Err(RevealError::Name(1)));
    }

    #[test]
    fn the_variables_of_a_command_line_are_found() {
        let args = words("-var=a=1 -refresh -var b=x=y -backend-config=c=1");
        assert_eq!(variables("plan", &args), [("a", "1"), ("b", "x=y")]);
    }

    proptest! {
        #[test]
        fn what_is_hidden_is_revealed(args in prop::collection::vec("(-{0,2}(var|backend-config|x)=?)?[a=.-]{0,4}", 0..6)) {
            let mut hidden = args.clone();
            let values = hide("plan", &mut hidden);
            reveal("plan", &mut hidden, &values).unwrap();
            prop_assert_eq!(hidden, args);
        }
    }
}
