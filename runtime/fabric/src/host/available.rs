//! The amount of memory that this process can still get from the system.
//!
//! Memory without a quota is shared by all processes of the machine: if it runs out, the kernel kills some of them. So a memory node checks here
//! before a large allocation. The result is a momentary estimate: the system's own, `MemAvailable` and free swap, or the remaining limit of this
//! process's control groups, if that is less. Page cache counts as available, because the kernel reclaims it on demand.

use std::fs;
use std::path::Path;

/// The root of the control groups, and the names of their files and counts: in version 2, and in version 1.
const GROUPS: [Groups; 2] = [
    Groups {
        root: "/sys/fs/cgroup",
        controller: "",
        limit: "memory.max",
        used: "memory.current",
        cached: ["active_file", "inactive_file"],
    },
    Groups {
        root: "/sys/fs/cgroup/memory",
        controller: "memory",
        limit: "memory.limit_in_bytes",
        used: "memory.usage_in_bytes",
        cached: ["total_active_file", "total_inactive_file"],
    },
];

struct Groups {
    root: &'static str,
    controller: &'static str,
    limit: &'static str,
    used: &'static str,
    cached: [&'static str; 2],
}

/// Returns about how many bytes of memory this process can get; `None` if the system does not report it.
pub(super) fn available_bytes() -> Option<u64> {
    let of_system = available_in(&fs::read_to_string("/proc/meminfo").ok()?);
    let memberships = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let of_groups = GROUPS.iter().filter_map(|groups| groups.available(&memberships, Path::new(groups.root)));
    of_system.into_iter().chain(of_groups).min()
}

/// Parses `/proc/meminfo`.
fn available_in(meminfo: &str) -> Option<u64> {
    let kibibytes = |name: &str| {
        let rest = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        rest.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    let available = kibibytes("MemAvailable:")?.saturating_add(kibibytes("SwapFree:").unwrap_or(0));
    Some(available.saturating_mul(1024))
}

impl Groups {
    /// Returns the least remaining limit of the process's group and its ancestors, under `root`. A missing group limits nothing: a container does
    /// not see the groups around it.
    fn available(&self, memberships: &str, root: &Path) -> Option<u64> {
        let path = memberships.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers.split(',').any(|controller| controller == self.controller).then_some(path)
        })?;
        let groups = Path::new(path.trim_start_matches('/')).ancestors();
        groups.filter_map(|group| self.remaining_in(&root.join(group))).min()
    }

    fn remaining_in(&self, group: &Path) -> Option<u64> {
        let text = |name: &str| fs::read_to_string(group.join(name)).ok();
        let number = |name: &str| text(name)?.trim().parse::<u64>().ok();
        // Without a limit the file contains `max`.
        let (limit, used) = (number(self.limit)?, number(self.used)?);
        let stat = text("memory.stat").unwrap_or_default();
        let counts = stat.lines().filter_map(|line| line.split_once(' '));
        let cached =
            counts.filter(|(name, _)| self.cached.contains(name)).filter_map(|(_, n)| n.parse::<u64>().ok());
        Some(limit.saturating_sub(used.saturating_sub(cached.sum())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_available_memory_is_plausible() {
        let bytes = available_bytes().unwrap();
        assert!((1 << 20..1 << 50).contains(&bytes), "{bytes}");
    }

    #[test]
    fn meminfo_is_parsed() {
        let text = "MemTotal:       100 kB\nMemAvailable:    40 kB\nSwapFree:     2 kB\n";
        assert_eq!(available_in(text), Some(42 << 10));
        assert_eq!(available_in("MemAvailable: 40 kB\n"), Some(40 << 10));
        assert_eq!(available_in("MemTotal: 100 kB\n"), None);
        assert_eq!(available_in("MemAvailable: much\n"), None);
    }

    #[test]
    fn the_narrowest_group_counts_and_its_page_cache_does_not() {
        let root = std::env::temp_dir().join(format!("farfield-groups-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b")).unwrap();
        let write =
            |group: &str, name: &str, text: &str| fs::write(root.join(group).join(name), text).unwrap();
        for (group, limit, used, stat) in [
            ("a", "1000\n", "700\n", "anon 5\nactive_file 100\ninactive_file 50\nshmem 9\n"),
            ("a/b", "max\n", "600\n", ""),
        ] {
            write(group, "memory.max", limit);
            write(group, "memory.current", used);
            write(group, "memory.stat", stat);
        }
        let [second, first] = &GROUPS;
        let memberships = "4:cpu,memory:/x\n0::/a/b\n";
        assert_eq!(second.available(memberships, &root), Some(450));
        assert_eq!(second.available("0::/\n", &root), None, "the root has no limit");
        assert_eq!(second.available("0::/elsewhere/c\n", &root), None);
        assert_eq!(second.available("nonsense", &root), None);
        for (name, text) in [("limit_in_bytes", "1000"), ("usage_in_bytes", "1200")] {
            write("a", &format!("memory.{name}"), text);
        }
        write("a", "memory.stat", "total_active_file 300\nactive_file 7\n");
        assert_eq!(first.available("4:cpu,memory:/a\n0::/\n", &root), Some(100));
        fs::remove_dir_all(&root).unwrap();
    }
}
