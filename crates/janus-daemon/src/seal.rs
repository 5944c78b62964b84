//! Proofs that a member may leave a port to others: workers that it forks give up its user's rights, and are to listen there all the same. The key to
//! them is in a file that only the daemon's user may read, so that they are good with the next daemon too.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use janus_shm::{NAME_MAX, Permit};
use janus_wire::siphash::siphash_2_4;
use rustix::fs::OFlags;
use rustix::process::geteuid;

const KEY: usize = 16;

pub(crate) struct Seals {
    key: (u64, u64),
}

impl Seals {
    /// With the key of the daemon before, or one that is random.
    pub(crate) fn open(socket: &Path) -> io::Result<Seals> {
        let path = socket.with_added_extension("key");
        let key = match read(&path) {
            Some(key) => key,
            None => create(&path)?,
        };
        let (first, second) = key.split_at(KEY / 2);
        let word = |half: &[u8]| u64::from_ne_bytes(half.try_into().expect("half of a key"));
        Ok(Seals {
            key: (word(first), word(second)),
        })
    }

    fn seal(&self, user: u32, group: &str, port: u16) -> u64 {
        const WORDS: usize = NAME_MAX / 8;
        let mut name = [0; NAME_MAX];
        name[..group.len()].copy_from_slice(group.as_bytes());
        let mut words = [0; WORDS + 2];
        (words[0], words[1]) = (u64::from(user) << 16 | u64::from(port), group.len() as u64);
        for (word, bytes) in words[2..].iter_mut().zip(name.as_chunks().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        siphash_2_4(self.key, words)
    }

    pub(crate) fn permit(&self, user: u32, group: &str, port: u16) -> Permit {
        Permit {
            user,
            group: group.to_owned(),
            port,
            seal: self.seal(user, group, port),
        }
    }

    /// Whether a daemon here has given it.
    pub(crate) fn is_ours(&self, it: &Permit) -> bool {
        it.group.len() <= NAME_MAX && self.seal(it.user, &it.group, it.port) == it.seal
    }
}

/// The key, if the file is this user's and others may not read it.
fn read(path: &Path) -> Option<[u8; KEY]> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path);
    let mut file = opened.ok()?;
    let its = file.metadata().ok()?;
    let mut key = [0; KEY];
    let is_safe = its.is_file() && its.uid() == geteuid().as_raw() && its.mode() & 0o077 == 0;
    (is_safe && file.read_exact(&mut key).is_ok()).then_some(key)
}

fn create(path: &Path) -> io::Result<[u8; KEY]> {
    let says = |error: io::Error| {
        let text = format!("the key {} cannot be made: {error}", path.display());
        io::Error::new(error.kind(), text)
    };
    let mut key = [0; KEY];
    File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut key))?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(says(error)),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(0o600).open(path);
    opened
        .and_then(|mut file| file.write_all(&key))
        .map_err(says)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_seal_is_good_for_its_port_group_and_user_and_with_the_next_daemon() {
        let socket = std::env::temp_dir().join(format!("janus-seal-{}", std::process::id()));
        let seals = Seals::open(&socket).unwrap();
        let permit = seals.permit(0, "web", 80);
        assert!(Seals::open(&socket).unwrap().is_ours(&permit));
        let changed = [
            Permit {
                user: 1,
                ..permit.clone()
            },
            Permit {
                group: "web\0".into(),
                ..permit.clone()
            },
            Permit {
                port: 81,
                ..permit.clone()
            },
            Permit {
                seal: permit.seal ^ 1,
                ..permit.clone()
            },
        ];
        assert!(changed.iter().all(|it| !seals.is_ours(it)));

        let key = socket.with_added_extension("key");
        assert_eq!(fs::metadata(&key).unwrap().mode() & 0o777, 0o600);
        fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
        let next = Seals::open(&socket).unwrap();
        assert!(!next.is_ours(&permit), "others have read the key");
        assert_eq!(fs::metadata(&key).unwrap().mode() & 0o777, 0o600);
        fs::write(&key, "short").unwrap();
        assert!(Seals::open(&socket).is_ok());
        fs::remove_file(key).unwrap();
    }
}
