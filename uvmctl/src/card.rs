//! What a GPU has room for.

use model::api::{GpuDetail, Gpus, Process};

/// The GPU with this UUID.
pub(crate) fn with_uuid<'a>(gpus: &'a Gpus, uuid: Option<&str>) -> Option<&'a GpuDetail> {
    gpus.gpus.iter().find(|gpu| gpu.gpu.uuid.is_some() && gpu.gpu.uuid.as_deref() == uuid)
}

/// What managed memory there is room for beside everything else. Where the card's size is not known, what is there of all managed memory: as long
/// as memory is evicted, the card is full.
pub(crate) fn room_bytes(gpu: &GpuDetail) -> Option<u64> {
    let resident = gpu.resident.map(|resident| resident.bytes);
    let others = match (gpu.memory_used_bytes, resident) {
        // What is taken may be managed or not.
        (Some(_), None) => None,
        (used, resident) => Some(used.unwrap_or(0).saturating_sub(resident.unwrap_or(0))),
    };
    let room = gpu.memory_bytes.zip(others).map(|(memory, others)| memory.saturating_sub(others));
    room.or(resident).filter(|room| *room > 0)
}

/// Whether all managed memory of a process would find room, were it alone; `None` if that is not known.
pub(crate) fn fits_alone(process: &Process, gpu: Option<&GpuDetail>) -> Option<bool> {
    Some(process.managed_bytes? <= room_bytes(gpu?)?)
}
