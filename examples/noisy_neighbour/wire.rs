//! The JSON that service and clients exchange.

use serde::{Deserialize, Serialize};

/// The header that says who pays.
pub const TENANT_HEADER: &str = "x-tenant";

/// `POST /documents`
#[derive(Serialize, Deserialize)]
pub struct Upload {
    #[serde(deserialize_with = "crate::parse::with_checkpoints")]
    pub documents: Vec<Document>,
}

/// A document with an id that is already known replaces the older one.
#[derive(Clone, Serialize, Deserialize)]
pub struct Document {
    pub id: String,
    pub title: String,
    pub text: String,
}

/// Answer to an upload: how many documents this request filed.
#[derive(Serialize, Deserialize)]
pub struct Filed {
    pub filed: usize,
}

/// `POST /search`: documents that hold at least one of the words.
#[derive(Serialize, Deserialize)]
pub struct Question {
    pub words: Vec<String>,
    pub limit: usize,
}

/// Answer to a question: the best `limit` documents of all `total` that match, best first.
#[derive(Serialize, Deserialize)]
pub struct Answer {
    pub total: usize,
    pub hits: Vec<Hit>,
}

#[derive(Serialize, Deserialize)]
pub struct Hit {
    pub id: String,
    pub title: String,
    pub score: f64,
    /// How often the words of the question occur in the document.
    pub occurrences: u32,
    pub excerpt: String,
}

/// Answer to `DELETE /documents`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cleared {
    /// What the tenant still holds, exactly.
    pub usage: usize,
    /// Whether the tenant is within its limits again and may go on.
    pub resumed: bool,
}

/// Body of a `507 Insufficient Storage`.
#[derive(Debug, Serialize, Deserialize)]
pub struct OutOfMemory {
    pub error: String,
    /// The tenant whose limit was met.
    pub tenant: String,
    pub usage: usize,
    pub limit: Option<usize>,
    pub stage: Stage,
}

/// How far a request came before its tenant was found to be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Turned away before any work.
    Refused,
    /// Ended at a checkpoint in the middle of its work, which was dropped.
    Stopped,
}

/// Body of any other refusal.
#[derive(Serialize, Deserialize)]
pub struct Rejected {
    pub error: String,
}
