//! Memory of the tests: a buffer, whose granules may have to be settled first.

#![allow(dead_code, unreachable_pub, reason = "each test takes what it needs")]
#![expect(unsafe_code, reason = "the interpreter's memory is a trait that is unsafe to implement")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use ptx::{
    Counts, GRANULE_BYTES, Kernel, KernelError, Launch, Memory, MemoryFault, Miss, Module, Ptx, WarpAccess, Window,
};

/// First global address.
pub const BASE: u64 = 0x2000_0000_0000;

/// What a miss is answered with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Nothing misses.
    Resident,
    Park,
    Remote,
    Go,
}

/// Buffer at [`BASE`].
pub struct Buffer {
    bytes: Vec<u64>,
    permissions: Vec<AtomicU8>,
    answer: Answer,
    missed: Vec<(u64, u8)>,
    used: u64,
    pub printed: String,
    pub parks: u32,
}

impl Buffer {
    pub fn new(bytes: u64, answer: Answer) -> Self {
        let granules = bytes.div_ceil(GRANULE_BYTES);
        let permission = if answer == Answer::Resident { u8::MAX } else { 0 };
        Self {
            bytes: vec![0; (granules * GRANULE_BYTES / 8) as usize],
            permissions: (0..granules).map(|_| AtomicU8::new(permission)).collect(),
            answer,
            missed: Vec::new(),
            used: 0,
            printed: String::new(),
            parks: 0,
        }
    }

    /// Takes memory, and returns its address.
    pub fn reserve(&mut self, bytes: u64) -> u64 {
        let address = BASE + self.used;
        self.used = (self.used + bytes).next_multiple_of(256);
        assert!(self.used <= self.bytes.len() as u64 * 8, "the buffer is too small");
        address
    }

    pub fn put<T: Copy>(&mut self, values: &[T]) -> u64 {
        let address = self.reserve(size_of_val(values) as u64);
        self.write(address, values);
        address
    }

    pub fn write<T: Copy>(&mut self, address: u64, values: &[T]) {
        let to = self.pointer(address, size_of_val(values)).cast::<T>();
        // SAFETY: `pointer` checks that the buffer has so many bytes there.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), to, values.len()) };
    }

    pub fn get<T: Copy + Default>(&mut self, address: u64, number: usize) -> Vec<T> {
        let mut values = vec![T::default(); number];
        let from = self.pointer(address, size_of_val(values.as_slice())).cast::<T>();
        // SAFETY: `pointer` checks that the buffer has so many bytes there.
        unsafe { std::ptr::copy_nonoverlapping(from, values.as_mut_ptr(), number) };
        values
    }

    fn pointer(&mut self, address: u64, bytes: usize) -> *mut u8 {
        let offset = (address - BASE) as usize;
        assert!(offset + bytes <= self.bytes.len() * 8, "beyond the buffer");
        self.bytes.as_mut_ptr().cast::<u8>().wrapping_add(offset)
    }
}

// SAFETY: The window is the buffer, and nothing beyond is permitted.
unsafe impl Memory for Buffer {
    fn window(&self) -> Window {
        Window {
            base: BASE,
            bytes: self.bytes.len() as u64 * 8,
            offset: (self.bytes.as_ptr() as u64).wrapping_sub(BASE),
            permissions: self.permissions.as_ptr(),
        }
    }

    fn miss(&mut self, access: &WarpAccess<'_>) -> Result<Miss, MemoryFault> {
        let end = BASE + self.bytes.len() as u64 * 8;
        if let Some(&address) = access.addresses.iter().find(|&&address| !(BASE..end).contains(&address)) {
            return Err(MemoryFault { address });
        }
        match self.answer {
            Answer::Resident => Err(MemoryFault { address: access.addresses[0] }),
            Answer::Remote => Ok(Miss::Remote),
            Answer::Go => Ok(Miss::Go),
            Answer::Park => {
                self.parks += 1;
                // The first and the last granule that lack it: a warp that touches several parks several times.
                let permission = access.access.permission();
                let lacks = |address: &&u64| {
                    let held = &self.permissions[((**address - BASE) / GRANULE_BYTES) as usize];
                    held.load(Ordering::Acquire) & permission == 0
                };
                let mut lacking = access.addresses.iter().filter(lacks);
                for address in lacking.next().into_iter().chain(lacking.next_back()) {
                    self.missed.push((*address, permission));
                }
                assert!(access.parked < 64, "a warp parks without end");
                Ok(Miss::Park)
            }
        }
    }

    fn settle(&mut self) -> Result<(), MemoryFault> {
        for (address, permission) in self.missed.drain(..) {
            self.permissions[((address - BASE) / GRANULE_BYTES) as usize].fetch_or(permission, Ordering::Release);
        }
        Ok(())
    }

    fn load(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryFault> {
        bytes.copy_from_slice(&self.get::<u8>(address, bytes.len()));
        Ok(())
    }

    fn store(&mut self, address: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.write(address, bytes);
        Ok(())
    }

    fn update(&mut self, address: u64, bytes: u32, change: &mut dyn FnMut(u64) -> u64) -> Result<u64, MemoryFault> {
        if bytes == 4 {
            let old = u64::from(self.get::<u32>(address, 1)[0]);
            self.write(address, &[change(old) as u32]);
            return Ok(old);
        }
        let old = self.get::<u64>(address, 1)[0];
        self.write(address, &[change(old)]);
        Ok(old)
    }

    fn print(&mut self, text: &str) {
        self.printed.push_str(text);
    }
}

/// Loads texts into a buffer.
pub fn load(texts: &[&str], buffer: &mut Buffer) -> Module {
    let texts = texts.iter().map(|text| Ptx::parse(text).expect("the text parses")).collect();
    let linked = ptx::link(texts).expect("the texts link");
    let addresses: Vec<u64> = linked.variables().iter().map(|variable| buffer.reserve(variable.bytes)).collect();
    let module = linked.place(&addresses).expect("the functions compile");
    for (address, bytes) in module.initial_contents() {
        buffer.write(*address, bytes);
    }
    module
}

pub fn kernel(module: &Module, name: &str) -> Arc<Kernel> {
    Arc::clone(module.kernels().iter().find(|kernel| kernel.name() == name).expect("the kernel is there"))
}

/// Argument of a kernel.
#[derive(Clone, Copy)]
pub enum Argument {
    Long(u64),
    Int(i32),
    Float(f32),
}

pub fn arguments(kernel: &Kernel, values: &[Argument]) -> Vec<u8> {
    let mut bytes = vec![0; kernel.argument_bytes() as usize];
    assert_eq!(kernel.parameters().len(), values.len());
    for (parameter, value) in kernel.parameters().iter().zip(values) {
        let value = match value {
            Argument::Long(value) => value.to_le_bytes().to_vec(),
            Argument::Int(value) => value.to_le_bytes().to_vec(),
            Argument::Float(value) => value.to_le_bytes().to_vec(),
        };
        bytes[parameter.offset_bytes as usize..][..value.len()].copy_from_slice(&value);
    }
    bytes
}

/// Grid, block and dynamic shared memory of a launch.
pub struct Shape(pub [u32; 3], pub [u32; 3], pub u32);

pub fn launch(kernel: &Kernel, shape: &Shape, values: &[Argument], buffer: &mut Buffer) -> Result<Counts, KernelError> {
    let launch = Launch {
        grid: shape.0,
        block: shape.1,
        dynamic_shared_bytes: shape.2,
        arguments: arguments(kernel, values),
        resident_blocks: 4,
        ..Launch::default()
    };
    kernel.run(&launch, buffer)
}
