//! One tenant, one limit, and what happens to work that goes past it.

use allotment::{checkpoint_or_unwind, Allotment, Tenant};

#[global_allocator]
static ALLOCATOR: Allotment = Allotment::new();

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tenant = Tenant::builder("acme").max(1 << 20).build()?;

    // Whatever is allocated in the tenant's scope is the tenant's, wherever it is freed.
    let orders = tenant.in_scope(|| vec![7u64; 10_000]);
    println!("{} holds {} bytes", tenant.name(), tenant.settle());

    // Past the limit, work ends at its next checkpoint, and what it had built is dropped.
    let outcome = tenant.try_in_scope(|| {
        let mut hoard = Vec::new();
        while hoard.len() < 1_000_000 {
            hoard.push([0u8; 1000]);
            checkpoint_or_unwind();
        }
    });
    if let Err(exceeded) = outcome {
        println!("{exceeded}");
    }

    // A tenant stays stopped until somebody says that it may go on.
    assert!(tenant.is_stopped());
    println!("within its limit again: {}", tenant.resume());

    drop(orders);
    println!("{} holds {} bytes", tenant.name(), tenant.settle());
    println!("{}", allotment::verify()?);
    Ok(())
}
