//! Hears from the kernel how much memory this container may have, and whether a process of it was killed for want of more.
//!
//! Where a container is one control group, the kernel may kill terraform alone and leave the runner: its container then
//! ends as if nothing had happened, and only the group's counter knows.

use std::fs;

/// No container is given as much: so says the older version of control groups that there is no limit.
const NO_LIMIT: u64 = 1 << 60;

/// How many processes of the runner's control group were killed for want of memory; nothing where the kernel does not
/// tell.
pub fn oom_kills() -> Option<u64> {
    read("memory.oom_control", "memory.events", count)
}

/// Whether the runner's control group has a limit of its own; so it is taken to be where the kernel does not tell.
pub fn is_limited() -> bool {
    read("memory.limit_in_bytes", "memory.max", limited).unwrap_or(true)
}

fn read<T>(of_v1: &str, of_v2: &str, parse: fn(&str) -> Option<T>) -> Option<T> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    files(&groups, of_v1, of_v2).iter().find_map(|file| parse(&fs::read_to_string(file).ok()?))
}

/// Where a file may be, for both versions of control groups. A container often sees its own group as the root, but is
/// told its name on the host.
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
