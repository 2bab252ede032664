//! Linking.

use std::sync::Arc;

use cudarc::driver::sys::{CUjitInputType as Input, CUlinkState};

use super::{
    args::{Any, In, Out, Text},
    functions,
    image::{JitOptions, texts_of},
};
use crate::{Error, Result, driver::Driver, handle, jit, linker::Link};

fn of_handle(driver: &Driver, link: CUlinkState) -> Result<Arc<Link>> {
    driver.links.get(link.addr()).ok_or(Error::CUDA_ERROR_INVALID_HANDLE)
}

fn add(driver: &Driver, link: CUlinkState, kind: u32, bytes: &[u8], options: JitOptions) -> Result<()> {
    let link = of_handle(driver, link)?;
    if kind != Input::CU_JIT_INPUT_PTX as u32 && kind != Input::CU_JIT_INPUT_CUBIN as u32 {
        return Err(Error::CUDA_ERROR_NO_BINARY_FOR_GPU);
    }
    let texts = texts_of(bytes).map_err(Into::into);
    let checked = texts.and_then(|texts| jit::check(&texts).map(|()| texts));
    // The logs' lengths are written once: they are the buffers' before.
    if checked.is_err() {
        JitOptions::kept(link.options).log(&checked)?;
    }
    link.add(options.finish(checked)?);
    Ok(())
}

functions! {
    context(driver, _) fn cuLinkCreate_v2 [cuLinkCreate]
        (count: u32, names: In<u32>, values: Any, state: Out<CUlinkState>)
    {
        if state.is_null() {
            return Err(Error::CUDA_ERROR_INVALID_VALUE);
        }
        let link = Arc::new(Link::new(handle::fresh(), JitOptions::new(count, names, values).keep()));
        let handle = link.handle;
        driver.links.add(handle, link);
        state.set_handle(handle)
    }

    context(driver, _) fn cuLinkAddData_v2 [cuLinkAddData]
        (state: CUlinkState, kind: u32, data: In<u8>, bytes: usize, _name: Any, count: u32, names: In<u32>, values: Any)
    {
        add(driver, state, kind, &data.list(bytes)?, JitOptions::new(count, names, values))
    }

    context(driver, _) fn cuLinkAddFile_v2 [cuLinkAddFile]
        (state: CUlinkState, kind: u32, path: Text, count: u32, names: In<u32>, values: Any)
    {
        let bytes = std::fs::read(path.read()?).map_err(|_| Error::CUDA_ERROR_FILE_NOT_FOUND)?;
        add(driver, state, kind, &bytes, JitOptions::new(count, names, values))
    }

    context(driver, _) fn cuLinkComplete(state: CUlinkState, image: Out<*const u8>, bytes: Out<usize>) {
        let link = of_handle(driver, state)?;
        JitOptions::kept(link.options).finish(jit::compile(&link.texts()))?;
        let (address, length) = link.complete();
        image.set(address)?;
        bytes.set_if_any(length);
        Ok(())
    }

    driver(driver) fn cuLinkDestroy(state: CUlinkState) {
        driver.links.remove(state.addr()).map(|_| ()).ok_or(Error::CUDA_ERROR_INVALID_HANDLE)
    }
}
