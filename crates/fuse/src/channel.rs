//! What replies and notices go through.

use std::io::IoSlice;
use std::sync::Arc;

use rustix::io::Errno;

use crate::device::Device;
use crate::incident::Incident;
use crate::interrupts::Interrupts;
use crate::wire;

/// Pieces of a message that are put together without memory from the heap, the header included.
const PIECES_MAX: usize = 64;

/// What is told of what goes wrong, by any thread; it should not take long.
pub type Report = Box<dyn Fn(&Incident) + Send + Sync>;

/// What all channels of a session have in common.
pub(crate) struct Common {
    pub(crate) interrupts: Interrupts,
    pub(crate) report: Report,
}

/// A descriptor of the device, and what the session has beside it.
pub(crate) struct Channel {
    pub(crate) device: Device,
    pub(crate) common: Arc<Common>,
}

impl Channel {
    /// Sends the reply to request `unique`: `error`, or `pieces` if that is 0. A caller who is gone
    /// is no error. What the kernel refuses is reported, and answered by `EIO`.
    pub(crate) fn answer(&self, unique: u64, error: i32, pieces: &[IoSlice<'_>]) {
        self.common.interrupts.forget(unique);
        let len = pieces.iter().map(|piece| piece.len()).sum();
        let header = wire::header(unique, error, len);
        let Err(source) = self.send(&header, pieces) else { return };
        let incident = Incident::Refused { unique, len, source: source.into() };
        (self.common.report)(&incident);
        // The kernel may have ended the request already; then it does not know it any more.
        let header = wire::header(unique, Errno::IO.raw_os_error(), 0);
        let (Ok(()) | Err(_)) = self.send(&header, &[]);
    }

    fn send(&self, header: &[u8], pieces: &[IoSlice<'_>]) -> Result<(), Errno> {
        let mut space = [IoSlice::new(&[]); PIECES_MAX];
        let sent = match space.get_mut(..=pieces.len()) {
            Some([first, rest @ ..]) => {
                *first = IoSlice::new(header);
                rest.copy_from_slice(pieces);
                self.device.send(space.get(..=pieces.len()).unwrap_or_default())
            }
            _ => {
                let mut all = vec![IoSlice::new(header)];
                all.extend_from_slice(pieces);
                self.device.send(&all)
            }
        };
        match sent {
            // The caller was killed, or all has ended.
            Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED | Errno::NOTCONN) => Ok(()),
            other => other,
        }
    }

    /// Sends a notice. That the kernel does not know what it is about is no error.
    pub(crate) fn notify(&self, notice: &wire::Notice<'_>) -> Result<(), Errno> {
        let encoded = notice.encode();
        match self.device.send(&encoded.pieces().map(IoSlice::new)) {
            Err(Errno::NOENT) => Ok(()),
            other => other,
        }
    }
}
