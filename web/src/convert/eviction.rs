//! Who pushed whose memory out.

use std::cmp::Reverse;

use model::{EvictionPair, Party, api};

use super::{INFERRED, View, owner::owner, time};
use crate::gpus;

/// Most bytes first.
pub(crate) fn evictions(view: &View<'_>) -> api::Evictions {
    let mut pairs: Vec<&EvictionPair> = view.snapshot.evictions.iter().collect();
    pairs.sort_by_key(|pair| (Reverse((pair.bytes, pair.evictions)), pair.gpu, pair.victim, pair.evictor, pair.cause));
    api::Evictions {
        time: time(view.snapshot.taken),
        inferred: INFERRED,
        pairs: pairs.into_iter().map(|each| pair(view, each)).collect(),
    }
}

fn pair(view: &View<'_>, pair: &EvictionPair) -> api::EvictionPair {
    let EvictionPair { gpu, victim, evictor, cause, evictions, bytes } = *pair;
    api::EvictionPair {
        gpu_uuid: gpus::uuid(gpu),
        victim: party(view, victim),
        evictor: party(view, evictor),
        cause: cause.name().to_owned(),
        evictions,
        bytes,
    }
}

fn party(view: &View<'_>, party: Party) -> api::Party {
    let of_kind = |kind: &str| api::Party { kind: kind.to_owned(), ..api::Party::default() };
    match party {
        Party::Process(id) => {
            let process = view.process(id);
            api::Party {
                pid: Some(id.pid),
                start_ticks: Some(id.start_ticks),
                name: process.map(|process| process.name.clone()),
                owner: process.map(|process| owner(&process.owner)),
                ..of_kind("process")
            }
        }
        Party::Forgotten => of_kind("forgotten"),
        Party::Unknown => of_kind("unknown"),
    }
}
