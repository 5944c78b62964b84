//! What tshark says of the segments we sent: their checksums, their form, and whether any repeated what the kernel had
//! acknowledged long before. What the kernel sent is its own affair (and its checksums are filled in by no device here).

use janus_io::faults::FaultCounters;

use crate::space::{Captured, Family};
use crate::support::privileged::run_words;

/// Times that acknowledged data was repeated which nothing in the faults explains: of a thousand data segments so many, and
/// always a few. They come of an acknowledgement that the capture saw just before ours was sent.
const SPURIOUS_TIMES_PER_MILLE_MAX: u64 = 2;
const SPURIOUS_TIMES_ALWAYS: u64 = 4;
/// Repeats with fewer than so many other data segments between them are of one time: where the machine let our thread
/// wait for longer than a retransmission timeout, a whole window may follow.
const SAME_TIME: u64 = 8;
/// But of all data segments no more are such repeats than this share, and a window's worth.
const SPURIOUS_PER_MILLE_MAX: u64 = 50;
const SPURIOUS_ALWAYS: u64 = 60;

/// Counts of our segments.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    segments: u64,
    data: u64,
    repeats: u64,
    /// Repeats of what the capture shows to be acknowledged.
    spurious: u64,
    /// At so many times.
    spurious_times: u64,
    /// Data segments since the last of them.
    since_spurious: u64,
    bad_checksum: u64,
    malformed: u64,
    /// First lines of what is wrong.
    examples: Vec<String>,
}

/// Fields asked for, in this order.
const FIELDS: [&str; 7] = [
    "frame.number",
    "tcp.len",
    "tcp.analysis.retransmission",
    "tcp.analysis.spurious_retransmission",
    "tcp.checksum.status",
    "ip.checksum.status",
    "_ws.malformed",
];

/// Has the capture read, and removes it.
pub(crate) fn judge(capture: &Captured, family: Family, faults: &FaultCounters) -> Verdict {
    let file = capture.file.display().to_string();
    let ours = family.addresses().0;
    let filter = match family {
        Family::V4 => format!("ip.src=={ours}"),
        Family::V6 => format!("ipv6.src=={ours}"),
    };
    let check = if capture.whole { "TRUE" } else { "FALSE" };
    let tcp_check = format!("tcp.check_checksum:{check}");
    let mut words = vec!["tshark", "-n", "-r", &file, "-Y", &filter, "-T", "fields"];
    words.extend(["-o", "ip.check_checksum:TRUE", "-o", &tcp_check]);
    words.extend(["-o", "tcp.desegment_tcp_streams:FALSE"]);
    FIELDS.iter().for_each(|field| words.extend(["-e", *field]));
    let text = run_words(&words).expect("a capture that tshark reads");
    let mut verdict = Verdict::default();
    text.lines().for_each(|line| verdict.take(line));
    // One that is not sound stays for whoever looks into it.
    if verdict.is_sound(faults) {
        let _ = std::fs::remove_file(&capture.file);
    } else {
        verdict.examples.insert(0, format!("capture: {file}"));
    }
    verdict
}

impl Verdict {
    fn take(&mut self, line: &str) {
        let fields: Vec<&str> = line.split('\t').collect();
        let has = |index: usize| fields.get(index).is_some_and(|field| !field.is_empty());
        let bad = |index: usize| fields.get(index).is_some_and(|status| *status == "0");
        self.segments += 1;
        self.data += u64::from(fields.get(1).is_some_and(|len| *len != "0"));
        self.repeats += u64::from(has(2));
        self.since_spurious += 1;
        if has(3) {
            self.spurious += 1;
            let first = self.spurious == 1;
            self.spurious_times += u64::from(first || self.since_spurious > SAME_TIME);
            self.since_spurious = 0;
        }
        self.bad_checksum += u64::from(bad(4) || bad(5));
        self.malformed += u64::from(has(6));
        if (has(3) || bad(4) || bad(5) || has(6)) && self.examples.len() < 8 {
            self.examples.push(line.to_owned());
        }
    }

    fn is_sound(&self, faults: &FaultCounters) -> bool {
        // Copies are the faults' own repeats; a lost acknowledgement makes a repeat right; a segment that was overtaken
        // by three others looks lost.
        let explained =
            faults.sent.duplicated.get() + faults.received.lost.get() + faults.sent.reordered.get();
        let times_max =
            explained + SPURIOUS_TIMES_ALWAYS + self.data * SPURIOUS_TIMES_PER_MILLE_MAX / 1_000;
        let spurious_max = explained + SPURIOUS_ALWAYS + self.data * SPURIOUS_PER_MILLE_MAX / 1_000;
        // A busy machine may lose packets for the capture; most must be there for the rest to mean anything.
        self.data > 0
            && self.segments * 2 > faults.sent.passed.get()
            && self.bad_checksum == 0
            && self.malformed == 0
            && self.spurious_times <= times_max
            && self.spurious <= spurious_max
    }

    pub(crate) fn assert_sound(&self, label: &str, faults: &FaultCounters) {
        assert!(self.is_sound(faults), "{label}: {self:?} with {faults:?}");
    }
}
