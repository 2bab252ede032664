#!/usr/bin/env python3
"""What launches were found to access by touch probes, beside what they accessed, by blocks of 2 MiB.

    touch_probe.py LOG PRINTED

LOG is of the lab's CUDA, natively and with accesses. PRINTED is what tests/lab/programs/plan_policy.sh has printed of the same
program in the lab: lines of uvmd's log, and allocations. Allocations and launches of both are told by their order. It fails
if a launch accesses a block that it is found not to access.
"""
import json
import re
import sys

BLOCK_BYTES = 2 << 20
LAUNCH = re.compile(r"launch (\d+) of (\d+) from (\d+): accessed \[(.*?)\], not accessed \[(.*?)\]")


def allocations(calls):
    """Address and size of each allocation, in their order."""
    return [(call["address"], call["bytes"]) for call in calls if call["op"] == "malloc"]


def accesses(calls):
    """Runs of memory by the number of the launch, from 1 on."""
    launches = {call["seq"]: number for number, call in enumerate((call for call in calls if call["op"] == "launch"), 1)}
    found = {number: [] for number in launches.values()}
    for call in calls:
        if call["op"] == "access" and call["of"] in launches:
            found[launches[call["of"]]] += call["read"] + call["written"]
    return found


def moved(runs, there, here):
    """Blocks of runs of memory, by the addresses of the same allocations in the other run."""
    blocks = set()
    for address, size in runs:
        for (begin, whole), (other, _) in reversed(list(zip(there, here))):
            if begin <= address < begin + whole:
                first = address - begin + other
                blocks.update(range(first // BLOCK_BYTES, (first + size - 1) // BLOCK_BYTES + 1))
                break
    return blocks


def blocks_of(text):
    return {int(word, 16) // BLOCK_BYTES for word in text.replace(" ", "").split(",") if word}


def main():
    log, printed = sys.argv[1:]
    with open(log, encoding="utf-8") as lines:
        native = [json.loads(line) for line in lines]
    with open(printed, encoding="utf-8", errors="replace") as lines:
        text = lines.read()
    guest = []
    for line in re.findall(r'(\{.*"malloc".*\})', text):
        guest.append(json.loads(line))
    guest.sort(key=lambda call: call["seq"])
    there, here = allocations(native), allocations(guest)
    same = min(len(there), len(here))
    if not same or [size for _, size in there[:same]] != [size for _, size in here[:same]]:
        sys.exit(f"the allocations differ: {len(there)} natively, {len(here)} in the lab")
    runs = accesses(native)
    totals, lost = {"named": 0, "found": 0, "accessed": 0}, 0
    launches = LAUNCH.findall(text)
    if not launches:
        sys.exit("no launch was probed")
    for place, period, first, touched, untouched in launches:
        place, period, first = int(place), int(period), int(first)
        found, rest = blocks_of(touched), blocks_of(untouched)
        last = max(number for number in runs if (number - first - place) % period == 0)
        accessed = moved(runs[last], there, here) & (found | rest)
        totals["named"] += len(found | rest)
        totals["found"] += len(found)
        totals["accessed"] += len(accessed)
        if accessed & rest:
            lost += len(accessed & rest)
            print(f"launch {place}: accesses {sorted(map(hex, accessed & rest))}, found not to")
    accessed = totals["accessed"]
    precisions = [100 * accessed / totals["named"], 100 * (accessed - lost) / max(totals["found"], 1)]
    recall = 100 * (accessed - lost) / max(accessed, 1)
    print(f"{len(launches)} launches name {totals['named']} blocks, access {accessed}, and are found to access {totals['found']}")
    print(f"precision {precisions[0]:.1f} % before, {precisions[1]:.1f} % after; recall of what is named {recall:.1f} %")
    if lost:
        sys.exit(f"{lost} accessed blocks are found not to be accessed")


if __name__ == "__main__":
    main()
