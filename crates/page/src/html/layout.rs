//! The frame of all pages: navigation, the user, and the pages that say that something is wrong.

use http::StatusCode;
use maud::{DOCTYPE, Markup, html};

use super::{encoded, pieces};
use crate::assets;
use crate::user::User;

/// What the frame of a page shows.
pub struct Frame {
    pub title: String,
    /// The path of the current part of the navigation.
    pub tab: &'static str,
    pub namespace: String,
    pub user: String,
    pub csrf: String,
}

impl Frame {
    pub fn of(user: &User, title: &str, tab: &str, namespace: &str) -> Self {
        let tab = TABS.iter().find(|(path, _)| *path == tab).map_or("home", |(path, _)| path);
        Self {
            title: title.to_owned(),
            tab,
            namespace: namespace.to_owned(),
            user: user.decider.name.clone(),
            csrf: user.csrf().to_owned(),
        }
    }
}

const TABS: [(&str, &str); 5] =
    [("home", "Home"), ("runs", "Runs"), ("stacks", "Stacks"), ("workspaces", "Workspaces"), ("atoms", "Atoms")];

fn document(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " \u{b7} Knoll" }
                link rel="icon" type="image/svg+xml" href=(assets::path("icon.svg"));
                link rel="stylesheet" href=(assets::path("page.css"));
                script src=(assets::path("page.js")) defer {}
            }
            body { (body) }
        }
    }
}

/// A page in its frame.
pub fn framed(frame: &Frame, content: &Markup) -> Markup {
    let namespace =
        if frame.namespace.is_empty() { String::new() } else { format!("?namespace={}", encoded(&frame.namespace)) };
    let path = |tab: &str| if tab == "home" { format!("/{namespace}") } else { format!("/{tab}{namespace}") };
    document(
        &frame.title,
        &html! {
            a.skip href="#main" { "Skip to content" }
            header.top {
                div.bar {
                    a.brand href={ "/" (namespace) } { img src=(assets::path("icon.svg")) alt="" width="22" height="22"; "Knoll" }
                    nav aria-label="Main" {
                        @for (tab, name) in TABS {
                            a href=(path(tab)) aria-current=[(tab == frame.tab).then_some("page")] { (name) }
                        }
                    }
                    form.signout method="post" action="/sign-out" {
                        input type="hidden" name="csrf" value=(frame.csrf);
                        span.who title=(frame.user) { (frame.user) }
                        button.quiet type="submit" { "Sign out" }
                    }
                }
            }
            main id="main" { (content) }
        },
    )
}

/// The page of a failed request.
pub fn failure(status: StatusCode, message: &str) -> Markup {
    let title = match status {
        StatusCode::FORBIDDEN => "You may not do this",
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::CONFLICT => "It has changed meanwhile",
        StatusCode::BAD_GATEWAY => "The cluster did not answer",
        _ => "This did not work",
    };
    document(
        title,
        &html! {
            main.alone id="main" {
                section.card.centre {
                    p.code { (status.as_u16()) }
                    h1 { (title) }
                    p { (pieces::prose(message)) }
                    p { a.button href="/" { "Home" } }
                }
            }
        },
    )
}

/// The page of a user who may not read the whole cluster.
pub fn choose_namespace(frame: &Frame, why: &str) -> Markup {
    framed(
        frame,
        &html! {
            section.card.centre {
                h1 { "Choose a namespace" }
                p { "You may not read all namespaces of this cluster." }
                form.row method="get" {
                    label.sr for="namespace" { "Namespace" }
                    input id="namespace" name="namespace" placeholder="team-a" value=(frame.namespace) required autofocus;
                    button.primary type="submit" { "Show" }
                }
                p.muted.small { (pieces::prose(why)) }
            }
        },
    )
}

/// The page that asks before another user is signed in.
pub fn switch_user(current: &str, next: &str, code: &str, csrf: &str) -> Markup {
    document(
        "Sign in as somebody else",
        &html! {
            main.alone id="main" {
                section.card.centre {
                    h1 { "Sign in as somebody else?" }
                    p { "You are signed in as " strong { (current) } ". The link signs you in as " strong { (next) } "." }
                    p.muted { "Go on only if you made the link yourself: what you do afterwards is done in that name." }
                    form.row method="post" action={ "/sign-in/" (code) } {
                        input type="hidden" name="csrf" value=(csrf);
                        a.button href="/" { "Stay signed in" }
                        button type="submit" { "Sign in as " (next) }
                    }
                }
            }
        },
    )
}

/// The page on which a user signs in with a token.
pub fn sign_in(next: &str, problem: Option<&str>) -> Markup {
    document(
        "Sign in",
        &html! {
            main.alone id="main" {
                section.card.signin {
                    p.brand { img src=(assets::path("icon.svg")) alt="" width="28" height="28"; "Knoll" }
                    h1 { "Sign in" }
                    @if let Some(problem) = problem { p.notice.bad role="alert" { (pieces::prose(problem)) } }
                    p { "On your machine, " code { "knoll ui" } " opens this page and signs you in." }
                    form method="post" action="/sign-in" {
                        input type="hidden" name="next" value=(super::own_path(next));
                        label for="token" { "Or use a bearer token of the cluster" }
                        input id="token" name="token" type="password" autocomplete="off" spellcheck="false" required;
                        button.primary.wide type="submit" { "Sign in" }
                    }
                    p.muted.small {
                        "You see and do what the token may, and nothing else. "
                        code { "kubectl create token NAME" } " makes one for a service account."
                    }
                }
            }
        },
    )
}
