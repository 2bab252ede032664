//! Invariants of transfers through the engine.

use proptest::prelude::*;
use zvc::{
    Codec, Engine, PAGE_BYTES, Packed, Width,
    engine::{Piece, Transfer},
};

fn engines() -> impl Strategy<Value = Engine> {
    (1_u32..400, 0_u32..2000, 0_u64..200_000, 1_u32..400).prop_map(|(read, latency, buffer_bytes, link)| Engine {
        read_bytes_per_s: f64::from(read) * 1e9,
        latency_ns: f64::from(latency),
        buffer_bytes,
        link_bytes_per_s: f64::from(link) * 1e9,
    })
}

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let stretch = (1_usize..200, 0_u64..=32)
        .prop_map(|(count, nonzero)| vec![Piece { raw_bytes: 128, packed_bytes: 4 + 4 * nonzero }; count]);
    prop::collection::vec(stretch, 1..20).prop_map(|stretches| stretches.concat())
}

proptest! {
    #[test]
    fn no_transfer_is_faster_than_its_link_or_its_reads_and_all_its_time_is_accounted_for(engine in engines(), pieces in pieces()) {
        let raw_bytes: u64 = pieces.iter().map(|piece| piece.raw_bytes).sum();
        let link_bytes: u64 = pieces.iter().map(|piece| piece.packed_bytes).sum();
        let Transfer { time_ns, link_bytes: sent_bytes, link_idle_ns, read_held_ns, peak_buffer_bytes } =
            engine.stream(Width::Four, pieces.iter().copied());
        prop_assert_eq!(sent_bytes, link_bytes);
        let (reading_ns, sending_ns) = (raw_bytes as f64 / engine.read_bytes_per_s * 1e9, link_bytes as f64 / engine.link_bytes_per_s * 1e9);
        prop_assert!(time_ns >= 0.999_999 * (reading_ns + engine.latency_ns));
        // The link starts with the first byte, then it sends or idles.
        let first_ns = 128.0 / engine.read_bytes_per_s * 1e9 + engine.latency_ns;
        prop_assert!((time_ns - first_ns - sending_ns - link_idle_ns).abs() <= 1e-6 * time_ns);
        prop_assert!(link_idle_ns >= 0.0 && read_held_ns >= 0.0);
        prop_assert!(peak_buffer_bytes <= engine.buffer_bytes.max(132));
    }
}

#[test]
fn pages_of_a_container_stream_by_the_index() {
    let raw: Vec<u8> = (0..100 * PAGE_BYTES).map(|at| u8::from(at % 8 == 0)).collect();
    let packed = Codec::new(Width::Four).pack(&raw).unwrap();
    let packed = Packed::parse(&packed).unwrap();
    let pages = (0..packed.pages()).map(|page| packed.page_payload_bytes(page).unwrap() as u64);
    let transfer = Engine::PAPER
        .stream(Width::Four, pages.map(|packed_bytes| Piece { raw_bytes: PAGE_BYTES as u64, packed_bytes }));
    assert_eq!(transfer.link_bytes, packed.payload_bytes() as u64);
    let bound = Engine::PAPER.transfer_ns(raw.len() as u64, zvc::ratio_at(0.5, Width::Four));
    assert!((transfer.time_ns / bound - 1.0).abs() < 0.01, "{} of {bound}", transfer.time_ns);
}
