//! Every case of `crates/api/cases`: what the kinds accept is accepted, and what they reject is rejected in their words.
#![allow(clippy::unwrap_used, reason = "tests")]

mod cluster;

use cluster::TestCluster;
use futures::future::try_join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, ResourceExt};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    /// The object that is created.
    object: Option<DynamicObject>,
    /// Instead: the object that is created, and what it is then changed to.
    create: Option<DynamicObject>,
    update: Option<DynamicObject>,
    #[serde(default)]
    accepts: bool,
    rejects: Option<String>,
}

#[test]
fn every_case_gets_the_answer_that_it_names() {
    let cluster = TestCluster::start();
    cluster.block_on(async {
        let client = cluster.cluster().client();
        install(&client).await;
        let mut count = 0;
        let mut wrong = Vec::new();
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../api/cases");
        for file in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            let cases: Vec<Case> = serde_saphyr::from_str(&text).unwrap();
            for case in cases {
                count += 1;
                if let Err(why) = run(&client, &case).await {
                    wrong.push(format!("{}: {why}", case.name));
                }
            }
        }
        assert!(wrong.is_empty(), "{} of {count} cases:\n{}", wrong.len(), wrong.join("\n"));
        assert!(count > 100, "only {count} cases were found");
    });
}

async fn install(client: &Client) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let crds = knoll_api::crds();
    try_join_all(crds.iter().map(|crd| async {
        api.create(&PostParams::default(), crd).await?;
        await_condition(api.clone(), &crd.name_any(), conditions::is_crd_established()).await.unwrap();
        Ok::<_, kube::Error>(())
    }))
    .await
    .unwrap();
}

async fn run(client: &Client, case: &Case) -> Result<(), String> {
    let first = case.object.as_ref().or(case.create.as_ref()).ok_or("the case has no object")?;
    let types = first.types.as_ref().ok_or("the object has no kind")?;
    let gvk = GroupVersionKind::try_from(types).map_err(|e| e.to_string())?;
    let resource = ApiResource::from_gvk(&gvk);
    let is_cluster_scoped =
        |crd: &CustomResourceDefinition| crd.spec.names.kind == gvk.kind && crd.spec.scope == "Cluster";
    let api: Api<DynamicObject> = if knoll_api::crds().iter().any(is_cluster_scoped) {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::default_namespaced_with(client.clone(), &resource)
    };
    let created = api.create(&PostParams::default(), first).await;
    let result = match (&case.update, created) {
        (Some(update), Ok(created)) => {
            let mut update = update.clone();
            update.metadata.resource_version = created.resource_version();
            api.replace(&first.name_any(), &PostParams::default(), &update).await
        }
        (Some(_), Err(error)) => return Err(format!("the first object is refused: {error}")),
        (None, created) => created,
    };
    let _ = api.delete(&first.name_any(), &DeleteParams::default()).await;
    match (result, &case.rejects) {
        (Ok(_), None) if case.accepts => Ok(()),
        (Ok(_), _) => Err("is accepted".to_owned()),
        (Err(kube::Error::Api(status)), Some(sentence)) if status.message.contains(sentence) && status.code == 422 => {
            Ok(())
        }
        (Err(error), _) => Err(error.to_string()),
    }
}
