#!/usr/bin/env python3
"""What plans come to for several programs and sizes of the GPU, by what tests/lab/programs/plans.sh has printed.

    plans_table.py cell REPORT BOUND PROGRAM GPU_MIB   JSON of a run with several policies
    plans_table.py table CELL...                       tables in Markdown of such files

BOUND is the line of planner's example of that name. Figures are means of iterations: what the driver evicts recurs in each
second or third one. With a plan, the first two find the memory as the state before has left it, and do not count. Those of the
driver alone are of before the first plan: the order of evictions that a plan leaves may last.
"""
import json
import pathlib
import statistics
import sys

MIB = 1 << 20
FIGURES = ("link_bytes", "faults", "issued", "late", "expired", "skipped")
UNCOUNTED, COUNTED_MIN = 2, 3


def total(by_kind):
    return sum(by_kind.values())


def means(lines):
    assert len(lines) >= COUNTED_MIN, "too few iterations"
    return {"iterations": len(lines)} | {name: round(statistics.mean(line[name] for line in lines)) for name in FIGURES}


def counted(lines):
    """Of iterations with a plan, which is followed from behind the publication on, and of those before the first one."""
    was_planned = False
    for line in lines:
        was_planned |= line["policy"] is not None
        if line["since_change"] > UNCOUNTED if line["policy"] else not was_planned:
            yield line


def cell(report, bound, program, gpu_mib):
    lines = [json.loads(line) for line in pathlib.Path(report).read_text(encoding="utf-8").splitlines() if line.startswith("{")]
    assert not any(line.get("event") == "drifted" for line in lines), "a plan drifted"
    exited, = (line for line in lines if line.get("event") == "exit")
    assert exited["dropped"] == 0, "calls were dropped"
    by_policy = {}
    iterations = [line for line in lines if "state" in line]
    for line in iterations:
        assert line["helper_ended"] is None or line["policy"] is None, line["helper_ended"]
        line["link_bytes"] = line["link_in_bytes"] + line["link_out_bytes"]
    for line in counted(iterations):
        by_policy.setdefault(line["policy"], []).append(line)
    driver, arms = means(by_policy[None]), {}
    for line in lines:
        if line.get("event") == "refused":
            arms[line["policy"]] = {"refused": line["reason"]}
        elif line.get("event") == "planned":
            driver |= {"modelled_bytes": total(line["driver_bytes"]), "modelled_faulted_blocks": line["driver_faulted_blocks"]}
            arm = {"planner": line["planner"], "moves": line["moves"], "planned_bytes": total(line["bytes"]), "planned_faulted_blocks": line["faulted_blocks"]}
            arms[line["policy"]] = arm | means(by_policy[line["policy"]])
    of_bound = json.loads(pathlib.Path(bound).read_text(encoding="utf-8"))
    return {"program": program, "gpu_mib": int(gpu_mib), "bound_bytes": of_bound, "driver": driver, "arms": arms}


def mib(size):
    return f"{size / MIB:.1f}"


def table(cells):
    print("| program | GPU, MiB | policy | moves | planned, MiB | copied, MiB | GPU faults | late | expired |\n| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for one in cells:
        driver, bound = one["driver"], one["bound_bytes"]
        rows = [("driver alone", "", "", mib(driver["link_bytes"]), driver["faults"], "", "")]
        for policy, arm in one["arms"].items():
            if "refused" in arm:
                rows.append((f"{policy}: {arm['refused']}", "", "", "", "", "", ""))
            else:
                rows.append((policy, arm["moves"], mib(arm["planned_bytes"]), mib(arm["link_bytes"]), arm["faults"], arm["late"], arm["expired"]))
        for of, suffix in (("all policies", ""), ("policies that move whole blocks", "_of_whole_blocks")):
            rows.append((f"bound of {of}", "", "", mib(bound[f"to_gpu{suffix}"] + bound[f"from_gpu{suffix}"]), "", "", ""))
        for row in rows:
            print(" | ".join(["", one["program"], str(one["gpu_mib"]), *map(str, row), ""]).strip())


def main():
    match sys.argv[1:]:
        case ["cell", *arguments] if len(arguments) == 4:
            print(json.dumps(cell(*arguments), indent=1))
        case ["table", *paths] if paths:
            table([json.loads(pathlib.Path(path).read_text(encoding="utf-8")) for path in paths])
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
