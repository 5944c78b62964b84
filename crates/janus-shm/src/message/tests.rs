use super::*;
use proptest::prelude::*;

fn some() -> Vec<Message> {
    let address = |text: &str| text.parse().unwrap();
    vec![
        Message::Hello(Hello {
            versions: (1, 300),
            name: "nginx, the first".into(),
            mode: Mode::Shared,
            cores: 4,
            member: 1 << 30,
            ports: (0, 2_048),
            buffers: 1 << 16,
            permit: Some(Permit {
                user: 33,
                group: "web".into(),
                port: 80,
                seal: u64::MAX,
            }),
        }),
        Message::Welcome(Welcome {
            version: 2,
            member: 77,
            device: Device::Ethernet([2, 0, 0, 1, 2, 3]),
            mtu: 1500,
            checksums: (true, false),
            ports: (32_768, 2_048),
            addresses: vec![
                ("192.0.2.1".parse().unwrap(), 24),
                ("2001:db8::1".parse().unwrap(), 64),
            ],
            gateways: vec!["192.0.2.254".parse().unwrap()],
            loan: (1 << 18, 1 << 16),
        }),
        Message::Memory {
            packets: 1 << 40,
            rings: 4_096,
        },
        Message::Rings {
            core: 3,
            offsets: [1, 1 << 33, 64, u64::MAX],
            log2: 10,
        },
        Message::Ready,
        Message::Claim(Claim {
            number: 9,
            udp: false,
            address: address("192.0.2.1:80"),
            group: "web".into(),
            share: Share::Join,
            permit: None,
        }),
        Message::Claim(Claim {
            number: 10,
            udp: true,
            address: address("[2001:db8::1]:443"),
            group: String::new(),
            share: Share::Alone,
            permit: None,
        }),
        Message::Release { number: 9 },
        Message::Heard { number: 9 },
        Message::Has {
            number: 11,
            ends: (address("192.0.2.1:80"), address("[2001:db8::1]:443")),
        },
        Message::Moves { process: 4711 },
        Message::Granted {
            number: 9,
            port: 40_000,
            permit: None,
        },
        Message::Refused {
            number: 10,
            errno: -13,
            why: "port 443 is another user's".into(),
        },
        Message::Leave { keeps: true },
        Message::Network(network::tests::some()),
    ]
}

#[test]
fn each_is_read_as_it_was_written() {
    for message in some() {
        let bytes = message.encode();
        assert!(bytes.len() <= LEN_MAX);
        assert_eq!(Message::decode(&bytes), Ok(message));
    }
}

#[test]
fn one_that_is_cut_or_longer_is_none() {
    for message in some() {
        let mut bytes = message.encode();
        for len in 0..bytes.len() {
            assert_eq!(Message::decode(&bytes[..len]), Err(Malformed));
        }
        bytes.push(0);
        assert_eq!(Message::decode(&bytes), Err(Malformed));
    }
}

#[test]
fn long_names_are_cut_between_letters() {
    let long = "ä".repeat(200);
    let message = Message::Refused {
        number: 0,
        errno: 1,
        why: long.clone(),
    };
    let Ok(Message::Refused { why, .. }) = Message::decode(&message.encode()) else {
        panic!("a message");
    };
    assert_eq!(why, "ä".repeat(WHY_MAX / 2));
}

fn ip() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<std::net::Ipv4Addr>().prop_map(IpAddr::from),
        any::<Ipv6Addr>().prop_map(IpAddr::from)
    ]
}

/// Any message whose names are short enough to be sent whole.
fn message() -> impl Strategy<Value = Message> {
    let ports = || any::<(u16, u16)>();
    let permit = || {
        let some = (any::<(u32, u16, u64)>(), ".{0,16}");
        let some = some.prop_map(|((user, port, seal), group)| Permit {
            user,
            group,
            port,
            seal,
        });
        proptest::option::of(some)
    };
    let hello = (
        ".{0,16}",
        any::<bool>(),
        any::<(u8, u32, u32)>(),
        (ports(), ports()),
        permit(),
    );
    let hello = hello.prop_map(
        |(name, shared, (cores, member, buffers), (versions, ports), permit)| {
            Message::Hello(Hello {
                versions,
                name,
                mode: [Mode::Isolated, Mode::Shared][usize::from(shared)],
                cores,
                member,
                ports,
                buffers,
                permit,
            })
        },
    );
    let addresses = proptest::collection::vec((ip(), any::<u8>()), 0..=ADDRESSES_MAX);
    let gateways = proptest::collection::vec(ip(), 0..=GATEWAYS_MAX);
    let device = prop_oneof![
        any::<[u8; 6]>().prop_map(Device::Ethernet),
        any::<u16>().prop_map(Device::Portal),
    ];
    let rest = (device, any::<(u16, u32, u16, (bool, bool))>());
    let welcome = (rest, ports(), addresses, gateways, any::<(u32, u32)>());
    let welcome = welcome.prop_map(|(rest, ports, addresses, gateways, loan)| {
        let (device, (version, member, mtu, checksums)) = rest;
        Message::Welcome(Welcome {
            version,
            member,
            device,
            mtu,
            checksums,
            ports,
            addresses,
            gateways,
            loan,
        })
    });
    let claim = (
        any::<(u32, bool, u16)>(),
        0_usize..4,
        ip(),
        ".{0,16}",
        permit(),
    );
    let claim = claim.prop_map(|((number, udp, port), share, ip, group, permit)| {
        Message::Claim(Claim {
            number,
            udp,
            address: SocketAddr::new(ip, port),
            group,
            share: [Share::Alone, Share::Join, Share::Reserve, Share::Left][share],
            permit,
        })
    });
    let memory = any::<(u64, u64)>();
    let rings = any::<(u8, [u64; 4], u8)>();
    let refused = (any::<(u32, i32)>(), ".{0,63}");
    let has = (any::<u32>(), (ip(), ip()), ports());
    prop_oneof![
        hello,
        welcome,
        claim,
        memory.prop_map(|(packets, rings)| Message::Memory { packets, rings }),
        rings.prop_map(|(core, offsets, log2)| Message::Rings {
            core,
            offsets,
            log2
        }),
        refused.prop_map(|((number, errno), why)| Message::Refused { number, errno, why }),
        (any::<(u32, u16)>(), permit()).prop_map(|((number, port), permit)| Message::Granted {
            number,
            port,
            permit,
        }),
        any::<u32>().prop_map(|number| Message::Release { number }),
        any::<u32>().prop_map(|number| Message::Heard { number }),
        has.prop_map(|(number, (local, peer), (at, from))| Message::Has {
            number,
            ends: (SocketAddr::new(local, at), SocketAddr::new(peer, from)),
        }),
        any::<u32>().prop_map(|process| Message::Moves { process }),
    ]
}

proptest! {
    #[test]
    fn any_message_is_read_as_it_was_written(message in message()) {
        let bytes = message.encode();
        prop_assert!(bytes.len() <= LEN_MAX);
        prop_assert_eq!(Message::decode(&bytes), Ok(message));
    }

    /// Random bytes are hardly ever a message; those of a message with some of them changed often are.
    #[test]
    fn a_changed_message_is_another_or_none(
        message in message(),
        changes in proptest::collection::vec(any::<(usize, u8)>(), 1..4),
    ) {
        let mut bytes = message.encode();
        let len = bytes.len();
        for (at, byte) in changes {
            bytes[at % len] = byte;
        }
        if let Ok(message) = Message::decode(&bytes) {
            prop_assert_eq!(message.encode(), bytes);
        }
    }

    #[test]
    fn any_bytes_are_one_message_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(message) = Message::decode(&bytes) {
            prop_assert_eq!(message.encode(), bytes);
        }
    }
}
