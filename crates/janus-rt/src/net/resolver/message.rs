//! Queries and answers of the domain name system (RFC 1035 section 4), as far as addresses of names need them. Answers are untrusted:
//! every length is checked, a compression pointer must lead backwards, and records are counted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of the header.
const HEADER: usize = 12;
/// Longest name on the wire, and longest label (RFC 1035 section 2.3.4).
const NAME_MAX: usize = 255;
const LABEL_MAX: usize = 63;
/// Most records of an answer that are read.
const RECORDS_MAX: usize = 64;
/// Most aliases that are followed to an address.
const ALIASES_MAX: usize = 8;
/// Announced limit of an answer over UDP (RFC 6891): fits one packet on every path (the DNS flag day of 2020).
const PAYLOAD_MAX: u16 = 1_232;

const CLASS_IN: u16 = 1;
const CNAME: u16 = 5;
const SOA: u16 = 6;
const OPT: u16 = 41;
/// Least length of an SOA record's data: two names and five numbers.
const SOA_LEAST: usize = 22;

/// Address family of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    fn record(self) -> u16 {
        match self {
            Family::V4 => 1,
            Family::V6 => 28,
        }
    }
}

/// A name that can be queried, in lower case, in wire format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name(Vec<u8>);

impl Name {
    /// Returns `None` for text that is no host name: an empty or too long label, letters beyond ASCII.
    pub(super) fn new(text: &str) -> Option<Name> {
        let mut wire = Vec::with_capacity(text.len() + 2);
        for label in text.strip_suffix('.').unwrap_or(text).split('.') {
            let sound = (1..=LABEL_MAX).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_graphic());
            if !sound {
                return None;
            }
            wire.push(label.len() as u8);
            wire.extend(label.bytes().map(|byte| byte.to_ascii_lowercase()));
        }
        wire.push(0);
        (wire.len() <= NAME_MAX).then_some(Name(wire))
    }
}

/// Outcome of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Addresses, and the seconds for which they hold.
    Addresses(Vec<IpAddr>, u32),
    /// No such name, or no address of this family; with the seconds for which that holds, if its zone says so.
    Nothing(Option<u32>),
    /// Truncated: to be repeated over TCP.
    Truncated,
    /// The server's error code.
    Refused(u8),
}

/// Encodes a query as a whole message.
pub(super) fn question(id: u16, name: &Name, family: Family) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER + name.0.len() + 15);
    out.extend(id.to_be_bytes());
    // Recursion desired; one question, one additional record.
    out.extend([0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 1]);
    out.extend(&name.0);
    out.extend(family.record().to_be_bytes());
    out.extend(CLASS_IN.to_be_bytes());
    out.push(0);
    out.extend(OPT.to_be_bytes());
    out.extend(PAYLOAD_MAX.to_be_bytes());
    out.extend([0; 6]);
    out
}

/// Parses `message` as the answer to the query with this number; `None` when it is not.
pub(super) fn read(message: &[u8], id: u16, name: &Name, family: Family) -> Option<Answer> {
    let header = message.first_chunk::<HEADER>()?;
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let is_answer = header[2] & 0xf8 == 0x80;
    if word(0) != id || !is_answer || word(4) != 1 {
        return None;
    }
    let (asked, at) = read_name(message, HEADER)?;
    let fixed = message.get(at..at + 4)?;
    let of_type = u16::from_be_bytes([fixed[0], fixed[1]]);
    let of_class = u16::from_be_bytes([fixed[2], fixed[3]]);
    if asked != *name || of_type != family.record() || of_class != CLASS_IN {
        return None;
    }
    if header[2] & 0x02 != 0 {
        return Some(Answer::Truncated);
    }
    let no_name = match header[3] & 0x0f {
        0 => false,
        3 => true,
        code => return Some(Answer::Refused(code)),
    };
    let (answers, zones) = (usize::from(word(6)), usize::from(word(8)));
    let records = read_records(message, at + 4, answers);
    if !no_name && let Some((addresses, ttl)) = follow(&records.found, name, family) {
        return Some(Answer::Addresses(addresses, ttl));
    }
    let zones = records.end.map(|end| read_records(message, end, zones));
    Some(Answer::Nothing(
        zones.and_then(|zones| negative(&zones.found)),
    ))
}

/// Returns how long the absence of a name may be cached (RFC 2308 section 5).
fn negative(zones: &[Record<'_>]) -> Option<u32> {
    let zone = zones.iter().find(|record| record.of_type == SOA)?;
    let least = zone.data.last_chunk::<4>()?;
    let sound = zone.data.len() >= SOA_LEAST;
    sound.then(|| zone.ttl.min(seconds(*least)))
}

/// Parses a time to live; one with its highest bit set is zero (RFC 2181 section 8).
fn seconds(bytes: [u8; 4]) -> u32 {
    let ttl = u32::from_be_bytes(bytes);
    if ttl > i32::MAX as u32 { 0 } else { ttl }
}

struct Record<'a> {
    owner: Name,
    of_type: u16,
    ttl: u32,
    data: &'a [u8],
    /// Offset of `data` in the message: names in it may point back.
    at: usize,
    message: &'a [u8],
}

/// Records of the class IN, and the offset of the next one, if all could be parsed.
struct Records<'a> {
    found: Vec<Record<'a>>,
    end: Option<usize>,
}

/// Parses as many records as possible; those behind a broken one are ignored.
fn read_records(message: &[u8], mut at: usize, count: usize) -> Records<'_> {
    let mut found = Vec::new();
    for _ in 0..count.min(RECORDS_MAX) {
        let Some((record, of_class, behind)) = read_record(message, at) else {
            return Records { found, end: None };
        };
        at = behind;
        if of_class == CLASS_IN {
            found.push(record);
        }
    }
    let end = (count <= RECORDS_MAX).then_some(at);
    Records { found, end }
}

fn read_record(message: &[u8], at: usize) -> Option<(Record<'_>, u16, usize)> {
    let (owner, behind) = read_name(message, at)?;
    let fixed = message.get(behind..)?.first_chunk::<10>()?;
    let at = behind + fixed.len();
    let end = at + usize::from(u16::from_be_bytes([fixed[8], fixed[9]]));
    let record = Record {
        owner,
        of_type: u16::from_be_bytes([fixed[0], fixed[1]]),
        ttl: seconds([fixed[4], fixed[5], fixed[6], fixed[7]]),
        data: message.get(at..end)?,
        at,
        message,
    };
    Some((record, u16::from_be_bytes([fixed[2], fixed[3]]), end))
}

/// Returns the addresses of `name`, or of its alias, and how long all of that holds. Records of other names are ignored.
fn follow(records: &[Record<'_>], name: &Name, family: Family) -> Option<(Vec<IpAddr>, u32)> {
    let (mut name, mut ttl) = (name.clone(), u32::MAX);
    for _ in 0..=ALIASES_MAX {
        let own = || records.iter().filter(|record| record.owner == name);
        let mut addresses = Vec::new();
        for (record, address) in own().filter_map(|own| Some((own, own.address(family)?))) {
            addresses.push(address);
            ttl = ttl.min(record.ttl);
        }
        if !addresses.is_empty() {
            return Some((addresses, ttl));
        }
        let alias = own().find(|record| record.of_type == CNAME)?;
        ttl = ttl.min(alias.ttl);
        (name, _) = read_name(alias.message, alias.at)?;
    }
    None
}

impl Record<'_> {
    fn address(&self, family: Family) -> Option<IpAddr> {
        if self.of_type != family.record() {
            return None;
        }
        Some(match family {
            Family::V4 => Ipv4Addr::from(<[u8; 4]>::try_from(self.data).ok()?).into(),
            Family::V6 => Ipv6Addr::from(<[u8; 16]>::try_from(self.data).ok()?).into(),
        })
    }
}

/// Parses a name at `at`; returns it with the offset behind it.
fn read_name(message: &[u8], at: usize) -> Option<(Name, usize)> {
    let (mut wire, mut at, mut behind) = (Vec::new(), at, None);
    loop {
        let len = *message.get(at)?;
        match len {
            0 => {
                wire.push(0);
                return Some((Name(wire), behind.unwrap_or(at + 1)));
            }
            1..=63 => {
                let label = message.get(at + 1..at + 1 + usize::from(len))?;
                wire.push(len);
                wire.extend(label.iter().map(u8::to_ascii_lowercase));
                if wire.len() >= NAME_MAX {
                    return None;
                }
                at += 1 + label.len();
            }
            0xc0.. => {
                let to = usize::from(len & 0x3f) << 8 | usize::from(*message.get(at + 1)?);
                behind = behind.or(Some(at + 2));
                // Backwards only, so that the loop ends.
                if to >= at {
                    return None;
                }
                at = to;
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer with these records: owner, type, data.
    fn answer(id: u16, name: &Name, family: Family, records: &[(&[u8], u16, &[u8])]) -> Vec<u8> {
        let mut out = question(id, name, family);
        out.truncate(HEADER + name.0.len() + 4);
        out[2] |= 0x80;
        out[6..8].copy_from_slice(&(records.len() as u16).to_be_bytes());
        out[10..12].copy_from_slice(&[0, 0]);
        for (owner, of_type, data) in records {
            out.extend(*owner);
            out.extend(of_type.to_be_bytes());
            out.extend(CLASS_IN.to_be_bytes());
            out.extend([0, 0, 0, 60]);
            out.extend((data.len() as u16).to_be_bytes());
            out.extend(*data);
        }
        out
    }

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    /// Points at the question's name.
    const ASKED: &[u8] = &[0xc0, 12];
    const NOTHING: Answer = Answer::Nothing(None);
    /// Where the time to live of an answer's first record stands behind the question.
    const FIRST_TTL: usize = 6;

    #[test]
    fn an_answer_holds_as_long_as_what_led_to_it() {
        let asked = name("www.example.com");
        let target = name("a.example.net").0;
        let records: [(&[u8], u16, &[u8]); 2] =
            [(ASKED, CNAME, &target), (&target, 1, &[192, 0, 2, 7])];
        let mut message = answer(5, &asked, Family::V4, &records);
        let addresses = vec![IpAddr::from([192, 0, 2, 7])];
        let at = HEADER + asked.0.len() + 4 + FIRST_TTL;
        for (ttl, holds) in [(600, 60), (7, 7), (0, 0), (1 << 31, 0)] {
            message[at..at + 4].copy_from_slice(&u32::to_be_bytes(ttl));
            let got = read(&message, 5, &asked, Family::V4);
            assert_eq!(got, Some(Answer::Addresses(addresses.clone(), holds)));
        }
    }

    #[test]
    fn nothing_holds_as_long_as_its_zone_says() {
        let asked = name("none.example");
        // An alias of something without addresses, and behind it, among the authorities, the zone.
        let mut zone = [0; SOA_LEAST];
        zone[SOA_LEAST - 1] = 40;
        let elsewhere = name("x.example").0;
        let records: [(&[u8], u16, &[u8]); 2] = [(ASKED, CNAME, &elsewhere), (ASKED, SOA, &zone)];
        let mut message = answer(5, &asked, Family::V4, &records);
        (message[7], message[9]) = (1, 1);
        let nothing = |message: &[u8]| read(message, 5, &asked, Family::V4);
        assert_eq!(nothing(&message), Some(Answer::Nothing(Some(40))));
        message[3] = 3;
        assert_eq!(nothing(&message), Some(Answer::Nothing(Some(40))));
        let len = message.len();
        // The record's own time, where that is shorter: 60 seconds here.
        message[len - 1] = 200;
        assert_eq!(nothing(&message), Some(Answer::Nothing(Some(60))));
        // Cut short, or not among the authorities, it says nothing.
        assert_eq!(nothing(&message[..len - 1]), Some(NOTHING));
        (message[7], message[9]) = (2, 0);
        assert_eq!(nothing(&message), Some(NOTHING));
    }

    #[test]
    fn addresses_come_out_of_an_answer_through_its_aliases() {
        let asked = name("www.Example.com.");
        let target = name("a.example.net").0;
        let records: [(&[u8], u16, &[u8]); 4] = [
            (&target, 1, &[192, 0, 2, 7]),
            (ASKED, CNAME, &target),
            // Of somebody else: not asked for.
            (&name("b.example.net").0, 1, &[192, 0, 2, 66]),
            (&target, 1, &[192, 0, 2, 8]),
        ];
        let message = answer(5, &asked, Family::V4, &records);
        let got = read(&message, 5, &asked, Family::V4).unwrap();
        let expected = ["192.0.2.7", "192.0.2.8"].map(|text| text.parse().unwrap());
        assert_eq!(got, Answer::Addresses(expected.to_vec(), 60));
    }

    #[test]
    fn both_families_have_their_records() {
        let asked = name("six.example");
        let address = "2001:db8::7".parse::<Ipv6Addr>().unwrap();
        let records: [(&[u8], u16, &[u8]); 2] =
            [(ASKED, 28, &address.octets()), (ASKED, 1, &[192, 0, 2, 1])];
        let message = answer(1, &asked, Family::V6, &records);
        let got = read(&message, 1, &asked, Family::V6).unwrap();
        assert_eq!(got, Answer::Addresses(vec![address.into()], 60));
    }

    #[test]
    fn what_is_no_answer_to_the_question_is_not_believed() {
        let asked = name("a.example");
        let records: [(&[u8], u16, &[u8]); 1] = [(ASKED, 1, &[192, 0, 2, 1])];
        let good = answer(7, &asked, Family::V4, &records);
        assert!(read(&good, 7, &asked, Family::V4).is_some());
        assert!(read(&good, 8, &asked, Family::V4).is_none());
        assert!(read(&good, 7, &name("b.example"), Family::V4).is_none());
        assert!(read(&good, 7, &asked, Family::V6).is_none());
        let mut a_question = good.clone();
        a_question[2] &= 0x7f;
        assert!(read(&a_question, 7, &asked, Family::V4).is_none());
        for len in 0..good.len() {
            // Cut anywhere: no panic, and never an address.
            let cut = read(&good[..len], 7, &asked, Family::V4);
            assert!(cut.is_none_or(|got| got == NOTHING));
        }
    }

    #[test]
    fn failures_say_which() {
        let asked = name("a.example");
        let mut message = answer(7, &asked, Family::V4, &[]);
        for (code, expected) in [(3, NOTHING), (2, Answer::Refused(2))] {
            message[3] = code;
            assert_eq!(read(&message, 7, &asked, Family::V4), Some(expected));
        }
        message[2] |= 0x02;
        let truncated = read(&message, 7, &asked, Family::V4);
        assert_eq!(truncated, Some(Answer::Truncated));
    }

    #[test]
    fn circles_end() {
        let asked = name("a.example");
        // An alias of itself, and names whose pointers lead to themselves or forwards.
        let own = asked.0.clone();
        let looping: [(&[u8], u16, &[u8]); 1] = [(ASKED, CNAME, &own)];
        let message = answer(7, &asked, Family::V4, &looping);
        let got = read(&message, 7, &asked, Family::V4);
        assert_eq!(got, Some(NOTHING));
        let end = HEADER + asked.0.len() + 4;
        for pointer in [[0xc0, end as u8], [0xc0, end as u8 + 2], [0xff, 0xff]] {
            let mut message = message.clone();
            message[end..end + 2].copy_from_slice(&pointer);
            let got = read(&message, 7, &asked, Family::V4);
            assert_eq!(got, Some(NOTHING));
        }
    }

    #[test]
    fn names_are_checked() {
        for wrong in [
            "",
            ".",
            "a..b",
            "ä.example",
            "a b",
            &"x".repeat(64),
            &"abc.".repeat(70),
        ] {
            assert!(Name::new(wrong).is_none(), "{wrong}");
        }
        assert_eq!(name("A.b."), name("a.B"));
    }
}
