//! Launches of kernels.

#![expect(unsafe_code, reason = "functions of the driver's ABI")]

use core::num::NonZeroU32;

use call_ring::{Dim3, Group, Kind, Target, token::Signature};

use crate::{
    cuda::{
        CuResult, Handle, KernelNode, LAUNCH_PARAM_BUFFER_POINTER, LAUNCH_PARAM_BUFFER_SIZE, LAUNCH_PARAM_END,
        LaunchConfig, LaunchParams,
    },
    driver,
    parameters::{Lookup, PARAMETER_BYTES_MAX, Parameter},
    plan::Launch,
    program::{read, read_at, read_word},
    real::hooks,
    recorder::{Recorder, record_success, recording},
};

/// 8-byte words of a parameter that are aligned within the arguments, with their offsets.
fn words(parameter: Parameter, value: *const u8) -> impl Iterator<Item = (u16, u64)> {
    let begin = usize::from(parameter.offset_bytes);
    let end = begin + usize::from(parameter.bytes);
    let first = begin.next_multiple_of(8);
    (first..end.saturating_sub(7)).step_by(8).filter_map(move |at| {
        let word = read_word(value, at - begin)?;
        Some((u16::try_from(at).ok()?, word))
    })
}

/// Buffer of all arguments, and its size.
fn buffer(extra: *const usize) -> Option<(*const u8, usize)> {
    const KEYS_MAX: usize = 8;
    let (mut address, mut bytes) = (0, 0);
    for at in 0..KEYS_MAX {
        match read_at(extra, 2 * at)? {
            LAUNCH_PARAM_BUFFER_POINTER => address = read_at(extra, 2 * at + 1)?,
            LAUNCH_PARAM_BUFFER_SIZE => bytes = read(read_at(extra, 2 * at + 1)? as *const usize)?,
            LAUNCH_PARAM_END => break,
            _ => return None,
        }
    }
    (address != 0).then_some((address as *const u8, bytes.min(PARAMETER_BYTES_MAX)))
}

/// Maximum number of parameters of a function: one per byte of arguments.
const PARAMETERS_MAX: usize = PARAMETER_BYTES_MAX;

/// Parameters of a function, as reported by the driver.
fn query(function: Handle) -> impl Iterator<Item = Parameter> + Clone {
    (0..PARAMETERS_MAX).map_while(move |at| driver::parameter(function, at))
}

/// Known parameters of a function. For a new function, queries them and records its name.
fn look_up(recorder: &Recorder, function: Handle) -> Lookup {
    let lookup = recorder.parameters.find(function);
    if lookup != Lookup::NotFound {
        return lookup;
    }
    recorder.record_function(function);
    recorder.parameters.insert(function, driver::reports_parameters().then(|| query(function)));
    recorder.parameters.find(function)
}

/// Prepares a launch: queries the name and the parameters of a new function, and makes the stream
/// wait for moves of a plan. The queries come before the launch, because they fail after a launch
/// that fails on the GPU.
fn prepare(
    recorder: &'static Recorder,
    function: Handle,
    is_per_thread: bool,
    launch: impl FnOnce() -> Option<(KernelNode, Handle)>,
) -> Launch<'static> {
    look_up(recorder, function);
    recorder.prepare_launch(is_per_thread, || launch().map(|(launch, stream)| (signature(&launch), stream)))
}

const fn size([x, y, z]: [u32; 3]) -> Dim3 {
    Dim3::new(x, y, z)
}

const fn signature(&KernelNode { function, grid, block, shared_bytes, .. }: &KernelNode) -> Signature {
    Signature::of_kernel(function, size(grid), size(block), shared_bytes)
}

/// Records a launch, or a kernel node of a graph.
pub(super) fn record(recorder: &Recorder, target: Target, launch: &KernelNode) {
    record_with(recorder, target, launch, None);
}

/// Records a prepared launch. Returns the hash of its pointers, if a plan needs it and they are
/// known.
fn record_with(
    recorder: &Recorder,
    target: Target,
    launch: &KernelNode,
    prepared: Option<&Launch<'static>>,
) -> Option<NonZeroU32> {
    let lookup = look_up(recorder, launch.function);
    let (grid, block) = (size(launch.grid).to_word(), size(launch.block).to_word());
    let number = prepared.map_or(0, Launch::number);
    let words = [launch.function, grid, block, u64::from(launch.shared_bytes) | u64::from(number) << 32];
    let mut pointers = None;
    recorder.record_work(Kind::Launch, 0, target, words, |group| {
        if prepared.is_some_and(Launch::is_planned) {
            group.enable_pointers_hash();
        }
        add_arguments(recorder, launch, lookup, group);
        pointers = group.pointers_hash();
    });
    pointers
}

fn add_arguments(recorder: &Recorder, launch: &KernelNode, lookup: Lookup, group: &mut Group<'static>) {
    let &KernelNode { function, kernel_params, extra, .. } = launch;
    if let Some((address, bytes)) = if kernel_params.is_null() { buffer(extra) } else { None } {
        let all = Parameter { offset_bytes: 0, bytes: u16::try_from(bytes).unwrap_or(u16::MAX) };
        recorder.add_pointers(group, words(all, address));
        return;
    }
    let add = |group: &mut Group<'static>, at: usize, parameter: Parameter| {
        if let Some(value) = read_at(kernel_params, at) {
            recorder.add_pointers(group, words(parameter, value));
        }
    };
    match lookup {
        Lookup::Found(layout) => {
            for at in 0..layout.len() {
                let Some(parameter) = recorder.parameters.get(layout, at) else {
                    // Part of the layout was overwritten: the next launch queries the driver.
                    recorder.parameters.invalidate();
                    group.set_arguments_unknown();
                    return;
                };
                add(group, at, parameter);
            }
        }
        // Rare: modules are unloaded meanwhile, or a layout found no room.
        Lookup::NotFound if driver::reports_parameters() => {
            query(function).enumerate().for_each(|(at, parameter)| add(group, at, parameter));
        }
        Lookup::NotFound | Lookup::NotReported => group.set_arguments_unknown(),
    }
}

/// Records a launch after it was made, and begins the plan's moves that follow it.
fn record_launched(
    result: CuResult,
    launch: &KernelNode,
    stream: Handle,
    is_per_thread: bool,
    prepared: Launch<'static>,
) -> CuResult {
    record_success(result, |recorder| {
        let pointers = record_with(recorder, recorder.target(stream, is_per_thread), launch, Some(&prepared));
        prepared.complete(pointers);
    })
}

fn launch_kernel(
    real: impl FnOnce() -> CuResult,
    launch: &KernelNode,
    stream: Handle,
    is_per_thread: bool,
) -> CuResult {
    let Some(recorder) = recording() else { return real() };
    let prepared = prepare(recorder, launch.function, is_per_thread, || Some((*launch, stream)));
    record_launched(real(), launch, stream, is_per_thread, prepared)
}

hooks! {
    cuLaunchKernel / cuLaunchKernel_ptsz = fn(
        function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared_bytes: u32, stream: Handle, kernel_params: *const *const u8, extra: *const usize,
    ) |real, per_thread| {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let launch = KernelNode { function, grid, block, shared_bytes, kernel_params, extra };
        launch_kernel(real, &launch, stream, per_thread)
    }

    cuLaunchKernelEx / cuLaunchKernelEx_ptsz = fn(
        config: *const LaunchConfig, function: Handle, kernel_params: *const *const u8, extra: *const usize,
    ) |real, per_thread| {
        // Dereferenced before the driver has validated it only while a plan is followed: such a
        // program has launched successfully before.
        let of_config = || read(config).map(|LaunchConfig { grid, block, shared_bytes, stream }| {
            (KernelNode { function, grid, block, shared_bytes, kernel_params, extra }, stream)
        });
        let Some(recorder) = recording() else { return real() };
        let prepared = prepare(recorder, function, per_thread, of_config);
        let result = real();
        if result.is_ok()
            && let Some((launch, stream)) = of_config()
        {
            record_launched(result, &launch, stream, per_thread, prepared);
        }
        result
    }

    cuLaunchCooperativeKernel / cuLaunchCooperativeKernel_ptsz = fn(
        function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared_bytes: u32, stream: Handle, kernel_params: *const *const u8,
    ) |real, per_thread| {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let launch = KernelNode { function, grid, block, shared_bytes, kernel_params, extra: core::ptr::null() };
        launch_kernel(real, &launch, stream, per_thread)
    }

    cuLaunchCooperativeKernelMultiDevice = fn(list: *const LaunchParams, count: u32, flags: u32) |real, per_thread| {
        let result = real();
        if result.is_ok() && let Some(recorder) = recording() {
            for at in 0..count as usize {
                if let Some(params) = read_at(list, at) {
                    let LaunchParams { function, grid, block, shared_bytes, stream, kernel_params } = params;
                    let extra = core::ptr::null();
                    let launch = KernelNode { function, grid, block, shared_bytes, kernel_params, extra };
                    // Not an op of a plan: waits cannot be added after the launch.
                    let prepared = prepare(recorder, function, per_thread, || None);
                    record_launched(result, &launch, stream, per_thread, prepared);
                }
            }
        }
        result
    }
}
