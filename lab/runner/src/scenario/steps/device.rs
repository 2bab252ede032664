//! `device_alloc`, `device_free`: unmanaged memory of a GPU, as with `cudaMalloc`. If no memory is
//! free, the driver evicts.

use super::{Execution, Flow, Plan, Step, generate_list};
use crate::{
    dice::Dice,
    scenario::{
        Scope,
        size::{Bytes, MIB},
        table::{Fault, Table},
    },
};

pub(super) const DEVICE_ALLOC: super::Kind = super::Kind { key: "device_alloc", parse: alloc, weight: 4, generate };
pub(super) const DEVICE_FREE: super::Kind = super::Kind {
    key: "device_free",
    parse: free,
    // Weight 0: the generator of `device_alloc` adds a free for each allocation.
    weight: 0,
    generate: |_, _| None,
};

#[derive(Debug)]
struct Alloc {
    name: String,
    gpu: u32,
    bytes: u64,
}

#[derive(Debug)]
struct Free {
    name: String,
}

fn alloc(table: &mut Table<'_>, scope: &Scope<'_>) -> Result<Box<dyn Step>, Fault> {
    let size = table.take::<Bytes>("size")?.map(|size| size.0);
    let mib = table.take::<u64>("mib")?.map(|mib| mib.saturating_mul(MIB));
    let bytes = match (size, mib) {
        (Some(bytes), None) | (None, Some(bytes)) if bytes > 0 => bytes,
        _ => return Err("device_alloc needs one of size and mib, and more than 0".into()),
    };
    Ok(Box::new(Alloc { name: table.need("device_alloc")?, gpu: scope.gpu(table.take("gpu")?)?, bytes }))
}

fn free(table: &mut Table<'_>, _scope: &Scope<'_>) -> Result<Box<dyn Step>, Fault> {
    Ok(Box::new(Free { name: table.need("device_free")? }))
}

impl Step for Alloc {
    fn run(&self, on: &dyn Execution) -> anyhow::Result<Flow> {
        on.device_alloc(&self.name, self.gpu, self.bytes)?;
        Ok(Flow::Done)
    }

    fn not_simulated(&self) -> Option<&'static str> {
        Some("memory that is not managed")
    }
}

impl Step for Free {
    fn run(&self, on: &dyn Execution) -> anyhow::Result<Flow> {
        on.device_free(&self.name)?;
        Ok(Flow::Done)
    }

    fn not_simulated(&self) -> Option<&'static str> {
        Some("memory that is not managed")
    }
}

/// Generate an allocation, steps while it exists, and its free. In threads and repeats, the sum of
/// allocations could be too large.
fn generate(dice: &mut Dice, plan: &Plan<'_>) -> Option<String> {
    if plan.depth > 0 || plan.in_thread {
        return None;
    }
    let (mib, gpu) = (dice.between(1, 6), plan.gpu(dice));
    let nested = Plan { depth: 1, ..*plan };
    let meanwhile = generate_list(dice, &nested, 2).join(", ");
    let comma = if meanwhile.is_empty() { "" } else { ", " };
    Some(format!("{{ device_alloc = \"d\", mib = {mib}, gpu = {gpu} }}, {meanwhile}{comma}{{ device_free = \"d\" }}"))
}
