"""Facts about nvidia-uvm that uvmd relies on: what they are called, where they are in the driver's types, and what uvmd takes them for.

Those that differ between versions are in abi/uvm-layouts.json, a family of versions each. Those below are the same in all families.
"""

import json
import os
from typing import NamedTuple

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EVENT, ENTRY, SOURCE = "uvm_perf_event_data_t", "uvm_fault_buffer_entry_t", "uvm_fault_source_t"
BLOCK, RECORDS, CONTROL = "uvm_va_block_t", ("UvmEventEntry_V1", "UvmEventEntry"), ("UvmToolsEventControlData_V1", "UvmToolsEventControlData")
MASK, TRACKER = "uvm_processor_mask_t", "UVM_TOOLS_INIT_EVENT_TRACKER_PARAMS"
RANGES = "managed_range", "va_range"

# Keys of the table whose names are not those of the driver: prefix to type and path.
PREFIXES = {
    "fault.": (EVENT, "fault."),
    "mig.": (EVENT, "migration."),
    "rev.": (EVENT, "revocation."),
    "blkdestroy.": (EVENT, "block_destroy."),
    "rangedestroy.": (EVENT, "range_destroy."),
    "fbe.": (ENTRY, ""),
    "fsrc.": (SOURCE, ""),
    "gpu.": ("uvm_gpu_t", ""),
    "tracker.": (TRACKER, ""),
}
RENAMED = {
    "fault.preferred": "preferred_location",
    "mig.mrctx": "make_resident_context",
    "fbe.merged_list": "merged_instances_list",
    "tracker.status": "rmStatus",
}
SIZES = {"evd.size": EVENT, "fbe.size": ENTRY, "fault_source.size": SOURCE, "mask.size": MASK}

# Types of parameters that the probes read, by function and position (ebpf/src). `since` and `until`: major versions that have it.
FUNCTIONS = {
    "uvm_perf_event_notify": {0: "uvm_perf_va_space_events_t *", 1: "uvm_perf_event_t", 2: "uvm_perf_event_data_t *"},
    "uvm_va_space_mm_register": {0: "uvm_va_space_t *"},
    "uvm_va_space_destroy": {0: "uvm_va_space_t *"},
    "uvm_gpu_service_replayable_faults": {"until": 555},
    "uvm_parent_gpu_service_replayable_faults": {"since": 560},
    "uvm_tools_broadcast_replay": {0: "uvm_gpu_t *", 2: "NvU32"},
    "uvm_tools_record_thrashing": {0: "uvm_va_space_t *", 1: "NvU64", 2: "size_t", 3: "const uvm_processor_mask_t *"},
    "uvm_tools_record_throttling_start": {0: "uvm_va_space_t *", 1: "NvU64", 2: "uvm_processor_id_t"},
    "uvm_tools_record_throttling_end": {0: "uvm_va_space_t *", 1: "NvU64", 2: "uvm_processor_id_t"},
    "uvm_tools_record_map_remote": {0: "uvm_va_block_t *", 2: "uvm_processor_id_t", 5: "size_t", 6: "UvmEventMapRemoteCause"},
    "uvm_va_block_evict_chunks": {0: "uvm_va_block_t *", 1: "uvm_gpu_t *"},
    "uvm_va_block_make_resident_copy": {
        "since": 530, 0: "uvm_va_block_t *", 3: "uvm_processor_id_t", 4: "uvm_va_block_region_t", 5: "const uvm_page_mask_t *",
        7: "uvm_make_resident_cause_t",
    },
    "uvm_va_block_make_resident_read_duplicate": {
        0: "uvm_va_block_t *", 3: "uvm_processor_id_t", 4: "uvm_va_block_region_t", 5: "const uvm_page_mask_t *",
        7: "uvm_make_resident_cause_t",
    },
    "uvm_va_block_split": {0: "uvm_va_block_t *", 2: "uvm_va_block_t * *"},
    "uvm_pmm_gpu_pma_evict_pages_wrapper_entry": {},
    "uvm_pmm_gpu_pma_evict_range_wrapper_entry": {},
    "uvm_global_set_fatal_error_impl": {0: "NV_STATUS"},
}
CALLS = "migrate set_preferred_location unset_preferred_location set_accessed_by unset_accessed_by enable_read_duplication disable_read_duplication".split()
for call in [*CALLS, "discard"]:
    FUNCTIONS[f"uvm_api_{call}"] = {0: f"UVM_{call.upper()}_PARAMS *", 1: "struct file *"} | ({"since": 580} if call == "discard" else {})

# Requests to the driver: number, size, and offset of the status (sys/src/uvm/request.rs).
REQUESTS = {
    "UVM_MIGRATE": (51, 80, 72),
    "UVM_UNSET_PREFERRED_LOCATION": (43, 24, 16),
    "UVM_SET_ACCESSED_BY": (46, 40, 32),
    "UVM_UNSET_ACCESSED_BY": (47, 40, 32),
    "UVM_ENABLE_READ_DUPLICATION": (44, 24, 16),
    "UVM_DISABLE_READ_DUPLICATION": (45, 24, 16),
    "UVM_PAGEABLE_MEM_ACCESS": (39, 8, 4),
    "UVM_INITIALIZE": (0x30000001, 16, 8),
    "UVM_TOOLS_EVENT_QUEUE_ENABLE_EVENTS": (58, 16, 8),
    "UVM_TOOLS_ENABLE_COUNTERS": (60, 16, 8),
    "UVM_TOOLS_FLUSH_EVENTS": (67, 4, 0),
}
# Numbers of requests whose parameters differ between versions.
NUMBERS = {"UVM_SET_PREFERRED_LOCATION": 42, "UVM_TOOLS_INIT_EVENT_TRACKER": 56}

# Records of the driver's tools: kind, and offsets of fields (sys/src/uvm/records.rs).
RECORD_FIELDS = {
    "cpuFault": {"accessType": 1, "address": 8, "timeStamp": 16, "pid": 24, "threadId": 28, "pc": 32},
    "migration": {
        "migrationCause": 1, "srcIndex": 2, "dstIndex": 3, "address": 8, "migratedBytes": 16, "beginTimeStamp": 24, "endTimeStamp": 32,
    },
    "gpuFault": {"accessType": 2, "gpuIndex": 3, "address": 8, "timeStamp": 16, "batchId": 32, "clientType": 36},
    "gpuFaultReplay": {"gpuIndex": 1, "clientType": 2, "batchId": 4, "timeStamp": 8},
    "fatalFault": {"accessType": 2, "processorIndex": 3, "reason": 4, "address": 8, "timeStamp": 16},
    "readDuplicate": {"processors": 8, "address": 16, "size": 24, "timeStamp": 32},
    "readDuplicateInvalidate": {"residentIndex": 1, "address": 8, "size": 16, "timeStamp": 24},
    "thrashing": {"processors": 8, "address": 16, "size": 24, "timeStamp": 32},
    "throttlingStart": {"processorIndex": 1, "address": 8, "timeStamp": 16},
    "throttlingEnd": {"processorIndex": 1, "address": 8, "timeStamp": 16},
    "mapRemote": {"mapRemoteCause": 3, "srcIndex": 1, "dstIndex": 2, "address": 8, "size": 16, "timeStamp": 24},
}
CONTROL_FIELDS = {"get_ahead": 0, "get_behind": 4, "put_ahead": 8, "put_behind": 12, "dropped": 16}
ENUMERATORS = {
    "UvmEventTypeCpuFault": 1, "UvmEventTypeMigration": 2, "UvmEventTypeGpuFault": 3, "UvmEventTypeGpuFaultReplay": 4,
    "UvmEventTypeFatalFault": 6, "UvmEventTypeReadDuplicate": 7, "UvmEventTypeReadDuplicateInvalidate": 8,
    "UvmEventTypeThrashingDetected": 10, "UvmEventTypeThrottlingStart": 11, "UvmEventTypeThrottlingEnd": 12, "UvmEventTypeMapRemote": 13,
    "UvmEventMemoryAccessTypeRead": 1, "UvmEventMemoryAccessTypeWrite": 2, "UvmEventMemoryAccessTypeAtomic": 3,
    "UvmEventMemoryAccessTypePrefetch": 4,
    "UvmEventMigrationCauseUser": 1, "UvmEventMigrationCauseCoherence": 2, "UvmEventMigrationCausePrefetch": 3,
    "UvmEventMigrationCauseEviction": 4, "UvmEventMigrationCauseAccessCounters": 5, "UvmEventNumMigrationCauses": 6,
    "UvmEventFaultClientTypeGpc": 1, "UvmEventFaultClientTypeHub": 2,
    "UvmEventMapRemoteCauseCoherence": 1, "UvmEventMapRemoteCauseThrashing": 2, "UvmEventMapRemoteCausePolicy": 3,
    "UvmEventMapRemoteCauseOutOfMemory": 4, "UvmEventMapRemoteCauseEviction": 5,
    "UvmCounterNameBytesXferHtD": 0, "UvmCounterNameBytesXferDtH": 1, "UvmCounterNameCpuPageFaultCount": 2,
    "UvmCounterNameGpuPageFaultCount": 9,
}  # fmt: skip


class Family(NamedTuple):
    """Family of abi/uvm-layouts.json."""

    first: int
    last: int
    excepted: list[str]
    values: dict[str, int | str]

    def __str__(self):
        return f"{self.first}-{self.last}" if self.first != self.last else str(self.first)


def table():
    """The families, oldest first."""
    with open(os.path.join(ROOT, "abi", "uvm-layouts.json"), encoding="utf-8") as file:
        entries = json.load(file)
    families = []
    for name, entry in entries.items():
        majors = [int(text) for text in name.split("_")[1:]]
        families.append(Family(majors[0], majors[-1], entry.get("except", []), entry["values"]))
    return sorted(families, key=lambda family: family.first)


def family_of(version):
    """Family of a version; None for a version that is in none."""
    major = int(version.split(".")[0]) if version else 0
    return next((each for each in table() if each.first <= major <= each.last and version not in each.excepted), None)


def expected(family):
    """Facts as uvmd has them, of a family."""
    facts = dict(family.values)
    facts |= {"block.start-range": 8, "block.resident-range": 24}
    facts |= {f"record.{kind}.{field}": at for kind, fields in RECORD_FIELDS.items() for field, at in fields.items()}
    facts |= {f"queue.{field}": at for field, at in CONTROL_FIELDS.items()} | {"record.size": 64}
    facts |= {f"enum.{name}": value for name, value in ENUMERATORS.items()}
    for name, (number, size, status) in REQUESTS.items():
        facts |= {f"{name}": number, f"{name}.size": size, f"{name}.rmStatus": status}
        if name.removeprefix("UVM_").removeprefix("UN") not in ("PAGEABLE_MEM_ACCESS", "INITIALIZE") and "TOOLS" not in name:
            facts |= {f"{name}.{'base' if name == 'UVM_MIGRATE' else 'requestedBase'}": 0, f"{name}.length": 8}
    facts |= NUMBERS
    for name, parameters in FUNCTIONS.items():
        if parameters.get("since", 0) <= family.first and family.last <= parameters.get("until", 9999):
            facts[f"{name}()"] = "present"
            facts |= {f"{name}({position})": kind for position, kind in parameters.items() if isinstance(position, int)}
    return facts


def first_of(get, names):
    """The first result of `get` over names of which a driver has one."""
    return next((found for name in names if (found := get(name)) is not None), None)


def roots():
    """Types and enumerators that a source tree's probe needs."""
    names = {EVENT, ENTRY, SOURCE, BLOCK, MASK, "uvm_gpu_t", "UVM_FD_VA_SPACE", TRACKER, *RECORDS, *CONTROL, *ENUMERATORS}
    names |= {f"{name}_PARAMS" for name in REQUESTS}
    return sorted(names | {key[5:] for family in table() for key in family.values if key.startswith("enum.")})


def macros():
    """Macros whose values are facts."""
    return sorted([*REQUESTS, *NUMBERS])


def type_fact(types, key):
    """Value of a fact in a driver's types; None if they lack it."""
    if key.startswith("enum."):
        return types.enumerators.get(key[5:])
    if key in SIZES:
        return types.size(SIZES[key])
    if key == "file.va_space":
        return types.enumerators.get("UVM_FD_VA_SPACE")
    if key == "tracker.version":
        return byte(first_of(lambda name: types.field(TRACKER, name), ("requestedVersion", "version")))
    if key == "record.size":
        return first_of(types.size, RECORDS)
    if key.startswith("block."):
        field = types.field(BLOCK, key[6:].split("-")[0])
        start = first_of(lambda name: types.field(BLOCK, name), RANGES)
        return (field[0] - start[0]) // 8 if field and start else None
    if key.startswith("record."):
        _, kind, path = key.split(".")
        return byte(first_of(lambda name: types.field(name, f"eventData.{kind}.{path}"), RECORDS))
    if key.startswith("queue."):
        return byte(first_of(lambda name: types.field(name, key[6:]), CONTROL))
    if key.startswith("UVM_"):
        name, _, field = key.partition(".")
        if not field:
            return types.enumerators.get(f"macro_{name}")
        return types.size(f"{name}_PARAMS") if field == "size" else byte(types.field(f"{name}_PARAMS", field))
    prefix = key[: key.index(".") + 1]
    name, path = PREFIXES[prefix]
    bare, _, form = key.partition("(")
    field = types.field(name, path + RENAMED.get(bare, bare[len(prefix) :]))
    if field is None:
        return None
    return {"": field[0] // 8, "bit)": field[0], "bit:n)": f"{field[0]}:{field[1]}"}[form]


def byte(field):
    return field[0] // 8 if field else None


def function_fact(functions, key):
    """Value of a fact about a function: whether it is there, or a parameter's type."""
    name, _, position = key.rstrip(")").partition("(")
    if name not in functions:
        return None
    if not position:
        return "present"
    parameters = functions[name]
    if parameters is None:
        return None
    kind = parameters[int(position)] if int(position) < len(parameters) else "none"
    return kind.removeprefix("const ") if kind.endswith("_PARAMS *") else kind


def derived(types, functions, keys):
    """The facts of a driver that it has."""
    found = {key: function_fact(functions, key) if key.endswith(")") and key.startswith("uvm_") else type_fact(types, key) for key in keys}
    return {key: value for key, value in found.items() if value is not None}
