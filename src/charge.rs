//! # The path of a charge
//!
//! | step | file | what happens |
//! |---|---|---|
//! | 1 | `charge/scope.rs` | a thread-local word says who pays |
//! | 2 | `charge/transfer.rs` | a cached object stays charged to its last owner; only when it goes to another tenant does its charge move |
//! | 3 | `charge/stock.rs` | the new owner pays from bytes it was charged ahead of need, held by this CPU slot |
//! | 4 | `charge/counter.rs` | the stock is empty: charge the tenant and all its ancestors, or none |
//! | 5 | `charge/limit.rs` | refused: is it final, and if so: force, stop, or refuse |
//! | 6 | `charge/drain.rs` | before any verdict, take back what lies unused on all CPUs |
//! | - | `charge/pressure.rs` | near a limit nothing is kept in reserve at all |
//!
//! ## Equations
//! For every tenant, when no operation is under way:
//! `usage = live objects + cached objects + stocks on all CPUs + external charges + sum of the children's usage`,
//! each object counting its slot and its tag. While operations run, `usage` is never below the live truth.
//!
//! ## The slack bound
//! What `usage` shows above the live truth is at most, for each CPU slot, two magazines of every class and a stock of
//! [`stock::STOCK_MAX`] bytes per tenant it served, and once the depot (`stats().slack_bound` prints the sum of the
//! magazines' and the depot's part with one tenant's stocks). `settle()` makes it zero.

pub mod counter;
pub mod drain;
#[cfg(not(loom))]
pub(crate) mod limit;
#[cfg(not(loom))]
pub(crate) mod pressure;
#[cfg(not(loom))]
pub(crate) mod scope;
pub mod stock;
pub mod transfer;
