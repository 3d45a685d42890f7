//! Which addresses are connected to, with real servers on loopback.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use knoll_api::source::{ArchiveSource, GitSource};
use knoll_e2e::git::{HttpServer, PASSWORD, Repositories, USER};
use knoll_fetch::{Addresses, Credentials, Error, Settings};

const SUM: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn opened(ranges: &[&str]) -> Settings {
    let ranges: Vec<_> = ranges.iter().map(|range| knoll_fetch::parse_range(range).unwrap()).collect();
    Settings { addresses: Addresses::new(&ranges), ..Settings::default() }
}

fn with_password() -> Credentials {
    Credentials { username: Some(USER.to_owned()), password: Some(PASSWORD.to_owned()), ..Credentials::default() }
}

async fn git(url: &str, credentials: &Credentials, settings: &Settings) -> Error {
    let source = GitSource { url: url.to_owned(), ..GitSource::default() };
    knoll_fetch::newest(&source, credentials, settings).await.unwrap_err()
}

async fn archive(url: &str, credentials: &Credentials, settings: &Settings) -> Error {
    let source = ArchiveSource { url: url.to_owned(), sha256: SUM.to_owned(), ..ArchiveSource::default() };
    knoll_fetch::archive(&source, credentials, settings).await.unwrap_err()
}

#[track_caller]
fn forbidden(error: &Error, address: &str) {
    let Error::Forbidden { refusal, .. } = error else { panic!("not refused for its address: {error}") };
    assert_eq!(refusal.address.to_string(), address);
    let said = error.to_string();
    assert!(said.contains(&format!("`{address}`")) && said.contains("--allow-source-cidr"), "{said}");
    assert!(!error.may_pass(), "an address that is refused is not tried again");
}

/// Answers every connection with `answer`, and keeps what was asked.
struct Listener {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Listener {
    fn start(host: &str, answer: String) -> Self {
        let listener = TcpListener::bind((host, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let kept = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                kept.lock().unwrap().push(request(stream, &answer));
            }
        });
        Self { port, asked }
    }

    fn redirecting(host: &str, to: &str) -> Self {
        let answer = format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        Self::start(host, answer)
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn request(mut stream: TcpStream, answer: &str) -> String {
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
        head.push(byte[0]);
    }
    let _ = stream.write_all(answer.as_bytes());
    String::from_utf8_lossy(&head).to_lowercase()
}

#[tokio::test]
async fn loopback_link_local_and_private_addresses_are_not_fetched_from() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = Listener::start("127.0.0.1", String::new());
    let port = server.port;
    let none = Credentials::default();
    let safe = Settings::default();
    let rows = [
        (format!("http://127.0.0.1:{port}/a"), "127.0.0.1"),
        // The same address in other words.
        (format!("http://2130706433:{port}/a"), "127.0.0.1"),
        (format!("http://0x7f.1:{port}/a"), "127.0.0.1"),
        (format!("http://[::ffff:127.0.0.1]:{port}/a"), "::ffff:127.0.0.1"),
        (format!("https://[::1]:{port}/a"), "::1"),
        ("http://169.254.169.254/latest/meta-data/".to_owned(), "169.254.169.254"),
        ("http://[fd00:ec2::254]/latest/meta-data/".to_owned(), "fd00:ec2::254"),
        ("https://10.96.0.1/api".to_owned(), "10.96.0.1"),
    ];
    for (url, address) in &rows {
        forbidden(&git(url, &none, &safe).await, address);
        forbidden(&archive(url, &none, &safe).await, address);
    }
    for url in
        [format!("git://127.0.0.1:{port}/a"), format!("ssh://git@127.0.0.1:{port}/a"), "git@127.0.0.1:a".to_owned()]
    {
        forbidden(&git(&url, &none, &safe).await, "127.0.0.1");
    }
    // A name is refused for what it resolves to.
    for scheme in ["http", "https", "git", "ssh"] {
        let named = git(&format!("{scheme}://localhost:{port}/a"), &none, &safe).await.to_string();
        assert!(named.contains("is a loopback address"), "{scheme}: {named}");
    }
    assert_eq!(server.asked(), Vec::<String>::new());
}

/// The message is in a condition and in an event, which every viewer reads.
#[tokio::test]
async fn no_message_has_a_token_of_the_address() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let none = Credentials::default();
    let missing = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned();
    let port = Listener::start("127.0.0.1", missing).port;
    let open = opened(&["127.0.0.1/32"]);
    // A port that nobody listens on, a server that has nothing there, and an address that may not be reached.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for (port, settings) in [(closed, &open), (port, &open), (port, &Settings::default())] {
        for url in [
            format!("http://127.0.0.1:{port}/a.tgz?token=hunter2-query"),
            format!("http://hunter2-user@127.0.0.1:{port}/a.tgz"),
            format!("http://me:hunter2-password@127.0.0.1:{port}/a.tgz"),
        ] {
            for error in [git(&url, &none, settings).await, archive(&url, &none, settings).await] {
                assert!(!error.to_string().contains("hunter2"), "{url}: {error}");
            }
        }
    }
}

#[tokio::test]
async fn a_redirect_does_not_lead_to_an_address_that_is_not_open() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let inner = Listener::start("127.0.0.2", String::new());
    let to = format!("http://127.0.0.2:{}/secret", inner.port);
    let outer = Listener::redirecting("127.0.0.1", &to);
    let url = format!("http://127.0.0.1:{}/a", outer.port);
    let settings = opened(&["127.0.0.1"]);
    forbidden(&archive(&url, &Credentials::default(), &settings).await, "127.0.0.2");
    forbidden(&git(&url, &Credentials::default(), &settings).await, "127.0.0.2");
    assert_eq!(outer.asked().len(), 2);
    assert_eq!(inner.asked(), Vec::<String>::new());
}

#[tokio::test]
async fn credentials_do_not_follow_a_redirect_to_another_server() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let gone = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned();
    let other = Listener::start("127.0.0.2", gone);
    let first = Listener::redirecting("127.0.0.1", &format!("http://127.0.0.2:{}/b", other.port));
    let url = format!("http://127.0.0.1:{}/a", first.port);
    let settings = opened(&["127.0.0.0/8"]);
    let _ = archive(&url, &with_password(), &settings).await;
    let _ = git(&url, &with_password(), &settings).await;
    assert!(first.asked().iter().all(|head| head.contains("authorization: basic")), "{:?}", first.asked());
    assert_eq!(other.asked().len(), 2);
    assert!(other.asked().iter().all(|head| !head.contains("authorization")), "{:?}", other.asked());
}

#[tokio::test]
async fn credentials_are_not_sent_over_plain_http() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let repositories = Repositories::new();
    let server = HttpServer::start(&repositories).await;
    let url = format!("http://localhost:{}/infra.git", server.port);
    let settings = opened(&["127.0.0.1", "::1"]);
    for error in [git(&url, &with_password(), &settings).await, archive(&url, &with_password(), &settings).await] {
        let said = error.to_string();
        assert!(said.contains("--plain-http-credentials") && !said.contains(PASSWORD), "{said}");
    }
    assert_eq!(server.asked(), 0);
    let allowed = Settings { plain_http_credentials: true, ..settings };
    let said = git(&url, &with_password(), &allowed).await.to_string();
    assert!(said.contains("404"), "it was asked, and has no such repository: {said}");
}
