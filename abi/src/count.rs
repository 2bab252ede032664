//! Keys and values of the counts, and the reasons for which an event is not counted.

/// Declares a fieldless enum that indexes a map: `ALL` in index order, and a name for people.
macro_rules! indexed {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident => $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum $name { $($(#[$vdoc])* $variant,)+ }

        impl $name {
            /// Every variant; the position is the index in the map.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];
            /// How many there are.
            #[expect(clippy::cast_possible_truncation, reason = "a handful")]
            pub const COUNT: u32 = Self::ALL.len() as u32;

            /// The name in labels and messages.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// The variant at an index of the map.
            #[must_use]
            pub fn from_index(index: u32) -> Option<Self> {
                Self::ALL.get(usize::try_from(index).ok()?).copied()
            }
        }
    };
}

indexed! {
    /// What a [`Tally`] counts. Says what `detail` in the key and `amount` in the value mean.
    Kind {
        /// GPU fault entries by access type; amount: the faults merged into them.
        GpuFault => "gpu_fault",
        /// GPU fault entries for a page that the same batch has served already, by access type; amount as above.
        GpuFaultDuplicate => "gpu_fault_duplicate",
        /// CPU faults on managed memory; detail 1 for writes. Key's GPU is 0, amount is unused.
        CpuFault => "cpu_fault",
        /// Copies from the host to the key's GPU by cause; amount: bytes.
        CopyHtod => "copy_htod",
        /// Copies from the key's GPU to the host by cause; amount: bytes.
        CopyDtoh => "copy_dtoh",
        /// Copies from another GPU to the key's by cause; amount: bytes.
        CopyDtod => "copy_dtod",
    }
}

indexed! {
    /// Why an event was not counted.
    LostReason {
        /// Its VA space is not known: made before the probes were attached and not found then, or lost for want of room.
        UnknownVaSpace => "unknown_va_space",
        /// No room for another key in the counts.
        CountsFull => "counts_full",
        /// No room for another VA space: its events will be `UnknownVaSpace`.
        SpacesFull => "spaces_full",
        /// No room in the ring: user space was not told that a VA space was made or destroyed.
        RingFull => "ring_full",
        /// The driver's memory could not be read.
        Unreadable => "unreadable",
        /// It does not look as the layout says; see [`SelfTest`].
        SelfTest => "self_test",
    }
}

indexed! {
    /// A way in which an event contradicts the layout in use.
    SelfTest {
        /// The fault names another VA space than the events structure it came with.
        VaSpace => "a fault's VA space is not that of its event",
        /// A processor id beyond the family's range.
        Processor => "a processor id is out of range",
        /// A GPU fault's address is not that of a page.
        FaultAddress => "a fault address is not page aligned",
        /// An access type beyond the known, or one that is missing in the mask of merged accesses.
        AccessType => "an access type is not possible",
        /// A fault entry without a fault.
        Instances => "a fault entry holds no fault",
        /// A flag that is neither 0 nor 1.
        Flag => "a flag is neither 0 nor 1",
        /// A migration's address or length is not in whole pages, or longer than a block.
        MigrationBytes => "a migration is not in whole pages of one block",
        /// A cause beyond the known.
        MigrationCause => "a migration's cause is not known",
        /// From a GPU to itself.
        MigrationProcessors => "a migration goes from a GPU to itself",
    }
}

indexed! {
    /// The probes.
    Probe {
        /// Faults and migrations.
        Notify => "uvm_perf_event_notify",
        /// A VA space is made.
        Register => "uvm_va_space_mm_register",
        /// A VA space begins to be destroyed.
        DestroyEntry => "uvm_va_space_destroy",
        /// A VA space is gone.
        DestroyReturn => "uvm_va_space_destroy (return)",
    }
}

/// What a [`Tally`] belongs to. No padding: the kernel hashes the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct CountKey {
    /// Of the VA space: never 0, never given twice by one load of the probes.
    pub generation: u64,
    /// The driver's processor id; 0 for the host.
    pub gpu: u32,
    /// A [`Kind`].
    pub kind: u16,
    /// Access type or cause, in the driver's numbering; see [`Kind`].
    pub detail: u16,
}

/// One CPU's share of a count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Tally {
    /// Events.
    pub events: u64,
    /// Faults or bytes; see [`Kind`].
    pub amount: u64,
}

/// What the probes know of a living VA space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Space {
    /// Tells it from earlier ones at the same address.
    pub generation: u64,
    /// Events of this VA space for which the counts had no room.
    pub lost_events: u64,
}

const _: () = assert!(size_of::<CountKey>() == 16);
const _: () = assert!(size_of::<Tally>() == 16);
const _: () = assert!(size_of::<Space>() == 16);

#[cfg(feature = "user")]
#[expect(unsafe_code, reason = "aya's marker for plain memory is an unsafe trait")]
mod pod {
    // SAFETY: integers only, no padding.
    unsafe impl aya::Pod for super::CountKey {}
    // SAFETY: integers only, no padding.
    unsafe impl aya::Pod for super::Tally {}
    // SAFETY: integers only, no padding.
    unsafe impl aya::Pod for super::Space {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_position_in_all_is_the_index_in_the_map() {
        for (at, reason) in (0..).zip(LostReason::ALL) {
            assert_eq!((*reason as u32, LostReason::from_index(at)), (at, Some(*reason)));
        }
        assert_eq!(LostReason::from_index(LostReason::COUNT), None);
    }
}
