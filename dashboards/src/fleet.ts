// Which nodes and GPUs thrash, which are oversubscribed, and whose programs cause it.

import { dashboard, DOWN, NODES, nodes } from "./dashboards.js";
import { chart, figure, rows, THRASHING, TO_EVICTOR, TO_NODE, TO_OWNER, TO_RUNBOOK, TO_VICTIM, withOwner } from "./panels.js";

const GPU = "cluster, hostname, gpu, UUID";
const OWNER = "cluster, hostname, owner_kind, owner";
const PAIR = "cluster, hostname, victim_kind, victim, evictor_kind, evictor";

const pairs = (labels: string) => `sum by (${labels}) (rate(uvm_owner_pair_evicted_bytes_total{${NODES}}[$__range]))`;
const byOwner = (vector: string) => `sum by (${OWNER}) (${withOwner(vector)})`;

export const fleet = dashboard("uvm-fleet", "UVM / Fleet", "Thrashing and oversubscribed GPUs of all nodes, and the owners that cause it.")
  .withVariable(nodes())
  .withPanel(
    figure({
      id: 1,
      title: "Nodes",
      description: "Nodes by the state of uvmd. Those that wait or refuse the driver count nothing. Down: Prometheus cannot scrape them.",
      unit: "none",
      width: 8,
      docs: ["runbooks/UvmdDown.md", "runbooks/UvmdWaiting.md", "runbooks/UvmdDriverRefused.md"],
      queries: [
        { id: "nodes_by_state", expr: `sum by (state) (uvmd_state{${NODES}})`, legend: "{{state}}" },
        { id: "nodes_down", expr: DOWN, legend: "down" },
      ],
    }),
  )
  .withPanel(
    figure({
      id: 2,
      title: "Thrashing GPUs",
      description: "GPUs with more than one process in two under a verdict of thrashing, in the mean of the last minutes.",
      unit: "none",
      width: 4,
      limits: [1],
      docs: ["runbooks/UvmOwnerThrashing.md"],
      queries: [
        {
          id: "thrashing_gpus",
          expr: `count(sum by (${GPU}) (rate(uvm_owner_verdict_seconds_total{${NODES}, ${THRASHING}}[$__rate_interval])) > 0.5) or vector(0)`,
        },
      ],
    }),
  )
  .withPanel(
    figure({
      id: 3,
      title: "Oversubscribed GPUs",
      description: "GPUs whose processes have mapped more managed memory than the GPU has. Harmless as long as nothing thrashes.",
      unit: "none",
      width: 4,
      docs: ["runbooks/UvmOversubscriptionGrowing.md"],
      queries: [{ id: "oversubscribed_gpus", expr: `count(uvm_oversubscription_ratio{${NODES}} > 1) or vector(0)` }],
    }),
  )
  .withPanel(
    figure({
      id: 4,
      title: "Refetched share",
      description: "Share of the bytes fetched to GPUs that had been evicted before. The verdicts' limit is 25 %, of arrived bytes.",
      unit: "percentunit",
      width: 4,
      limits: [0.25, 0.5],
      docs: ["verdicts.md"],
      queries: [
        {
          id: "refetched_share",
          expr: `sum(rate(uvm_refetched_bytes_total{${NODES}}[$__rate_interval])) / sum(rate(uvm_fetched_bytes_total{${NODES}}[$__rate_interval]))`,
        },
      ],
    }),
  )
  .withPanel(
    figure({
      id: 5,
      title: "Firing alerts",
      description: "Alerts of uvmd's rules that fire in the selected clusters.",
      unit: "none",
      width: 4,
      limits: [1],
      docs: ["alerts.md"],
      queries: [{ id: "alerts", expr: 'count(ALERTS{alertname=~"Uvm.+", alertstate="firing", cluster=~"$cluster"}) or vector(0)' }],
    }),
  )
  .withPanel(
    chart({
      id: 6,
      title: "Processes under a verdict",
      description: "Processes under each verdict at one time, in the mean. Capacity thrash, ping-pong and driver throttling are thrashing.",
      unit: "short",
      width: 12,
      stacked: true,
      docs: ["verdicts.md"],
      queries: [
        {
          id: "processes_by_verdict",
          expr: `sum by (verdict) (rate(uvm_owner_verdict_seconds_total{${NODES}}[$__rate_interval]))`,
          legend: "{{verdict}}",
        },
      ],
    }),
  )
  .withPanel(
    chart({
      id: 7,
      title: "Oversubscription",
      description: "Mapped managed memory over the memory of the GPU, for GPUs above 100 %.",
      unit: "percentunit",
      width: 12,
      docs: ["runbooks/UvmOversubscriptionGrowing.md"],
      to: [TO_NODE],
      queries: [{ id: "oversubscription", expr: `uvm_oversubscription_ratio{${NODES}} > 1`, legend: "{{hostname}} GPU {{gpu}}" }],
    }),
  )
  .withPanel(
    rows({
      id: 8,
      title: "GPUs",
      description: "GPUs by the time that their processes thrashed, over the selected time. The time of several processes adds up.",
      width: 24,
      docs: ["runbooks/UvmGpuThrashing.md", "runbooks/UvmFaultHandlerSaturated.md"],
      to: [TO_NODE],
      labels: { cluster: "Cluster", hostname: "Node", gpu: "GPU", UUID: "UUID" },
      sort: "gpus_thrashing",
      columns: [
        {
          id: "gpus_thrashing",
          title: "Thrashing",
          unit: "s",
          expr: `sum by (${GPU}) (increase(uvm_owner_verdict_seconds_total{${NODES}, ${THRASHING}}[$__range]))`,
        },
        {
          id: "gpus_refetched_share",
          title: "Refetched share",
          unit: "percentunit",
          limits: [0.25, 0.5],
          expr: `sum by (${GPU}) (rate(uvm_refetched_bytes_total{${NODES}}[$__range])) / sum by (${GPU}) (rate(uvm_fetched_bytes_total{${NODES}}[$__range]))`,
        },
        {
          id: "gpus_fault_handler",
          title: "Fault handler",
          unit: "percentunit",
          limits: [0.5, 0.8],
          expr: `sum by (${GPU}) (rate(uvm_fault_handler_duration_seconds_sum{${NODES}}[$__range]))`,
        },
        {
          id: "gpus_batch_duration",
          title: "Fault batch, p99",
          unit: "s",
          limits: [0.05, 0.1],
          expr: `histogram_quantile(0.99, sum by (${GPU}, le) (rate(uvm_fault_batch_duration_seconds_bucket{${NODES}}[$__range])))`,
        },
        {
          id: "gpus_oversubscription",
          title: "Oversubscription, highest",
          unit: "percentunit",
          expr: `max by (${GPU}) (max_over_time(uvm_oversubscription_ratio{${NODES}}[$__range]))`,
        },
      ],
    }),
  )
  .withPanel(
    rows({
      id: 9,
      title: "Owners",
      description: "Owners by the time that they thrashed, over the selected time. Induced: evicted from any owner because this one needed memory.",
      width: 12,
      docs: ["runbooks/UvmOwnerThrashing.md"],
      to: [TO_OWNER],
      labels: { cluster: "Cluster", hostname: "Node", owner_kind: "Kind", owner: "Owner" },
      sort: "owners_thrashing",
      columns: [
        {
          id: "owners_thrashing",
          title: "Thrashing",
          unit: "s",
          expr: byOwner(`increase(uvm_owner_verdict_seconds_total{${NODES}, ${THRASHING}}[$__range])`),
        },
        {
          id: "owners_refetched",
          title: "Refetched",
          unit: "binBps",
          expr: byOwner(`rate(uvm_owner_refetched_bytes_total{${NODES}}[$__range])`),
        },
        {
          id: "owners_evicted",
          title: "Evicted",
          unit: "binBps",
          expr: byOwner(`rate(uvm_owner_evicted_bytes_total{${NODES}}[$__range])`),
        },
        {
          id: "owners_induced",
          title: "Induced",
          unit: "binBps",
          expr: byOwner(`rate(uvm_owner_induced_eviction_bytes_total{${NODES}}[$__range])`),
        },
      ],
    }),
  )
  .withPanel(
    rows({
      id: 10,
      title: "Evictions between owners",
      description: "Whose memory is evicted for whom, over the selected time: the largest 20. Without what an owner evicts of itself.",
      width: 12,
      docs: ["runbooks/UvmOwnerIsVictim.md"],
      to: [TO_EVICTOR, TO_VICTIM],
      labels: {
        cluster: "Cluster",
        hostname: "Node",
        evictor_kind: "Kind of evictor",
        evictor: "Evictor",
        victim_kind: "Kind of victim",
        victim: "Victim",
      },
      sort: "pairs",
      columns: [
        {
          id: "pairs",
          title: "Evicted",
          unit: "binBps",
          // `unless` removes the pairs in which both are the same.
          expr: `topk(20, (${pairs(PAIR)} unless label_join(label_join(
            ${pairs("cluster, hostname, victim_kind, victim")},
            "evictor_kind", "", "victim_kind"), "evictor", "", "victim")) > 0)`,
        },
      ],
    }),
  )
  .withPanel(
    rows({
      id: 11,
      title: "Alerts",
      description: "Alerts of uvmd's rules that fire now.",
      width: 24,
      height: 6,
      docs: ["alerts.md"],
      to: [TO_RUNBOOK, TO_NODE],
      labels: { severity: "Severity", alertname: "Alert", hostname: "Node", instance: "Target", gpu: "GPU", owner_kind: "Kind", owner: "Owner" },
      columns: [
        {
          id: "alerts_firing",
          title: "Number",
          unit: "none",
          expr: `count by (severity, alertname, hostname, instance, gpu, owner_kind, owner) (${withOwner('ALERTS{alertname=~"Uvm.+", alertstate="firing", cluster=~"$cluster", hostname=~"$node|"}')})`,
        },
      ],
    }),
  );
