// uvmd itself: whether it counts, whether it counts everything, and what it costs.

import { dashboard, DOWN, NODES, nodes } from "./dashboards.js";
import { chart, figure, type Query, rows, TO_NODE, TO_PAGE } from "./panels.js";

const NODE = "cluster, hostname";
// Of metrics that all exporters have: some of them have a label `hostname`, too.
const OF_UVMD = ', job=~"$job"';
const rate = (metric: string, by: string, more = "") => `sum by (${by}) (rate(${metric}{${NODES}${more}}[$__rate_interval]))`;

// The extremes of nodes: hundreds of series would be unreadable, and the table names the node.
const spread = (id: string, perNode: string, legend = ""): Query[] => [
  { id: `${id}_highest`, expr: `max(${perNode})`, legend: `${legend}highest` },
  { id: `${id}_median`, expr: `quantile(0.5, ${perNode})`, legend: `${legend}median` },
];

export const uvmd = dashboard("uvmd", "UVM / uvmd", "Health and cost of uvmd on all nodes.")
  .withVariable(nodes())
  .withPanel(
    figure({
      id: 1,
      title: "Nodes by state",
      description: "Waiting: for the driver or another prerequisite. Refused: the driver is not supported, or not as its version promises.",
      unit: "none",
      width: 8,
      docs: ["runbooks/UvmdWaiting.md", "runbooks/UvmdDriverRefused.md"],
      queries: [{ id: "states", expr: `sum by (state) (uvmd_state{${NODES}})`, legend: "{{state}}" }],
    }),
  )
  .withPanel(
    figure({
      id: 2,
      title: "Cannot be scraped",
      description: "Targets of the jobs that have scraped uvmd, which Prometheus cannot scrape now, in all of the selected clusters.",
      unit: "none",
      width: 4,
      limits: [1],
      docs: ["runbooks/UvmdDown.md"],
      queries: [{ id: "down", expr: DOWN }],
    }),
  )
  .withPanel(
    figure({
      id: 3,
      title: "Invalid configurations",
      description: "Nodes that could not reload their configuration, and run with an earlier one.",
      unit: "none",
      width: 4,
      limits: [1],
      docs: ["runbooks/UvmdConfigurationNotReloaded.md"],
      queries: [{ id: "not_reloaded", expr: `count(uvmd_config_last_reload_successful{${NODES}} == 0) or vector(0)` }],
    }),
  )
  .withPanel(
    figure({
      id: 4,
      title: "Different configurations",
      description: "Configurations in effect on the selected nodes: 1 where all are equal.",
      unit: "none",
      width: 4,
      docs: ["configuration.md"],
      queries: [{ id: "configurations", expr: `count(count_values("hash", uvmd_config_hash{${NODES}}))` }],
    }),
  )
  .withPanel(
    figure({
      id: 5,
      title: "Wrong tokens and passwords",
      description: "Requests with a wrong token or password in the selected time: a client is misconfigured, or guesses.",
      unit: "none",
      width: 4,
      limits: [1],
      docs: ["api.md"],
      queries: [{ id: "auth_failures", expr: `sum(increase(uvmd_auth_failures_total{${NODES}}[$__range]))` }],
    }),
  )
  .withPanel(
    chart({
      id: 6,
      title: "Degraded nodes and warnings",
      description: "Nodes whose counts are incomplete for a reason, and nodes with a warning. Empty if there are none.",
      unit: "none",
      width: 8,
      docs: ["runbooks/UvmdDegraded.md", "runbooks/UvmdWarningActive.md"],
      queries: [
        { id: "degraded", expr: `sum by (reason) (uvmd_degraded{${NODES}}) > 0`, legend: "{{reason}}" },
        { id: "warnings", expr: `sum by (warning) (uvmd_warning_active{${NODES}}) > 0`, legend: "{{warning}}" },
      ],
    }),
  )
  .withPanel(
    chart({
      id: 7,
      title: "Dropped events",
      description: "Events that uvmd could not count, by node and reason. While there are any, figures are lower bounds.",
      unit: "cps",
      width: 8,
      docs: ["runbooks/UvmdEventsDropped.md", "runbooks/UvmdVaSpacesDropped.md"],
      to: [TO_NODE],
      queries: [
        { id: "events_dropped", expr: `${rate("uvmd_events_dropped_total", "hostname, reason")} > 0`, legend: "{{hostname}}: {{reason}}" },
      ],
    }),
  )
  .withPanel(
    chart({
      id: 8,
      title: "Block records dropped",
      description: "Share of the records of 2 MiB blocks that were dropped. Only blocks and the certainty of verdicts suffer: counts are exact.",
      unit: "percentunit",
      width: 8,
      max: 1,
      docs: ["runbooks/UvmdBlockRecordsMissing.md"],
      to: [TO_NODE],
      queries: [
        {
          id: "records_dropped",
          expr: `(${rate("uvmd_block_records_dropped_total", NODE)}
            / (${rate("uvmd_block_records_dropped_total", NODE)} + ${rate("uvmd_block_records_total", NODE)})) > 0`,
          legend: "{{hostname}}",
        },
      ],
    }),
  )
  .withPanel(
    chart({
      id: 9,
      title: "CPU",
      description: "CPUs that uvmd takes on a node, and those that its probes take in other processes, if kernel.bpf_stats_enabled is 1.",
      unit: "percentunit",
      width: 8,
      docs: ["cost.md"],
      queries: [
        ...spread("cpu", rate("process_cpu_seconds_total", NODE, OF_UVMD)),
        ...spread("probes", rate("uvmd_probe_run_seconds_total", NODE), "probes, "),
      ],
    }),
  )
  .withPanel(
    chart({
      id: 10,
      title: "Memory",
      description: "Resident memory of uvmd on a node.",
      unit: "bytes",
      width: 8,
      docs: ["cost.md"],
      queries: spread("memory", `max by (${NODE}) (process_resident_memory_bytes{${NODES}${OF_UVMD}})`),
    }),
  )
  .withPanel(
    chart({
      id: 11,
      title: "Duration of snapshots and scrapes",
      description: "99th percentile over all nodes. A snapshot reads the kernel's maps; a scrape writes the metrics.",
      unit: "s",
      width: 8,
      docs: ["cost.md"],
      queries: [
        {
          id: "snapshot_duration",
          expr: `histogram_quantile(0.99, ${rate("uvmd_snapshot_duration_seconds_bucket", "le")})`,
          legend: "snapshot",
        },
        {
          id: "scrape_duration",
          expr: `histogram_quantile(0.99, ${rate("uvmd_scrape_duration_seconds_bucket", "le")})`,
          legend: "scrape",
        },
      ],
    }),
  )
  .withPanel(
    chart({
      id: 12,
      title: "Requests",
      description: "Requests of the API and the metrics by status code, those rejected under overload, and connections closed by uvmd.",
      unit: "reqps",
      width: 12,
      docs: ["api.md"],
      queries: [
        { id: "requests", expr: rate("uvmd_http_requests_total", "code"), legend: "{{code}}" },
        { id: "rejected", expr: `${rate("uvmd_http_requests_rejected_total", "reason")} > 0`, legend: "rejected: {{reason}}" },
        { id: "closed", expr: `${rate("uvmd_http_connections_closed_total", "reason")} > 0`, legend: "closed: {{reason}}" },
      ],
    }),
  )
  .withPanel(
    chart({
      id: 13,
      title: "Dropped lines and stream events",
      description: "Lines of logs and of the journal, and events for slow clients, dropped within each step of the chart. Lost audit lines are lost for good.",
      unit: "none",
      width: 12,
      docs: ["runbooks/UvmdAuditLinesDropped.md"],
      queries: (
        [
          ["audit_dropped", "audit log", "uvmd_audit_lines_dropped_total"],
          ["log_dropped", "log", "uvmd_log_lines_dropped_total"],
          ["journal_dropped", "journal of advice", "uvmd_advice_journal_dropped_lines_total"],
          ["stream_dropped", "event streams", "uvmd_stream_events_dropped_total"],
        ] as const
      ).map(([id, legend, metric]) => ({ id, legend, expr: `sum(increase(${metric}{${NODES}}[$__rate_interval])) > 0` })),
    }),
  )
  .withPanel(
    rows({
      id: 14,
      title: "Nodes",
      description: "Cost and age of uvmd on each node, over the selected time.",
      width: 14,
      docs: ["cost.md", "runbooks/UvmdRestarting.md", "runbooks/UvmdReadingsStale.md"],
      to: [TO_NODE, TO_PAGE],
      labels: { cluster: "Cluster", hostname: "Node" },
      sort: "nodes_cpu",
      columns: [
        {
          id: "nodes_cpu",
          title: "CPU",
          unit: "percentunit",
          expr: `sum by (${NODE}) (rate(process_cpu_seconds_total{${NODES}${OF_UVMD}}[$__range]))`,
        },
        {
          id: "nodes_memory",
          title: "Memory, highest",
          unit: "bytes",
          expr: `max by (${NODE}) (max_over_time(process_resident_memory_bytes{${NODES}${OF_UVMD}}[$__range]))`,
        },
        {
          id: "nodes_dropped",
          title: "Dropped events",
          unit: "none",
          limits: [1],
          expr: `sum by (${NODE}) (increase(uvmd_events_dropped_total{${NODES}}[$__range]))`,
        },
        {
          id: "nodes_restarts",
          title: "Restarts",
          unit: "none",
          limits: [4],
          expr: `sum by (${NODE}) (changes(process_start_time_seconds{${NODES}${OF_UVMD}}[$__range]))`,
        },
        {
          id: "nodes_reading_age",
          title: "Last reading",
          unit: "s",
          limits: [300],
          expr: `max by (${NODE}) (time() - uvmd_last_reading_timestamp_seconds{${NODES}})`,
        },
      ],
    }),
  )
  .withPanel(
    rows({
      id: 15,
      title: "Builds and drivers",
      description: "Nodes by version of uvmd, version of the driver, and family of its structures.",
      width: 10,
      docs: ["operate.md"],
      labels: { version: "uvmd", commit: "Commit", driver: "Driver", layout: "Family" },
      sort: "builds",
      columns: [
        {
          id: "builds",
          title: "Nodes",
          unit: "none",
          expr: `count by (version, commit, driver, layout) (uvmd_build_info{${NODES}}
            * on (cluster, hostname, job, instance) group_left (driver, layout) uvmd_backend_info{${NODES}})`,
        },
      ],
    }),
  );
