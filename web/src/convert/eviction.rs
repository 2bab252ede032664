//! Pairs of evictor and victim.

use std::cmp::Reverse;

use model::{EvictionPair, Party};

use super::{View, owner::owner};
use crate::{
    gpus,
    paging::{Cursors, Order, Page, PageRequest},
    problem::Problem,
};

/// Page of the selected pairs, by bytes or by id.
pub(crate) fn evictions(
    view: &View<'_>,
    order: Order,
    is_selected: impl Fn(&EvictionPair) -> bool,
    cursors: &Cursors,
    page_request: &PageRequest,
) -> Result<Page, Problem> {
    let key = |pair: &EvictionPair| {
        let rank = (order.rank(|| pair.bytes), order.rank(|| pair.evictions));
        (Reverse(rank), pair.gpu, pair.victim, pair.evictor, pair.cause)
    };
    let pairs = view.snapshot.evictions.iter().filter(|pair| is_selected(pair)).map(|pair| (key(pair), pair)).collect();
    cursors.page(page_request, pairs, |each| pair(view, each))
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
                owner: process.map(|process| owner(&view.snapshot.owner_names, &process.owner)),
                ..of_kind("process")
            }
        }
        Party::Forgotten => of_kind("forgotten"),
        Party::Unknown => of_kind("unknown"),
    }
}
