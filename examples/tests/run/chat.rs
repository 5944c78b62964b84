//! The chat among the examples: who gets what, over both cores, and what becomes of a client that does not read.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::process::{PATIENCE, Server};

struct Guest {
    name: String,
    lines: BufReader<TcpStream>,
}

impl Guest {
    /// Enters, and waits until it is told so.
    fn enters(server: &Server) -> Guest {
        let stream = server.dial();
        let mut guest = Guest {
            name: String::new(),
            lines: BufReader::new(stream),
        };
        let hello = guest.reads();
        let name = hello.strip_prefix("* ").unwrap();
        guest.name = name.strip_suffix(" is here").unwrap().to_owned();
        guest
    }

    fn reads(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("a line");
        assert!(line.ends_with('\n'), "a whole line and not: {line:?}");
        line.pop();
        line
    }

    fn writes(&self, text: &[u8]) {
        self.lines.get_ref().write_all(text).unwrap();
    }
}

#[test]
fn what_one_writes_all_read() {
    let server = Server::start("chat", |_| {});
    // Enough that both cores have some.
    let mut guests: Vec<Guest> = Vec::new();
    for _ in 0..12 {
        let guest = Guest::enters(&server);
        for earlier in &mut guests {
            assert_eq!(earlier.reads(), format!("* {} is here", guest.name));
        }
        guests.push(guest);
    }
    let text = "a line, ü, \x1b[2J of two packets";
    let (first, second) = text.as_bytes().split_at(13);
    guests[3].writes(first);
    thread::sleep(Duration::from_millis(20));
    guests[3].writes(second);
    guests[3].writes(b"\nanother\n");
    let name = guests[3].name.clone();
    for guest in &mut guests {
        let expected = format!("{name}: a line, ü, [2J of two packets");
        assert_eq!(guest.reads(), expected);
        assert_eq!(guest.reads(), format!("{name}: another"));
    }
    // No end of a line.
    guests[5].writes(&[b'x'; 2_500]);
    guests[5].lines.get_ref().shutdown(Shutdown::Write).unwrap();
    let left = guests.remove(5);
    for guest in &mut guests {
        for _ in 0..2 {
            assert_eq!(
                guest.reads(),
                format!("{}: {}", left.name, "x".repeat(1_024))
            );
        }
        assert_eq!(guest.reads(), format!("* {} has left", left.name));
    }
    server.terminate();
    for guest in &mut guests {
        assert_eq!(guest.reads(), "* the server ends");
        assert_eq!(guest.lines.read(&mut [0]).unwrap(), 0, "a FIN and no reset");
    }
    drop(guests);
    assert_eq!(server.end().code(), Some(0));
}

/// All others read on meanwhile, and the one that does not is let go of.
#[test]
fn a_guest_that_does_not_read_holds_up_nobody() {
    let server = Server::start("chat", |_| {});
    let mut reader = Guest::enters(&server);
    let silent = Guest::enters(&server);
    let mut writer = Guest::enters(&server);
    assert_eq!(reader.reads(), format!("* {} is here", silent.name));
    assert_eq!(reader.reads(), format!("* {} is here", writer.name));
    let begin = Instant::now();
    let gone = format!("* {} has left", silent.name);
    let line = [&[b'y'; 1_000][..], b"\n"].concat().repeat(16);
    let mut silent_is_gone = [false; 2];
    while silent_is_gone != [true; 2] {
        assert!(begin.elapsed() < PATIENCE, "its lines wait without bound");
        if silent_is_gone == [false; 2] {
            writer.writes(&line);
        }
        for (guest, it_is_gone) in [&mut reader, &mut writer]
            .into_iter()
            .zip(&mut silent_is_gone)
        {
            let mut read = 0;
            while read < 16 && !*it_is_gone {
                let line = guest.reads();
                *it_is_gone = line == gone;
                read += usize::from(!*it_is_gone);
            }
        }
    }
    // Data that the kernel already held is read; then comes the reset.
    let mut silent = silent.lines.into_inner();
    let end = loop {
        match silent.read(&mut [0; 64 * 1024]) {
            Ok(0) => panic!("lines are missing, and it ends as if there were none"),
            Ok(_) => {}
            Err(error) => break error.kind(),
        }
    };
    assert_eq!(end, ErrorKind::ConnectionReset);
    drop((reader, writer));
    server.ends_well();
}

/// All write on and on. Whatever one of them reads until the end are whole lines, none of them left out, and then a FIN.
#[test]
fn it_ends_under_load() {
    let server = Server::start("chat", |_| {});
    let guests: Vec<_> = (0..8).map(|_| Guest::enters(&server)).collect();
    let guests: Vec<_> = guests
        .into_iter()
        .map(|mut guest| {
            thread::spawn(move || {
                let mut heard = HashMap::<String, u32>::new();
                for said in 0u32.. {
                    guest.writes(format!("{said}\n").as_bytes());
                    // Until it hears itself, so that no guest falls behind.
                    loop {
                        let line = guest.reads();
                        if line == "* the server ends" {
                            assert_eq!(guest.lines.read(&mut [0]).unwrap(), 0, "and no reset");
                            return said;
                        }
                        let Some((name, number)) = line.split_once(": ") else {
                            continue;
                        };
                        let number: u32 = number.parse().unwrap();
                        let before = heard.insert(name.to_owned(), number);
                        assert!(before.is_none_or(|before| before + 1 == number), "{line}");
                        if name == guest.name {
                            break;
                        }
                    }
                }
                unreachable!("the server ends");
            })
        })
        .collect();
    thread::sleep(Duration::from_secs(1));
    server.terminate();
    for guest in guests {
        assert!(guest.join().unwrap() > 0);
    }
    assert_eq!(server.end().code(), Some(0));
}
