//! `conquest df`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{ArgAction, Args};
use conquest::Usage;
use serde::Serialize;

use crate::json::{self, Name};
use crate::place;
use crate::reason::Reason;
use crate::report::Report;
use crate::session;
use crate::size::human;

/// Show the space of stores.
#[derive(Args)]
#[command(
    disable_help_flag = true,
    after_help = "Used and available add up to the most that the store can hold, less what mkfs has
set aside for root, as far as the file system of its core has that much.

Example:
  conquest df -h store"
)]
pub(crate) struct Df {
    /// Sizes with units instead of units of 1024 bytes.
    #[arg(short, long)]
    human_readable: bool,
    /// For programs: schema conquest.df.
    #[arg(long)]
    json: bool,
    /// Print help.
    #[arg(long, action = ArgAction::HelpLong)]
    help: Option<bool>,
    /// Stores: their directories.
    #[arg(required = true)]
    stores: Vec<OsString>,
}

#[derive(Serialize)]
struct Row {
    store: Name,
    total_bytes: u64,
    used_bytes: u64,
    free_bytes: u64,
    available_bytes: u64,
    reserved_bytes: u64,
    block_bytes: u64,
}

#[derive(Serialize)]
struct Rows {
    stores: Vec<Row>,
}

pub(crate) fn run(args: &Df) -> ExitCode {
    let report = Report::new("df");
    let mut rows = Vec::new();
    for argument in &args.stores {
        let directory = place::store(argument);
        let Some(store) = report.take_plain(session::attach(&directory)) else {
            continue;
        };
        let usage = store.usage();
        report.take_plain(store.detach().map_err(Reason::from));
        rows.push((directory, usage));
    }
    let shown = match args.json {
        true => {
            let stores = rows.iter().map(|(directory, usage)| Row {
                store: Name::new(directory.as_os_str().as_encoded_bytes()),
                total_bytes: usage.total,
                used_bytes: usage.used,
                free_bytes: usage.free,
                available_bytes: usage.available,
                reserved_bytes: usage.reserved,
                block_bytes: usage.block,
            });
            json::print("df", &Rows { stores: stores.collect() })
        }
        false => {
            let mut text = lines(args.human_readable, None, "Store");
            for (directory, usage) in &rows {
                text += &lines(args.human_readable, Some(usage), &place::host_label(directory));
            }
            crate::output::all(text.as_bytes())
        }
    };
    report.take("standard output", shown.map_err(Reason::from));
    report.code()
}

/// The line of a store, or that above all of them.
fn lines(is_human: bool, usage: Option<&Usage>, name: &str) -> String {
    let title = if is_human { "Size" } else { "1K-blocks" };
    let [total, used, left, part] = match usage {
        None => [title, "Used", "Avail", "Use%"].map(str::to_owned),
        Some(usage) => {
            let number = |bytes: u64| match is_human {
                true => human(bytes),
                false => bytes.div_ceil(1024).to_string(),
            };
            let whole = usage.used.saturating_add(usage.available).max(1);
            let part = (u128::from(usage.used) * 100).div_ceil(u128::from(whole));
            let [total, used, left] = [usage.total, usage.used, usage.available].map(number);
            [total, used, left, format!("{part}%")]
        }
    };
    format!("{total:>12} {used:>12} {left:>12} {part:>5} {name}\n")
}
