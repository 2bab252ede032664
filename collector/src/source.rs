//! Source of the driver's events: the seam between what the driver does and what is made of it.
//!
//! A source counts for one loading of the driver. Counts of a VA space are absolute, under keys
//! of [`abi`], and the ledger does not know where they come from.
//!
//! ```text
//!   probes ─┐  lifecycles: VA spaces created, found, destroyed     ┌─ ledger
//!   tools  ─┴─ reading: counts, evictions, sites, losses ──────────┴─ history, verdicts, web
//! ```

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    pin::Pin,
    time::Duration,
};

use abi::{
    BlockRecord, CountKey, Lifecycle, Probe, Tally, Tenant,
    count::{EvictionKey, SiteKey},
};
use aya::maps::MapError;
use model::{Degradation, DriverInfo, Quantity};
use thiserror::Error;

use crate::{
    figures::Figures,
    ledger::{Generation, Losses},
    refusal::Refusal,
    tenants::Tenants,
};

/// Failure of a reading, which the next one may not have.
#[derive(Debug, Error)]
pub(crate) enum ReadError {
    #[error("the probes' maps cannot be read: {0}")]
    Maps(#[from] MapError),
}

/// Everything that a source has counted, at one moment.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// Counts and buckets of distributions.
    pub(crate) counts: Vec<(CountKey, Tally)>,
    pub(crate) evictions: Vec<(EvictionKey, Tally)>,
    pub(crate) sites: Vec<(SiteKey, Tally)>,
    /// Uncounted events and unwritten records of each VA space.
    pub(crate) losses: HashMap<Generation, Losses>,
}

/// What a source missed.
#[derive(Debug, Default)]
pub(crate) struct Missed {
    /// Whether memory may have changed without a record, of an unknown process.
    pub(crate) some_records: bool,
    /// VA spaces that ended without a record.
    pub(crate) ends: Vec<Generation>,
}

/// Source of events on one loading of the driver. It blocks, and ends when it is dropped.
pub(crate) trait Source: Send + Sync {
    /// Name in the API.
    fn backend(&self) -> &'static str;

    /// Quantities that it does not count on any driver.
    fn not_counted(&self) -> Vec<Quantity> {
        Vec::new()
    }

    /// The driver.
    fn driver(&self) -> &DriverInfo;

    /// Whether the ids of GPUs in the driver's procfs are eight times those of the counts.
    fn procfs_ids_are_eightfold(&self) -> bool;

    /// Looks for VA spaces, where no event announces them. Called every 100 ms.
    fn look(&mut self, _now: Duration) {}

    /// Completes when [`Self::lifecycles`] is to be called: it may have records, or read what would be
    /// dropped later.
    fn ready(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// VA spaces created, found and destroyed since the last call.
    fn lifecycles(&mut self) -> Vec<Lifecycle>;

    /// Whether changes of residency are missed all the time.
    fn misses_moves(&self) -> bool {
        false
    }

    /// All counts at this time since boot. They are kept until [`Self::forget`].
    ///
    /// # Errors
    /// If the source cannot be read now.
    fn read(&mut self, tenants: &mut Tenants, now: Duration) -> Result<Reading, ReadError>;

    /// Forgets the counts of destroyed VA spaces, which the last reading had, and releases what
    /// they were charged. `shares_until_ns`: time until which processes of a user share a
    /// generation.
    ///
    /// # Errors
    /// If they are still there: the VA spaces must not be closed.
    fn forget(
        &mut self,
        gone: &HashSet<Generation>,
        tenants: &mut Tenants,
        shares_until_ns: &dyn Fn(Tenant) -> u64,
    ) -> Result<(), ReadError>;

    /// Forgets tenants that hold nothing, at this time since boot.
    ///
    /// # Errors
    /// If the source cannot be changed now.
    fn forget_tenants(&mut self, _tenants: &mut Tenants, _now_ns: u64) -> Result<(), ReadError> {
        Ok(())
    }

    /// Block records since the last call.
    fn blocks(&mut self, _take: &mut dyn FnMut(BlockRecord)) {}

    /// What was missed since the last call, given the VA spaces that are open by the records.
    fn missed(&mut self, _open: Vec<Generation>, _tenants: &Tenants) -> Missed {
        Missed::default()
    }

    /// Last readable statistics.
    fn figures(&self) -> &Figures;

    /// Probes that could not be attached, and the reasons; `None` for a source without probes.
    fn probes(&self) -> Option<&BTreeMap<Probe, String>>;

    /// Reason to stop counting: an event contradicts the driver's layout.
    fn contradiction(&self) -> Option<Refusal> {
        None
    }

    /// Reasons why it counts less than it should, beyond the limits of tenants. `user`: name of a
    /// user.
    fn degradations(&self, _user: &dyn Fn(u32) -> Option<String>) -> Vec<Degradation> {
        Vec::new()
    }

    /// Reason why some processes are not counted, as one sentence.
    fn warning(&self) -> Option<String> {
        None
    }
}
