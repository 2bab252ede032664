//! Libraries and their kernels.

use std::{
    ffi::c_char,
    sync::{Arc, atomic::Ordering},
};

use cudarc::driver::sys::{CUdevice, CUdeviceptr, CUfunction, CUkernel, CUlibrary, CUmodule};

use super::{
    args::{Any, In, Out, Text, pointer, size, text},
    function::{attribute, parameter, set_attribute},
    functions,
    image::{Image, JitOptions, texts_of},
};
use crate::{
    Error, Result,
    driver::Driver,
    library::{Library, LibraryKernel},
};

fn of_handle(driver: &Driver, library: CUlibrary) -> Result<Arc<Library>> {
    driver.libraries.libraries.get(library.addr()).ok_or(Error::CUDA_ERROR_INVALID_HANDLE)
}

fn kernel_of(driver: &Driver, kernel: CUkernel) -> Result<Arc<LibraryKernel>> {
    driver.libraries.kernels.get(kernel.addr()).ok_or(Error::CUDA_ERROR_INVALID_HANDLE)
}

fn load(driver: &Driver, to: Out<CUlibrary>, texts: Result<Vec<String>>, options: JitOptions) -> Result<()> {
    if to.is_null() {
        return Err(Error::CUDA_ERROR_INVALID_VALUE);
    }
    let loaded = texts.map_err(Into::into).and_then(|texts| driver.libraries.create(texts));
    to.set_handle(options.finish(loaded)?.handle)
}

functions! {
    driver(driver) fn cuLibraryLoadData
        (library: Out<CUlibrary>, image: Image, names: In<u32>, values: Any, count: u32, _library_names: Any,
         _library_values: Any, _library_count: u32)
    {
        load(driver, library, image.texts(), JitOptions::new(count, names, values))
    }

    driver(driver) fn cuLibraryLoadFromFile
        (library: Out<CUlibrary>, path: Text, names: In<u32>, values: Any, count: u32, _library_names: Any,
         _library_values: Any, _library_count: u32)
    {
        let bytes = std::fs::read(path.read()?).map_err(|_| Error::CUDA_ERROR_FILE_NOT_FOUND)?;
        load(driver, library, texts_of(&bytes), JitOptions::new(count, names, values))
    }

    driver(driver) fn cuLibraryUnload(library: CUlibrary) {
        let library = of_handle(driver, library)?;
        driver.wait_for_all();
        driver.libraries.unload(&driver.machine, &driver.modules, &library);
        Ok(())
    }

    driver(driver) fn cuLibraryGetKernel(kernel: Out<CUkernel>, library: CUlibrary, name: Text) {
        let (library, name) = (of_handle(driver, library)?, name.read()?);
        let found = library.kernels().iter().find(|kernel| kernel.kernel.name() == name);
        kernel.set_handle(found.ok_or(Error::CUDA_ERROR_NOT_FOUND)?.handle)
    }

    driver(driver) fn cuLibraryGetKernelCount(count: Out<u32>, library: CUlibrary) {
        count.set(u32::try_from(of_handle(driver, library)?.kernels().len()).unwrap_or(u32::MAX))
    }

    driver(driver) fn cuLibraryEnumerateKernels(kernels: Out<CUkernel>, count: u32, library: CUlibrary) {
        let library = of_handle(driver, library)?;
        let places = library.kernels().iter().take(usize::try_from(count).unwrap_or(0)).enumerate();
        places.into_iter().try_for_each(|(at, kernel)| kernels.set_at(at, pointer(kernel.handle)))
    }

    context(driver, context) fn cuLibraryGetModule(module: Out<CUmodule>, library: CUlibrary) {
        module.set_handle(of_handle(driver, library)?.module(&driver.machine, &driver.modules, context.owner())?.handle)
    }

    context(driver, context) fn cuLibraryGetGlobal
        (address: Out<CUdeviceptr>, bytes: Out<usize>, library: CUlibrary, name: Text)
    {
        let variable = of_handle(driver, library)?.module(&driver.machine, &driver.modules, context.owner())?.variable(&name.read()?);
        let (at, length) = variable.ok_or(Error::CUDA_ERROR_NOT_FOUND)?;
        address.set_if_any(at);
        bytes.set_if_any(size(length));
        Ok(())
    }

    context(driver, context) fn cuLibraryGetManaged
        (address: Out<CUdeviceptr>, bytes: Out<usize>, library: CUlibrary, name: Text)
    {
        let module = of_handle(driver, library)?.module(&driver.machine, &driver.modules, context.owner())?;
        let (at, length) = module.managed_variable(&name.read()?).ok_or(Error::CUDA_ERROR_NOT_FOUND)?;
        address.set_if_any(at);
        bytes.set_if_any(size(length));
        Ok(())
    }

    context(driver, context) fn cuKernelGetFunction(function: Out<CUfunction>, kernel: CUkernel) {
        function.set_handle(driver.function(&context, kernel.addr())?.handle)
    }

    driver(driver) fn cuKernelGetLibrary(library: Out<CUlibrary>, kernel: CUkernel) {
        library.set_handle(kernel_of(driver, kernel)?.library)
    }

    driver(driver) fn cuKernelGetName(name: Out<*const c_char>, kernel: CUkernel) {
        name.set(text(&kernel_of(driver, kernel)?.name))
    }

    driver(driver) fn cuKernelGetParamInfo(kernel: CUkernel, at: usize, offset: Out<usize>, bytes: Out<usize>) {
        parameter(&kernel_of(driver, kernel)?.kernel, at, offset, bytes)
    }

    driver(driver) fn cuKernelGetAttribute(value: Out<i32>, name: u32, kernel: CUkernel, _device: CUdevice) {
        let kernel = kernel_of(driver, kernel)?;
        value.set(attribute(driver, &kernel.kernel, &kernel.settings, name)?)
    }

    driver(driver) fn cuKernelSetAttribute(name: u32, value: i32, kernel: CUkernel, _device: CUdevice) {
        let kernel = kernel_of(driver, kernel)?;
        set_attribute(&kernel.kernel, &kernel.settings, name, value)?;
        for function in driver.modules.functions.all() {
            if Arc::ptr_eq(&function.kernel, &kernel.kernel) {
                function.settings.dynamic_shared_bytes.store(value, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    driver(driver) fn cuKernelSetCacheConfig(kernel: CUkernel, _config: u32, _device: CUdevice) {
        kernel_of(driver, kernel).map(|_| ())
    }
}
