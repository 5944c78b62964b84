use std::os::unix::fs::{MetadataExt, symlink};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::pwrite;

use super::*;

const FORM: Form = Form {
    version: 3,
    rows: 5,
    words: 9,
};

/// A path of this test's own, whose file goes with it.
struct Name(PathBuf);

impl Name {
    fn new(name: &str) -> Name {
        let name = format!("janus-board-{}-{name}", std::process::id());
        Name(std::env::temp_dir().join(name))
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn refusal(path: &Path) -> String {
    let error = Copied::of(path, FORM).expect_err("it is no board");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    let text = error.to_string();
    assert!(text.starts_with(&path.display().to_string()), "{text}");
    text
}

#[test]
fn what_is_shown_is_read() {
    let name = Name::new("shown");
    let mut board = Board::create(&name.0, FORM).unwrap();
    let empty = Copied::of(&name.0, FORM).unwrap();
    assert!((0..5).all(|row| empty.row(row) == [0; 9]));
    for value in 1..=5 {
        board.show(3, &[value; 9]);
        let copied = Copied::of(&name.0, FORM).unwrap();
        assert!(copied.is_written);
        assert_eq!(copied.row(3), [value; 9]);
        assert_eq!((copied.row(2), copied.row(4)), (&[0; 9][..], &[0; 9][..]));
    }
    let before = fs::read(&name.0).unwrap();
    board.show(3, &[5; 9]);
    assert!(fs::read(&name.0).unwrap() == before, "nothing has changed");
    assert_eq!(fs::metadata(&name.0).unwrap().mode() & 0o133, 0);
    drop(board);
    assert!(!name.0.exists(), "it goes with its writer");
}

#[test]
fn the_next_board_takes_the_name_and_keeps_it() {
    let name = Name::new("next");
    let mut first = Board::create(&name.0, FORM).unwrap();
    first.show(0, &[1; 9]);
    let mut second = Board::create(&name.0, FORM).unwrap();
    second.show(0, &[2; 9]);
    drop(first);
    assert_eq!(Copied::of(&name.0, FORM).unwrap().row(0), [2; 9]);
    // As one that was killed leaves it.
    fs::copy(&name.0, name.0.with_extension("left")).unwrap();
    let left = Name(name.0.with_extension("left"));
    let copied = Copied::of(&left.0, FORM).unwrap();
    assert!(!copied.is_written && copied.row(0) == [2; 9]);
}

#[test]
fn what_is_no_board_is_told_of() {
    let name = Name::new("none");
    let absent = Copied::of(&name.0, FORM).unwrap_err();
    assert_eq!(absent.kind(), io::ErrorKind::NotFound, "{absent}");
    fs::write(&name.0, b"words").unwrap();
    assert!(refusal(&name.0).contains("its 5 bytes"));
    fs::write(&name.0, [b'x'; 5_000]).unwrap();
    assert!(refusal(&name.0).contains("something else"));
    let write = |form: Form, len: usize| {
        let words = form.header();
        let mut bytes: Vec<u8> = words.iter().flat_map(|it| it.to_ne_bytes()).collect();
        bytes.resize(len, 0);
        fs::write(&name.0, bytes).unwrap();
    };
    write(Form { version: 4, ..FORM }, FORM.len());
    assert!(refusal(&name.0).contains("version 4, and 3 is read"));
    write(Form { rows: 6, ..FORM }, FORM.len());
    assert!(refusal(&name.0).contains("6 rows of 9 words"));
    write(FORM, FORM.len() - 1);
    assert!(refusal(&name.0).contains("bytes"));
    write(FORM, FORM.len());
    assert!(Copied::of(&name.0, FORM).is_ok());
    let folder = std::env::temp_dir();
    assert!(refusal(&folder).contains("no file"));
    let pipe = Name::new("pipe");
    symlink("/dev/null", &pipe.0).unwrap();
    assert!(refusal(&pipe.0).contains("no file"));
}

#[test]
fn no_row_is_ever_seen_in_part() {
    let name = Name::new("whole");
    // Long enough for the writer to come round while it is copied.
    let (rows, words) = (1, 2_000);
    let long = Form {
        rows,
        words,
        ..FORM
    };
    let mut board = Board::create(&name.0, long).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writes = scope.spawn(|| {
            let mut shown = 0_u64;
            while !done.load(Ordering::Relaxed) {
                shown += 1;
                board.show(0, &[shown; 2_000]);
                // Else there is no time in which it can be read.
                if shown.is_multiple_of(16) {
                    thread::sleep(Duration::from_micros(50));
                }
            }
            shown
        });
        let (mut last, mut wrong) = (0, None);
        for _ in 0..2_000 {
            let Ok(copied) = Copied::of(&name.0, long) else {
                continue;
            };
            let row = copied.row(0);
            if row.iter().any(|word| *word != row[0] || *word < last) {
                wrong = Some((row[0], row[row.len() - 1]));
            }
            last = row[0];
        }
        done.store(true, Ordering::Relaxed);
        let shown = writes.join().unwrap();
        assert_eq!(wrong, None, "in part, or backwards");
        assert!(last > 0 && shown > 0, "{last} of {shown}");
    });
}

#[test]
fn a_writer_that_stops_in_the_midst_leaves_the_row_before() {
    let name = Name::new("midst");
    let mut board = Board::create(&name.0, FORM).unwrap();
    for value in 1..4 {
        board.show(2, &[value; 9]);
        let count = board.word(FORM.count(2)).load(Ordering::Relaxed);
        for at in 0..5 {
            let word = board.word(FORM.place(2, count + 1) + at);
            word.store(99, Ordering::Relaxed);
        }
        assert_eq!(Copied::of(&name.0, FORM).unwrap().row(2), [value; 9]);
    }
}

proptest! {
    /// Whatever stands in a file: it is read, or refused.
    #[test]
    fn any_bytes_are_figures_or_none(
        bytes in proptest::collection::vec(any::<u8>(), 0..2_000),
        begins in any::<bool>(),
        changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..6),
        cut in 0_usize..40,
    ) {
        let mut bytes = bytes;
        if begins {
            bytes.resize(FORM.len().saturating_sub(cut / 30), 7);
            for (at, word) in FORM.header().into_iter().enumerate() {
                bytes[at * 8..][..8].copy_from_slice(&word.to_ne_bytes());
            }
        }
        for (at, byte) in changes {
            if !bytes.is_empty() {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
        }
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        pwrite(&file, &bytes, 0).unwrap();
        let whole = bytes.len() == FORM.len()
            && FORM.header().iter().flat_map(|it| it.to_ne_bytes()).eq(bytes[..HEADER * 8].iter().copied());
        prop_assert_eq!(Copied::read(&file, FORM).is_ok(), whole);
    }
}
