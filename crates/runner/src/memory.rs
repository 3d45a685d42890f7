//! Hears from the kernel whether a process of this container was killed for want of memory.
//!
//! Where a container is one control group, the kernel may kill terraform alone and leave the runner: its container then
//! ends as if nothing had happened, and only the group's counter knows.

use std::fs;

/// How many processes of the runner's control group were killed for want of memory; nothing where the kernel does not
/// tell.
pub fn oom_kills() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    files(&groups).iter().find_map(|file| count(&fs::read_to_string(file).ok()?))
}

/// Where the counter may be, for both versions of control groups. A container often sees its own group as the root, but
/// is told its name on the host.
fn files(groups: &str) -> Vec<String> {
    let group = |key: &str| {
        let line = groups.lines().find_map(|line| line.split_once(':')?.1.strip_prefix(key)?.strip_prefix(':'));
        line.map(|path| path.trim_end_matches('/').to_owned()).unwrap_or_default()
    };
    vec![
        format!("/sys/fs/cgroup/memory{}/memory.oom_control", group("memory")),
        "/sys/fs/cgroup/memory/memory.oom_control".to_owned(),
        format!("/sys/fs/cgroup{}/memory.events", group("")),
        "/sys/fs/cgroup/memory.events".to_owned(),
    ]
}

fn count(events: &str) -> Option<u64> {
    events.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_of_both_versions_is_read() {
        assert_eq!(count("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n"), Some(2));
        assert_eq!(count("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n"), Some(7));
        assert_eq!(count("low 0\n"), None);
        assert_eq!(files("4:memory:/pods/a\n0::/")[0], "/sys/fs/cgroup/memory/pods/a/memory.oom_control");
        assert_eq!(files("0::/pods/b\n")[2], "/sys/fs/cgroup/pods/b/memory.events");
    }
}
