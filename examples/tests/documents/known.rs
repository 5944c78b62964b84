//! Table of the blocks and lines that need something, and of those that are not run, with the reason. Every other line is run as it
//! stands and must succeed.

use crate::blocks::Block;

/// Requirement of a block.
pub(crate) enum Need {
    /// Root, and a network namespace of the block's own.
    Root,
    /// Root, a namespace, and the part of the machine that `janus doctor` reports under this name.
    Part(&'static str),
    /// A program. Without it the block is skipped, which `JANUS_PRIVILEGED=1` makes a failure.
    Program(&'static str),
    /// A program that is optional everywhere: without it the block is not run.
    Optional(&'static str),
    /// A build: only with `JANUS_DOCUMENTS=full`.
    Full,
    /// Cannot be met by any test, for this reason.
    Never(&'static str),
}

/// Entry for a block of commands.
pub(crate) struct Known {
    pub(crate) file: &'static str,
    /// The beginning of the block's text.
    pub(crate) begins: &'static str,
    pub(crate) needs: &'static [Need],
    /// Commands that set up what the document assumes.
    pub(crate) given: &'static str,
}

impl Known {
    pub(crate) fn is(&self, block: &Block) -> bool {
        block.file == self.file && block.text.starts_with(self.begins)
    }
}

pub(crate) const BLOCKS: &[Known] = &[
    Known {
        file: "README.md",
        begins: "JANUS_BACKEND=tap",
        needs: &[Need::Part("TAP device")],
        given: "",
    },
    Known {
        file: "docs/c.md",
        begins: "crates/janus-c/install.sh",
        needs: &[
            Need::Full,
            Need::Program("gcc"),
            Need::Program("pkg-config"),
        ],
        given: "",
    },
    Known {
        file: "docs/conformance-suites.md",
        begins: "git clone",
        needs: &[Need::Never("fetches and builds another project")],
        given: "",
    },
    Known {
        file: "docs/processes.md",
        begins: "cargo build --release -p janus-cli",
        needs: &[Need::Program("curl")],
        given: "",
    },
    Known {
        file: "docs/processes.md",
        begins: "ip tuntap add dev janus0",
        needs: &[Need::Part("TAP device"), Need::Program("curl")],
        given: "",
    },
    Known {
        file: "docs/processes.md",
        begins: "docker compose",
        needs: &[Need::Never(
            "fetches images; deploy.rs runs the daemon and a member as the containers would",
        )],
        given: "",
    },
    Known {
        file: "docs/programs.md",
        begins: "cargo build --release -p janus-cli -p janus-preload",
        needs: &[Need::Never(
            "starts a server that serves on; tests/programs does this with each program",
        )],
        given: "",
    },
    Known {
        file: "docs/metrics.md",
        begins: "JANUS_ADMIN=9464",
        needs: &[Need::Program("curl")],
        given: "",
    },
    Known {
        file: "docs/deploying.md",
        begins: "cargo build",
        needs: &[
            Need::Part("TAP device"),
            Need::Program("setcap"),
            Need::Program("setpriv"),
        ],
        given: "",
    },
    Known {
        file: "docs/deploying.md",
        begins: "sudo install",
        needs: &[Need::Never(
            "installs into the machine and needs systemd as process 1; deploy.rs verifies the unit",
        )],
        given: "",
    },
    Known {
        file: "docs/deploying.md",
        begins: "docker build",
        needs: &[Need::Never(
            "fetches images; deploy.rs runs the program as the image would",
        )],
        given: "",
    },
    Known {
        file: "docs/deploying.md",
        begins: "docker compose",
        needs: &[Need::Never("fetches images; deploy.rs reads the files")],
        given: "",
    },
    Known {
        file: "docs/deploying.md",
        begins: "kubectl apply",
        needs: &[Need::Never("needs a cluster; deploy.rs reads the file")],
        given: "",
    },
    Known {
        file: "docs/dpdk.md",
        begins: "apt install",
        needs: &[Need::Full, Need::Root, Need::Program("curl")],
        given: "",
    },
    Known {
        file: "docs/dpdk.md",
        begins: "ip address add 198.51.100.7/24",
        needs: &[Need::Root],
        given: "ip link add jx0 type veth peer name other\nip link set jx0 up\nip link set other up\n",
    },
    Known {
        file: "docs/packetdrill.md",
        begins: "cargo build -p janus-packetdrill",
        needs: &[Need::Full, Need::Root, Need::Optional("packetdrill")],
        given: "",
    },
    Known {
        file: "docs/xdp.md",
        begins: "ip netns add far",
        needs: &[Need::Part("AF_XDP"), Need::Program("curl")],
        given: "",
    },
];

/// Treatment of one line.
pub(crate) enum Line {
    /// Starts a server, requests `/` at the address it prints, expects this text in the answer, and ends the server by SIGTERM
    /// with exit code 0.
    Serves(&'static str),
    /// Like `Serves`, run by a user without privileges.
    ServesNobody(&'static str),
    /// Not run, for this reason.
    Never(&'static str),
}

const HELLO: &str = "hello from Janus";

pub(crate) const LINES: &[(&str, Line)] = &[
    ("cargo run --release --example hello", Line::Serves(HELLO)),
    (
        "JANUS_BACKEND=tap JANUS_ADDRESS=192.0.2.1/24 cargo run --release --example hello",
        Line::Serves(HELLO),
    ),
    (
        "JANUS_FAULTS_LOSS=1% JANUS_FAULTS_DELAY_MS=20 JANUS_FAULTS_RATE_KBIT=10000 cargo run --release --example hello",
        Line::Serves(HELLO),
    ),
    (
        "JANUS_BACKEND=tap JANUS_ADDRESS=192.0.2.1/24 target/release/examples/hello",
        Line::ServesNobody(HELLO),
    ),
    ("cargo test --workspace", Line::Never("is what runs this")),
    (".ci/run", Line::Never("runs what runs this")),
    (
        "apt install libdpdk-dev pkg-config",
        Line::Never("installs into the machine"),
    ),
];

/// Blocks that are neither programs nor commands: document, beginning of the text, description.
pub(crate) const TEXTS: &[(&str, &str, &str)] = &[
    (
        "docs/programs.md",
        "export JANUS_BACKEND=none",
        "runs the tests of Python, which take some minutes and which no other test needs",
    ),
    ("ARCHITECTURE.md", "  TAP", "a picture"),
    ("docs/processes.md", "   device", "a picture"),
    (
        "docs/processes.md",
        "janus daemon 4711",
        "a table whose figures are made up; crates/janus-cli/tests/members.rs has a real one",
    ),
    ("README.md", "            packets", "a picture"),
    ("ARCHITECTURE.md", "a connection at rest:", "a table"),
    ("docs/configuration.md", "expression", "a grammar"),
    (
        "docs/packetdrill.md",
        "+0     poll",
        "single lines of scripts: each call has a script under tests/packetdrill",
    ),
    ("docs/packetdrill.md", "--so_flags", "one line of a script"),
    (
        "docs/packetdrill.md",
        "tests/packetdrill/loss",
        "what a script that fails says",
    ),
    (
        "docs/sizing.md",
        "bytes = ",
        "a formula: sizing.rs checks it",
    ),
    (
        "docs/sizing.md",
        "packet_buffers = ",
        "a formula: sizing.rs checks it",
    ),
    (
        "docs/sizing.md",
        "cores = ",
        "a formula: sizing.rs checks it",
    ),
];
