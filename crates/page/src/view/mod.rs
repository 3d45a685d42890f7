//! What pages show, as data: the JSON API serializes it, and `html` renders it. Each page has an `observe`, which reads
//! with the user's client, and a pure `view`.

pub mod graph;
pub mod home;
pub mod lists;
pub mod objects;
pub mod plan;
pub mod run;
pub mod shown;
