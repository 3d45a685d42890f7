//! `knoll ui`: opens the web page, signed in. On a cluster it goes through a port-forward, so it needs no Ingress.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, anyhow, bail};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use knoll_deploy::{PAGE_PORT, PAGE_SERVICE, Settings};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

use crate::cluster::services;
use crate::connect::{Cluster, Connection, Explain};
use crate::{install, style};

/// The largest answer with a code.
const ANSWER: usize = 64 * 1024;

/// The arguments of `knoll ui`.
#[derive(clap::Args)]
pub struct UiArgs {
    #[command(flatten)]
    connection: Connection,
    /// Print the link, and open no browser
    #[arg(long, env = "KNOLL_PRINT_LINK")]
    print: bool,
    /// The local port of the port-forward to a cluster [default: a free one]
    #[arg(long, env = "KNOLL_UI_PORT", default_value_t = 0, value_name = "PORT", hide_default_value = true)]
    port: u16,
}

pub async fn run(args: UiArgs, outer: &Connection) -> Result<ExitCode> {
    let cluster = Cluster::find(&args.connection.clone().or(outer)).await?;
    let token = cluster.token().ok_or_else(|| {
        anyhow!(
            "your kubeconfig has no bearer token to sign in with\n  `kubectl create token NAME` makes one for a service account; paste it into the page's sign-in"
        )
    })?;
    if let Some(port) = local_port(&cluster).await? {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let stream = TcpStream::connect(address).await.context("the page does not answer; is `knoll up` running?")?;
        open(&args, &format!("http://{address}{}", code(stream, &token).await?));
        return Ok(ExitCode::SUCCESS);
    }
    let (pods, pod) = page_pod(&cluster).await?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port)).await;
    let listener = listener.with_context(|| format!("cannot listen on port {} of this machine", args.port))?;
    let path = code(forward(&pods, &pod).await.explain(&cluster, "cannot reach the page")?, &token).await?;
    open(&args, &format!("http://{}{path}", listener.local_addr()?));
    style::hint_aside("Press Ctrl-C to end the port-forward.");
    loop {
        let (mut local, _) = listener.accept().await?;
        let (pods, pod) = (pods.clone(), pod.clone());
        tokio::spawn(async move {
            if let Ok(mut remote) = forward(&pods, &pod).await {
                // A browser closes connections as it likes.
                let _ = tokio::io::copy_bidirectional(&mut local, &mut remote).await;
            }
        });
    }
}

/// The port of the page of `knoll up`; none on another cluster.
async fn local_port(cluster: &Cluster) -> Result<Option<u16>> {
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), services::NAMESPACE);
    match maps.get_opt(services::PORTS).await {
        Ok(map) => Ok(map.and_then(|map| map.data?.get(services::PAGE)?.parse().ok())),
        // A user of a cluster may not read this.
        Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(None),
        Err(error) => Err(error).explain(cluster, "cannot find the page"),
    }
}

/// A ready pod behind the Service of the page.
async fn page_pod(cluster: &Cluster) -> Result<(Api<Pod>, String)> {
    let namespace =
        install::installed_in(cluster).await.ok().flatten().unwrap_or_else(|| Settings::default().namespace);
    let services: Api<Service> = Api::namespaced(cluster.client.clone(), &namespace);
    let service = services.get_opt(PAGE_SERVICE).await;
    let service = service.explain(cluster, &format!("cannot read the Service `{PAGE_SERVICE}` in `{namespace}`"))?;
    let Some(selector) = service.and_then(|service| service.spec?.selector) else {
        bail!("there is no Service `{PAGE_SERVICE}` in namespace `{namespace}`\n  `knoll install` installs it");
    };
    let labels: Vec<String> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &namespace);
    let list = pods.list(&ListParams::default().labels(&labels.join(","))).await;
    let list = list.explain(cluster, "cannot list the pods of the page")?;
    let is_ready = |pod: &&Pod| {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    let pod = list.items.iter().find(is_ready).map(ResourceExt::name_any);
    Ok((pods, pod.ok_or_else(|| anyhow!("no pod of the operator is ready in namespace `{namespace}`"))?))
}

async fn forward(
    pods: &Api<Pod>,
    pod: &str,
) -> Result<impl AsyncRead + AsyncWrite + Unpin + Send + use<>, kube::Error> {
    let mut forwarder = pods.portforward(pod, &[PAGE_PORT]).await?;
    let stream = forwarder.take_stream(PAGE_PORT);
    // The forwarder works in a task of its own, which ends with the stream.
    tokio::spawn(forwarder.join());
    stream.ok_or_else(|| kube::Error::Service("the port-forward has no stream".into()))
}

/// The path of a link that signs the user of this token in once.
async fn code(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, token: &str) -> Result<String> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::post("/api/sign-in-codes")
        .header(header::HOST, "127.0.0.1")
        .header(header::AUTHORIZATION, format!("Bearer {token}"))
        .body(Empty::<Bytes>::new())
        .context("the token of your kubeconfig cannot be sent")?;
    let response = sender.send_request(request).await.context("the page does not answer")?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER).collect().await;
    let body = body.map_err(|error| anyhow!("the page does not answer: {error}"))?.to_bytes();
    let answer: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    match answer["path"].as_str() {
        Some(path) if status == StatusCode::OK => Ok(path.to_owned()),
        _ => bail!("the page did not sign you in ({status}): {}", answer["error"].as_str().unwrap_or_default()),
    }
}

fn open(args: &UiArgs, link: &str) {
    style::say("Page:", link);
    style::hint_aside("The link signs in once, within 15 minutes.");
    if args.print {
        return;
    }
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    // Without a desktop the printed link is all there is.
    let _ = Command::new(program).arg(link).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
}
