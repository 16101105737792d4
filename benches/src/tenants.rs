//! The tenants that ours allocates for: customer > service > request > step, each with a limit that is never near.

use std::sync::OnceLock;

use allotment::Tenant;

/// The deepest level there is.
pub const DEEPEST: usize = 4;

/// A tenant with a limit; root's child without a parent.
pub fn limited(name: &str, parent: Option<&Tenant>, max: usize) -> Tenant {
    let builder = Tenant::builder(name).max(max);
    let builder = match parent {
        Some(parent) => builder.parent(parent),
        None => builder,
    };
    builder.build().expect("a tenant")
}

fn levels() -> &'static [Tenant; DEEPEST] {
    static LEVELS: OnceLock<[Tenant; DEEPEST]> = OnceLock::new();
    LEVELS.get_or_init(|| {
        let customer = limited("customer", None, 8 << 30);
        let service = limited("service", Some(&customer), 4 << 30);
        let request = limited("request", Some(&service), 2 << 30);
        let step = limited("step", Some(&request), 1 << 30);
        [customer, service, request, step]
    })
}

/// The tenant that many levels below root.
///
/// # Panics
/// There is none so deep, or it is root.
pub fn at_depth(depth: usize) -> &'static Tenant {
    &levels()[depth - 1]
}

/// The most that [`requests`] gives.
pub const REQUESTS: usize = 256;

/// The first of many requests of one service, three levels deep.
pub fn requests(count: usize) -> Vec<&'static Tenant> {
    static POOL: OnceLock<Vec<Tenant>> = OnceLock::new();
    let request = |number| limited(&format!("request {number}"), Some(at_depth(2)), 1 << 30);
    let pool = POOL.get_or_init(|| (0..REQUESTS).map(request).collect());
    pool[..count].iter().collect()
}
