//! An update in time, as the update machine made it: three shards and two I/O cores that look up from their work at
//! different moments, and the control side that waits for none of them.

use janus_csb::policy::level;
use janus_csb::{Balancer, Draft, IoEnd, Limits, Phase, Ring, ShardId};

use crate::cast::{Did, PORT, Shard, Table, key};
use crate::svg::{COLOURS, GREY, PALE, Svg};

const TICKS: usize = 68;
const BEGIN: usize = 5;
/// The control side looks at the update every so many ticks.
const POLLS: usize = 4;
const TICK: f64 = 11.0;
const LEFT: f64 = 112.0;
const LANE: f64 = 34.0;
const TOP: f64 = 44.0;

/// What a core did in a tick. A core that looks up only every so often does nothing in between.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tick {
    Works,
    Adopts,
    Slice,
    Drains,
}

pub(crate) struct Story {
    phases: Vec<Phase>,
    /// Of each lane: shards, then I/O cores.
    lanes: Vec<(String, Vec<Tick>, Vec<u16>)>,
    diverged: usize,
}

impl Story {
    pub(crate) fn is_over(&self) -> bool {
        self.phases.last() == Some(&Phase::Idle) && self.diverged > 0
    }
}

/// Who looks up from its work how often, and when first.
const SHARDS: [(usize, usize); 3] = [(1, 0), (3, 1), (2, 0)];
const CORES: [(usize, usize); 2] = [(2, 0), (7, 5)];

pub(crate) fn run() -> Story {
    let ring = level(&Ring::uniform(SHARDS.len(), 16, 1), &[]);
    let next = Ring::weighted(&[16, 16, 8], 1).expect("points that make a ring");
    let mut balancer = Balancer::new(ring, Limits::default());
    let mut shards: Vec<Shard> = (0..SHARDS.len() as u8)
        .map(|shard| Shard {
            end: balancer.shard_end(ShardId(shard)),
            table: Table::default(),
        })
        .collect();
    let mut cores: Vec<IoEnd> = CORES.iter().map(|_| balancer.io_end()).collect();
    for name in 0..1200 {
        let owner = balancer.current().newest().owner(key(name), PORT);
        shards[owner.index()].table.open(name, key(name));
    }
    let names = (0..shards.len())
        .map(|n| format!("shard {n}"))
        .chain((0..cores.len()).map(|n| format!("I/O core {n}")));
    let mut lanes: Vec<_> = names.map(|name| (name, Vec::new(), Vec::new())).collect();
    let mut phases = Vec::new();
    for tick in 0..TICKS {
        if tick == BEGIN {
            let begun = balancer.begin(|draft: &mut Draft| draft.set_ring(next.clone()));
            assert_eq!(begun, Ok(()));
        }
        let looks = |(every, first): (usize, usize)| tick % every == first;
        for (n, shard) in shards.iter_mut().enumerate() {
            let epoch = |shard: &Shard| shard.end.steering().newest().epoch();
            let (mut did, before) = (Tick::Works, epoch(shard));
            if looks(SHARDS[n]) {
                did = match shard.turn(48) {
                    Did::Nothing => Tick::Works,
                    Did::Slice => Tick::Slice,
                    Did::Drained => Tick::Drains,
                };
            }
            let adopted = epoch(shard) != before;
            lanes[n].1.push(if adopted { Tick::Adopts } else { did });
            lanes[n]
                .2
                .push(u16::from(epoch(shard) != janus_csb::Epoch::default()));
        }
        for (n, core) in cores.iter_mut().enumerate() {
            let epoch = |core: &IoEnd| core.steering().published().epoch();
            let before = epoch(core);
            if looks(CORES[n]) {
                core.refresh();
            }
            let did = if epoch(core) == before {
                Tick::Works
            } else {
                Tick::Adopts
            };
            let lane = &mut lanes[SHARDS.len() + n];
            lane.1.push(did);
            lane.2
                .push(u16::from(epoch(core) != janus_csb::Epoch::default()));
        }
        let phase = if tick.is_multiple_of(POLLS) {
            balancer.poll()
        } else {
            balancer.phase()
        };
        phases.push(phase);
    }
    Story {
        phases,
        lanes,
        diverged: balancer.last().diverged,
    }
}

fn name(phase: Phase) -> (&'static str, String) {
    match phase {
        Phase::Idle => (PALE, "idle".into()),
        Phase::Proposed => (COLOURS[0], "propose".into()),
        Phase::Traversing => (COLOURS[1], "traverse, report".into()),
        Phase::Building => (COLOURS[2], "build".into()),
        Phase::Publishing => (COLOURS[3], "publish".into()),
        Phase::Grace(round) => (GREY, format!("drain {round}")),
    }
}

pub(crate) fn draw(story: &Story) -> String {
    let lanes = story.lanes.len() as f64;
    let (width, height) = (
        LEFT + TICKS as f64 * TICK + 24.0,
        TOP + (lanes + 1.0) * LANE + 62.0,
    );
    let mut svg = Svg::new(width, height, "An update in time: nobody waits for anybody");
    control(&mut svg, story);
    for (n, (name, ticks, epochs)) in story.lanes.iter().enumerate() {
        let y = TOP + (n as f64 + 1.0) * LANE;
        svg.text((LEFT - 10.0, y + 14.0), "text-anchor=\"end\"", name);
        lane(&mut svg, y, ticks, epochs);
    }
    legend(&mut svg, TOP + (lanes + 1.0) * LANE + 30.0);
    svg.finish()
}

/// The control side: a bar for each phase.
fn control(svg: &mut Svg, story: &Story) {
    svg.text((LEFT - 10.0, TOP + 14.0), "text-anchor=\"end\"", "control");
    let mut from = 0;
    for to in 1..=TICKS {
        if to < TICKS && story.phases[to] == story.phases[from] {
            continue;
        }
        let (x, width) = (LEFT + from as f64 * TICK, (to - from) as f64 * TICK);
        let (color, name) = name(story.phases[from]);
        let style = format!("fill=\"{color}\" fill-opacity=\"0.35\" stroke=\"#fff\"");
        svg.rect((x, TOP), (width, 20.0), &style);
        let fits = name.len() as f64 * 5.6 < width;
        if fits {
            svg.text(
                (x + width / 2.0, TOP + 14.0),
                "text-anchor=\"middle\"",
                &name,
            );
        }
        from = to;
    }
}

/// A shard or an I/O core: its view as a line, pale under the old ring and dark under the new, and what it does on it.
fn lane(svg: &mut Svg, y: f64, ticks: &[Tick], epochs: &[u16]) {
    let middle = y + 10.0;
    for (n, (&tick, &epoch)) in ticks.iter().zip(epochs).enumerate() {
        let x = LEFT + n as f64 * TICK;
        let color = if epoch == 0 { PALE } else { "#444" };
        let style = format!("stroke=\"{color}\" stroke-width=\"2\"");
        svg.line((x, middle), (x + TICK, middle), &style);
        let centre = (x + TICK / 2.0, middle);
        match tick {
            Tick::Works => {}
            Tick::Adopts => svg.circle(
                centre,
                5.0,
                "fill=\"#fff\" stroke=\"#444\" stroke-width=\"2\"",
            ),
            Tick::Slice => {
                let style = format!("fill=\"{}\"", COLOURS[1]);
                svg.rect((x + 2.0, y + 3.0), (TICK - 4.0, 14.0), &style);
            }
            Tick::Drains => svg.circle(centre, 3.5, &format!("fill=\"{GREY}\"")),
        }
    }
}

fn legend(svg: &mut Svg, y: f64) {
    let pale = format!("stroke=\"{PALE}\" stroke-width=\"2\"");
    let (slice, drained) = (
        format!("fill=\"{}\"", COLOURS[1]),
        format!("fill=\"{GREY}\""),
    );
    let (x, middle) = (LEFT, y - 4.0);
    svg.line((x, middle), (x + 16.0, middle), &pale);
    svg.text((x + 22.0, y), "", "goes by the old ring");
    svg.line(
        (x + 160.0, middle),
        (x + 176.0, middle),
        "stroke=\"#444\" stroke-width=\"2\"",
    );
    svg.text((x + 182.0, y), "", "by the new one");
    let adopts = "fill=\"#fff\" stroke=\"#444\" stroke-width=\"2\"";
    svg.circle((x + 298.0, middle), 4.0, adopts);
    svg.text((x + 312.0, y), "", "adopts it, between two batches");
    svg.rect((x + 504.0, middle - 6.0), (7.0, 12.0), &slice);
    svg.text((x + 518.0, y), "", "a slice");
    svg.circle((x + 584.0, middle), 3.5, &drained);
    svg.text((x + 598.0, y), "", "inbound rings drained");
}
