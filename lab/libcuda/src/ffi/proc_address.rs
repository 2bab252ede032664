//! Functions by name.

use cudarc::driver::sys::{CUdriverProcAddress_flags as Flags, CUdriverProcAddressQueryResult as Query};

use super::{
    args::{In, Out, Text},
    enter, functions,
};
use crate::{Error, Result, functions as table, functions::Found};

fn find(symbol: Text, version: i32, flags: u64) -> Result<Found> {
    let name = symbol.read()?;
    if flags & !3 != 0 || flags == 3 {
        return Err(Error::CUDA_ERROR_INVALID_VALUE);
    }
    let thread = Flags::CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM as u64;
    let per_thread = flags & thread != 0 || (flags == 0 && enter::is_per_thread());
    Ok(table::find(&name, u32::try_from(version).unwrap_or(0), per_thread))
}

fn answer(found: Found, function: Out<*const ()>, status: Out<u32>) -> Result<()> {
    let (pointer, query) = match found {
        Found::Function(pointer) => (pointer, Query::CU_GET_PROC_ADDRESS_SUCCESS),
        Found::TooNew => (std::ptr::null(), Query::CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT),
        Found::None => (std::ptr::null(), Query::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND),
    };
    function.set(pointer)?;
    let told = !status.is_null();
    status.set_if_any(query as u32);
    if pointer.is_null() && !told { Err(Error::CUDA_ERROR_NOT_FOUND) } else { Ok(()) }
}

functions! {
    free() fn cuGetProcAddress_v2 <cuGetProcAddress_v2_ptsz>
        (symbol: Text, function: Out<*const ()>, version: i32, flags: u64, status: Out<u32>)
    {
        answer(find(symbol, version, flags)?, function, status)
    }

    free() fn cuGetProcAddress <cuGetProcAddress_ptsz>
        (symbol: Text, function: Out<*const ()>, version: i32, flags: u64)
    {
        match find(symbol, version, flags)? {
            Found::Function(pointer) => function.set(pointer),
            Found::TooNew | Found::None => {
                function.set(std::ptr::null())?;
                Err(Error::CUDA_ERROR_NOT_FOUND)
            }
        }
    }

    free() fn cuGetExportTable(table: Out<*const ()>, _id: In<u8>) {
        table.set_if_any(std::ptr::null());
        Err(Error::CUDA_ERROR_NOT_FOUND)
    }
}
