//! Probes as fentry and fexit programs: the same instructions and maps, without kprobes.
//!
//! aya loads no programs on functions of modules, so that uvmd makes these calls itself. Such a
//! program may be preempted, unlike one at a kprobe: these disable preemption, by functions of the
//! kernel that Linux 6.10 added.

use std::{
    collections::{BTreeMap, HashSet},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use abi::attachment::KERNEL_FUNCTIONS;
use aya::{
    Ebpf,
    maps::{Map, MapData},
};
use aya_obj::{Object, generated::bpf_insn};
use sys::{
    bpf::{self, Instruction, LoadError, Tracing},
    btf::Btf,
};

use super::{
    OBJECT,
    errors::{chain, not_loaded, not_permitted, tail},
    table::{PROBES, Row},
};
use crate::refusal::Refusal;

/// Name of the driver's module.
const MODULE: &str = "nvidia_uvm";
/// Operation code of a call (`linux/bpf.h`).
const CALL: u8 = 0x85;
/// Source register of a call of a function of the kernel.
const KERNEL_FUNCTION: u8 = 2;

/// Type ids of functions: those that a driver has, of the probes', and those of the kernel that the
/// probes call.
pub(crate) struct Functions {
    of_driver: BTreeMap<&'static str, u32>,
    of_kernel: [(usize, u32); KERNEL_FUNCTIONS.len()],
}

impl Functions {
    /// Finds the functions in the types of the kernel and of the driver's module.
    pub(crate) fn find(kernel: &Btf<'_>, driver: Option<&[u8]>) -> Result<Self, Refusal> {
        let driver = driver.and_then(|file| Btf::parse_module(kernel, file).ok()).ok_or(Refusal::FentryTypes)?;
        let mut of_kernel = [(0, 0); KERNEL_FUNCTIONS.len()];
        for (found, (number, name)) in of_kernel.iter_mut().zip(KERNEL_FUNCTIONS) {
            *found = (number, kernel.id_of_function(name).ok_or(Refusal::FentryKernel)?);
        }
        let names = PROBES.iter().flat_map(|row| row.functions);
        Ok(Self {
            of_driver: names.filter_map(|name| Some((*name, driver.id_of_function(name)?))).collect(),
            of_kernel,
        })
    }
}

/// Loader of the programs.
pub(super) struct Loader<'a> {
    /// With the maps' descriptors in its instructions.
    object: Object,
    types: OwnedFd,
    functions: &'a Functions,
}

/// Loaded program, attached until its drop.
pub(super) struct Program {
    fd: OwnedFd,
    function: &'static str,
    link: Option<OwnedFd>,
}

impl<'a> Loader<'a> {
    /// Prepares the programs for the maps of a loaded object.
    pub(super) fn new(ebpf: &Ebpf, functions: &'a Functions) -> Result<Self, Refusal> {
        let types = match bpf::types_of_module(MODULE) {
            Ok(types) => types.ok_or(Refusal::FentryTypes)?,
            Err(error) if not_permitted(&error).is_some() => return Err(Refusal::FentryNotPermitted),
            Err(error) => return Err(not_loaded(&error)),
        };
        let mut object = Object::parse(OBJECT).map_err(|error| not_loaded(&error))?;
        let maps = std::mem::take(&mut object.maps);
        let placed = maps
            .iter()
            .filter_map(|(name, map)| Some((name.as_str(), data(ebpf.map(name)?)?.fd().as_fd().as_raw_fd(), map)));
        let sections: HashSet<_> = object.functions.keys().map(|(section, _)| *section).collect();
        object.relocate_maps(placed, &sections).map_err(|error| not_loaded(&error))?;
        object.relocate_calls(&sections).map_err(|error| not_loaded(&error))?;
        Ok(Self { object, types, functions })
    }

    /// Loads the program of a probe for the first of its functions that the driver has.
    pub(super) fn load(&self, row: &Row) -> Result<Program, Refusal> {
        let id_of = |function: &&'static str| Some((*function, *self.functions.of_driver.get(function)?));
        let (function, id) = row.functions.iter().find_map(id_of).ok_or(Refusal::NoFunction(row.probe.name()))?;
        let program = Tracing {
            name: row.program,
            instructions: &self.instructions(row.program)?,
            types: self.types.as_fd(),
            function: id,
            at_return: row.at_return(),
        };
        let fd = program.load().map_err(|error| match error {
            LoadError::Rejected { error, log } => Refusal::Load(format!("{function}: {error}: {}", tail(&log))),
            LoadError::Call(error) => not_loaded(&error),
        })?;
        Ok(Program { fd, function, link: None })
    }

    /// Instructions of a program, with calls of the kernel's functions.
    fn instructions(&self, program: &str) -> Result<Vec<Instruction>, Refusal> {
        let function =
            self.object.programs.get(program).and_then(|found| self.object.functions.get(&found.function_key()));
        let function = function.ok_or_else(|| Refusal::Load(format!("the object has no program {program}")))?;
        Ok(function.instructions.iter().map(|instruction| self.instruction(*instruction)).collect())
    }

    fn instruction(&self, instruction: bpf_insn) -> Instruction {
        let (code, mut source, mut immediate) = (instruction.code, instruction.src_reg(), instruction.imm);
        if code == CALL && source == 0 {
            let called = self.functions.of_kernel.iter().find(|(number, _)| usize::try_from(immediate) == Ok(*number));
            if let Some((_, id)) = called {
                (source, immediate) = (KERNEL_FUNCTION, id.cast_signed());
            }
        }
        let [off_0, off_1] = instruction.off.to_le_bytes();
        let [imm_0, imm_1, imm_2, imm_3] = immediate.to_le_bytes();
        [code, source << 4 | instruction.dst_reg(), off_0, off_1, imm_0, imm_1, imm_2, imm_3]
    }
}

impl Program {
    /// Attaches the program to its function.
    pub(super) fn attach(&mut self) -> Result<(), Refusal> {
        let link = bpf::attach_tracing(self.fd.as_fd()).map_err(|error| {
            not_permitted(&error).unwrap_or_else(|| Refusal::Attach { function: self.function, reason: chain(&error) })
        })?;
        self.link = Some(link);
        Ok(())
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Data of a map of one of the kinds that the probes have.
const fn data(map: &Map) -> Option<&MapData> {
    match map {
        Map::Array(data)
        | Map::HashMap(data)
        | Map::LruHashMap(data)
        | Map::PerCpuArray(data)
        | Map::PerCpuHashMap(data)
        | Map::RingBuf(data) => Some(data),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use abi::attachment::{PREEMPT_DISABLE, PREEMPT_ENABLE};

    use super::*;

    #[test]
    fn every_program_disables_preemption_by_the_functions_of_this_kernel() {
        let functions =
            Functions { of_driver: BTreeMap::new(), of_kernel: [(PREEMPT_DISABLE, 7), (PREEMPT_ENABLE, 8)] };
        let object = Object::parse(OBJECT).unwrap();
        let loader = Loader { object, types: tempfile::tempfile().unwrap().into(), functions: &functions };
        for row in PROBES {
            let instructions = loader.instructions(row.program).unwrap();
            let calls = |id: u8| {
                instructions.iter().filter(move |each| **each == [CALL, KERNEL_FUNCTION << 4, 0, 0, id, 0, 0, 0])
            };
            assert_eq!(calls(7).count(), 1, "{}", row.program);
            assert!(calls(8).count() >= 1, "{}", row.program);
        }
    }

    #[test]
    fn driver_without_types_has_no_fentry() {
        let kernel = sys::fake::small_kernel();
        let kernel = Btf::parse(&kernel).unwrap();
        assert!(matches!(Functions::find(&kernel, None), Err(Refusal::FentryTypes)));
        assert!(matches!(Functions::find(&kernel, Some(b"not BTF")), Err(Refusal::FentryTypes)));
    }
}
