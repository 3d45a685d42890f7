//! A headless Chromium, driven by the requests of the WebDriver protocol that the tests of the page need.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};

use crate::world::{PATIENCE, a_moment};

/// The key of an element's id in answers, as the standard has it.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

const FLAGS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
];

/// A browser with one tab. It ends with the test.
pub struct Browser {
    http: reqwest::Client,
    /// The address of the session in the driver.
    session: String,
    process: Child,
    _profile: tempfile::TempDir,
}

impl Browser {
    pub async fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut process = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the test needs `chromedriver`; `cargo xtask test` installs it");
        // The driver prints a line when it listens.
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("started successfully"))).unwrap().unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        let profile = tempfile::tempdir().unwrap();
        let mut flags: Vec<String> = FLAGS.map(str::to_owned).to_vec();
        flags.push(format!("--user-data-dir={}", profile.path().display()));
        let wanted =
            json!({"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": {"args": flags}}}});
        let http = reqwest::Client::new();
        let base = format!("http://127.0.0.1:{port}/session");
        let answer: Value = http.post(&base).json(&wanted).send().await.unwrap().json().await.unwrap();
        let id = answer["value"]["sessionId"].as_str().unwrap_or_else(|| panic!("no browser: {answer}"));
        Browser { session: format!("{base}/{id}"), http, process, _profile: profile }
    }

    async fn send(&self, method: Method, path: &str, body: Value) -> Value {
        let mut request = self.http.request(method.clone(), format!("{}/{path}", self.session));
        if method == Method::POST {
            request = request.json(&body);
        }
        let mut answer: Value = request.send().await.unwrap().json().await.unwrap();
        assert!(answer["value"]["error"].is_null(), "{path} {body}: {answer}");
        answer["value"].take()
    }

    pub async fn open(&self, url: &str) {
        self.send(Method::POST, "url", json!({"url": url})).await;
    }

    pub async fn title(&self) -> String {
        self.send(Method::GET, "title", Value::Null).await.as_str().unwrap().to_owned()
    }

    pub async fn source(&self) -> String {
        self.send(Method::GET, "source", Value::Null).await.as_str().unwrap().to_owned()
    }

    /// Waits until the page has these words.
    pub async fn until(&self, words: &str) -> String {
        let waiting = async {
            loop {
                let source = self.source().await;
                if source.contains(words) {
                    return source;
                }
                a_moment().await;
            }
        };
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(source) => source,
            Err(_) => panic!("no `{words}` in {}", self.source().await),
        }
    }

    async fn element(&self, css: &str) -> String {
        let found = self.send(Method::POST, "element", json!({"using": "css selector", "value": css})).await;
        found[ELEMENT].as_str().unwrap_or_else(|| panic!("no {css}: {found}")).to_owned()
    }

    pub async fn click(&self, css: &str) {
        let element = self.element(css).await;
        self.send(Method::POST, &format!("element/{element}/click"), json!({})).await;
    }

    pub async fn write(&self, css: &str, text: &str) {
        let element = self.element(css).await;
        self.send(Method::POST, &format!("element/{element}/value"), json!({"text": text})).await;
    }

    async fn tool(&self, command: &str, parameters: Value) {
        self.send(Method::POST, "goog/cdp/execute", json!({"cmd": command, "params": parameters})).await;
    }

    /// Writes pictures of the page: light and dark, desk and phone.
    pub async fn pictures(&self, folder: &Path, name: &str) {
        std::fs::create_dir_all(folder).unwrap();
        for (size, width, height) in [("desk", 1280, 860), ("phone", 390, 844)] {
            for scheme in ["light", "dark"] {
                let screen =
                    json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == "phone"});
                self.tool("Emulation.setDeviceMetricsOverride", screen).await;
                let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
                self.tool("Emulation.setEmulatedMedia", media).await;
                let picture = self.send(Method::GET, "screenshot", Value::Null).await;
                let bytes = STANDARD.decode(picture.as_str().unwrap()).unwrap();
                std::fs::write(folder.join(format!("{name}-{size}-{scheme}.png")), bytes).unwrap();
            }
        }
        self.tool("Emulation.clearDeviceMetricsOverride", json!({})).await;
    }

    pub async fn quit(&self) {
        let _ = self.http.delete(&self.session).send().await;
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends the browser with itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
