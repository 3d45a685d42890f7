//! A TCP proxy between commands and their cluster that counts the sent bytes and can be interrupted.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::Home;

pub struct Proxy {
    /// A kubeconfig that uses the proxy.
    pub kubeconfig: PathBuf,
    wire: Arc<Wire>,
}

#[derive(Default)]
struct Wire {
    sent: AtomicU64,
    cut: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// Starts a proxy to the cluster of this home.
    pub fn to(home: &Home) -> Self {
        let config = home.kubectl(&["config", "view", "--raw", "--minify", "-o", "json"], None);
        let mut config: Value = serde_json::from_str(&config).unwrap();
        let server = config["clusters"][0]["cluster"]["server"].as_str().unwrap();
        let address = server.trim_start_matches("https://").trim_end_matches('/').to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        config["clusters"][0]["cluster"]["server"] = format!("https://{}", listener.local_addr().unwrap()).into();
        let kubeconfig = home.folder.path().join("wire.kubeconfig");
        std::fs::write(&kubeconfig, config.to_string()).unwrap();
        let wire = Arc::new(Wire::default());
        let shared = Arc::clone(&wire);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                match TcpStream::connect(&address) {
                    Ok(server) if !shared.cut.load(Ordering::SeqCst) => join(&client, &server, &shared),
                    _ => drop(client.shutdown(Shutdown::Both)),
                }
            }
        });
        Proxy { kubeconfig, wire }
    }

    /// The number of bytes sent to the cluster so far.
    pub fn sent(&self) -> u64 {
        self.wire.sent.load(Ordering::SeqCst)
    }

    /// Closes every connection, and refuses new ones.
    pub fn cut(&self) {
        self.wire.cut.store(true, Ordering::SeqCst);
        for stream in self.wire.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub fn mend(&self) {
        self.wire.cut.store(false, Ordering::SeqCst);
    }
}

fn join(client: &TcpStream, server: &TcpStream, wire: &Arc<Wire>) {
    wire.open.lock().unwrap().extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
    let both = [(client, server, true), (server, client, false)];
    for (from, to, counts) in both {
        let (mut from, mut to, wire) = (from.try_clone().unwrap(), to.try_clone().unwrap(), Arc::clone(wire));
        std::thread::spawn(move || {
            let mut buffer = [0; 64 << 10];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                if counts {
                    wire.sent.fetch_add(count as u64, Ordering::SeqCst);
                }
                if to.write_all(&buffer[..count]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Write);
        });
    }
}
