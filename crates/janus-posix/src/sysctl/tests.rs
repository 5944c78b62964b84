use super::*;

#[test]
fn nothing_said_is_the_profile() {
    let settings = parse("").expect("nothing is wrong with nothing");
    let config = &settings.config;
    assert_eq!(config.receive_buffer_max, 15_728_640);
    assert_eq!((config.max_syn_retries, config.max_orphan_retries), (5, 8));
    assert_eq!(config.ecn, Ecn::Off);
    assert!(!config.slow_start_after_idle && !config.mtu_probing);
    assert!(config.sack && config.dsack && config.timestamps && config.rack);
    assert_eq!((settings.mtu, settings.local.len()), (None, 0));
}

#[test]
fn the_profile_may_be_spelled_out() {
    let spelled = "net.ipv4.tcp_rmem=4096 540000 15728640, tcp_wmem=4096 262144 4194304,tcp_syn_retries=5,\
                   tcp_synack_retries=5,tcp_sack=1,tcp_dsack=1,tcp_timestamps=1,tcp_congestion_control=cubic,\
                   tcp_slow_start_after_idle=0,tcp_early_retrans=4,tcp_recovery=1,tcp_ecn=0,tcp_syncookies=1,\
                   tcp_notsent_lowat=4294967295,tcp_reordering=3,tcp_mtu_probing=0";
    let (spelled, silent) = (parse(spelled).expect("sound"), parse("").expect("sound"));
    assert_eq!(format!("{spelled:?}"), format!("{silent:?}"));
}

#[test]
fn each_name_does_what_it_says() {
    let config = |flags: &str| parse(flags).expect(flags).config;
    assert!(!config("tcp_sack=0").sack);
    assert!(!config("tcp_dsack=0").dsack);
    assert!(!config("net.ipv4.tcp_timestamps=0").timestamps);
    assert!(config("tcp_timestamps=2").timestamps);
    assert!(!config("tcp_window_scaling=0").window_scaling);
    assert_eq!(config("tcp_ecn=1").ecn, Ecn::On);
    assert_eq!(config("tcp_ecn=2").ecn, Ecn::Passive);
    assert!(!config("tcp_early_retrans=0").tail_loss_probe);
    assert!(!config("tcp_recovery=0").rack);
    assert!(config("tcp_slow_start_after_idle=1").slow_start_after_idle);
    assert!(config("tcp_mtu_probing=1").mtu_probing);
    assert!(!config("tcp_moderate_rcvbuf=0").tune_receive_buffer);
    assert_eq!(
        config("tcp_congestion_control=reno").congestion,
        CongestionControl::NewReno
    );
    assert_eq!(config("tcp_syncookies=0").syn_cookies, SynCookies::Never);
    assert_eq!(config("tcp_syncookies=2").syn_cookies, SynCookies::Always);
    assert_eq!(config("tcp_syn_retries=2").max_syn_retries, 2);
    assert_eq!(config("tcp_synack_retries=1").max_syn_ack_retries, 1);
    assert_eq!(config("tcp_retries2=4").max_retries, 4);
    assert_eq!(config("tcp_orphan_retries=3").max_orphan_retries, 3);
    assert_eq!(
        config("tcp_fin_timeout=10").fin_wait_2,
        Some(Duration::from_secs(10))
    );
    assert_eq!(
        config("tcp_challenge_ack_limit=3").challenge_acks_per_second,
        Some(3)
    );
    assert_eq!(
        config("tcp_challenge_ack_limit=2147483647").challenge_acks_per_second,
        None
    );
    assert_eq!(config("tcp_invalid_ratelimit=0").invalid_ack_interval, None);
    let rmem = config("tcp_rmem=4096 20000 40000");
    assert_eq!(
        (rmem.receive_buffer, rmem.receive_buffer_max),
        (10_000, 40_000)
    );
    let wmem = config("tcp_wmem=4096 20000 40000");
    assert_eq!((wmem.send_buffer, wmem.send_buffer_max), (20_000, 40_000));
}

#[test]
fn sockets_and_surroundings() {
    let settings = parse(
        "tcp_keepalive_time=10,tcp_keepalive_intvl=2,tcp_keepalive_probes=3,ip_default_ttl=63,mtu=9000,\
         local_ip=192.168.0.1,local_ip=fd3d::1",
    )
    .expect("sound");
    let socket = settings.socket;
    assert_eq!(
        (
            socket.keepalive_idle,
            socket.keepalive_interval,
            socket.keepalive_count
        ),
        (Duration::from_secs(10), Duration::from_secs(2), 3)
    );
    assert_eq!((socket.ttl, settings.mtu), (Some(63), Some(9_000)));
    assert_eq!(settings.local.len(), 2);
}

#[test]
fn what_cannot_be_kept_is_refused_by_name() {
    let refused = |flags: &str| parse(flags).expect_err(flags);
    assert_eq!(
        refused("tcp_sacks=0"),
        "`tcp_sacks` is not a setting known here"
    );
    assert_eq!(
        refused("tcp_sack=2"),
        "`tcp_sack=2`: expected a number from 0 to 1"
    );
    assert!(refused("tcp_reordering=10").contains("expected 3: this stack has no other"));
    assert!(refused("tcp_congestion_control=bbr").contains("`cubic` or `reno`"));
    assert!(refused("tcp_rmem=4096").contains("three sizes"));
    assert!(refused("tcp_rmem=4096 9 8").contains("three sizes"));
    assert!(refused("tcp_sack").contains("`name=value`"));
    assert!(refused("mtu=20").contains("a number from 88"));
    assert!(refused("local_ip=here").contains("an address"));
    assert!(refused("tcp_recovery=2").contains("variants of RACK"));
}

#[test]
fn what_cannot_matter_is_accepted() {
    assert!(parse("tcp_min_tso_segs=2,net.core.default_qdisc=fq,tcp_no_metrics_save=1,,").is_ok());
}
