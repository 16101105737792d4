//! A thread ends: what it leaves behind, and why that does no harm.
//!
//! The one thread-local of the crate (`thread_words.rs`) is `const`-initialised and has no `Drop`: it may be read and
//! written at any time of a thread's life, after all destructors of other thread-locals and in pthread keys' destructors
//! too (hazard B01). On the platforms we support such a thread-local is plain memory of the thread's static TLS block.
//!
//! A slot that the thread had claimed is given back by a pthread key's destructor (`percpu/claim.rs`), with its content,
//! which the next thread that claims it finds, and every drain meanwhile. Whatever the thread still frees or allocates
//! after that goes to its CPU's slot or a shared one. A thread that never gets there (raw `exit`, a detached thread at
//! the end of the process) keeps its claim: it costs the slot, and nothing is lost to the accounts.

const _: () = assert!(
    !core::mem::needs_drop::<super::thread_words::ThreadWords>(),
    "the thread-local must have no destructor: frees come after thread-local teardown"
);
