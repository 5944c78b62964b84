//! Lines over a logarithmic axis, drawn from the rows of a report, beside whose file they are written, for `janus report`; by `JANUS_WRITE=1` also to
//! `docs/figures/`. Never here: figures that are not in the report, but for those that another machine gave, which are dashed and say so.

use std::fmt::Write as _;
use std::path::Path;

use super::report::{Report, Value};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 50.0;
const COLORS: [&str; 6] = [
    "#1b6ca8", "#2e8b57", "#c77c11", "#b3303a", "#7a5195", "#666666",
];
/// Parts of the vertical axis.
const STEPS: u32 = 5;

/// Rows that make a line: those of a metric with these parameters.
pub struct Line<'a> {
    pub name: &'a str,
    pub metric: &'a str,
    pub with: Vec<(&'a str, Value)>,
}

/// A figure that is not of the lines.
pub struct Elsewhere<'a> {
    pub y: f64,
    /// Names the source, and says that the machine was another.
    pub text: &'a str,
}

pub struct Plot<'a> {
    /// Of the file, without its ending.
    pub file: &'a str,
    pub title: &'a str,
    /// Parameter that is the horizontal place of a row, and what it is called.
    pub x: (&'a str, &'a str),
    pub y: &'a str,
    /// A figure divided by this is drawn.
    pub unit: f64,
    pub lines: Vec<Line<'a>>,
    pub elsewhere: Option<Elsewhere<'a>>,
}

impl Plot<'_> {
    /// Draws the rows of a report and writes the file.
    pub fn write(&self, report: &Report) {
        let drawn = self.draw(report);
        report.keep_picture(self.file, &drawn);
        if std::env::var_os("JANUS_WRITE").is_none() {
            return;
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = root.join(format!("docs/figures/{}.svg", self.file));
        match std::fs::write(&path, drawn) {
            Ok(()) => eprintln!("drawn: {}", path.display()),
            Err(error) => eprintln!("cannot write {}: {error}", path.display()),
        }
    }

    fn draw(&self, report: &Report) -> String {
        let lines: Vec<Vec<(f64, f64)>> = self
            .lines
            .iter()
            .map(|line| {
                let mut points = report.points(line.metric, self.x.0, &line.with);
                // The axis has no place for none.
                points.retain(|point| point.0 > 0.0);
                points.iter_mut().for_each(|(_, y)| *y /= self.unit);
                points
            })
            .collect();
        let points = || lines.iter().flatten();
        let mut places: Vec<f64> = points().map(|point| point.0).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let others = self.elsewhere.iter().map(|it| it.y / self.unit);
        let most = points()
            .map(|point| point.1)
            .chain(others)
            .fold(0.0, f64::max);
        let top = rounded_up(most);
        let (first, last) = match &places[..] {
            [first, .., last] => (first.max(1.0).ln(), last.max(1.0).ln()),
            _ => (0.0, 1.0),
        };
        let x = |at: f64| {
            let part = (at.max(1.0).ln() - first) / (last - first);
            LEFT + 12.0 + part * (WIDTH - LEFT - RIGHT - 24.0)
        };
        let y = |value: f64| HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM);
        let mut out = self.frame(&places, top, x, y);
        for (at, (line, points)) in self.lines.iter().zip(&lines).enumerate() {
            let color = COLORS[at % COLORS.len()];
            let path: Vec<String> = points
                .iter()
                .map(|point| format!("{:.1},{:.1}", x(point.0), y(point.1)))
                .collect();
            let _ = writeln!(
                out,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.6\"/>",
                path.join(" ")
            );
            for point in points {
                let _ = writeln!(
                    out,
                    "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{color}\"><title>{}: {:.2}</title></circle>",
                    x(point.0),
                    y(point.1),
                    line.name,
                    point.1
                );
            }
            let (left, row) = (WIDTH - RIGHT + 14.0, TOP + 12.0 + at as f64 * 18.0);
            let _ = writeln!(
                out,
                "<circle cx=\"{left}\" cy=\"{row}\" r=\"3\" fill=\"{color}\"/><text x=\"{}\" y=\"{}\">{}</text>",
                left + 8.0,
                row + 4.0,
                line.name
            );
        }
        if let Some(it) = &self.elsewhere {
            let dashed = |x2: f64, y: f64| {
                format!(
                    "<line x1=\"{LEFT}\" x2=\"{x2}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#444\" stroke-dasharray=\"5 4\"/>"
                )
            };
            // Said above all lines, which would cross it.
            let _ = writeln!(
                out,
                "{}\n{}<text x=\"{}\" y=\"{}\" fill=\"#444\">{}</text>",
                dashed(WIDTH - RIGHT, y(it.y / self.unit)),
                dashed(LEFT + 24.0, TOP - 8.0),
                LEFT + 30.0,
                TOP - 4.0,
                it.text
            );
        }
        out.push_str("</svg>\n");
        out
    }

    /// Draws what is around the lines: title, axes, and their figures.
    fn frame(
        &self,
        places: &[f64],
        top: f64,
        x: impl Fn(f64) -> f64,
        y: impl Fn(f64) -> f64,
    ) -> String {
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
             <text x=\"{LEFT}\" y=\"20\" font-size=\"14\">{}</text>\n",
            self.title
        );
        for step in 0..=STEPS {
            let value = top * f64::from(step) / f64::from(STEPS);
            let (at, right) = (y(value), WIDTH - RIGHT);
            let _ = writeln!(
                out,
                "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                (value * 100.0).round() / 100.0
            );
        }
        for place in places {
            let _ = writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                x(*place),
                HEIGHT - BOTTOM + 18.0,
                short(*place)
            );
        }
        let (middle, turn) = (
            LEFT + (WIDTH - LEFT - RIGHT) / 2.0,
            TOP + (HEIGHT - TOP - BOTTOM) / 2.0,
        );
        let _ = writeln!(
            out,
            "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n\
             <text x=\"18\" y=\"{turn}\" text-anchor=\"middle\" transform=\"rotate(-90 18 {turn})\">{}</text>",
            HEIGHT - 12.0,
            self.x.1,
            self.y
        );
        out
    }
}

/// Returns a number above this one whose fifths are round.
fn rounded_up(most: f64) -> f64 {
    let decade = 10f64.powf(most.max(1e-9).log10().floor());
    let steps = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.5, 10.0];
    let fits = steps.iter().map(|step| step * decade);
    fits.clone().find(|top| *top >= most).unwrap_or(most)
}

fn short(number: f64) -> String {
    let whole = |unit: f64| number >= unit && number % unit == 0.0;
    if whole(1e6) {
        format!("{} M", number / 1e6)
    } else if number >= 1024.0 && number.log2().fract() == 0.0 {
        format!("{} Ki", number / 1024.0)
    } else {
        format!("{number}")
    }
}
