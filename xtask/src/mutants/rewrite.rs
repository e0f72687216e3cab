//! Text edits that nest.

use core::ops::Range;

/// A piece of an edit's new text.
#[derive(Clone, Debug)]
pub(super) enum Part {
    /// Here mutant so-and-so begins.
    Begin(u32),
    /// Here it ends.
    End(u32),
    /// New text.
    Text(String),
    /// This range of the old text, with the edits inside it.
    Source(Range<usize>),
}

/// New text for a range of bytes. Two edits are disjoint, or one is inside the other; of two with
/// the same range, the earlier is the outer one.
#[derive(Clone, Debug)]
pub(super) struct Edit {
    /// The bytes replaced.
    pub(super) range: Range<usize>,
    /// The new text.
    pub(super) parts: Vec<Part>,
}

/// A text with edits made, and where in it each mutant is.
#[derive(Debug, Default)]
pub(super) struct Rewritten {
    /// The new text.
    pub(super) text: String,
    /// Ranges of the new text that belong to a mutant.
    pub(super) places: Vec<(u32, Range<usize>)>,
    open: Vec<(u32, usize)>,
}

impl Rewritten {
    /// The mutant with the smallest place around line `line`, column `column` (both from 1, columns
    /// in characters).
    pub(super) fn mutant_at(&self, line: usize, column: usize) -> Option<u32> {
        let mut start = 0;
        for text in self.text.split_inclusive('\n').take(line.saturating_sub(1)) {
            start += text.len();
        }
        let rest = self.text.get(start..).unwrap_or("").chars();
        let at = start + rest.take(column.saturating_sub(1)).map(char::len_utf8).sum::<usize>();
        let around = self.places.iter().filter(|(_, place)| place.contains(&at));
        around.min_by_key(|(_, place)| place.len()).map(|(number, _)| *number)
    }

    fn render(&mut self, source: &str, range: Range<usize>, edits: &[&Edit]) {
        let copy = |text: &mut String, range: Range<usize>| {
            text.push_str(source.get(range).unwrap_or(""));
        };
        let mut at = range.start;
        let mut rest = edits;
        while let Some((edit, after)) = rest.split_first() {
            let inside =
                after.iter().take_while(|inner| inner.range.start < edit.range.end).count();
            let (nested, after) = after.split_at(inside);
            copy(&mut self.text, at..edit.range.start);
            for part in &edit.parts {
                match part {
                    Part::Begin(number) => self.open.push((*number, self.text.len())),
                    Part::End(number) => {
                        let open = self.open.iter().rposition(|(open, _)| open == number);
                        if let Some(open) = open {
                            let (_, start) = self.open.remove(open);
                            self.places.push((*number, start..self.text.len()));
                        }
                    }
                    Part::Text(text) => self.text.push_str(text),
                    Part::Source(range) => self.render(source, range.clone(), nested),
                }
            }
            at = edit.range.end;
            rest = after;
        }
        copy(&mut self.text, at..range.end);
    }
}

/// Makes `edits` in `source`.
pub(super) fn rewrite(source: &str, edits: &[Edit]) -> Rewritten {
    let mut sorted: Vec<&Edit> = edits.iter().collect();
    sorted.sort_by_key(|edit| (edit.range.start, core::cmp::Reverse(edit.range.end)));
    let mut rewritten = Rewritten::default();
    rewritten.render(source, 0..source.len(), &sorted);
    rewritten
}
