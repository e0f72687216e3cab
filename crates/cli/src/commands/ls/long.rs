//! The columns of `ls -l`.

use conquest::Stat;

use crate::clock::Clock;
use crate::commands::entry;
use crate::people::People;
use crate::size;
use crate::tree::{FileType, Inner};

/// What lines need besides files.
pub(super) struct Long {
    clock: Clock,
    people: People,
    is_numeric: bool,
    is_human: bool,
}

/// How a column stands.
#[derive(Clone, Copy)]
enum Side {
    Left,
    Right,
}

const SIDES: [Side; 6] =
    [Side::Left, Side::Right, Side::Left, Side::Left, Side::Right, Side::Right];

impl Long {
    /// With the machine's clock and users.
    pub(super) fn new(is_numeric: bool, is_human: bool) -> Long {
        Long { clock: Clock::new(), people: People::default(), is_numeric, is_human }
    }

    /// What stands before the names, aligned.
    pub(super) fn lines<'s>(
        &mut self,
        files: &Inner,
        stats: impl Iterator<Item = &'s Stat>,
    ) -> Vec<String> {
        let rows: Vec<[String; 6]> = stats.map(|stat| self.row(files, stat)).collect();
        let mut widths = [0; 6];
        for row in &rows {
            for (width, text) in widths.iter_mut().zip(row) {
                *width = (*width).max(text.chars().count());
            }
        }
        rows.iter().map(|row| line(row, widths)).collect()
    }

    fn row(&mut self, files: &Inner, stat: &Stat) -> [String; 6] {
        let file_type = entry::type_of(stat);
        let mut letters = entry::letters(file_type, stat.mode);
        // As `ls -l` marks it.
        if files.has_access_list(stat.file) {
            letters.push('+');
        }
        let (user, group) = match self.is_numeric {
            true => (stat.uid.to_string(), stat.gid.to_string()),
            false => {
                (self.people.user(stat.uid).to_owned(), self.people.group(stat.gid).to_owned())
            }
        };
        let size = match file_type {
            FileType::Character | FileType::Block => {
                format!("{}, {:>3}", stat.device.0, stat.device.1)
            }
            _ if self.is_human => size::human(stat.size),
            _ => stat.size.to_string(),
        };
        [letters, stat.links.to_string(), user, group, size, self.clock.short(stat.mtime)]
    }
}

fn line(row: &[String; 6], widths: [usize; 6]) -> String {
    let mut out = String::new();
    for ((text, width), side) in row.iter().zip(widths).zip(SIDES) {
        match side {
            Side::Left => out += &format!("{text:<width$} "),
            Side::Right => out += &format!("{text:>width$} "),
        }
    }
    out
}
