//! What was found, as one page: it needs nothing from anywhere else, and no script.
//!
//! Each phase is a table whose rows have bars: who can't see the bars has the numbers, and nothing
//! is told by colour alone. Experiments that were done at several sizes have a chart besides.

/// Adds to a string, as `write!` does; that can't fail.
macro_rules! put {
    ($out:expr, $($text:tt)*) => {{
        use std::fmt::Write;
        let _ = write!($out, $($text)*);
    }};
}

mod bars;
mod bounds;
mod chart;
mod effects;
mod operations;
mod page;
mod pairs;

use std::fmt::{self, Display, Write};

pub use page::page;

/// Text in HTML.
struct Text<T>(T);

impl<T: Display> Display for Text<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.to_string().chars() {
            match letter {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                letter => f.write_char(letter)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_no_markup() {
        assert_eq!(
            Text("<a href=\"x\">&</a>").to_string(),
            "&lt;a href=&quot;x&quot;&gt;&amp;&lt;/a&gt;"
        );
        assert_eq!(Text(7).to_string(), "7");
    }
}
