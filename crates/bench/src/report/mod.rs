//! What was found, for people and for programs.

pub mod compare;
pub mod html;
pub mod json;
mod number;
mod operation;
pub mod table;
