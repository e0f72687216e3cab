//! Names in columns, for terminals.

use std::io::{self, Write};

use unicode_width::UnicodeWidthStr;

/// Blanks between columns.
const GAP: usize = 2;

/// Columns of the terminal that standard output is; 80 if it does not tell.
pub(super) fn width() -> usize {
    match rustix::termios::tcgetwinsize(rustix::stdio::stdout()) {
        Ok(size) if size.ws_col > 0 => size.ws_col.into(),
        _ => 80,
    }
}

/// Prints `names` downwards, in as many columns as fit into `width`.
pub(super) fn print(out: &mut impl Write, names: &[Vec<u8>], width: usize) -> io::Result<()> {
    let widths: Vec<usize> =
        names.iter().map(|name| String::from_utf8_lossy(name).width()).collect();
    let (rows, columns) = fit(&widths, width);
    for row in 0..rows {
        for (nth, column) in columns.iter().enumerate() {
            let at = nth * rows + row;
            let Some((name, own)) = names.get(at).zip(widths.get(at)) else {
                break;
            };
            out.write_all(name)?;
            if at + rows < names.len() {
                let blanks = (column + GAP).saturating_sub(*own);
                write!(out, "{:blanks$}", "")?;
            }
        }
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Rows, and the widths of columns, with as few rows as fit.
fn fit(widths: &[usize], width: usize) -> (usize, Vec<usize>) {
    for rows in 1..widths.len() {
        let columns: Vec<usize> =
            widths.chunks(rows).map(|column| column.iter().copied().max().unwrap_or(0)).collect();
        if columns.iter().sum::<usize>() + GAP * (columns.len() - 1) <= width {
            return (rows, columns);
        }
    }
    (widths.len(), vec![widths.iter().copied().max().unwrap_or(0)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_filled_downwards() {
        let names: Vec<Vec<u8>> =
            ["aa", "b", "cccc", "d", "e"].map(|name| name.as_bytes().to_vec()).to_vec();
        let shown = |width| {
            let mut out = Vec::new();
            print(&mut out, &names, width).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(shown(80), "aa  b  cccc  d  e\n");
        assert_eq!(shown(12), "aa  cccc  e\nb   d\n");
        assert_eq!(shown(3), "aa\nb\ncccc\nd\ne\n");
        let mut out = Vec::new();
        print(&mut out, &[], 80).unwrap();
        assert!(out.is_empty());
    }
}
