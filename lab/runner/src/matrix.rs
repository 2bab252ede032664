//! Evictions by victim and evictor: by the ledger of frames, and by uvmd (docs/truth.md, "Frame
//! ledger").

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::sys::ledger::{Ledger, Taken, Taker};

/// Pair of victim and evictor, from `/api/v1/evictions`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Pair {
    gpu_uuid: Option<String>,
    victim: Party,
    evictor: Party,
    cause: String,
    evictions: u64,
    bytes: u64,
}

/// Victim or evictor of a pair.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(crate) struct Party {
    pub(crate) kind: String,
    pub(crate) pid: Option<u32>,
    pub(crate) start_ticks: Option<u64>,
}

/// Comparison of a pair of victim and evictor at a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Compared {
    /// Number of the GPU, from 0.
    pub(crate) gpu: usize,
    /// Name of a process, or uvmd's kind of a party that is no known process.
    pub(crate) victim: String,
    /// Likewise; `anybody` for the sum of all evictors.
    pub(crate) evictor: String,
    /// `fault` or `device_allocation`, which the ledger distinguishes; a cause that only uvmd
    /// reports; or `any`.
    pub(crate) cause: String,
    pub(crate) truth: Figures,
    pub(crate) uvmd: Figures,
    /// Bytes of the victim in frames that the driver reused for page tables. The ledger does not
    /// name the process of these tables, so uvmd's figure may be larger by up to this amount.
    pub(crate) page_table_bytes: u64,
    pub(crate) holds: bool,
}

/// Figures of a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Figures {
    pub(crate) bytes: u64,
    pub(crate) evictions: u64,
}

/// Victim, evictor, cause.
type Key = (String, String, String);
type Rows = BTreeMap<Key, Figures>;

/// Evictions at a GPU that uvmd reports since an earlier response, with names. Victims of other
/// runs are omitted.
pub(crate) fn told(now: &[Pair], before: &[Pair], uuid: &str, name: impl Fn(&Party) -> Option<String>) -> Rows {
    let at_gpu = |pair: &&Pair| pair.gpu_uuid.as_ref().is_some_and(|known| known.ends_with(uuid));
    let named = |party: &Party| name(party).unwrap_or_else(|| party.kind.clone());
    let mut rows = Rows::new();
    for pair in now.iter().filter(at_gpu) {
        let is_in_run = pair.victim.kind == "unknown" || name(&pair.victim).is_some();
        let is_same = |other: &&Pair| {
            (&other.gpu_uuid, &other.victim, &other.evictor, &other.cause)
                == (&pair.gpu_uuid, &pair.victim, &pair.evictor, &pair.cause)
        };
        let earlier = before.iter().find(is_same).map_or((0, 0), |pair| (pair.bytes, pair.evictions));
        let (bytes, evictions) = (pair.bytes.saturating_sub(earlier.0), pair.evictions.saturating_sub(earlier.1));
        if is_in_run && evictions > 0 {
            rows.entry((named(&pair.victim), named(&pair.evictor), pair.cause.clone()))
                .or_default()
                .add(Figures { bytes, evictions });
        }
    }
    rows
}

/// Compare all pairs of a GPU, and the sum of each victim with frames that became page tables.
pub(crate) fn compare(gpu: usize, ledger: &Ledger, uvmd: &Rows, name: impl Fn(u32) -> String) -> Vec<Compared> {
    let (mut truth, mut page_tables) = (Rows::new(), BTreeMap::<String, Figures>::new());
    for ((victim, taker), taken) in ledger {
        let (evictor, cause) = match taker {
            Taker::Managed { pid } => (name(*pid), "fault"),
            Taker::Unmanaged { pid } => (name(*pid), "device_allocation"),
            Taker::Driver => {
                page_tables.entry(name(*victim)).or_default().add(Figures::from(taken));
                continue;
            }
        };
        truth.entry((name(*victim), evictor, cause.to_owned())).or_default().add(Figures::from(taken));
    }
    let compare = |(victim, evictor, cause): &Key| {
        let of = |rows: &Rows| rows.get(&(victim.clone(), evictor.clone(), cause.clone())).copied().unwrap_or_default();
        let page_table_bytes = page_tables.get(victim).map_or(0, |evicted| evicted.bytes);
        Compared::new(gpu, [victim, evictor, cause], of(&truth), of(uvmd), page_table_bytes)
    };
    let keys: BTreeSet<&Key> = truth.keys().chain(uvmd.keys()).collect();
    let mut all: Vec<Compared> = keys.into_iter().map(compare).collect();
    for (victim, evicted) in page_tables {
        let sum = |rows: &Rows| {
            let mut sum = Figures::default();
            rows.iter().filter(|((name, ..), _)| *name == victim).for_each(|(_, row)| sum.add(*row));
            sum
        };
        let mut truth = sum(&truth);
        truth.add(evicted);
        all.push(Compared::new(gpu, [&victim, "anybody", "any"], truth, sum(uvmd), 0));
    }
    all
}

impl Compared {
    /// Compare a pair. Bytes must be equal; uvmd may report more evictions, as the ledger has none
    /// without a copy.
    fn new(
        gpu: usize,
        [victim, evictor, cause]: [&str; 3],
        truth: Figures,
        uvmd: Figures,
        page_table_bytes: u64,
    ) -> Self {
        let holds =
            (truth.bytes..=truth.bytes + page_table_bytes).contains(&uvmd.bytes) && uvmd.evictions >= truth.evictions;
        let [victim, evictor, cause] = [victim, evictor, cause].map(str::to_owned);
        Self { gpu, victim, evictor, cause, truth, uvmd, page_table_bytes, holds }
    }
}

impl Figures {
    fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.evictions += other.evictions;
    }
}

impl From<&Taken> for Figures {
    fn from(taken: &Taken) -> Self {
        Self { bytes: taken.copied_out_bytes, evictions: taken.frames }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const MANAGED: Taker = Taker::Managed { pid: 8 };
    const UNMANAGED: Taker = Taker::Unmanaged { pid: 8 };

    fn pair(victim: &Value, evictor: &Value, cause: &str, bytes: u64) -> Pair {
        let body = json!({ "gpu_uuid": "GPU-00-01", "victim": victim, "evictor": evictor, "cause": cause, "evictions": bytes / 4096, "bytes": bytes });
        serde_json::from_value(body).unwrap()
    }

    fn process(pid: u32) -> Value {
        json!({ "kind": "process", "pid": pid, "start_ticks": 5, "name": "x" })
    }

    fn name(pid: u32) -> String {
        format!("p{pid}")
    }

    /// Names of processes 7 and 8, which are in the run.
    fn named(party: &Party) -> Option<String> {
        party.pid.filter(|pid| [7, 8].contains(pid)).map(name)
    }

    fn ledger(rows: &[(Taker, u64)]) -> Ledger {
        rows.iter().map(|(taker, pages)| ((7, *taker), Taken { frames: 1, copied_out_bytes: pages * 4096 })).collect()
    }

    fn wrong(ledger: &Ledger, pairs: &[Pair]) -> Vec<Key> {
        let compared = compare(0, ledger, &told(pairs, &[], "00-01", named), name);
        compared.into_iter().filter(|row| !row.holds).map(|row| (row.victim, row.evictor, row.cause)).collect()
    }

    fn key(victim: &str, evictor: &str, cause: &str) -> Key {
        (victim.to_owned(), evictor.to_owned(), cause.to_owned())
    }

    #[test]
    fn every_pair_must_have_the_ledgers_bytes_by_cause() {
        let ledger = ledger(&[(MANAGED, 3), (UNMANAGED, 2)]);
        let right = [
            pair(&process(7), &process(8), "fault", 3 * 4096),
            pair(&process(7), &process(8), "device_allocation", 2 * 4096),
        ];
        assert!(wrong(&ledger, &right).is_empty());
        let swapped = [
            pair(&process(7), &process(8), "fault", 2 * 4096),
            pair(&process(7), &process(8), "device_allocation", 3 * 4096),
        ];
        assert_eq!(wrong(&ledger, &swapped).len(), 2);
        let reversed = [
            pair(&process(8), &process(7), "fault", 3 * 4096),
            pair(&process(7), &process(8), "device_allocation", 2 * 4096),
        ];
        assert_eq!(wrong(&ledger, &reversed), [key("p7", "p8", "fault"), key("p8", "p7", "fault")]);
        let unknown = [pair(&process(7), &json!({ "kind": "unknown" }), "fault", 3 * 4096), right[1].clone()];
        assert_eq!(wrong(&ledger, &unknown), [key("p7", "p8", "fault"), key("p7", "unknown", "fault")]);
        let other_cause = [pair(&process(7), &process(8), "other", 3 * 4096), right[1].clone()];
        assert_eq!(wrong(&ledger, &other_cause), [key("p7", "p8", "fault"), key("p7", "p8", "other")]);
    }

    #[test]
    fn evictions_for_page_tables_may_have_any_evictor_but_the_sum_must_be_right() {
        let ledger = ledger(&[(MANAGED, 3), (Taker::Driver, 2)]);
        for (own, other) in [(0, 5), (2, 3), (1, 4)] {
            let pairs = [
                pair(&process(7), &process(7), "fault", own * 4096),
                pair(&process(7), &process(8), "fault", other * 4096),
            ];
            assert!(wrong(&ledger, &pairs).is_empty(), "{own} {other}");
        }
        assert_eq!(
            wrong(&ledger, &[pair(&process(7), &process(8), "fault", 3 * 4096)]),
            [key("p7", "anybody", "any")],
            "two pages are missing"
        );
        let too_few =
            [pair(&process(7), &process(7), "fault", 3 * 4096), pair(&process(7), &process(8), "fault", 2 * 4096)];
        assert_eq!(wrong(&ledger, &too_few), [key("p7", "p7", "fault"), key("p7", "p8", "fault")]);
    }

    #[test]
    fn only_new_evictions_at_this_gpu_with_victims_in_the_run_count() {
        let before = [pair(&json!({ "kind": "unknown" }), &process(8), "fault", 4096)];
        let now = [
            pair(&json!({ "kind": "unknown" }), &process(8), "fault", 3 * 4096),
            pair(&json!({ "kind": "forgotten" }), &process(8), "fault", 4096),
            pair(&process(9), &process(8), "fault", 4096),
            pair(&process(8), &process(7), "fault", 4096),
        ];
        let rows = told(&now, &before, "00-01", named);
        let bytes: Vec<_> = rows.iter().map(|(key, figures)| (key.clone(), figures.bytes)).collect();
        assert_eq!(bytes, [(key("p8", "p7", "fault"), 4096), (key("unknown", "p8", "fault"), 2 * 4096)]);
        assert!(told(&now, &before, "00-02", named).is_empty());
    }

    #[test]
    fn uvmd_may_report_evictions_without_a_copy() {
        let ledger = ledger(&[(MANAGED, 3)]);
        let mut pairs = [pair(&process(7), &process(8), "fault", 3 * 4096)];
        pairs[0].evictions = 9;
        assert!(wrong(&ledger, &pairs).is_empty());
        pairs[0].evictions = 0;
        assert_eq!(wrong(&ledger, &pairs).len(), 1, "a pair without an eviction is ignored");
    }
}
