//! Events an allocator must survive: fork, threads that end, signals that land inside it.
//!
//! * [`reentry`]: who am I (the token of a thread), and how to die with a message when an invariant is broken.
//! * [`thread_exit`]: why nothing has to be done there.
//! * [`fork`]: the child finds a heap at rest.
//! * [`errno`]: is the program's.

#[cfg(not(loom))]
pub(crate) mod errno;
#[cfg(not(loom))]
pub(crate) mod fork;
#[cfg(not(loom))]
pub(crate) mod reentry;
#[cfg(not(loom))]
pub(crate) mod thread_exit;
#[cfg(not(loom))]
pub(crate) mod thread_words;
