//! Power cuts of whole stores: a volume, a core whose image and log are on it, or one without a log
//! that stays, and large files whose data is on the volume.
//!
//! - [`machine`]: a machine that has a store; all of it but the device is gone with the power.
//! - [`CutSpace`]: a volume alone that loses its power, while the core, which needs no log, stays.
//! - [`tree`]: files, page by page, with bytes that say who wrote them and where.
//! - [`operation`]: what is done to them; [`run`]: by several at once, recorded.
//! - [`history`]: what may be there after a cut.
//! - [`explore`]: goes through the cuts. What a cut may leave of the device is the model of
//!   [`crate::flash::crash`].

mod cut_space;
pub mod explore;
pub mod history;
pub mod machine;
pub mod operation;
mod phases;
pub mod run;
pub mod tree;
mod use_again;

pub use cut_space::CutSpace;
