#!/usr/bin/env python3
"""What plans come to for several programs and sizes of the GPU, by what tests/lab/programs/plans.sh has printed.

    plans_table.py cell REPORT BOUND PROGRAM GPU_MIB   JSON of a run with several policies
    plans_table.py table CELL...                       tables in Markdown of such files

BOUND is the line of planner's example of that name. Medians are of iterations; the first one behind each change finds the
memory as the state before has left it, and does not count.
"""
import json
import pathlib
import statistics
import sys

MIB = 1 << 20
FIGURES = ("link_bytes", "faults", "issued", "late", "skipped")


def total(by_kind):
    return sum(by_kind.values())


def medians(lines):
    for line in lines:
        line["link_bytes"] = line["link_in_bytes"] + line["link_out_bytes"]
    return {"iterations": len(lines)} | {name: statistics.median_low(line[name] for line in lines) for name in FIGURES}


def steady(lines):
    """Lines of iterations by the policy whose plan was followed (None: none), without those behind a change."""
    by_policy, before = {}, None
    for line in lines:
        # A plan is followed from the iteration behind that of its publication on.
        policy = line["policy"] if line["issued"] else None
        is_between = line["policy"] is not None and not line["issued"]
        if policy == before and not is_between:
            by_policy.setdefault(policy, []).append(line)
        before = policy
    return by_policy


def cell(report, bound, program, gpu_mib):
    lines = [json.loads(line) for line in pathlib.Path(report).read_text(encoding="utf-8").splitlines() if line.startswith("{")]
    assert not any(line.get("event") == "drifted" for line in lines), "a plan drifted"
    exited, = (line for line in lines if line.get("event") == "exit")
    assert exited["dropped"] == 0, "calls were dropped"
    by_policy = steady([line for line in lines if "state" in line])
    arms = {}
    for line in lines:
        if line.get("event") == "refused":
            arms[line["policy"]] = {"refused": line["reason"]}
        elif line.get("event") == "planned":
            driver = {"modelled_bytes": total(line["driver_bytes"]), "modelled_faulted_blocks": line["driver_faulted_blocks"]}
            arm = {"planner": line["planner"], "moves": line["moves"], "planned_bytes": total(line["bytes"]), "planned_faulted_blocks": line["faulted_blocks"]}
            arms[line["policy"]] = arm | medians(by_policy[line["policy"]])
    of_driver = medians(by_policy[None]) | (driver if any("planner" in arm for arm in arms.values()) else {})
    of_bound = json.loads(pathlib.Path(bound).read_text(encoding="utf-8"))
    return {"program": program, "gpu_mib": int(gpu_mib), "bound_bytes": of_bound, "driver": of_driver, "arms": arms}


def mib(size):
    return f"{size / MIB:.1f}"


def table(cells):
    print("| program | GPU, MiB | policy | moves | planned, MiB | copied, MiB | GPU faults | late |\n| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |")
    for one in cells:
        at, driver = f"| {one['program']} | {one['gpu_mib']} |", one["driver"]
        modelled = mib(driver["modelled_bytes"]) if "modelled_bytes" in driver else ""
        print(f"{at} driver alone | | {modelled} | {mib(driver['link_bytes'])} | {driver['faults']} | |")
        for policy, arm in one["arms"].items():
            if "refused" in arm:
                print(f"{at} {policy} | {arm['refused']} |")
            else:
                print(f"{at} {policy} | {arm['moves']} | {mib(arm['planned_bytes'])} | {mib(arm['link_bytes'])} | {arm['faults']} | {arm['late']} |")
        print(f"{at} bound | | {mib(one['bound_bytes']['to_gpu'] + one['bound_bytes']['from_gpu'])} | | | |")


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
