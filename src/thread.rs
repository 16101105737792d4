//! Threads that inherit the tenant.

use crate::Tenant;

/// [`std::thread::spawn`] whose thread runs as the tenant in scope here. A thread spawned by std itself starts in root.
///
/// The thread holds a handle of the tenant while it runs. What std allocates for the thread itself (its handle and
/// result) is allocated here, in the scope of the caller.
///
/// ```
/// let tenant = allotment::Tenant::new("threaded")?;
/// let inside = tenant.in_scope(|| allotment::thread::spawn(allotment::Tenant::current));
/// assert_eq!(inside.join().unwrap(), tenant);
/// # Ok::<(), allotment::CreateError>(())
/// ```
pub fn spawn<F, T>(f: F) -> std::thread::JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let tenant = Tenant::current();
    std::thread::spawn(move || tenant.in_scope(f))
}
