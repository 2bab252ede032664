//! Who pushed whose memory out of a GPU: by the ledger of frames, and by uvmd (docs/truth.md, "Frame ledger").

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::sys::ledger::{Ledger, Taken, Taker};

/// Of `/api/v1/evictions`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Pair {
    gpu_uuid: Option<String>,
    victim: Party,
    evictor: Party,
    cause: String,
    evictions: u64,
    bytes: u64,
}

/// One side of a pair.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(crate) struct Party {
    pub(crate) kind: String,
    pub(crate) pid: Option<u32>,
    pub(crate) start_ticks: Option<u64>,
}

/// What one process lost to another at a GPU, compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Compared {
    /// By number, from 0.
    pub(crate) gpu: usize,
    /// A process's name, or what uvmd says where it cannot tell.
    pub(crate) victim: String,
    /// Likewise; `anybody` for all of them together.
    pub(crate) evictor: String,
    /// `fault` or `device_allocation`, which the ledger tells apart; all that uvmd knows and the ledger does not; or `any`.
    pub(crate) cause: String,
    pub(crate) truth: Figures,
    pub(crate) uvmd: Figures,
    /// What the victim lost in frames that the driver took for page tables, of whose memory the ledger does not say: this much may be more.
    pub(crate) page_table_bytes: u64,
    pub(crate) holds: bool,
}

/// Of a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Figures {
    pub(crate) bytes: u64,
    pub(crate) evictions: u64,
}

/// Victim, evictor, cause.
type Key = (String, String, String);
type Rows = BTreeMap<Key, Figures>;

/// What uvmd says was lost at a GPU since an earlier look, with names. What processes of other runs lost is left out.
pub(crate) fn told(now: &[Pair], before: &[Pair], uuid: &str, name: impl Fn(&Party) -> Option<String>) -> Rows {
    let at_gpu = |pair: &&Pair| pair.gpu_uuid.as_ref().is_some_and(|known| known.ends_with(uuid));
    let named = |party: &Party| name(party).unwrap_or_else(|| party.kind.clone());
    let mut rows = Rows::new();
    for pair in now.iter().filter(at_gpu) {
        let is_of_run = pair.victim.kind == "unknown" || name(&pair.victim).is_some();
        let is_same = |other: &&Pair| {
            (&other.gpu_uuid, &other.victim, &other.evictor, &other.cause)
                == (&pair.gpu_uuid, &pair.victim, &pair.evictor, &pair.cause)
        };
        let earlier = before.iter().find(is_same).map_or((0, 0), |pair| (pair.bytes, pair.evictions));
        let (bytes, evictions) = (pair.bytes.saturating_sub(earlier.0), pair.evictions.saturating_sub(earlier.1));
        if is_of_run && evictions > 0 {
            rows.entry((named(&pair.victim), named(&pair.evictor), pair.cause.clone()))
                .or_default()
                .add(Figures { bytes, evictions });
        }
    }
    rows
}

/// All of a GPU's pairs, and each victim's sum where frames went to page tables.
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
        let page_table_bytes = page_tables.get(victim).map_or(0, |lost| lost.bytes);
        Compared::new(gpu, [victim, evictor, cause], of(&truth), of(uvmd), page_table_bytes)
    };
    let keys: BTreeSet<&Key> = truth.keys().chain(uvmd.keys()).collect();
    let mut all: Vec<Compared> = keys.into_iter().map(compare).collect();
    for (victim, lost) in page_tables {
        let sum = |rows: &Rows| {
            let mut sum = Figures::default();
            rows.iter().filter(|((whose, ..), _)| *whose == victim).for_each(|(_, row)| sum.add(*row));
            sum
        };
        let mut truth = sum(&truth);
        truth.add(lost);
        all.push(Compared::new(gpu, [&victim, "anybody", "any"], truth, sum(uvmd), 0));
    }
    all
}

impl Compared {
    /// Bytes are equal. Evictions with nothing to copy are not in the ledger.
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

    /// Processes 7 and 8 are of the run.
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
    fn every_pair_must_have_the_ledgers_bytes_by_what_took_the_frame() {
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
    fn what_went_to_page_tables_may_be_anybodys_but_the_sum_must_be_right() {
        let ledger = ledger(&[(MANAGED, 3), (Taker::Driver, 2)]);
        for (mine, its) in [(0, 5), (2, 3), (1, 4)] {
            let pairs = [
                pair(&process(7), &process(7), "fault", mine * 4096),
                pair(&process(7), &process(8), "fault", its * 4096),
            ];
            assert!(wrong(&ledger, &pairs).is_empty(), "{mine} {its}");
        }
        assert_eq!(
            wrong(&ledger, &[pair(&process(7), &process(8), "fault", 3 * 4096)]),
            [key("p7", "anybody", "any")],
            "two pages went nowhere"
        );
        let too_few =
            [pair(&process(7), &process(7), "fault", 3 * 4096), pair(&process(7), &process(8), "fault", 2 * 4096)];
        assert_eq!(wrong(&ledger, &too_few), [key("p7", "p7", "fault"), key("p7", "p8", "fault")]);
    }

    #[test]
    fn only_what_came_since_and_at_this_gpu_and_to_processes_of_the_run_counts() {
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
    fn evictions_with_nothing_to_copy_are_more_than_the_ledger_has() {
        let ledger = ledger(&[(MANAGED, 3)]);
        let mut told = [pair(&process(7), &process(8), "fault", 3 * 4096)];
        told[0].evictions = 9;
        assert!(wrong(&ledger, &told).is_empty());
        told[0].evictions = 0;
        assert_eq!(wrong(&ledger, &told).len(), 1, "a pair without an eviction is none");
    }
}
