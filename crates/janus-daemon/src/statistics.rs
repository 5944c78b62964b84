//! Statistics of a daemon and of each of its members, as any process reads them from the file beside the daemon's socket: the meaning of that
//! file's words. The file's form, and how a row is never seen in part, is `janus_shm::Board`'s.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use janus_io::Counter;
use janus_shm::{Copied, Form, NAME_MAX};

use crate::{Counters, MEMBERS_MAX};

/// Ports of a member that are shown by number.
pub(crate) const PORTS_SHOWN: usize = 16;
/// Words of a member before its ports and its name.
const NUMBERS: usize = 16;
const NAME_AT: usize = NUMBERS + PORTS_SHOWN;
const WORDS: usize = NAME_AT + NAME_MAX / 8;
/// Words of the daemon's row behind its process and its beginning.
const COUNTERS: usize = 23;
/// In the word of a port: it is one of UDP.
const UDP: u64 = 1 << 16;

/// The daemon's row, and one for each member's place. Whoever changes a word's meaning raises the version.
pub(crate) const FORM: Form = Form {
    version: 2,
    rows: 1 + MEMBERS_MAX as u32,
    words: WORDS as u32,
};

/// Words of a row.
pub(crate) type Row = [u64; WORDS];

/// Frames one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Number of frames.
    pub frames: u64,
    /// Their bytes, with link headers.
    pub bytes: u64,
}

impl Traffic {
    #[inline]
    pub(crate) fn add(&mut self, len: usize) {
        self.frames += 1;
        self.bytes += len as u64;
    }
}

/// Statistics of a daemon, copied from its file at one moment.
#[derive(Debug)]
#[non_exhaustive]
pub struct Statistics {
    /// Whether the daemon lives, be it stopped. Else these are its last figures, as a daemon that was killed leaves them.
    pub is_running: bool,
    /// Number of its process, in the namespace that it is in.
    pub process: u32,
    /// When it began.
    pub since: SystemTime,
    /// Counts of all members together, those that are gone included.
    pub counters: Counters,
    /// Programs that have joined, in the order of their places.
    pub members: Vec<MemberStatistics>,
}

/// Statistics of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberStatistics {
    /// Name that it gave itself.
    pub name: String,
    /// Number by which this daemon and the next know it.
    pub identity: u32,
    /// Number of its user.
    pub user: u32,
    /// Number of its process; 0 if that is in a namespace where the daemon sees none.
    pub process: u32,
    /// Number of its cores.
    pub cores: u32,
    /// When it asked to be taken in.
    pub since: SystemTime,
    /// Frames that it was given.
    pub received: Traffic,
    /// Frames that it sent to others, without those that were refused or over its user's rate.
    pub sent: Traffic,
    /// Frames that it had no buffer for.
    pub lost_no_buffer: u64,
    /// Frames that it may not send.
    pub refused: u64,
    /// Frames over its user's rate.
    pub limited: u64,
    /// Buffers that it has given and that hold nothing yet.
    pub buffers: u64,
    /// Bytes of its own memory for packets; 0: it borrows the daemon's.
    pub memory: u64,
    /// Number of ports that it has claimed, by listening or by sending from them. Its block for connections that it begins is apart.
    pub ports: u64,
    /// The first of those that it listens at or has bound, of TCP: 16 of both protocols at most.
    pub tcp_ports: Vec<u16>,
    /// Likewise, of UDP.
    pub udp_ports: Vec<u16>,
}

impl Counters {
    /// All counters with their names, in the order in which the file has them.
    #[must_use]
    pub fn all(&self) -> [(&'static str, &Counter); COUNTERS] {
        macro_rules! all {
            ($($name:ident,)+) => {{
                // A counter that is missing here does not compile.
                let Counters { $($name,)+ } = self;
                [$((stringify!($name), $name),)+]
            }};
        }
        all!(
            to_members,
            from_members,
            inside,
            to_keeper,
            lost_no_buffer,
            lost_full,
            lost_unknown,
            lost_reserved,
            turned_back,
            refused,
            limited,
            uncopied,
            lent,
            returned,
            left_open,
            begun,
            ended,
            asked,
            told,
            joined,
            left,
            died,
            cut_off,
        )
    }
}

impl Statistics {
    /// The file of the daemon that listens at this socket.
    #[must_use]
    pub fn path_of(socket: &Path) -> PathBuf {
        let mut path = socket.as_os_str().to_owned();
        path.push(".stats");
        path.into()
    }

    /// Copies what the file at this path shows. The daemon is not asked, and may be stopped.
    ///
    /// # Errors
    /// NotFound if there is no such file, InvalidData if it is no daemon's of this version. The text says what is wrong with which file.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Statistics> {
        let copied = Copied::of(path.as_ref(), FORM)?;
        let row =
            |at: usize| <&Row>::try_from(copied.row(at)).expect("the form says how long a row is");
        let [process, since, counts @ ..] = row(0);
        let counters = Counters::default();
        for ((_, counter), count) in counters.all().into_iter().zip(counts) {
            counter.set(*count);
        }
        Ok(Statistics {
            is_running: copied.is_written,
            process: *process as u32,
            since: from_millis(*since),
            counters,
            members: (1..FORM.rows as usize)
                .filter_map(|at| MemberStatistics::of(row(at)))
                .collect(),
        })
    }

    /// The daemon's row.
    pub(crate) fn row(process: u32, since: u64, counters: &Counters) -> Row {
        let mut row = [0; WORDS];
        let counts = counters.all().map(|(_, counter)| counter.get());
        let words = [process.into(), since].into_iter().chain(counts);
        row.iter_mut().zip(words).for_each(|(at, word)| *at = word);
        row
    }
}

impl MemberStatistics {
    /// Of a member's row. `None`: there is none in this place. Whatever the words are, they are some figures.
    fn of(row: &Row) -> Option<MemberStatistics> {
        let (numbers, rest) = row.split_first_chunk::<NUMBERS>()?;
        let (ports_shown, name) = rest.split_at(PORTS_SHOWN);
        let [
            is_there,
            identity,
            user,
            process,
            cores,
            since,
            frames_in,
            bytes_in,
            frames_out,
            bytes_out,
            lost_no_buffer,
            refused,
            limited,
            buffers,
            memory,
            ports,
        ] = *numbers;
        if is_there == 0 {
            return None;
        }
        let ports_of = |udp: u64| {
            let shown = ports_shown.iter();
            let mut all: Vec<u16> = shown
                .filter(|it| **it & UDP == udp && **it as u16 != 0)
                .map(|it| *it as u16)
                .collect();
            all.sort_unstable();
            // Each core that listens has claimed it.
            all.dedup();
            all
        };
        let name: Vec<u8> = name.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let end = name.iter().position(|byte| *byte == 0);
        let name = String::from_utf8_lossy(&name[..end.unwrap_or(name.len())]);
        Some(MemberStatistics {
            name: name.into_owned(),
            identity: identity as u32,
            user: user as u32,
            process: process as u32,
            cores: cores as u32,
            since: from_millis(since),
            received: Traffic {
                frames: frames_in,
                bytes: bytes_in,
            },
            sent: Traffic {
                frames: frames_out,
                bytes: bytes_out,
            },
            lost_no_buffer,
            refused,
            limited,
            buffers,
            memory,
            ports,
            tcp_ports: ports_of(0),
            udp_ports: ports_of(UDP),
        })
    }

    /// A member's row, but for its first ports and its name.
    pub(crate) fn row(&self, ports: impl Iterator<Item = (bool, u16)>, name: &str) -> Row {
        let mut row = [0; WORDS];
        let numbers: [u64; NUMBERS] = [
            1,
            self.identity.into(),
            self.user.into(),
            self.process.into(),
            self.cores.into(),
            to_millis(self.since),
            self.received.frames,
            self.received.bytes,
            self.sent.frames,
            self.sent.bytes,
            self.lost_no_buffer,
            self.refused,
            self.limited,
            self.buffers,
            self.memory,
            self.ports,
        ];
        row[..NUMBERS].copy_from_slice(&numbers);
        let shown = row[NUMBERS..NAME_AT].iter_mut();
        for (word, (udp, number)) in shown.zip(ports) {
            *word = u64::from(number) | if udp { UDP } else { 0 };
        }
        let mut bytes = [0; NAME_MAX];
        for (at, byte) in bytes.iter_mut().zip(name.bytes()) {
            *at = byte;
        }
        for (word, eight) in row[NAME_AT..].iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_ne_bytes(*eight);
        }
        row
    }
}

pub(crate) fn to_millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |it| it.as_millis() as u64)
}

pub(crate) fn from_millis(millis: u64) -> SystemTime {
    let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis));
    time.unwrap_or(SystemTime::UNIX_EPOCH)
}

/// All fit.
const _: () = assert!(2 + COUNTERS <= WORDS);

#[cfg(test)]
mod tests;
