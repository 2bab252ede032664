//! Modules.

use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUfunction, CUmodule};

use super::{
    args::{Any, In, Out, Text, pointer, size},
    functions,
    image::{Image, JitOptions, texts_of},
};
use crate::{Error, Result, context::Context, driver::Driver, module::Module};

fn of_handle(driver: &Driver, module: CUmodule) -> Result<Arc<Module>> {
    driver.modules.modules.get(module.addr()).ok_or(Error::CUDA_ERROR_INVALID_HANDLE)
}

fn load(
    driver: &Driver,
    context: &Context,
    to: Out<CUmodule>,
    texts: Result<Vec<String>>,
    options: JitOptions,
) -> Result<()> {
    if to.is_null() {
        return Err(Error::CUDA_ERROR_INVALID_VALUE);
    }
    let loaded =
        texts.map_err(Into::into).and_then(|texts| driver.modules.load(&driver.machine, context.owner(), &texts));
    to.set_handle(options.finish(loaded)?.handle)
}

fn no_options() -> JitOptions {
    JitOptions::new(0, Any::null().input(), Any::null())
}

functions! {
    context(driver, context) fn cuModuleLoadData(module: Out<CUmodule>, image: Image) {
        load(driver, &context, module, image.texts(), no_options())
    }

    context(driver, context) fn cuModuleLoadDataEx
        (module: Out<CUmodule>, image: Image, count: u32, names: In<u32>, values: Any)
    {
        load(driver, &context, module, image.texts(), JitOptions::new(count, names, values))
    }

    context(driver, context) fn cuModuleLoadFatBinary(module: Out<CUmodule>, image: Image) {
        load(driver, &context, module, image.texts(), no_options())
    }

    context(driver, context) fn cuModuleLoad(module: Out<CUmodule>, path: Text) {
        let bytes = std::fs::read(path.read()?).map_err(|_| Error::CUDA_ERROR_FILE_NOT_FOUND)?;
        load(driver, &context, module, texts_of(&bytes), no_options())
    }

    context(driver, _) fn cuModuleUnload(module: CUmodule) {
        let module = of_handle(driver, module)?;
        driver.wait_for_all();
        driver.modules.unload(&driver.machine, &module);
        Ok(())
    }

    context(driver, _) fn cuModuleGetFunction(function: Out<CUfunction>, module: CUmodule, name: Text) {
        let module = of_handle(driver, module)?;
        let found = module.function(&name.read()?).ok_or(Error::CUDA_ERROR_NOT_FOUND)?;
        function.set_handle(found.handle)
    }

    context(driver, _) fn cuModuleGetFunctionCount(count: Out<u32>, module: CUmodule) {
        count.set(u32::try_from(of_handle(driver, module)?.functions().len()).unwrap_or(u32::MAX))
    }

    context(driver, _) fn cuModuleEnumerateFunctions(functions: Out<CUfunction>, count: u32, module: CUmodule) {
        let module = of_handle(driver, module)?;
        let places = module.functions().iter().take(usize::try_from(count).unwrap_or(0)).enumerate();
        places.into_iter().try_for_each(|(at, function)| functions.set_at(at, pointer(function.handle)))
    }

    context(driver, _) fn cuModuleGetGlobal_v2
        (address: Out<CUdeviceptr>, bytes: Out<usize>, module: CUmodule, name: Text)
    {
        let variable = of_handle(driver, module)?.variable(&name.read()?);
        let (at, length) = variable.ok_or(Error::CUDA_ERROR_NOT_FOUND)?;
        address.set_if_any(at);
        bytes.set_if_any(size(length));
        Ok(())
    }

    driver(_) fn cuModuleGetLoadingMode(mode: Out<u32>) { mode.set(1) }
}
