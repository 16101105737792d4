//! The allocators that the benchmarks compare, behind one trait.
