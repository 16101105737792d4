//! A second thread that lives as long as the process, as a service's threads do: its start and end are in no figure.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{channel, Sender};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// Nanoseconds that two threads worked together, by the wall clock and of CPU time.
static WALL: AtomicU64 = AtomicU64::new(0);
static CPU: AtomicU64 = AtomicU64::new(0);

type Job = Box<dyn FnOnce() + Send>;

fn jobs() -> &'static Sender<Job> {
    static JOBS: OnceLock<Sender<Job>> = OnceLock::new();
    JOBS.get_or_init(|| {
        let (jobs, todo) = channel::<Job>();
        thread::spawn(move || todo.into_iter().for_each(|job| job()));
        jobs
    })
}

/// Waits for something that another thread is about to do: without sleeping, and leaving the CPU to it if need be.
pub fn wait_until(mut done: impl FnMut() -> bool) {
    let mut turns = 0_u32;
    while !done() {
        turns += 1;
        if turns.is_multiple_of(256) {
            thread::yield_now();
        } else {
            spin_loop();
        }
    }
}

/// Runs `there` on the second thread and `here` on this one, started together; the time until both are done.
pub fn together(there: impl FnOnce() + Send + 'static, here: impl FnOnce()) -> Duration {
    let flags: Arc<[AtomicBool; 3]> = Arc::default();
    let theirs = Arc::clone(&flags);
    let job = move || {
        let [ready, go, done] = &*theirs;
        // Release and acquire: each flag hands over what was done before it was set.
        ready.store(true, Ordering::Release);
        wait_until(|| go.load(Ordering::Acquire));
        there();
        done.store(true, Ordering::Release);
    };
    jobs().send(Box::new(job)).expect("the second thread lives");
    let [ready, go, done] = &*flags;
    wait_until(|| ready.load(Ordering::Acquire));
    let cpu = cpu_time();
    let start = Instant::now();
    go.store(true, Ordering::Release);
    here();
    wait_until(|| done.load(Ordering::Acquire));
    let elapsed = start.elapsed();
    // Relaxed: only this thread adds, and reads.
    WALL.fetch_add(elapsed.as_nanos() as u64, Ordering::Relaxed);
    CPU.fetch_add(cpu_time().saturating_sub(cpu).as_nanos() as u64, Ordering::Relaxed);
    elapsed
}

/// How many CPUs two threads that worked together had, on average; `None`: no two did. Waiting threads do not sleep, so
/// that much less than two means that other processes had a CPU.
pub fn cpus_had() -> Option<f64> {
    let wall = WALL.load(Ordering::Relaxed);
    (wall > 0).then(|| CPU.load(Ordering::Relaxed) as f64 / wall as f64)
}

/// CPU time of all threads of this process.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is written to a live variable.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    assert_eq!(failed, 0, "a clock that every Linux has");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
