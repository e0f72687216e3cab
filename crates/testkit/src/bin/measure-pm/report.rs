//! What was found: said at once, and kept for the file of figures.

use std::fmt::Write;

/// A value in the file of figures.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// A number; not a finite one reads as null.
    Number(f64),
    /// A text.
    Text(String),
    /// A truth.
    Truth(bool),
    /// A row of values.
    Row(Vec<Value>),
    /// Named values.
    Named(Vec<(String, Value)>),
}

impl From<f64> for Value {
    fn from(number: f64) -> Value {
        Value::Number(number)
    }
}
impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(number as f64)
    }
}
impl From<bool> for Value {
    fn from(truth: bool) -> Value {
        Value::Truth(truth)
    }
}
impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}
impl From<Vec<Value>> for Value {
    fn from(row: Vec<Value>) -> Value {
        Value::Row(row)
    }
}

/// Named values, from pairs.
pub(crate) fn named<const N: usize>(pairs: [(&str, Value); N]) -> Value {
    Value::Named(pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

impl Value {
    /// Appends the value as JSON, `depth` levels in.
    fn append(&self, out: &mut String, depth: usize) {
        match self {
            // Four digits after the point are more than any measurement has.
            Value::Number(number) if number.is_finite() && number.fract() == 0.0 => {
                let (Ok(()) | Err(_)) = write!(out, "{number:.0}");
            }
            Value::Number(number) if number.is_finite() => {
                let (Ok(()) | Err(_)) = write!(out, "{number:.4}");
            }
            Value::Number(_) => out.push_str("null"),
            Value::Truth(truth) => out.push_str(if *truth { "true" } else { "false" }),
            Value::Text(text) => quote(text, out),
            Value::Row(row) => {
                out.push('[');
                for (index, value) in row.iter().enumerate() {
                    out.push_str(if index == 0 { "" } else { ", " });
                    value.append(out, depth + 1);
                }
                out.push(']');
            }
            Value::Named(pairs) => {
                let indent = "  ".repeat(depth + 1);
                out.push('{');
                for (index, (name, value)) in pairs.iter().enumerate() {
                    out.push_str(if index == 0 { "\n" } else { ",\n" });
                    out.push_str(&indent);
                    quote(name, out);
                    out.push_str(": ");
                    value.append(out, depth + 1);
                }
                let (Ok(()) | Err(_)) = write!(out, "\n{}}}", "  ".repeat(depth));
            }
        }
    }
}

fn quote(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            control if u32::from(control) < 32 => {
                let (Ok(()) | Err(_)) = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

/// All findings.
pub(crate) struct Report {
    figures: Vec<(String, Value)>,
    /// Figures of the experiment that is running.
    present: Vec<(String, Value)>,
    name: String,
    met: bool,
    judged: bool,
    passed: u64,
    failed: u64,
    drawing: Option<String>,
}

impl Report {
    pub(crate) fn new() -> Report {
        Report {
            figures: Vec::new(),
            present: Vec::new(),
            name: String::new(),
            met: true,
            judged: false,
            passed: 0,
            failed: 0,
            drawing: None,
        }
    }

    /// Begins experiment `name`.
    pub(crate) fn begin(&mut self, name: &str) {
        println!("\n== {name}");
        name.clone_into(&mut self.name);
        self.met = true;
        self.judged = false;
    }

    /// Says something.
    pub(crate) fn say(&self, text: &str) {
        println!("{text}");
    }

    /// Keeps a figure.
    pub(crate) fn keep(&mut self, name: &str, value: impl Into<Value>) {
        self.present.push((name.to_owned(), value.into()));
    }

    /// Says whether a target was met, and why one should think so.
    pub(crate) fn judge(&mut self, target: &str, met: bool, because: &str) {
        let verdict = if met { "met" } else { "NOT MET" };
        println!("target: {target}: {verdict}: {because}");
        let entry = named([("met", met.into()), ("because", because.into())]);
        self.present.push((format!("target: {target}"), entry));
        self.met &= met;
        self.judged = true;
    }

    /// Ends the experiment: it counts as passed if it met all its targets, and had one.
    pub(crate) fn end(&mut self) {
        if self.met && self.judged {
            self.passed += 1;
        } else {
            self.failed += 1;
        }
        let present = std::mem::take(&mut self.present);
        let name = std::mem::take(&mut self.name);
        self.figures.push((name, Value::Named(present)));
    }

    /// Keeps the facts said so far under `name`, outside of any experiment.
    pub(crate) fn set_apart(&mut self, name: &str) {
        let present = std::mem::take(&mut self.present);
        self.figures.push((name.to_owned(), Value::Named(present)));
    }

    /// Keeps a drawing, as SVG.
    pub(crate) fn draw(&mut self, drawing: String) {
        self.drawing = Some(drawing);
    }

    /// The drawing, if there is one.
    pub(crate) fn drawing(&self) -> Option<&str> {
        self.drawing.as_deref()
    }

    /// All figures.
    pub(crate) fn json(&self) -> String {
        let mut text = String::new();
        Value::Named(self.figures.clone()).append(&mut text, 0);
        text.push('\n');
        text
    }

    /// The last line, and whether every experiment met its targets.
    pub(crate) fn close(&self) -> bool {
        println!("\n{} passed, {} failed", self.passed, self.failed);
        self.failed == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_as_json() {
        let mut report = Report::new();
        report.keep("a \"quoted\"\nname", 1.5);
        report.keep("row", vec![2_u64.into(), f64::NAN.into(), true.into()]);
        report.set_apart("facts");
        let expected = "{\n  \"facts\": {\n    \"a \\\"quoted\\\"\\u000aname\": 1.5000,\n    \
                        \"row\": [2, null, true]\n  }\n}\n";
        assert_eq!(report.json(), expected);
    }

    #[test]
    fn an_experiment_without_a_target_met_has_failed() {
        let mut report = Report::new();
        report.begin("a");
        report.judge("t", true, "");
        report.end();
        report.begin("b");
        report.judge("t", false, "");
        report.judge("u", true, "");
        report.end();
        report.begin("c");
        report.end();
        assert_eq!((report.passed, report.failed), (1, 2));
    }
}
