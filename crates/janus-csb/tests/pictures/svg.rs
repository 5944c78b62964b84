//! Plain SVG, written by hand: a few arcs, lines and words need no library.

use std::fmt::Write;

/// Colours of the shards.
pub(crate) const COLOURS: [&str; 4] = ["#1b6ca8", "#2e8b57", "#c77c11", "#b3303a"];
pub(crate) const GREY: &str = "#888";
pub(crate) const PALE: &str = "#ddd";

pub(crate) struct Svg {
    out: String,
}

impl Svg {
    pub(crate) fn new(width: f64, height: f64, title: &str) -> Svg {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n\
             <text x=\"24\" y=\"24\" font-size=\"14\">{title}</text>"
        );
        Svg { out }
    }

    pub(crate) fn finish(mut self) -> String {
        self.out.push_str("</svg>\n");
        self.out
    }

    /// `style` is more attributes, such as `text-anchor="middle"`.
    pub(crate) fn text(&mut self, (x, y): (f64, f64), style: &str, text: &str) {
        let _ = writeln!(
            self.out,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{text}</text>"
        );
    }

    pub(crate) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), style: &str) {
        let _ = writeln!(
            self.out,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {style}/>"
        );
    }

    pub(crate) fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), style: &str) {
        let _ = writeln!(
            self.out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" {style}/>"
        );
    }

    pub(crate) fn circle(&mut self, (x, y): (f64, f64), radius: f64, style: &str) {
        let _ = writeln!(
            self.out,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" {style}/>"
        );
    }

    /// A stroke along a circle, from one part of a turn to another, clockwise.
    pub(crate) fn arc(&mut self, circle: Turn, from: f64, to: f64, style: &str) {
        let length = (to - from).rem_euclid(1.0);
        let ((x1, y1), (x2, y2)) = (circle.at(from), circle.at(to));
        let (radius, large) = (circle.radius, u8::from(length > 0.5));
        let _ = writeln!(
            self.out,
            "<path d=\"M{x1:.1} {y1:.1}A{radius} {radius} 0 {large} 1 {x2:.1} {y2:.1}\" fill=\"none\" {style}/>"
        );
    }
}

/// A circle on which places are parts of a turn, clockwise from the top.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) centre: (f64, f64),
    pub(crate) radius: f64,
}

impl Turn {
    pub(crate) fn at(self, part: f64) -> (f64, f64) {
        let angle = part * std::f64::consts::TAU;
        (
            self.centre.0 + self.radius * angle.sin(),
            self.centre.1 - self.radius * angle.cos(),
        )
    }
}
