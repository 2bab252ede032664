//! View of a recording in the API.

use call_ring::{
    Dim3, MemoryKind, SyncKind, Target,
    call::{Action, Call},
};

use crate::{
    merge::Losses,
    recording::{Holder, Recording, State},
    window::Window,
};

impl Recording {
    /// Recording with this number of last calls.
    #[must_use]
    pub fn view(&self, count: usize) -> api::Ops {
        let Losses { dropped, late, unrecorded, unknown, invalid } = self.losses();
        let window = self.window();
        api::Ops {
            state: match self.state() {
                State::Recording => "recording",
                State::Throttled => "throttled",
                State::Ended => "ended",
                State::Inaccessible(_) | State::Unreadable(_) => "unreadable",
                State::QuotaReached(_) => "quota_reached",
            }
            .to_owned(),
            unreadable_reason: match self.state() {
                State::Inaccessible(reason) | State::Unreadable(reason) => Some(reason.clone()),
                _ => None,
            },
            quota_holder: match self.state() {
                State::QuotaReached(Holder { uid, recordings, max }) => {
                    Some(api::QuotaHolder { uid: *uid, recordings: *recordings as u64, max_recordings: *max as u64 })
                }
                _ => None,
            },
            calls: window.added(),
            calls_retained: window.retained() as u64,
            calls_dropped: dropped,
            calls_late: late,
            calls_unrecorded: unrecorded,
            records_unknown: unknown,
            records_invalid: invalid,
            is_incomplete: window.is_full(),
            ops: window.last_calls(count).map(|(number, call)| op(window, number, call)).collect(),
        }
    }
}

fn op(window: &Window, number: u64, call: &Call) -> api::Op {
    api::Op {
        sequence: call.stamp.sequence,
        time_ns: call.stamp.time_ns,
        tid: call.stamp.thread,
        is_asynchronous: call.is_asynchronous,
        is_cut: call.is_cut,
        action: action(&call.action, |function| window.function_at(function, number)),
    }
}

fn hex(value: u64) -> String {
    format!("{value:#x}")
}

fn dimensions(Dim3 { x, y, z }: Dim3) -> [u32; 3] {
    [x, y.into(), z.into()]
}

fn target(target: Target) -> api::OpTarget {
    match target {
        Target::Stream(stream) => api::OpTarget::Stream(hex(stream)),
        Target::Captured(capture) => api::OpTarget::Capture(capture),
        Target::Graph { node, .. } => api::OpTarget::GraphNode(hex(node)),
        Target::Executable { node, .. } => api::OpTarget::ExecutableNode(hex(node)),
    }
}

const fn memory(kind: MemoryKind) -> &'static str {
    match kind {
        MemoryKind::Managed => "managed",
        MemoryKind::Device => "device",
        MemoryKind::Pool => "pool",
        MemoryKind::Host => "host",
        MemoryKind::Registered => "registered",
    }
}

const fn sync(kind: SyncKind) -> &'static str {
    match kind {
        SyncKind::Context => "context",
        SyncKind::Stream => "stream",
        SyncKind::Event => "event",
    }
}

fn action<'a>(action: &Action, name: impl Fn(u64) -> Option<&'a str>) -> api::OpAction {
    match action {
        Action::Malloc { address, bytes, kind, device, .. } => api::OpAction::Malloc {
            address: hex(*address),
            bytes: *bytes,
            kind: memory(*kind).to_owned(),
            device: *device,
        },
        Action::Free { address, .. } => api::OpAction::Free { address: hex(*address) },
        Action::NotFreed { address } => api::OpAction::NotFreed { address: hex(*address) },
        Action::Function { function, name } => api::OpAction::Function { function: hex(*function), name: name.clone() },
        Action::Launch { target: to, function, grid, block, shared_bytes, pointers } => api::OpAction::Launch {
            target: target(*to),
            function: name(*function).map_or_else(|| hex(*function), str::to_owned),
            grid: dimensions(*grid),
            block: dimensions(*block),
            shared_bytes: *shared_bytes,
            pointers: pointers.as_ref().map(|pointers| {
                let each = pointers.iter();
                each.map(|pointer| api::OpPointer { offset_bytes: pointer.offset_bytes, address: hex(pointer.address) })
                    .collect()
            }),
        },
        Action::Copy { target: stream, to, from, bytes, rows } => api::OpAction::Copy {
            target: target(*stream),
            destination: hex(*to),
            source: hex(*from),
            bytes: *bytes,
            rows: *rows,
        },
        Action::Fill { target: to, address, bytes, rows } => {
            api::OpAction::Fill { target: target(*to), address: hex(*address), bytes: *bytes, rows: *rows }
        }
        Action::Prefetch { stream, address, bytes, to, host_node } => api::OpAction::Prefetch {
            stream: hex(*stream),
            address: hex(*address),
            bytes: *bytes,
            device: *to,
            host_node: *host_node,
        },
        Action::Discard { stream, address, bytes } => {
            api::OpAction::Discard { stream: hex(*stream), address: hex(*address), bytes: *bytes }
        }
        Action::Advise { address, bytes, advice, to, host_node } => api::OpAction::Advise {
            address: hex(*address),
            bytes: *bytes,
            advice: *advice,
            device: *to,
            host_node: *host_node,
        },
        Action::Sync { kind, handle } => api::OpAction::Sync { kind: sync(*kind).to_owned(), handle: hex(*handle) },
        Action::GraphCaptured { capture, graph } => {
            api::OpAction::GraphCapture { capture: *capture, graph: hex(*graph) }
        }
        Action::GraphInstantiated { graph, executable } => {
            api::OpAction::GraphInstantiate { graph: hex(*graph), executable: hex(*executable) }
        }
        Action::GraphLaunch { stream, executable } => {
            api::OpAction::GraphLaunch { stream: hex(*stream), executable: hex(*executable) }
        }
        Action::GraphCloned { graph, clone } => api::OpAction::GraphClone { graph: hex(*graph), clone: hex(*clone) },
        Action::GraphDestroyed { graph } => api::OpAction::GraphDestroy { graph: hex(*graph) },
        Action::ExecutableDestroyed { executable } => api::OpAction::ExecutableDestroy { executable: hex(*executable) },
    }
}
