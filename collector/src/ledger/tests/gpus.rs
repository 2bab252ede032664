//! GPU of a count.

use super::*;

/// Bytes copied to each GPU.
fn bytes(counts: &BTreeMap<GpuKey, Counters>) -> Vec<(GpuKey, u64)> {
    counts.iter().map(|(key, counters)| (*key, counters.bytes_htod.total())).collect()
}

#[test]
fn counts_stay_with_their_gpu_when_its_id_is_reassigned() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("first"));
    count(&mut ledger, 1, 1, Kind::CopyHtod, 0, 1, 4096);
    shown(&mut ledger, CARD);
    ledger.destroyed(1, Losses::default(), at(10));
    // The last reading may come after another GPU got the id.
    shown(&mut ledger, OTHER_CARD);
    count(&mut ledger, 1, 1, Kind::CopyHtod, 0, 2, 8192);
    ledger.close(1);
    ledger.registered(2, OTHER, named("second"));
    count(&mut ledger, 2, 1, Kind::CopyHtod, 0, 1, 65536);
    shown(&mut ledger, OTHER_CARD);

    let [first, second] = &processes(&ledger)[..] else { panic!() };
    assert_eq!(bytes(&first.gpus), [(GpuKey::Known(CARD), 8192)]);
    assert_eq!(bytes(&second.gpus), [(GpuKey::Known(OTHER_CARD), 65536)]);
    assert_eq!(bytes(&totals(&ledger).gpus), [(GpuKey::Known(CARD), 8192), (GpuKey::Known(OTHER_CARD), 65536)]);
}

#[test]
fn short_lived_va_space_is_not_counted_on_a_later_gpu_with_its_id() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("short"));
    ledger.destroyed(1, Losses::default(), at(10));
    shown(&mut ledger, OTHER_CARD);
    count(&mut ledger, 1, 1, Kind::CopyHtod, 0, 1, 4096);
    ledger.close(1);
    assert_eq!(bytes(&totals(&ledger).gpus), [(GpuKey::Unknown(1), 4096)]);
}

#[test]
fn counts_of_a_pending_id_move_to_their_gpu_once_it_is_known() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("app"));
    count(&mut ledger, 1, 1, Kind::CopyHtod, 0, 1, 4096);
    assert_eq!(bytes(&totals(&ledger).gpus), [(GpuKey::Pending(1), 4096)]);
    shown(&mut ledger, CARD);
    assert_eq!(bytes(&totals(&ledger).gpus), [(GpuKey::Known(CARD), 4096)]);
    assert_eq!(bytes(&processes(&ledger)[0].gpus), [(GpuKey::Known(CARD), 4096)]);
}

#[test]
fn va_spaces_on_one_gpu_add_up_despite_different_ids() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("app"));
    count(&mut ledger, 1, 1, Kind::CopyHtod, 0, 1, 4096);
    shown(&mut ledger, CARD);
    ledger.destroyed(1, Losses::default(), at(10));
    ledger.close(1);
    ledger.registered(2, PROCESS, named("app"));
    count(&mut ledger, 2, 2, Kind::CopyHtod, 0, 1, 8192);
    ledger.shown(&Arc::new([(1, OTHER_CARD), (2, CARD)].into()));
    assert_eq!(bytes(&processes(&ledger)[0].gpus), [(GpuKey::Known(CARD), 12288)]);
}
