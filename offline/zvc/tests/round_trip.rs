//! Round trips: unpacking restores packed data, equally with all instructions.

use proptest::prelude::*;
use zvc::{Codec, Error, Isa, PAGE_BYTES, Packed, Width, rle};

fn widths() -> impl Strategy<Value = Width> {
    prop::sample::select(Width::ALL.to_vec())
}

fn codecs(width: Width) -> [Codec; 4] {
    let codec = Codec::new(width);
    [codec, codec.without_index(), codec.without_checksum(), codec.without_index().without_checksum()]
}

/// Any number of bytes, with alternating runs of zeros, single zeros and other bytes.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let zeros = (1_usize..600).prop_map(|count| vec![0; count]);
    let random_bytes = prop::collection::vec(any::<u8>(), 1..300);
    let words = prop::collection::vec(prop_oneof![Just([0; 4]), Just([0, 0, 0, 0x80]), any::<[u8; 4]>()], 1..200);
    let piece = prop_oneof![zeros, random_bytes, words.prop_map(|words| words.concat())];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_bytes_come_back(raw in bytes(), width in widths()) {
        for codec in codecs(width) {
            let packed = codec.pack(&raw).unwrap();
            prop_assert!(packed.len() <= codec.bound_bytes(raw.len()).unwrap());
            prop_assert!(packed.len() <= raw.len() + 32);
            prop_assert_eq!(Packed::parse(&packed).unwrap().unpack().unwrap(), &raw[..]);
        }
    }

    #[test]
    fn all_instructions_pack_and_unpack_alike(raw in bytes(), width in widths()) {
        let by_one = Codec::new(width).with_isa(Isa::SCALAR).pack(&raw).unwrap();
        for isa in Isa::available() {
            prop_assert_eq!(&Codec::new(width).with_isa(isa).pack(&raw).unwrap(), &by_one, "{}", isa.name());
            prop_assert_eq!(&Packed::parse(&by_one).unwrap().with_isa(isa).unpack().unwrap(), &raw, "{}", isa.name());
        }
    }

    #[test]
    fn any_page_comes_back_by_itself(raw in bytes(), width in widths()) {
        let packed = Codec::new(width).pack(&raw).unwrap();
        let packed = Packed::parse(&packed).unwrap();
        let mut payload_bytes = 0;
        for (number, page) in (0..).zip(raw.chunks(PAGE_BYTES)) {
            let mut out = [0xaa; PAGE_BYTES];
            let bytes = packed.unpack_page(number, &mut out).unwrap();
            prop_assert_eq!(&out[..bytes], page);
            payload_bytes += packed.page_payload_bytes(number).unwrap();
        }
        prop_assert_eq!(payload_bytes, packed.payload_bytes());
        let pages = packed.pages();
        prop_assert_eq!(packed.unpack_page(pages, &mut [0; PAGE_BYTES]), Err(Error::NoSuchPage { page: pages, pages }));
    }

    #[test]
    fn runs_come_back(raw in bytes(), width in widths()) {
        let packed = rle::pack(&raw, width);
        prop_assert!(packed.len() <= raw.len() + raw.len().div_ceil(width.bytes()));
        prop_assert_eq!(rle::unpack(&packed, width, raw.len()).unwrap(), raw);
    }
}

#[test]
fn sizes_around_units_and_pages_come_back() {
    let sizes = (0..280).chain(PAGE_BYTES - 3..PAGE_BYTES + 3).chain(5 * PAGE_BYTES - 2..5 * PAGE_BYTES + 3);
    for size in sizes {
        for every in [1, 3, usize::MAX] {
            let raw: Vec<u8> = (1..=size).map(|at| if at % every == 0 { 7 } else { 0 }).collect();
            for codec in Width::ALL.into_iter().flat_map(codecs) {
                let packed = codec.pack(&raw).unwrap();
                assert_eq!(Packed::parse(&packed).unwrap().unpack().unwrap(), raw, "{size} {every} {codec:?}");
            }
        }
    }
}

#[test]
fn negative_zero_and_every_kind_of_nan_are_not_zero() {
    let words = [
        -0.0_f32,
        f32::NAN,
        -f32::NAN,
        f32::from_bits(0x7f80_0001),
        f32::from_bits(0xffff_ffff),
        f32::MIN_POSITIVE,
        0.0,
    ];
    let raw: Vec<u8> = words.iter().cycle().take(7000).flat_map(|word| word.to_bits().to_le_bytes()).collect();
    let codec = Codec::new(Width::Four);
    for isa in Isa::available() {
        let packed = codec.with_isa(isa).pack(&raw).unwrap();
        let packed = Packed::parse(&packed).unwrap().with_isa(isa);
        assert_eq!(packed.payload_bytes(), 7000_usize.div_ceil(32) * 4 + 6000 * 4);
        assert_eq!(packed.unpack().unwrap(), raw);
    }
}

#[test]
fn a_unit_takes_its_mask_and_the_words_that_are_not_zero() {
    let unit = |nonzero: usize| -> Vec<u8> { (0..32).flat_map(|at| u32::to_le_bytes((at < nonzero).into())).collect() };
    for nonzero in 0..32 {
        // A unit of zeros beside it, so that even 31 words are stored packed.
        let raw = [unit(nonzero), unit(0)].concat();
        let packed = Codec::new(Width::Four).pack(&raw).unwrap();
        assert_eq!(Packed::parse(&packed).unwrap().payload_bytes(), 4 * (1 + nonzero) + 4);
    }
}

#[test]
fn incompressible_data_are_stored_unpacked() {
    let raw = vec![1; 10 * PAGE_BYTES];
    let packed = Codec::new(Width::Four).pack(&raw).unwrap();
    let packed = Packed::parse(&packed).unwrap();
    assert!(packed.is_stored());
    assert_eq!(packed.payload_bytes(), raw.len());
    assert_eq!(packed.page_payload_bytes(9), Ok(PAGE_BYTES));
    assert_eq!(packed.unpack().unwrap(), raw);
}

#[test]
fn wrong_buffer_size_is_reported() {
    let raw = vec![0; 1000];
    let codec = Codec::new(Width::Four);
    let needed = codec.bound_bytes(1000).unwrap();
    let error = Error::Buffer { needed_bytes: needed as u64, have_bytes: needed as u64 - 1 };
    assert_eq!(codec.pack_into(&raw, &mut vec![0; needed - 1]), Err(error));
    let packed = codec.pack(&raw).unwrap();
    let packed = Packed::parse(&packed).unwrap();
    assert_eq!(packed.unpack_into(&mut [0; 999]), Err(Error::Buffer { needed_bytes: 1000, have_bytes: 999 }));
    assert_eq!(packed.unpack_page(0, &mut [0; 999]), Err(Error::Buffer { needed_bytes: 1000, have_bytes: 999 }));
}

#[test]
fn size_beyond_the_index_is_rejected() {
    assert!(Codec::new(Width::Four).bound_bytes(15 << 30).is_ok());
    assert_eq!(Codec::new(Width::Four).bound_bytes(16 << 30), Err(Error::TooLarge { raw_bytes: 16 << 30 }));
    assert!(Codec::new(Width::Four).without_index().bound_bytes(16 << 30).is_ok());
    assert!(Codec::new(Width::Two).bound_bytes(usize::MAX).is_err());
}

#[test]
fn the_container_is_laid_out_as_documented() {
    let mut raw = vec![0; PAGE_BYTES + 6];
    raw[4..8].copy_from_slice(&[1, 2, 3, 4]);
    raw[PAGE_BYTES + 4..].copy_from_slice(&[5, 6]);
    let parts: [&[u8]; 9] = [
        b"ZVC2\x04\x05\0\0",
        &4102_u64.to_le_bytes(),
        &140_u64.to_le_bytes(),
        // Computed by another program.
        &0x00d4_67ce_14a1_387e_u64.to_le_bytes(),
        // Begins of the two pages, in words.
        &[0, 0, 0, 0, 33, 0, 0, 0],
        &[0b10, 0, 0, 0, 1, 2, 3, 4],
        &[0; 31 * 4],
        &[0b10, 0, 0, 0],
        &[5, 6, 0, 0],
    ];
    assert_eq!(Codec::new(Width::Four).pack(&raw).unwrap(), parts.concat());
}
