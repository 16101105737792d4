//! The HTTP service, and where it enters a tenant's scope.
//!
//! Only this program's own synchronous code runs inside a tenant's scope: parsing, reading,
//! filing, searching. hyper and tokio stay outside and are billed to root, on purpose. They keep
//! connection buffers across requests, and some of what they keep is for ever: tokio's locks, for
//! instance, park threads in a process-wide table that grows with the number of threads and is
//! never freed. Whoever made it grow would have paid for it until the end of the process.
//!
//! What does run inside leaves nothing behind: serde_json has no caches, `HashMap`'s random keys
//! are plain words in a thread-local, and an uncontended or contended `RwLock` owns no heap. A
//! library that fills a cache on first use (regex, tracing) would have to be used once in root.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, RwLock};

use allotment::{InTenant, MemoryExceeded, Tenant};
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequestParts};
use axum::http::request::Parts;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::index::{Entry, Index};
use crate::wire::{Answer, Cleared, Filed, OutOfMemory, Question, Rejected, Stage, Upload, TENANT_HEADER};

/// What the process holds for each of its customers.
pub struct Service {
    customers: HashMap<String, Arc<Customer>>,
}

struct Customer {
    tenant: Tenant,
    index: RwLock<Index>,
}

/// More than some tenants' limit: bodies are read in root, and what they turn into is limited.
pub const LARGEST_BODY: usize = 64 << 20;

const FILING_DOES_NOT_PANIC: &str = "no code that holds the index panics";

impl Service {
    pub fn new(tenants: Vec<Tenant>) -> Service {
        let customers = tenants.into_iter().map(|tenant| {
            let index = RwLock::default();
            (tenant.name().to_owned(), Arc::new(Customer { tenant, index }))
        });
        Service { customers: customers.collect() }
    }

    /// The tenant with that name; root, which every process has, if there is none.
    pub fn tenant(&self, name: &str) -> Tenant {
        let customer = self.customers.get(name);
        customer.map_or_else(Tenant::root, |customer| customer.tenant.clone())
    }

    /// Ends the service: its tenants and their data, by name.
    pub fn into_parts(self) -> Vec<(Tenant, Index)> {
        let mut parts: Vec<(Tenant, Index)> = self
            .customers
            .into_values()
            .filter_map(Arc::into_inner)
            .map(|customer| {
                let index = customer.index.into_inner().expect(FILING_DOES_NOT_PANIC);
                (customer.tenant, index)
            })
            .collect();
        parts.sort_by(|a, b| a.0.name().cmp(b.0.name()));
        parts
    }
}

impl Customer {
    /// Reads all documents of the upload first, then files them. A stopped tenant's work ends in
    /// the first part: no lock is held there, so the unwind poisons none, and the index has seen
    /// nothing of the upload.
    fn accept(&self, body: &[u8]) -> serde_json::Result<Filed> {
        let upload: Upload = serde_json::from_slice(body)?;
        let entries: Vec<Entry> = upload.documents.into_iter().map(Entry::read).collect();
        let filed = entries.len();
        let mut index = self.index.write().expect(FILING_DOES_NOT_PANIC);
        for entry in entries {
            index.file(entry);
        }
        Ok(Filed { filed })
    }

    fn answer(&self, body: &[u8]) -> serde_json::Result<Answer> {
        let question: Question = serde_json::from_slice(body)?;
        let index = self.index.read().expect(FILING_DOES_NOT_PANIC);
        Ok(index.search(&question.words, question.limit))
    }
}

/// The synchronous way: the scope around a closure. `try_in_scope` ends where
/// `checkpoint_or_unwind` finds the tenant stopped; whatever the closure had built is then gone.
async fn upload(Payer(customer): Payer, body: Bytes) -> Result<Response, Refusal> {
    let tenant = &customer.tenant;
    tenant.in_scope(allotment::checkpoint).map_err(|exceeded| Refusal::OutOfMemory(Stage::Refused, exceeded))?;
    let filed = tenant
        .try_in_scope(|| customer.accept(&body))
        .map_err(|exceeded| Refusal::OutOfMemory(Stage::Stopped, exceeded))??;
    Ok((StatusCode::CREATED, Json(filed)).into_response())
}

/// The asynchronous way: the scope around a future, which a stopped tenant's is not polled again.
/// The answer is the tenant's memory, although hyper's task sends and frees it in root.
async fn search(Payer(customer): Payer, body: Bytes) -> Result<Json<Answer>, Refusal> {
    let answer = async { customer.answer(&body) }
        .try_in_tenant(&customer.tenant)
        .await
        .map_err(|exceeded| Refusal::OutOfMemory(Stage::Refused, exceeded))??;
    Ok(Json(answer))
}

/// The way out for a stopped tenant: its data go, and it is resumed.
async fn clear(Payer(customer): Payer) -> Json<Cleared> {
    let mut index = customer.index.write().expect(FILING_DOES_NOT_PANIC);
    *index = Index::default();
    Json(Cleared { usage: customer.tenant.settle(), resumed: customer.tenant.resume() })
}

/// Who pays for a request, by its header.
struct Payer(Arc<Customer>);

impl FromRequestParts<Arc<Service>> for Payer {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, service: &Arc<Service>) -> Result<Self, Refusal> {
        let header = parts.headers.get(TENANT_HEADER).ok_or(Refusal::NoTenantNamed)?;
        let name = header.to_str().map_err(|_| Refusal::UnknownTenant)?;
        let customer = service.customers.get(name).ok_or(Refusal::UnknownTenant)?;
        Ok(Payer(Arc::clone(customer)))
    }
}

enum Refusal {
    NoTenantNamed,
    UnknownTenant,
    BadJson(serde_json::Error),
    OutOfMemory(Stage, MemoryExceeded),
}

impl From<serde_json::Error> for Refusal {
    fn from(error: serde_json::Error) -> Self {
        Refusal::BadJson(error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let rejected = |status, error| (status, Json(Rejected { error })).into_response();
        match self {
            Refusal::NoTenantNamed => rejected(StatusCode::BAD_REQUEST, format!("no {TENANT_HEADER} header")),
            Refusal::UnknownTenant => rejected(StatusCode::NOT_FOUND, "no such tenant".to_string()),
            Refusal::BadJson(error) => rejected(StatusCode::BAD_REQUEST, error.to_string()),
            Refusal::OutOfMemory(stage, exceeded) => {
                let body = OutOfMemory {
                    error: exceeded.to_string(),
                    tenant: exceeded.tenant,
                    usage: exceeded.usage,
                    limit: exceeded.limit,
                    stage,
                };
                (StatusCode::INSUFFICIENT_STORAGE, Json(body)).into_response()
            }
        }
    }
}

/// A service that listens until it is told to stop.
pub struct Server {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<io::Result<()>>,
}

/// Serves on the loopback, on a port that the system chooses.
pub async fn start(service: Arc<Service>) -> io::Result<Server> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let app = Router::new()
        .route("/documents", post(upload).delete(clear))
        .route("/search", post(search))
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .with_state(service);
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(async move {
        axum::serve(listener, app)
            .with_graceful_shutdown(async move {
                // An error means that the `Server` was dropped, which is a stop as well.
                let _ = stopped.await;
            })
            .await
    });
    Ok(Server { address, stop, task })
}

impl Server {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns when the last connection is closed.
    pub async fn stop(self) -> io::Result<()> {
        // An error means that the service has ended by itself; its result says why.
        let _ = self.stop.send(());
        self.task.await?
    }
}
