//! Copies and fills of rows.

use ptx::{Access, MemoryFault};

use crate::{
    Error, Result,
    backend::{Accesses, Backend, Origin, Place, Range, Staged},
    memory::Memory,
};

/// Rows of planes of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// First byte.
    pub(crate) place: Place,
    /// Bytes from a row to the next.
    pub(crate) row_bytes: u64,
    /// Bytes from a plane to the next.
    pub(crate) plane_bytes: u64,
}

impl Layout {
    /// Memory without rows.
    pub(crate) const fn flat(place: Place) -> Self {
        Self { place, row_bytes: 0, plane_bytes: 0 }
    }

    fn row(self, row: u64, plane: u64) -> Place {
        let offset = row.wrapping_mul(self.row_bytes).wrapping_add(plane.wrapping_mul(self.plane_bytes));
        self.place.after(offset)
    }
}

/// Size of what is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Bytes of a row.
    pub(crate) width_bytes: u64,
    /// Rows of a plane.
    pub(crate) rows: u64,
    /// Planes.
    pub(crate) planes: u64,
}

impl Extent {
    /// Extent without rows.
    pub(crate) const fn flat(width_bytes: u64) -> Self {
        Self { width_bytes, rows: 1, planes: 1 }
    }

    /// Bytes in all.
    pub(crate) const fn bytes(self) -> u64 {
        self.width_bytes.saturating_mul(self.rows).saturating_mul(self.planes)
    }

    const fn is_empty(self) -> bool {
        self.bytes() == 0
    }

    /// Bytes from the first to the last that a layout covers.
    const fn span(self, layout: Layout) -> u64 {
        if self.is_empty() {
            return 0;
        }
        let rows = (self.rows - 1).saturating_mul(layout.row_bytes);
        let planes = (self.planes - 1).saturating_mul(layout.plane_bytes);
        rows.saturating_add(planes).saturating_add(self.width_bytes)
    }

    /// Adds the memory of the window that an access to a layout is to.
    fn note(self, layout: Layout, access: Access, backend: &dyn Backend, accesses: &mut Accesses) {
        if !self.is_empty() && backend.in_window(layout.place.address()) {
            for (row, plane) in self.places() {
                let address = layout.row(row, plane).address();
                accesses.add(Range { address, bytes: self.width_bytes }, access);
            }
        }
    }

    fn places(self) -> impl Iterator<Item = (u64, u64)> {
        (0..self.planes).flat_map(move |plane| (0..self.rows).map(move |row| (row, plane)))
    }
}

/// Copy of rows.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    /// Where to.
    pub(crate) to: Layout,
    /// Where from.
    pub(crate) from: Layout,
    /// How much.
    pub(crate) extent: Extent,
    /// Holds what is copied from.
    pub(crate) staged: Option<Staged>,
    /// Call of which it is.
    pub(crate) origin: Origin,
}

/// Kind of one side of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Memory of the program, which the driver does not know.
    Pageable,
    /// Memory of the host that the driver knows.
    Pinned,
    /// Device or managed memory.
    Gpu,
}

impl Copy {
    /// Copy of bytes.
    pub(crate) const fn flat(to: Place, from: Place, bytes: u64) -> Self {
        Self {
            to: Layout::flat(to),
            from: Layout::flat(from),
            extent: Extent::flat(bytes),
            staged: None,
            origin: Origin::NONE,
        }
    }

    /// Kinds of both sides, target first.
    ///
    /// # Errors A side begins in the window, but is not in one allocation; or rows are longer than
    /// their distance.
    pub(crate) fn sides(&self, memory: &Memory, backend: &dyn Backend) -> Result<(Side, Side)> {
        for layout in [self.to, self.from] {
            if self.extent.rows > 1 && layout.row_bytes < self.extent.width_bytes {
                return Err(Error::CUDA_ERROR_INVALID_VALUE);
            }
        }
        Ok((
            side(memory, backend, self.to.place, self.extent.span(self.to))?,
            side(memory, backend, self.from.place, self.extent.span(self.from))?,
        ))
    }

    /// Copies what it is from, so that the program may overwrite it.
    pub(crate) fn stage(mut self) -> Self {
        let mut bytes = Vec::new();
        for (row, plane) in self.extent.places() {
            bytes.extend(self.from.row(row, plane).read(usize::try_from(self.extent.width_bytes).unwrap_or(0)));
        }
        let staged = Staged::new(bytes);
        let row_bytes = self.extent.width_bytes;
        let plane_bytes = row_bytes.saturating_mul(self.extent.rows);
        self.from = Layout { place: staged.place(), row_bytes, plane_bytes };
        self.staged = Some(staged);
        self
    }

    /// Memory of the window that it accesses.
    pub(crate) fn accesses(&self, backend: &dyn Backend) -> Accesses {
        let mut accesses = Accesses::default();
        self.extent.note(self.from, Access::Read, backend, &mut accesses);
        self.extent.note(self.to, Access::Write, backend, &mut accesses);
        accesses
    }

    /// Performs it.
    ///
    /// # Errors
    /// An address that is not allocated.
    pub(crate) fn perform(&self, backend: &dyn Backend, device: usize) -> Result<(), MemoryFault> {
        if self.extent.is_empty() {
            return Ok(());
        }
        for (row, plane) in self.extent.places() {
            backend.copy(device, self.to.row(row, plane), self.from.row(row, plane), self.extent.width_bytes)?;
        }
        Ok(())
    }
}

/// Kind of some bytes.
///
/// # Errors
/// They begin in the window, but are not in one allocation.
pub(crate) fn side(memory: &Memory, backend: &dyn Backend, place: Place, bytes: u64) -> Result<Side> {
    let Some(block) = memory.find(place.address()) else {
        let unknown = backend.in_window(place.address()) && bytes != 0;
        return if unknown { Err(Error::CUDA_ERROR_INVALID_VALUE) } else { Ok(Side::Pageable) };
    };
    if !block.registered && place.address().saturating_add(bytes) > block.range.end() {
        return Err(Error::CUDA_ERROR_INVALID_VALUE);
    }
    Ok(if block.kind == crate::backend::Kind::Host { Side::Pinned } else { Side::Gpu })
}

/// Fill of rows.
#[derive(Clone, Debug)]
pub(crate) struct Fill {
    /// Where to.
    pub(crate) to: Layout,
    /// What is written: 1, 2 or 4 bytes.
    pub(crate) unit: Vec<u8>,
    /// Units of a row.
    pub(crate) width: u64,
    /// Rows.
    pub(crate) rows: u64,
    /// Call of which it is.
    pub(crate) origin: Origin,
}

impl Fill {
    /// Fill with the low bytes of a value.
    pub(crate) fn new(to: Layout, value: u32, unit_bytes: usize, width: u64, rows: u64) -> Self {
        let unit = value.to_le_bytes().into_iter().take(unit_bytes).collect();
        Self { to, unit, width, rows, origin: Origin::NONE }
    }

    /// Kind of its target.
    ///
    /// # Errors
    /// It is not in one allocation, not aligned to a unit, or not known.
    pub(crate) fn side(&self, memory: &Memory, backend: &dyn Backend) -> Result<Side> {
        let unit = self.unit.len() as u64;
        let width_bytes = self.width.checked_mul(unit).ok_or(Error::CUDA_ERROR_INVALID_VALUE)?;
        let extent = Extent { width_bytes, rows: self.rows, planes: 1 };
        let aligned = self.to.place.address().is_multiple_of(unit.max(1));
        if !aligned || (self.rows > 1 && self.to.row_bytes < width_bytes) {
            return Err(Error::CUDA_ERROR_INVALID_VALUE);
        }
        match side(memory, backend, self.to.place, extent.span(self.to))? {
            Side::Pageable if !extent.is_empty() => Err(Error::CUDA_ERROR_INVALID_VALUE),
            side => Ok(side),
        }
    }

    /// Memory of the window that it accesses.
    pub(crate) fn accesses(&self, backend: &dyn Backend) -> Accesses {
        let mut accesses = Accesses::default();
        let width_bytes = self.width.saturating_mul(self.unit.len() as u64);
        Extent { width_bytes, rows: self.rows, planes: 1 }.note(self.to, Access::Write, backend, &mut accesses);
        accesses
    }

    /// Performs it.
    ///
    /// # Errors
    /// An address that is not allocated.
    pub(crate) fn perform(&self, backend: &dyn Backend, device: usize) -> Result<(), MemoryFault> {
        if self.width == 0 {
            return Ok(());
        }
        (0..self.rows).try_for_each(|row| backend.fill(device, self.to.row(row, 0), &self.unit, self.width))
    }
}
