// Panels, as all dashboards have them. Numbers of panels and names of queries are stable: links, tests and `expectations.toml` refer to them.

import {
  BigValueColorMode,
  BigValueGraphMode,
  BigValueTextMode,
  type DataSourceRef,
  GraphThresholdsStyleConfigBuilder,
  GraphThresholdsStyleMode,
  LegendDisplayMode,
  LegendPlacement,
  ReduceDataOptionsBuilder,
  SortOrder,
  StackingConfigBuilder,
  StackingMode,
  TableSortByFieldStateBuilder,
  TooltipDisplayMode,
  VizLegendOptionsBuilder,
  VizTooltipOptionsBuilder,
} from "@grafana/grafana-foundation-sdk/common";
import {
  DashboardLinkBuilder,
  DashboardLinkType,
  type DynamicConfigValue,
  MappingType,
  type Threshold,
  ThresholdsConfigBuilder,
  ThresholdsMode,
  type ValueMapping,
} from "@grafana/grafana-foundation-sdk/dashboard";
import * as heatmap from "@grafana/grafana-foundation-sdk/heatmap";
import { DataqueryBuilder, PromQueryFormat } from "@grafana/grafana-foundation-sdk/prometheus";
import * as stat from "@grafana/grafana-foundation-sdk/stat";
import * as table from "@grafana/grafana-foundation-sdk/table";
import * as timeseries from "@grafana/grafana-foundation-sdk/timeseries";

export const DATASOURCE: DataSourceRef = { type: "prometheus", uid: "${datasource}" };

// Verdicts that mean repeated work. The others, `streaming` and `first_touch_storm`, do not.
export const THRASHING = 'verdict!~"streaming|first_touch_storm"';
// The identifier of an owner is in one of four labels, by its kind; the others are empty.
export const withOwner = (vector: string) => `label_join(${vector}, "owner", "", "pod_uid", "hpc_job", "container_id", "unit")`;

export interface Query {
  // The refId: unique in the dashboard.
  id: string;
  expr: string;
  legend?: string;
}

interface Common {
  id: number;
  title: string;
  description: string;
  unit: string;
  // In columns of the grid, which has 24.
  width: number;
  height?: number;
  // Documentation that helps further: names below docs/.
  docs?: string[];
  // Dashboards to which a series or row leads.
  to?: Target[];
}

interface Chart extends Common {
  queries: Query[];
  stacked?: boolean;
  // Warning and critical values.
  limits?: number[];
  // 0 unless given; null for none.
  min?: number | null;
  max?: number;
  overrides?: { regexp: string; properties: DynamicConfigValue[] }[];
}

// A time series panel.
export function chart(panel: Chart) {
  const built = new timeseries.PanelBuilder()
    .lineWidth(1)
    .fillOpacity(panel.stacked ? 30 : 5)
    .legend(
      new VizLegendOptionsBuilder().showLegend(true).displayMode(LegendDisplayMode.List).placement(LegendPlacement.Bottom),
    )
    .tooltip(new VizTooltipOptionsBuilder().mode(TooltipDisplayMode.Multi).sort(SortOrder.Descending))
    .targets(panel.queries.map(range));
  if (panel.stacked) built.stacking(new StackingConfigBuilder().mode(StackingMode.Normal).group("A"));
  if (panel.limits) {
    built.thresholds(thresholds(panel.limits));
    built.thresholdsStyle(new GraphThresholdsStyleConfigBuilder().mode(GraphThresholdsStyleMode.Dashed));
  }
  if (panel.min !== null) built.min(panel.min ?? 0);
  if (panel.max !== undefined) built.max(panel.max);
  for (const { regexp, properties } of panel.overrides ?? []) built.overrideByRegexp(regexp, properties);
  return framed(built, panel, 8, "__field.labels");
}

interface Figure extends Common {
  queries: Query[];
  limits?: number[];
  // Lower is worse.
  inverted?: boolean;
  mappings?: ValueMapping[];
  // The name of the series instead of its value.
  names?: boolean;
}

// A stat panel: the newest values.
export function figure(panel: Figure) {
  const built = new stat.PanelBuilder()
    .reduceOptions(new ReduceDataOptionsBuilder().calcs(["lastNotNull"]))
    .graphMode(BigValueGraphMode.None)
    .colorMode(panel.limits || panel.mappings ? BigValueColorMode.Value : BigValueColorMode.None)
    .textMode(panel.names ? BigValueTextMode.Name : BigValueTextMode.Auto)
    .noValue("-")
    .targets(panel.queries.map(instant))
    .thresholds(thresholds(panel.limits ?? [], panel.inverted));
  if (panel.mappings) built.mappings(panel.mappings);
  return framed(built, panel, 4, "__field.labels");
}

export interface Column extends Query {
  title: string;
  unit: string;
  limits?: number[];
}

interface Table extends Omit<Common, "unit"> {
  // Names of labels, and their titles, from left to right.
  labels: Record<string, string>;
  columns: Column[];
  // Query by which rows are sorted, largest first.
  sort?: string;
}

// A table of the results of queries with equal labels: a row for each set of labels.
export function rows(panel: Table) {
  const built = new table.PanelBuilder()
    .targets(panel.columns.map((column) => instant(column).format(PromQueryFormat.Table)))
    .noValue("-")
    .filterable(true)
    .withTransformation({ id: "merge", options: {} })
    .withTransformation({
      id: "organize",
      options: {
        excludeByName: { Time: true },
        indexByName: Object.fromEntries([...Object.keys(panel.labels), ...panel.columns.map(valueOf)].map((name, index) => [name, index])),
        renameByName: {},
      },
    });
  for (const [label, title] of Object.entries(panel.labels)) built.overrideByName(label, [{ id: "displayName", value: title }]);
  for (const column of panel.columns) {
    const properties: DynamicConfigValue[] = [
      { id: "displayName", value: column.title },
      { id: "unit", value: column.unit },
    ];
    if (column.limits) {
      properties.push({ id: "thresholds", value: thresholds(column.limits).build() });
      properties.push({ id: "custom.cellOptions", value: { type: "color-text" } });
    }
    // The only query of a table gives the column `Value`.
    built.overrideByRegexp(`/^Value( #${column.id})?$/`, properties);
  }
  const sorted = panel.columns.find((column) => column.id === panel.sort);
  if (sorted) built.sortBy([new TableSortByFieldStateBuilder().displayName(sorted.title).desc(true)]);
  return framed(built, { ...panel, unit: "none" }, 9, "__data.fields");
}

interface Heat extends Common {
  query: Query;
}

// A heat map of a histogram's buckets.
export function heat(panel: Heat) {
  const built = new heatmap.PanelBuilder()
    .calculate(false)
    .color(new heatmap.HeatmapColorOptionsBuilder().mode(heatmap.HeatmapColorMode.Scheme).scheme("Oranges").steps(32).exponent(0.5))
    .yAxis(new heatmap.YAxisConfigBuilder().unit(panel.unit))
    .targets([range({ ...panel.query, legend: "{{le}}" }).format(PromQueryFormat.Heatmap)]);
  return framed(built, panel, 8, "__field.labels");
}

// A mapping of values to texts in a colour.
export const texts = (options: Record<string, { text: string; color?: string }>): ValueMapping => ({
  type: MappingType.ValueToText,
  options,
});

export interface Target {
  title: string;
  url: string;
}

// Links of a series or row, in which LABELS stands for its labels.
const KEPT = "${datasource:queryparam}&${cluster:queryparam}&${__url_time_range}";
export const TO_NODE: Target = { title: "Node", url: `/d/uvm-node?var-node=\${LABELS.hostname}&${KEPT}` };
export const TO_OWNER: Target = {
  title: "Owner",
  url: `/d/uvm-owner?var-kind=\${LABELS.owner_kind}&var-owner=\${LABELS.owner}&${KEPT}`,
};
export const TO_EVICTOR: Target = {
  title: "Evictor",
  url: `/d/uvm-owner?var-kind=\${LABELS.evictor_kind}&var-owner=\${LABELS.evictor}&${KEPT}`,
};
export const TO_VICTIM: Target = {
  title: "Victim",
  url: `/d/uvm-owner?var-kind=\${LABELS.victim_kind}&var-owner=\${LABELS.victim}&${KEPT}`,
};
export const TO_PAGE: Target = { title: "Page of uvmd on the node", url: "http://${LABELS.hostname}:${page_port}/" };
export const TO_OWNER_OF_PAGE: Target = {
  title: "Owner on the page of uvmd",
  url: "http://${LABELS.hostname}:${page_port}/#owner=${kind}%3A${owner:percentencode}",
};
export const TO_RUNBOOK: Target = { title: "Runbook", url: "${docs}/runbooks/${LABELS.alertname}.md" };

const link = (title: string, url: string) => new DashboardLinkBuilder(title).type(DashboardLinkType.Link).url(url).targetBlank(true);

const oneLine = (expr: string) => expr.replace(/\s+/g, " ").trim();

function query({ id, expr, legend }: Query) {
  const built = new DataqueryBuilder().datasource(DATASOURCE).refId(id).expr(oneLine(expr));
  return legend === undefined ? built : built.legendFormat(legend);
}

const range = (each: Query) => query(each).range();
const instant = (each: Query) => query(each).instant();

function thresholds(limits: number[], inverted = false) {
  const colors = limits.length > 1 ? ["green", "orange", "red"] : ["green", "red"];
  if (inverted) colors.reverse();
  const steps: Threshold[] = [null, ...limits].map((value, index) => ({ value, color: colors[index] }));
  return new ThresholdsConfigBuilder().mode(ThresholdsMode.Absolute).steps(steps);
}

const valueOf = ({ id }: Query) => `Value #${id}`;

type Panel = timeseries.PanelBuilder | stat.PanelBuilder | table.PanelBuilder | heatmap.PanelBuilder;

// What all panels have.
function framed<P extends Panel>(built: P, panel: Common, height: number, labels: string): P {
  built
    .id(panel.id)
    .title(panel.title)
    .description(panel.description)
    .datasource(DATASOURCE)
    .unit(panel.unit)
    .span(panel.width)
    .height(panel.height ?? height);
  if (panel.docs) built.links(panel.docs.map((name) => link(name.replace(/^runbooks\/(.*)\.md$/, "Runbook $1"), `\${docs}/${name}`)));
  if (panel.to) built.dataLinks(panel.to.map(({ title, url }) => link(title, url.replaceAll("LABELS", labels))));
  return built;
}
