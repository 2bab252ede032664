//! What a GPU has room for.

use model::api::{GpuDetail, Gpus, Process};

/// The GPU with this UUID.
pub(crate) fn with_uuid<'a>(gpus: &'a Gpus, uuid: Option<&str>) -> Option<&'a GpuDetail> {
    gpus.gpus.iter().find(|gpu| gpu.gpu.uuid.is_some() && gpu.gpu.uuid.as_deref() == uuid)
}

/// What managed memory there is room for beside everything else. Where the card's size is not known, what is there of all managed memory: as long
/// as memory is pushed out, the card is full.
pub(crate) fn room_bytes(gpu: &GpuDetail) -> Option<u64> {
    let others = gpu.memory_used_bytes.map_or(0, |used| used.saturating_sub(gpu.resident.bytes));
    let room = gpu.memory_bytes.map(|memory| memory.saturating_sub(others));
    room.or(Some(gpu.resident.bytes)).filter(|room| *room > 0)
}

/// Whether all managed memory of a process would find room, were it alone; `None` if that is not known.
pub(crate) fn fits_alone(process: &Process, gpu: Option<&GpuDetail>) -> Option<bool> {
    Some(process.managed_bytes? <= room_bytes(gpu?)?)
}
