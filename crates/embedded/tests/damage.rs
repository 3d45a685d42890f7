//! A cluster that was killed has everything that it has answered, or does not start.
#![allow(clippy::unwrap_used, reason = "tests")]

use k8s_openapi::api::core::v1::ConfigMap;
use knoll_embedded::{Cluster, Options};
use kube::Api;
use kube::api::PostParams;

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_in_the_journal_of_a_killed_cluster_is_refused() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let [first, killed] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let start = |folder: &tempfile::TempDir| {
        Cluster::start(Options { data_dir: Some(folder.path().to_owned()), ..Options::default() })
    };
    let cluster = start(&first).await.unwrap();
    let map = ConfigMap {
        metadata: kube::core::ObjectMeta { name: Some("answered".into()), ..<_>::default() },
        ..<_>::default()
    };
    Api::<ConfigMap>::namespaced(cluster.client(), "default").create(&PostParams::default(), &map).await.unwrap();
    // What a process that is killed now leaves behind.
    for file in ["knoll.db", "knoll.journal"] {
        std::fs::copy(first.path().join(file), killed.path().join(file)).unwrap();
    }
    cluster.stop().await;

    let journal = killed.path().join("knoll.journal");
    let whole = std::fs::read(&journal).unwrap();
    let mut damaged = whole.clone();
    damaged[600] ^= 1;
    std::fs::write(&journal, damaged).unwrap();
    let error = start(&killed).await.err().unwrap().to_string();
    assert!(error.contains(&format!("`{}` is damaged at byte 512", journal.display())), "{error}");

    std::fs::write(&journal, whole).unwrap();
    let cluster = start(&killed).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), "default");
    assert!(maps.get_opt("answered").await.unwrap().is_some());
    cluster.stop().await;
}
