//! Streams.

use std::{
    cell::Cell,
    sync::{Arc, PoisonError},
};

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUevent, CUgraph, CUgraphNode, CUstream, CUstreamCallback, CUstreamCaptureStatus as Status,
};
use serde_json::json;

use super::{
    args::{Any, Out, pointer},
    context::PRIORITIES,
    enter, functions,
};
use crate::{
    Error, Result,
    backend::Origin,
    context::Context,
    driver::Driver,
    graph::{Capture, Content, Node},
    host::Callback,
    operation::Operation,
    stream::{Order, Stream},
};

thread_local! {
    /// Which calls of the thread other threads' captures forbid, of `CUstreamCaptureMode`: kept and logged
    /// alone, as nothing is forbidden here.
    static CAPTURE_MODE: Cell<u32> = const { Cell::new(0) };
}

/// `CU_STREAM_LEGACY`.
const LEGACY: usize = 1;
/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: usize = 2;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;

/// Stream of a handle, with its context.
pub(super) fn resolve(
    driver: &Driver,
    context: &Arc<Context>,
    stream: CUstream,
) -> Result<(Arc<Context>, Arc<Stream>)> {
    match stream.addr() {
        0 => Ok((Arc::clone(context), default(context))),
        LEGACY => Ok((Arc::clone(context), Arc::clone(context.legacy()))),
        PER_THREAD => Ok((Arc::clone(context), context.per_thread())),
        handle => {
            let stream = driver.streams.get(handle).ok_or(Error::CUDA_ERROR_INVALID_HANDLE)?;
            let context = driver.contexts.get(stream.context).ok_or(Error::CUDA_ERROR_CONTEXT_IS_DESTROYED)?;
            context.check()?;
            Ok((context, stream))
        }
    }
}

/// Default stream of the call at work.
pub(super) fn default(context: &Context) -> Arc<Stream> {
    if enter::is_per_thread() { context.per_thread() } else { Arc::clone(context.legacy()) }
}

fn create(driver: &Driver, context: &Arc<Context>, to: Out<CUstream>, flags: u32, priority: i32) -> Result<()> {
    if to.is_null() || flags & !NON_BLOCKING != 0 {
        return Err(Error::CUDA_ERROR_INVALID_VALUE);
    }
    let order = if flags & NON_BLOCKING == 0 { Order::Blocking } else { Order::NonBlocking };
    let stream = context.create_stream(order, priority.clamp(PRIORITIES.1, PRIORITIES.0));
    driver.streams.add(stream.handle, Arc::clone(&stream));
    driver.machine.log.write("stream_create", stream.id, || json!({ "flags": flags, "priority": stream.priority }));
    to.set_handle(stream.handle)
}

/// What a stream tells about its capture: status, id, graph and nodes that the next comes behind.
fn capture_of(stream: &Stream) -> Option<Capture> {
    stream.capture.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn tell_capture(stream: &Stream, status: Out<u32>, id: Out<u64>, graph: Out<CUgraph>) -> Result<Option<Capture>> {
    let capture = capture_of(stream);
    let active = Status::CU_STREAM_CAPTURE_STATUS_ACTIVE as u32;
    let none = Status::CU_STREAM_CAPTURE_STATUS_NONE as u32;
    status.set(if capture.is_some() { active } else { none })?;
    if let Some(capture) = &capture {
        id.set_if_any(capture.graph.handle as u64);
        graph.set_if_any(pointer(capture.graph.handle));
    }
    Ok(capture)
}

functions! {
    context(driver, context) fn cuStreamCreate(stream: Out<CUstream>, flags: u32) {
        create(driver, &context, stream, flags, 0)
    }

    context(driver, context) fn cuStreamCreateWithPriority(stream: Out<CUstream>, flags: u32, priority: i32) {
        create(driver, &context, stream, flags, priority)
    }

    driver(driver) fn cuStreamDestroy_v2 [cuStreamDestroy](stream: CUstream) {
        let stream = driver.streams.remove(stream.addr()).ok_or(Error::CUDA_ERROR_INVALID_HANDLE)?;
        if let Some(context) = driver.contexts.get(stream.context) {
            context.leave_to_end(&stream);
        }
        driver.machine.log.write("stream_destroy", stream.id, || json!({}));
        Ok(())
    }

    context(driver, context) fn cuStreamSynchronize <cuStreamSynchronize_ptsz>(stream: CUstream) {
        let (context, stream) = resolve(driver, &context, stream)?;
        if capture_of(&stream).is_some() {
            return Err(Error::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        context.wait(&stream)?;
        driver.machine.log.write("sync", stream.id, || json!({ "what": "stream" }));
        Ok(())
    }

    context(driver, context) fn cuStreamQuery <cuStreamQuery_ptsz>(stream: CUstream) {
        let (context, stream) = resolve(driver, &context, stream)?;
        if !context.is_idle(&stream) {
            return Err(Error::CUDA_ERROR_NOT_READY);
        }
        context.check()
    }

    context(driver, context) fn cuStreamWaitEvent <cuStreamWaitEvent_ptsz>
        (stream: CUstream, event: CUevent, _flags: u32)
    {
        let (context, stream) = resolve(driver, &context, stream)?;
        let event = driver.events.get(event.addr()).ok_or(Error::CUDA_ERROR_INVALID_HANDLE)?;
        let mut capture = stream.capture.lock().unwrap_or_else(PoisonError::into_inner);
        match (event.captured(), capture.as_mut()) {
            (Some((graph, nodes)), None) => {
                *capture = Some(Capture { graph: driver.graphs.graph(graph)?, last: nodes, origin: false });
            }
            (Some((graph, nodes)), Some(own)) if graph == own.graph.handle => {
                let new: Vec<_> = nodes.into_iter().filter(|node| !own.last.contains(node)).collect();
                own.last.extend(new);
            }
            (Some(_), Some(_)) => return Err(Error::CUDA_ERROR_STREAM_CAPTURE_MERGE),
            (None, Some(_)) => return Err(Error::CUDA_ERROR_STREAM_CAPTURE_ISOLATION),
            (None, None) => {
                driver.machine.log.write("wait_event", stream.id, || json!({ "event": event.handle }));
                context.wait_for(&event, &stream);
            }
        }
        Ok(())
    }

    context(driver, context) fn cuStreamAddCallback <cuStreamAddCallback_ptsz>
        (stream: CUstream, callback: CUstreamCallback, argument: Any, flags: u32)
    {
        if flags != 0 {
            return Err(Error::CUDA_ERROR_INVALID_VALUE);
        }
        let (context, resolved) = resolve(driver, &context, stream)?;
        // SAFETY: the ABI demands that the function can be called until it was.
        let call = unsafe { Callback::new(callback, stream, argument.pointer()) };
        let call = call.ok_or(Error::CUDA_ERROR_INVALID_VALUE)?;
        driver.machine.log.write("host", resolved.id, || json!({}));
        context.submit(&resolved, Operation::Callback(call)).map(|_| ())
    }

    context(driver, context) fn cuStreamAttachMemAsync <cuStreamAttachMemAsync_ptsz>
        (stream: CUstream, address: u64, _bytes: usize, _flags: u32)
    {
        resolve(driver, &context, stream)?;
        driver.machine.memory.find(address).map(|_| ()).ok_or(Error::CUDA_ERROR_INVALID_VALUE)
    }

    context(driver, context) fn cuStreamGetPriority <cuStreamGetPriority_ptsz>(stream: CUstream, priority: Out<i32>) {
        priority.set(resolve(driver, &context, stream)?.1.priority)
    }

    context(driver, context) fn cuStreamGetFlags <cuStreamGetFlags_ptsz>(stream: CUstream, flags: Out<u32>) {
        flags.set(u32::from(resolve(driver, &context, stream)?.1.order == Order::NonBlocking))
    }

    context(driver, context) fn cuStreamGetId <cuStreamGetId_ptsz>(stream: CUstream, id: Out<u64>) {
        id.set(resolve(driver, &context, stream)?.1.id)
    }

    context(driver, context) fn cuStreamGetCtx <cuStreamGetCtx_ptsz>(stream: CUstream, of: Out<CUcontext>) {
        of.set_handle(resolve(driver, &context, stream)?.0.handle)
    }

    context(driver, context) fn cuStreamGetDevice <cuStreamGetDevice_ptsz>(stream: CUstream, device: Out<CUdevice>) {
        device.set(i32::try_from(resolve(driver, &context, stream)?.0.device).unwrap_or(0))
    }

    context(driver, context) fn cuStreamCopyAttributes <cuStreamCopyAttributes_ptsz>(to: CUstream, from: CUstream) {
        resolve(driver, &context, to)?;
        resolve(driver, &context, from).map(|_| ())
    }

    context(driver, context) fn cuStreamIsCapturing <cuStreamIsCapturing_ptsz>(stream: CUstream, status: Out<u32>) {
        let (_, stream) = resolve(driver, &context, stream)?;
        tell_capture(&stream, status, Any::null().out(), Any::null().out()).map(|_| ())
    }

    context(driver, context) fn cuStreamGetCaptureInfo <cuStreamGetCaptureInfo_ptsz>
        (stream: CUstream, status: Out<u32>, id: Out<u64>)
    {
        let (_, stream) = resolve(driver, &context, stream)?;
        tell_capture(&stream, status, id, Any::null().out()).map(|_| ())
    }

    context(driver, context) fn cuStreamGetCaptureInfo_v2 <cuStreamGetCaptureInfo_v2_ptsz>
        (stream: CUstream, status: Out<u32>, id: Out<u64>, graph: Out<CUgraph>, nodes: Out<*const CUgraphNode>,
         count: Out<usize>)
    {
        let (_, stream) = resolve(driver, &context, stream)?;
        let capture = tell_capture(&stream, status, id, graph)?;
        if capture.is_some() && !nodes.is_null() {
            return Err(Error::CUDA_ERROR_NOT_SUPPORTED);
        }
        count.set_if_any(capture.map_or(0, |capture| capture.last.len()));
        Ok(())
    }

    context(driver, context) fn cuStreamGetCaptureInfo_v3 <cuStreamGetCaptureInfo_v3_ptsz>
        (stream: CUstream, status: Out<u32>, id: Out<u64>, graph: Out<CUgraph>, nodes: Out<*const CUgraphNode>,
         _edges: Any, count: Out<usize>)
    {
        let (_, stream) = resolve(driver, &context, stream)?;
        let capture = tell_capture(&stream, status, id, graph)?;
        if capture.is_some() && !nodes.is_null() {
            return Err(Error::CUDA_ERROR_NOT_SUPPORTED);
        }
        count.set_if_any(capture.map_or(0, |capture| capture.last.len()));
        Ok(())
    }

    context(driver, context) fn cuStreamBeginCapture_v2 [cuStreamBeginCapture] <cuStreamBeginCapture_v2_ptsz>
        (stream: CUstream, _mode: u32)
    {
        let (_, stream) = resolve(driver, &context, stream)?;
        if stream.order == Order::Legacy {
            return Err(Error::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        let mut capture = stream.capture.lock().unwrap_or_else(PoisonError::into_inner);
        if capture.is_some() {
            return Err(Error::CUDA_ERROR_ILLEGAL_STATE);
        }
        *capture = Some(Capture { graph: driver.graphs.create(), last: Vec::new(), origin: true });
        Ok(())
    }

    context(driver, context) fn cuStreamEndCapture <cuStreamEndCapture_ptsz>(stream: CUstream, graph: Out<CUgraph>) {
        let (_, stream) = resolve(driver, &context, stream)?;
        let capture = capture_of(&stream).ok_or(Error::CUDA_ERROR_ILLEGAL_STATE)?;
        if !capture.origin {
            return Err(Error::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        }
        for other in driver.contexts.all().iter().flat_map(|context| context.streams()) {
            let mut state = other.capture.lock().unwrap_or_else(PoisonError::into_inner);
            if state.as_ref().is_some_and(|other| Arc::ptr_eq(&other.graph, &capture.graph)) {
                *state = None;
            }
        }
        driver.machine.log.write("capture", stream.id, || json!({ "graph": capture.graph.handle, "nodes": capture.graph.nodes().len() }));
        graph.set_handle(capture.graph.handle)
    }

    driver(driver) fn cuThreadExchangeStreamCaptureMode(mode: Out<u32>) {
        let new = mode.read()?;
        if new > 2 {
            return Err(Error::CUDA_ERROR_INVALID_VALUE);
        }
        driver.machine.log.write("capture_mode", 0, || json!({ "mode": new }));
        mode.set(CAPTURE_MODE.try_with(|mode| mode.replace(new)).unwrap_or(0))
    }
}

/// Records an event in a stream, or in the graph that is captured of it.
pub(super) fn record(driver: &Driver, context: &Context, stream: &Stream, event: CUevent) -> Result<()> {
    let event = driver.events.get(event.addr()).ok_or(Error::CUDA_ERROR_INVALID_HANDLE)?;
    let capture = stream.capture.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(capture) = capture.as_ref() {
        event.capture(Some((capture.graph.handle, capture.last.clone())));
        return Ok(());
    }
    drop(capture);
    event.capture(None);
    context.record(&event, stream);
    driver.machine.log.write("record_event", stream.id, || json!({ "event": event.handle }));
    Ok(())
}

/// Launches the nodes of an executable graph into a stream, for the call of a line of the log.
pub(super) fn launch_nodes(context: &Context, stream: &Stream, nodes: Vec<Node>, line: u64) -> Result<()> {
    for (place, node) in nodes.into_iter().filter(|node| node.enabled).enumerate() {
        match node.content {
            Content::Operation(operation) => {
                let origin = Origin { line, stream: stream.id, node: Some(place) };
                context.submit(stream, operation.of(origin))?;
            }
            Content::Record(event) => context.record(&event, stream),
            Content::Wait(event) => context.wait_for(&event, stream),
            Content::Child(_) => {}
        }
    }
    Ok(())
}
