//! Parsing that a stopped tenant does not finish.
//!
//! A request may be larger than all that its tenant has left. If the whole body were parsed before
//! the first checkpoint, the tenant would go past its limit by the size of the body; with a
//! checkpoint after each document it is by the size of a document.

use std::fmt;

use serde::de::{Deserializer, SeqAccess, Visitor};

use crate::wire::Document;

/// For `#[serde(deserialize_with)]`: a sequence of documents, with a checkpoint after each.
///
/// Where the tenant is stopped this unwinds to `Tenant::try_in_scope`. Parsers take no locks, so
/// all there is to clean up is the documents read so far.
pub fn with_checkpoints<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Document>, D::Error> {
    from.deserialize_seq(Documents)
}

struct Documents;

impl<'de> Visitor<'de> for Documents {
    type Value = Vec<Document>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a list of documents")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<Document>, A::Error> {
        let mut documents = Vec::new();
        while let Some(document) = list.next_element()? {
            documents.push(document);
            allotment::checkpoint_or_unwind();
        }
        Ok(documents)
    }
}
