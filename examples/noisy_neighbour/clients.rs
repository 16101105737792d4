//! The traffic: real HTTP clients, several connections for each tenant.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde::Serialize;
use tokio::time::{sleep, Instant};

use crate::ledger::Ledger;
use crate::oracle::Oracle;
use crate::outcome::Outcome;
use crate::wire::{Answer, Cleared, Document, Filed, OutOfMemory, Question, Rejected, Stage, Upload, TENANT_HEADER};

const TIMEOUT: Duration = Duration::from_secs(5);
const HITS_WANTED: usize = 10;
const NEIGHBOUR_BATCH: usize = 4;
const WILD_BATCH: usize = 16;
/// The wild tenant asks a question after so many uploads.
const WILD_UPLOADS_PER_QUESTION: usize = 8;
/// The least that a parsed document takes beside its title and text: three strings.
const DOCUMENT_OVERHEAD: usize = 3 * size_of::<String>();
/// Even a wild client cannot do without a short pause after a refusal.
const WILD_PAUSE: Duration = Duration::from_millis(1);

/// What all clients have in common.
pub struct Traffic {
    base: String,
    wild_stopped: AtomicBool,
}

impl Traffic {
    pub fn new(address: SocketAddr) -> Traffic {
        Traffic { base: format!("http://{address}"), wild_stopped: AtomicBool::new(false) }
    }

    fn wild_is_stopped(&self) -> bool {
        // relaxed: a later moment than the true one only makes the proof stricter
        self.wild_stopped.load(Ordering::Relaxed)
    }
}

/// Sends requests for one tenant and keeps its ledger.
struct Client {
    tenant: &'static str,
    http: reqwest::Client,
    traffic: Arc<Traffic>,
    ledger: Arc<Ledger>,
}

enum Reply<T> {
    Ok(T),
    OutOfMemory(OutOfMemory),
    /// Already in the ledger.
    Failed,
}

impl Client {
    fn new(tenant: &'static str, traffic: Arc<Traffic>, ledger: Arc<Ledger>) -> reqwest::Result<Client> {
        Ok(Client { tenant, http: http()?, traffic, ledger })
    }

    async fn upload(&self, documents: Vec<Document>) -> Reply<Filed> {
        let upload = Upload { documents };
        self.send(Method::POST, "/documents", Some(&upload)).await
    }

    async fn search(&self, words: Vec<String>) -> Reply<Answer> {
        let limit = HITS_WANTED;
        let question = Question { words, limit };
        self.send(Method::POST, "/search", Some(&question)).await
    }

    async fn clear(&self) -> Reply<Cleared> {
        self.send(Method::DELETE, "/documents", None::<&()>).await
    }

    async fn send<T: DeserializeOwned>(&self, method: Method, path: &str, body: Option<&impl Serialize>) -> Reply<T> {
        let wild_was_stopped = self.traffic.wild_is_stopped();
        let start = Instant::now();
        let reply = self.exchange(method, path, body).await;
        self.ledger.took(start.elapsed());
        match &reply {
            Ok(Reply::Ok(_)) => {
                self.ledger.ok.add();
                if wild_was_stopped {
                    self.ledger.ok_while_wild_stopped.add();
                }
            }
            Ok(Reply::OutOfMemory(body)) => match body.stage {
                Stage::Refused => self.ledger.refused.add(),
                Stage::Stopped => self.ledger.stopped.add(),
            },
            Ok(Reply::Failed) => {}
            Err(error) => self.ledger.fail(format!("{path}: {error}")),
        }
        reply.unwrap_or(Reply::Failed)
    }

    async fn exchange<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<Reply<T>, Box<dyn Error + Send + Sync>> {
        let url = format!("{}{path}", self.traffic.base);
        let mut request = self.http.request(method, url).header(TENANT_HEADER, self.tenant);
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await?;
        let status = response.status();
        let body = response.bytes().await?;
        if status.is_success() {
            Ok(Reply::Ok(serde_json::from_slice(&body)?))
        } else if status == StatusCode::INSUFFICIENT_STORAGE {
            Ok(Reply::OutOfMemory(serde_json::from_slice(&body)?))
        } else {
            Err(format!("{status}: {}", String::from_utf8_lossy(&body)).into())
        }
    }
}

/// Without the environment's proxy: this traffic never leaves the machine.
fn http() -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build()
}

/// A tenant that behaves. Whatever is not answered, and answered rightly, is a failure.
pub struct Neighbour {
    client: Client,
    documents: Arc<[Document]>,
    oracle: Oracle,
}

impl Neighbour {
    pub fn new(
        tenant: &'static str,
        documents: Arc<[Document]>,
        traffic: Arc<Traffic>,
        ledger: Arc<Ledger>,
    ) -> reqwest::Result<Neighbour> {
        let oracle = Oracle::new(&documents);
        Ok(Neighbour { client: Client::new(tenant, traffic, ledger)?, documents, oracle })
    }

    /// Posts its documents over two connections, batch by batch and then from the start again,
    /// and asks questions about all it has posted so far.
    pub async fn run(mut self, deadline: Instant) {
        let documents = Arc::clone(&self.documents);
        let rounds = documents.chunks(2 * NEIGHBOUR_BATCH).cycle();
        let mut question = 0;
        for batch in rounds.take_while(|_| Instant::now() < deadline) {
            let (left, right) = batch.split_at(batch.len().min(NEIGHBOUR_BATCH));
            tokio::join!(self.post(left), self.post(right));
            batch.iter().for_each(|document| self.oracle.learn(document));
            for _ in 0..2 {
                tokio::join!(self.ask(question), self.ask(question + 1));
                question += 2;
            }
        }
    }

    async fn post(&self, batch: &[Document]) {
        if batch.is_empty() {
            return;
        }
        match self.client.upload(batch.to_vec()).await {
            Reply::Ok(Filed { filed }) if filed == batch.len() => {}
            Reply::Ok(Filed { filed }) => self.complain(format!("only {filed} documents filed")),
            Reply::OutOfMemory(body) => self.complain(body.error),
            Reply::Failed => {}
        }
    }

    async fn ask(&self, number: usize) {
        let question = self.oracle.question(number);
        match self.client.search(self.oracle.spell(&question)).await {
            Reply::Ok(answer) => match self.oracle.judge(&question, HITS_WANTED, &answer) {
                Ok(()) => self.client.ledger.validated.add(),
                Err(complaint) => self.complain(complaint),
            },
            Reply::OutOfMemory(body) => self.complain(body.error),
            Reply::Failed => {}
        }
    }

    fn complain(&self, complaint: String) {
        self.client.ledger.fail(complaint);
    }
}

/// A tenant that uploads for ever, and does not mind what it is told.
pub struct Wild {
    client: Client,
    limit: usize,
    documents: Arc<[Document]>,
    uploads: AtomicUsize,
    first_507: OnceLock<String>,
}

/// What the wild tenant was told, and what came of it after its data had been deleted.
#[derive(Debug)]
pub struct Recovery {
    pub first_507: Option<String>,
    pub cleared: Option<Cleared>,
    pub accepted_again: bool,
    /// How an upload ended that alone is larger than the limit.
    pub oversized: Option<Stage>,
}

impl Wild {
    pub fn new(
        tenant: &'static str,
        limit: usize,
        documents: Arc<[Document]>,
        traffic: Arc<Traffic>,
        ledger: Arc<Ledger>,
    ) -> reqwest::Result<Wild> {
        Ok(Wild {
            client: Client::new(tenant, traffic, ledger)?,
            limit,
            documents,
            uploads: AtomicUsize::new(0),
            first_507: OnceLock::new(),
        })
    }

    /// Three connections until the deadline; then its owner clears up.
    pub async fn run(self, deadline: Instant) -> Recovery {
        tokio::join!(self.flood(deadline), self.flood(deadline), self.flood(deadline));
        let cleared = match self.client.clear().await {
            Reply::Ok(cleared) => Some(cleared),
            Reply::OutOfMemory(_) | Reply::Failed => None,
        };
        let accepted_again =
            matches!(self.client.upload(vec![self.documents[0].clone()]).await, Reply::Ok(Filed { filed: 1 }));
        let oversized = match self.client.upload(self.oversized()).await {
            Reply::OutOfMemory(body) => Some(body.stage),
            Reply::Ok(_) | Reply::Failed => None,
        };
        Recovery { first_507: self.first_507.into_inner(), cleared, accepted_again, oversized }
    }

    /// Documents that are larger than the limit, even before they are indexed.
    fn oversized(&self) -> Vec<Document> {
        let mut bytes = 0;
        let documents = self.documents.iter().cycle().take_while(|document| {
            bytes += document.text.len() + document.title.len() + DOCUMENT_OVERHEAD;
            bytes < self.limit + self.limit / 2
        });
        documents.cloned().collect()
    }

    async fn flood(&self, deadline: Instant) {
        while Instant::now() < deadline {
            // relaxed: only a number that no other upload has
            let number = self.uploads.fetch_add(1, Ordering::Relaxed);
            self.heed(self.client.upload(self.batch(number)).await).await;
            if number.is_multiple_of(WILD_UPLOADS_PER_QUESTION) {
                let words = vec!["the".to_string()];
                self.heed(self.client.search(words).await).await;
            }
        }
    }

    /// Copies of its documents under ids that were never used before.
    fn batch(&self, number: usize) -> Vec<Document> {
        let documents = self.documents.iter().cycle();
        let start = number * WILD_BATCH % self.documents.len();
        let copies = documents.skip(start).take(WILD_BATCH).enumerate();
        let renamed = copies.map(|(place, document)| Document { id: format!("{number}.{place}"), ..document.clone() });
        renamed.collect()
    }

    async fn heed<T>(&self, reply: Reply<T>) {
        let Reply::OutOfMemory(body) = reply else {
            return;
        };
        let names_us = body.tenant == self.client.tenant;
        if !names_us || body.limit != Some(self.limit) || body.usage == 0 {
            self.client.ledger.fail(format!("a 507 that says {body:?}"));
        }
        self.first_507.get_or_init(|| format!("{body:?}"));
        // relaxed: see Traffic::wild_is_stopped
        self.client.traffic.wild_stopped.store(true, Ordering::Relaxed);
        sleep(WILD_PAUSE).await;
    }
}

/// What the service makes of requests that are wrong.
pub async fn probe_bad_requests(
    address: SocketAddr,
    tenant: &str,
    outcome: &mut Outcome,
) -> Result<(), Box<dyn Error>> {
    let http = http()?;
    let cases = [
        ("no tenant in the header", None, "{}", StatusCode::BAD_REQUEST),
        ("an unknown tenant", Some("nobody"), "{}", StatusCode::NOT_FOUND),
        ("broken JSON", Some(tenant), "{\"documents\": [{", StatusCode::BAD_REQUEST),
    ];
    for (what, tenant, body, expected) in cases {
        let mut request = http.post(format!("http://{address}/documents")).body(body);
        if let Some(tenant) = tenant {
            request = request.header(TENANT_HEADER, tenant);
        }
        let response = request.send().await?;
        let status = response.status();
        let Rejected { error } = response.json().await?;
        outcome.check(&format!("{what} is answered with {}", expected.as_u16()), status == expected, error);
    }
    Ok(())
}
