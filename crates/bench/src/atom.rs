//! Compares an Atom with many objects with `kubectl apply --server-side`: the time until all objects are written.

use std::fmt::Write;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

/// The flags of `bench atom`.
#[derive(clap::Args)]
pub struct AtomArgs {
    /// The kubeconfig of an embedded cluster
    #[arg(long)]
    embedded: Option<String>,
    /// The kubeconfig of a real cluster with Knoll installed
    #[arg(long)]
    real: Option<String>,
    /// The number of objects
    #[arg(long, default_value_t = 500)]
    objects: usize,
    /// The number of measurements per side
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

pub async fn run(arguments: &AtomArgs) -> anyhow::Result<()> {
    for (name, kubeconfig) in [("embedded", &arguments.embedded), ("real", &arguments.real)] {
        if let Some(kubeconfig) = kubeconfig {
            one(arguments, name, kubeconfig).await?;
        }
    }
    Ok(())
}

/// Measures both sides alternately, each in its own namespace.
async fn one(arguments: &AtomArgs, name: &str, kubeconfig: &str) -> anyhow::Result<()> {
    let config = Kubeconfig::read_from(kubeconfig).context("cannot read the kubeconfig")?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    let template = template(arguments.objects);
    let (mut kubectl, mut atom) = (Vec::new(), Vec::new());
    for round in 0..arguments.rounds {
        for (side, times) in [("kubectl", &mut kubectl), ("atom", &mut atom)] {
            let namespace = format!("bench-{side}-{}-{round}", std::process::id());
            call(kubeconfig, &namespace, &["create", "namespace", &namespace], "")?;
            let time = match side {
                "kubectl" => by_kubectl(kubeconfig, &namespace, &template)?,
                _ => {
                    let account = format!("--serviceaccount={namespace}:default");
                    call(
                        kubeconfig,
                        &namespace,
                        &["create", "rolebinding", "edit", "--clusterrole=edit", &account],
                        "",
                    )?;
                    by_atom(arguments, &client, &namespace, &template).await?
                }
            };
            times.push(time);
            call(kubeconfig, &namespace, &["delete", "namespace", &namespace, "--wait=true"], "")?;
        }
    }
    let (kubectl, atom) = (middle(kubectl), middle(atom));
    let ratio = atom.as_secs_f64() / kubectl.as_secs_f64();
    println!("{name}: {} objects until all are written, the middle of {} rounds", arguments.objects, arguments.rounds);
    println!("  kubectl apply --server-side  {:6.2} s", kubectl.as_secs_f64());
    println!("  an Atom                      {:6.2} s  {ratio:.2} times", atom.as_secs_f64());
    Ok(())
}

fn template(objects: usize) -> String {
    let mut text = String::new();
    for number in 0..objects {
        let data = "x".repeat(200);
        let _ = writeln!(
            text,
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: map-{number}}}\ndata: {{key: {data}}}"
        );
    }
    text
}

fn middle(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn call(kubeconfig: &str, namespace: &str, words: &[&str], input: &str) -> anyhow::Result<()> {
    let mut command = Command::new("kubectl");
    command.args(["--kubeconfig", kubeconfig, "--namespace", namespace]).args(words);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().context("cannot start kubectl")?;
    child.stdin.take().context("kubectl takes no input")?.write_all(input.as_bytes())?;
    if !child.wait()?.success() {
        bail!("kubectl {} failed", words.join(" "));
    }
    Ok(())
}

fn by_kubectl(kubeconfig: &str, namespace: &str, template: &str) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    call(kubeconfig, namespace, &["apply", "--server-side", "-f", "-"], template)?;
    Ok(begun.elapsed())
}

/// The time from the creation of the Atom until its status reports every object as written.
async fn by_atom(arguments: &AtomArgs, client: &Client, namespace: &str, template: &str) -> anyhow::Result<Duration> {
    let url = |plural: &str| format!("/apis/knoll.dev/v1alpha1/namespaces/{namespace}/{plural}");
    let post = async |plural: &str, object: Value| -> anyhow::Result<Value> {
        let request = http::Request::post(url(plural)).header("content-type", "application/json");
        Ok(client.request(request.body(object.to_string().into_bytes())?).await?)
    };
    let kind = |kind: &str, spec: Value| json!({"apiVersion": "knoll.dev/v1alpha1", "kind": kind, "metadata": {"name": "many"}, "spec": spec});
    let begun = Instant::now();
    post("atomversions", kind("AtomVersion", json!({"template": template}))).await?;
    post("atoms", kind("Atom", json!({"version": "many"}))).await?;
    loop {
        let request = http::Request::get(format!("{}/many", url("atoms"))).body(Vec::new())?;
        let atom: Value = client.request(request).await?;
        let status = &atom["status"];
        let written = ["Wait", "Prune", "Done"].iter().any(|stage| status["journal"]["stage"] == *stage);
        if written || status["phase"] == "Running" {
            let count = status["objects"].as_array().map_or(0, Vec::len);
            if count != arguments.objects {
                bail!("the Atom has {count} objects");
            }
            return Ok(begun.elapsed());
        }
        if ["Error", "Reverted", "Failure"].iter().any(|phase| status["phase"] == *phase) {
            bail!("the Atom failed: {}", status["failure"]);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
