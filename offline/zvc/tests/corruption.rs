//! Truncated, changed and random containers: an error or other data, never a panic, and never more
//! data than 32 times their bytes. The result is the same with all instructions.

#![expect(clippy::cast_possible_truncation, reason = "any bits are valid")]

use zvc::{Codec, Error, Isa, PAGE_BYTES, Packed, Width, rle};

const HEADER_BYTES: usize = 32;

/// Deterministic pseudo-random numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) ^ mixed >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn data(&mut self, bytes: usize) -> Vec<u8> {
        let zeros = self.below(100);
        (0..bytes)
            .flat_map(|_| if self.below(100) < zeros { [0; 4] } else { [self.next() as u8; 4] })
            .take(bytes)
            .collect()
    }
}

/// Unpacks `container` with all instructions; the results must be equal.
fn unpacked(container: &[u8]) -> Result<Vec<u8>, Error> {
    let packed = Packed::parse(container)?;
    assert!(packed.raw_bytes() <= 32 * container.len(), "{} of {}", packed.raw_bytes(), container.len());
    let by_one = packed.with_isa(Isa::SCALAR).unpack();
    for isa in Isa::available() {
        let packed = packed.with_isa(isa);
        assert_eq!(packed.unpack(), by_one, "{}", isa.name());
        let mut page = [0; PAGE_BYTES];
        for number in (0..packed.pages().min(9)).chain([u64::MAX]) {
            let vector = packed.unpack_page(number, &mut page);
            let scalar = packed.with_isa(Isa::SCALAR).unpack_page(number, &mut [0; PAGE_BYTES]);
            assert_eq!(vector, scalar, "{}", isa.name());
        }
    }
    by_one
}

#[test]
fn truncation_anywhere_is_reported() {
    let raw = Random(1).data(9000);
    for width in Width::ALL {
        let container = Codec::new(width).pack(&raw).unwrap();
        for length in 0..container.len() {
            assert!(matches!(Packed::parse(&container[..length]), Err(Error::Truncated { .. })), "{length}");
        }
        assert!(matches!(Packed::parse(&[&container[..], &[0]].concat()), Err(Error::Surplus { surplus_bytes: 1 })));
    }
}

#[test]
fn changed_byte_is_always_detected_with_a_checksum() {
    let raw = Random(2).data(5000);
    let container = Codec::new(Width::Four).pack(&raw).unwrap();
    for at in 0..container.len() {
        let mut changed = container.clone();
        changed[at] ^= 1 << (at % 8);
        // Including the flag of the checksum: without the flag, the remaining checksum is an error,
        // too.
        assert!(unpacked(&changed).is_err(), "{at}");
    }
}

#[test]
fn wrong_headers_are_reported() {
    let container = Codec::new(Width::Four).without_checksum().pack(&[0; 9000]).unwrap();
    let with = |at: usize, bytes: &[u8]| {
        let mut changed = container.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        unpacked(&changed).unwrap_err()
    };
    assert_eq!(with(0, b"GZIP"), Error::Magic { found: *b"GZIP" });
    assert_eq!(with(0, b"ZVC1"), Error::Magic { found: *b"ZVC1" });
    assert_eq!(with(4, &[3]), Error::Header("words of neither 2 nor 4 bytes"));
    assert_eq!(with(5, &[0x81]), Error::Header("unknown flags"));
    assert_eq!(with(6, &[1]), Error::Header("unknown flags"));
    assert_eq!(with(24, &[1]), Error::Header("a checksum without its flag"));
    assert_eq!(with(5, &[3]), Error::Header("an index of data stored unpacked"));
    assert_eq!(with(8, &[0xff; 8]), Error::TooLarge { raw_bytes: u64::MAX });
    assert_eq!(with(8, &[0, 0, 0, 0, 0, 1, 0, 0]), Error::Header("a payload size that does not match the raw size"));
    assert_eq!(with(16, &[0xff; 8]), Error::Header("a payload size that does not match the raw size"));
}

#[test]
fn corrupted_payload_is_reported_by_page() {
    let mut raw = vec![0; 3 * PAGE_BYTES];
    raw[PAGE_BYTES] = 1;
    let container = Codec::new(Width::Four).without_checksum().pack(&raw).unwrap();
    let payload_at = HEADER_BYTES + 3 * 4;
    let with = |at: usize, to: u8| {
        let mut changed = container.clone();
        changed[at] = to;
        unpacked(&changed)
    };
    assert_eq!(with(HEADER_BYTES, 1), Err(Error::Index { page: 0 }));
    assert_eq!(with(HEADER_BYTES + 4, 33), Err(Error::Index { page: 1 }));
    // One more word in the first unit moves all bytes that follow.
    assert_eq!(with(payload_at, 1), Err(Error::Index { page: 1 }));
    // The last unit names more words than bytes are left.
    assert_eq!(with(container.len() - 1, 0x80), Err(Error::Page { page: 2 }));
}

#[test]
fn bits_beyond_the_data_are_rejected() {
    // Three and a half words, none of them zero; then 28 more units, so that the data are stored
    // packed.
    let raw = [vec![0; 28 * 128], vec![1; 14]].concat();
    let container = Codec::new(Width::Four).without_checksum().without_index().pack(&raw).unwrap();
    let mask_at = container.len() - 16 - 4;
    let with = |at: usize, to: u8| {
        let mut changed = container.clone();
        changed[at] = to;
        unpacked(&changed)
    };
    assert_eq!(with(mask_at, 0b1_1111), Err(Error::Page { page: 0 }));
    assert_eq!(with(mask_at, 0b0111), Err(Error::Payload { surplus_bytes: 4 }));
    assert_eq!(with(container.len() - 1, 1), Err(Error::Page { page: 0 }));
}

#[test]
fn no_mutation_of_a_container_does_harm() {
    let mut random = Random(3);
    let mut accepted = 0;
    for _ in 0..4000 {
        let bytes = [200, 5000, 20_000][random.below(3)];
        let bytes = random.below(bytes);
        let raw = random.data(bytes);
        let width = Width::ALL[random.below(2)];
        // Mostly without a checksum, which would detect every error before the other checks.
        let codec = [
            Codec::new(width),
            Codec::new(width).without_checksum(),
            Codec::new(width).without_checksum().without_index(),
        ][random.below(8).min(2)];
        let mut container = codec.pack(&raw).unwrap();
        for _ in 0..=random.below(4) {
            let at = random.below(container.len());
            match random.below(7) {
                0 => container.truncate(at),
                1 => container.extend((0..random.below(300)).map(|at| at as u8)),
                2 => drop(container.splice(at..at, [0, 1, 2, 3])),
                3 => drop(container.drain(at..container.len().min(at + 4))),
                // In the header or the index.
                4 => {
                    let at = at.min(random.below(HEADER_BYTES + 24));
                    container.iter_mut().skip(at).take(1).for_each(|byte| *byte = random.next() as u8);
                }
                5 => container.iter_mut().skip(at).take(8).for_each(|byte| *byte = 0xff),
                _ => container.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
            }
        }
        accepted += usize::from(unpacked(&container).is_ok());
        let _ = rle::unpack(&container, width, random.below(30_000));
    }
    assert!((200..3800).contains(&accepted), "{accepted}: some must pass and some not, or nothing was tried");
}

#[test]
fn random_payloads_behind_a_valid_header_do_no_harm() {
    let mut random = Random(4);
    for _ in 0..2000 {
        let bytes = 1 + random.below(12_000);
        let mut container = Codec::new(Width::ALL[random.below(2)]).without_checksum().pack(&vec![0; bytes]).unwrap();
        let kind = random.below(3);
        for byte in container.iter_mut().skip(HEADER_BYTES) {
            if kind == 0 || random.below(50) == 0 {
                *byte = random.next() as u8;
            }
        }
        let _ = unpacked(&container);
    }
}
