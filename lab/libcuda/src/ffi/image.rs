//! Images of modules: PTX, or what the linker makes of it.

use std::ffi::{CStr, c_void};

use cudarc::driver::sys::CUjit_option as J;

use super::args::{Any, In, Out};
use crate::{
    Error, Result,
    errors::complain,
    jit::LoadError,
    linker::{HEADER_BYTES, MAGIC, Options, decode},
};

/// First bytes of images of the GPU's own instructions: ELF, and containers of it.
const BINARIES: [[u8; 4]; 3] = [*b"\x7fELF", [0x50, 0xed, 0x55, 0xba], [0xb1, 0x43, 0x62, 0x46]];

/// Image that the caller passes, of as many bytes as its kind says.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Image(*const c_void);

impl Image {
    fn byte(self, at: usize) -> Result<u8> {
        Any::from_pointer(self.0.cast_mut().cast()).input::<u8>().at(at)
    }

    /// Whether it begins with these bytes, of which only the last may be 0.
    fn begins_with(self, bytes: &[u8]) -> Result<bool> {
        for (at, byte) in bytes.iter().enumerate() {
            if self.byte(at)? != *byte {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Texts of PTX in it.
    ///
    /// # Errors
    /// It is of another kind.
    pub(super) fn texts(self) -> Result<Vec<String>> {
        if self.begins_with(&MAGIC)? {
            let bytes = Any::from_pointer(self.0.cast_mut().cast()).input::<u8>();
            let total: Vec<u8> = (8..HEADER_BYTES).map(|at| bytes.at(at)).collect::<Result<_>>()?;
            let total = total.try_into().map_or(0, u64::from_le_bytes);
            let body: Vec<u8> =
                (HEADER_BYTES..usize::try_from(total).unwrap_or(0)).map(|at| bytes.at(at)).collect::<Result<_>>()?;
            return decode(&body).ok_or(Error::CUDA_ERROR_INVALID_IMAGE);
        }
        for binary in &BINARIES {
            if self.begins_with(binary)? {
                complain("an image of the GPU's own instructions does not run here: PTX is needed");
                return Err(Error::CUDA_ERROR_NO_BINARY_FOR_GPU);
            }
        }
        // SAFETY: the caller passes a text that ends with a NUL, as it is none of the other kinds.
        let text = unsafe { CStr::from_ptr(self.0.cast()) };
        let text = text.to_str().map_err(|_| Error::CUDA_ERROR_INVALID_IMAGE)?;
        Ok(vec![text.to_owned()])
    }
}

/// Texts of an image of known length, which need not end with a NUL.
pub(super) fn texts_of(bytes: &[u8]) -> Result<Vec<String>> {
    if bytes.starts_with(&MAGIC) {
        return bytes.get(HEADER_BYTES..).and_then(decode).ok_or(Error::CUDA_ERROR_INVALID_IMAGE);
    }
    if BINARIES.iter().any(|binary| bytes.starts_with(binary)) {
        return Err(Error::CUDA_ERROR_NO_BINARY_FOR_GPU);
    }
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let text = std::str::from_utf8(bytes.get(..end).unwrap_or_default());
    Ok(vec![text.map_err(|_| Error::CUDA_ERROR_INVALID_IMAGE)?.to_owned()])
}

/// Options of the compiler: its logs.
#[derive(Clone, Copy, Debug)]
pub(super) struct JitOptions {
    count: usize,
    names: In<u32>,
    values: Any,
}

impl JitOptions {
    /// Options as passed.
    pub(super) fn new(count: u32, names: In<u32>, values: Any) -> Self {
        Self { count: usize::try_from(count).unwrap_or(0), names, values }
    }

    /// Options for later calls, until which the program keeps them.
    pub(super) fn keep(self) -> Options {
        let address = |any: Any| any.pointer().expose_provenance();
        Options { count: self.count, names: address(self.names.any()), values: address(self.values) }
    }

    /// Options of an earlier call.
    pub(super) fn kept(options: Options) -> Self {
        let Options { count, names, values } = options;
        Self { count, names: Any::from_address(names).input(), values: Any::from_address(values) }
    }

    fn value(self, name: J) -> Result<Option<(usize, usize)>> {
        for at in 0..self.count {
            if self.names.at(at)? == name as u32 {
                return Ok(Some((at, self.values.input::<usize>().at(at)?)));
            }
        }
        Ok(None)
    }

    fn write(self, buffer: J, size: J, text: &str) -> Result<()> {
        let (Some((_, address)), Some((at, bytes))) = (self.value(buffer)?, self.value(size)?) else {
            return Ok(());
        };
        let bytes = bytes & 0xffff_ffff;
        let Some(room) = bytes.checked_sub(1).filter(|_| address != 0) else { return Ok(()) };
        let to: Out<u8> = Any::from_address(address).out();
        let written = text.len().min(room);
        text.bytes().take(written).chain([0]).enumerate().try_for_each(|(index, byte)| to.set_at(index, byte))?;
        self.values.out::<usize>().set_at(at, written)
    }

    /// Hands a result over, and the compiler's messages.
    ///
    /// # Errors
    /// The result's.
    pub(super) fn finish<T>(self, result: Result<T, LoadError>) -> Result<T> {
        self.log(&result)?;
        result.map_err(|error| error.code)
    }

    /// Hands the compiler's messages about a result over.
    ///
    /// # Errors
    /// A list of the options is null.
    pub(super) fn log<T>(self, result: &Result<T, LoadError>) -> Result<()> {
        let text = result.as_ref().err().map_or("", |error| error.text.as_str());
        self.write(J::CU_JIT_ERROR_LOG_BUFFER, J::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, text)?;
        self.write(J::CU_JIT_INFO_LOG_BUFFER, J::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, "")?;
        if let Some((at, _)) = self.value(J::CU_JIT_WALL_TIME)? {
            self.values.out::<usize>().set_at(at, 0)?;
        }
        Ok(())
    }
}
