//! What the process-wide tests share: a case in a child process of its own, and the arithmetic of charges.

#![allow(dead_code)] // each test binary uses a part

use std::alloc::Layout;
use std::time::Duration;

use allotment::Tenant;

use crate::common::{run_child, Child};

/// Set in the child that runs a case.
pub const CASE: &str = "ALLOTMENT_TEST_CASE";

/// Whether this process is the child that runs a case.
pub fn is_child() -> bool {
    std::env::var_os(CASE).is_some()
}

/// Runs the test named `test`, whatever becomes of it. The test's body must ask [`is_child`] first.
pub fn child(test: &str, seconds: u64) -> Child {
    // Without glibc's own arenas: each would take 64 MiB of address space per thread from the cases that have little.
    let env = [(CASE, "1"), ("RUST_BACKTRACE", "0"), ("MALLOC_ARENA_MAX", "1")];
    run_child(test, &env, Duration::from_secs(seconds))
}

/// In the child: runs the body. In the parent: runs the child and demands that it passes in time.
pub fn in_child(test: &str, seconds: u64, body: impl FnOnce()) -> Option<Child> {
    if is_child() {
        body();
        return None;
    }
    let child = child(test, seconds);
    assert!(
        child.status.is_some_and(|status| status.success()) && child.stdout.contains("1 passed"),
        "{test}: {:?}\n{}\n{}",
        child.status,
        child.stdout,
        child.stderr
    );
    Some(child)
}

/// What an object of `size` bytes is charged when its alignment asks for no more: its class and two bytes of tag, or
/// whole units of 8 KiB.
pub fn charge(size: usize) -> usize {
    match size {
        0..=128 => size.max(1).next_multiple_of(16) + 2,
        129..=65536 => size.next_multiple_of((1 << (size - 1).ilog2()) / 4) + 2,
        _ => size.next_multiple_of(8192),
    }
}

pub fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).expect("a valid layout")
}

/// Demands that the tenant has exactly `bytes` and that the heap agrees.
#[track_caller]
pub fn exact(tenant: &Tenant, bytes: usize) {
    assert_eq!(tenant.settle(), bytes, "tenant {}", tenant.name());
    if let Err(drift) = allotment::verify() {
        panic!("{drift}");
    }
}

/// Allocates once on every CPU: a CPU's slot comes into being, with memory of its own, when it is first used, which would be
/// when a thread happens to be moved there.
pub fn visit_every_cpu() {
    // SAFETY: a set of zeros is a valid set; the calls read and write live sets only.
    unsafe {
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&allowed), &mut allowed), 0);
        for cpu in (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &allowed)) {
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut one);
            assert_eq!(libc::sched_setaffinity(0, size_of_val(&one), &one), 0);
            drop(std::hint::black_box(Box::new(cpu)));
        }
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&allowed), &allowed), 0);
    }
}

/// xorshift64*: the same sequence for the same seed.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
    /// Below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() >> 16) as usize % n
    }
}

/// A raw object with a pattern from end to end, so that an overlap shows.
pub struct Object {
    pub start: *mut u8,
    pub layout: Layout,
    seed: u8,
}

// SAFETY: the object is this value's alone, and the heap allows frees from any thread.
unsafe impl Send for Object {}

impl Object {
    /// `None`: the allocator said no.
    pub fn new(layout: Layout, seed: u8) -> Option<Object> {
        // SAFETY: no layout of these tests has size 0.
        let start = unsafe { std::alloc::alloc(layout) };
        if start.is_null() {
            return None;
        }
        assert!(start.addr().is_multiple_of(layout.align()));
        let object = Object { start, layout, seed };
        object.fill();
        Some(object)
    }

    fn byte(&self, at: usize) -> u8 {
        self.seed ^ (at as u8) ^ (at >> 8) as u8 ^ (at >> 16) as u8
    }

    /// The places that are written and checked: all of a small object, a step and the ends of a large one.
    fn places(&self) -> impl Iterator<Item = usize> + '_ {
        let size = self.layout.size();
        let step = match size {
            0..=4096 => 1,
            4097..=300_000 => 509,
            _ => 8191,
        };
        (0..size).step_by(step).chain([size - 1])
    }

    fn fill(&self) {
        for at in self.places() {
            // SAFETY: `at` lies within the live object.
            unsafe { self.start.add(at).write(self.byte(at)) };
        }
    }

    fn check(&self, below: usize) {
        for at in self.places().filter(|&at| at < below.min(self.layout.size())) {
            // SAFETY: `at` lies within the live object, and was written.
            assert_eq!(unsafe { self.start.add(at).read() }, self.byte(at), "byte {at} of {:?}", self.layout);
        }
    }

    /// `false`: the allocator said no; the object is as before.
    pub fn resize(&mut self, size: usize) -> bool {
        // SAFETY: the object is live and of this layout; `size` is not 0.
        let moved = unsafe { std::alloc::realloc(self.start, self.layout, size) };
        if moved.is_null() {
            self.check(self.layout.size());
            return false;
        }
        // The places of the old size that both sizes have, then those of the new one.
        self.start = moved;
        self.check(size);
        self.layout = layout(size, self.layout.align());
        self.fill();
        true
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check(self.layout.size());
        }
        // SAFETY: the object is live, of this layout, and used no more.
        unsafe { std::alloc::dealloc(self.start, self.layout) };
    }
}
