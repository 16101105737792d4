//! `errno` belongs to the program.
//!
//! A free may come between a call that failed and the program's look at `errno`
//! (`libc::open(CString::new(path)?.as_ptr())` frees the string in between), so that what our own system calls leave
//! there must not be seen. POSIX demands it of `free` since 2024.

/// Puts `errno` back when dropped.
pub(crate) struct KeepErrno(#[cfg(target_os = "linux")] libc::c_int);

impl KeepErrno {
    #[cfg(target_os = "linux")]
    pub(crate) fn new() -> Self {
        // SAFETY: the location of this thread's errno is always readable.
        KeepErrno(unsafe { *libc::__errno_location() })
    }
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn new() -> Self {
        KeepErrno()
    }
}

impl Drop for KeepErrno {
    fn drop(&mut self) {
        #[cfg(target_os = "linux")]
        // SAFETY: as in `new`, and writable.
        unsafe {
            *libc::__errno_location() = self.0;
        }
    }
}
