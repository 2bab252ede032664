// One node and its GPUs: what the driver does there, for whom, and what DCGM sees at the same time.

import { dashboard, GPUS, gpus, NODES, oneNode } from "./dashboards.js";
import { RowBuilder } from "@grafana/grafana-foundation-sdk/dashboard";
import { chart, figure, heat, rows, TO_EVICTOR, TO_OWNER, TO_PAGE, TO_VICTIM, texts, withOwner } from "./panels.js";

// DCGM's exporter knows neither uvmd's `hostname` nor its `gpu`: the UUID joins them. A GPU has a series for each pod there.
const dcgm = (metric: string) =>
  `max by (UUID) (${metric}{UUID=~"$gpu"}) * on (UUID) group_left (gpu) max by (UUID, gpu) (uvm_gpu_info{${GPUS}})`;
const rate = (metric: string, by: string, matchers = GPUS) => `sum by (${by}) (rate(${metric}{${matchers}}[$__rate_interval]))`;
const GPU = "gpu, UUID";

export const node = dashboard("uvm-node", "UVM / Node and GPU", "Managed memory on one node: faults, migrations, evictions and residency.")
  .withVariable(oneNode())
  .withVariable(gpus())
  .withPanel(
    figure({
      id: 1,
      title: "uvmd",
      description: "Whether uvmd counts on this node. If it does not, the other panels are empty.",
      unit: "none",
      width: 4,
      mappings: [texts({ 1: { text: "counting", color: "green" }, 0: { text: "not counting", color: "red" } })],
      docs: ["runbooks/UvmdWaiting.md", "runbooks/UvmdDriverRefused.md"],
      to: [TO_PAGE],
      queries: [{ id: "counting", expr: `max by (hostname) (uvmd_state{${NODES}, state="counting"})`, legend: "{{hostname}}" }],
    }),
  )
  .withPanel(
    rows({
      id: 2,
      title: "GPUs",
      description: "GPUs and their memory. Resident is an estimate. Used is managed memory and everything else.",
      width: 20,
      height: 4,
      docs: ["metrics.md"],
      to: [TO_PAGE],
      labels: { hostname: "Node", gpu: "GPU", modelName: "Model", UUID: "UUID" },
      columns: (
        [
          ["gpus_memory", "Memory", "uvm_gpu_memory_bytes"],
          ["gpus_used", "Used", "uvm_gpu_memory_used_bytes"],
          ["gpus_resident", "Resident", "uvm_resident_bytes"],
          ["gpus_managed", "Managed, mapped", "uvm_gpu_managed_bytes"],
        ] as const
      ).map(([id, title, metric]) => ({
        id,
        title,
        unit: "bytes",
        expr: `max by (hostname, ${GPU}, modelName) (${metric}{${GPUS}} * on (hostname, UUID) group_left (modelName) uvm_gpu_info{${GPUS}})`,
      })),
    }),
  )
  .withRow(new RowBuilder("Who").id(101))
  .withPanel(
    chart({
      id: 3,
      title: "Owners under a verdict",
      description: "Processes of an owner under a verdict, in the mean: 1 is one process all the time.",
      unit: "short",
      width: 12,
      limits: [0.5],
      docs: ["verdicts.md", "runbooks/UvmOwnerThrashing.md"],
      to: [TO_OWNER],
      queries: [
        {
          id: "verdicts",
          expr: `sum by (owner_kind, owner, gpu, verdict) (${withOwner(`rate(uvm_owner_verdict_seconds_total{${GPUS}}[$__rate_interval])`)})`,
          legend: "{{owner_kind}} {{owner}}, GPU {{gpu}}: {{verdict}}",
        },
      ],
    }),
  )
  .withPanel(
    chart({
      id: 4,
      title: "Evictions by owner",
      description: "Bytes of one owner's memory (right) evicted because another, or the same (left), needed the memory.",
      unit: "binBps",
      width: 12,
      stacked: true,
      docs: ["runbooks/UvmOwnerIsVictim.md"],
      to: [TO_EVICTOR, TO_VICTIM],
      queries: [
        {
          id: "pairs",
          expr: `${rate("uvm_owner_pair_evicted_bytes_total", "evictor_kind, evictor, victim_kind, victim")} > 0`,
          legend: "{{evictor_kind}} {{evictor}} evicts {{victim_kind}} {{victim}}",
        },
      ],
    }),
  )
  .withRow(new RowBuilder("Memory and link").id(102))
  .withPanel(
    chart({
      id: 5,
      title: "Memory",
      description:
        "Memory of the GPU, what is used of it, what of that is managed, and what managed memory is mapped. Mapped above the GPU's memory: oversubscribed.",
      unit: "bytes",
      width: 12,
      docs: ["runbooks/UvmOversubscriptionGrowing.md"],
      queries: [
        { id: "memory", expr: `sum by (${GPU}) (uvm_gpu_memory_bytes{${GPUS}})`, legend: "GPU {{gpu}}: memory" },
        { id: "used", expr: `sum by (${GPU}) (uvm_gpu_memory_used_bytes{${GPUS}})`, legend: "GPU {{gpu}}: used" },
        { id: "resident", expr: `sum by (${GPU}) (uvm_resident_bytes{${GPUS}})`, legend: "GPU {{gpu}}: managed, resident" },
        { id: "managed", expr: `sum by (${GPU}) (uvm_gpu_managed_bytes{${GPUS}})`, legend: "GPU {{gpu}}: managed, mapped" },
      ],
    }),
  )
  .withPanel(
    chart({
      id: 6,
      title: "Migrated bytes",
      description: "Bytes that the driver copied to migrate memory, by cause. To the host is below the axis. Cause `tool` includes uvmd itself.",
      unit: "binBps",
      width: 12,
      min: null,
      stacked: true,
      docs: ["metrics.md"],
      overrides: [
        {
          regexp: "/^to host/",
          properties: [
            { id: "custom.transform", value: "negative-Y" },
            { id: "custom.stacking", value: { mode: "normal", group: "B" } },
          ],
        },
      ],
      queries: [
        { id: "migrated_htod", expr: rate("uvm_migrated_bytes_total", "cause", `${GPUS}, direction="htod"`), legend: "to GPU: {{cause}}" },
        { id: "migrated_dtod", expr: rate("uvm_migrated_bytes_total", "cause", `${GPUS}, direction="dtod"`), legend: "from another GPU: {{cause}}" },
        { id: "migrated_dtoh", expr: rate("uvm_migrated_bytes_total", "cause", `${GPUS}, direction="dtoh"`), legend: "to host: {{cause}}" },
      ],
    }),
  )
  .withPanel(
    chart({
      id: 7,
      title: "Fetched again",
      description: "Share of the fetched bytes that were on the GPU before: evicted (capacity thrash), or reclaimed by a CPU fault (ping-pong).",
      unit: "percentunit",
      width: 8,
      max: 1,
      limits: [0.25],
      docs: ["verdicts.md", "runbooks/UvmGpuThrashing.md"],
      queries: [
        {
          id: "refetched_share",
          expr: `${rate("uvm_refetched_bytes_total", GPU)} / ${rate("uvm_fetched_bytes_total", GPU)}`,
          legend: "GPU {{gpu}}: evicted before",
        },
        {
          id: "reclaimed_share",
          expr: `${rate("uvm_cpu_reclaimed_bytes_total", GPU)} / ${rate("uvm_fetched_bytes_total", GPU)}`,
          legend: "GPU {{gpu}}: reclaimed by a CPU before",
        },
      ],
    }),
  )
  .withPanel(
    chart({
      id: 8,
      title: "Evictions",
      description: "Chunks of at most 2 MiB that the driver evicted, also where nothing had to be copied.",
      unit: "cps",
      width: 8,
      docs: ["runbooks/UvmGpuThrashing.md"],
      queries: [{ id: "evictions", expr: rate("uvm_evictions_total", GPU), legend: "GPU {{gpu}}" }],
    }),
  )
  .withPanel(
    chart({
      id: 9,
      title: "Size of copies",
      description: "Mean bytes of a copy within a 2 MiB block. Copies below 64 KiB leave most of the link's bandwidth unused.",
      unit: "bytes",
      width: 8,
      docs: ["metrics.md"],
      queries: [
        {
          id: "copy_size",
          expr: `${rate("uvm_migration_size_bytes_sum", `${GPU}, direction`)} / ${rate("uvm_migration_size_bytes_count", `${GPU}, direction`)}`,
          legend: "GPU {{gpu}}: {{direction}}",
        },
      ],
    }),
  )
  .withRow(new RowBuilder("Faults").id(103))
  .withPanel(
    chart({
      id: 10,
      title: "Faults",
      description: "GPU faults after coalescing, by access, and CPU faults on managed memory.",
      unit: "cps",
      width: 8,
      docs: ["metrics.md"],
      queries: [
        { id: "gpu_faults", expr: rate("uvm_gpu_faults_total", "access"), legend: "GPU: {{access}}" },
        { id: "cpu_faults", expr: rate("uvm_cpu_faults_total", "access", NODES), legend: "CPU: {{access}}" },
      ],
    }),
  )
  .withPanel(
    chart({
      id: 11,
      title: "Faults per batch",
      description: "Mean faults of a batch after coalescing. Near 1, each fault costs a full pass through the driver; the driver fetches 256 by default.",
      unit: "short",
      width: 8,
      docs: ["metrics.md"],
      queries: [
        {
          id: "batch_entries",
          expr: `${rate("uvm_fault_batch_entries_sum", GPU)} / ${rate("uvm_fault_batch_entries_count", GPU)}`,
          legend: "GPU {{gpu}}",
        },
      ],
    }),
  )
  .withPanel(
    chart({
      id: 12,
      title: "Fault handler",
      description: "Share of time for which the GPU's fault handler runs, one kernel thread. Near 100 %, faults wait for each other.",
      unit: "percentunit",
      width: 8,
      limits: [0.8],
      docs: ["runbooks/UvmFaultHandlerSaturated.md"],
      queries: [{ id: "fault_handler", expr: rate("uvm_fault_handler_duration_seconds_sum", GPU), legend: "GPU {{gpu}}" }],
    }),
  )
  .withPanel(
    chart({
      id: 13,
      title: "Duration of fault batches",
      description: "Time from the first fault of a batch to its replay, for which the faulting warps wait.",
      unit: "s",
      width: 8,
      limits: [0.1],
      docs: ["runbooks/UvmFaultLatencyHigh.md"],
      queries: ([0.5, 0.99] as const).map((quantile) => ({
        id: `batch_duration_p${quantile * 100}`,
        expr: `histogram_quantile(${quantile}, ${rate("uvm_fault_batch_duration_seconds_bucket", `${GPU}, le`)})`,
        legend: `GPU {{gpu}}: p${quantile * 100}`,
      })),
    }),
  )
  .withPanel(
    heat({
      id: 14,
      title: "Distribution of durations",
      description: "Fault batches of the selected GPUs by their duration. Two bands are two kinds of work, as with and without evictions.",
      unit: "s",
      width: 8,
      docs: ["runbooks/UvmFaultLatencyHigh.md"],
      query: { id: "batch_durations", expr: `sum by (le) (increase(uvm_fault_batch_duration_seconds_bucket{${GPUS}}[$__rate_interval]))` },
    }),
  )
  .withPanel(
    chart({
      id: 15,
      title: "Throttled by the driver",
      description: "Time for which the driver throttles processors at thrashing pages; several at once add up. It does not see thrashing by evictions.",
      unit: "percentunit",
      width: 8,
      docs: ["verdicts.md"],
      queries: [
        {
          id: "throttled",
          expr: rate("uvm_throttled_seconds_total", GPU, `${NODES}, UUID=~"$gpu|cpu"`),
          legend: "{{UUID}}",
        },
      ],
    }),
  )
  .withRow(new RowBuilder("Beside it").id(104))
  .withPanel(
    chart({
      id: 16,
      title: "Prefetches and advice",
      description: "Calls of applications about their managed memory, and such calls of another process: uvmd itself, a profiler.",
      unit: "cps",
      width: 8,
      docs: ["metrics.md"],
      queries: [
        { id: "api_calls", expr: `${rate("uvm_api_calls_total", "call", NODES)} > 0`, legend: "{{call}}" },
        { id: "tool_calls", expr: `${rate("uvm_tool_calls_total", "call", NODES)} > 0`, legend: "{{call}}, by another process" },
      ],
    }),
  )
  .withPanel(
    chart({
      id: 17,
      title: "Utilization (DCGM) and fault handling",
      description:
        "A GPU whose kernels wait for faults is busy by DCGM's utilization; the activity of its memory falls. Empty without DCGM's exporter.",
      unit: "percentunit",
      width: 8,
      max: 1,
      docs: ["metrics.md"],
      queries: [
        { id: "dcgm_utilization", expr: `${dcgm("DCGM_FI_DEV_GPU_UTIL")} / 100`, legend: "GPU {{gpu}}: utilization" },
        { id: "dcgm_dram_active", expr: dcgm("DCGM_FI_PROF_DRAM_ACTIVE"), legend: "GPU {{gpu}}: memory active" },
        { id: "dcgm_fault_handler", expr: rate("uvm_fault_handler_duration_seconds_sum", GPU), legend: "GPU {{gpu}}: fault handler" },
      ],
    }),
  )
  .withPanel(
    chart({
      id: 18,
      title: "PCIe (DCGM) and migrations",
      description: "All traffic of the PCIe link with its headers, and the migrations in it. The rest is explicit copies and remote accesses. Empty likewise.",
      unit: "binBps",
      width: 8,
      docs: ["metrics.md"],
      queries: [
        { id: "dcgm_pcie_rx", expr: dcgm("DCGM_FI_PROF_PCIE_RX_BYTES"), legend: "GPU {{gpu}}: PCIe to GPU" },
        { id: "dcgm_pcie_tx", expr: dcgm("DCGM_FI_PROF_PCIE_TX_BYTES"), legend: "GPU {{gpu}}: PCIe to host" },
        { id: "dcgm_htod", expr: rate("uvm_migrated_bytes_total", GPU, `${GPUS}, direction="htod"`), legend: "GPU {{gpu}}: migrated to GPU" },
        { id: "dcgm_dtoh", expr: rate("uvm_migrated_bytes_total", GPU, `${GPUS}, direction="dtoh"`), legend: "GPU {{gpu}}: migrated to host" },
      ],
    }),
  );
