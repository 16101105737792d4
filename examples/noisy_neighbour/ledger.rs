//! What the clients of one tenant saw: counts, latencies, and whatever went wrong.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;

/// Latencies are kept in microseconds, to three digits, up to a minute.
const LONGEST_MICROS: u64 = 60_000_000;
const COMPLAINTS_KEPT: usize = 5;

pub struct Ledger {
    pub ok: Counter,
    /// 507 before any work.
    pub refused: Counter,
    /// 507 in the middle of the work.
    pub stopped: Counter,
    /// Anything else: lost, answered with an error, or answered wrongly.
    pub failed: Counter,
    /// Answers found to be equal to an independent count.
    pub validated: Counter,
    /// Those of `ok` that were sent after the wild tenant had been stopped.
    pub ok_while_wild_stopped: Counter,
    latencies: Mutex<Histogram<u64>>,
    complaints: Mutex<Vec<String>>,
}

impl Default for Ledger {
    fn default() -> Self {
        let latencies = Histogram::new_with_bounds(1, LONGEST_MICROS, 3)
            .expect("1 to LONGEST_MICROS with three digits are bounds that exist");
        Ledger {
            ok: Counter::default(),
            refused: Counter::default(),
            stopped: Counter::default(),
            failed: Counter::default(),
            validated: Counter::default(),
            ok_while_wild_stopped: Counter::default(),
            latencies: Mutex::new(latencies),
            complaints: Mutex::default(),
        }
    }
}

impl Ledger {
    pub fn took(&self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(LONGEST_MICROS);
        lock(&self.latencies).saturating_record(micros);
    }

    /// The latency that `percent` of all requests did not exceed.
    pub fn latency(&self, percent: f64) -> Duration {
        Duration::from_micros(lock(&self.latencies).value_at_percentile(percent))
    }

    pub fn fail(&self, complaint: String) {
        self.failed.add();
        let mut complaints = lock(&self.complaints);
        if complaints.len() < COMPLAINTS_KEPT {
            complaints.push(complaint);
        }
    }

    /// The first few things that went wrong.
    pub fn complaints(&self) -> String {
        lock(&self.complaints).join("; ")
    }
}

/// A count for people to read: it orders nothing.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self) {
        // relaxed: nothing is concluded about other memory from a count
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        // relaxed: nothing is concluded about other memory from a count
        self.0.load(Ordering::Relaxed)
    }
}

/// A panic elsewhere does not make what is counted here any less true.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
