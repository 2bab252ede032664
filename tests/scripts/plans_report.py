#!/usr/bin/env python3
"""Checks what tests/lab/programs/plans.sh has printed, and prints a table of it: the link carries less with the plan than before and after, as planned.

    plans_report.py REPORT BOUND

BOUND is the line of planner's example of that name.
"""
import json
import pathlib
import sys

MIB = 1 << 20


def link(line):
    return line["link_in_bytes"] + line["link_out_bytes"]


def main():
    report, bound = (pathlib.Path(path).read_text(encoding="utf-8") for path in sys.argv[1:3])
    lines = [json.loads(line) for line in report.splitlines() if line.startswith("{")]
    plan, = (line for line in lines if line.get("event") == "planned")
    lines = [line for line in lines if "state" in line]
    print("| iteration | state | issued | late | skipped | to the GPU, planned | to the GPU | from the GPU |\n| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for line in lines:
        planned = line["planned_bytes"]
        planned = f"{(planned['to_gpu'] + planned['faulted']) / MIB:.1f} MiB" if planned and line["issued"] else ""
        print(f"| {line['iteration']} | {line['state']} | {line['issued']} | {line['late']} | {line['skipped']} | {planned} | {line['link_in_bytes'] / MIB:.1f} MiB | {line['link_out_bytes'] / MIB:.1f} MiB |")
    print(f"bound: {bound.strip()}")
    # The first iteration with moves finds what the driver left, and the first without finds what the plan left.
    moved = [line for line in lines if line["state"] == "planned" and line["issued"]][1:]
    before = [line for line in lines if line["state"] == "watching"]
    after = [line for line in lines if line["state"] == "off"][1:]
    assert moved and before and after, "too few iterations"
    most, least = max(map(link, moved)), min(map(link, before + after))
    assert most < least, f"the link carries {most} bytes with the plan, and {least} without"
    for line in moved:
        expected = plan["bytes"]
        differences = {
            "to_gpu": line["link_in_bytes"] - expected["to_gpu"] - expected["faulted"], "to_host": line["link_out_bytes"] - expected["to_host"],
        }
        if any(differences.values()):
            # A move that is late is made late or not at all, so that faults and evictions of the driver's come beside the plan.
            print(f"iteration {line['iteration']}: other bytes than planned, {differences}; late {line['late']}, skipped {line['skipped']}")
            assert line["late"] or line["skipped"], "other bytes than planned, and no move was late"
    bytes_bound = json.loads(bound)
    assert most >= bytes_bound["to_gpu"] + bytes_bound["from_gpu"], "less than the bound"


if __name__ == "__main__":
    main()
