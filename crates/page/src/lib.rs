//! The web page of Knoll, and the JSON API beside it: Stacks, Runs and plans in a browser, as the user who looks.
//!
//! A request takes one way: `user::User` finds out who asks, `view::*::observe` reads with a client of that user, a
//! pure function builds the view, and the view is rendered as HTML (`html`) or as JSON.
//!
//! *Guarantees.*
//! - Every read and every act is a request of the user's own client. This crate has no client with rights of its own,
//!   but for the Secret with the key of the sessions.
//! - A POST is carried out only with the token of the user's session, or with a bearer token, which no browser adds by
//!   itself.
//! - Text from a cluster is escaped, and what is invisible in it is written out. Of the escape sequences of a log only
//!   colours are left, as classes that the style sheet knows; those of a plan are written out.
//! - A user has a share of connections, streams and requests, and no request reads or shows more than it can hold.
//! - Everything that is served comes from this binary, and the policy of contents (CSP) allows nothing else.

mod act;
mod ansi;
mod app;
mod assets;
mod clients;
mod error;
mod html;
mod live;
mod logs;
mod openapi;
mod plan_blocks;
mod rights;
mod routes;
mod server;
mod session;
mod sign_in;
mod signing;
mod user;
mod view;

pub use clients::{BearerToken, Connect};
pub use server::{Hosts, Page, PageSettings, RunningPage};
pub use session::{KeyError, SessionKey};
