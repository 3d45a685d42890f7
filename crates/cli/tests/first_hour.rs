//! The recording `docs/first-hour.md`: the commands of the document, run again, have the output of the document.
//!
//! `KNOLL_UPDATE_SNAPSHOTS=1 cargo test -p knoll --test first_hour` writes the outputs into the document again.
#![allow(clippy::unwrap_used, reason = "tests")]

mod knoll;

use std::path::PathBuf;

/// The document with the recording.
fn document() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/first-hour.md")
}

/// It needs a cluster of its own, as it starts and stops one.
mod embedded {
    use super::*;
    use crate::knoll::recording::{Recorder, replay};

    #[test]
    fn the_first_hour_is_as_it_is_recorded() {
        let known = std::fs::read_to_string(document()).unwrap();
        let now = replay(&known, &mut Recorder::new());
        if std::env::var_os("KNOLL_UPDATE_SNAPSHOTS").is_some() {
            std::fs::write(document(), now).unwrap();
        } else if known != now {
            let diff = similar::TextDiff::from_lines(&known, &now);
            panic!("the recording has changed:\n{}", diff.unified_diff().header("docs/first-hour.md", "now"));
        }
    }
}
