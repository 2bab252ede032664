//! Events.

use std::sync::Arc;

use cudarc::driver::sys::{CUevent, CUevent_flags as Flags, CUstream};
use serde_json::json;

use super::{
    args::Out,
    functions,
    stream::{record, resolve},
};
use crate::{Error, Result, driver::Driver, event::Event, handle};

fn of_handle(driver: &Driver, event: CUevent) -> Result<Arc<Event>> {
    driver.events.get(event.addr()).ok_or(Error::CUDA_ERROR_INVALID_HANDLE)
}

functions! {
    context(driver, _) fn cuEventCreate(event: Out<CUevent>, flags: u32) {
        let interprocess = flags & Flags::CU_EVENT_INTERPROCESS as u32 != 0;
        if event.is_null() || interprocess || flags > 7 {
            return Err(Error::CUDA_ERROR_INVALID_VALUE);
        }
        let timing = flags & Flags::CU_EVENT_DISABLE_TIMING as u32 == 0;
        let created = Arc::new(Event::new(handle::fresh(), timing));
        let handle = created.handle;
        driver.events.add(handle, created);
        event.set_handle(handle)
    }

    driver(driver) fn cuEventDestroy_v2 [cuEventDestroy](event: CUevent) {
        driver.events.remove(event.addr()).map(|_| ()).ok_or(Error::CUDA_ERROR_INVALID_HANDLE)
    }

    context(driver, context) fn cuEventRecord <cuEventRecord_ptsz>(event: CUevent, stream: CUstream) {
        let (context, stream) = resolve(driver, &context, stream)?;
        record(driver, &context, &stream, event)
    }

    context(driver, context) fn cuEventRecordWithFlags <cuEventRecordWithFlags_ptsz>
        (event: CUevent, stream: CUstream, flags: u32)
    {
        if flags > 1 {
            return Err(Error::CUDA_ERROR_INVALID_VALUE);
        }
        let (context, stream) = resolve(driver, &context, stream)?;
        record(driver, &context, &stream, event)
    }

    context(driver, context) fn cuEventQuery(event: CUevent) {
        let event = of_handle(driver, event)?;
        if event.point().is_some_and(|point| !point.is_reached()) {
            return Err(Error::CUDA_ERROR_NOT_READY);
        }
        context.check()
    }

    context(driver, context) fn cuEventSynchronize(event: CUevent) {
        let event = of_handle(driver, event)?;
        if let Some(point) = event.point() {
            point.wait();
        }
        context.check()?;
        driver.machine.log.write("sync", 0, || json!({ "what": "event", "event": event.handle }));
        Ok(())
    }

    context(driver, _) fn cuEventElapsedTime [cuEventElapsedTime_v2]
        (milliseconds: Out<f32>, begin: CUevent, end: CUevent)
    {
        milliseconds.set(of_handle(driver, end)?.since(of_handle(driver, begin)?.as_ref())?)
    }
}
