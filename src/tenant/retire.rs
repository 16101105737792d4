//! The end of a tenant, and what is left of it.
//!
//! When the last handle goes (a living child counts as one), the tenant *retires*: in O(1), however many objects it
//! owns. Its parent's counter holds their charge already, so nothing is moved: the record stays in the tree, takes no
//! new charges, and whoever asks who owns its objects is told the nearest living ancestor. As the objects are freed
//! the record's counter falls, and whatever operation takes the last byte or child away frees the id.
//!
//! What would break without the single word of `charge::counter`: retirement sees one byte left and leaves the id to
//! the last free; the last free sees a tenant not yet retired and leaves it to the retirement; the id is lost. Or
//! both see the other and free it twice.

use super::node::Node;
use super::registry::{self, Registry};
use crate::charge::counter::Tree;
use crate::charge::{drain, limit, scope};
use crate::heap::tag::Tag;
use crate::percpu::world;

/// Called with the last handle of `id` gone.
#[cold]
pub(crate) fn retire(mut id: Tag) {
    while let Some(parent) = registry::node(id).parent() {
        let node: &Node = registry::node(id);
        let (name, len) = node.take_name();
        // Not half done when the world stops.
        let inside = world::enter_shared();
        node.pressure.clear();
        limit::forget_stop(node);
        if node.counter.retire().is_free() {
            Registry.released(id);
        }
        drop(inside);
        drain_stocks(id);
        drop_name(name, len);
        if !registry::node(parent).handles.release() {
            return;
        }
        id = parent;
    }
}

/// Takes the stocks of a tenant that was just marked retired: nobody would ever use them, and they would keep its id. Bytes
/// that come back to it later find no room in a stock. If the id has a new tenant by now, that loses its stocks, which
/// is harmless. A tenant that nothing is charged to has none.
fn drain_stocks(id: Tag) {
    if registry::node(id).counter.usage() == 0 {
        return;
    }
    if let Some(mut stopped) = world::stop() {
        stopped.slots().for_each(|slot| drain::drain_stock(&Registry, &mut slot.stock, id));
    }
}

/// A tenant's name on the heap, billed to root.
pub(crate) fn keep_name(name: &str) -> (*mut u8, usize) {
    let _root = scope::enter_root();
    let copy: Box<str> = name.into();
    let len = copy.len();
    (Box::into_raw(copy).cast(), len)
}

/// Frees what [`keep_name`] gave.
pub(crate) fn drop_name(name: *mut u8, len: usize) {
    if !name.is_null() {
        // SAFETY: the pair came from a `Box<str>` that is owned by the caller.
        drop(unsafe { Box::from_raw(core::ptr::slice_from_raw_parts_mut(name, len) as *mut str) });
    }
}
