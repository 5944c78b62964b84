//! One direction between two hosts: what it does to a packet, decided packet by packet by a seeded generator.
//! What never lives here: where packets wait (`net`).

use super::random::Random;
use crate::segment::{self, Flags};
use janus_tcp::Instant;
use std::time::Duration;

/// How a direction treats packets. The default is a wire of one millisecond that does nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkModel {
    /// Time from one end to the other.
    pub delay: Duration,
    /// Up to this much more, differently for each packet: packets overtake each other when it is large.
    pub jitter: Duration,
    /// Of a thousand packets so many are lost.
    pub loss: u16,
    /// Of a million packets so many more are lost: for links on which loss is rare.
    pub rare_loss: u32,
    /// Of a thousand packets so many arrive twice, the copy with a delay of its own.
    pub duplicate: u16,
    /// Of a thousand packets so many are held back for three more delays, and so overtaken.
    pub reorder: u16,
    /// Of a thousand packets so many have one byte changed.
    pub corrupt: u16,
    /// Of a thousand packets with data so many are cut in two, as middleboxes do; the pieces may overlap.
    pub split: u16,
    /// Bits a second; `None`: no limit.
    pub rate: Option<u64>,
    /// With a rate: bytes that may wait; what finds no room is lost.
    pub queue: usize,
    /// Of a thousand packets of ECN-capable transports so many are marked (RFC 3168).
    pub mark: u16,
    /// With a rate: all of them that find more than so many bytes waiting are marked.
    pub mark_above: usize,
    /// The longest packet it takes.
    pub mtu: usize,
    /// Of a longer packet the sender hears nothing. Else it is told by ICMP, or the packet is cut when it may be.
    pub black_hole: bool,
}

impl Default for LinkModel {
    fn default() -> LinkModel {
        LinkModel {
            delay: Duration::from_millis(1),
            jitter: Duration::ZERO,
            loss: 0,
            rare_loss: 0,
            duplicate: 0,
            reorder: 0,
            corrupt: 0,
            split: 0,
            rate: None,
            queue: 64 << 10,
            mark: 0,
            mark_above: usize::MAX,
            mtu: usize::MAX,
            black_hole: false,
        }
    }
}

impl LinkModel {
    /// Some link: everything from perfect to wretched, drawn from the generator.
    pub fn draw(random: &mut Random) -> LinkModel {
        let sometimes = |random: &mut Random, most: u64| match random.within(0..3) {
            0 => 0,
            _ => random.within(0..most + 1) as u16,
        };
        let delay = Duration::from_micros(random.within(10..80_000));
        LinkModel {
            delay,
            jitter: delay.mul_f64(random.within(0..100) as f64 / 200.0),
            loss: sometimes(random, 120),
            duplicate: sometimes(random, 50),
            reorder: sometimes(random, 80),
            corrupt: sometimes(random, 30),
            split: sometimes(random, 100),
            rate: (random.within(0..3) == 0).then(|| random.within(200_000..20_000_000)),
            queue: random.within(6_000..100_000) as usize,
            mark: sometimes(random, 100),
            ..LinkModel::default()
        }
    }
}

/// Fate of a packet on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Lost,
    /// It arrives then; with a byte changed, perhaps.
    Arrives {
        at: Instant,
        /// Which byte, and what is XORed to it.
        damage: Option<(usize, u8)>,
    },
}

/// The packet in two pieces that may overlap, if it is a TCP segment with data enough. The bits that belong to the end
/// stay with the second one.
pub(super) fn split(packet: &[u8], random: &mut Random) -> Option<[Vec<u8>; 2]> {
    let whole = segment::decode(packet)
        .ok()
        .filter(|segment| segment.payload.len() > 1)?;
    let len = whole.payload.len() as u64;
    let start = random.within(1..len) as usize;
    let end = match random.chance(500) {
        true => start,
        false => random.within(start as u64..len) as usize,
    };
    let (mut first, mut second) = (whole.clone(), whole);
    first.payload.truncate(end);
    first.flags = Flags(first.flags.0 & !(Flags::FIN.0 | Flags::PSH.0));
    second.payload.drain(..start);
    second.seq = second.seq.wrapping_add(start as u32);
    Some([segment::encode(&first), segment::encode(&second)])
}

/// How long so many bytes take.
fn time_for(bytes: usize, rate: u64) -> Duration {
    let nanos = bytes as u128 * 8_000_000_000 / u128::from(rate);
    Duration::from_nanos(nanos.min(u128::from(u64::MAX)) as u64)
}

/// A direction at work.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) model: LinkModel,
    /// Until when earlier packets take up the rate.
    busy_until: Instant,
}

impl Link {
    pub(super) fn new(model: LinkModel) -> Link {
        Link {
            model,
            busy_until: Instant::ZERO,
        }
    }

    /// The fate of a packet, and of its copy if it is duplicated.
    pub(super) fn carry(
        &mut self,
        now: Instant,
        len: usize,
        random: &mut Random,
    ) -> [Option<Fate>; 2] {
        let Some(departure) = self.departure(now, len) else {
            return [Some(Fate::Lost), None];
        };
        let lost =
            random.chance(self.model.loss) || random.chance_in_a_million(self.model.rare_loss);
        let first = if lost {
            Fate::Lost
        } else {
            self.arrival(departure, len, random)
        };
        let copy = random
            .chance(self.model.duplicate)
            .then(|| self.arrival(departure, len, random));
        [Some(first), copy]
    }

    /// When the last bit has left; `None` when the queue is full.
    fn departure(&mut self, now: Instant, len: usize) -> Option<Instant> {
        let Some(rate) = self.model.rate else {
            return Some(now);
        };
        if self.has_waiting(now, self.model.queue) {
            return None;
        }
        self.busy_until = self.busy_until.max(now) + time_for(len, rate);
        Some(self.busy_until)
    }

    /// More than so many bytes wait for the rate.
    fn has_waiting(&self, now: Instant, bytes: usize) -> bool {
        let waiting = self.busy_until.saturating_since(now);
        self.model
            .rate
            .is_some_and(|rate| waiting > time_for(bytes, rate))
    }

    /// The queue is long enough to mark what comes.
    pub(super) fn is_congested(&self, now: Instant) -> bool {
        self.has_waiting(now, self.model.mark_above)
    }

    fn arrival(&self, departure: Instant, len: usize, random: &mut Random) -> Fate {
        let model = &self.model;
        let jitter = Duration::from_nanos(random.within(0..model.jitter.as_nanos() as u64 + 1));
        let held = if random.chance(model.reorder) {
            3 * model.delay
        } else {
            Duration::ZERO
        };
        let damage = random.chance(model.corrupt).then(|| {
            (
                random.within(0..len as u64) as usize,
                random.within(1..256) as u8,
            )
        });
        Fate::Arrives {
            at: departure + model.delay + jitter + held,
            damage,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(model: LinkModel, packets: usize) -> Vec<Fate> {
        let mut link = Link::new(model);
        let mut random = Random::new(1);
        (0..packets)
            .flat_map(|_| link.carry(Instant::from_millis(1), 1_250, &mut random))
            .flatten()
            .collect()
    }

    #[test]
    fn a_perfect_link_only_delays() {
        let expected = Fate::Arrives {
            at: Instant::from_millis(2),
            damage: None,
        };
        assert!(
            arrivals(LinkModel::default(), 100)
                .iter()
                .all(|fate| *fate == expected)
        );
    }

    #[test]
    fn a_rate_spaces_packets_and_its_queue_is_bounded() {
        // 1,250 bytes at 10 Mbit/s take one millisecond.
        let fates = arrivals(
            LinkModel {
                rate: Some(10_000_000),
                queue: 5_000,
                ..LinkModel::default()
            },
            10,
        );
        let arrived: Vec<u64> = fates
            .iter()
            .filter_map(|fate| match fate {
                Fate::Arrives { at, .. } => Some(at.as_millis()),
                Fate::Lost => None,
            })
            .collect();
        assert_eq!(arrived, [3, 4, 5, 6, 7]);
    }

    #[test]
    fn a_long_queue_is_congested() {
        let mut link = Link::new(LinkModel {
            rate: Some(10_000_000),
            mark_above: 2_500,
            ..LinkModel::default()
        });
        let (now, mut random) = (Instant::from_millis(1), Random::new(1));
        let congested: Vec<bool> = (0..4)
            .map(|_| {
                let congested = link.is_congested(now);
                link.carry(now, 1_250, &mut random);
                congested
            })
            .collect();
        assert_eq!(congested, [false, false, false, true]);
        assert!(!link.is_congested(Instant::from_millis(4)));
        link.model.rate = None;
        assert!(!link.is_congested(now));
    }

    #[test]
    fn rare_losses_come_about_as_often_as_asked() {
        let fates = arrivals(
            LinkModel {
                rare_loss: 1_000,
                ..LinkModel::default()
            },
            100_000,
        );
        let lost = fates.iter().filter(|fate| **fate == Fate::Lost).count();
        assert!((70..130).contains(&lost), "{lost} lost");
    }

    #[test]
    fn losses_and_copies_come_about_as_often_as_asked() {
        let fates = arrivals(
            LinkModel {
                loss: 100,
                duplicate: 200,
                ..LinkModel::default()
            },
            10_000,
        );
        let lost = fates.iter().filter(|fate| **fate == Fate::Lost).count();
        assert!((900..1_100).contains(&lost), "{lost} lost");
        assert!(
            (11_800..12_200).contains(&fates.len()),
            "{} in all",
            fates.len()
        );
    }

    #[test]
    fn no_drawn_link_is_out_of_its_bounds() {
        let mut random = Random::new(7);
        for _ in 0..1_000 {
            let model = LinkModel::draw(&mut random);
            assert!(
                model.loss <= 120
                    && model.duplicate <= 50
                    && model.reorder <= 80
                    && model.corrupt <= 30
                    && model.split <= 100
            );
            assert!(model.queue >= 6_000 && model.rate.is_none_or(|rate| rate >= 200_000));
        }
    }
}
