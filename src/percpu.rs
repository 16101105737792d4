//! CPU slots. One contract: *run this short operation on some CPU's slot, alone.*
//!
//! * [`slot`]: what a slot holds and the try-lock that guards it (the portable `locked` mode, compiled and tested
//!   everywhere). A busy slot means another slot, never waiting.
//! * [`gate`]: when every slot is busy an operation runs without one, straight on slabs and counters, counted by
//!   the gate.
//! * [`world`]: stopping all of that for a moment: drains, `verify()`, fork.
//! * [`topology`]: how many slots.
//!
//! An operation is inside exactly one of {a slot, the gate} from its first look at shared state to its last, so a
//! stopped world means that no operation is half done.

pub mod gate;
pub mod slot;
#[cfg(not(loom))]
pub(crate) mod topology;
#[cfg(not(loom))]
pub(crate) mod world;

#[cfg(not(loom))]
pub(crate) use world::{enter, Entry};
