#!/usr/bin/env python3
"""Check the rules of dashboards/alerts beyond what promtool does: alerts.py UVMCTL.

Metrics and labels are in docs/metrics.md. Each alert has a severity, its annotations, a runbook page, tests, and a row in docs/alerts.md and in the index of
the runbooks, which agree with it. The commands of the runbooks exist, with their options, in UVMCTL.
"""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

# Else the import leaves a folder here that git sees.
sys.dont_write_bytecode = True
import promql  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
ALERTS = ROOT / "dashboards/alerts"
RUNBOOKS = ROOT / "docs/runbooks"
RUNBOOK_BASE = "file:///usr/share/doc/uvmd/docs/runbooks/"
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]
MAX_RUNBOOK_LINES = 45


class Rule(NamedTuple):
    """A rule of a file: `kind` is alert or record, and `fields` has its other keys, those of labels and annotations with a dot."""

    kind: str
    name: str
    fields: dict[str, str]

    def annotation(self, name: str) -> str:
        return self.fields.get(f"annotations.{name}", "")


def rules(file: Path) -> list[Rule]:
    """The rules of a file in the form in which ours are written: no YAML that these lines do not show."""
    found: list[Rule] = []
    keys: list[tuple[int, str]] = []
    for line in file.read_text().splitlines():
        indent = len(line) - len(line.lstrip())
        start = re.fullmatch(r"      - (alert|record): (\S+)", line)
        key = re.fullmatch(r" {8,10}([\w]+):(?: (.*))?", line)
        if start:
            found.append(Rule(start[1], start[2], {}))
            keys = []
        elif key and (not keys or indent <= keys[-1][0] or keys[-1][1] in ("labels", "annotations")):
            keys = [each for each in keys if each[0] < indent] + [(indent, key[1])]
            text = key[2] or ""
            found[-1].fields[".".join(name for _, name in keys)] = "" if text in ("|", ">-") else text
        elif found and keys and indent > 8:
            name = ".".join(name for _, name in keys)
            found[-1].fields[name] = f"{found[-1].fields[name]} {line.strip()}".strip()
    if len(found) != len(re.findall(r"\b(?:alert|record):", file.read_text())):
        sys.exit(f"{file.name}: this reader does not understand each rule")
    return found


def labels_of(rule: Rule, known: dict[str, set[str]]) -> set[str]:
    """Labels that the result of a rule may have: too many where it aggregates."""
    expression = promql.parse(rule.fields["expr"])
    own = {name.split(".")[1] for name in rule.fields if name.startswith("labels.")}
    return own.union(expression.created, *(known.get(each.metric, set()) for each in expression.selectors))


def mistakes_of_alert(rule: Rule, labels: set[str]) -> list[str]:
    """What is wrong with an alert's name, labels and annotations."""
    wrong = []
    if not re.fullmatch(r"Uvmd?([A-Z][a-z]+)+", rule.name):
        wrong.append("its name is not in CamelCase after Uvm or Uvmd")
    if rule.fields.get("labels.severity") not in ("critical", "warning", "info"):
        wrong.append("its severity is not critical, warning or info")
    if rule.annotation("runbook_url") != f"{RUNBOOK_BASE}{rule.name}.md":
        wrong.append(f"its runbook_url is not {RUNBOOK_BASE}{rule.name}.md")
    if not rule.annotation("summary").endswith(".") or "{{" in rule.annotation("summary"):
        wrong.append("its summary is not a sentence that is the same for each alert")
    named = set(re.findall(r"\$labels\.(\w+)", rule.annotation("description")))
    wrong += [f"its description has the label {label}, which it does not have" for label in sorted(named - labels - promql.SCRAPE_LABELS)]
    is_of_all_nodes = "absent(" in rule.fields["expr"] or "without (hostname" in rule.fields["expr"]
    if not is_of_all_nodes and not named & {"hostname", "instance"}:
        wrong.append("its description does not name the node")
    for query in re.findall(r'printf "(.*?)" \$', rule.annotation("description")):
        wrong += promql.mistakes(query, KNOWN)
    return wrong


def mistakes_of_tests(name: str, tests: str) -> list[str]:
    """An alert is tested before it fires, while it fires, and after it is resolved."""
    found = re.findall(rf"alertname: {name},? *(?:\n +)?eval_time: \w+,? *(?:\n +)?exp_alerts:( \[\])?", tests)
    results = ["silent" if each else "fires" for each in found]
    return [] if results == ["silent", "fires", "silent"] else [f"its tests are not silent, fires, silent, but {', '.join(results) or 'missing'}"]


def mistakes_of_runbook(name: str, uvmctl: str) -> list[str]:
    """What is wrong with the page of an alert."""
    page = RUNBOOKS / f"{name}.md"
    if not page.exists():
        return [f"there is no {page.relative_to(ROOT)}"]
    text = page.read_text()
    wrong = []
    if re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE) != [f"`{name}`", *SECTIONS]:
        wrong.append(f"the headings of its runbook are not {', '.join([name, *SECTIONS])}")
    if len(text.splitlines()) > MAX_RUNBOOK_LINES:
        wrong.append(f"its runbook has more than {MAX_RUNBOOK_LINES} lines")
    commands = re.findall(r"\buvmctl((?: (?!\|)[^\s`|;)#]+)+)", text)
    if not commands and "curl " not in text:
        wrong.append("its runbook has no command")
    for command in commands:
        wrong += mistakes_of_command(uvmctl, command.split())
    return wrong


def mistakes_of_command(uvmctl: str, words: list[str]) -> list[str]:
    """Whether uvmctl has this command with these options."""
    command = words[:2] if words[0] == "policy" else words[:1]
    text = help_of(uvmctl, tuple(command))
    if text is None:
        return [f"uvmctl has no command {' '.join(command)}"]
    options = {word.split("=")[0] for word in words if word.startswith("-")}
    known = set(re.findall(r"^ +(-\w), (?=--)", text, flags=re.MULTILINE)) | set(re.findall(r"(--[\w-]+)", text))
    return [f"uvmctl {' '.join(command)} has no option {option}" for option in sorted(options - known)]


@cache
def help_of(uvmctl: str, command: tuple[str, ...]) -> str | None:
    """The help of a command, if there is such a command."""
    result = subprocess.run([uvmctl, *command, "--help"], capture_output=True, text=True, check=False)
    return result.stdout if result.returncode == 0 else None


def main(uvmctl: str) -> int:
    files = sorted(ALERTS.glob("*.rules.yaml"))
    found = [(file, rule) for file in files for rule in rules(file)]
    tests = "".join(file.read_text() for file in sorted((ALERTS / "tests").glob("*.yaml")))
    page, index = (ROOT / "docs/alerts.md").read_text(), (RUNBOOKS / "README.md").read_text()
    wrong = []
    # Recording rules first: alerts read them.
    for file, rule in sorted(found, key=lambda each: each[1].kind != "record"):
        mistakes = promql.mistakes(rule.fields["expr"], KNOWN)
        if rule.kind == "record":
            if not re.fullmatch(r"[a-z_]+:uvmd?_\w+:[a-z_]+(\d+[mh])?", rule.name):
                mistakes.append("its name is not level:metric:operation")
            KNOWN[rule.name] = labels_of(rule, KNOWN)
        else:
            mistakes += mistakes_of_alert(rule, labels_of(rule, KNOWN)) + mistakes_of_tests(rule.name, tests) + mistakes_of_runbook(rule.name, uvmctl)
            row = f"| [`{rule.name}`](runbooks/{rule.name}.md) | {rule.fields['labels.severity']} | {rule.fields.get('for', '0')} |"
            if row not in page:
                mistakes.append(f"docs/alerts.md lacks the row {row}")
            if f"| [`{rule.name}`]({rule.name}.md) | {rule.annotation('summary')} |" not in index:
                mistakes.append("the index of the runbooks lacks it, or has another summary")
        wrong += [f"{file.name}: {rule.name}: {mistake}" for mistake in mistakes]
    alerts = {rule.name for _, rule in found if rule.kind == "alert"}
    named = {file.stem for file in RUNBOOKS.glob("*.md")} - {"README"} | set(re.findall(r"\b(Uvmd?[A-Z]\w+)\.md", page + index))
    named |= set(re.findall(r"alertname: (\w+)", tests))
    wrong += [f"there is no alert {name}, but a runbook, a row or a test for it" for name in sorted(named - alerts)]
    print("\n".join(wrong) or f"{len(alerts)} alerts and {len(found) - len(alerts)} recording rules", file=sys.stderr if wrong else sys.stdout)
    return 1 if wrong else 0


KNOWN = promql.documented(ROOT / "docs/metrics.md") | {"up": set()}

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: alerts.py UVMCTL")
    sys.exit(main(sys.argv[1]))
