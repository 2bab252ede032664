#!/usr/bin/env python3
"""Metrics and labels of PromQL expressions, and whether docs/metrics.md has them. `--test` checks this file's examples."""

import doctest
import re
import sys
from pathlib import Path
from typing import NamedTuple

TOKEN = re.compile(
    r"""(?P<comment>\#[^\n]*)|(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)|(?P<name>[A-Za-z_:][\w:]*)"""
    r"""|(?P<range>\[[^\]]*\])|(?P<number>\d[\w.]*)|(?P<operator>=~|!~|!=|==|<=|>=|[-+*/%^=<>(){},@.])|(?P<space>\s+)"""
)
# Words that look like a metric. `offset` and `bool` stand behind an expression, the others are operators and functions without arguments of ours.
KEYWORDS = {"and", "or", "unless", "offset", "bool", "inf", "nan"}
GROUPINGS = {"by", "without", "on", "ignoring", "group_left", "group_right"}
# Labels that Prometheus, and `cluster` that its configuration, adds to every series.
SCRAPE_LABELS = {"instance", "job", "cluster"}
HISTOGRAM_SUFFIXES = ("_bucket", "_sum", "_count")


class Selector(NamedTuple):
    """A metric in an expression, with the labels of its matchers."""

    metric: str
    labels: tuple[str, ...]


class Expression(NamedTuple):
    """Metrics of an expression; labels that it groups or matches by; labels that it creates."""

    selectors: list[Selector]
    grouping: set[str]
    created: set[str]


def tokens(text: str) -> list[tuple[str, str]]:
    """The tokens of an expression as pairs of kind and text. ValueError for a character that PromQL does not have."""
    found, at = [], 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if not match:
            raise ValueError(f"no PromQL: {text[at:at + 20]!r}")
        if match.lastgroup not in ("space", "comment"):
            found.append((match.lastgroup or "", match[0]))
        at = match.end()
    return found


def parse(text: str) -> Expression:
    """Metrics and labels of an expression.

    >>> parse('sum by (UUID) (rate(uvm_replays_total{hostname=~"a,b", gpu!=""}[5m])) > 0')
    Expression(selectors=[Selector(metric='uvm_replays_total', labels=('hostname', 'gpu'))], grouping={'UUID'}, created=set())
    >>> parse('a / on (x) group_left () b offset 5m unless c:d:rate5m')[:2]
    ([Selector(metric='a', labels=()), Selector(metric='b', labels=()), Selector(metric='c:d:rate5m', labels=())], {'x'})
    >>> sorted(parse('label_replace(up, "node", "$1", "instance", "(.*):.*")').created)
    ['node']
    >>> [each.metric for each in parse('{__name__="up"} or avg(x{}) # y').selectors]
    ['up', 'x']
    >>> parse('up ~ 1')
    Traceback (most recent call last):
    ValueError: no PromQL: '~ 1'
    """
    found = tokens(text)
    selectors: list[Selector] = []
    grouping: set[str] = set()
    created: set[str] = set()
    at = 0
    while at < len(found):
        kind, word = found[at]
        following = found[at + 1][1] if at + 1 < len(found) else ""
        if kind == "name" and word in GROUPINGS:
            if following == "(":
                end = found.index(("operator", ")"), at)
                grouping |= {name for kind, name in found[at + 2 : end] if kind == "name"}
                at = end
        elif kind == "name" and following == "(":
            if word in ("label_replace", "label_join"):
                created.add(destination(found, at + 1))
        elif word == "{" or (kind == "name" and word.lower() not in KEYWORDS and not followed_by_grouping(found, at)):
            start = at if word == "{" else at + 1
            metric, labels = "" if word == "{" else word, []
            if start < len(found) and found[start][1] == "{":
                end = found.index(("operator", "}"), start)
                for position in range(start + 1, end):
                    if found[position][0] == "name":
                        if found[position][1] == "__name__":
                            metric = found[position + 2][1][1:-1]
                        else:
                            labels.append(found[position][1])
                at = end
            selectors.append(Selector(metric, tuple(labels)))
        at += 1
    return Expression(selectors, grouping, created)


def followed_by_grouping(found: list[tuple[str, str]], at: int) -> bool:
    """Whether this name is an aggregation, as `sum` of `sum by (x) (y)`."""
    return at + 1 < len(found) and found[at + 1][1] in ("by", "without")


def destination(found: list[tuple[str, str]], opening: int) -> str:
    """The second argument of the call that is opened here: the label that label_replace and label_join write."""
    depth = 0
    for at in range(opening, len(found)):
        depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(found[at][1], 0)
        if depth == 1 and found[at][1] == ",":
            return found[at + 1][1][1:-1]
    return ""


def documented(page: Path) -> dict[str, set[str]]:
    """The labels of each metric of docs/metrics.md, with the series of histograms."""
    metrics: dict[str, set[str]] = {}
    for section in re.split(r"^## `", page.read_text(), flags=re.MULTILINE)[1:]:
        name, _, text = section.partition("`\n")
        listed = re.search(r"^Labels: (.*?)\.\n", text, flags=re.DOTALL | re.MULTILINE)
        labels = set(re.findall(r"`(\w+)`", listed[1] if listed else ""))
        if re.match(r"\s*Histogram\.", text):
            for suffix in HISTOGRAM_SUFFIXES:
                metrics[name + suffix] = labels | ({"le"} if suffix == "_bucket" else set())
        else:
            metrics[name] = labels
    return metrics


def mistakes(text: str, known: dict[str, set[str]]) -> list[str]:
    """Metrics of an expression that are not known, and labels that they do not have.

    >>> known = {"up": set(), "uvm_replays_total": {"hostname", "UUID"}}
    >>> mistakes('sum by (instance, UUID) (uvm_replays_total{hostname="a"}) * on (instance) group_left () up', known)
    []
    >>> mistakes('sum by (pod) (uvm_replays_total{gpu="0"}) / uvm_replay_total', known)
    ['uvm_replays_total has no label gpu', 'there is no metric uvm_replay_total', 'no metric of the expression has the label pod']
    """
    expression = parse(text)
    wrong = []
    present = SCRAPE_LABELS | expression.created
    for selector in expression.selectors:
        if selector.metric not in known:
            wrong.append(f"there is no metric {selector.metric}")
            continue
        present |= known[selector.metric]
        wrong += [
            f"{selector.metric} has no label {label}"
            for label in selector.labels
            if label not in known[selector.metric] | SCRAPE_LABELS
        ]
    wrong += [f"no metric of the expression has the label {label}" for label in sorted(expression.grouping - present)]
    return wrong


if __name__ == "__main__":
    if sys.argv[1:] != ["--test"]:
        sys.exit("usage: promql.py --test")
    result = doctest.testmod()
    metrics = documented(Path(__file__).resolve().parents[2] / "docs/metrics.md")
    assert "le" in metrics["uvm_fault_batch_duration_seconds_bucket"] and "verdict" in metrics["uvm_thrashing"], "docs/metrics.md has another form"
    print(f"{result.attempted} examples, {result.failed} wrong; {len(metrics)} metrics in docs/metrics.md")
    sys.exit(bool(result.failed))
