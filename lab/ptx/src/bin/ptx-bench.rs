//! Thread-instructions per second of some kernels: `ptx-bench`, also in the lab's guest.

#![expect(unsafe_code, reason = "the interpreter's memory is a trait that is unsafe to implement")]
#![expect(clippy::print_stdout, reason = "it prints figures")]
#![expect(clippy::many_single_char_names, reason = "arrays are named as in the kernels")]

use std::error::Error;
use std::sync::atomic::AtomicU8;
use std::time::Instant;

use ptx::{GRANULE_BYTES, Launch, Memory, MemoryFault, Miss, Module, Ptx, WarpAccess, Window};

const TEXT: &str = include_str!("../../tests/kernels/kernels.ptx");
const BASE: u64 = 0x2000_0000_0000;
const BYTES: u64 = 64 << 20;

/// Resident memory of zeros.
struct Resident {
    words: Vec<u64>,
    permissions: Vec<AtomicU8>,
    used: u64,
}

// SAFETY: The window is the vector of words, all of whose granules are permitted.
unsafe impl Memory for Resident {
    fn window(&self) -> Window {
        let offset = (self.words.as_ptr() as u64).wrapping_sub(BASE);
        Window { base: BASE, bytes: BYTES, offset, permissions: self.permissions.as_ptr() }
    }
    fn miss(&mut self, access: &WarpAccess<'_>) -> Result<Miss, MemoryFault> {
        Err(MemoryFault { address: access.addresses.first().copied().unwrap_or_default() })
    }
    fn settle(&mut self) -> Result<(), MemoryFault> {
        Ok(())
    }
    fn load(&mut self, address: u64, _: &mut [u8]) -> Result<(), MemoryFault> {
        Err(MemoryFault { address })
    }
    fn store(&mut self, address: u64, _: &[u8]) -> Result<(), MemoryFault> {
        Err(MemoryFault { address })
    }
    fn update(&mut self, address: u64, _: u32, _: &mut dyn FnMut(u64) -> u64) -> Result<u64, MemoryFault> {
        Err(MemoryFault { address })
    }
    fn print(&mut self, text: &str) {
        print!("{text}");
    }
}

impl Resident {
    /// Takes memory for so many words of 32 bits.
    fn words(&mut self, number: u64) -> u64 {
        self.used += (number * 4).next_multiple_of(256);
        BASE + self.used - (number * 4).next_multiple_of(256)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut memory = Resident {
        words: vec![0x3f00_0000_3e80_0000; (BYTES / 8) as usize],
        permissions: (0..BYTES / GRANULE_BYTES).map(|_| AtomicU8::new(u8::MAX)).collect(),
        used: 0,
    };
    let linked = ptx::link(vec![Ptx::parse(TEXT)?])?;
    let addresses: Vec<u64> =
        linked.variables().iter().map(|variable| memory.words(variable.bytes.div_ceil(4))).collect();
    let module = linked.place(&addresses)?;
    let n = 1u64 << 20;
    let [a, b, c, d] = [(); 4].map(|()| memory.words(n));
    let f = |value: f32| u64::from(value.to_bits());
    let units = n / 32;
    measure(&module, &mut memory, "matmul", ([16, 16, 1], [16, 16, 1]), &[a, b, c, 256, 256, 256])?;
    measure(&module, &mut memory, "conv3x3_relu", ([2, 16, 64], [32, 4, 1]), &[a, b, b, c, 8, 64, 64, 16])?;
    let adam = [a, b, c, d, n, f(0.001), f(0.9), f(0.999), f(1e-8), 3];
    measure(&module, &mut memory, "adam", ([4096, 1, 1], [256, 1, 1]), &adam)?;
    measure(&module, &mut memory, "gelu", ([4096, 1, 1], [256, 1, 1]), &[a, c, n])?;
    measure(&module, &mut memory, "reduce", ([64, 1, 1], [256, 1, 1]), &[a, c, n])?;
    measure(&module, &mut memory, "histogram", ([64, 1, 1], [256, 1, 1]), &[a, c, d, n])?;
    measure(&module, &mut memory, "zvc_count", ([4096, 1, 1], [256, 1, 1]), &[a, c, d, units])?;
    // All words are packed into the first unit of the output: no offsets are needed for a
    // measurement.
    let offsets = memory.words(units);
    let zeros = vec![0u64; (units / 2) as usize];
    let at = ((offsets - BASE) / 8) as usize;
    if let Some(words) = memory.words.get_mut(at..at + zeros.len()) {
        words.copy_from_slice(&zeros);
    }
    measure(&module, &mut memory, "zvc_pack", ([4096, 1, 1], [256, 1, 1]), &[a, offsets, d, c, units])?;
    measure(&module, &mut memory, "zvc_unpack", ([4096, 1, 1], [256, 1, 1]), &[c, offsets, b, units])?;
    Ok(())
}

/// Runs a kernel and prints its figures.
fn measure(
    module: &Module,
    memory: &mut Resident,
    name: &str,
    (grid, block): ([u32; 3], [u32; 3]),
    values: &[u64],
) -> Result<(), Box<dyn Error>> {
    let kernel = module.kernels().iter().find(|kernel| kernel.name() == name).ok_or("no such kernel")?;
    let mut arguments = vec![0; kernel.argument_bytes() as usize];
    for (parameter, value) in kernel.parameters().iter().zip(values) {
        let bytes = arguments.iter_mut().skip(parameter.offset_bytes as usize).take(parameter.bytes as usize);
        bytes.zip(value.to_le_bytes()).for_each(|(place, byte)| *place = byte);
    }
    let launch = Launch { grid, block, arguments, resident_blocks: 1, ..Launch::default() };
    let begin = Instant::now();
    let counts = kernel.run(&launch, memory)?;
    let seconds = begin.elapsed().as_secs_f64();
    let millions = counts.thread_instructions as f64 / 1e6;
    println!(
        "{name:14} {millions:8.1} M thread-instructions {seconds:8.3} s {:8.1} M/s {:6.2} lanes per instruction",
        millions / seconds,
        counts.thread_instructions as f64 / counts.warp_instructions as f64
    );
    Ok(())
}
