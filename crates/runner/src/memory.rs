//! Reads the memory limit and the OOM kills of this container from its control group.
//!
//! The kernel may kill terraform alone and leave the runner alive. The container then ends normally, and only the
//! group's counter shows the kill.

use std::fs;

/// Values from here on mean "unlimited" in version 1 of control groups.
const NO_LIMIT: u64 = 1 << 60;

/// The number of OOM kills in the runner's control group, or none if the kernel does not report it.
pub fn oom_kills() -> Option<u64> {
    read("memory.oom_control", "memory.events", count)
}

/// Whether the runner's control group has a memory limit. Unknown counts as limited.
pub fn is_limited() -> bool {
    read("memory.limit_in_bytes", "memory.max", limited).unwrap_or(true)
}

fn read<T>(of_v1: &str, of_v2: &str, parse: fn(&str) -> Option<T>) -> Option<T> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    files(&groups, of_v1, of_v2).iter().find_map(|file| parse(&fs::read_to_string(file).ok()?))
}

/// The possible paths of a file in both versions of control groups. A container often sees its own group as the root,
/// but knows it by its name on the host.
fn files(groups: &str, of_v1: &str, of_v2: &str) -> [String; 4] {
    let group = |key: &str| {
        let line = groups.lines().find_map(|line| line.split_once(':')?.1.strip_prefix(key)?.strip_prefix(':'));
        line.map(|path| path.trim_end_matches('/').to_owned()).unwrap_or_default()
    };
    [
        format!("/sys/fs/cgroup/memory{}/{of_v1}", group("memory")),
        format!("/sys/fs/cgroup/memory/{of_v1}"),
        format!("/sys/fs/cgroup{}/{of_v2}", group("")),
        format!("/sys/fs/cgroup/{of_v2}"),
    ]
}

fn count(events: &str) -> Option<u64> {
    events.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

fn limited(limit: &str) -> Option<bool> {
    match limit.trim() {
        "max" => Some(false),
        bytes => bytes.parse().ok().map(|bytes: u64| bytes < NO_LIMIT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_of_both_versions_is_read() {
        assert_eq!(count("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n"), Some(2));
        assert_eq!(count("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n"), Some(7));
        assert_eq!(count("low 0\n"), None);
        assert_eq!(files("4:memory:/pods/a\n0::/", "one", "two")[0], "/sys/fs/cgroup/memory/pods/a/one");
        assert_eq!(files("0::/pods/b\n", "one", "two")[2], "/sys/fs/cgroup/pods/b/two");
    }

    #[test]
    fn the_limit_of_both_versions_is_read() {
        assert_eq!(limited("max\n"), Some(false));
        assert_eq!(limited("536870912\n"), Some(true));
        assert_eq!(limited("9223372036854771712\n"), Some(false));
        assert_eq!(limited("?"), None);
    }
}
