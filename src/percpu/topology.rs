//! How many CPUs there are, as a measure of how many operations can run at the same time.
//!
//! No slot is looked up by it. A shared slot is chosen by the thread's last choice; a CPU's slot by the number that the
//! kernel gives at that moment, with shared slots for numbers past the table. So ids with holes, CPUs plugged in
//! later and a missing `/sys` do no harm (hazard B11).

use core::num::NonZeroUsize;

use once_cell::race::OnceNonZeroUsize;

/// The most shared slots.
pub(crate) const MAX_SHARED: usize = 256;

static CPUS: OnceNonZeroUsize = OnceNonZeroUsize::new();

/// The CPUs this process may run on when it first allocates, at least one.
#[inline]
pub(crate) fn cpus() -> usize {
    CPUS.get_or_init(|| NonZeroUsize::new(allowed_cpus()).unwrap_or(NonZeroUsize::MIN)).get()
}

/// Shared slots: one for each CPU, at least two.
#[inline]
pub(crate) fn shared_slots() -> usize {
    cpus().clamp(2, MAX_SHARED)
}

#[cfg(target_os = "linux")]
fn allowed_cpus() -> usize {
    // Room for 8,192 CPUs; libc's cpu_set_t ends at 1,024 and the call fails on larger machines.
    let mut mask = [0_u64; 128];
    // SAFETY: the kernel writes at most the given number of bytes into the live array.
    let bytes = unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&mask), mask.as_mut_ptr()) };
    if bytes <= 0 {
        return 1;
    }
    mask.iter().map(|word| word.count_ones() as usize).sum()
}

#[cfg(not(target_os = "linux"))]
fn allowed_cpus() -> usize {
    // SAFETY: sysconf takes no pointer.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(cpus).unwrap_or(1)
}

/// A good first shared slot for a thread: where it runs now. Only ever a hint.
pub(crate) fn first_hint() -> u32 {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: sched_getcpu takes no argument.
        let cpu = unsafe { libc::sched_getcpu() };
        u32::try_from(cpu).unwrap_or(0)
    }
    #[cfg(not(target_os = "linux"))]
    {
        (crate::life::reentry::token() / 64) as u32
    }
}
