//! Restrictions by this machine, or by the process's parent: processors kept apart, a quota of processor time, file descriptors. Reads the
//! kernel's files and says how they stand; each step it names is one that can be run as it is.

use std::path::{Path, PathBuf};

use super::{Finding, good, missing};

/// Descriptors that the portal should have: one for each client, and some.
const FILES_WANTED: u64 = 65_536;
/// Fewer than this are noticed soon.
const FILES_LEAST: u64 = 4_096;
/// Where control groups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Cores that the scheduler keeps other programs off.
pub(super) fn find_isolated(isolated: &str, cores: usize) -> Finding {
    let what = "isolated cores";
    let isolated = isolated.trim();
    if !isolated.is_empty() {
        return good(what, isolated.into());
    }
    let range = match cores {
        0..=2 => "1".to_owned(),
        cores => format!("1-{}", cores - 1),
    };
    missing(
        what,
        "none: other programs run on them too, which shows in the slowest answers".into(),
        format!(
            "`sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&isolcpus={range} nohz_full={range} /' /etc/default/grub && sudo update-grub`, \
             then reboot and name them: cores = \"{range}\""
        ),
    )
}

/// The step that gives a user another limit, at each login from then on.
pub(super) fn for_good(limit: &str) -> String {
    format!("`echo \"$USER - {limit}\" | sudo tee -a /etc/security/limits.conf`, then log in anew")
}

/// A bound of processor time, and the file that sets it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Quota {
    /// In processors.
    pub(super) cores: f64,
    pub(super) file: PathBuf,
    /// Text that takes the bound away when written to `file`.
    pub(super) none: &'static str,
}

pub(super) fn find_quota(quota: Option<Quota>, cores: usize) -> Finding {
    let what = "processor time";
    match quota {
        Some(quota) if quota.cores < cores as f64 => missing(
            what,
            format!(
                "{:.2} of {cores} cores: threads that poll are stopped when it is used up",
                quota.cores
            ),
            format!("`echo {} | sudo tee {}`", quota.none, quota.file.display()),
        ),
        _ => good(what, "no quota".into()),
    }
}

/// The smallest quota of the control groups that `membership` (`/proc/self/cgroup`) names and those around them.
pub(super) fn quota(membership: &str) -> Option<Quota> {
    membership
        .lines()
        .filter_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            let root = Path::new(CGROUPS);
            match controllers {
                "" => Some((root.to_owned(), path, true)),
                _ if controllers.split(',').any(|one| one == "cpu") => {
                    let mounts = [root.join("cpu"), root.join(controllers)];
                    let mount = mounts.into_iter().find(|mount| mount.is_dir())?;
                    Some((mount, path, false))
                }
                _ => None,
            }
        })
        .flat_map(|(mount, path, unified)| {
            let groups: Vec<PathBuf> = Path::new(path).ancestors().map(Path::to_owned).collect();
            groups.into_iter().filter_map(move |group| {
                let group = mount.join(group.strip_prefix("/").unwrap_or(&group));
                quota_of(&group, unified)
            })
        })
        .min_by(|a, b| a.cores.total_cmp(&b.cores))
}

fn quota_of(group: &Path, unified: bool) -> Option<Quota> {
    let read = |name: &str| std::fs::read_to_string(group.join(name)).ok();
    if unified {
        let text = read("cpu.max")?;
        return Some(Quota {
            cores: share(&text)?,
            file: group.join("cpu.max"),
            none: "max",
        });
    }
    let text = format!(
        "{} {}",
        read("cpu.cfs_quota_us")?,
        read("cpu.cfs_period_us")?
    );
    Some(Quota {
        cores: share(&text)?,
        file: group.join("cpu.cfs_quota_us"),
        none: "-1",
    })
}

/// Processors in "quota period", as the kernel writes it; `None` where there is no bound.
pub(super) fn share(text: &str) -> Option<f64> {
    let mut numbers = text.split_whitespace();
    // "max" is no number, and -1 is no quota.
    let quota: i64 = numbers.next()?.parse().ok()?;
    let period: i64 = numbers.next()?.parse().ok()?;
    (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
}

/// `limit` is what counts, `most` what it can be raised to without a privilege.
pub(super) fn find_files(limit: Option<u64>, most: Option<u64>) -> Finding {
    let what = "open files";
    let wanted = most.map_or(FILES_WANTED, |most| most.min(FILES_WANTED));
    match limit {
        None => good(what, "no limit".into()),
        Some(limit) if limit >= FILES_LEAST => good(what, format!("up to {limit}")),
        Some(limit) => missing(
            what,
            format!("at most {limit}; the portal needs one for each client"),
            match wanted > limit {
                true => format!("`ulimit -n {wanted}` in the shell that starts it"),
                false => for_good(&format!("nofile {FILES_WANTED}")),
            },
        ),
    }
}
