//! Which GPU a processor id of the driver's is.
//!
//! The driver shows a GPU in its procfs only while a process uses it, so what was seen is kept.

use std::{collections::BTreeMap, fs, path::Path};

use model::{Gpu, GpuUuid};

use crate::roots::Roots;

/// GPUs seen so far.
#[derive(Debug, Default)]
pub(crate) struct Gpus {
    seen: BTreeMap<u32, Gpu>,
}

impl Gpus {
    /// Looks again. `eightfold`: procfs counts eight ids a GPU where events count one (drivers up to 545).
    pub(crate) fn look(&mut self, roots: &Roots, eightfold: bool) {
        for (shown, uuid) in shown(&roots.proc.join("driver/nvidia-uvm/gpus")) {
            let id = if eightfold { shown.saturating_sub(1) / 8 + 1 } else { shown };
            let known = self.seen.get(&id).is_some_and(|gpu| gpu.uuid == Some(uuid) && gpu.name.is_some());
            if !known {
                self.seen.insert(id, Gpu { id, uuid: Some(uuid), name: product(roots, uuid) });
            }
        }
    }

    /// What is known of the GPUs seen, and of those that were counted on.
    pub(crate) fn with(&self, counted: impl Iterator<Item = u32>) -> BTreeMap<u32, Gpu> {
        let mut gpus: BTreeMap<u32, Gpu> = counted.map(|id| (id, Gpu { id, uuid: None, name: None })).collect();
        gpus.extend(self.seen.iter().map(|(id, gpu)| (*id, gpu.clone())));
        gpus
    }
}

/// Symbolic links named by number, to `UVM-GPU-<uuid>/<instance>` (`GPU-` from 565 on).
fn shown(folder: &Path) -> Vec<(u32, GpuUuid)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let id = entry.file_name().to_str()?.parse().ok().filter(|id| *id > 0)?;
            let target = fs::read_link(entry.path()).ok()?;
            let uuid = target.iter().find_map(|part| uuid(part.to_str()?))?;
            Some((id, uuid))
        })
        .collect()
}

/// The product's name, which nvidia.ko shows by PCI address.
fn product(roots: &Roots, wanted: GpuUuid) -> Option<String> {
    let entries = fs::read_dir(roots.proc.join("driver/nvidia/gpus")).ok()?;
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
    use super::*;
    use crate::roots::fake::Machine;

    const UUID: &str = "d802726c-df8d-a3c3-ec53-48bdec201c27";

    fn seen(machine: &Machine, eightfold: bool) -> BTreeMap<u32, Gpu> {
        let mut gpus = Gpus::default();
        gpus.look(&machine.roots, eightfold);
        gpus.with(std::iter::empty())
    }

    #[test]
    fn a_gpu_has_the_uuid_that_its_link_points_to_and_the_model_that_nvidia_shows_for_it() {
        let machine = Machine::new().with(
            "proc/driver/nvidia/gpus/0000:17:00.0/information",
            format!("Model: \t\t NVIDIA H200\nIRQ:   \t\t 24\nGPU UUID: \t GPU-{UUID}\n"),
        );
        machine.link("proc/driver/nvidia-uvm/gpus/9", &format!("UVM-GPU-{UUID}/0"));
        machine.write("proc/driver/nvidia-uvm/gpus/other/info", "");
        let gpus = seen(&machine, false);
        assert_eq!(gpus.keys().collect::<Vec<_>>(), [&9]);
        assert_eq!(gpus[&9].uuid.unwrap().to_string(), format!("GPU-{UUID}"));
        assert_eq!(gpus[&9].name.as_deref(), Some("NVIDIA H200"));
    }

    #[test]
    fn newer_drivers_leave_out_a_prefix() {
        let machine = Machine::new();
        machine.link("proc/driver/nvidia-uvm/gpus/1", &format!("GPU-{UUID}/0"));
        assert_eq!(seen(&machine, false)[&1].uuid.unwrap().to_string(), format!("GPU-{UUID}"));
    }

    #[test]
    fn older_drivers_show_eight_ids_a_gpu_where_events_have_one() {
        let machine = Machine::new();
        machine.link("proc/driver/nvidia-uvm/gpus/9", &format!("UVM-GPU-{UUID}/0"));
        assert_eq!(seen(&machine, true).keys().collect::<Vec<_>>(), [&2]);
    }

    #[test]
    fn a_gpu_is_remembered_when_nobody_uses_it_any_more() {
        let machine = Machine::new();
        machine.link("proc/driver/nvidia-uvm/gpus/1", &format!("UVM-GPU-{UUID}/0"));
        let mut gpus = Gpus::default();
        gpus.look(&machine.roots, false);
        machine.remove("proc/driver/nvidia-uvm/gpus");
        gpus.look(&machine.roots, false);
        assert!(gpus.with(std::iter::empty())[&1].uuid.is_some());
    }

    #[test]
    fn a_gpu_that_was_counted_on_but_never_shown_is_listed_without_a_uuid() {
        assert_eq!(Gpus::default().with([1].into_iter()), [(1, Gpu { id: 1, uuid: None, name: None })].into());
    }

    #[test]
    fn what_is_not_a_uuid_is_passed_over() {
        for text in ["", "GPU-", "GPU-d802726c", "GPU-zz02726c-df8d-a3c3-ec53-48bdec201c27", UUID] {
            assert_eq!(uuid(text), None, "{text}");
        }
    }
}
