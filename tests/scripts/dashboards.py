#!/usr/bin/env python3
"""The dashboards ask for what docs/metrics.md has, in its units, from no fixed data source, and link to pages that exist.

Rendering is not checked: there is no Grafana among the packages that the tests may use.
"""

import json
import re
import sys
from pathlib import Path

import promql

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "dashboards/grafana"
# DCGM's exporter, as it labels its series: joined on UUID.
DCGM_LABELS = {"UUID", "gpu", "Hostname", "modelName", "device"}
DCGM = {
    name: DCGM_LABELS
    for name in ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_PCIE_RX_BYTES", "DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE")
}
PROMETHEUS = {
    "up": set(),
    "ALERTS": {"alertname", "alertstate", "severity", "hostname", "UUID", "gpu", "owner_kind", "pod_uid", "hpc_job", "container_id", "unit"},
    # kube-state-metrics: names of pods by UID.
    "kube_pod_info": {"uid", "pod", "namespace"},
}
# Units of a panel whose only metric has this suffix, as they are and per second.
UNITS = {
    "_bytes": {"bytes", "percentunit", "none"},
    "_bytes_total": {"bytes", "binBps", "percentunit", "none"},
    "_seconds": {"s", "percentunit", "none", "dateTimeFromNow"},
    "_seconds_total": {"s", "percentunit", "short", "none"},
    "_ratio": {"percentunit", "none"},
}
SOURCE = "${datasource}"


def recorded() -> dict[str, set[str]]:
    """Series of our recording rules. Which labels they have is checked by alerts.py."""
    files = (ROOT / "dashboards/alerts").glob("*.rules.yaml")
    names = [name for file in files for name in re.findall(r"record: ([\w:]+)", file.read_text())]
    return {name: {"cluster", "hostname", "UUID", "gpu", "owner_kind", "pod_uid", "hpc_job", "container_id", "unit"} for name in names}


def plain(expr: str) -> str:
    """An expression with Grafana's variables filled in, of which PromQL has none."""
    expr = expr.replace("$__rate_interval", "5m").replace("$__interval", "1m").replace("$__range", "1h")
    return re.sub(r"\$\{?(\w+)(:\w+)?\}?", "x", expr)


def mistakes_of_query(expr: str, known: dict[str, set[str]]) -> list[str]:
    wrong = promql.mistakes(plain(expr), known)
    for function, interval in re.findall(r"\b(rate|irate|increase)\([^()]*\[([^\]]+)\]", expr):
        if interval not in ("$__rate_interval", "$__range"):
            wrong.append(f"{function} over {interval}, not $__rate_interval")
    return wrong


def mistakes_of_panel(panel: dict, known: dict[str, set[str]]) -> list[str]:
    if panel["type"] == "row":
        return []
    wrong = []
    if not panel.get("description"):
        wrong.append("no description")
    unit = panel["fieldConfig"]["defaults"].get("unit")
    if not unit:
        wrong.append("no unit")
    if panel.get("datasource", {}).get("uid") != SOURCE:
        wrong.append("its data source is not the variable")
    if not panel.get("targets"):
        wrong.append("no query")
    for target in panel.get("targets", []):
        if target.get("datasource", {}).get("uid", SOURCE) != SOURCE:
            wrong.append(f"{target['refId']}: its data source is not the variable")
        wrong += [f"{target['refId']}: {mistake}" for mistake in mistakes_of_query(target["expr"], known)]
    metrics = {each.metric for target in panel.get("targets", []) for each in promql.parse(plain(target["expr"])).selectors}
    if panel["type"] == "timeseries" and len(metrics) == 1:
        metric = metrics.pop()
        for suffix in sorted(UNITS, key=len, reverse=True):
            if metric.endswith(suffix):
                if unit not in UNITS[suffix]:
                    wrong.append(f"unit {unit} for {metric}")
                break
    for link in panel.get("links", []):
        page = re.fullmatch(r"\$\{docs\}/([\w/.-]+\.md)(#[\w-]+)?", link["url"])
        if page and not (ROOT / "docs" / page[1]).is_file():
            wrong.append(f"link to docs/{page[1]}, which does not exist")
    return wrong


def mistakes_of(dashboard: dict, known: dict[str, set[str]]) -> list[str]:
    wrong, titles = [], set()
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    wrong += [f"no variable {name}" for name in ("datasource", "cluster", "node") if name not in variables]
    for name, variable in variables.items():
        query = variable["query"] if isinstance(variable["query"], str) else variable["query"].get("query", "")
        asked = re.match(r"(?:label_values|query_result)\((.*)\)$", query)
        if variable["type"] == "query" and asked:
            expr, label = asked[1], None
            if query.startswith("label_values"):
                expr, _, label = asked[1].rpartition(",")
            wrong += [f"variable {name}: {mistake}" for mistake in promql.mistakes(plain(expr), known)]
            metrics = {each.metric for each in promql.parse(plain(expr)).selectors}
            if label and not any(label.strip() in known.get(metric, set()) | promql.SCRAPE_LABELS for metric in metrics):
                wrong.append(f"variable {name}: {metrics} has no label {label.strip()}")
    for panel in dashboard["panels"]:
        if panel["type"] != "row":
            if panel["title"] in titles:
                wrong.append(f"two panels {panel['title']}")
            titles.add(panel["title"])
        wrong += [f"{panel['title']}: {mistake}" for mistake in mistakes_of_panel(panel, known)]
    return wrong


def main() -> int:
    known = promql.documented(ROOT / "docs/metrics.md") | DCGM | PROMETHEUS | recorded()
    files = sorted(FOLDER.glob("*.json"))
    dashboards = {file.name: json.loads(file.read_text()) for file in files}
    wrong = [f"{name}: {mistake}" for name, dashboard in dashboards.items() for mistake in mistakes_of(dashboard, known)]
    uids = [dashboard["uid"] for dashboard in dashboards.values()]
    wrong += [f"two dashboards {uid}" for uid in set(uids) if uids.count(uid) > 1]
    panels = sum(panel["type"] != "row" for dashboard in dashboards.values() for panel in dashboard["panels"])
    if not panels:
        wrong.append("there are no dashboards")
    print("\n".join(wrong) or f"{len(dashboards)} dashboards, {panels} panels", file=sys.stderr if wrong else sys.stdout)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
