//! Four tenants, one real HTTP service, one process: and one of the tenants goes wild.
//!
//! The service keeps a search index for each tenant and bills all of its memory to that tenant.
//! Three neighbours post documents and ask questions; the fourth uploads without end. It runs
//! into its own limit and is answered with `507 Insufficient Storage`, while the neighbours lose
//! no request. At the end all data are dropped, and every byte must have come back.
//!
//! ```text
//! cargo run --release --example noisy_neighbour             # text of this repository
//! cargo run --release --example noisy_neighbour -- ~/notes  # text of another directory
//! ```
//!
//! In the order of the story: `corpus` (what is posted), `index` (what a tenant holds), `service`
//! (who pays for what), `clients` (the traffic, checked against `oracle`), `table` (what you see)
//! and `outcome` (what had to hold; anything that did not makes the exit status non-zero).

mod clients;
mod corpus;
mod index;
mod ledger;
mod oracle;
mod outcome;
mod parse;
mod service;
mod table;
mod wire;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use allotment::{Allotment, CreateError, Tenant};
use clap::Parser;
use tokio::time::{sleep, timeout, Instant};

use clients::{Neighbour, Traffic, Wild};
use corpus::Corpus;
use ledger::Ledger;
use outcome::Outcome;
use service::Service;
use table::Display;

#[global_allocator]
static ALLOCATOR: Allotment = Allotment::new();

const NEIGHBOURS: [&str; 3] = ["birch", "cedar", "maple"];
const WILD: &str = "wild";
const NEIGHBOUR_LIMIT: usize = 128 << 20;
const WILD_LIMIT: usize = 8 << 20;

#[derive(Parser)]
#[command(about = "A multi-tenant search service on allotment, with one tenant gone wild")]
struct Arguments {
    /// Directory whose text files are posted (default: this repository and its dependencies)
    directory: Option<PathBuf>,
    /// How long the traffic runs
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(outcome) => outcome.conclude(),
        Err(error) => {
            eprintln!("noisy_neighbour: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<Outcome, Box<dyn Error>> {
    let mut outcome = Outcome::default();
    outcome.check("allotment is the global allocator", Allotment::is_installed(), "");

    let corpus = match &arguments.directory {
        Some(directory) => Corpus::of_directory(directory)?,
        None => Corpus::of_this_repository()?,
    };
    println!("{corpus}");

    let service = Arc::new(Service::new(tenants()?));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let length = Duration::from_secs(arguments.seconds);
    runtime.block_on(drive(&service, &corpus, length, &mut outcome))?;
    // Joins the worker threads: from here on nothing else runs, and every figure is exact.
    drop(runtime);

    close(service, &mut outcome)?;
    Ok(outcome)
}

fn tenants() -> Result<Vec<Tenant>, CreateError> {
    let neighbours = NEIGHBOURS.iter().map(|name| (*name, NEIGHBOUR_LIMIT));
    neighbours.chain([(WILD, WILD_LIMIT)]).map(|(name, limit)| Tenant::builder(name).max(limit).build()).collect()
}

/// Runs service and clients for `length`, then checks what the clients saw.
async fn drive(
    service: &Arc<Service>,
    corpus: &Corpus,
    length: Duration,
    outcome: &mut Outcome,
) -> Result<(), Box<dyn Error>> {
    let server = service::start(Arc::clone(service)).await?;
    println!("serving on http://{}\n", server.address());
    clients::probe_bad_requests(server.address(), NEIGHBOURS[0], outcome).await?;

    let traffic = Arc::new(Traffic::new(server.address()));
    let mut ledgers = Vec::new();
    let mut ledger_of = |name| {
        let ledger = Arc::new(Ledger::default());
        ledgers.push((name, Arc::clone(&ledger)));
        ledger
    };
    let mut neighbours = Vec::new();
    for (number, name) in NEIGHBOURS.into_iter().enumerate() {
        let share = corpus.share(number, NEIGHBOURS.len());
        neighbours.push(Neighbour::new(name, share, Arc::clone(&traffic), ledger_of(name))?);
    }
    let wild = Wild::new(WILD, WILD_LIMIT, corpus.share(0, 1), traffic, ledger_of(WILD))?;

    let deadline = Instant::now() + length;
    let neighbours: Vec<_> = neighbours.into_iter().map(|neighbour| tokio::spawn(neighbour.run(deadline))).collect();
    let wild = tokio::spawn(wild.run(deadline));
    show(service, &ledgers, length, outcome).await;

    for neighbour in neighbours {
        neighbour.await?;
    }
    let recovery = wild.await?;
    outcome.check_neighbours(&ledgers[..NEIGHBOURS.len()]);
    outcome.check_wild(&ledgers[NEIGHBOURS.len()].1, service.tenant(WILD), recovery);

    timeout(Duration::from_secs(5), server.stop()).await??;
    Ok(())
}

/// Redraws the table until the traffic ends. Half-way, the accounts are audited under full load.
async fn show(service: &Service, ledgers: &[(&'static str, Arc<Ledger>)], length: Duration, outcome: &mut Outcome) {
    let start = Instant::now();
    let mut display = Display::new(length);
    let mut audited = false;
    while start.elapsed() < length {
        sleep(display.interval().min(length.saturating_sub(start.elapsed()))).await;
        display.refresh(start.elapsed(), &table::rows(service, ledgers));
        if !audited && start.elapsed() >= length / 2 {
            audited = true;
            outcome.check_verify("verify() holds under load");
        }
    }
    display.finish(&table::rows(service, ledgers));
}

/// Drops every tenant's data, then every tenant, and checks that nothing is left of them.
fn close(service: Arc<Service>, outcome: &mut Outcome) -> Result<(), Box<dyn Error>> {
    outcome.check_verify("verify() holds with the data in place");
    let service = Arc::into_inner(service).ok_or("the service is still in use after its end")?;
    for (tenant, index) in service.into_parts() {
        let held = tenant.settle();
        let counted: usize = tenant.size_classes().iter().map(|class| class.bytes).sum();
        outcome.check(
            &format!("{}: usage equals the recount of its objects", tenant.name()),
            held == counted,
            format!("settle() = {held}, recount = {counted}"),
        );
        drop(index);
        let left = tenant.settle();
        outcome.check(
            &format!("{}: nothing is left after its data", tenant.name()),
            left == 0,
            format!("settle() = {left}"),
        );
        if left != 0 {
            outcome.note(format!("left over: {:?}", tenant.size_classes()));
        }
    }
    let living = allotment::tenants();
    outcome.check("only root is left", living == [Tenant::root()], format!("{} tenant(s)", living.len()));
    outcome.check_verify("verify() holds at the end");
    Ok(())
}
