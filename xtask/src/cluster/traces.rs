//! What containers leave on a machine outside the cluster's folder when nobody was there to clean up after them.
//!
//! Only what carries the identity of a container of this cluster is removed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::place::Place;

/// The namespace that Kubernetes' containers have in containerd.
const NAMESPACE: &str = "k8s.io";

/// Removes the traces of the containers that the folder still knows of. None of them may run any more.
pub fn remove(place: &Place) {
    for container in containers(place) {
        for group in control_groups(Path::new("/sys/fs/cgroup"), &container) {
            // The kernel refuses to remove a group that is in use, and then it stays.
            let _ = fs::remove_dir(group);
        }
        for result in entries(Path::new("/var/lib/cni/results")) {
            if result.to_string_lossy().contains(&container) {
                let _ = fs::remove_file(result);
            }
        }
    }
    // The kubelet puts a link to each container's log where collectors of logs look.
    for link in entries(Path::new("/var/log/containers")) {
        if fs::read_link(&link).is_ok_and(|target| target.starts_with(&place.folder)) {
            let _ = fs::remove_file(link);
        }
    }
}

fn containers(place: &Place) -> BTreeSet<String> {
    let folders = ["containerd/state/io.containerd.runtime.v2.task", "containerd/runc"];
    let folders = folders.map(|folder| place.path(folder).join(NAMESPACE));
    let names = folders.iter().flat_map(|folder| entries(folder));
    let names = names.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
    // Anything shorter could be a part of another name.
    names.filter(|name| name.len() == 64).collect()
}

/// The groups of a container: one in the single hierarchy of newer machines, or one in each of the older kind.
fn control_groups(root: &Path, container: &str) -> Vec<PathBuf> {
    let mut roots = entries(root);
    roots.push(root.to_owned());
    roots.iter().map(|root| root.join(NAMESPACE).join(container)).filter(|group| group.is_dir()).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn groups_of_both_kinds_are_found_and_no_others() {
        let root = tempfile::tempdir().unwrap();
        let (ours, other) = ("a".repeat(64), "b".repeat(64));
        for path in [format!("memory/k8s.io/{ours}"), format!("k8s.io/{ours}"), format!("cpu/k8s.io/{other}")] {
            fs::create_dir_all(root.path().join(path)).unwrap();
        }
        let mut found = control_groups(root.path(), &ours);
        found.sort();
        let expected = ["k8s.io", "memory/k8s.io"].map(|folder| root.path().join(folder).join(&ours));
        assert_eq!(found, expected);
    }

    #[test]
    fn containers_are_those_that_the_folder_knows() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place { folder: folder.path().to_owned(), name: "test".to_owned() };
        assert!(containers(&place).is_empty());
        let id = "c".repeat(64);
        fs::create_dir_all(place.path("containerd/runc/k8s.io").join(&id)).unwrap();
        fs::create_dir_all(place.path("containerd/runc/k8s.io/short")).unwrap();
        assert_eq!(containers(&place).into_iter().collect::<Vec<_>>(), [id]);
    }
}
