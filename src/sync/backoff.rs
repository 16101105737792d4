//! How a waiter waits: it spins for well under a microsecond, then gives the CPU away, then sleeps.
//!
//! std's and crossbeam's back-offs end in `std::thread::yield_now`; below `GlobalAlloc` nothing of `std::thread` may
//! run (hazard B02), and a waiter behind a paused thread must not burn a CPU (hazard B18), hence the sleep.

/// Steps of pure spinning before the CPU is given away.
#[cfg(not(loom))]
const SPINS: u32 = 64;
/// Steps of `sched_yield` before the waiter sleeps.
#[cfg(not(loom))]
const YIELDS: u32 = 64;

/// One waiter's patience.
pub(crate) struct Backoff {
    step: u32,
}

impl Backoff {
    pub(crate) const fn new() -> Self {
        Backoff { step: 0 }
    }

    /// Waits a little longer than the last time.
    #[cfg(not(loom))]
    pub(crate) fn wait(&mut self) {
        self.step = self.step.saturating_add(1);
        if self.step <= SPINS {
            core::hint::spin_loop();
        } else if self.step <= SPINS + YIELDS {
            // SAFETY: sched_yield takes no argument and touches no memory of ours.
            unsafe { libc::sched_yield() };
        } else {
            let _errno = crate::life::errno::KeepErrno::new();
            let pause = libc::timespec { tv_sec: 0, tv_nsec: 50_000 };
            // SAFETY: `pause` outlives the call; the remainder pointer may be null.
            unsafe { libc::nanosleep(&pause, core::ptr::null_mut()) };
        }
    }

    #[cfg(loom)]
    pub(crate) fn wait(&mut self) {
        self.step += 1;
        loom::thread::yield_now();
    }

    /// Waits done so far. Past the spins and yields each is 50 microseconds or more.
    pub(crate) fn steps(&self) -> u32 {
        self.step
    }
}
