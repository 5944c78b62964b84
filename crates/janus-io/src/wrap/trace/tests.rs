use super::*;
use crate::backend::wire::{Config, pair};
use crate::testing::{frame, pool, request};
use std::sync::atomic::{AtomicU64, Ordering};

/// A sink that stays readable.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// (block type, body) of each block, lengths checked.
fn blocks(mut file: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut blocks = Vec::new();
    while !file.is_empty() {
        let total = word(file, 4) as usize;
        assert!(total.is_multiple_of(4) && word(file, total - 4) as usize == total);
        blocks.push((word(file, 0), file[8..total - 4].to_vec()));
        file = &file[total..];
    }
    blocks
}

fn ticking() -> impl Fn() -> u64 + Send + Sync {
    let ticks = AtomicU64::new(0x1_0000_0000);
    move || ticks.fetch_add(1, Ordering::Relaxed)
}

#[test]
fn both_directions_of_a_queue_are_written_once_and_in_order() {
    let sink = Sink::default();
    let trace = Trace::with_clock(sink.clone(), ticking()).unwrap();
    let (a, b) = pair(Config {
        link: Link::Ethernet,
        ..Config::default()
    })
    .unwrap();
    let mut a = Box::new(TracedBackend::new(Box::new(a), trace.clone()))
        .open(1)
        .unwrap()
        .remove(0);
    let mut b = Box::new(b).open(1).unwrap().remove(0);
    let mut pool = pool(512);
    let bytes: Vec<_> = (0..3).map(|i| request(Link::Ethernet, 1, i)).collect();

    let (mut batch, mut done) = (Batch::new(), Batch::new());
    batch.extend([frame(&mut pool, &bytes[0]), frame(&mut pool, &bytes[1])]);
    // Room for one completion: one frame is taken and written, the other next time.
    done.extend((0..63).map(|_| frame(&mut pool, &[])));
    a.tx_burst(&mut pool, &mut batch, &mut done);
    assert_eq!(batch.len(), 1);
    done.clear();
    a.tx_burst(&mut pool, &mut batch, &mut done);
    batch.extend([frame(&mut pool, &bytes[2])]);
    b.tx_burst(&mut pool, &mut batch, &mut done);
    a.rx_burst(&mut pool, &mut batch);
    a.rx_burst(&mut pool, &mut batch);
    assert_eq!((batch.len(), trace.failed()), (1, 0));

    let file = sink.0.lock().unwrap().clone();
    let blocks = blocks(&file);
    assert_eq!(
        blocks.iter().map(|b| b.0).collect::<Vec<_>>(),
        [SECTION, 1, 6, 6, 6]
    );
    assert_eq!(blocks[1].1[..2], [1, 0], "Ethernet");
    for (i, ((_, body), flags)) in blocks[2..].iter().zip([2, 2, 1]).enumerate() {
        assert_eq!(
            body[4..12],
            [1, 0, 0, 0, i as u8, 0, 0, 0],
            "time of frame {i}"
        );
        assert_eq!(body[20..20 + bytes[i].len()], bytes[i]);
        // The flags' option stands before the end of options.
        assert_eq!(
            body[body.len() - 12..],
            [2, 0, 4, 0, flags, 0, 0, 0, 0, 0, 0, 0],
            "frame {i}"
        );
    }
}

const SECTION: u32 = 0x0a0d_0d0a;

#[test]
fn the_wires_hook_writes_what_both_ends_send() {
    let sink = Sink::default();
    let trace = Trace::with_clock(sink.clone(), ticking()).unwrap();
    let interface = trace.add_interface(pair(Config::default()).unwrap().0.caps());
    let (a, b) = pair(Config {
        capture: Some(trace.hook(interface)),
        ..Config::default()
    })
    .unwrap();
    let mut ends = [
        Box::new(a).open(1).unwrap().remove(0),
        Box::new(b).open(1).unwrap().remove(0),
    ];
    let mut pool = pool(512);
    for (i, end) in ends.iter_mut().enumerate() {
        let mut batch = Batch::new();
        batch.extend([frame(&mut pool, &request(Link::Ip, 1, i as u32))]);
        end.tx_burst(&mut pool, &mut batch, &mut Batch::new());
    }
    let file = sink.0.lock().unwrap().clone();
    let blocks = blocks(&file);
    assert_eq!(
        blocks.iter().map(|b| b.0).collect::<Vec<_>>(),
        [SECTION, 1, 6, 6]
    );
    assert_eq!(blocks[1].1[..2], [101, 0], "raw IP");
    assert_eq!((blocks[2].1[68 - 4], blocks[3].1[68 - 4]), (2, 1));
}

#[test]
fn a_sink_that_fails_is_counted_and_stops_nothing() {
    struct Broken(u32);
    impl Write for Broken {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += 1;
            if self.0 > 5 {
                Err(io::ErrorKind::StorageFull.into())
            } else {
                Ok(bytes.len())
            }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let trace = Trace::new(Broken(0)).unwrap();
    let (a, _b) = pair(Config::default()).unwrap();
    let mut a = Traced::new(Box::new(a).open(1).unwrap().remove(0), trace.clone());
    let mut pool = pool(512);
    for i in 0..10 {
        let mut batch = Batch::new();
        batch.extend([frame(&mut pool, &request(Link::Ip, 1, i))]);
        a.tx_burst(&mut pool, &mut batch, &mut Batch::new());
        assert!(batch.is_empty());
    }
    assert_eq!(
        trace.failed(),
        7,
        "of ten, after a section, an interface and three"
    );
    assert_eq!(trace.error(), Some(io::ErrorKind::StorageFull));
    // Nor is its interface there: nothing of it is written.
    let trace = Trace::new(Broken(4)).unwrap();
    let none = trace.add_interface(a.caps());
    trace.write(none, Flow::Sent, [[0; 40].as_slice()]);
    assert_eq!(trace.failed(), 2);
    let error = Trace::create(Path::new("/no/such/directory/x.pcapng"))
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("/no/such/directory/x.pcapng"), "{error}");
}

/// A device that is full for a while, and takes a part of a call before it says so.
#[test]
fn a_trace_whose_device_was_full_goes_on_in_whole_blocks() {
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<(Vec<u8>, usize)>>);
    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (file, size) = &mut *self.0.lock().unwrap();
            let fit = bytes.len().min(*size - file.len());
            file.extend_from_slice(&bytes[..fit]);
            match fit {
                0 => Err(io::ErrorKind::StorageFull.into()),
                fit => Ok(fit),
            }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let disk = Disk::default();
    // In the middle of a block.
    disk.0.lock().unwrap().1 = 1001;
    let trace = Trace::new(BufWriter::new(disk.clone())).unwrap();
    let (a, _b) = pair(Config::default()).unwrap();
    let interface = trace.add_interface(a.caps());
    let packet = request(Link::Ip, 1, 0);
    let write = |bursts: u64| {
        for _ in 0..bursts {
            trace.write(interface, Flow::Sent, [packet.as_slice()]);
        }
        (trace.failed(), trace.error())
    };
    assert_eq!(write(1), (0, None));
    // More than the buffer takes.
    let (failed, error) = write(500);
    assert!((400..500).contains(&failed), "{failed}");
    assert_eq!(error, Some(io::ErrorKind::StorageFull));
    disk.0.lock().unwrap().1 = usize::MAX;
    assert_eq!(write(3).0, failed, "there is space again");
    let file = disk.0.lock().unwrap().0.clone();
    let written = blocks(&file).len();
    assert!(written > 60, "{written}: what the buffer held is there too");
    assert_eq!(
        blocks(&file)[2..]
            .iter()
            .filter(|block| block.0 != 6)
            .count(),
        0
    );
}

/// Only what the filter matches is in the file, in both directions, and the filter can be another meanwhile.
#[test]
fn a_filter_says_what_is_written() {
    let sink = Sink::default();
    let trace = Trace::with_clock(sink.clone(), ticking()).unwrap();
    let (a, b) = pair(Config::default()).unwrap();
    let mut a = Traced::new(Box::new(a).open(1).unwrap().remove(0), trace.clone());
    let mut b = Box::new(b).open(1).unwrap().remove(0);
    let mut pool = pool(512);
    let mut exchange = |trace_to: &str| {
        trace.set_filter(Some(trace_to.parse().unwrap()));
        let before = blocks(&sink.0.lock().unwrap()).len();
        let (mut batch, mut done) = (Batch::new(), Batch::new());
        for port in [1000, 2000] {
            batch.extend([frame(&mut pool, &request(Link::Ip, port, 1))]);
        }
        a.tx_burst(&mut pool, &mut batch, &mut done);
        for port in [1000, 2000, 3000] {
            batch.extend([frame(&mut pool, &request(Link::Ip, port, 1))]);
        }
        b.tx_burst(&mut pool, &mut batch, &mut done);
        a.rx_burst(&mut pool, &mut batch);
        assert_eq!(batch.len(), 3, "what passes is the same");
        batch.clear();
        blocks(&sink.0.lock().unwrap()).len() - before
    };
    assert_eq!(exchange("port 1000"), 2);
    assert_eq!(exchange("port 3000 or 2000"), 3);
    assert_eq!(exchange("udp"), 0);
    assert_eq!(exchange(""), 5);
    assert_eq!((trace.left_out(), trace.failed()), (3 + 2 + 5, 0));
}
