//! Choice of a Rust type by a type of PTX.

/// Evaluates an expression with `$name` as the Rust integer of a type of 16 to 64 bits.
macro_rules! for_integer {
    ($type:expr, $name:ident => $body:expr, $otherwise:expr) => {
        match $type {
            Type::B16 | Type::U16 => {
                type $name = u16;
                $body
            }
            Type::S16 => {
                type $name = i16;
                $body
            }
            Type::B32 | Type::U32 => {
                type $name = u32;
                $body
            }
            Type::S32 => {
                type $name = i32;
                $body
            }
            Type::B64 | Type::U64 => {
                type $name = u64;
                $body
            }
            Type::S64 => {
                type $name = i64;
                $body
            }
            _ => $otherwise,
        }
    };
}

/// The same for the integers of 8 bits, too.
macro_rules! for_any_integer {
    ($type:expr, $name:ident => $body:expr, $otherwise:expr) => {
        match $type {
            Type::B8 | Type::U8 => { type $name = u8; $body }
            Type::S8 => { type $name = i8; $body }
            other => for_integer!(other, $name => $body, $otherwise),
        }
    };
}

/// The same for integers without a sign, of 16 to 64 bits.
macro_rules! for_bits {
    ($type:expr, $name:ident => $body:expr, $otherwise:expr) => {
        match $type.bytes() {
            2 => {
                type $name = u16;
                $body
            }
            4 => {
                type $name = u32;
                $body
            }
            8 => {
                type $name = u64;
                $body
            }
            _ => $otherwise,
        }
    };
}

pub(super) use {for_any_integer, for_bits, for_integer};
