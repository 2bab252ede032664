//! Complaints in the kernel's log: messages that report a fault.
//!
//! * [`leak`]: messages of the driver's leak checker

mod leak;

use self::leak::Leak;

/// Harmless messages of nvidia-uvm; all its other messages are complaints.
const HARMLESS_DRIVER_MESSAGES: [&str; 3] =
    ["Loaded the UVM driver, major device number", "Unloaded the UVM driver", "Built-in UVM tests are enabled"];
/// Words that mark complaints of the software GPU.
const SWGPU_COMPLAINTS: [&str; 4] = ["error", "warning", "unknown", "unexpected"];
/// Words that mark complaints of the kernel, and panics of programs.
const OTHER_COMPLAINTS: [&str; 14] = [
    "BUG:",
    "BUG ",
    "Oops",
    "WARNING: CPU:",
    TRACE,
    "kernel BUG at",
    "Kernel panic",
    "general protection fault",
    "blocked for more than",
    "Out of memory:",
    "self-detected stall",
    "lockup",
    "LOCKUP",
    "panicked at",
];
const TRACE: &str = "Call Trace:";

/// Assert of a debug build that fails by a limit of the model, not by the run. The GPU's registers
/// are memory here: for a moment GET still has the flags that the driver wrote into it to clear
/// them, which a card reads as 0.
const MODEL_LIMIT: [&str; 2] = ["uvm_hal_volta_fault_buffer_read_get[", "replayable.max_faults not true"];

/// Messages of a process that was killed (-9) while it registered a GPU as its first user: the
/// GPU's threads could not be started, as a process with a fatal signal cannot start one. No other
/// cause gives this status, since otherwise the kernel starts a thread or has no memory.
const KILLED_REGISTRATION: [&str; 2] = ["Failed in nv_kthread_q_init for ", "Failed to init ISR: "];
const INTERRUPTED: &str = "[NV_ERR_BUSY_RETRY]";

/// Collector of the complaints among all messages, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    found: Vec<String>,
    leak: Leak,
    /// Whether the next stack is that of an excused assert.
    excused_assert: bool,
}

/// Complaints of a whole log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Judgement {
    pub(crate) complaints: Vec<String>,
    /// Bytes leaked by a bug of the driver; see [`Leak::of_killed_registrations`].
    pub(crate) excused_leak_bytes: u64,
}

impl Judge {
    pub(crate) fn read(&mut self, message: &str) {
        if !is_complaint(message) || self.leak.collect(message) {
            return;
        }
        if MODEL_LIMIT.iter().all(|part| message.contains(part)) {
            self.excused_assert = true;
        } else if !(std::mem::take(&mut self.excused_assert) && message.contains(TRACE)) {
            self.found.push(message.to_owned());
        }
    }

    /// Takes the complaints since the last call.
    pub(crate) fn take(&mut self) -> Vec<String> {
        self.found.append(&mut self.leak.take());
        std::mem::take(&mut self.found)
    }

    /// Complaints at the end of the log. `killed`: upper bound of the processes killed during
    /// registration of a GPU.
    pub(crate) fn end(mut self, killed: u64) -> Judgement {
        let excused_leak_bytes = self.leak.of_killed_registrations(killed);
        if excused_leak_bytes.is_some() {
            self.leak.take();
        }
        Judgement { complaints: self.take(), excused_leak_bytes: excused_leak_bytes.unwrap_or(0) }
    }
}

fn is_complaint(message: &str) -> bool {
    if let Some(text) = message.strip_prefix("nvidia-uvm: ").map(str::trim_start) {
        let of_killed_registration =
            text.contains(INTERRUPTED) && KILLED_REGISTRATION.iter().any(|words| text.contains(words));
        !of_killed_registration && !HARMLESS_DRIVER_MESSAGES.iter().any(|harmless| text.starts_with(harmless))
    } else if let Some(text) = message.strip_prefix("swgpu: ") {
        let text = text.to_lowercase();
        SWGPU_COMPLAINTS.iter().any(|word| text.contains(word))
    } else {
        message.starts_with("NVRM: ")
            || message.starts_with("WARNING:")
            || OTHER_COMPLAINTS.iter().any(|words| message.contains(words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harmless_messages_are_no_complaints() {
        for harmless in [
            "nvidia-uvm: Loaded the UVM driver, major device number 240.",
            // From 570 on.
            "nvidia-uvm:  Built-in UVM tests are enabled. This is a security risk.",
            "nvidia_uvm: module uses symbols nvUvmInterfaceDisableAccessCntr from proprietary module nvidia, inheriting taint.",
            "nvidia: loading out-of-tree module taints kernel.",
            "swgpu: hopper, 64 MiB",
            "Spectre V2 : WARNING: Unprivileged eBPF is enabled with eIBRS on, data leaks possible via Spectre v2 BHB attacks!",
            "",
        ] {
            assert!(!is_complaint(harmless), "{harmless}");
        }
    }

    #[test]
    fn a_warning_of_driver_gpu_or_kernel_is_a_complaint() {
        for wrong in [
            "nvidia-uvm: uvm_gpu.c:1234 add_gpu[pid:77] Assert failed, condition ...",
            "nvidia-uvm: something never seen before",
            "NVRM: Xid 31",
            "swgpu: error: unknown method 0x1234 of subchannel 4",
            "WARNING: CPU: 0 PID: 100 at kernel/workqueue.c:123",
            "BUG: kernel NULL pointer dereference, address: 0000000000000008",
            "BUG uvm_va_range_t (Tainted: P           OE     ): Objects remaining in uvm_va_range_t on __kmem_cache_shutdown()",
            "Oops: 0000 [#1] PREEMPT SMP NOPTI",
            "INFO: task uvmd:100 blocked for more than 120 seconds.",
            "thread 'main' panicked at uvmd/src/main.rs:1:1:",
        ] {
            assert!(is_complaint(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_failed_registration_of_a_killed_process_is_no_complaint_and_other_failures_are() {
        let failed = |what: &str, why: &str| {
            format!("nvidia-uvm: uvm_gpu_isr.c:326 uvm_parent_gpu_init_isr[pid:1403] Failed {what}: {why}, GPU ID 1: X")
        };
        let interrupted = "System is busy, retry later [NV_ERR_BUSY_RETRY]";
        assert!(!is_complaint(&failed("in nv_kthread_q_init for bottom_half_q", interrupted)));
        assert!(!is_complaint(&failed("to init ISR", interrupted)));
        assert!(is_complaint(&failed("to init ISR", "Out of memory [NV_ERR_NO_MEMORY]")));
        assert!(is_complaint(&failed("to init GPU hal", interrupted)));
    }

    #[test]
    fn an_assert_by_a_limit_of_the_model_is_excused_with_its_stack_and_no_other() {
        let mut judge = Judge::default();
        let assert = format!("nvidia-uvm: uvm_volta_fault_buffer.c:1 {}pid:1] .. {}", MODEL_LIMIT[0], MODEL_LIMIT[1]);
        for message in [assert.as_str(), "CPU: 0 PID: 1", TRACE, " <TASK>", TRACE] {
            judge.read(message);
        }
        assert_eq!(judge.take(), [TRACE]);
        assert_eq!(judge.take(), [""; 0], "each is returned once");
    }

    #[test]
    fn a_leak_is_excused_in_the_end_only() {
        let leak =
            ["Memory leak of 8 bytes detected.", "    Leaked 8 bytes from uvm_gpu.c:1001:alloc_parent_gpu (0xff)"]
                .map(|line| format!("nvidia-uvm: {line}"));
        let judged = || {
            let mut judge = Judge::default();
            for line in &leak {
                judge.read(line);
            }
            judge
        };
        assert_eq!(judged().take(), leak);
        assert_eq!(judged().end(0), Judgement { complaints: leak.to_vec(), excused_leak_bytes: 0 });
        assert_eq!(judged().end(1), Judgement { complaints: vec![], excused_leak_bytes: 8 });
    }
}
