//! Link meter of the software GPU, which counts its copy engines' copies and its programs' remote
//! accesses, in `/proc/driver/swgpu/gpus/UUID/link`: exact, for all processes together.

use std::fs;

use model::{GpuUuid, LinkBytes};
use sys::Roots;

pub(super) fn is_present(roots: &Roots) -> bool {
    roots.proc.join("driver/swgpu").is_dir()
}

pub(super) fn read(roots: &Roots, gpu: GpuUuid) -> Option<LinkBytes> {
    let file = roots.proc.join("driver/swgpu/gpus").join(gpu.to_string()).join("link");
    parse(&fs::read_to_string(file).ok()?)
}

fn parse(text: &str) -> Option<LinkBytes> {
    let figure = |name: &str| {
        let (_, value) = text.lines().filter_map(|line| line.split_once(':')).find(|(found, _)| *found == name)?;
        value.trim().parse::<u64>().ok()
    };
    let both = |copied, remote| figure(copied)?.checked_add(figure(remote)?);
    Some(LinkBytes {
        htod: both("copied_htod_bytes", "remote_htod_bytes")?,
        dtoh: both("copied_dtoh_bytes", "remote_dtoh_bytes")?,
    })
}

#[cfg(test)]
mod tests {
    use sys::fake::Machine;

    use super::*;

    const TEXT: &str =
        "copied_htod_bytes: 4096\ncopied_dtoh_bytes: 8192\nremote_htod_bytes: 32\nremote_dtoh_bytes: 64\n";

    #[test]
    fn copies_and_remote_accesses_count_alike() {
        assert_eq!(parse(TEXT), Some(LinkBytes { htod: 4128, dtoh: 8256 }));
        for broken in
            ["", "copied_htod_bytes: 1\n", &TEXT.replace("64", "many"), &TEXT.replace("32", &u64::MAX.to_string())]
        {
            assert_eq!(parse(broken), None, "{broken}");
        }
    }

    #[test]
    fn gpu_has_the_folder_of_its_uuid() {
        let gpu = GpuUuid([0xab; 16]);
        let machine = Machine::new();
        assert!(!is_present(&machine.roots));
        machine.write(&format!("proc/driver/swgpu/gpus/{gpu}/link"), TEXT);
        assert!(is_present(&machine.roots));
        assert_eq!(read(&machine.roots, gpu), Some(LinkBytes { htod: 4128, dtoh: 8256 }));
        assert_eq!(read(&machine.roots, GpuUuid([1; 16])), None);
    }
}
