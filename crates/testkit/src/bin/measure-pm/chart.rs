//! Line charts as SVG, made by hand.

use std::fmt::Write;

/// A line.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) colour: &'static str,
    pub(crate) points: Vec<(f64, f64)>,
}

/// A chart; all charts of a drawing share the axis below.
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) unit: String,
    pub(crate) lines: Vec<Line>,
    /// Upper end of the axis; by the values if not given. The lower end is 0.
    pub(crate) most: Option<f64>,
    /// A value to mark, and what it is.
    pub(crate) target: Option<(f64, &'static str)>,
}

const WIDTH: f64 = 800.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 30.0;
/// Height of the part of a chart that holds lines.
const PLOT: f64 = 200.0;
/// Height of a chart with its title and its numbers.
const EACH: f64 = 275.0;
const TOP: f64 = 50.0;

/// A step for about five marks up to `most`: 1, 2 or 5 times a power of ten.
fn step(most: f64) -> f64 {
    let rough = (most / 5.0).max(1e-9);
    let power = 10_f64.powf(rough.log10().floor());
    let factor = rough / power;
    power
        * if factor <= 1.0 {
            1.0
        } else if factor <= 2.0 {
            2.0
        } else if factor <= 5.0 {
            5.0
        } else {
            10.0
        }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

struct Drawing {
    svg: String,
}

impl Drawing {
    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        let (Ok(()) | Err(_)) = self.svg.write_fmt(element);
        self.svg.push('\n');
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, size: u32, text: &str) {
        let text = escaped(text);
        self.add(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\" \
             fill=\"#222\">{text}</text>"
        ));
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), style: &str) {
        self.add(format_args!(
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" {style}/>",
            from.0, from.1, to.0, to.1
        ));
    }

    fn chart(&mut self, chart: &Chart, top: f64, widest: f64) {
        let values = chart.lines.iter().flat_map(|line| line.points.iter().map(|point| point.1));
        let largest = values.fold(0.0, f64::max);
        let mark = step(chart.most.unwrap_or(largest * 1.05));
        let most = chart.most.unwrap_or_else(|| (largest * 1.05 / mark).ceil() * mark).max(mark);
        let right = WIDTH - RIGHT;
        let x = |value: f64| LEFT + value / widest * (right - LEFT);
        let y = |value: f64| top + PLOT * (1.0 - value / most);
        self.text(LEFT, top - 14.0, "start", 14, &chart.title);
        let mut at = 0.0;
        while at <= most * 1.001 {
            self.line((LEFT, y(at)), (right, y(at)), "stroke=\"#ddd\"");
            self.text(LEFT - 8.0, y(at) + 4.0, "end", 12, &format!("{at:.0}"));
            at += mark;
        }
        let mut at = 0.0;
        while at <= widest * 1.001 {
            self.line((x(at), y(0.0)), (x(at), y(0.0) + 5.0), "stroke=\"#222\"");
            self.text(x(at), y(0.0) + 19.0, "middle", 12, &format!("{at:.0}"));
            at += step(widest);
        }
        self.line((LEFT, top), (LEFT, y(0.0)), "stroke=\"#222\"");
        self.line((LEFT, y(0.0)), (right, y(0.0)), "stroke=\"#222\"");
        let middle = top + PLOT / 2.0;
        let unit = escaped(&chart.unit);
        self.add(format_args!(
            "<text transform=\"translate(22 {middle:.1}) rotate(-90)\" text-anchor=\"middle\" \
             font-size=\"12\" fill=\"#222\">{unit}</text>"
        ));
        if let Some((value, name)) = chart.target {
            let style = "stroke=\"#a00\" stroke-dasharray=\"6 4\"";
            self.line((LEFT, y(value)), (right, y(value)), style);
            self.text(LEFT + 6.0, y(value) - 5.0, "start", 12, name);
        }
        for line in &chart.lines {
            let points: Vec<String> = line
                .points
                .iter()
                .map(|point| format!("{:.1},{:.1}", x(point.0), y(point.1)))
                .collect();
            self.add(format_args!(
                "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\" points=\"{}\"/>",
                line.colour,
                points.join(" ")
            ));
        }
        // The key, right of the title.
        let mut at = right;
        for line in chart.lines.iter().rev() {
            let len = line.name.len() as f64 * 6.5;
            self.text(at, top - 14.0, "end", 12, &line.name);
            let style = format!("stroke=\"{}\" stroke-width=\"3\"", line.colour);
            self.line((at - len - 26.0, top - 18.0), (at - len - 6.0, top - 18.0), &style);
            at -= len + 42.0;
        }
    }
}

/// Draws `charts` one below the other; the axis below goes from 0 to `widest` and is called `axis`.
pub(crate) fn draw(title: &str, axis: &str, widest: f64, charts: &[Chart]) -> String {
    let height = TOP + EACH * charts.len() as f64 + 20.0;
    let mut drawing = Drawing { svg: String::new() };
    drawing.add(format_args!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\">"
    ));
    drawing.add(format_args!("<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>"));
    drawing.text(WIDTH / 2.0, 26.0, "middle", 17, title);
    for (index, chart) in charts.iter().enumerate() {
        drawing.chart(chart, TOP + 35.0 + EACH * index as f64, widest);
    }
    drawing.text((LEFT + WIDTH - RIGHT) / 2.0, height - 18.0, "middle", 13, axis);
    drawing.add(format_args!("</svg>"));
    drawing.svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_numbers() {
        for (most, expected) in [(100.0, 20.0), (20.0, 5.0), (7.0, 2.0), (0.9, 0.2), (48.0, 10.0)] {
            assert!((step(most) - expected).abs() < 1e-9, "{most}: {}", step(most));
        }
    }

    #[test]
    fn every_line_and_name_is_in_the_drawing() {
        let line = |name: &str| Line {
            name: name.to_owned(),
            colour: "#000",
            points: vec![(0.0, 1.0), (1.0, 2.0)],
        };
        let chart = Chart {
            title: "a < b".to_owned(),
            unit: "%".to_owned(),
            lines: vec![line("one"), line("two")],
            most: None,
            target: Some((1.5, "limit")),
        };
        let svg = draw("title", "axis", 1.0, &[chart]);
        assert_eq!(svg.matches("<polyline").count(), 2);
        for text in ["title", "axis", "a &lt; b", ">one<", ">two<", "limit"] {
            assert!(svg.contains(text), "{text}");
        }
    }
}
