//! The web page of `knoll up` in a real browser: signed in by its link, a run watched live, its plan reviewed and
//! approved, and the outputs seen.
//!
//! With `KNOLL_UPDATE_IMAGES` it also writes `docs/images`.
#![allow(clippy::unwrap_used, reason = "tests")]

mod webdriver;
mod world;

use std::path::Path;

use serde_json::json;
use webdriver::Browser;
use world::{Place, World};

/// A module whose apply takes a moment, and whose output tries to be a script.
const MODULE: &str = r#"
variable "zones" { default = ["a", "b"] }
resource "terraform_data" "network" { input = { name = "prod", cidr = "10.0.0.0/16" } }
resource "terraform_data" "subnet" {
  for_each = toset(var.zones)
  input    = "${terraform_data.network.output.name}-${each.key}"
}
resource "terraform_data" "job" {
  depends_on = [terraform_data.subnet]
  provisioner "local-exec" {
    command = "for n in 1 2 3 4 5; do echo \"step $n <script>document.title='owned'</script>\"; sleep 0.2; done"
  }
}
output "subnets" { value = [for subnet in terraform_data.subnet : subnet.output] }
"#;

/// A link that signs the owner of the cluster in.
fn link(world: &World) -> String {
    let output = world.call(&["ui", "--print"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().find(|word| word.starts_with("http://127.0.0.1:")).unwrap().to_owned()
}

/// Writes pictures of a page, if they are asked for.
async fn pictures(browser: &Browser, name: &str) {
    if std::env::var_os("KNOLL_UPDATE_IMAGES").is_some() {
        browser.pictures(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images"), name).await;
    }
}

/// A run that fails, in a Workspace of its own.
async fn fail(place: &Place) {
    place.workspace("broken", json!({})).await;
    let module = "resource \"terraform_data\" \"a\" { input = missing.value }";
    place.run("broken", json!({"workspace": "broken", "source": {"inline": {"main.tf": module}}})).await;
    place.ended("broken").await;
}

mod embedded {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_plan_is_reviewed_approved_and_applied_in_the_browser() {
        let world = World::start().await;
        let place = world.place("team-shop").await;
        let browser = Browser::start().await;
        let link = link(&world);
        let base = link.split("/sign-in").next().unwrap().to_owned();
        let open = async |path: &str| browser.open(&format!("{base}{path}")).await;
        browser.open(&link).await;
        browser.until("Nothing here yet").await;
        pictures(&browser, "empty").await;
        browser.open(&link).await;
        browser.until("used already").await;
        pictures(&browser, "sign-in").await;

        let source = json!({"inline": {"main.tf": MODULE}});
        place.run("shop-network-1", json!({"source": source, "approval": "Manual"})).await;
        open(&format!("/runs/{}/shop-network-1", place.namespace)).await;
        // The page was opened while the run went on, and is not loaded again.
        browser.until("The plan waits for a decision").await;
        pictures(&browser, "review").await;
        browser.click("a.button.primary").await;
        browser.until("What the decision covers").await;
        pictures(&browser, "plan").await;
        browser.write("#comment", "The subnets are right.").await;
        browser.click("button[value=Approve]").await;
        browser.until("The subnets are right.").await;
        let source = browser.until("Apply complete!").await;
        assert!(source.contains("step 3 &lt;script&gt;"), "{source}");
        browser.until(">Succeeded<").await;
        assert_ne!(browser.title().await, "owned");
        place.succeeded("shop-network-1").await;
        pictures(&browser, "run").await;

        let source = json!({"inline": {"main.tf": MODULE.replace("\"a\", \"b\"", "\"a\", \"c\"")}});
        place.run("shop-network-2", json!({"source": source, "approval": "Manual"})).await;
        fail(&place).await;
        place.until("shop-network-2", "it must wait", |status| status.review_digest.is_some()).await;
        open(&format!("/runs/{}/shop-network-2/plan", place.namespace)).await;
        let source = browser.until("</span> Destroy").await;
        assert!(source.find("</span> Destroy").unwrap() < source.find("</span> Create").unwrap());
        pictures(&browser, "plan-destroy").await;
        open(&format!("/runs/{}/broken", place.namespace)).await;
        browser.until("in step").await;
        pictures(&browser, "failed").await;
        for (path, words, name) in [
            ("/", "shop-network-2", "home"),
            ("/runs", "shop-network-1", "runs"),
            ("/workspaces", "broken", "workspaces"),
            ("/stacks", "No stacks yet", "stacks"),
        ] {
            open(path).await;
            browser.until(words).await;
            pictures(&browser, name).await;
        }
        open(&format!("/workspaces/{}/w", place.namespace)).await;
        browser.until("prod-a").await;
        pictures(&browser, "workspace").await;
        browser.quit().await;
    }
}
