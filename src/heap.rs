//! # The path of an allocation
//!
//! | step | file | what happens |
//! |---|---|---|
//! | 0 | `heap/fast_path.rs` | steps 1 to 3 for the usual case, inlined into the program |
//! | 1 | `heap/request.rs`, `heap/size_class.rs` | a layout becomes a size class, or a large object |
//! | 2 | `percpu/world.rs` | the thread enters its CPU's slot, its own or a shared one |
//! | 3 | `heap/magazine.rs`, `heap/tag.rs` | pop an object; its tag equals the tenant in scope: done |
//! | 4 | `heap/cpu_cache.rs` | else move its charge (`charge.rs`), or look further |
//! | 5 | `heap/depot.rs` | a full magazine that another slot spared |
//! | 6 | `heap/slab.rs` | free slots of the class's partial slabs, or a new slab |
//! | 7 | `heap/page_heap.rs`, `heap/spans.rs`, `heap/segment.rs` | a span of units; a segment from the system |
//! | 8 | `heap/large.rs`, `heap/huge.rs` | large objects: spans, or mappings of their own |
//! | 9 | `heap/os.rs` | the system, and its faulty twin |
//! | 10 | `heap/purge.rs` | the way back: empty slabs are spans again, spans are purged |
//!
//! ## Glossary
//! *slot*: of a slab, the place of one object; of a CPU, its magazines and stocks. *Span*: a run of 8 KiB units.
//! *Segment*: 4 MiB of address space. *Cached*: in a magazine, free for the program and charged to its last owner.
//! *Live*: in the program's hands.
//!
//! ## Equations
//! Each structure states its own in its file; over all of them, when the world is stopped:
//! every slot of every slab is free in the slab, or cached in exactly one magazine, or live; the objects of the
//! last two kinds and the large objects, summed by tag, are what the counters say (`tenant/verify.rs` recounts).

#[cfg(not(loom))]
pub(crate) mod arena;
#[cfg(not(loom))]
pub(crate) mod cpu_cache;
#[cfg(not(loom))]
pub(crate) mod depot;
#[cfg(not(loom))]
pub(crate) mod fast_path;
#[cfg(not(loom))]
pub(crate) mod huge;
#[cfg(not(loom))]
pub(crate) mod large;
#[cfg(not(loom))]
pub(crate) mod locked;
pub mod magazine;
#[cfg(not(loom))]
pub mod os;
#[cfg(not(loom))]
pub(crate) mod page_heap;
#[cfg(not(loom))]
pub(crate) mod purge;
#[cfg(not(loom))]
pub(crate) mod request;
#[cfg(not(loom))]
pub(crate) mod segment;
pub mod size_class;
#[cfg(not(loom))]
pub(crate) mod slab;
#[cfg(not(loom))]
pub(crate) mod spans;
pub mod tag;
