//! What a volume was doing at each point of a log, told from what it wrote.

use std::collections::HashSet;

use conquest_format::volume::digest;

use super::medium::Medium;
use super::recorder::{Event, Mark};
use super::scenario::SEGMENT_BYTES;

/// What a volume may be doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Phases {
    /// Payload that was on the medium already was written to another place, and not flushed since.
    pub(crate) cleaning: bool,
    /// What was on the medium was overwritten, and not flushed since.
    pub(crate) reuse: bool,
    /// A checkpoint was begun, and its root is not durable.
    pub(crate) checkpoint: bool,
    /// The volume is being opened.
    pub(crate) recovery: bool,
}

/// Bytes before the first segment.
const START: u64 = SEGMENT_BYTES;
/// Bytes of the anchors.
const ANCHORS: u64 = 4 * SEGMENT_BYTES;
const UNIT: usize = 4096;

/// Follows a log.
pub(crate) struct Watch {
    medium: Medium,
    payload: HashSet<u32>,
    now: Phases,
    /// A root was written.
    is_rooted: bool,
}

fn begins_with(bytes: &[u8], magic: &[u8]) -> bool {
    bytes.get(..magic.len()) == Some(magic)
}

impl Watch {
    /// The beginning of a log of a device that held `medium`.
    pub(crate) fn new(medium: &Medium) -> Watch {
        let mut payload = HashSet::new();
        let mut unit = [0; UNIT];
        for at in (START + ANCHORS..medium.len() - SEGMENT_BYTES).step_by(UNIT) {
            if medium.read(at, &mut unit).is_ok() && unit.iter().any(|&byte| byte != 0) {
                payload.insert(digest(&unit));
            }
        }
        let now = Phases::default();
        Watch { medium: medium.clone(), payload, now, is_rooted: false }
    }

    /// Passes `event`: what the volume was doing just behind it.
    pub(crate) fn pass(&mut self, event: &Event) -> Phases {
        match event {
            Event::Write { at, bytes, .. } => self.written(*at, bytes),
            Event::Flushed { .. } => {
                let before = self.now;
                self.now.cleaning = false;
                self.now.reuse = false;
                self.now.checkpoint &= !self.is_rooted;
                return Phases { recovery: self.now.recovery, ..before };
            }
            Event::Mark(Mark::Recovery) => self.now.recovery = true,
            Event::Mark(Mark::Recovered) => self.now.recovery = false,
            _ => {}
        }
        self.now
    }

    fn written(&mut self, at: u64, bytes: &[u8]) {
        let is_leaf = begins_with(bytes, b"CONQCHKP");
        let is_packet = begins_with(bytes, b"CONQPACK");
        let is_anchor = at < START + ANCHORS;
        if is_leaf {
            self.now.checkpoint = true;
            self.is_rooted = false;
        }
        if begins_with(bytes, b"CONQROOT") {
            self.is_rooted = true;
        }
        let mut before = vec![0; bytes.len()];
        let was_there = self.medium.read(at, &mut before).is_err()
            || (before.iter().any(|&byte| byte != 0) && before != bytes);
        self.now.reuse |= was_there && !is_anchor;
        self.medium.write(at, bytes);
        if is_leaf || is_anchor {
            return;
        }
        for (index, unit) in bytes.chunks(UNIT).enumerate() {
            let is_payload = index > 0 || !is_packet;
            let is_known = is_payload && !self.payload.insert(digest(unit));
            self.now.cleaning |= is_known && !is_packet && unit.iter().any(|&byte| byte != 0);
        }
    }
}
