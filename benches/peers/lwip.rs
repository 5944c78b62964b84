//! lwIP as Debian builds it, behind the load generator: the raw API on one thread, through `lwip.c`, whose heading says how. The
//! package's options hold: no timestamps, buffers and windows of 64 KiB, `malloc` for its memory, its assertions, `-O2`. It computes
//! and verifies checksums. lwIP is one for the whole process, so one of these lives at a time.

use crate::behind::{Echo, buffers};
use crate::support::far::packet::{Crafter, Ends, connection};
use crate::support::stream::{Application, Dir, Server};
use janus_mem::{Frame, Pool};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

/// Frames of streams on their way.
const STREAM_BUFFERS: u32 = 4_096;

static IN_USE: AtomicBool = AtomicBool::new(false);

type Took = unsafe extern "C" fn(*mut c_void, u32, *const u8, usize);

unsafe extern "C" {
    fn janus_lwip_start(is_echo: i32) -> i32;
    fn janus_lwip_input(bytes: *const u8, len: u16) -> i32;
    fn janus_lwip_timers();
    fn janus_lwip_sent(at: u32, len: *mut usize) -> *const u8;
    fn janus_lwip_end_turn();
    fn janus_lwip_reader(took: Took, context: *mut c_void);
    fn janus_lwip_conns() -> u32;
    fn janus_lwip_peer(conn: u32, address: *mut u32, port: *mut u16);
    fn janus_lwip_write(conn: u32, bytes: *const u8, len: usize) -> usize;
    fn janus_lwip_flush(conn: u32);
}

/// The process's lwIP. Only its holder calls it, and it stays on its thread.
struct Lwip {
    /// Raw pointers are neither sent nor shared.
    _thread: std::marker::PhantomData<*mut ()>,
}

impl Lwip {
    fn start(ends: &Ends, is_echo: bool) -> Self {
        assert!(!IN_USE.swap(true, Ordering::Relaxed), "one at a time");
        let mut lwip = Self {
            _thread: std::marker::PhantomData,
        };
        // SAFETY: nothing else calls lwIP, as this is the only holder.
        let started = unsafe { janus_lwip_start(i32::from(is_echo)) };
        assert_eq!(started, 0, "lwIP starts");
        // It asks for the gateway's address; without an answer it would keep only a few frames.
        let mut answer = [0; 64];
        let question = lwip.sent().next().expect("a question");
        let len = Crafter::new(ends).arp_reply(question, &mut answer);
        let len = len.expect("a question for an address");
        lwip.end_turn();
        lwip.take(&answer[..len]);
        lwip
    }

    #[inline]
    fn take(&mut self, frame: &[u8]) {
        // SAFETY: the frame is lwIP's during the call only, which the assertion sees to. lwIP's input path does not write to it
        // in a way that matters: the bytes of a packet buffer are initialized and the far end does not look at them again.
        let is_done = unsafe { janus_lwip_input(frame.as_ptr(), frame.len() as u16) };
        assert_ne!(is_done, 0, "lwIP keeps no frame");
    }

    #[inline]
    fn timers(&mut self) {
        // SAFETY: on its thread, with nothing of lwIP's borrowed.
        unsafe { janus_lwip_timers() }
    }

    fn sent(&self) -> impl Iterator<Item = &[u8]> {
        (0..).map_while(|at| {
            let mut len = 0;
            // SAFETY: `len` lives. The bytes stay as they are until the end of the turn, which needs `&mut self`.
            unsafe {
                let bytes = janus_lwip_sent(at, &mut len);
                (!bytes.is_null()).then(|| std::slice::from_raw_parts(bytes, len))
            }
        })
    }

    #[inline]
    fn end_turn(&mut self) {
        // SAFETY: nothing that was sent is borrowed.
        unsafe { janus_lwip_end_turn() }
    }
}

impl Drop for Lwip {
    fn drop(&mut self) {
        IN_USE.store(false, Ordering::Relaxed);
    }
}

/// lwIP with an application that echoes, which is in C.
pub struct LwipEcho(Lwip);

impl LwipEcho {
    pub fn new(ends: &Ends) -> Result<Self, String> {
        Ok(Self(Lwip::start(ends, true)))
    }
}

impl Echo for LwipEcho {
    fn turn(&mut self, frames: &[Frame]) {
        for frame in frames {
            self.0.take(frame.data());
        }
        self.0.timers();
    }

    fn sent(&self) -> impl Iterator<Item = &[u8]> {
        self.0.sent()
    }

    fn end_turn(&mut self) {
        self.0.end_turn();
    }
}

/// lwIP with an application that reads or writes streams.
pub struct LwipStreams {
    lwip: Lwip,
    pool: Pool,
    data: Vec<u8>,
    /// Numbers of the connections, in lwIP's order.
    numbers: Vec<usize>,
}

/// The application's side of a turn in which lwIP gives what comes.
struct Reader<'a> {
    app: &'a mut Application,
    numbers: &'a [usize],
    data: &'a mut [u8],
    is_lent: bool,
}

impl LwipStreams {
    pub fn new(ends: &Ends) -> Result<Self, String> {
        Ok(Self {
            lwip: Lwip::start(ends, false),
            pool: buffers(STREAM_BUFFERS),
            data: vec![0; 1 << 16],
            numbers: Vec::new(),
        })
    }

    fn write(&mut self, app: &mut Application) {
        for (at, number) in self.numbers.iter().enumerate() {
            loop {
                let bytes = app.to_write(*number);
                // SAFETY: the connection is open; lwIP copies the bytes.
                let n = unsafe { janus_lwip_write(at as u32, bytes.as_ptr(), bytes.len()) };
                if n == 0 {
                    break;
                }
                app.wrote(*number, n);
            }
            // SAFETY: the connection is open.
            unsafe { janus_lwip_flush(at as u32) };
        }
    }
}

/// Takes what a connection received.
unsafe extern "C" fn took(context: *mut c_void, conn: u32, bytes: *const u8, len: usize) {
    // SAFETY: `turn` gives a reader that outlives the frames it takes in, and lwIP whole pieces.
    let (reader, bytes) = unsafe {
        let reader = &mut *context.cast::<Reader<'_>>();
        (reader, std::slice::from_raw_parts(bytes, len))
    };
    let number = reader.numbers[conn as usize];
    if reader.is_lent {
        return reader.app.not_counted_compare(number, [bytes]);
    }
    let copy = &mut reader.data[..len];
    copy.copy_from_slice(bytes);
    reader.app.not_counted_compare(number, [&*copy]);
}

impl Server for LwipStreams {
    fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    fn turn(
        &mut self,
        _: janus_tcp::Instant,
        work: Option<Dir>,
        frames: &mut Vec<Frame>,
        app: &mut Application,
    ) {
        let mut reader = Reader {
            app,
            numbers: &self.numbers,
            data: &mut self.data,
            is_lent: work == Some(Dir::Rx { lent: true }),
        };
        // SAFETY: `reader` lives until the frames are in, and lwIP calls it no later: nothing is received outside of `take`.
        unsafe { janus_lwip_reader(took, (&raw mut reader).cast()) };
        for frame in &*frames {
            self.lwip.take(frame.data());
        }
        if work == Some(Dir::Tx) {
            self.write(app);
        }
        self.lwip.timers();
    }

    fn sent(&self, each: &mut dyn FnMut(&[u8])) {
        self.lwip.sent().for_each(each);
    }

    fn end_turn(&mut self) {
        self.lwip.end_turn();
    }

    fn accept(&mut self) -> usize {
        // SAFETY: on its thread.
        let open = unsafe { janus_lwip_conns() };
        for conn in self.numbers.len() as u32..open {
            let (mut address, mut port) = (0, 0);
            // SAFETY: the connection is one of those open; both places live.
            unsafe { janus_lwip_peer(conn, &mut address, &mut port) };
            let number = connection(address, port).expect("one of ours");
            self.numbers.push(number as usize);
        }
        self.numbers.len()
    }
}
