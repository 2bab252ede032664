#!/usr/bin/env python3
"""Print the expressions of all panels of the dashboards, a line each, as Prometheus takes them.

    panels.py [VARIABLE=VALUE]...

A line has DASHBOARD/QUERY, a tab, and the expression in one line. Variables of a dashboard get the given values, else that of "All". A variable
without either is an error.
"""
import json
import pathlib
import re
import sys

GRAFANA = pathlib.Path(__file__).resolve().parents[2] / "dashboards/grafana"


def targets(panels):
    for panel in panels:
        yield from targets(panel.get("panels") or [])
        for target in panel.get("targets", []):
            yield target["refId"], target["expr"]


def filled(expression, values):
    def value(match):
        name = match[1] or match[2]
        if name not in values:
            sys.exit(f"no value for ${name}")
        return values[name]

    # "$1" in the argument of label_replace is not a variable, nor is the anchor "$".
    return re.sub(r"\$(?:([a-z_]+)|\{([A-Za-z_]+)[^}]*\})", value, expression)


def main(arguments):
    given = dict(argument.split("=", 1) for argument in arguments)
    for path in sorted(GRAFANA.glob("*.json")):
        dashboard = json.loads(path.read_text())
        values = {variable["name"]: variable["allValue"] for variable in dashboard["templating"]["list"] if variable.get("allValue")}
        values |= given
        for query, expression in targets(dashboard["panels"]):
            print(f"{dashboard['uid']}/{query}\t{' '.join(filled(expression, values).split())}")


if __name__ == "__main__":
    main(sys.argv[1:])
