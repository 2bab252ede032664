// A pod, job, container or unit: what is wrong with it, who takes its memory, and what it takes of others.

import { dashboard, kinds, NODES, nodes, OWNER, owners } from "./dashboards.js";
import { chart, figure, THRASHING, TO_EVICTOR, TO_NODE, TO_OWNER_OF_PAGE, TO_VICTIM } from "./panels.js";

const rate = (metric: string, by: string, more = "") => `sum by (${by}) (rate(${metric}{${OWNER}${more}}[$__rate_interval]))`;
const total = (metric: string) => `sum(rate(${metric}{${OWNER}}[$__rate_interval]))`;

export const owner = dashboard(
  "uvm-owner",
  "UVM / Owner",
  "Managed memory of a pod, a Slurm job, a container or a systemd unit. Programs of a user are units, as user@1000.service/train.service, or jobs.",
)
  .withVariable(nodes())
  .withVariable(kinds())
  .withVariable(owners())
  .withPanel(
    figure({
      id: 1,
      title: "Pod",
      description: "Namespace and name, if kube-state-metrics is scraped. Empty for other kinds.",
      unit: "none",
      width: 6,
      names: true,
      docs: ["attribution.md"],
      queries: [
        { id: "pod", expr: 'max by (namespace, pod) (kube_pod_info{cluster=~"$cluster", uid=~"$owner"})', legend: "{{namespace}}/{{pod}}" },
      ],
    }),
  )
  .withPanel(
    figure({
      id: 2,
      title: "Running processes",
      description: "Running processes of the owner that use managed memory.",
      unit: "none",
      width: 4,
      docs: ["attribution.md"],
      queries: [{ id: "processes", expr: `sum(uvm_owner_processes{${OWNER}})` }],
    }),
  )
  .withPanel(
    figure({
      id: 3,
      title: "Thrashing",
      description: "Time under a verdict of thrashing, in the selected time. The time of several processes adds up.",
      unit: "s",
      width: 4,
      docs: ["runbooks/UvmOwnerThrashing.md"],
      queries: [{ id: "thrashing", expr: `sum(increase(uvm_owner_verdict_seconds_total{${OWNER}, ${THRASHING}}[$__range]))` }],
    }),
  )
  .withPanel(
    figure({
      id: 4,
      title: "Refetched",
      description: "Bytes fetched to GPUs in the selected time that had been evicted before: what thrashing costs the owner.",
      unit: "bytes",
      width: 5,
      docs: ["verdicts.md"],
      queries: [{ id: "refetched", expr: `sum(increase(uvm_owner_refetched_bytes_total{${OWNER}}[$__range]))` }],
    }),
  )
  .withPanel(
    figure({
      id: 5,
      title: "Evicted of others",
      description: "Bytes of other owners' memory that were evicted for this one in the selected time: what it costs others.",
      unit: "bytes",
      width: 5,
      docs: ["runbooks/UvmOwnerIsVictim.md"],
      queries: [
        {
          id: "taken",
          expr: `sum(increase(uvm_owner_pair_evicted_bytes_total{${NODES}, evictor_kind="$kind", evictor=~"$owner", victim!~"$owner"}[$__range]))`,
        },
      ],
    }),
  )
  .withPanel(
    chart({
      id: 6,
      title: "Verdicts",
      description: "Processes of the owner under a verdict, in the mean: 1 is one process all the time.",
      unit: "short",
      width: 12,
      limits: [0.5],
      docs: ["verdicts.md", "runbooks/UvmOwnerThrashing.md"],
      to: [TO_NODE, TO_OWNER_OF_PAGE],
      queries: [
        {
          id: "verdicts",
          expr: rate("uvm_owner_verdict_seconds_total", "hostname, gpu, verdict"),
          legend: "{{hostname}} GPU {{gpu}}: {{verdict}}",
        },
      ],
    }),
  )
  .withPanel(
    chart({
      id: 7,
      title: "Memory",
      description: "Managed memory that its running processes have mapped, touched or not, and what of it is in GPUs: an estimate.",
      unit: "bytes",
      width: 12,
      docs: ["metrics.md"],
      to: [TO_NODE],
      queries: [
        { id: "managed", expr: `sum by (hostname) (uvm_owner_managed_bytes{${OWNER}})`, legend: "{{hostname}}: mapped" },
        { id: "resident", expr: `sum by (hostname, gpu) (uvm_owner_resident_bytes{${OWNER}})`, legend: "{{hostname}} GPU {{gpu}}: resident" },
      ],
    }),
  )
  .withPanel(
    chart({
      id: 8,
      title: "Who takes its memory",
      description: "Bytes of its memory that were evicted, by who needed the memory: itself, another owner, or memory that is not managed (device_allocation).",
      unit: "binBps",
      width: 12,
      stacked: true,
      docs: ["runbooks/UvmOwnerIsVictim.md"],
      to: [TO_EVICTOR, TO_NODE],
      queries: [
        {
          id: "evictors",
          expr: `sum by (hostname, evictor_kind, evictor, cause)
            (rate(uvm_owner_pair_evicted_bytes_total{${NODES}, victim_kind="$kind", victim=~"$owner"}[$__rate_interval]))`,
          legend: "{{evictor_kind}} {{evictor}}: {{cause}}",
        },
      ],
    }),
  )
  .withPanel(
    chart({
      id: 9,
      title: "What it takes of others",
      description: "Bytes of other owners' memory that were evicted because this one needed memory.",
      unit: "binBps",
      width: 12,
      stacked: true,
      docs: ["runbooks/UvmOwnerIsVictim.md"],
      to: [TO_VICTIM, TO_NODE],
      queries: [
        {
          id: "victims",
          expr: `sum by (hostname, victim_kind, victim)
            (rate(uvm_owner_pair_evicted_bytes_total{${NODES}, evictor_kind="$kind", evictor=~"$owner", victim!~"$owner"}[$__rate_interval]))`,
          legend: "{{victim_kind}} {{victim}}",
        },
      ],
    }),
  )
  .withPanel(
    chart({
      id: 10,
      title: "Fetched bytes",
      description: "Bytes fetched to GPUs: evicted before (thrashing), reclaimed by a CPU fault before (ping-pong), or for the first time.",
      unit: "binBps",
      width: 8,
      stacked: true,
      docs: ["verdicts.md"],
      queries: [
        { id: "fetched_refetched", expr: total("uvm_owner_refetched_bytes_total"), legend: "evicted before" },
        { id: "fetched_reclaimed", expr: total("uvm_owner_cpu_reclaimed_bytes_total"), legend: "reclaimed by a CPU before" },
        {
          id: "fetched_first",
          expr: `${total("uvm_owner_fetched_bytes_total")} - ${total("uvm_owner_refetched_bytes_total")} - ${total("uvm_owner_cpu_reclaimed_bytes_total")}`,
          legend: "first time",
        },
      ],
    }),
  )
  .withPanel(
    chart({
      id: 11,
      title: "Migrated bytes",
      description: "Bytes copied to migrate its memory, for whatever cause, by direction.",
      unit: "binBps",
      width: 8,
      docs: ["metrics.md"],
      to: [TO_NODE],
      queries: [
        {
          id: "migrated",
          expr: rate("uvm_owner_migrated_bytes_total", "hostname, gpu, direction"),
          legend: "{{hostname}} GPU {{gpu}}: {{direction}}",
        },
      ],
    }),
  )
  .withPanel(
    chart({
      id: 12,
      title: "Faults",
      description: "GPU faults after coalescing, and CPU faults on its managed memory.",
      unit: "cps",
      width: 8,
      docs: ["metrics.md"],
      to: [TO_NODE],
      queries: [
        { id: "gpu_faults", expr: rate("uvm_owner_gpu_faults_total", "hostname, gpu"), legend: "{{hostname}} GPU {{gpu}}" },
        { id: "cpu_faults", expr: rate("uvm_owner_cpu_faults_total", "hostname"), legend: "{{hostname}} CPU" },
      ],
    }),
  );
