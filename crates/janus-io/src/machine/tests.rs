use super::*;

#[test]
fn the_kernels_files_are_read() {
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
    assert!(remedy(find_huge_pages(used_up)).contains("-w vm.nr_hugepages=612"));
    assert!(remedy(find_huge_pages(HugePages::default())).contains("CONFIG_HUGETLBFS"));
    assert!(remedy(find_transparent("never")).contains("echo madvise"));
    assert!(remedy(find_tun(Err(io::ErrorKind::NotFound.into()))).contains("modprobe tun"));
    assert!(remedy(find_tun(Err(io::ErrorKind::PermissionDenied.into()))).contains("chmod"));
    assert!(remedy(find_net_admin(0)).contains("setcap"));
    assert!(remedy(find_locked(Some(65536), 0)).contains("ulimit"));
    assert!(remedy(find_dpdk(Err("install it".into()))).contains("install it"));
    assert!(remedy(find_cores(1, "0\n")).contains("combined"));
    assert!(remedy(find_cores(1, "0-7\n")).contains("`taskset -c 0-7`"));
    assert!(remedy(limits::find_isolated("\n", 4)).contains("isolcpus=1-3 nohz_full=1-3"));
    assert!(remedy(limits::find_files(Some(1024), None)).contains("`ulimit -n 65536`"));
    assert!(remedy(limits::find_files(Some(256), Some(5000))).contains("`ulimit -n 5000`"));
    assert!(remedy(limits::find_files(Some(256), Some(256))).contains("nofile 65536\" | sudo tee"));
    let half = limits::Quota {
        cores: 0.5,
        file: "/sys/fs/cgroup/x/cpu.max".into(),
        none: "max",
    };
    let step = remedy(limits::find_quota(Some(half), 2));
    assert_eq!(step, "`echo max | sudo tee /sys/fs/cgroup/x/cpu.max`");
    assert!(remedy(find_xdp(Err(io::ErrorKind::PermissionDenied.into()))).contains("cap_bpf"));
    assert!(
        remedy(find_xdp(Err(io::ErrorKind::Unsupported.into()))).contains("CONFIG_XDP_SOCKETS")
    );
}

#[test]
fn what_is_there_needs_nothing() {
    for finding in [
        find_cores(2, "0-1"),
        limits::find_isolated("2-3\n", 4),
        limits::find_quota(None, 4),
        limits::find_files(Some(1 << 20), None),
        limits::find_files(None, None),
        find_huge_pages(HugePages {
            total: 512,
            free: 7,
            size_kib: 2048,
        }),
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
fn quotas_are_read_as_the_kernel_writes_them() {
    assert_eq!(limits::share("max 100000\n"), None);
    assert_eq!(limits::share("50000 100000\n"), Some(0.5));
    assert_eq!(limits::share("-1\n 100000\n"), None);
    assert_eq!(limits::share("300000\n 100000\n"), Some(3.0));
    for odd in ["", "x y", "1", "5 0", "0 100000"] {
        assert_eq!(limits::share(odd), None, "{odd}");
    }
    for odd in [
        "",
        "nonsense",
        "1:cpu",
        "0::",
        "::::",
        "4:cpu,cpuacct:/no/such/group",
    ] {
        let _ = limits::quota(odd);
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
