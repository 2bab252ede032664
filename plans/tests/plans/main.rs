//! Plans of recorded and generated runs.

#![cfg(test)]

mod claims;
mod coverage;
mod generated;
mod harm;
mod planning;
mod prefetches;
mod probe;
mod recorded;
mod replay;

use call_ring::{
    Dim3, MemoryKind, Stamp, SyncKind, Target,
    call::{Action, Call, Pointer},
};

/// Calls, numbered as by the helper.
#[derive(Debug, Default)]
struct Program {
    calls: Vec<Call>,
    launches: u32,
}

impl Program {
    fn call(&mut self, action: Action) {
        let at = self.calls.len() as u64;
        let stamp = Stamp { sequence: at, time_ns: at * 100_000, thread: 1 };
        let mut call = Call { stamp, is_asynchronous: false, is_cut: false, number: None, action };
        if call.token().is_some() {
            self.launches += 1;
            call.number = Some(self.launches);
        }
        self.calls.push(call);
    }

    fn malloc(&mut self, address: u64, bytes: u64) {
        self.malloc_of(MemoryKind::Managed, address, bytes);
    }

    fn malloc_of(&mut self, kind: MemoryKind, address: u64, bytes: u64) {
        self.call(Action::Malloc { stream: 0, address, bytes, kind, device: 0 });
    }

    fn launch(&mut self, function: u64, addresses: &[u64]) {
        let pointers = (0..).step_by(8).zip(addresses);
        let pointers = pointers.map(|(offset_bytes, address)| Pointer { offset_bytes, address: *address }).collect();
        let one = Dim3::new(1, 1, 1);
        let target = Target::Stream(1);
        self.call(Action::Launch {
            target,
            function,
            grid: one,
            block: one,
            shared_bytes: 0,
            pointers: Some(pointers),
        });
    }

    fn sync(&mut self) {
        self.call(Action::Sync { kind: SyncKind::Stream, handle: 1 });
    }
}
