//! `conquest man` and `conquest completions`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap_complete::Shell;

use crate::place;
use crate::reason::{Reason, Result};
use crate::report::Report;

/// Write manual pages, one for each command.
#[derive(Args)]
#[command(after_help = "Example:
  conquest man ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// Directory for them; it is made if it is missing.
    directory: PathBuf,
}

/// Write a shell's completions to standard output.
#[derive(Args)]
#[command(after_help = "Example:
  conquest completions bash > ~/.local/share/bash-completion/completions/conquest")]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

pub(crate) fn man(args: &Man) -> ExitCode {
    let report = Report::new("man");
    report.take(place::host_label(&args.directory), write_pages(&args.directory));
    report.code()
}

fn write_pages(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory)?;
    let mut program = crate::args::program();
    program.build();
    let shown = program.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let mut commands: Vec<clap::Command> = shown.collect();
    commands.push(program);
    for command in commands {
        let name = match command.get_name() {
            "conquest" => "conquest".to_owned(),
            name => format!("conquest-{name}"),
        };
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        std::fs::write(directory.join(format!("{name}.1")), page)?;
    }
    Ok(())
}

pub(crate) fn completions(args: &Completions) -> ExitCode {
    let report = Report::new("completions");
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut crate::args::program(), "conquest", &mut text);
    let written = crate::output::all(&text).map_err(Reason::from);
    report.take("standard output", written);
    report.code()
}
