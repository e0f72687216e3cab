//! A chart of rates over a size, one line for each target, with the caches of the machine.

use super::Text;
use super::bars::unit;
use crate::experiment::Unit;
use crate::parameters::quantity;
use crate::report::json::ResultEntry;
use crate::report::number;

/// Width and height of the drawing, and of its margins at the left and below.
const ROOM: (f64, f64) = (640.0, 320.0);
const MARGIN: (f64, f64) = (70.0, 34.0);
/// Space above and at the right.
const AIR: f64 = 12.0;
/// Width of a label.
const LABEL: f64 = 50.0;
/// Most sizes that are written below.
const LABELS: usize = 6;

/// A target at one size.
struct Point {
    size: u64,
    rate: f64,
    ends: Option<[f64; 2]>,
}

/// A target's rates over the size.
struct Line<'r> {
    target: &'r str,
    points: Vec<Point>,
}

/// Rates of one phase over the parameter `name`. `steps` are sizes, in bytes, that the caches hold;
/// they are drawn if the parameter is a size.
pub(super) fn chart(out: &mut String, rows: &[&ResultEntry], name: &str, steps: &[u64]) {
    let lines = lines(rows, name);
    let (Some(first), Some(axes)) = (rows.first(), Axes::around(&lines)) else { return };
    let title = format!("{}: {} by {name}", first.phase, first.unit);
    let (width, height) = ROOM;
    out.push_str("<figure><svg class=\"chart\" role=\"img\"");
    put!(out, " viewBox=\"0 0 {width} {height}\"");
    put!(out, " aria-label=\"{}; the numbers are in the tables below\">", Text(&title));
    axes.draw(out, &lines, unit(first));
    if name == "bytes" {
        axes.draw_steps(out, steps);
    }
    for (number, line) in lines.iter().enumerate() {
        axes.draw_line(out, number, line);
    }
    put!(out, "</svg><figcaption>{}", Text(&title));
    legend(out, &lines);
    out.push_str("</figcaption></figure>\n");
}

fn lines<'r>(rows: &[&'r ResultEntry], name: &str) -> Vec<Line<'r>> {
    let mut lines: Vec<Line<'r>> = Vec::new();
    for row in rows {
        let Some(rate) = row.median.filter(|rate| *rate > 0.0) else { continue };
        let point = Point { size: row.parameters.get(name).max(1), rate, ends: row.ci90 };
        match lines.iter_mut().find(|line| line.target == row.target) {
            Some(line) => line.points.push(point),
            None => lines.push(Line { target: &row.target, points: vec![point] }),
        }
    }
    lines
}

/// Sizes from left to right by powers of two, rates upwards by powers of ten.
struct Axes {
    from: u64,
    to: u64,
    /// Powers of ten: whole, so that twice as high is so on every chart.
    low: i32,
    high: i32,
}

impl Axes {
    /// Around all points; none if there are none.
    fn around(lines: &[Line<'_>]) -> Option<Axes> {
        let all = || lines.iter().flat_map(|line| &line.points);
        let least = all().map(|point| point.rate).fold(f64::INFINITY, f64::min);
        let greatest = all().map(|point| point.rate).fold(0.0, f64::max);
        let low = least.log10().floor() as i32;
        Some(Axes {
            from: all().map(|point| point.size).min()?,
            to: all().map(|point| point.size).max()?,
            low,
            high: (greatest.log10().ceil() as i32).max(low + 1),
        })
    }

    fn x(&self, size: u64) -> f64 {
        let log = |size: u64| (size as f64).log2();
        let all = (log(self.to) - log(self.from)).max(f64::MIN_POSITIVE);
        MARGIN.0 + (log(size) - log(self.from)) / all * (ROOM.0 - MARGIN.0 - AIR)
    }

    fn y(&self, rate: f64) -> f64 {
        let share = (rate.log10() - f64::from(self.low)) / f64::from(self.high - self.low);
        AIR + (1.0 - share.clamp(0.0, 1.0)) * (ROOM.1 - MARGIN.1 - AIR)
    }

    /// Lines and numbers at the left, and sizes below.
    fn draw(&self, out: &mut String, lines: &[Line<'_>], unit: Unit) {
        for power in self.low..=self.high {
            let rate = 10_f64.powi(power);
            let (y, right) = (self.y(rate), ROOM.0 - AIR);
            put!(out, "<path class=\"grid\" d=\"M{} {y:.1}H{right}\"/>", MARGIN.0);
            let (x, y, text) = (MARGIN.0 - 8.0, y + 4.0, number::rate(rate, unit));
            put!(out, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{text}</text>");
        }
        let mut sizes: Vec<u64> =
            lines.iter().flat_map(|line| &line.points).map(|point| point.size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        for size in sizes.iter().step_by(sizes.len().div_ceil(LABELS).max(1)) {
            let (x, y, text) = (self.x(*size), ROOM.1 - 10.0, quantity(*size));
            // At the right there is no room for the other half.
            let is_last = x > ROOM.0 - AIR - LABEL / 2.0;
            let (x, anchor) = if is_last { (ROOM.0 - 1.0, "end") } else { (x, "middle") };
            put!(out, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>");
        }
    }

    fn draw_steps(&self, out: &mut String, steps: &[u64]) {
        for step in steps.iter().filter(|step| (self.from..=self.to).contains(step)) {
            let (x, bottom, text) = (self.x(*step), ROOM.1 - MARGIN.1, quantity(*step));
            put!(out, "<path class=\"step\" d=\"M{x:.1} {AIR}V{bottom}\"/>");
            // At the right there is no room behind it.
            let is_last = x > ROOM.0 - AIR - LABEL;
            let (x, anchor) = if is_last { (x - 4.0, "end") } else { (x + 4.0, "start") };
            let y = AIR + 10.0;
            put!(out, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>");
        }
    }

    fn draw_line(&self, out: &mut String, number: usize, line: &Line<'_>) {
        let mut way = String::new();
        for (at, point) in line.points.iter().enumerate() {
            let (step, x, y) =
                (if at == 0 { 'M' } else { 'L' }, self.x(point.size), self.y(point.rate));
            put!(&mut way, "{step}{x:.1} {y:.1}");
        }
        put!(out, "<path class=\"line\" d=\"{way}\"/>");
        for point in &line.points {
            let x = self.x(point.size);
            if let Some([low, high]) = point.ends {
                let (low, high) = (self.y(low), self.y(high));
                put!(out, "<path class=\"whisker\" d=\"M{x:.1} {low:.1}V{high:.1}\"/>");
            }
            mark(out, number, x, self.y(point.rate));
        }
    }
}

fn legend(out: &mut String, lines: &[Line<'_>]) {
    out.push_str("<ul class=\"legend\">");
    for (number, line) in lines.iter().enumerate() {
        out.push_str("<li><svg class=\"key\" viewBox=\"-8 -8 16 16\" aria-hidden=\"true\">");
        mark(out, number, 0.0, 0.0);
        put!(out, "</svg> {}</li>", Text(line.target));
    }
    out.push_str("</ul>");
}

/// A mark of a shape of its own for each line.
fn mark(out: &mut String, number: usize, x: f64, y: f64) {
    const SHAPES: [&str; 8] = [
        "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0",
        "M-4 -4H4V4H-4Z",
        "M0 -5L5 4H-5Z",
        "M0 -5L5 0L0 5L-5 0Z",
        "M-5 0H5M0 -5V5",
        "M-4 -4L4 4M-4 4L4 -4",
        "M0 5L5 -4H-5Z",
        "M-5 -2H5M-5 2H5",
    ];
    let shape = SHAPES.get(number % SHAPES.len()).copied().unwrap_or_default();
    // The second round of them is filled.
    let class = if (number / SHAPES.len()).is_multiple_of(2) { "mark" } else { "mark full" };
    let place = format!("translate({x:.1} {y:.1})");
    put!(out, "<path class=\"{class}\" transform=\"{place}\" d=\"{shape}\"/>");
}
