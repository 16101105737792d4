//! CPU slots. One contract: *run this short operation on some slot, alone.*
//!
//! * `mode`: which kind of slot threads have, decided once for the process.
//! * `rseq`: slots of CPUs, entered by restartable sequences; the first choice.
//! * `claim`: slots that threads have for themselves, for a bounded number of threads; where there is no rseq.
//! * [`slot`]: how each kind is entered and stopped; `slot_data`: what a slot holds. Shared slots, behind a try-lock, are there
//!   in every mode: for a thread that has neither of the above, or finds it busy, and for signal handlers. A busy slot
//!   means another slot, never waiting.
//! * [`gate`]: when every slot is busy an operation runs without one, straight on slabs and counters, counted by
//!   the gate.
//! * `world`: choosing among all of these, and stopping them for a moment: drains, `verify()`, fork; `fence`: what lets
//!   those who stop pay for it and not those who are stopped.
//! * `topology`: how many CPUs there are.
//!
//! An operation is inside exactly one of {a slot, the gate} from its first look at shared state to its last, so a
//! stopped world means that no operation is half done. (A restartable sequence that pops or pushes is a whole operation
//! in one step.)
//!
//! # Which kind is best, measured
//! A pair of 64 B, accounted, by instructions and time: see `ci/fast_path.tsv` and the README. A thread's own slot costs a
//! store, two looks and a store to enter and leave; a sequence costs seven more instructions a pair and about as
//! much time, and has the kernel look at it whenever the thread is interrupted; a lock costs one locked instruction each way of the pair.
//! Threads' own slots cache more in all, so their number is bounded; CPUs' slots are as many as CPUs, whatever the
//! number of threads. That is why `rseq` comes first.

#[cfg(not(loom))]
pub(crate) mod claim;
pub mod fence;
pub mod gate;
#[cfg(not(loom))]
pub(crate) mod mode;
#[cfg(not(loom))]
pub(crate) mod rseq;
pub mod slot;
mod slot_data;
#[cfg(not(loom))]
pub(crate) mod topology;
#[cfg(not(loom))]
pub(crate) mod world;

#[cfg(not(loom))]
pub(crate) use world::{enter, own_slot, try_enter, Entry};
