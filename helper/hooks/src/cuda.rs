//! Types of the CUDA driver API that hooks read (`cuda.h` of CUDA 12.9 and 13).

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
    const DEVICE: u32 = 1;
    const HOST: u32 = 2;

    /// Device, or -1 for the host and its nodes.
    pub(crate) const fn device(self) -> i32 {
        if self.kind == Self::DEVICE { self.id } else { -1 }
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

/// Source or destination of `CUDA_MEMCPY3D`.
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

/// `CUDA_MEMCPY3D`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Copy3d {
    pub(crate) from: Side3d,
    pub(crate) to: Side3d,
    pub(crate) width_bytes: usize,
    pub(crate) rows: usize,
    pub(crate) planes: usize,
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

/// Keys of the list `extra` of a launch: its end, the buffer of arguments, and their size.
pub(crate) const EXTRA_END: usize = 0;
/// See [`EXTRA_END`].
pub(crate) const EXTRA_BUFFER: usize = 1;
/// See [`EXTRA_END`].
pub(crate) const EXTRA_BYTES: usize = 2;

/// Stream 0 of functions whose default stream is each thread's own.
pub(crate) const PER_THREAD_STREAM: Handle = 2;
/// Another name of the legacy default stream.
pub(crate) const LEGACY_STREAM: Handle = 1;
