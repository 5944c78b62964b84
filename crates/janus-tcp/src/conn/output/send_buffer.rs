//! How much may be written ahead, and when a writer who found no room is told that there is some. Two ways to count:
//!
//! * by bytes: twice what may be in flight, so that the next flight is there when the last one is acknowledged;
//! * as Linux counts ([`crate::Config::count_as_linux`]): a budget for bytes and what surrounds them, which grows when a writer
//!   waits while the congestion window is not full, and is looked at only where a new large segment begins. A program that
//!   was written for Linux then sees the same short writes and is woken at the same moments.

use crate::conn::{Conn, View};
use crate::rules::profile::DEFAULT;
use crate::store::Account;
use crate::store::hot::Hot;
use crate::store::keys::Key;
use crate::store::pressure::Pressure;

/// Least charge of a segment, a quarter of what its buffer holds: how few bytes it has is the peer's choice (by its MSS).
const LEAST_CHARGE: u32 = janus_mem::SLOT_SIZE as u32 / 4;
/// Overhead of a large segment (SKB_TRUESIZE of an empty one).
const AROUND: u32 = 1_280;
/// Charges of Linux for the headers and the structures of one packet (MAX_TCP_HEADER, skb_shared_info, sk_buff).
const HEADERS: u32 = 320;
const SHARED_INFO: u32 = 320;
const STRUCTURE: u32 = 256;
/// Segments of the first flight (TCP_INIT_CWND).
const FIRST_FLIGHT: u32 = 10;
/// The most that one large segment holds (GSO_LEGACY_MAX_SIZE less the headers).
const LARGE: u32 = 65_536 - HEADERS - 1;
/// Windows up to this size are not halved for the size of a large segment (TCP_MSS_DEFAULT).
const WINDOW_SMALL: u32 = 536;

impl View<'_> {
    /// Returns the send budget: the largest charge of bytes written ahead.
    pub(crate) fn budget(&self) -> u32 {
        let hot = self.hot;
        let config = self.rules.config();
        if !config.count_as_linux {
            return self.budget_in_bytes();
        }
        let wished = self.rules.profiles().get(self.tcb.profile).send_buffer;
        let (least, most) = (config.send_buffer, config.send_buffer_max);
        if let Some(bytes) = wished {
            return bytes.saturating_mul(2);
        }
        match (
            self.blocks.accounts[self.id.index() as usize].budget,
            self.blocks.shortage.level,
        ) {
            (_, Pressure::High | Pressure::Critical) => least,
            (0, Pressure::None) => for_flight(hot, FIRST_FLIGHT).min(most).max(least),
            (grown, Pressure::None) => grown,
        }
    }

    /// Like [`View::budget`], for a connection that does not count as Linux.
    #[inline(always)]
    fn budget_in_bytes(&self) -> u32 {
        let hot = self.hot;
        let config = self.rules.config();
        let profile = self.tcb.profile;
        if profile != DEFAULT
            && let Some(wished) = self.rules.profiles().get(profile).send_buffer
        {
            return wished;
        }
        let least = config.send_buffer;
        let most = match self.blocks.shortage.level {
            Pressure::None => config.send_buffer_max.max(least),
            _ => least,
        };
        hot.congestion.cwnd().saturating_mul(2).clamp(least, most)
    }

    /// Returns the charge of the bytes written ahead.
    fn charge(&self) -> u32 {
        let hot = self.hot;
        if !self.rules.config().count_as_linux {
            return charge_in_bytes(hot);
        }
        let bytes = hot.sender.unsent.bytes + hot.sender.flight.bytes;
        charge_in_bytes(hot).max(bytes + AROUND * bytes.div_ceil(self.size_goal()))
    }

    /// Bytes that one large segment takes: a whole number of packets, no more than half of the largest window the peer ever
    /// offered (tcp_xmit_size_goal, tcp_bound_to_half_wnd).
    fn size_goal(&self) -> u32 {
        let hot = self.hot;
        let mss = u32::from(self.tcb.payload_mss()).max(1);
        if self.rules.config().burst_least.is_none() {
            return mss;
        }
        let window = match hot.sender.max_snd_wnd {
            small @ 0..=WINDOW_SMALL => small,
            large => large / 2,
        };
        (LARGE.min(window) / mss * mss).max(mss)
    }

    /// Bytes unsent at which a writer is stopped.
    #[inline(always)]
    fn not_sent_low(&self) -> u32 {
        let profile = self.tcb.profile;
        let own = match profile {
            DEFAULT => None,
            _ => self.rules.profiles().get(profile).not_sent_low,
        };
        own.or(self.rules.config().not_sent_low).unwrap_or(u32::MAX)
    }

    /// Whether a writer should be told that there is room: half as much as is taken is free, so that it is not woken for
    /// every segment, and little enough is unsent (Linux: sk_stream_is_writeable, tcp_stream_memory_free); and that it would
    /// get a packet buffer for it.
    pub(crate) fn is_writable(&self) -> bool {
        let gets_none = match self.blocks.shortage.level {
            Pressure::Critical => !self.takes_a_segment(),
            _ => self.has_its_share(),
        };
        if gets_none {
            return false;
        }
        let hot = self.hot;
        let (budget, charge) = (self.budget(), self.charge());
        let low = self.not_sent_low();
        charge < budget
            && budget - charge >= charge / 2
            && (low == u32::MAX || u64::from(hot.sender.unsent.bytes) * 2 < low.into())
    }
}

impl Conn<'_> {
    /// A hot block begins to serve a connection.
    #[cold]
    pub(crate) fn new_account(&mut self) {
        let at = self.id.index() as usize;
        if at >= self.blocks.accounts.len() {
            self.blocks.accounts.resize(at + 1, Account::default());
        }
        self.blocks.accounts[at] = Account::default();
    }

    /// The connection came with its hot block from another stack. `queued`: there it stood in a queue.
    pub(crate) fn settles(&mut self, queued: bool, account: Option<Account>) {
        if self.rules.config().count_as_linux {
            self.new_account();
            *self.account() = account.unwrap_or_default();
        }
        if queued {
            self.queue();
        }
        if self.tcb.mss > self.fitting_size() {
            self.path_shrank();
        }
    }

    fn account(&mut self) -> &mut Account {
        &mut self.blocks.accounts[self.id.index() as usize]
    }

    /// How many bytes may be put behind what is queued, before this is asked again. (Linux looks at its budget only where a
    /// new large segment begins: sk_stream_memory_free.)
    #[inline(always)]
    pub(crate) fn send_room(&mut self) -> usize {
        if self.rules.config().count_as_linux {
            return self.send_room_as_linux();
        }
        let hot = &*self.hot;
        if hot.sender.unsent.bytes >= self.view().not_sent_low() {
            return 0;
        }
        self.view()
            .budget_in_bytes()
            .saturating_sub(charge_in_bytes(hot)) as usize
    }

    #[cold]
    fn send_room_as_linux(&mut self) -> usize {
        let hot = &*self.hot;
        let goal = self.view().size_goal();
        let tail = match hot.sender.record_ended {
            true => 0,
            false => self.blocks.accounts[self.id.index() as usize]
                .tail
                .min(hot.sender.unsent.bytes),
        };
        if tail > 0 && tail < goal {
            self.account().tail = tail;
            return (goal - tail) as usize;
        }
        let free = self.view().charge() < self.view().budget()
            && hot.sender.unsent.bytes < self.view().not_sent_low();
        self.account().tail = 0;
        if free { goal as usize } else { 0 }
    }

    /// Bytes were put behind what is queued, as many as there was room for, or the last of a write.
    #[inline]
    pub(crate) fn took_room(&mut self, bytes: u32) {
        if self.rules.config().count_as_linux {
            self.took_room_as_linux(bytes);
        }
    }

    #[cold]
    fn took_room_as_linux(&mut self, bytes: u32) {
        let (hot, goal) = (&*self.hot, self.view().size_goal());
        let mut tail = self.blocks.accounts[self.id.index() as usize].tail + bytes;
        if tail >= goal {
            // A full one is pushed, and what the windows cut off of it is joined by what follows (tcp_push_one).
            let cold = &*self.tcb;
            let mss = u32::from(cold.payload_mss()).max(1);
            let leaves = hot
                .congestion
                .cwnd()
                .saturating_sub(hot.sender.pipe)
                .min(hot.usable_window(cold));
            tail = goal.min(hot.sender.unsent.bytes.saturating_sub(leaves / mss * mss));
        }
        self.account().tail = tail;
    }

    /// A writer waits, and something was acknowledged or sent: the budget grows unless the congestion window is what holds
    /// the sender back (tcp_new_space), and the writer may be told.
    #[cold]
    pub(crate) fn offer_room(&mut self) {
        let hot = &*self.hot;
        let mss = u32::from(self.tcb.payload_mss()).max(1);
        let grows = self.rules.config().count_as_linux
            && self.blocks.shortage.level == Pressure::None
            && hot.sender.pipe + mss <= hot.congestion.cwnd();
        if grows {
            let most = self
                .rules
                .config()
                .send_buffer_max
                .max(self.rules.config().send_buffer);
            let wanted = for_flight(hot, (hot.congestion.cwnd() / mss).max(FIRST_FLIGHT)).min(most);
            let least = self.view().budget();
            self.account().budget = wanted.max(least);
        }
        if self.view().is_writable() {
            self.wake_writer();
        }
    }
}

/// Bytes that a connection has written ahead.
#[inline]
fn charge_in_bytes(hot: &Hot) -> u32 {
    let least = (hot.sender.unsent.count + hot.sender.flight.count) * LEAST_CHARGE;
    least.max(hot.sender.unsent.bytes + hot.sender.flight.bytes)
}

/// Charge of twice a flight of `segments` segments (tcp_sndbuf_expand).
fn for_flight(hot: &Hot, segments: u32) -> u32 {
    let packet = u32::from(hot.sender.mss_full) + HEADERS + SHARED_INFO;
    (packet.next_power_of_two() + STRUCTURE).saturating_mul(2 * segments)
}
