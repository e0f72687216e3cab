//! From a command line to a mount: in the foreground, or by a process in the background.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use super::background::{self, Parent};
use super::failure::Failure;
use super::options::{Giver, MountOptions};
use super::table::{self, Mount};
use super::{MountRequest, Serve, point, serving};
use crate::log::{Level, Log, Sink};
use crate::place;
use crate::reason::{Reason, Result};

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// The store's directory.
    pub(crate) store: PathBuf,
    /// The mount point.
    pub(crate) point: PathBuf,
    /// Option strings, as they were given.
    pub(crate) options: Vec<OsString>,
    /// What is logged, whatever the option strings say.
    pub(crate) log_level: Option<Level>,
    /// Whether options that are not known are ignored.
    pub(crate) is_sloppy: bool,
}

/// Which process this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// The one that was asked, and that serves.
    Foreground,
    /// The one that was asked, and that has another one serve.
    Asked,
    /// That other one.
    Serving,
    /// It only looks whether what is asked for makes sense.
    Rehearsal,
}

impl Role {
    /// The role of a process that was asked to serve in the foreground, or that was started to
    /// serve.
    pub(crate) const fn of(is_foreground: bool, is_serving: bool) -> Role {
        match (is_foreground, is_serving) {
            (true, _) => Role::Foreground,
            (false, true) => Role::Serving,
            (false, false) => Role::Asked,
        }
    }

    /// Who is to be told, having left him behind.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn parent(self) -> Result<Option<Parent>> {
        match self {
            Role::Serving => Parent::leave().map(Some),
            Role::Foreground | Role::Asked | Role::Rehearsal => Ok(None),
        }
    }
}

impl Wanted {
    /// The options, typed.
    pub(crate) fn parse(&self) -> Result<MountOptions> {
        let is_root = rustix::process::geteuid().is_root();
        let giver = Giver { is_root, is_sloppy: self.is_sloppy };
        let mut options = MountOptions::parse(&self.options, giver)?;
        options.log_level = self.log_level.unwrap_or(options.log_level);
        Ok(options)
    }

    /// The arguments by which the program serves what is asked for.
    fn arguments(&self) -> Vec<OsString> {
        let mut all: Vec<OsString> = vec!["mount".into(), "--serving".into()];
        for text in &self.options {
            let mut option = OsString::from("-o");
            option.push(text);
            all.push(option);
        }
        if let Some(level) = self.log_level {
            all.extend(["--log-level".into(), level.name().into()]);
        }
        if self.is_sloppy {
            all.push("--sloppy".into());
        }
        all.push("--".into());
        all.extend([self.store.clone().into(), self.point.clone().into()]);
        all
    }
}

/// Does what `wanted` says, in the role `role`, by a server that `make` gives.
///
/// # Errors
/// Why it is not mounted, or could not be served. Of another process's failure its parent is told.
pub(crate) fn start(
    wanted: &Wanted,
    role: Role,
    make: impl FnOnce(PathBuf) -> Result<Box<dyn Serve>>,
) -> core::result::Result<(), Failure> {
    let parent = role.parent()?;
    let (wanted, options) = match check(wanted) {
        Ok(checked) => checked,
        Err(failure) => return Err(serving::tell_failure(failure, parent)),
    };
    if options.remount {
        let mount = table::conquest_at(&wanted.point)?;
        return match role {
            Role::Rehearsal => Ok(()),
            _ => Ok(remount(&mount, &options)?),
        };
    }
    let arguments = wanted.arguments();
    let source = options.fsname.clone().unwrap_or_else(|| wanted.store.clone().into());
    let plan = Plan { arguments, source, point: wanted.point, options };
    plan.carry_out(role, parent, || make(wanted.store))
}

/// A mount that was checked.
pub(crate) struct Plan {
    /// The arguments by which another process of the program serves it. The mount point is the last
    /// one: by it servers are found on older kernels.
    pub(crate) arguments: Vec<OsString>,
    /// What the mount is said to be of.
    pub(crate) source: OsString,
    /// The mount point, from the root and without links.
    pub(crate) point: PathBuf,
    pub(crate) options: MountOptions,
}

impl Plan {
    /// Mounts in the role `role`, by a server that `make` gives; `parent` waits for it, if it is
    /// there.
    ///
    /// # Errors
    /// As [`start`].
    pub(crate) fn carry_out(
        self,
        role: Role,
        parent: Option<Parent>,
        make: impl FnOnce() -> Result<Box<dyn Serve>>,
    ) -> core::result::Result<(), Failure> {
        let sink = match role {
            Role::Rehearsal => return Ok(()),
            Role::Asked => {
                let mut command = Command::new("/proc/self/exe");
                command.arg0("conquest").args(self.arguments);
                return background::start(command, background::LIMIT);
            }
            Role::Foreground => Sink::of_foreground(),
            Role::Serving => Sink::of_background(),
        };
        let mut server = match make() {
            Ok(server) => server,
            Err(reason) => return Err(serving::tell_failure(reason.into(), parent)),
        };
        let Plan { source, point, options, .. } = self;
        let log = Arc::new(Log::new(options.log_level, sink));
        let request = MountRequest { source, point, options, log };
        serving::serve(server.as_mut(), &request, parent)
    }
}

/// What is asked for with paths from the root, and its options; nothing is attached for it.
fn check(wanted: &Wanted) -> core::result::Result<(Wanted, MountOptions), Failure> {
    let options = wanted.parse().map_err(Failure::Usage)?;
    let point = point::named(&wanted.point)?;
    let store = match options.remount {
        // What is mounted there already is not asked for its store.
        true => wanted.store.clone(),
        false => place::resolved(&wanted.store)?,
    };
    Ok((Wanted { store, point, ..wanted.clone() }, options))
}

/// Gives `mount` the flags that `options` say.
fn remount(mount: &Mount, options: &MountOptions) -> Result<()> {
    let changed = rustix::mount::mount_remount(&mount.directory, options.flags(), c"");
    let label = place::host_label(&mount.directory);
    changed.map_err(|error| Reason::Rule(format!("{label}: {}", Reason::from(error))))
}

#[cfg(test)]
mod tests;
