//! The errors: a tenant could not be created; a limit was met.

use core::fmt;

use super::builder::MAX_NAME;

/// Why a tenant could not be created.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CreateError {
    /// The name is empty.
    EmptyName,
    /// The name is longer than `max` bytes.
    NameTooLong {
        /// Its length in bytes.
        len: usize,
        /// The longest allowed.
        max: usize,
    },
    /// `high` lies above `max`, where it would never be reached.
    HighAboveMax {
        /// The soft limit asked for, in bytes.
        high: usize,
        /// The limit asked for, in bytes.
        max: usize,
    },
    /// The parent is nested as deeply as tenants may be.
    TooDeep {
        /// The greatest depth below root.
        max: usize,
    },
    /// 65,535 tenants exist, or are retired and still own objects.
    OutOfIds,
    /// No memory for the tenant's record.
    OutOfMemory,
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CreateError::EmptyName => f.write_str("a tenant's name must not be empty"),
            CreateError::NameTooLong { len, max } => {
                write!(f, "a tenant's name has {len} bytes, more than the {max} allowed")
            }
            CreateError::HighAboveMax { high, max } => {
                write!(f, "high ({high} bytes) is above max ({max} bytes)")
            }
            CreateError::TooDeep { max } => write!(f, "tenants nest at most {max} deep"),
            CreateError::OutOfIds => f.write_str("65,535 tenants exist or still own objects"),
            CreateError::OutOfMemory => f.write_str("no memory for a tenant's record"),
        }
    }
}

impl std::error::Error for CreateError {}

const _: () = assert!(MAX_NAME < usize::MAX);

/// A tenant is stopped, or a charge was refused: whose limit was met, and what it looked like.
///
/// The tenant that is stopped is the one that asked, also when the limit met is an ancestor's: resume that one, unless
/// [`by_request`](MemoryExceeded::by_request) says that `tenant` itself was stopped.
///
/// The figures are those of the moment the error was made, not of the moment the limit was met.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryExceeded {
    /// The tenant or ancestor whose limit was met, or that was stopped by [`stop`](crate::Tenant::stop).
    pub tenant: String,
    /// The tenant that asked for memory, or in whose scope the checkpoint was.
    pub asked: String,
    /// Usage of `tenant` in bytes, descendants included.
    pub usage: usize,
    /// `max` of `tenant` in bytes; `None`: no limit was met, [`stop`](crate::Tenant::stop) was called, or the limit has
    /// been removed since.
    pub limit: Option<usize>,
    /// Whether [`stop`](crate::Tenant::stop) was called, and no limit met.
    pub by_request: bool,
    /// The largest living children of `tenant` and their usage in bytes, largest first, at most five.
    pub children: Vec<(String, usize)>,
}

impl fmt::Display for MemoryExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory of tenant {:?} exceeded: {} bytes in use", self.tenant, self.usage)?;
        match self.limit {
            Some(limit) => write!(f, ", limit {limit}")?,
            None if self.by_request => f.write_str(", stopped by request")?,
            None => f.write_str(", over a limit that has been removed since")?,
        }
        if self.asked != self.tenant {
            write!(f, ", asked for by {:?}", self.asked)?;
        }
        for (index, (name, usage)) in self.children.iter().enumerate() {
            write!(f, "{}{name:?} {usage}", if index == 0 { "; largest children: " } else { ", " })?;
        }
        Ok(())
    }
}

impl std::error::Error for MemoryExceeded {}
