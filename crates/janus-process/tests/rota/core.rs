//! A core with a device and three sockets, and the threads of its program.

use std::time::Duration;

use janus_process::Result;
use janus_tcp::Instant;
use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
use loom::thread::{self, JoinHandle};

use crate::bell::{Bell, Waker};
use crate::rota::{Rota, Sleepers, Turns};
use crate::sleep::Sleeper;

const SOCKETS: usize = 3;

/// Packets on their way, each for a socket.
struct Device {
    came: Mutex<Came>,
    bell: Waker,
    taken: Mutex<[bool; SOCKETS]>,
    was_taken: Condvar,
}

#[derive(Default)]
struct Came {
    packets: Vec<i32>,
    /// The core sleeps, and is to be rung.
    armed: bool,
}

struct Core {
    sleepers: Sleepers,
    device: Arc<Device>,
    asleep: bool,
    ready: [bool; SOCKETS],
    happened: Vec<i32>,
}

impl Core {
    /// As a seat's call on its stack.
    fn on_stack(&mut self) {
        if self.asleep {
            self.take_turn();
        }
    }

    fn wake(&mut self) {
        self.asleep = false;
        self.device.came.lock().unwrap().armed = false;
        self.device.bell.clear();
    }

    fn becomes_ready(&mut self, socket: i32) {
        self.ready[socket as usize] = true;
        self.happened.push(socket);
    }

    /// The end of a call.
    fn settle(&mut self) {
        self.send();
        if !self.sleepers.is_nobody() {
            self.settle_sleepers();
        }
    }
}

impl Turns for Core {
    fn sleepers(&mut self) -> &mut Sleepers {
        &mut self.sleepers
    }

    fn time(&mut self) -> Result<Instant> {
        Ok(Instant::ZERO)
    }

    fn take_turn(&mut self) {
        self.wake();
        let packets = std::mem::take(&mut self.device.came.lock().unwrap().packets);
        for socket in packets {
            self.becomes_ready(socket);
            self.device.taken.lock().unwrap()[socket as usize] = true;
            self.device.was_taken.notify_all();
        }
    }

    fn send(&mut self) {}

    fn watch(&mut self, _on: &[i32]) {
        self.on_stack();
    }

    fn happened(&mut self) -> Vec<i32> {
        self.on_stack();
        std::mem::take(&mut self.happened)
    }

    fn sleep(&mut self) -> Result<Option<Option<Duration>>> {
        self.wake();
        let mut came = self.device.came.lock().unwrap();
        if !came.packets.is_empty() {
            return Ok(None);
        }
        came.armed = true;
        self.asleep = true;
        Ok(Some(None))
    }
}

fn read<'a>(rota: &'a Rota<Core>, mut core: MutexGuard<'a, Core>, socket: i32) {
    loop {
        core.on_stack();
        if std::mem::take(&mut core.ready[socket as usize]) {
            return core.settle();
        }
        (core, _) = rota
            .sleep(core, &[socket], &mut [], None, None)
            .unwrap_or_else(|_| panic!("it does not end"));
    }
}

/// A core with its guardian.
#[derive(Clone)]
pub(crate) struct World {
    rota: Arc<Rota<Core>>,
    device: Arc<Device>,
    guardian: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl World {
    pub(crate) fn new() -> World {
        let device = Arc::new(Device {
            came: Mutex::default(),
            bell: Arc::new(Bell::new().unwrap()),
            taken: Mutex::default(),
            was_taken: Condvar::new(),
        });
        let core = Core {
            sleepers: Sleepers::default(),
            device: device.clone(),
            asleep: false,
            ready: [false; SOCKETS],
            happened: Vec::new(),
        };
        let rota = Arc::new(Rota::new(core, vec![device.bell.clone()]));
        let me = Sleeper::new().unwrap();
        rota.lock().sleepers().has_guardian(me.clone());
        let watched = rota.clone();
        let guardian = thread::spawn(move || watched.watch(&me, 1));
        World {
            rota,
            device,
            guardian: Arc::new(Mutex::new(Some(guardian))),
        }
    }

    /// A thread that waits until a socket is ready, and takes what there is.
    pub(crate) fn reads(&self, socket: i32) -> JoinHandle<()> {
        let rota = self.rota.clone();
        thread::spawn(move || read(&rota, rota.lock(), socket))
    }

    /// A call of which one socket has something, and which waits for another.
    pub(crate) fn makes_ready_and_reads(&self, ready: i32, socket: i32) {
        let mut core = self.rota.lock();
        core.on_stack();
        core.becomes_ready(ready);
        read(&self.rota, core, socket);
    }

    /// A call that never waits.
    pub(crate) fn calls(&self) {
        let mut core = self.rota.lock();
        core.on_stack();
        core.settle();
    }

    /// Likewise, of which another socket of the core has something.
    pub(crate) fn makes_ready(&self, socket: i32) {
        let mut core = self.rota.lock();
        core.on_stack();
        core.becomes_ready(socket);
        core.settle();
    }

    /// A packet arrives.
    pub(crate) fn brings(&self, socket: i32) {
        let mut came = self.device.came.lock().unwrap();
        came.packets.push(socket);
        let rings = std::mem::take(&mut came.armed);
        drop(came);
        if rings {
            self.device.bell.ring();
        }
    }

    pub(crate) fn awaits_taken(&self, socket: i32) {
        let mut taken = self.device.taken.lock().unwrap();
        while !taken[socket as usize] {
            taken = self.device.was_taken.wait(taken).unwrap();
        }
    }

    /// The program ends: so does the guardian, and nobody is left asleep.
    pub(crate) fn ends(&self) {
        self.rota.lock().sleepers().let_guardian_go();
        let guardian = self.guardian.lock().unwrap().take();
        guardian.unwrap().join().unwrap();
        assert!(self.rota.lock().sleepers().is_nobody());
    }
}
