//! A file of figures that one process writes and any other reads without asking it for anything, also while it is stopped. Rows of 64-bit words.
//!
//! A row has two places, and a word before them that counts how often it was shown: the place that counts is the count's lowest bit. The
//! writer fills the other place and then counts on, so what a reader copies is whole if the count is the same before and after. There is
//! always a place that is whole, wherever the writer was stopped. The writer maps the file. A reader copies from it instead, because a
//! mapping of a file that is cut short kills whoever reads there.
//! Never here: what the words mean.

#![allow(unsafe_code)]

use std::fs;
use std::io;
use std::mem::take;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::fs::{
    CWD, FallocateFlags, FileType, FlockOperation, Mode, OFlags, fallocate, flock, fstat, openat,
    rename, stat,
};
use rustix::io::{Errno, pread};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// "JanusBrd", in the order of this machine's bytes: a file of a machine with another order is no board here.
const MAGIC: u64 = 0x4a61_6e75_7342_7264;
/// Words before the first row: the magic, the form's three numbers, and nothing.
const HEADER: usize = 8;
/// Copies of a row until it is said to change too fast.
const ATTEMPTS: usize = 1_000;
/// Everybody may read it, but for the process's umask.
const MODE: Mode = Mode::RUSR
    .union(Mode::WUSR)
    .union(Mode::RGRP)
    .union(Mode::ROTH);

/// The shape of a board, which its writer and its readers agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// Number that changes with the meaning of a word.
    pub version: u32,
    /// Number of rows.
    pub rows: u32,
    /// Words of a row.
    pub words: u32,
}

impl Form {
    fn header(self) -> [u64; HEADER] {
        let [version, rows, words] = [self.version, self.rows, self.words].map(u64::from);
        [MAGIC, version, rows, words, 0, 0, 0, 0]
    }

    /// Words of a row with both of its places.
    fn stride(self) -> usize {
        1 + 2 * self.words as usize
    }

    /// Number of the word that counts how often a row was shown.
    fn count(self, row: usize) -> usize {
        HEADER + row * self.stride()
    }

    /// Number of the first word of a row's place.
    fn place(self, row: usize, count: u64) -> usize {
        self.count(row) + 1 + (count & 1) as usize * self.words as usize
    }

    /// Bytes of the whole file.
    fn len(self) -> usize {
        self.count(self.rows as usize) * 8
    }
}

/// The writer's side: the file goes with it, unless another has taken its name.
#[derive(Debug)]
pub struct Board {
    base: NonNull<AtomicU64>,
    form: Form,
    /// Locked for as long as it is written, which a reader sees.
    file: OwnedFd,
    path: PathBuf,
    /// The rows as they are shown.
    shown: Vec<u64>,
}

// SAFETY: the mapping belongs to the value, and is reached by atomics only.
unsafe impl Send for Board {}

impl Board {
    /// Makes a board whose words are all 0. It takes the place of a file of that name.
    ///
    /// # Errors
    /// The system's.
    pub fn create(path: &Path, form: Form) -> io::Result<Board> {
        let mut fresh = path.as_os_str().to_owned();
        fresh.push(format!(".{}", std::process::id()));
        let fresh = PathBuf::from(fresh);
        // Of a process that was killed, and had this process's number.
        let _ = fs::remove_file(&fresh);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(CWD, &fresh, flags, MODE)?;
        let made = Board::map(file, path, form).and_then(|board| {
            // Seen whole, or not at all.
            rename(&fresh, path)?;
            Ok(board)
        });
        if made.is_err() {
            let _ = fs::remove_file(&fresh);
        }
        made
    }

    fn map(file: OwnedFd, path: &Path, form: Form) -> io::Result<Board> {
        // A page for which the file system has no room would kill who writes there.
        fallocate(&file, FallocateFlags::empty(), 0, form.len() as u64)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice aliases nothing.
        let base = unsafe { mmap(null_mut(), form.len(), rights, MapFlags::SHARED, &file, 0)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let board = Board {
            base,
            form,
            file,
            path: path.to_owned(),
            shown: vec![0; (form.rows * form.words) as usize],
        };
        for (at, word) in form.header().into_iter().enumerate() {
            board.word(at).store(word, Ordering::Relaxed);
        }
        Ok(board)
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at < self.form.len() / 8, "a word of the board");
        // SAFETY: the word is in the mapping, as was checked, and aligned, as a mapping begins at a page; only this process writes it.
        unsafe { self.base.add(at).as_ref() }
    }

    /// Shows a row: readers have all of it, or the one before. One that has not changed costs a comparison.
    pub fn show(&mut self, row: usize, words: &[u64]) {
        let len = self.form.words as usize;
        assert_eq!(words.len(), len, "a row is whole");
        let last = &mut self.shown[row * len..][..len];
        if last == words {
            return;
        }
        last.copy_from_slice(words);
        let count = self.word(self.form.count(row));
        let next = count.load(Ordering::Relaxed).wrapping_add(1);
        // A reader that finds a word of this row where the one before the last stood finds the last one's count too, and copies again.
        fence(Ordering::Release);
        let place = self.form.place(row, next);
        for (at, word) in words.iter().enumerate() {
            self.word(place + at).store(*word, Ordering::Relaxed);
        }
        count.store(next, Ordering::Release);
    }

    /// Its file stays, as that of a process which is killed does.
    pub fn leave(mut self) {
        self.path.clear();
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        let same = |there: rustix::fs::Stat| {
            fstat(&self.file)
                .is_ok_and(|ours| (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino))
        };
        let path = take(&mut self.path);
        if stat(&path).is_ok_and(same) {
            let _ = fs::remove_file(&path);
        }
        // SAFETY: the mapping is the value's, and nothing borrows from it any more.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.form.len()) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping");
    }
}

/// A copy of a board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Whether its writer lives. Else these are the words that it showed last.
    pub is_written: bool,
    words: Vec<u64>,
    form: Form,
}

impl Copied {
    /// Copies what a board shows. Each row is as it was at one time, not all of them at the same.
    ///
    /// # Errors
    /// The system's; InvalidData for a file that is no board of this form, and TimedOut for one that changes faster than it can be read.
    /// The text says what is wrong with which file.
    pub fn of(path: &Path, form: Form) -> io::Result<Copied> {
        let says =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        // Of a name that is no file's the opening must not wait.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = openat(CWD, path, flags, Mode::empty()).map_err(|errno| says(errno.into()))?;
        Copied::read(&file, form).map_err(says)
    }

    fn read(file: &OwnedFd, form: Form) -> io::Result<Copied> {
        let wrong = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
        let about = fstat(file)?;
        if FileType::from_raw_mode(about.st_mode) != FileType::RegularFile {
            return Err(wrong("it is no file".into()));
        }
        let mut header = [0; HEADER];
        if about.st_size < HEADER as i64 * 8 || !read_words(file, 0, &mut header)? {
            let len = about.st_size;
            return Err(wrong(format!("its {len} bytes are no figures of Janus's")));
        }
        let ours = form.header();
        if header[0] != ours[0] {
            return Err(wrong(
                "it holds something else than figures of Janus's".into(),
            ));
        }
        if header[1] != ours[1] {
            let (theirs, version) = (header[1], form.version);
            let text = format!("its figures are of version {theirs}, and {version} is read here");
            return Err(wrong(text));
        }
        if header != ours {
            let [_, _, rows, words, ..] = header;
            let (ours, of) = (form.rows, form.words);
            let text = format!("it has {rows} rows of {words} words, and not {ours} of {of}");
            return Err(wrong(text));
        }
        if about.st_size != form.len() as i64 {
            let (theirs, len) = (about.st_size, form.len());
            let text = format!("it has {theirs} bytes, and its figures have {len}");
            return Err(wrong(text));
        }
        let mut words = vec![0; (form.rows * form.words) as usize];
        let rows = words.chunks_exact_mut(form.words as usize);
        for (row, into) in rows.enumerate() {
            read_row(file, form, row, into)?;
        }
        let is_free = match flock(file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => true,
            Err(Errno::WOULDBLOCK) => false,
            Err(errno) => return Err(errno.into()),
        };
        Ok(Copied {
            is_written: !is_free,
            words,
            form,
        })
    }

    /// The words of a row.
    #[must_use]
    pub fn row(&self, row: usize) -> &[u64] {
        let len = self.form.words as usize;
        &self.words[row * len..][..len]
    }
}

/// Copies a row once it stands still for as long as that takes.
fn read_row(file: &OwnedFd, form: Form, row: usize, into: &mut [u64]) -> io::Result<()> {
    let cut = || io::Error::new(io::ErrorKind::InvalidData, "it was cut short meanwhile");
    let mut count = [0];
    for _ in 0..ATTEMPTS {
        let mut after = [0];
        if !read_words(file, form.count(row), &mut count)? {
            return Err(cut());
        }
        fence(Ordering::Acquire);
        if !read_words(file, form.place(row, count[0]), into)? {
            return Err(cut());
        }
        fence(Ordering::Acquire);
        if !read_words(file, form.count(row), &mut after)? {
            return Err(cut());
        }
        if count == after {
            return Ok(());
        }
    }
    let text = "it changes faster than it can be read";
    Err(io::Error::new(io::ErrorKind::TimedOut, text))
}

/// Copies words from a file. False: it ends before them.
fn read_words(file: &OwnedFd, at: usize, into: &mut [u64]) -> io::Result<bool> {
    let mut bytes = vec![0_u8; into.len() * 8];
    let mut had = 0;
    while had < bytes.len() {
        match pread(file, &mut bytes[had..], (at * 8 + had) as u64) {
            Ok(0) => return Ok(false),
            Ok(got) => had += got,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    let (words, _) = bytes.as_chunks::<8>();
    for (into, word) in into.iter_mut().zip(words) {
        *into = u64::from_ne_bytes(*word);
    }
    Ok(true)
}

#[cfg(test)]
mod tests;
