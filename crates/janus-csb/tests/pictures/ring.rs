//! The ring before an update, right after it, and when the flows that differed have ended. Four shards of three points;
//! the planner chose what moves, the update machine carried it out.

use std::collections::BTreeSet;

use janus_csb::policy::{Bounds, Shares, Targets, level, plan};
use janus_csb::{Balancer, Limits, Phase, Ring, ShardId, UpdateReport};

use crate::cast::{PORT, Shard, Table, key};
use crate::svg::{COLOURS, GREY, PALE, Svg, Turn};

const SHARDS: u8 = 4;
const FLOWS: u64 = 72;
const PANEL: f64 = 292.0;
const RADIUS: f64 = 92.0;
/// A ring this small has as many cells as the smallest index.
const CELL_SHIFT: u32 = 24;

/// One moment.
pub(crate) struct Scene {
    ring: Ring,
    /// The ring before, when this moment is right after an update.
    old: Option<Ring>,
    flows: Vec<(u32, ShardId)>,
    pub(crate) report: UpdateReport,
}

impl Scene {
    fn differs(&self, &(key, holder): &(u32, ShardId)) -> bool {
        self.ring.owner(key) != holder
    }

    pub(crate) fn diverged(&self) -> usize {
        self.flows.iter().filter(|flow| self.differs(flow)).count()
    }

    pub(crate) fn marked_cells(&self) -> BTreeSet<u32> {
        let differ = self.flows.iter().filter(|flow| self.differs(flow));
        differ.map(|&(key, _)| key >> CELL_SHIFT).collect()
    }
}

struct World {
    balancer: Balancer,
    shards: Vec<Shard>,
}

impl World {
    fn open(&mut self, names: std::ops::Range<u64>) {
        for name in names {
            let owner = self.balancer.current().newest().owner(key(name), PORT);
            self.shards[owner.index()].table.open(name, key(name));
        }
    }

    fn update(&mut self, ring: Ring) {
        assert_eq!(self.balancer.begin(|draft| draft.set_ring(ring)), Ok(()));
        for _ in 0..1000 {
            for shard in &mut self.shards {
                shard.turn(10);
            }
            if self.balancer.poll() == Phase::Idle {
                return;
            }
        }
        panic!("the update does not end");
    }

    fn scene(&self, old: Option<&Ring>) -> Scene {
        let held = self.shards.iter().flat_map(|shard| {
            let flows = shard.table.0.values();
            flows.map(|held| (held.key, shard.end.id()))
        });
        Scene {
            ring: self.balancer.current().published().ring().clone(),
            old: old.cloned(),
            flows: held.collect(),
            report: *self.balancer.last(),
        }
    }
}

pub(crate) fn scenes() -> [Scene; 3] {
    let ring = level(&Ring::uniform(usize::from(SHARDS), 3, 5), &[]);
    let mut balancer = Balancer::new(ring.clone(), Limits::default());
    let shards = (0..SHARDS).map(|shard| Shard {
        end: balancer.shard_end(ShardId(shard)),
        table: Table::default(),
    });
    let shards = shards.collect();
    let mut world = World { balancer, shards };
    world.open(0..FLOWS);
    let before = world.scene(None);

    // Shard 3 has turned out slow: half of what the others get.
    let mut targets = Targets::default();
    for (shard, weight) in [(0, 1.0), (1, 1.0), (2, 1.0), (3, 0.5)] {
        targets.set(ShardId(shard), weight);
    }
    let bounds = Bounds {
        tolerance: 0.02,
        steps: 64,
        moved: 1.0,
        points: 8,
    };
    let planned = plan(&ring, &targets, None, &bounds).expect("points that make a ring");
    world.update(planned.ring().clone());
    let after = world.scene(Some(&ring));

    for shard in &mut world.shards {
        shard.table = Table::default();
    }
    world.open(FLOWS..2 * FLOWS);
    let newest = world.balancer.current().newest().ring().clone();
    world.update(newest);
    [before, after, world.scene(None)]
}

fn part(key: u32) -> f64 {
    f64::from(key) / 4_294_967_296.0
}

fn color(shard: ShardId) -> &'static str {
    COLOURS[shard.index()]
}

pub(crate) fn draw(scenes: &[Scene; 3]) -> String {
    let mut svg = Svg::new(
        3.0 * PANEL + 24.0,
        380.0,
        "An update of the ring: shard 3 is slow and gets half of what the others get",
    );
    let titles = ["Before", "Right after", "Once those flows have ended"];
    for (n, (scene, title)) in scenes.iter().zip(titles).enumerate() {
        let left = 12.0 + n as f64 * PANEL;
        let centre = (left + PANEL / 2.0, 170.0);
        svg.text(
            (centre.0, 50.0),
            "text-anchor=\"middle\" font-size=\"12\"",
            title,
        );
        panel(&mut svg, scene, centre);
        words(&mut svg, scene, n, centre);
    }
    legend(&mut svg);
    svg.finish()
}

fn panel(svg: &mut Svg, scene: &Scene, centre: (f64, f64)) {
    let turn = |radius| Turn { centre, radius };
    let points: Vec<(u32, ShardId)> = scene.ring.points().collect();
    let mut from = points[points.len() - 1].0;
    for &(to, owner) in &points {
        let style = format!(
            "stroke=\"{}\" stroke-width=\"12\" stroke-opacity=\"0.8\"",
            color(owner)
        );
        svg.arc(turn(RADIUS), part(from), part(to), &style);
        from = to;
    }
    if let Some(old) = &scene.old {
        let old_points = old.points().map(|(at, _)| at);
        let mut ends: Vec<u32> = points.iter().map(|&(at, _)| at).chain(old_points).collect();
        ends.sort_unstable();
        ends.dedup();
        let mut from = ends[ends.len() - 1];
        for to in ends {
            if old.owner(to) != scene.ring.owner(to) {
                let style = format!("stroke=\"{}\" stroke-width=\"4\"", color(old.owner(to)));
                svg.arc(turn(RADIUS + 12.0), part(from), part(to), &style);
            }
            from = to;
        }
    }
    for &(at, _) in &points {
        svg.circle(
            turn(RADIUS).at(part(at)),
            3.5,
            "fill=\"#fff\" stroke=\"#444\"",
        );
    }
    svg.circle(centre, 82.0, &format!("fill=\"none\" stroke=\"{PALE}\""));
    for cell in scene.marked_cells() {
        let from = f64::from(cell) / 256.0;
        svg.arc(
            turn(82.0),
            from,
            from + 1.0 / 256.0,
            "stroke=\"#222\" stroke-width=\"4\"",
        );
    }
    for flow in &scene.flows {
        let (radius, style) = if scene.differs(flow) {
            (66.0, format!("fill=\"{}\" stroke=\"#222\"", color(flow.1)))
        } else {
            (72.0, format!("fill=\"{}\"", color(flow.1)))
        };
        svg.circle(turn(radius).at(part(flow.0)), 3.0, &style);
    }
}

fn words(svg: &mut Svg, scene: &Scene, n: usize, (x, y): (f64, f64)) {
    let middle = "text-anchor=\"middle\"";
    let small = format!("text-anchor=\"middle\" fill=\"{GREY}\"");
    svg.text(
        (x, y - 4.0),
        middle,
        &format!("{} flows", scene.flows.len()),
    );
    let differ = scene.diverged();
    let clean = match differ {
        0 => "all in place".to_string(),
        _ => format!("{differ} differ"),
    };
    svg.text((x, y + 12.0), &small, &clean);
    let shares = Shares::of(&scene.ring, None);
    let width = 48.0;
    for shard in (0..SHARDS).map(ShardId) {
        let left = x + (f64::from(shard.0) - 2.0) * width;
        svg.circle(
            (left + 6.0, 293.0),
            4.0,
            &format!("fill=\"{}\"", color(shard)),
        );
        let share = format!("{:.0} %", shares[shard] * 100.0);
        svg.text((left + 13.0, 297.0), "", &share);
    }
    let report = &scene.report;
    let line = match n {
        0 => "no cell is marked: a lookup is one load".to_string(),
        1 => format!(
            "{} of {} cells marked; H_diff: {} run{}",
            report.marked_cells,
            report.cells,
            report.runs,
            if report.runs == 1 { "" } else { "s" }
        ),
        _ => "the next update finds none that differ".to_string(),
    };
    svg.text((x, 315.0), &small, &line);
}

fn legend(svg: &mut Svg) {
    let arc = format!("fill=\"{}\" fill-opacity=\"0.8\"", COLOURS[0]);
    let moved = format!("fill=\"{}\"", COLOURS[3]);
    let flow = format!("fill=\"{}\"", COLOURS[0]);
    let differs = format!("fill=\"{}\" stroke=\"#222\"", COLOURS[3]);
    let (first, second) = (343.0, 363.0);
    svg.rect((132.0, first - 9.0), (16.0, 10.0), &arc);
    svg.text((154.0, first), "", "an arc, in the color of its owner");
    svg.circle((380.0, first - 4.0), 3.5, "fill=\"#fff\" stroke=\"#444\"");
    svg.text((394.0, first), "", "a point, where an arc ends");
    svg.rect((602.0, first - 6.0), (16.0, 4.0), &moved);
    svg.text((624.0, first), "", "keys that moved, by their old owner");
    svg.circle((140.0, second - 4.0), 3.0, &flow);
    svg.text((154.0, second), "", "a flow, in the color of who holds it");
    svg.circle((380.0, second - 4.0), 3.0, &differs);
    svg.text((394.0, second), "", "a flow that differs from the ring");
    svg.rect((602.0, second - 6.0), (16.0, 4.0), "fill=\"#222\"");
    svg.text(
        (624.0, second),
        "",
        "a marked cell: here the filter is asked",
    );
}
