//! Types of the CUDA driver API that hooks read (`cuda.h` of CUDA 12.9 to 13.5).

/// `CUresult`. Any number, because later drivers may add codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct CuResult(pub(crate) i32);

impl CuResult {
    /// `CUDA_ERROR_NOT_READY`.
    pub(crate) const NOT_READY: Self = Self(600);

    /// Whether the call succeeded.
    pub(crate) const fn is_ok(self) -> bool {
        self.0 == 0
    }
}

/// Stream, or another handle of the driver.
pub(crate) type Handle = u64;

/// `CUmemLocation`, which is passed in one register: type, id.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Location {
    kind: u32,
    id: i32,
}

impl Location {
    /// None, as for advice without a location.
    const NONE: u32 = 0;
    const DEVICE: u32 = 1;
    const HOST: u32 = 2;
    const HOST_NODE: u32 = 3;
    /// Node of the calling thread.
    const CURRENT_HOST_NODE: u32 = 4;
    /// Part of a device's memory: the device is the id's lowest byte.
    const DEVICE_DOMAIN: u32 = 6;

    /// `CU_DEVICE_CPU`: the host, or no location.
    const CPU: i32 = -1;
    /// `CU_DEVICE_INVALID`: neither the host nor a device, or a type of a later driver.
    const OTHER: i32 = -2;

    /// Device; -1 for the host and its nodes, -2 for another location.
    pub(crate) const fn device(self) -> i32 {
        match self.kind {
            Self::DEVICE => self.id,
            Self::DEVICE_DOMAIN => self.id & 0xff,
            Self::NONE | Self::HOST | Self::HOST_NODE | Self::CURRENT_HOST_NODE => Self::CPU,
            _ => Self::OTHER,
        }
    }

    /// NUMA node of the host, if the location is one.
    pub(crate) const fn host_node(self) -> Option<u32> {
        if self.kind == Self::HOST_NODE && self.id >= 0 { Some(self.id.cast_unsigned()) } else { None }
    }

    /// Location of a device, or of the host for -1.
    pub(crate) const fn from_device(device: i32) -> Self {
        if device < 0 { Self { kind: Self::HOST, id: 0 } } else { Self { kind: Self::DEVICE, id: device } }
    }
}

/// `CUlaunchConfig`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) stream: Handle,
    // Attributes follow, which the driver alone reads.
}

/// `CUDA_LAUNCH_PARAMS` of `cuLaunchCooperativeKernelMultiDevice`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct LaunchParams {
    pub(crate) function: Handle,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) stream: Handle,
    pub(crate) kernel_params: *const *const u8,
}

/// `CUDA_KERNEL_NODE_PARAMS_v1`: a kernel node of a graph; the hooks use it for any launch.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct KernelNode {
    pub(crate) function: Handle,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    /// A pointer to each argument.
    pub(crate) kernel_params: *const *const u8,
    /// Alternatively a list of keys and values, with a buffer of all arguments.
    pub(crate) extra: *const usize,
}

/// `CUDA_KERNEL_NODE_PARAMS_v2`: a kernel of a library in place of the function.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct KernelNodeV2 {
    pub(crate) v1: KernelNode,
    pub(crate) kernel: Handle,
    pub(crate) context: Handle,
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct FillNode {
    pub(crate) address: u64,
    pub(crate) pitch_bytes: usize,
    pub(crate) value: u32,
    pub(crate) unit_bytes: u32,
    pub(crate) width: usize,
    pub(crate) rows: usize,
}

/// `CUgraphNodeParams`: kind of the node, and its parameters.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct NodeParams {
    kind: u32,
    reserved: [u32; 3],
    parameters: [u64; 29],
}

/// Parameters of a node, by its kind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Node {
    Kernel(*const KernelNodeV2),
    Copy(*const Copy3d),
    Fill(*const FillNode),
    /// A batch of copies, which is not read.
    CopyBatch,
    /// Work that is not recorded.
    Other,
}

impl NodeParams {
    /// Parameters of a node. For each kind, they begin like those of its specific functions.
    pub(crate) const fn node(&self) -> Node {
        // Fields before the copy in `CUDA_MEMCPY_NODE_PARAMS`: flags, a reserved number, the
        // context.
        const COPY_OFFSET_BYTES: usize = 16;
        let parameters = (&raw const self.parameters).cast::<u8>();
        match self.kind {
            0 => Node::Kernel(parameters.cast()),
            1 => Node::Copy(parameters.wrapping_add(COPY_OFFSET_BYTES).cast()),
            2 => Node::Fill(parameters.cast()),
            14 => Node::CopyBatch,
            _ => Node::Other,
        }
    }
}

/// Source or destination of `CUDA_MEMCPY2D`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Side2d {
    x_bytes: usize,
    y: usize,
    kind: u32,
    host: u64,
    device: u64,
    array: Handle,
    pitch_bytes: usize,
}

/// `CUDA_MEMCPY2D`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Copy2d {
    pub(crate) from: Side2d,
    pub(crate) to: Side2d,
    pub(crate) width_bytes: usize,
    pub(crate) rows: usize,
}

/// Source or destination of `CUDA_MEMCPY3D`, or of `CUDA_MEMCPY3D_PEER`, in which the context is
/// not reserved.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Side3d {
    x_bytes: usize,
    y: usize,
    z: usize,
    lod: usize,
    kind: u32,
    host: u64,
    device: u64,
    array: Handle,
    context: Handle,
    pitch_bytes: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Copy3d {
    pub(crate) from: Side3d,
    pub(crate) to: Side3d,
    pub(crate) width_bytes: usize,
    pub(crate) rows: usize,
    pub(crate) planes: usize,
}

/// `CUmemcpy3DOperand`, as far as it is read: an array, or memory at an address.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Operand {
    kind: u32,
    /// Address, or handle of the array.
    value: u64,
    /// Pitches and location, or offsets in the array.
    rest: [u64; 3],
}

impl Operand {
    /// Address; `None` for an array.
    pub(crate) const fn address(&self) -> Option<u64> {
        const POINTER: u32 = 1;
        if self.kind == POINTER { Some(self.value) } else { None }
    }
}

/// `CUDA_MEMCPY3D_BATCH_OP`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct BatchCopy {
    pub(crate) from: Operand,
    pub(crate) to: Operand,
    /// Width, height and depth in elements, which are bytes unless one side is an array.
    pub(crate) extent: [usize; 3],
    order: u32,
    flags: u32,
}

/// `CU_MEMORYTYPE_HOST` and `CU_MEMORYTYPE_ARRAY`; other types have a device address.
const HOST: u32 = 1;
const ARRAY: u32 = 3;

/// Address of the first byte; 0 for an array, which has no address.
fn address(kind: u32, (host, device): (u64, u64), offset_bytes: usize) -> u64 {
    let base = match kind {
        HOST => host,
        ARRAY => return 0,
        _ => device,
    };
    base.wrapping_add(offset_bytes as u64)
}

impl Side2d {
    /// Address of the first byte.
    pub(crate) fn address(&self) -> u64 {
        let offset_bytes = self.y.wrapping_mul(self.pitch_bytes).wrapping_add(self.x_bytes);
        address(self.kind, (self.host, self.device), offset_bytes)
    }
}

impl Side3d {
    /// Address of the first byte.
    pub(crate) fn address(&self) -> u64 {
        let rows = self.z.wrapping_mul(self.height).wrapping_add(self.y);
        address(self.kind, (self.host, self.device), rows.wrapping_mul(self.pitch_bytes).wrapping_add(self.x_bytes))
    }
}

/// `CU_LAUNCH_PARAM_END`: key that ends the list `extra` of a launch.
pub(crate) const LAUNCH_PARAM_END: usize = 0;
/// `CU_LAUNCH_PARAM_BUFFER_POINTER`: key of the address of the argument buffer.
pub(crate) const LAUNCH_PARAM_BUFFER_POINTER: usize = 1;
/// `CU_LAUNCH_PARAM_BUFFER_SIZE`: key of a pointer to the buffer's size in bytes.
pub(crate) const LAUNCH_PARAM_BUFFER_SIZE: usize = 2;

/// `CU_STREAM_PER_THREAD`: default stream of the calling thread; stream 0 of functions whose names
/// end with `_ptds` or `_ptsz`.
pub(crate) const PER_THREAD_STREAM: Handle = 2;
/// `CU_STREAM_LEGACY`: legacy default stream; stream 0 of all other functions.
pub(crate) const LEGACY_STREAM: Handle = 1;

#[cfg(test)]
mod tests {
    use core::mem::offset_of;

    use super::*;

    #[test]
    fn location_is_a_device_the_host_or_neither() {
        let location = |kind, id| Location { kind, id };
        let read = |kind, id| (location(kind, id).device(), location(kind, id).host_node());
        assert_eq!(read(1, 3), (3, None));
        assert_eq!(read(2, 9), (-1, None), "the id of the host is ignored");
        assert_eq!(read(3, 2), (-1, Some(2)), "a NUMA node");
        assert_eq!(read(4, 2), (-1, None), "the thread's node, whose number is not in the call");
        assert_eq!(read(0, 7), (-1, None), "advice without a location");
        assert_eq!(read(5, -2), (-2, None), "a location that is not visible");
        assert_eq!(read(6, 0x0103), (3, None), "domain 1 of device 3");
        assert_eq!(read(7, 0), (-2, None), "a type of a later driver");
    }

    #[test]
    fn structures_have_the_layout_of_cuda_h() {
        assert_eq!(size_of::<Location>(), 8);
        assert_eq!((size_of::<Operand>(), offset_of!(Operand, value)), (40, 8));
        assert_eq!((size_of::<BatchCopy>(), offset_of!(BatchCopy, to), offset_of!(BatchCopy, extent)), (112, 40, 80));
        assert_eq!((size_of::<Copy2d>(), size_of::<Copy3d>()), (128, 200));
        assert_eq!((size_of::<KernelNode>(), size_of::<KernelNodeV2>(), size_of::<NodeParams>()), (56, 72, 248));
    }
}
