//! The daemon's side of its statistics: between bursts and before it sleeps the loop shows its counts, and those of its members, in the file
//! beside its socket. Nothing is written there for a packet, and nothing at all where nothing has changed.

use std::path::Path;
use std::time::SystemTime;

use janus_shm::Board;

use crate::Counters;
use crate::member::{Member, Memory, Stage};
use crate::statistics::{
    FORM, MemberStatistics, PORTS_SHOWN, Row, Statistics, from_millis, to_millis,
};

pub(crate) struct Publisher {
    /// `None`: it cannot be had.
    board: Option<Board>,
    since: u64,
    /// Places whose rows show a member, a bit each.
    occupied: u128,
}

const EMPTY: Row = [0; FORM.words as usize];

impl Publisher {
    /// Of the daemon that listens at this socket. Without its file it carries packets all the same.
    pub(crate) fn create(socket: &Path) -> Publisher {
        let path = Statistics::path_of(socket);
        let board = Board::create(&path, FORM).inspect_err(|error| {
            eprintln!("janus: no statistics at {}: {error}", path.display());
        });
        Publisher {
            board: board.ok(),
            since: to_millis(SystemTime::now()),
            occupied: 0,
        }
    }

    /// The last figures stay, for the next daemon.
    pub(crate) fn leaves(self) {
        if let Some(board) = self.board {
            board.leave();
        }
    }

    pub(crate) fn show(&mut self, counters: &Counters, members: &mut [Option<Box<Member>>]) {
        let Some(board) = &mut self.board else {
            return;
        };
        for (slot, member) in members.iter_mut().enumerate() {
            let bit = 1_u128 << slot;
            match member.as_mut().filter(|it| it.stage == Stage::Ready) {
                Some(member) => {
                    board.show(1 + slot, &row_of(member));
                    self.occupied |= bit;
                }
                None if self.occupied & bit == 0 => {}
                None => {
                    board.show(1 + slot, &EMPTY);
                    self.occupied &= !bit;
                }
            }
        }
        let row = Statistics::row(std::process::id(), self.since, counters);
        board.show(0, &row);
    }
}

fn row_of(member: &mut Member) -> Row {
    let claims = (member.claims.values()).map(|port| (port.udp, port.number));
    let first = claims.take(PORTS_SHOWN);
    let account = &member.account;
    let numbers = MemberStatistics {
        name: String::new(),
        identity: member.identity,
        user: member.user,
        process: account.process,
        cores: member.cores.len() as u32,
        since: from_millis(account.since),
        received: account.received,
        sent: account.sent,
        lost_no_buffer: account.lost_no_buffer,
        refused: account.refused,
        limited: account.limited,
        buffers: member.cores.iter_mut().map(|core| core.buffers()).sum(),
        memory: match &member.memory {
            Memory::Own(memory) => memory.len() as u64,
            Memory::Lent(_) | Memory::None => 0,
        },
        ports: member.claims.len() as u64 + u64::from(member.taken),
        tcp_ports: Vec::new(),
        udp_ports: Vec::new(),
    };
    numbers.row(first, &member.name)
}

/// A place for each bit.
const _: () = assert!(crate::MEMBERS_MAX <= 128);
