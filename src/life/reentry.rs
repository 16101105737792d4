//! The identity of a thread below the allocator, and the only way the allocator gives up.

use super::thread_words;

/// A value that no other living thread has and that is not 0: the address of the thread's own words.
///
/// A forked child keeps the token of the thread that forked.
#[inline]
pub(crate) fn token() -> usize {
    core::ptr::from_ref(thread_words::words()) as usize
}

/// Whether this thread is panicking: then nothing may be refused, and slow paths bill root.
///
/// Reads a counter of std's; it neither allocates nor panics. Only slow paths ask.
#[inline]
pub(crate) fn panicking() -> bool {
    std::thread::panicking()
}

/// Writes a static message and aborts. Never allocates, formats or unwinds.
#[cold]
#[inline(never)]
pub(crate) fn die(message: &'static str) -> ! {
    write_all(b"allotment: ");
    write_all(message.as_bytes());
    write_all(b"\n");
    // SAFETY: abort takes no argument and does not return.
    unsafe { libc::abort() }
}

/// [`die`], naming the address that is to blame.
#[cold]
#[inline(never)]
pub(crate) fn die_at(message: &'static str, address: usize) -> ! {
    let mut digits = *b" 0x0000000000000000\n";
    for (place, digit) in digits[3..19].iter_mut().rev().enumerate() {
        *digit = b"0123456789abcdef"[(address >> (4 * place)) & 15];
    }
    write_all(b"allotment: ");
    write_all(message.as_bytes());
    write_all(&digits);
    // SAFETY: abort takes no argument and does not return.
    unsafe { libc::abort() }
}

fn write_all(bytes: &[u8]) {
    // SAFETY: the pointer and length describe a live slice; a failed or short write is of no consequence before
    // the abort.
    unsafe { libc::write(2, bytes.as_ptr().cast(), bytes.len()) };
}
