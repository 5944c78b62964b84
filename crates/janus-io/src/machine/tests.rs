use super::*;

const MEMINFO: &str = "MemTotal: 8 kB\nHugePages_Total:     512\nHugePages_Free:        7\nHugepagesize:       2048 kB\n";

#[test]
fn the_kernels_files_are_read() {
    assert_eq!(
        huge_pages(MEMINFO),
        HugePages {
            total: 512,
            free: 7,
            size_kib: 2048
        }
    );
    assert_eq!(huge_pages("nonsense"), HugePages::default());
    let status = "Name:\tx\nCapInh:\t0000000000000000\nCapEff:\t0000000000001000\n";
    assert!(has(effective_capabilities(status), CAP_NET_ADMIN));
    assert!(!has(effective_capabilities(status), CAP_IPC_LOCK));
    assert_eq!(
        (chosen("always [madvise] never"), chosen("")),
        ("madvise", "")
    );
}

#[test]
fn what_is_missing_comes_with_the_step_that_brings_it() {
    let remedy = |finding: Finding| {
        assert!(!finding.good);
        finding.remedy.unwrap()
    };
    let used_up = HugePages {
        total: 100,
        free: 0,
        size_kib: 2048,
    };
    assert!(remedy(find_huge_pages(used_up)).contains("vm.nr_hugepages=612"));
    assert!(remedy(find_huge_pages(HugePages::default())).contains("CONFIG_HUGETLBFS"));
    assert!(remedy(find_transparent("never")).contains("echo madvise"));
    assert!(remedy(find_tun(Err(io::ErrorKind::NotFound.into()))).contains("modprobe tun"));
    assert!(remedy(find_tun(Err(io::ErrorKind::PermissionDenied.into()))).contains("chmod"));
    assert!(remedy(find_net_admin(0)).contains("setcap"));
    assert!(remedy(find_locked(Some(65536), 0)).contains("ulimit"));
    assert!(remedy(find_dpdk(Err("install it".into()))).contains("install it"));
    assert!(remedy(find_cores(1)).contains("combined"));
    assert!(remedy(find_xdp(Err(io::ErrorKind::PermissionDenied.into()))).contains("cap_bpf"));
    assert!(
        remedy(find_xdp(Err(io::ErrorKind::Unsupported.into()))).contains("CONFIG_XDP_SOCKETS")
    );
}

#[test]
fn what_is_there_needs_nothing() {
    for finding in [
        find_cores(2),
        find_huge_pages(huge_pages(MEMINFO)),
        find_transparent("madvise"),
        find_locked(Some(0), 1 << CAP_IPC_LOCK),
        find_locked(None, 0),
        find_tun(Ok(())),
        find_net_admin(1 << CAP_NET_ADMIN),
        find_xdp(Ok(())),
        find_dpdk(Ok("DPDK 22.11.11")),
    ] {
        assert!(finding.good && finding.remedy.is_none(), "{finding:?}");
    }
}

#[test]
fn this_machine_can_be_looked_at_and_printed() {
    let machine = Machine::look();
    assert!(machine.cores >= 1);
    let text = machine.to_string();
    for finding in &machine.findings {
        assert!(text.contains(finding.what));
        assert_eq!(finding.good, finding.remedy.is_none());
    }
}
