//! Our end of an exchange, a step at a time, for a stack that is driven by hand: the same words as `exchange` has for a runtime.

use janus_tcp::{ConnId, Error, Instant, Stack};

use crate::exchange::{CHUNK, Job, RIGHT, Role, Stream, TO_JANUS, TO_KERNEL, WRONG};

/// Our end.
pub(crate) struct End {
    /// The connection's name of the moment.
    pub(crate) conn: Option<ConnId>,
    /// Bytes of ours that the stack has taken.
    pub(crate) written: u64,
    /// Whether both ends have got what they should, once that is known.
    pub(crate) right: Option<bool>,
    role: Role,
    job: Option<Job>,
    /// The kernel's first words, as far as they have come.
    told: Vec<u8>,
    /// Bytes to write, and how many of them are written.
    outgoing: (Vec<u8>, usize),
    source: Stream,
    left_out: u64,
    expected: Stream,
    left_in: u64,
    as_expected: bool,
    last: Vec<u8>,
    scratch: Vec<u8>,
}

impl End {
    pub(crate) fn new(role: Role, job: Job) -> End {
        let mut end = End {
            conn: None,
            written: 0,
            right: None,
            role,
            job: None,
            told: Vec::new(),
            outgoing: (Vec::new(), 0),
            source: Stream::new(TO_KERNEL),
            left_out: 0,
            expected: Stream::new(TO_JANUS),
            left_in: 0,
            as_expected: true,
            last: Vec::new(),
            scratch: Vec::new(),
        };
        if role == Role::KernelListens {
            end.begin(job);
            end.outgoing.0.extend(job.to_bytes());
        }
        end
    }

    fn begin(&mut self, job: Job) {
        (self.left_in, self.left_out) = (job.to_janus, job.to_kernel);
        self.job = Some(job);
    }

    /// Writes and reads what it can.
    pub(crate) fn step(&mut self, stack: &mut Stack, now: Instant) {
        let Some(conn) = self.conn else { return };
        if stack.is_connected(conn) != Ok(true) || self.right.is_some() {
            return;
        }
        if self.job.is_none() && !self.is_told(stack, now, conn) {
            return;
        }
        self.write(stack, now, conn);
        self.read(stack, now, conn);
        let all = self.left_in == 0 && self.left_out == 0 && self.outgoing.0.is_empty();
        if all {
            self.end(stack, now, conn);
        }
    }

    fn is_told(&mut self, stack: &mut Stack, now: Instant, conn: ConnId) -> bool {
        assert_eq!(self.role, Role::KernelConnects);
        let mut into = [0; 16];
        let wanted = &mut into[self.told.len()..];
        if let Ok(got) = stack.read(now, conn, wanted) {
            let told = wanted[..got].to_vec();
            self.told.extend(told);
        }
        let Ok(job) = self.told[..].try_into() else {
            return false;
        };
        self.begin(Job::from_bytes(job));
        true
    }

    fn write(&mut self, stack: &mut Stack, now: Instant, conn: ConnId) {
        loop {
            let (bytes, done) = &mut self.outgoing;
            if *done == bytes.len() {
                let len = self.left_out.min(CHUNK as u64);
                bytes.resize(len as usize, 0);
                (*done, self.left_out) = (0, self.left_out - len);
                self.source.fill(bytes);
            }
            if bytes.is_empty() {
                return;
            }
            match stack.write(now, conn, &bytes[*done..]) {
                Ok(taken) => {
                    *done += taken;
                    self.written += taken as u64;
                }
                Err(Error::WouldBlock) => return,
                Err(error) => panic!("our end writes: {error}"),
            }
        }
    }

    fn read(&mut self, stack: &mut Stack, now: Instant, conn: ConnId) {
        let mut chunk = vec![0; CHUNK];
        while self.left_in > 0 {
            let wanted = self.left_in.min(CHUNK as u64) as usize;
            match stack.read(now, conn, &mut chunk[..wanted]) {
                Ok(0) => panic!("the kernel's end is over, {} bytes to come", self.left_in),
                Ok(got) => {
                    self.as_expected &= self.expected.takes(&chunk[..got], &mut self.scratch);
                    self.left_in -= got as u64;
                }
                Err(Error::WouldBlock) => return,
                Err(error) => panic!("our end reads: {error}"),
            }
        }
    }

    /// The kernel's verdict, nothing behind it, and then ours. The kernel closes first, so that it remembers the connection when copies of our
    /// last segments are late.
    fn end(&mut self, stack: &mut Stack, now: Instant, conn: ConnId) {
        let mut into = [0; 8];
        match stack.read(now, conn, &mut into) {
            Ok(0) => {}
            Ok(got) => return self.last.extend(&into[..got]),
            Err(Error::WouldBlock) => return,
            Err(error) => panic!("our end listens: {error}"),
        }
        let verdict = if self.as_expected { RIGHT } else { WRONG };
        if stack.write(now, conn, &[verdict]) == Ok(1) {
            self.written += 1;
            self.right = Some(self.as_expected && self.last == [RIGHT]);
            stack.close(now, conn);
            self.conn = None;
        }
    }
}
