//! A thread ends: nothing to do, and why.
//!
//! Caches belong to CPU slots and not to threads, so a thread leaves nothing behind that would have to be flushed.
//! The one thread-local of the crate (`charge::scope`) is `const`-initialised and has no `Drop`: the compiler
//! registers no destructor for it, and it may be read and written at any time of a thread's life, after all
//! destructors of other thread-locals and in pthread keys' destructors too (hazard B01). On the platforms we
//! support such a thread-local is plain memory of the thread's static TLS block.

const _: () = assert!(
    !core::mem::needs_drop::<crate::charge::scope::ThreadWords>(),
    "the thread-local must have no destructor: frees come after thread-local teardown"
);
