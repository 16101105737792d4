//! One thread, one size: the price of an allocation and its free.
fn main() {}
