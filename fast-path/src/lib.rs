//! Situations of the fast path, each repeated as often as the command line says; `ci/fast_path.sh` has callgrind count
//! two runs of different length, so that what is not repeated cancels out.
//!
//! The loops are in this library and the global allocator in the binary: without link-time optimisation an allocation
//! is then a call of `__rust_alloc`, as it is for the crates of any program. What a pair costs is all that the loop pays
//! for it. On x86_64 eight instructions of that are the same for every allocator: four arguments, three calls, and the
//! empty function `__rust_no_alloc_shim_is_unstable_v2`.

use std::alloc::{alloc, dealloc, Layout};
use std::ffi::{c_char, c_int, CStr};
use std::hint::black_box;
use std::ptr::NonNull;

use allotment::Tenant;

const USAGE: &str = "usage: [--pretend-rseq] [--mode] SITUATION PAIRS";

/// Live objects of the situations `fifo-64` and `empty-fifo`.
const FIFO: usize = 1000;

/// Three levels of tenants with limits, and a second one at the lowest level.
struct Tenants {
    first: Tenant,
    second: Tenant,
}

impl Tenants {
    fn new() -> Self {
        let build = |name, parent: &Tenant, max| Tenant::builder(name).parent(parent).max(max).build();
        let customer = build("customer", &Tenant::root(), 1 << 30).expect("a tenant");
        let service = build("service", &customer, 1 << 29).expect("a tenant");
        Tenants {
            first: build("first", &service, 1 << 28).expect("a tenant"),
            second: build("second", &service, 1 << 28).expect("a tenant"),
        }
    }
}

/// Both steps in turn, `count` steps in all: every situation has the same loop. Neither step is merged with the other.
#[inline(always)]
fn alternate(count: usize, mut first: impl FnMut(), mut second: impl FnMut()) {
    for _ in 0..count / 2 {
        first();
        memory_may_change();
        second();
        memory_may_change();
    }
}

#[inline(always)]
fn memory_may_change() {
    // SAFETY: no instruction.
    unsafe { std::arch::asm!("", options(nostack, preserves_flags)) };
}

#[inline(always)]
fn made(object: *mut u8) -> *mut u8 {
    let object = black_box(object);
    assert!(!object.is_null(), "refused, or out of memory");
    object
}

/// Has the object in a register, as an argument would be, and does nothing with it.
#[inline(always)]
fn unused(object: *mut u8) {
    // SAFETY: a comment of the assembler.
    unsafe { std::arch::asm!("/* {} */", in(reg) object, options(nostack, preserves_flags)) };
}

/// What a pair is without its allocation.
#[inline(always)]
fn empty() {
    unused(made(NonNull::dangling().as_ptr()));
}

const fn layout(size: usize) -> Layout {
    match Layout::from_size_align(size, 8) {
        Ok(layout) => layout,
        Err(_) => panic!("a size past isize::MAX"),
    }
}

#[inline(always)]
fn pair<const SIZE: usize>() {
    let layout = const { layout(SIZE) };
    // SAFETY: the layout is not empty; the object is freed once, with its layout.
    unsafe { dealloc(made(alloc(layout)), layout) };
}

// One function for each situation, so that none is compiled differently for what another needs.

#[inline(never)]
fn empties(count: usize) {
    alternate(count, empty, empty);
}

#[inline(never)]
fn pairs<const SIZE: usize>(count: usize) {
    alternate(count, pair::<SIZE>, pair::<SIZE>);
}

#[inline(always)]
fn inside(tenant: &Tenant, step: impl FnOnce()) {
    let _entered = tenant.enter();
    step();
}

#[inline(never)]
fn scopes(count: usize, [first, second]: [&Tenant; 2]) {
    alternate(count, || inside(first, empty), || inside(second, empty));
}

#[inline(never)]
fn transfers<const SIZE: usize>(count: usize, [first, second]: [&Tenant; 2]) {
    alternate(count, || inside(first, pair::<SIZE>), || inside(second, pair::<SIZE>));
}

/// `count` objects in bursts of [`FIFO`], each burst freed in the order of its allocation.
#[inline(always)]
fn bursts(count: usize, mut make: impl FnMut() -> *mut u8, mut free: impl FnMut(*mut u8)) {
    let mut objects = [std::ptr::null_mut(); FIFO];
    for _ in 0..count / FIFO {
        for place in &mut objects {
            *place = made(make());
        }
        for object in black_box(&objects) {
            free(*object);
        }
    }
}

#[inline(never)]
fn fifo<const SIZE: usize>(count: usize) {
    let layout = const { layout(SIZE) };
    // SAFETY: the layout is not empty.
    let make = || unsafe { alloc(layout) };
    // SAFETY: each object is freed once, with its layout.
    bursts(count, make, |object| unsafe { dealloc(made(object), layout) });
}

#[inline(never)]
fn empty_fifo(count: usize) {
    bursts(count, || NonNull::dangling().as_ptr(), |object| unused(made(object)));
}

/// Runs a situation. `None`: there is none of that name.
fn run(situation: &str, count: usize) -> Option<()> {
    let Tenants { first, second } = &Tenants::new();
    match situation {
        "empty" => empties(count),
        "scope" => scopes(count, [first, second]),
        "root-64" => pairs::<64>(count),
        "tenant-64" => first.in_scope(|| pairs::<64>(count)),
        "tenant-1024" => first.in_scope(|| pairs::<1024>(count)),
        "tenant-16384" => first.in_scope(|| pairs::<16_384>(count)),
        "transfer-64" => transfers::<64>(count, [first, second]),
        "empty-fifo" => empty_fifo(count),
        "fifo-64" => first.in_scope(|| fifo::<64>(count)),
        _ => return None,
    }
    Some(())
}

fn pretend_rseq() -> Result<(), &'static str> {
    #[cfg(feature = "pretend-rseq")]
    allotment::testing::pretend_rseq();
    if cfg!(feature = "pretend-rseq") {
        Ok(())
    } else {
        Err("built without the feature pretend-rseq")
    }
}

fn obey<'a>(arguments: impl Iterator<Item = &'a str>, peer: Option<&'static str>) -> Result<(), &'static str> {
    let (mut situation, mut count, mut print_mode) = (None, None, false);
    for argument in arguments {
        match argument {
            // Here nothing has allocated yet: the mode is open.
            "--pretend-rseq" => pretend_rseq()?,
            "--mode" => print_mode = true,
            _ if situation.is_none() => situation = Some(argument),
            _ if count.is_none() => count = Some(argument.parse().map_err(|_| USAGE)?),
            _ => return Err(USAGE),
        }
    }
    let (Some(situation), Some(count)) = (situation, count) else { return Err(USAGE) };
    run(situation, count).ok_or("there is no such situation")?;
    if print_mode {
        println!("{}", peer.unwrap_or_else(|| allotment::stats().mode));
    }
    Ok(())
}

/// What each binary's C `main` does: `std`'s own would allocate, and so decide the allocator's mode, before it came to
/// `--pretend-rseq`. `peer` is the name of the binary's allocator unless that is ours.
///
/// # Safety
/// `argc` and `argv` are those of C's `main`.
pub unsafe fn main(argc: c_int, argv: *const *const c_char, peer: Option<&'static str>) -> c_int {
    let arguments = (1..argc as usize).map(|index| {
        // SAFETY: the caller's promise: `argc` strings that live as long as the process.
        unsafe { CStr::from_ptr::<'static>(*argv.add(index)) }.to_str().unwrap_or_default()
    });
    match obey(arguments, peer) {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("fast path: {why}");
            2
        }
    }
}
