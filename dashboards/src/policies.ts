// What policies do, whether it helps, and what prevents more.

import { dashboard, NODES, nodes, policies } from "./dashboards.js";
import { chart, figure, rows, TO_NODE } from "./panels.js";

const POLICY = `${NODES}, policy=~"$policy"`;
const byPolicy = (metric: string, more = "") => `sum by (policy) (increase(${metric}{${POLICY}${more}}[$__range]))`;

export const policiesDashboard = dashboard(
  "uvm-policies",
  "UVM / Policies",
  "Decisions of live policies, the driver calls and bytes that they cost, and the link before and after.",
)
  .withVariable(nodes())
  .withVariable(policies())
  .withPanel(
    figure({
      id: 1,
      title: "Nodes that may act",
      description: "Nodes on which acting is enabled and no switch is off. 0 is the default.",
      unit: "none",
      width: 4,
      docs: ["acting.md", "runbooks/UvmdActingSwitchedOff.md"],
      queries: [{ id: "acting", expr: `sum(uvmd_policy_active{${NODES}})` }],
    }),
  )
  .withPanel(
    figure({
      id: 2,
      title: "Rollbacks",
      description: "Plans rolled back in the selected time because they did not help.",
      unit: "none",
      width: 4,
      docs: ["runbooks/UvmdPolicyRolledBackRepeatedly.md"],
      queries: [{ id: "rollbacks_total", expr: `sum(increase(uvmd_policy_rollbacks_total{${POLICY}}[$__range]))` }],
    }),
  )
  .withPanel(
    figure({
      id: 3,
      title: "Nodes with impediments",
      description: "Nodes on which overrides are invalid, the journal of advice cannot be written or read, or a switch is not on the disk.",
      unit: "none",
      width: 16,
      limits: [1],
      docs: [
        "runbooks/UvmdOverridesInvalid.md",
        "runbooks/UvmdAdviceJournalNotWritable.md",
        "runbooks/UvmdAdviceJournalUnrecognised.md",
        "runbooks/UvmdSwitchNotPersisted.md",
      ],
      queries: (
        [
          ["overrides", "overrides", "uvmd_overrides_last_reload_successful", "== 0"],
          ["journal_writable", "journal not writable", "uvmd_advice_journal_writable", "== 0"],
          ["journal_unrecognised", "journal not readable", "uvmd_advice_journal_unrecognised_bytes", "> 0"],
          ["persist_pending", "switch not saved", "uvmd_policy_persist_pending", "== 1"],
        ] as const
      ).map(([id, legend, metric, limit]) => ({ id, legend, expr: `count(${metric}{${NODES}} ${limit}) or vector(0)` })),
    }),
  )
  .withPanel(
    chart({
      id: 4,
      title: "Link, and plans in force",
      description:
        "Migrated bytes by cause, with the plans in force on the right axis. A policy that helps lowers faults and evictions by more than its own bytes " +
        "(tool). Remote accesses, which replace copies under some policies, are not in it.",
      unit: "binBps",
      width: 16,
      height: 10,
      stacked: true,
      docs: ["policies.md"],
      overrides: [
        {
          regexp: "/^plans in force/",
          properties: [
            { id: "unit", value: "none" },
            { id: "custom.axisPlacement", value: "right" },
            { id: "custom.stacking", value: { mode: "none", group: "B" } },
            { id: "custom.fillOpacity", value: 0 },
            { id: "custom.lineWidth", value: 2 },
            { id: "custom.lineInterpolation", value: "stepAfter" },
          ],
        },
      ],
      queries: [
        { id: "link", expr: `sum by (cause) (rate(uvm_migrated_bytes_total{${NODES}}[$__rate_interval]))`, legend: "{{cause}}" },
        { id: "in_force", expr: `sum(uvmd_policy_decisions{${NODES}, stage=~"trial|confirmed"})`, legend: "plans in force" },
      ],
    }),
  )
  .withPanel(
    chart({
      id: 5,
      title: "Thrashing, for comparison",
      description: "Processes under a verdict of thrashing on the same nodes, in the mean. It falls where policies help.",
      unit: "short",
      width: 8,
      height: 10,
      docs: ["verdicts.md"],
      queries: [
        {
          id: "thrashing",
          expr: `sum by (verdict) (rate(uvm_owner_verdict_seconds_total{${NODES}, verdict!~"streaming|first_touch_storm"}[$__rate_interval]))`,
          legend: "{{verdict}}",
        },
      ],
    }),
  )
  .withPanel(
    chart({
      id: 6,
      title: "Decisions by stage",
      description: "Decisions in the history. Shadow, trial and confirmed are open; the number of the others is bounded.",
      unit: "none",
      width: 8,
      docs: ["policies.md"],
      queries: [{ id: "decisions", expr: `sum by (stage) (uvmd_policy_decisions{${NODES}})`, legend: "{{stage}}" }],
    }),
  )
  .withPanel(
    chart({
      id: 7,
      title: "Rollbacks by policy",
      description: "Plans rolled back, within each step of the chart. A policy that is rolled back again and again does not suit the programs.",
      unit: "none",
      width: 8,
      docs: ["runbooks/UvmdPolicyRolledBackRepeatedly.md"],
      to: [TO_NODE],
      queries: [
        {
          id: "rollbacks",
          expr: `sum by (hostname, policy) (increase(uvmd_policy_rollbacks_total{${POLICY}}[$__rate_interval])) > 0`,
          legend: "{{hostname}}: {{policy}}",
        },
      ],
    }),
  )
  .withPanel(
    chart({
      id: 8,
      title: "Use of the budget",
      description:
        "Bytes migrated for policies on the node that migrates most, and actions denied, as for want of budget. The budget of a node is " +
        "policy.bytes_per_second in its configuration, 4 GiB/s by default.",
      unit: "binBps",
      width: 8,
      docs: ["configuration.md"],
      overrides: [
        {
          regexp: "/^denied/",
          properties: [
            { id: "unit", value: "cps" },
            { id: "custom.axisPlacement", value: "right" },
          ],
        },
      ],
      queries: [
        {
          id: "budget_bytes",
          expr: `max(sum by (cluster, hostname) (rate(uvmd_policy_migrated_bytes_total{${NODES}}[$__rate_interval])))`,
          legend: "highest node",
        },
        {
          id: "budget_denied",
          expr: `sum by (action) (rate(uvmd_policy_actions_total{${POLICY}, result="denied"}[$__rate_interval])) > 0`,
          legend: "denied: {{action}}",
        },
      ],
    }),
  )
  .withPanel(
    chart({
      id: 9,
      title: "Actions",
      description: "Actions that the driver carried out, by kind.",
      unit: "cps",
      width: 12,
      docs: ["acting.md"],
      queries: [
        {
          id: "actions",
          expr: `sum by (action) (rate(uvmd_policy_actions_total{${POLICY}, result="done"}[$__rate_interval]))`,
          legend: "{{action}}",
        },
      ],
    }),
  )
  .withPanel(
    chart({
      id: 10,
      title: "Actions not carried out",
      description: "Actions without effect, by result. `exited` and `not_mapped` are normal; `failed` is an error of the driver or the kernel.",
      unit: "cps",
      width: 12,
      docs: ["acting.md"],
      queries: [
        {
          id: "actions_without_effect",
          expr: `sum by (policy, result) (rate(uvmd_policy_actions_total{${POLICY}, result!="done"}[$__rate_interval])) > 0`,
          legend: "{{policy}}: {{result}}",
        },
      ],
    }),
  )
  .withPanel(
    rows({
      id: 11,
      title: "Policies",
      description: "What each policy did in the selected time.",
      width: 24,
      height: 7,
      docs: ["policies.md"],
      labels: { policy: "Policy" },
      sort: "policies_done",
      columns: [
        { id: "policies_done", title: "Actions done", unit: "none", expr: byPolicy("uvmd_policy_actions_total", ', result="done"') },
        { id: "policies_denied", title: "Denied", unit: "none", expr: byPolicy("uvmd_policy_actions_total", ', result="denied"') },
        { id: "policies_failed", title: "Failed", unit: "none", limits: [1], expr: byPolicy("uvmd_policy_actions_total", ', result="failed"') },
        { id: "policies_migrated", title: "Migrated", unit: "bytes", expr: byPolicy("uvmd_policy_migrated_bytes_total") },
        { id: "policies_rollbacks", title: "Rollbacks", unit: "none", limits: [1], expr: byPolicy("uvmd_policy_rollbacks_total") },
      ],
    }),
  );
