//! Whether the packet that came is the packet expected, and if not, in what. Every difference is named, not only the
//! first. What never lives here: time (`run`), translation between number spaces (`flow`).

use super::flow::Flow;
use crate::script::{Packet, Settings, TosSpec};
use crate::segment::{Segment, TcpOption};

/// The bits a demand on the type of service asks for, for a packet that is made from it.
pub(super) fn tos_byte(spec: TosSpec) -> u8 {
    match spec {
        TosSpec::Ecn(bits) | TosSpec::Tos(bits) => bits,
        TosSpec::Ect01 => 2,
    }
}

fn tos_fits(spec: TosSpec, tos: u8) -> bool {
    match spec {
        TosSpec::Ecn(bits) => tos & 3 == bits,
        TosSpec::Ect01 => matches!(tos & 3, 1 | 2),
        TosSpec::Tos(whole) => tos == whole,
    }
}

/// In what `actual`, in the script's numbers, differs from `expected`.
pub(super) fn differences(
    expected: &Packet,
    actual: &Segment,
    flow: &Flow,
    settings: &Settings,
    as_packetdrill: bool,
) -> Vec<String> {
    let mut found = Vec::new();
    let mut field = |name: &str, expected: String, actual: String| {
        if expected != actual {
            found.push(format!("{name}: expected {expected}, actual {actual}"));
        }
    };
    field(
        "flags",
        expected.flags.to_string(),
        actual.flags.to_string(),
    );
    field(
        "sequence number",
        expected.seq.to_string(),
        actual.seq.to_string(),
    );
    field(
        "payload length",
        expected.len.to_string(),
        actual.payload.len().to_string(),
    );
    let ack = expected.ack.unwrap_or(0);
    field("ack", ack.to_string(), actual.ack.to_string());
    if let Some(window) = expected.window {
        field("window", window.to_string(), actual.window.to_string());
    }
    field(
        "urgent pointer",
        expected.urgent.unwrap_or(0).to_string(),
        actual.urgent.to_string(),
    );
    if let Some(ttl) = expected.ip.ttl {
        field("time to live", ttl.to_string(), actual.ttl.to_string());
    }
    if let Some(spec) = expected.ip.tos
        && !tos_fits(spec, actual.tos)
    {
        found.push(format!(
            "type of service: expected {}, actual {:#04x}",
            expected.ip, actual.tos
        ));
    }
    if let Some(options) = &expected.options {
        let echoes = !as_packetdrill;
        compare_options(options, &actual.options, (settings, echoes), &mut found);
    }
    compare_payload(actual, flow, &mut found);
    found
}

fn list(options: &[TcpOption]) -> String {
    let each: Vec<String> = options.iter().map(TcpOption::to_string).collect();
    format!("<{}>", each.join(","))
}

/// Options are compared in order, padding included. TSval only when the script says how long a tick is.
fn compare_options(
    expected: &[TcpOption],
    actual: &[TcpOption],
    (settings, echoes): (&Settings, bool),
    found: &mut Vec<String>,
) {
    let same = |pair: (&TcpOption, &TcpOption)| match pair {
        (
            TcpOption::Timestamps { val: e, ecr: e_ecr },
            TcpOption::Timestamps { val: a, ecr: a_ecr },
        ) => {
            let off = u64::from((a.wrapping_sub(*e) as i32).unsigned_abs());
            (e_ecr == a_ecr || !echoes)
                && off * settings.timestamp_tick_micros <= settings.tolerance_micros
        }
        (expected, actual) => expected == actual,
    };
    if expected.len() != actual.len() || !expected.iter().zip(actual).all(same) {
        found.push(format!(
            "options: expected {}, actual {}",
            list(expected),
            list(actual)
        ));
    }
}

/// The bytes must be those that the application wrote at that place of its stream.
fn compare_payload(actual: &Segment, flow: &Flow, found: &mut Vec<String>) {
    if actual.payload.is_empty() {
        return;
    }
    match flow.written_at(actual.seq, actual.payload.len()) {
        Some(written) => {
            let wrong = written
                .iter()
                .zip(&actual.payload)
                .position(|(expected, actual)| expected != actual);
            if let Some(at) = wrong {
                let seq = actual.seq.wrapping_add(at as u32);
                found.push(format!(
                    "payload: the byte at {seq} is not the one that was written there"
                ));
            }
        }
        None => found.push("payload: these bytes were never written".into()),
    }
}
