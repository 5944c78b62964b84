//! A forecast for a program on Janus, from its file and from those of the libraries that it loads.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::elf::Elf;

/// Bits of a mode with which a program runs as somebody else: its loader takes no library from the environment then.
const SET_ID: u32 = 0o6000;

/// A program that was looked at.
pub(crate) struct Program {
    path: PathBuf,
    /// Why its sockets cannot be seen, if they cannot.
    pub(crate) unseen: Option<String>,
    /// Names that it and its libraries, libc apart, want from others.
    wants: BTreeSet<String>,
    libraries: Vec<String>,
    raw_calls: usize,
}

/// Names of libc's, and what becomes of them.
const NOTES: &[(&[&str], &str)] = &[
    (
        &[
            "fork",
            "vfork",
            "daemon",
            "posix_spawn",
            "posix_spawnp",
            "system",
            "popen",
        ],
        "it starts children: they run as ever, but have none of its connections; a server that accepts in children does not work",
    ),
    (
        &["daemon"],
        "it may send itself to the background: start it in the foreground",
    ),
    (
        &["splice", "tee", "vmsplice"],
        "it may splice: that is refused for sockets of Janus's, and most programs then copy",
    ),
    (
        &["sendfile", "sendfile64"],
        "it sends files: they are read and sent, which is a copy more than the kernel makes",
    ),
    (
        &["dprintf", "vdprintf", "__dprintf_chk", "__vdprintf_chk"],
        "it may print to a descriptor by dprintf: on a socket of Janus's that fails, as it goes past every library",
    ),
    (
        &["io_uring_setup", "io_uring_queue_init"],
        "it may use io_uring: it is told that there is none",
    ),
];

/// Names by which sockets are waited for.
const WAITS: &[&str] = &[
    "epoll_wait",
    "epoll_pwait",
    "poll",
    "ppoll",
    "__poll_chk",
    "select",
    "pselect",
];

impl Program {
    /// Looks at a program, which is a path or a name that the shell would find.
    ///
    /// # Errors
    /// When there is no such file, or it cannot be read.
    pub(crate) fn look(name: &str) -> janus::Result<Program> {
        let path = find(name).ok_or_else(|| format!("there is no program `{name}`"))?;
        let bytes = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut program = Program {
            unseen: None,
            wants: BTreeSet::new(),
            libraries: Vec::new(),
            raw_calls: 0,
            path,
        };
        match Elf::read(&bytes) {
            Some(elf) => program.look_into(elf)?,
            None if bytes.starts_with(b"#!") => program.look_at_interpreter(&bytes)?,
            None => program.unseen = Some("it is no program for this machine".into()),
        }
        Ok(program)
    }

    /// A script: what counts is who reads it.
    fn look_at_interpreter(&mut self, script: &[u8]) -> janus::Result<()> {
        let line = script[2..]
            .split(|byte| *byte == b'\n')
            .next()
            .unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let mut words = line
            .split_whitespace()
            .skip_while(|word| word.ends_with("/env"));
        let name = words
            .next()
            .ok_or("a script that names nobody to read it")?;
        *self = Program {
            path: std::mem::take(&mut self.path),
            ..Program::look(name)?
        };
        Ok(())
    }

    fn look_into(&mut self, elf: Elf) -> janus::Result<()> {
        let mode = fs::metadata(&self.path)?.permissions().mode();
        self.unseen = match &elf.loader {
            None => Some(
                "it is linked statically: no library can stand in front of what it calls".into(),
            ),
            Some(_) if elf.is_go => {
                Some("it is made by Go: it calls the kernel itself, past every library".into())
            }
            Some(_) if mode & SET_ID != 0 => Some(
                "it runs with its owner's rights: its loader takes no library from the environment"
                    .into(),
            ),
            Some(_) => None,
        };
        self.raw_calls = elf.raw_calls;
        self.wants = elf.imports;
        let Some(loader) = elf.loader else {
            return Ok(());
        };
        let listed = Command::new(loader)
            .arg("--list")
            .arg(&self.path)
            .output()?;
        for line in String::from_utf8_lossy(&listed.stdout).lines() {
            let mut words = line.split_whitespace();
            let (Some(name), path) = (words.next(), words.nth(1)) else {
                continue;
            };
            let Some(path) = path.filter(|path| path.starts_with('/')) else {
                continue;
            };
            if ["libc.so", "ld-linux", "libpthread", "libresolv"]
                .iter()
                .any(|own| name.contains(own))
            {
                continue;
            }
            if let Some(library) = fs::read(path).ok().as_deref().and_then(Elf::read) {
                self.wants.extend(library.imports);
                self.libraries.push(name.to_owned());
            }
        }
        Ok(())
    }

    fn has_any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.wants.contains(*name))
    }
}

/// Where the shell would find it.
fn find(name: &str) -> Option<PathBuf> {
    let is_program = |path: &Path| {
        let meta = fs::metadata(path);
        meta.is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| is_program(path));
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|path| is_program(path))
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.path.display())?;
        if let Some(why) = &self.unseen {
            return writeln!(f, "  cannot run on Janus: {why}");
        }
        if !self.has_any(&["socket"]) {
            writeln!(
                f,
                "  neither it nor a library that it names makes sockets; one that it loads later may"
            )?;
        } else {
            let waits: Vec<&str> = WAITS
                .iter()
                .copied()
                .filter(|name| self.wants.contains(*name))
                .collect();
            writeln!(f, "  can run on Janus; it waits by {}", waits.join(", "))?;
        }
        if !self.libraries.is_empty() {
            writeln!(f, "  looked at with it: {}", self.libraries.join(", "))?;
        }
        for (names, text) in NOTES {
            if self.has_any(names) {
                writeln!(f, "  note  {text}")?;
            }
        }
        if self.raw_calls > 0 {
            let few = self.raw_calls;
            writeln!(
                f,
                "  note  {few} places in it look like calls of the kernel's own; what goes through them is not seen"
            )?;
        }
        writeln!(f, "  ->    janus run -- {} ...", self.path.display())
    }
}
