//! What the load is told by variables of the environment.

use std::env::var;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use janus_wire::MacAddr;

use crate::support::far::App;
use crate::support::far::packet::Ends;

/// The first end of a wire.
const SERVER_MAC: MacAddr = MacAddr([2, b'J', b'a', b'n', b'u', 1]);

pub(crate) struct Settings {
    pub ends: Ends,
    pub app: App,
    /// Connections, or those that are under way at a time.
    pub connections: u32,
    /// A connection for each request.
    pub close: bool,
    pub rounds: u32,
    pub round: Duration,
    pub processor: usize,
    /// Appears when all has been measured.
    pub results: PathBuf,
}

fn number(name: &str) -> u32 {
    let text = var(name).unwrap_or_default();
    text.parse()
        .unwrap_or_else(|_| panic!("{name} is {text:?} and no number"))
}

fn bytes(name: &str) -> Vec<u8> {
    let path = var(name).unwrap_or_default();
    fs::read(&path).unwrap_or_else(|error| panic!("{name} is {path:?}: {error}"))
}

impl Settings {
    pub(crate) fn are_there() -> bool {
        var("GENERATOR_RESULTS").is_ok()
    }

    /// Ends the program, with a sentence, where one is missing or wrong.
    pub(crate) fn read() -> Settings {
        let mut ends = Ends {
            server_mac: SERVER_MAC,
            ..Ends::default()
        };
        ends.server.set_port(number("GENERATOR_PORT") as u16);
        Settings {
            ends,
            // Files with a request, and how each answer begins and ends.
            app: App::Http {
                request: bytes("GENERATOR_REQUEST"),
                start: bytes("GENERATOR_START"),
                end: bytes("GENERATOR_END"),
            },
            connections: number("GENERATOR_CONNECTIONS"),
            close: number("GENERATOR_CLOSE") == 1,
            rounds: number("GENERATOR_ROUNDS"),
            round: Duration::from_millis(number("GENERATOR_ROUND_MS").into()),
            processor: number("GENERATOR_PROCESSOR") as usize,
            results: var("GENERATOR_RESULTS").unwrap_or_default().into(),
        }
    }
}
