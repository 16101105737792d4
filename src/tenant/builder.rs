//! Creating a tenant.

use super::error::CreateError;
use super::registry::{self, NoId, MAX_DEPTH};
use super::{retire, Tenant};
use crate::charge::limit;
use crate::charge::scope;
use crate::heap::request;
use crate::heap::tag::Tag;
use crate::percpu::world;

/// The longest name, in bytes.
pub(crate) const MAX_NAME: usize = 255;

/// What a limit does when it is met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The tenant is stopped; strict charges are refused.
    #[default]
    Enforce,
    /// Nothing is stopped or refused; [`EventCounts::max`](crate::EventCounts::max) counts what would have been.
    Measure,
}

/// A tenant to be created, with its parent and limits. Made by [`Tenant::builder`].
///
/// ```
/// use allotment::{Mode, Tenant};
///
/// let parent = Tenant::builder("customer").max(64 << 20).build()?;
/// let child = Tenant::builder("job")
///     .parent(&parent)
///     .max(8 << 20)
///     .high(6 << 20)
///     .overdraft(1 << 20)
///     .mode(Mode::Enforce)
///     .build()?;
/// assert_eq!(child.parent(), Some(parent));
/// # Ok::<(), allotment::CreateError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder creates nothing until `build` is called"]
pub struct TenantBuilder {
    /// The name, or the beginning of one that is too long.
    name: String,
    name_len: usize,
    parent: Option<Tenant>,
    max: Option<usize>,
    high: Option<usize>,
    overdraft: Option<usize>,
    mode: Mode,
}

impl TenantBuilder {
    pub(super) fn new(name: &str) -> Self {
        // Billed to root, and of an enormous name only what shows that it is one.
        let _root = scope::enter_root();
        TenantBuilder {
            name: name[..name.floor_char_boundary(MAX_NAME + 1)].to_owned(),
            name_len: name.len(),
            parent: None,
            max: None,
            high: None,
            overdraft: None,
            mode: Mode::Enforce,
        }
    }

    /// The parent; root if none is named. The builder holds a handle, so it cannot retire meanwhile.
    pub fn parent(mut self, parent: &Tenant) -> Self {
        self.parent = Some(parent.clone());
        self
    }

    /// The limit in bytes, of the tenant with all its descendants. 0 is allowed: the first allocation meets it. A
    /// limit of 2^47 bytes or more never binds.
    pub fn max(mut self, bytes: usize) -> Self {
        self.max = Some(bytes);
        self
    }

    /// The soft limit in bytes; not above `max`. Passing it is counted in [`EventCounts::high`](crate::EventCounts::high).
    pub fn high(mut self, bytes: usize) -> Self {
        self.high = Some(bytes);
        self
    }

    /// How many bytes past `max` forced charges may go before allocations return null; unlimited unless set.
    ///
    /// An exhausted overdraft makes infallible allocations abort the process, as any allocator at its end does (and
    /// formatting a backtrace hang, see [`fallible`](crate::fallible)). Set it only as a last line of defence.
    pub fn overdraft(mut self, bytes: usize) -> Self {
        self.overdraft = Some(bytes);
        self
    }

    /// Whether limits are enforced or only measured.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Creates the tenant. O(1), but when all 65,535 ids are in use: then the caches are drained once, to free ids
    /// whose last bytes lie there.
    ///
    /// # Errors
    /// A name that is empty or longer than 255 bytes; `high` above `max`; more than 32 levels; no id; no memory.
    pub fn build(&self) -> Result<Tenant, CreateError> {
        if self.name.is_empty() {
            return Err(CreateError::EmptyName);
        }
        if self.name_len > MAX_NAME {
            return Err(CreateError::NameTooLong { len: self.name_len, max: MAX_NAME });
        }
        if let (Some(high), Some(max)) = (self.high, self.max) {
            if high > max {
                return Err(CreateError::HighAboveMax { high, max });
            }
        }
        let parent = self.parent.clone().unwrap_or_else(Tenant::root);
        if registry::node(parent.tag()).depth() >= MAX_DEPTH {
            return Err(CreateError::TooDeep { max: usize::from(MAX_DEPTH) });
        }
        let (name, len) = retire::keep_name(&self.name);
        let mut made = create(parent.tag(), name, len);
        match made {
            Ok(_) => {}
            Err(NoId::Exhausted) => {
                limit::drain(Tag::ROOT, false);
                made = create(parent.tag(), name, len);
            }
            Err(NoId::OutOfMemory) => {
                request::give_all_back();
                made = create(parent.tag(), name, len);
            }
        }
        let id = made.map_err(|why| {
            retire::drop_name(name, len);
            match why {
                NoId::Exhausted => CreateError::OutOfIds,
                NoId::OutOfMemory => CreateError::OutOfMemory,
            }
        })?;
        // The child holds its parent's handle for as long as it lives.
        core::mem::forget(parent);
        let node = registry::node(id);
        node.counter.set_max(self.max.unwrap_or(usize::MAX));
        node.set_high(self.high.unwrap_or(usize::MAX));
        node.counter.set_overdraft(self.overdraft.unwrap_or(usize::MAX));
        node.counter.set_measured(self.mode == Mode::Measure);
        Ok(Tenant::from_acquired(id))
    }
}

fn create(parent: Tag, name: *mut u8, len: usize) -> Result<Tag, NoId> {
    let _inside = world::enter_shared();
    registry::create(parent, name, len)
}
