//! Measures the cost of a run: bare terraform, compared with Knoll on the embedded cluster and on a real one.

mod bare;
mod cluster;
mod pods;
mod requests;

use std::path::PathBuf;

use bare::Bare;
use cluster::Cluster;
use requests::Requests;

use crate::spread::Spread;
use crate::table::Table;

/// The module of the README, with three resources.
const MODULE: &str = r#"
resource "terraform_data" "network" { input = "knoll" }
resource "terraform_data" "subnet" {
  for_each = toset(["a", "b"])
  input    = "${terraform_data.network.output}-${each.key}"
}
output "network" { value = terraform_data.network.output }
"#;
/// The number of concurrent runs, each in its own Workspace.
const CROWD: usize = 20;

/// The targets, relative to bare terraform and to the start of a pod.
const EMBEDDED_RATIO: f64 = 1.5;
const REAL_RATIO: f64 = 1.5;
const REAL_REST: f64 = 0.3;
const REAL_CROWD: f64 = 10.0;
const REQUESTS: f64 = 20.0;

/// The flags of `bench run`.
#[derive(clap::Args)]
pub struct RunArgs {
    /// The kubeconfig of the embedded cluster
    #[arg(long)]
    embedded: PathBuf,
    /// The kubeconfig of a real cluster, whose node is this machine
    #[arg(long, requires = "audit")]
    real: Option<PathBuf>,
    /// The audit log of the real cluster
    #[arg(long)]
    audit: Option<PathBuf>,
    /// The number of measurements of one run
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    /// The number of measurements of 20 concurrent runs
    #[arg(long, default_value_t = 5)]
    crowds: usize,
}

/// The measurements of one side.
#[derive(Default)]
struct Readings {
    one: Spread,
    crowd: Spread,
}

pub async fn run(arguments: &RunArgs) -> anyhow::Result<()> {
    let bare = Bare::new(MODULE)?;
    let embedded = Cluster::connect(&arguments.embedded, None).await?;
    let real = match &arguments.real {
        Some(kubeconfig) => Some(Cluster::connect(kubeconfig, arguments.audit.clone()).await?),
        None => None,
    };
    let measured = measure(arguments, &bare, &embedded, real.as_ref()).await;
    embedded.remove().await;
    if let Some(real) = &real {
        real.remove().await;
    }
    let report = measured?;
    println!(
        "\nMedians (smallest to largest) of {} readings, all sides in turns; {CROWD} at once: {} readings.\n",
        arguments.rounds, arguments.crowds
    );
    report.table().lines().iter().for_each(|line| println!("{line}"));
    println!(
        "\nAPI requests are those between the creation of {CROWD} runs and the rest that follows, for each run; watches and"
    );
    println!("leases, which do not grow with runs, are not among them.");
    if let Some(runner) = report.runner {
        println!("Pods of the real cluster take their runner from {runner}.");
    }
    println!();
    report.targets().iter().for_each(|line| println!("{line}"));
    Ok(())
}

async fn measure(
    arguments: &RunArgs,
    bare: &Bare,
    embedded: &Cluster,
    real: Option<&Cluster>,
) -> anyhow::Result<Report> {
    let mut report = Report { real: real.map(|_| Readings::default()), ..Report::default() };
    // The first run of each side fills the caches, and shows the shape of its pod.
    bare.once().await?;
    embedded.once(MODULE).await?;
    let mut shape = None;
    if let Some(real) = real {
        let (_, name) = real.once(MODULE).await?;
        report.runner = Some(pods::runner(real, &name).await?);
        shape = Some(name);
    }
    for round in 1..=arguments.rounds {
        eprintln!("one run, {round} of {}", arguments.rounds);
        report.bare.one.add(bare.once().await?);
        report.embedded.one.add(embedded.once(MODULE).await?.0);
        if let (Some(real), Some(readings), Some(shape)) = (real, report.real.as_mut(), &shape) {
            readings.one.add(real.once(MODULE).await?.0);
            report.plain_start.add(pods::plain(real, shape).await?);
            report.start.add(pods::of_shape(real, shape).await?);
        }
    }
    for round in 1..=arguments.crowds {
        eprintln!("{CROWD} runs at once, {round} of {}", arguments.crowds);
        report.bare.crowd.add(bare.crowd(CROWD).await?);
        let (took, requests) = embedded.crowd(MODULE, CROWD).await?;
        report.embedded.crowd.add(took);
        report.embedded_requests = requests.each(CROWD);
        if let (Some(real), Some(readings), Some(shape)) = (real, report.real.as_mut(), &shape) {
            let (took, requests) = real.crowd(MODULE, CROWD).await?;
            readings.crowd.add(took);
            report.real_requests = requests.each(CROWD);
            report.plain_crowd.add(pods::crowd(real, shape, MODULE, CROWD).await?);
        }
    }
    Ok(report)
}

#[derive(Default)]
struct Report {
    bare: Readings,
    embedded: Readings,
    real: Option<Readings>,
    /// The start of a pod with one container.
    plain_start: Spread,
    /// Bare terraform in as many pods with one container.
    plain_crowd: Spread,
    /// The start of a pod with the containers and volumes of a Run's pod.
    start: Spread,
    embedded_requests: Requests,
    real_requests: Requests,
    /// Where the pods of the real cluster get the runner from.
    runner: Option<&'static str>,
}

impl Report {
    fn table(&self) -> Table {
        let mut table = Table::default();
        let empty = || String::new();
        let real = |show: &dyn Fn(&Readings) -> String| self.real.as_ref().map_or_else(|| "not run".to_owned(), show);
        let only_real = |text: String| if self.real.is_some() { text } else { empty() };
        let mut row = |cells: [String; 4]| table.row([&cells[0], &cells[1], &cells[2], &cells[3]]);
        row(["", "bare terraform", "Knoll, embedded", "Knoll, real cluster"].map(str::to_owned));
        let one = |readings: &Readings| seconds(&readings.one);
        row(["one run, s".to_owned(), one(&self.bare), one(&self.embedded), real(&one)]);
        let ratio = |spread: &Spread, bare: &Spread| format!("{:.2} x bare", spread.median() / bare.median());
        row([
            String::new(),
            empty(),
            ratio(&self.embedded.one, &self.bare.one),
            real(&|readings| ratio(&readings.one, &self.bare.one)),
        ]);
        row([
            "a pod's start, as `kubectl run` makes it, s".to_owned(),
            empty(),
            empty(),
            only_real(seconds(&self.plain_start)),
        ]);
        row(["the start of a Run's pod, s".to_owned(), empty(), empty(), only_real(seconds(&self.start))]);
        let crowd = |readings: &Readings| seconds(&readings.crowd);
        row([format!("{CROWD} runs at once, s"), crowd(&self.bare), crowd(&self.embedded), real(&crowd)]);
        row([
            format!("{CROWD} plain pods with terraform at once, s"),
            empty(),
            empty(),
            only_real(seconds(&self.plain_crowd)),
        ]);
        let requests = |of: &dyn Fn(&Requests) -> f64, shown: &Requests| format!("{:.1}", of(shown));
        for (title, of) in [
            ("API requests a run, Knoll and client", (|r: &Requests| r.knoll) as fn(&Requests) -> f64),
            ("API requests a run, Kubernetes' own", |r| r.others),
        ] {
            let ours = requests(&of, &self.embedded_requests);
            row([title.to_owned(), empty(), ours, only_real(requests(&of, &self.real_requests))]);
        }
        table
    }

    /// Each target, and whether it is met.
    fn targets(&self) -> Vec<String> {
        let bare = self.bare.one.median();
        let mut lines = vec![
            target("embedded, s", self.embedded.one.median(), EMBEDDED_RATIO * bare, "1.5 x bare"),
            target("embedded, API requests a run", self.embedded_requests.knoll, REQUESTS, ""),
        ];
        if let Some(real) = &self.real {
            let limit = |start: &Spread| start.median() + REAL_RATIO * bare + REAL_REST;
            let one = real.one.median();
            lines.extend([
                target("real cluster, s", one, limit(&self.start), "the start of a Run's pod + 1.5 x bare + 0.3 s"),
                target("real cluster, s", one, limit(&self.plain_start), "a pod's start + 1.5 x bare + 0.3 s"),
                target("real cluster, 20 at once, s", real.crowd.median(), REAL_CROWD, ""),
                target("real cluster, API requests a run", self.real_requests.knoll, REQUESTS, ""),
            ]);
        }
        lines
    }
}

fn target(what: &str, is: f64, most: f64, why: &str) -> String {
    let verdict = if is <= most { "met:   " } else { "MISSED:" };
    let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
    format!("{verdict} {what}: {is:.2}, at most {most:.2}{why}")
}

fn seconds(spread: &Spread) -> String {
    let (least, most) = spread.bounds();
    format!("{:.2} ({least:.2} to {most:.2})", spread.median())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_met_or_missed() {
        assert_eq!(target("x, s", 0.3, 0.3, "1.5 x bare"), "met:    x, s: 0.30, at most 0.30 (1.5 x bare)");
        assert_eq!(target("y", 21.0, 20.0, ""), "MISSED: y: 21.00, at most 20.00");
    }
}
