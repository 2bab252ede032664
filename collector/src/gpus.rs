//! Which GPUs there are, and which processor id of the driver's each of them has.
//!
//! The driver shows a GPU in its procfs only while a process uses it, so what was seen is kept. The id goes to another GPU after that.

use std::{
    collections::BTreeMap,
    fs, io,
    path::Path,
    time::{Duration, Instant},
};

use model::{Gpu, GpuKey, GpuUuid};
use sys::Roots;

use crate::aside::{Aside, Pace};

/// Which GPU each processor id is at one moment, as the driver's procfs shows it.
pub(crate) type Links = BTreeMap<u32, GpuUuid>;

/// A product's name comes from the GPU's own driver, which may be asleep or stuck: one question at a time, and rarely again.
const PACE: Pace = Pace {
    retry_min: Duration::from_secs(1),
    retry_max: Duration::from_mins(10),
    answer_max: Duration::from_hours(24 * 365),
    running_max: 1,
};

/// GPUs seen so far.
#[derive(Debug)]
pub(crate) struct Gpus {
    seen: BTreeMap<GpuUuid, Ids>,
    names: Aside<GpuUuid, String>,
}

/// Processor ids of one GPU.
#[derive(Debug)]
struct Ids {
    first: u32,
    /// While no other GPU has it.
    last: Option<u32>,
}

impl Gpus {
    pub(crate) fn new(roots: &Roots) -> Self {
        let folder = roots.proc.join("driver/nvidia/gpus");
        Self { seen: BTreeMap::new(), names: Aside::new(PACE, move |uuid| product(&folder, *uuid)) }
    }

    /// Notes which GPUs the driver shows.
    pub(crate) fn seen(&mut self, links: &Links) {
        for (id, uuid) in links {
            self.seen.entry(*uuid).or_insert(Ids { first: *id, last: None }).last = Some(*id);
        }
        for (uuid, ids) in &mut self.seen {
            ids.last = ids.last.filter(|id| links.get(id).is_none_or(|now| now == uuid));
        }
    }

    /// What is known of the GPUs seen, and of those that were counted on.
    pub(crate) fn with(&self, counted: impl Iterator<Item = GpuKey>) -> BTreeMap<GpuKey, Gpu> {
        let now = Instant::now();
        let seen = self.seen.iter().map(|(uuid, ids)| {
            let gpu =
                Gpu { id: ids.last, first_id: Some(ids.first), name: self.names.get(uuid, now), ..Gpu::default() };
            (GpuKey::Known(*uuid), gpu)
        });
        let mut gpus: BTreeMap<_, _> = seen.collect();
        for key in counted {
            let id = match key {
                // Whoever was counted on under its UUID was seen.
                GpuKey::Known(_) => None,
                GpuKey::Pending(id) | GpuKey::Unknown(id) => Some(id),
            };
            gpus.entry(key).or_insert(Gpu { id, first_id: id, name: None, ..Gpu::default() });
        }
        gpus
    }
}

/// Symbolic links named by number, to `UVM-GPU-<uuid>/<instance>` (`GPU-` from 565 on).
///
/// `eightfold`: procfs counts eight ids a GPU where events count one (drivers up to 545).
pub(crate) fn links(roots: &Roots, eightfold: bool) -> io::Result<Links> {
    let entries = match fs::read_dir(roots.proc.join("driver/nvidia-uvm/gpus")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Links::new()),
        entries => entries?,
    };
    let mut links = Links::new();
    for entry in entries {
        let entry = entry?;
        let Some(shown) = entry.file_name().to_str().and_then(|name| name.parse().ok()).filter(|id| *id > 0) else {
            continue;
        };
        let target = match fs::read_link(entry.path()) {
            // The GPU's last user has just gone.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            target => target?,
        };
        if let Some(uuid) = target.iter().find_map(|part| uuid(part.to_str()?)) {
            let id: u32 = shown;
            links.insert(if eightfold { id.saturating_sub(1) / 8 + 1 } else { id }, uuid);
        }
    }
    Ok(links)
}

/// The product's name, which nvidia.ko shows by PCI address.
fn product(folder: &Path, wanted: GpuUuid) -> Option<String> {
    let entries = fs::read_dir(folder).ok()?;
    entries.filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("information")).ok()).find_map(|text| {
        let value = |key: &str| {
            text.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix(':')).map(str::trim)
        };
        (uuid(value("GPU UUID")?)? == wanted).then(|| value("Model").map(str::to_owned))?
    })
}

/// `...GPU-` and 32 hexadecimal digits with dashes between them.
fn uuid(text: &str) -> Option<GpuUuid> {
    let (_, digits) = text.rsplit_once("GPU-")?;
    let digits: Vec<u8> =
        digits.chars().filter(|c| *c != '-').map(|c| u8::try_from(c.to_digit(16)?).ok()).collect::<Option<_>>()?;
    let mut uuid = [0; 16];
    if digits.len() != 2 * uuid.len() {
        return None;
    }
    for (byte, pair) in uuid.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair.iter().fold(0, |byte, digit| byte << 4 | digit);
    }
    Some(GpuUuid(uuid))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use sys::fake::Machine;

    const UUID: &str = "d802726c-df8d-a3c3-ec53-48bdec201c27";
    const CARD: GpuUuid =
        GpuUuid([0xd8, 0x02, 0x72, 0x6c, 0xdf, 0x8d, 0xa3, 0xc3, 0xec, 0x53, 0x48, 0xbd, 0xec, 0x20, 0x1c, 0x27]);
    const OTHER: GpuUuid = GpuUuid([7; 16]);

    fn with_link(id: u32, target: &str) -> Machine {
        let machine = Machine::new();
        machine.link(&format!("proc/driver/nvidia-uvm/gpus/{id}"), target);
        machine
    }

    fn list(gpus: &Gpus) -> BTreeMap<GpuKey, Gpu> {
        gpus.with(std::iter::empty())
    }

    #[test]
    fn a_processor_id_is_the_gpu_that_its_link_points_to() {
        let machine = with_link(9, &format!("UVM-GPU-{UUID}/0"));
        machine.write("proc/driver/nvidia-uvm/gpus/other/info", "");
        assert_eq!(links(&machine.roots, false).unwrap(), [(9, CARD)].into());
        assert_eq!(CARD.to_string(), format!("GPU-{UUID}"));
    }

    #[test]
    fn newer_drivers_leave_out_a_prefix() {
        assert_eq!(links(&with_link(1, &format!("GPU-{UUID}/0")).roots, false).unwrap(), [(1, CARD)].into());
    }

    #[test]
    fn older_drivers_show_eight_ids_a_gpu_where_events_have_one() {
        assert_eq!(links(&with_link(9, &format!("UVM-GPU-{UUID}/0")).roots, true).unwrap(), [(2, CARD)].into());
    }

    #[test]
    fn a_driver_without_a_folder_shows_no_gpu_and_one_that_cannot_be_read_is_an_error() {
        let machine = Machine::new();
        assert_eq!(links(&machine.roots, false).unwrap(), Links::new());
        machine.write("proc/driver/nvidia-uvm/gpus", "not a folder");
        assert!(links(&machine.roots, false).is_err());
    }

    #[test]
    fn a_gpu_is_remembered_with_its_last_id_when_nobody_uses_it_any_more() {
        let mut gpus = Gpus::new(&Machine::new().roots);
        gpus.seen(&[(1, CARD)].into());
        gpus.seen(&Links::new());
        assert_eq!(
            list(&gpus),
            [(GpuKey::Known(CARD), Gpu { id: Some(1), first_id: Some(1), name: None, ..Gpu::default() })].into()
        );
    }

    #[test]
    fn a_gpu_has_no_id_any_more_once_another_one_has_it() {
        let mut gpus = Gpus::new(&Machine::new().roots);
        gpus.seen(&[(1, CARD)].into());
        gpus.seen(&[(1, OTHER)].into());
        let ids: BTreeMap<_, _> = list(&gpus).into_iter().map(|(key, gpu)| (key, gpu.id)).collect();
        assert_eq!(ids, [(GpuKey::Known(CARD), None), (GpuKey::Known(OTHER), Some(1))].into());
        gpus.seen(&[(1, OTHER), (2, CARD)].into());
        let card = &list(&gpus)[&GpuKey::Known(CARD)];
        assert_eq!((card.id, card.first_id), (Some(2), Some(1)));
    }

    #[test]
    fn a_gpu_that_was_counted_on_but_never_shown_is_listed_without_a_uuid() {
        let gpus = Gpus::new(&Machine::new().roots).with([GpuKey::Unknown(1)].into_iter());
        assert_eq!(
            gpus,
            [(GpuKey::Unknown(1), Gpu { id: Some(1), first_id: Some(1), name: None, ..Gpu::default() })].into()
        );
    }

    #[test]
    fn a_products_name_is_read_aside_and_shown_once_it_is_there() {
        let machine = Machine::new().with(
            "proc/driver/nvidia/gpus/0000:17:00.0/information",
            format!("Model: \t\t NVIDIA H200\nIRQ:   \t\t 24\nGPU UUID: \t GPU-{UUID}\n"),
        );
        let mut gpus = Gpus::new(&machine.roots);
        gpus.seen(&[(1, CARD)].into());
        let name = || list(&gpus)[&GpuKey::Known(CARD)].name.clone();
        let deadline = Instant::now() + Duration::from_secs(10);
        while name().is_none() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(name().as_deref(), Some("NVIDIA H200"));
        // Once is enough.
        machine.remove("proc/driver");
        assert_eq!(name().as_deref(), Some("NVIDIA H200"));
    }

    #[test]
    fn what_is_not_a_uuid_is_passed_over() {
        for text in ["", "GPU-", "GPU-d802726c", "GPU-zz02726c-df8d-a3c3-ec53-48bdec201c27", UUID] {
            assert_eq!(uuid(text), None, "{text}");
        }
    }
}
