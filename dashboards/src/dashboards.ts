// The frame of a dashboard: variables, links to the others, and alerts as annotations.

import {
  AnnotationQueryBuilder,
  ConstantVariableBuilder,
  CustomVariableBuilder,
  DashboardBuilder,
  DashboardCursorSync,
  DashboardLinkBuilder,
  DashboardLinkType,
  DatasourceVariableBuilder,
  QueryVariableBuilder,
  VariableHide,
  VariableRefresh,
  VariableSort,
} from "@grafana/grafana-foundation-sdk/dashboard";
import { DATASOURCE, withOwner } from "./panels.js";

// Matchers of the variables. All of `cluster` also matches series without that label.
export const NODES = 'cluster=~"$cluster", hostname=~"$node"';
export const GPUS = `${NODES}, UUID=~"$gpu"`;
// Targets that cannot be scraped, of the jobs that have scraped uvmd, whatever their names. Without a target there is no figure, not 0.
export const DOWN = 'count(up{job=~"$job", cluster=~"$cluster"} == 0) or 0 * count(up{job=~"$job", cluster=~"$cluster"})';
// An owner's identifier is in the label of its kind, and the labels of other kinds are empty.
export const OWNER = `${NODES}, owner_kind="$kind", pod_uid=~"$owner|", hpc_job=~"$owner|", container_id=~"$owner|", unit=~"$owner|"`;

export function dashboard(uid: string, title: string, description: string) {
  return new DashboardBuilder(title)
    .uid(uid)
    .description(description)
    .tags(["uvm"])
    .time({ from: "now-1h", to: "now" })
    .refresh("30s")
    .timezone("browser")
    .tooltip(DashboardCursorSync.Crosshair)
    .link(
      new DashboardLinkBuilder("Dashboards of uvmd")
        .type(DashboardLinkType.Dashboards)
        .tags(["uvm"])
        .asDropdown(true)
        .includeVars(true)
        .keepTime(true),
    )
    .annotation(
      new AnnotationQueryBuilder()
        .name("Firing alerts")
        .datasource(DATASOURCE)
        .enable(true)
        .iconColor("red")
        .expr('ALERTS{alertname=~"Uvm.+", alertstate="firing", cluster=~"$cluster"}')
        .titleFormat("{{alertname}}")
        .textFormat("{{hostname}} {{gpu}} {{owner_kind}} {{pod_uid}}{{hpc_job}}{{container_id}}{{unit}}"),
    )
    .withVariable(new DatasourceVariableBuilder("datasource").label("Data source").type("prometheus"))
    .withVariable(
      values("cluster", "Cluster", "label_values(uvmd_build_info, cluster)").multi(true).includeAll(true).allValue(".*").current(ALL),
    )
    // Hidden: a PodMonitor names jobs by namespace and monitor.
    .withVariable(
      values("job", "Scrape job", "label_values(uvmd_build_info, job)").multi(true).includeAll(true).current(ALL).hide(VariableHide.HideVariable),
    )
    .withVariable(new ConstantVariableBuilder("docs").label("Documentation of uvmd").value("file:///usr/share/doc/uvmd/docs"))
    .withVariable(new ConstantVariableBuilder("page_port").label("Port of uvmd's page").value("9477"));
}

const ALL = { text: "All", value: "$__all" };

const values = (name: string, label: string, query: string) =>
  new QueryVariableBuilder(name)
    .label(label)
    .datasource(DATASOURCE)
    .query(query)
    .definition(query)
    .refresh(VariableRefresh.OnTimeRangeChanged)
    .sort(VariableSort.NaturalAsc);

const NODE_NAMES = 'label_values(uvmd_build_info{cluster=~"$cluster"}, hostname)';

export const oneNode = () => values("node", "Node", NODE_NAMES);
// Not `.*`: other exporters have metrics like process_cpu_seconds_total, without a `hostname`.
export const nodes = () => values("node", "Node", NODE_NAMES).multi(true).includeAll(true).allValue(".+").current(ALL);

// GPUs by UUID, with index and model as text.
export const gpus = () =>
  values("gpu", "GPU", 'query_result(label_join(uvm_gpu_info{cluster=~"$cluster", hostname=~"$node"}, "title", " ", "gpu", "modelName"))')
    .regex('/UUID="(?<value>[^"]+)".*title="(?<text>[^"]*)"/')
    // All are those of the node, by UUID: DCGM's series, which have no `hostname` of uvmd, are not read for the whole fleet.
    .multi(true)
    .includeAll(true)
    .current(ALL);

export const kinds = () => new CustomVariableBuilder("kind").label("Kind").values("pod,job,container,unit,other").current({ text: "pod", value: "pod" });

// Owners of that kind in the selected time, exited ones too. `multi` has Grafana escape the names for regular expressions.
export const owners = () =>
  values(
    "owner",
    "Owner",
    `query_result(${withOwner('last_over_time(uvm_owner_processes{cluster=~"$cluster", hostname=~"$node", owner_kind="$kind"}[$__range])')})`,
  )
    .regex('/\\bowner="([^"]*)"/')
    .multi(true);

export const policies = () =>
  values("policy", "Policy", 'label_values(uvmd_policy_actions_total{cluster=~"$cluster", hostname=~"$node"}, policy)')
    .multi(true)
    .includeAll(true)
    .allValue(".*")
    .current(ALL);
