//! Processes that are not cross-checked: those with a verdict, and those that a policy or a plan is
//! about. A tracker delays their CPU faults, and would change what is measured.

use std::{collections::HashSet, sync::Arc};

use collector::Exemptions;
use model::{ProcessId, Verdicts};
use tokio::sync::watch;

use crate::acting::BoardReader;

/// Keeps the exemptions up to date, until the verdicts end: they are published once per reading.
pub(crate) async fn follow(mut verdicts: watch::Receiver<Arc<Verdicts>>, board: BoardReader, exemptions: Exemptions) {
    loop {
        let judged = Arc::clone(&verdicts.borrow_and_update());
        exemptions.set(exempt(&judged, &board));
        if verdicts.changed().await.is_err() {
            return;
        }
    }
}

fn exempt(verdicts: &Verdicts, board: &BoardReader) -> HashSet<ProcessId> {
    let (decisions, following) = (board.decisions(), board.following());
    let open = decisions.iter().filter(|decision| decision.stage.is_open());
    let judged = verdicts.active.iter().map(|verdict| verdict.process);
    judged.chain(open.map(|decision| decision.process)).chain(following.keys().copied()).collect()
}
