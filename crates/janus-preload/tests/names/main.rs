//! The names by which the library stands in front of libc: each is one of libc's, and of libc's names by which a socket is made, used, waited
//! for, duplicated, inherited or closed none is forgotten.

mod elf;

use std::collections::BTreeSet;
use std::env;
use std::ffi::{CStr, CString};
use std::fs;

/// Names that glibc has had only since a version.
const SINCE: &[(&str, (u32, u32))] = &[
    ("preadv2", (2, 26)),
    ("preadv64v2", (2, 26)),
    ("pwritev2", (2, 26)),
    ("pwritev64v2", (2, 26)),
    ("fcntl64", (2, 28)),
    ("close_range", (2, 34)),
    ("closefrom", (2, 34)),
    ("epoll_pwait2", (2, 35)),
];

/// Names of libc's that concern sockets, with the twins that glibc exports for programs; `libc's own` below has those that stay libc's.
const CONCERN: &[&str] = &[
    // Made, named, ended.
    "socket",
    "bind",
    "listen",
    "accept",
    "accept4",
    "connect",
    "__connect",
    "shutdown",
    "getsockname",
    "getpeername",
    "setsockopt",
    "getsockopt",
    "sockatmark",
    "isfdtype",
    "socketpair",
    "bindresvport",
    "rcmd",
    "rcmd_af",
    // Read and written.
    "read",
    "__read",
    "__read_chk",
    "readv",
    "preadv2",
    "preadv64v2",
    "recv",
    "__recv_chk",
    "recvfrom",
    "__recvfrom_chk",
    "recvmsg",
    "recvmmsg",
    "write",
    "__write",
    "writev",
    "pwritev2",
    "pwritev64v2",
    "send",
    "__send",
    "sendto",
    "sendmsg",
    "sendmmsg",
    "sendfile",
    "sendfile64",
    "splice",
    "tee",
    "vmsplice",
    "copy_file_range",
    "pread",
    "pread64",
    "__pread64",
    "__pread_chk",
    "__pread64_chk",
    "preadv",
    "preadv64",
    "pwrite",
    "pwrite64",
    "__pwrite64",
    "pwritev",
    "pwritev64",
    "aio_read",
    "aio_read64",
    "aio_write",
    "aio_write64",
    "lio_listio",
    "lio_listio64",
    "fdopen",
    "fileno",
    "fileno_unlocked",
    "dprintf",
    "vdprintf",
    "__dprintf_chk",
    "__vdprintf_chk",
    // Waited for.
    "poll",
    "__poll",
    "__poll_chk",
    "ppoll",
    "__ppoll_chk",
    "select",
    "__select",
    "pselect",
    "epoll_create",
    "epoll_create1",
    "epoll_ctl",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    // Duplicated, asked about, closed.
    "close",
    "__close",
    "close_range",
    "closefrom",
    "dup",
    "dup2",
    "__dup2",
    "dup3",
    "fcntl",
    "__fcntl",
    "fcntl64",
    "ioctl",
    "syscall",
    "fstat",
    "fstat64",
    "__fstat64",
    "pidfd_getfd",
    // Inherited.
    "fork",
    "__fork",
    "_Fork",
    "vfork",
    "__vfork",
    "clone",
    "__clone",
    "daemon",
    "system",
    "popen",
    "pclose",
    "posix_spawn",
    "posix_spawnp",
    "posix_spawn_file_actions_adddup2",
    "posix_spawn_file_actions_addclose",
    "posix_spawn_file_actions_addclosefrom_np",
    "posix_spawn_file_actions_destroy",
    "execve",
    "fexecve",
    "execveat",
    "execv",
    "execvp",
    "execvpe",
    "execl",
    "execle",
    "execlp",
    "forkpty",
    "login_tty",
    // Ended with the process; interrupted.
    "_exit",
    "_Exit",
    "quick_exit",
    "sigaction",
    "signal",
    "bsd_signal",
    "sysv_signal",
    "__sysv_signal",
    "pthread_create",
    // Limited.
    "getrlimit",
    "getrlimit64",
    "setrlimit",
    "setrlimit64",
    "prlimit",
    "prlimit64",
];

/// Names that stay libc's, and why.
const LIBCS: &[(&[&str], &str)] = &[
    (
        &["socketpair", "isfdtype", "fstat", "fstat64", "__fstat64"],
        "a placeholder is a socket too",
    ),
    (
        &["bindresvport", "rcmd", "rcmd_af"],
        "they call libc's own, which fail with a placeholder",
    ),
    (
        &["tee", "vmsplice", "copy_file_range"],
        "for pipes and files: with a socket they fail",
    ),
    (
        &[
            "pread",
            "pread64",
            "__pread64",
            "__pread_chk",
            "__pread64_chk",
            "preadv",
            "preadv64",
            "pwrite",
            "pwrite64",
            "__pwrite64",
            "pwritev",
            "pwritev64",
        ],
        "at a place of a file: ESPIPE with a placeholder as with a socket",
    ),
    (
        &[
            "aio_read",
            "aio_read64",
            "aio_write",
            "aio_write64",
            "lio_listio",
            "lio_listio64",
        ],
        "a thread of libc's calls libc's own: ENOTCONN",
    ),
    (
        &["dprintf", "vdprintf", "__dprintf_chk", "__vdprintf_chk"],
        "they write by libc's own: ENOTCONN (docs/programs.md)",
    ),
    (
        &["pidfd_getfd"],
        "of another process: its placeholder comes",
    ),
    (
        &["fork", "__fork", "daemon", "forkpty", "login_tty"],
        "heard of by pthread_atfork; login_tty is about terminals",
    ),
    (
        &["_Fork", "clone", "__clone", "__vfork"],
        "no handler of pthread_atfork runs: a child made so may exit, or become another program",
    ),
    (
        &[
            "system",
            "popen",
            "pclose",
            "posix_spawn",
            "posix_spawnp",
            "posix_spawn_file_actions_addclose",
            "posix_spawn_file_actions_addclosefrom_np",
        ],
        "the child becomes another program, which has what it was given by adddup2",
    ),
];

/// Looked up in libc itself, and in the libraries that older ones had beside it.
fn is_libcs(name: &str) -> bool {
    const LIBRARIES: [&CStr; 2] = [c"libc.so.6", c"libpthread.so.0"];
    let name = CString::new(name).expect("a name");
    LIBRARIES.iter().any(|library| {
        // SAFETY: the names end with a zero; a library that is loaded already stays.
        unsafe {
            let handle = libc::dlopen(library.as_ptr(), libc::RTLD_LAZY);
            !handle.is_null() && !libc::dlsym(handle, name.as_ptr()).is_null()
        }
    })
}

fn glibc() -> (u32, u32) {
    // SAFETY: the function gives a text that is there for ever.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    let version = version.to_str().expect("text");
    let (major, minor) = version.split_once('.').expect("two numbers");
    let minor = minor.split('.').next().expect("a number");
    (
        major.parse().expect("a number"),
        minor.parse().expect("a number"),
    )
}

/// Names of the library that are none of this libc's, nor newer than it.
fn unknown(
    exported: &BTreeSet<String>,
    version: (u32, u32),
    is_libcs: impl Fn(&str) -> bool,
) -> Vec<String> {
    let is_newer = |name: &str| {
        SINCE
            .iter()
            .any(|(newer, since)| *newer == name && *since > version)
    };
    let of_libc = exported.iter().filter(|name| !name.starts_with("jn_"));
    of_libc
        .filter(|name| !is_libcs(name) && !is_newer(name))
        .cloned()
        .collect()
}

/// Names of this libc's that concern sockets, and that neither the library has nor are said to stay libc's.
fn forgotten(exported: &BTreeSet<String>, is_libcs: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let stays = |name: &str| LIBCS.iter().any(|(names, _)| names.contains(&name));
    let all = CONCERN.iter().copied().filter(|name| is_libcs(name));
    all.filter(|name| !exported.contains(*name) && !stays(name))
        .collect()
}

fn exported() -> Option<BTreeSet<String>> {
    let own = env::current_exe().expect("a path");
    let library = own.with_file_name("libjanus_preload.so");
    let Ok(file) = fs::read(&library) else {
        eprintln!("skipped: {} is not built", library.display());
        return None;
    };
    Some(elf::exports(&file).expect("a library"))
}

#[test]
fn each_name_is_one_of_libcs() {
    let Some(exported) = exported() else { return };
    assert!(exported.contains("socket") && exported.contains("jn_socket"));
    assert_eq!(unknown(&exported, glibc(), is_libcs), [""; 0]);
}

#[test]
fn no_name_is_forgotten() {
    let Some(exported) = exported() else { return };
    assert_eq!(forgotten(&exported, is_libcs), [""; 0]);
    // What stays libc's is not stood in front of.
    let both = LIBCS
        .iter()
        .flat_map(|(names, _)| *names)
        .filter(|name| exported.contains(**name));
    assert_eq!(both.collect::<Vec<_>>(), [&""; 0]);
}

#[test]
fn what_is_stood_in_front_of_concerns_sockets() {
    let Some(exported) = exported() else { return };
    let of_libc = exported.iter().filter(|name| !name.starts_with("jn_"));
    let others: Vec<_> = of_libc
        .filter(|name| !CONCERN.contains(&name.as_str()))
        .collect();
    assert_eq!(others, [""; 0]);
}

#[test]
fn a_wrong_name_is_found_and_so_is_a_forgotten_one() {
    let names = |all: &[&str]| {
        all.iter()
            .map(|name| (*name).to_owned())
            .collect::<BTreeSet<_>>()
    };
    let some = names(&["close", "jn_close", "epoll_wiat", "epoll_pwait2"]);
    let old = |name: &str| ["close", "epoll_wait"].contains(&name);
    assert_eq!(unknown(&some, (2, 31), old), ["epoll_wiat"]);
    assert_eq!(unknown(&some, (2, 36), old), ["epoll_pwait2", "epoll_wiat"]);
    assert_eq!(forgotten(&some, old), ["epoll_wait"]);
    assert!(is_libcs("close") && !is_libcs("epoll_wiat"));
    assert!(elf::exports(b"#!/bin/sh\n").is_none());
}
