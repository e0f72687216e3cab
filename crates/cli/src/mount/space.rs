//! What serves the space of a volume: one file, through FUSE.

use std::path::PathBuf;
use std::sync::Arc;

use conquest_export::{Options, SIZE_MAX, Server, Space, Volume};
use conquest_flash::{Error, OpenOptions};
use conquest_fuse::Session;

use super::server::mounted;
use super::{End, MountRequest, Serve};
use crate::log::{Cause, Kind, Level, Log};
use crate::place::host_label;
use crate::reason::{Reason, Result};
use crate::size::grouped;

static FULL: Kind = Kind::new(Level::Warn, "no space");
static DAMAGE: Kind = Kind::new(Level::Error, "damage");
static HIDDEN: Kind = Kind::new(Level::Warn, "hidden");

/// A volume whose space is shown, or is to be.
pub(crate) struct Exported {
    /// Its devices.
    devices: Vec<PathBuf>,
    opening: OpenOptions,
    /// Bytes of the file, if they were asked for.
    size: Option<u64>,
    served: Option<(Session<Server>, Arc<Volume>)>,
}

impl Exported {
    /// The volume on `devices`, to be opened as `opening` says, as a file of `size` bytes, or of as
    /// many as the volume can hold.
    pub(crate) fn new(devices: Vec<PathBuf>, opening: OpenOptions, size: Option<u64>) -> Exported {
        Exported { devices, opening, size, served: None }
    }

    /// Mounts `volume` as `request` says.
    fn serve(
        &self,
        volume: &Arc<Volume>,
        request: &MountRequest,
    ) -> Result<(Session<Server>, Box<dyn End>)> {
        let size = self.size_of(volume)?;
        let space = Space::new(Arc::clone(volume), size);
        self.check_hidden(&space, size, &request.log)?;
        let options = Options {
            read_only: request.options.read_only,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            created: volume.identity().map_or(0, |identity| identity.created),
        };
        mounted(Server::new(space, options, reporter(&request.log)), request)
    }

    /// Bytes of the file. What the volume can hold is the same for its life, so a file system on
    /// the file finds it as long as it was.
    fn size_of(&self, volume: &Volume) -> Result<u64> {
        let unit = volume.unit();
        let size = self.size.unwrap_or(volume.usage().capacity * unit);
        if size == 0 || size > SIZE_MAX || !size.is_multiple_of(unit) {
            return Err(Reason::rule(format!(
                "--size {size}: a file of the space has a multiple of {unit} bytes, {} at most",
                grouped(SIZE_MAX)
            )));
        }
        Ok(size)
    }

    /// Refuses to hide what somebody has written, unless the size was asked for.
    fn check_hidden(&self, space: &Space, size: u64, log: &Log) -> Result<()> {
        let Some(at) = space.hidden()? else {
            return Ok(());
        };
        if self.size.is_some() {
            log.tell(&HIDDEN, &[&"the volume has something that is not shown: at byte ", &at]);
            return Ok(());
        }
        let device = self.devices.first().map(|path| host_label(path)).unwrap_or_default();
        Err(Reason::Rule(format!(
            "{device}: the volume has something at byte {}, behind the {} bytes that are shown \
             unless --size says otherwise (say what was said when that was written)",
            grouped(at),
            grouped(size)
        )))
    }
}

impl Serve for Exported {
    fn mount(&mut self, request: &MountRequest) -> Result<Box<dyn End>> {
        let volume = Arc::new(Volume::open(&self.devices, &self.opening)?);
        match self.serve(&volume, request) {
            Ok((session, end)) => {
                self.served = Some((session, volume));
                Ok(end)
            }
            Err(reason) => {
                // The error to tell is the one that led here.
                let _ = close(volume);
                Err(reason)
            }
        }
    }

    fn run(&mut self) -> Result<()> {
        let Some((session, volume)) = self.served.take() else {
            return Err(Reason::rule("nothing is mounted"));
        };
        let served = volume.with_keeper(|| session.run()).map_err(Reason::from);
        served.and(close(volume))
    }
}

/// Closes the volume, which nobody serves any more.
fn close(volume: Arc<Volume>) -> Result<()> {
    match Arc::try_unwrap(volume) {
        Ok(volume) => Ok(volume.close()?),
        // Somebody of this process has it still: what he has acknowledged is made durable.
        Err(volume) => Ok(volume.flush()?),
    }
}

fn reporter(log: &Arc<Log>) -> conquest_export::Reporter {
    let log = Arc::clone(log);
    Box::new(move |error| {
        let kind = if matches!(error, Error::NoSpace { .. }) { &FULL } else { &DAMAGE };
        log.tell(kind, &[&Cause(&Reason::rule(error.to_string()))]);
    })
}
