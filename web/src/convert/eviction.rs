//! Who pushed whose memory out.

use std::cmp::Reverse;

use model::{EvictionPair, Party, api};

use super::{View, owner::owner};
use crate::{
    gpus,
    paging::{Cursors, Order, Page, PageRequest},
    problem::Problem,
};

/// Most bytes first.
pub(crate) fn evictions(
    view: &View<'_>,
    order: Order,
    wanted: impl Fn(&EvictionPair) -> bool,
    cursors: &Cursors,
    part: &PageRequest,
) -> Result<Page, Problem> {
    let place = |pair: &EvictionPair| {
        let rank = (order.rank(|| pair.bytes), order.rank(|| pair.evictions));
        (Reverse(rank), pair.gpu, pair.victim, pair.evictor, pair.cause)
    };
    let pairs = view.snapshot.evictions.iter().filter(|pair| wanted(pair)).map(|pair| (place(pair), pair)).collect();
    cursors.page(part, pairs, |each| pair(view, each))
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
