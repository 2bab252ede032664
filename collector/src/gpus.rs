//! GPUs of the node, and their processor ids of the driver.
//!
//! The driver's procfs has a GPU only while a process uses it, so GPUs seen are remembered. Another
//! GPU may get the id after that.
//!
//! Further facts come from NVML, or else from procfs: the product's name and address from
//! nvidia.ko, the size of its memory from nvidia-uvm.

use std::{
    collections::BTreeMap,
    fs, io,
    path::Path,
    time::{Duration, Instant},
};

use model::{Gpu, GpuKey, GpuSource, GpuUuid};
use sys::Roots;

use crate::{
    lookup_cache::{LookupCache, Pace},
    nvml::Nvml,
};

/// GPU of each processor id at one moment, by the driver's procfs.
pub(crate) type Links = BTreeMap<u32, GpuUuid>;

/// Procfs queries the GPU's driver, which may be asleep or stuck: one read at a time, and rarely
/// again.
const PACE: Pace = Pace {
    retry_min: Duration::from_secs(1),
    retry_max: Duration::from_mins(10),
    answer_max: Duration::from_hours(24 * 365),
    wanted: Duration::from_hours(24 * 365),
    running_max: 1,
    // If the driver hangs for one GPU, it may for all: one thread is enough to detect that.
    timeout: Duration::MAX,
};

/// Folder of the GPUs in use, in nvidia-uvm's procfs.
const SHOWN: &str = "driver/nvidia-uvm/gpus";

/// GPUs seen so far.
#[derive(Debug)]
pub(crate) struct Gpus {
    /// Last processor id of each, while no other GPU has it.
    seen: BTreeMap<GpuUuid, Option<u32>>,
    nvml: Nvml,
    products: LookupCache<GpuUuid, Product>,
    memory_bytes: LookupCache<GpuUuid, u64>,
}

/// Facts of nvidia.ko about a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Product {
    name: Option<String>,
    pci_address: Option<String>,
}

impl Gpus {
    pub(crate) fn new(roots: &Roots) -> Self {
        let products = roots.proc.join("driver/nvidia/gpus");
        let shown = roots.proc.join(SHOWN);
        Self {
            seen: BTreeMap::new(),
            nvml: Nvml::default(),
            products: LookupCache::new(PACE, move |uuid| product(&products, *uuid)),
            memory_bytes: LookupCache::new(PACE, move |uuid| memory_bytes(&shown, *uuid)),
        }
    }

    /// Records the GPUs that the driver lists.
    pub(crate) fn seen(&mut self, links: &Links) {
        for (id, uuid) in links {
            self.seen.insert(*uuid, Some(*id));
        }
        for (uuid, last) in &mut self.seen {
            *last = last.filter(|id| links.get(id).is_none_or(|now| now == uuid));
        }
        let now = Instant::now();
        self.nvml.ask(links.values().copied(), now);
        for uuid in links.values().filter(|uuid| self.nvml.facts(**uuid, now).is_none()) {
            // Listed only while in use: read now, for later.
            self.memory_bytes.get(uuid, now);
        }
    }

    /// Pauses reads while there is no driver.
    pub(crate) fn rest(&mut self) {
        self.nvml.ask([], Instant::now());
    }

    /// Facts about the GPUs seen, and about those with counts.
    pub(crate) fn with(&self, counted: impl Iterator<Item = GpuKey>) -> BTreeMap<GpuKey, Gpu> {
        let now = Instant::now();
        let seen = self.seen.iter().map(|(uuid, id)| (GpuKey::Known(*uuid), self.gpu(*uuid, *id, now)));
        let mut gpus: BTreeMap<_, _> = seen.collect();
        for key in counted {
            let id = match key {
                // A GPU with counts under its UUID was seen.
                GpuKey::Known(_) => None,
                GpuKey::Pending(id) | GpuKey::Unknown(id) => Some(id),
            };
            gpus.entry(key).or_insert(Gpu { id, name: None, ..Gpu::default() });
        }
        gpus
    }

    fn gpu(&self, uuid: GpuUuid, id: Option<u32>, now: Instant) -> Gpu {
        let gpu = Gpu { id, ..Gpu::default() };
        if let Some(facts) = self.nvml.facts(uuid, now) {
            return Gpu {
                name: facts.name,
                index: facts.index,
                pci_address: facts.pci_address,
                memory_bytes: facts.memory_bytes,
                memory_used_bytes: facts.memory_used_bytes,
                link_bytes_per_second: facts.link_bytes_per_second,
                source: Some(GpuSource::Nvml),
                ..gpu
            };
        }
        let product = self.products.get(&uuid, now);
        let memory_bytes = self.memory_bytes.get(&uuid, now);
        let source = (product.is_some() || memory_bytes.is_some()).then_some(GpuSource::Procfs);
        let Product { name, pci_address } = product.unwrap_or_default();
        Gpu { name, pci_address, memory_bytes, source, ..gpu }
    }
}

/// Symbolic links with numbers as names, to `UVM-GPU-<uuid>/<instance>` (`GPU-` from 565 on).
///
/// `eightfold`: procfs has eight ids per GPU and events one (drivers up to 545).
pub(crate) fn links(roots: &Roots, eightfold: bool) -> io::Result<Links> {
    let entries = match fs::read_dir(roots.proc.join(SHOWN)) {
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
            // The last process on the GPU has just exited.
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

/// Product of a GPU, which nvidia.ko lists by PCI address.
fn product(folder: &Path, wanted: GpuUuid) -> Option<Product> {
    let entries = fs::read_dir(folder).ok()?;
    entries.filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("information")).ok()).find_map(|text| {
        let value = |key: &str| {
            text.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix(':')).map(str::trim)
        };
        let of = |key| value(key).map(str::to_owned);
        (uuid(value("GPU UUID")?)? == wanted).then(|| Product { name: of("Model"), pci_address: of("Bus Location") })
    })
}

/// Size of a GPU's memory, which nvidia-uvm lists by UUID, or id, as long as a process uses the
/// GPU.
fn memory_bytes(folder: &Path, wanted: GpuUuid) -> Option<u64> {
    let entries = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut links = entries.filter_map(|path| Some((fs::read_link(&path).ok()?, path)));
    let is_its = |target: &Path| target.iter().any(|part| part.to_str().and_then(uuid) == Some(wanted));
    let (_, path) = links.find(|(target, _)| is_its(target))?;
    let text = fs::read_to_string(path.join("info")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("vidmem_size"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// UUID from `...GPU-` and 32 hexadecimal digits with dashes.
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
    fn processor_id_is_the_gpu_of_its_link() {
        let machine = with_link(9, &format!("UVM-GPU-{UUID}/0"));
        machine.write("proc/driver/nvidia-uvm/gpus/other/info", "");
        assert_eq!(links(&machine.roots, false).unwrap(), [(9, CARD)].into());
        assert_eq!(CARD.to_string(), format!("GPU-{UUID}"));
    }

    #[test]
    fn link_of_newer_drivers_has_no_uvm_prefix() {
        assert_eq!(links(&with_link(1, &format!("GPU-{UUID}/0")).roots, false).unwrap(), [(1, CARD)].into());
    }

    #[test]
    fn links_of_older_drivers_have_eight_ids_per_gpu() {
        assert_eq!(links(&with_link(9, &format!("UVM-GPU-{UUID}/0")).roots, true).unwrap(), [(2, CARD)].into());
    }

    #[test]
    fn missing_folder_has_no_gpus_and_an_unreadable_one_is_an_error() {
        let machine = Machine::new();
        assert_eq!(links(&machine.roots, false).unwrap(), Links::new());
        machine.write("proc/driver/nvidia-uvm/gpus", "not a folder");
        assert!(links(&machine.roots, false).is_err());
    }

    #[test]
    fn unused_gpu_keeps_its_last_id() {
        let mut gpus = Gpus::new(&Machine::new().roots);
        gpus.seen(&[(1, CARD)].into());
        gpus.seen(&Links::new());
        assert_eq!(list(&gpus), [(GpuKey::Known(CARD), Gpu { id: Some(1), name: None, ..Gpu::default() })].into());
    }

    #[test]
    fn reassigned_id_is_removed_from_its_former_gpu() {
        let mut gpus = Gpus::new(&Machine::new().roots);
        gpus.seen(&[(1, CARD)].into());
        gpus.seen(&[(1, OTHER)].into());
        let ids: BTreeMap<_, _> = list(&gpus).into_iter().map(|(key, gpu)| (key, gpu.id)).collect();
        assert_eq!(ids, [(GpuKey::Known(CARD), None), (GpuKey::Known(OTHER), Some(1))].into());
        gpus.seen(&[(1, OTHER), (2, CARD)].into());
        let card = &list(&gpus)[&GpuKey::Known(CARD)];
        assert_eq!(card.id, Some(2));
    }

    #[test]
    fn counted_gpu_without_a_link_is_listed_without_a_uuid() {
        let gpus = Gpus::new(&Machine::new().roots).with([GpuKey::Unknown(1)].into_iter());
        assert_eq!(gpus, [(GpuKey::Unknown(1), Gpu { id: Some(1), name: None, ..Gpu::default() })].into());
    }

    #[test]
    fn facts_come_from_procfs_in_the_background_without_nvml() {
        let machine = with_link(1, &format!("UVM-GPU-{UUID}/0"))
            .with(
                "proc/driver/nvidia/gpus/0000:17:00.0/information",
                format!(
                    "Model: \t\t NVIDIA H200\nIRQ:   \t\t 24\nGPU UUID: \t GPU-{UUID}\nBus Location: \t 0000:17:00.0\n"
                ),
            )
            .with(
                &format!("proc/driver/nvidia-uvm/gpus/UVM-GPU-{UUID}/0/info"),
                "GPU ID 1\nvidmem_start  0x0 (0 MBs)\nvidmem_size                            1073741824 (1024 MBs)\n",
            );
        let mut gpus = Gpus::new(&machine.roots);
        gpus.seen(&[(1, CARD)].into());
        let expected = Gpu {
            id: Some(1),

            name: Some("NVIDIA H200".to_owned()),
            index: None,
            pci_address: Some("0000:17:00.0".to_owned()),
            memory_bytes: Some(1 << 30),
            memory_used_bytes: None,
            link_bytes_per_second: None,
            source: Some(GpuSource::Procfs),
        };
        let shown = || list(&gpus)[&GpuKey::Known(CARD)].clone();
        let deadline = Instant::now() + Duration::from_mins(1);
        while shown() != expected && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(shown(), expected);
        // Once is enough.
        machine.remove("proc/driver");
        assert_eq!(shown(), expected);
    }

    #[test]
    fn missing_memory_size_is_unknown() {
        let machine = with_link(1, &format!("GPU-{UUID}/0"));
        let shown = machine.roots.proc.join(SHOWN);
        assert_eq!(memory_bytes(&shown, CARD), None);
        for text in ["", "vidmem_size", "vidmem_size x", "vidmem_size -1 (0 MBs)"] {
            machine.write(&format!("proc/driver/nvidia-uvm/gpus/GPU-{UUID}/0/info"), text);
            assert_eq!((memory_bytes(&shown, CARD), memory_bytes(&shown, OTHER)), (None, None), "{text}");
        }
    }

    #[test]
    fn invalid_uuids_are_ignored() {
        for text in ["", "GPU-", "GPU-d802726c", "GPU-zz02726c-df8d-a3c3-ec53-48bdec201c27", UUID] {
            assert_eq!(uuid(text), None, "{text}");
        }
    }
}
