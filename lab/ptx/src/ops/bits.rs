//! Operations on bits.

/// `bfe`, unsigned, of a value of `width` bits.
pub(crate) fn extract(value: u64, position: u32, length: u32, width: u32) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    if position >= width { 0 } else { value >> position & ones(length) & ones(width) }
}

/// `bfe`, signed: the field's highest bit fills the rest.
pub(crate) fn extract_signed(value: u64, position: u32, length: u32, width: u32) -> u64 {
    let (first, bits) = (position & 0xff, length & 0xff);
    if bits == 0 {
        return 0;
    }
    let sign_at = (first + bits - 1).min(width - 1);
    let field = extract(value, first, bits, width);
    let kept = if first >= width { 0 } else { bits.min(width - first) };
    if value >> sign_at & 1 != 0 { field | !ones(kept) } else { field }
}

/// `bfi`: puts the lowest bits of `field` into `value`.
pub(crate) fn insert(field: u64, value: u64, position: u32, length: u32) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    if position > 63 {
        return value;
    }
    let mask = ones(length) << position;
    value & !mask | field << position & mask
}

/// `lop3`: the table's bit for each triple of bits.
#[inline]
pub(crate) fn table(a: u32, b: u32, c: u32, table: u32) -> u32 {
    let mut result = 0;
    for row in 0..8 {
        if table >> row & 1 != 0 {
            let pick = |value: u32, bit: u32| if row >> bit & 1 != 0 { value } else { !value };
            result |= pick(a, 2) & pick(b, 1) & pick(c, 0);
        }
    }
    result
}

/// `prmt` with its default mode: picks four of eight bytes, or their signs.
pub(crate) fn permute(a: u32, b: u32, selectors: u32) -> u32 {
    let bytes = u64::from(b) << 32 | u64::from(a);
    (0..4).fold(0, |result, index| {
        let selector = selectors >> (4 * index) & 15;
        let byte = (bytes >> (8 * (selector & 7))) as u8;
        let byte = if selector & 8 != 0 { ((byte as i8) >> 7) as u8 } else { byte };
        result | u32::from(byte) << (8 * index)
    })
}

/// Selectors of `prmt`'s other modes.
pub(crate) fn selectors(mode: &str, control: u32) -> u32 {
    let control = control & 3;
    match mode {
        "f4e" => 0x3210 + 0x1111 * control,
        "b4e" => [0x5670, 0x6701, 0x7012, 0x0123].get(control as usize).copied().unwrap_or(0),
        "rc8" => 0x1111 * control,
        "ecl" => [0x3210, 0x3211, 0x3222, 0x3333].get(control as usize).copied().unwrap_or(0),
        "ecr" => [0x0000, 0x1110, 0x2210, 0x3210].get(control as usize).copied().unwrap_or(0),
        _ => [0x1010, 0x3232].get(control as usize & 1).copied().unwrap_or(0),
    }
}

/// `c` plus the sum of products.
pub(crate) fn dot(a: [i64; 4], b: [i64; 4], c: u32) -> u32 {
    c.wrapping_add(a.iter().zip(b).map(|(a, b)| a * b).sum::<i64>() as u32)
}

fn ones(bits: u32) -> u64 {
    u64::MAX.checked_shr(64u32.saturating_sub(bits)).unwrap_or(0)
}
