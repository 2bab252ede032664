#!/usr/bin/env python3
"""Plans made live for a training with tinygrad, natively on plain memory: what the helper prefetches is what was planned, and the losses are those without.

    plans.py HELPER FOLLOW CUDA_FOLDER TINYGRAD [--policies NAME] [--gpu-mib N] [--nvidia]

HELPER is libuvmd_helper.so, FOLLOW the example of plans, CUDA_FOLDER has the lab's libcuda.so.1. With --nvidia, the driver is
NVIDIA's, on the first GPU, whose own counters are compared with the plan: the plan is for so little memory, and the GPU has more.
Needs CAP_CHECKPOINT_RESTORE, as root has it.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

# No compiled module beside the sources.
sys.dont_write_bytecode = True
from helper_program import uuid_of_nvidia  # noqa: E402

TRAIN = pathlib.Path(__file__).parents[2] / "lab/programs/train.py"
ITERATIONS, PLANNED = 13, 3
NVIDIA_ITERATIONS, NVIDIA_PLANNED = 100, 50
DESTINATIONS = {"Gpu": 0, "Host": -1}


def lines_of(command, environment):
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def losses(lines):
    return [line["bits"] for line in lines if "bits" in line]


def prefetches(folder):
    """Of the helper: the program makes none."""
    log, = folder.glob("log.*")
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return [(line["address"], line["bytes"], line["to"]) for line in lines if line["op"] == "prefetch"]


def check_prefetches(plan, made, issued, is_complete):
    """What the lab's CUDA was asked for is what was planned, in order."""
    assert len(made) == issued > 0, f"{len(made)} prefetches, of which the helper reports {issued}"
    planned = [(begin, size, DESTINATIONS[destination]) for begin, size, destination, *_ in plan["ranges"]]
    assert set(made) <= set(planned), "a prefetch that is not planned"
    if is_complete:
        rounds, rest = divmod(len(made), len(planned))
        # Those in each direction are in order; the two directions go beside each other.
        for to in DESTINATIONS.values():
            of = lambda moves: [move for move in moves if move[2] == to]
            assert of(made)[: rounds * len(of(planned))] == of(planned) * rounds, "prefetches are not in the order of the plan"
        print(f"{rounds} iterations and {rest} moves as planned")


def check_counters(plan, followed):
    """The driver has copied what the helper moved, and what was planned but for moves that were left out.

    One to the host that has expired is not made any more, and the memory that it leaves is not copied back.
    """
    total = lambda name: sum(line[name] for line in followed)
    late, skipped = total("late"), total("skipped")
    largest = max(size for _, size, *_ in plan["ranges"])
    for copied, moved, direction in (("link_in_bytes", "moved_to_gpu_bytes", "to_gpu"), ("link_out_bytes", "moved_to_host_bytes", "to_host")):
        planned = plan["bytes"][direction]
        copied, moved = total(copied), total(moved)
        print(f"{direction}: moved {moved}, copied {copied}, planned {planned} each iteration")
        # Moves go on behind the end of the last iteration, and those before the first are in its count.
        # What is late to the host and on its way back at once may not be copied again.
        assert moved - (late + skipped) * largest - planned <= copied <= moved + planned, "the driver has copied other bytes"
        assert direction == "to_gpu" or abs(copied - moved) <= planned, "the driver has copied other bytes to the host than were moved"


def iteration_ms(lines):
    """Median time of the program's iterations, by the state in which follow saw the last one."""
    state, times = "unknown", {}
    for line in lines:
        state = line.get("state", state)
        if "seconds" in line:
            times.setdefault(state, []).append(line["seconds"] * 1000)
    return {state: round(statistics.median(each), 1) for state, each in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("helper", "follow", "cuda", "tinygrad"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("--policies", default="foresight")
    parser.add_argument("--gpu-mib", default="32")
    parser.add_argument("--nvidia", action="store_true")
    options = parser.parse_args()
    iterations, planned_iterations = (NVIDIA_ITERATIONS, NVIDIA_PLANNED) if options.nvidia else (ITERATIONS, PLANNED)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        environment = dict(os.environ, PYTHONPATH=str(options.tinygrad), DEV="CUDA:PTX", PARALLEL="0", CACHEDB=str(folder / "cache"), JIT="2")
        if not options.nvidia:
            environment["LD_LIBRARY_PATH"] = str(options.cuda.absolute())
        train = [sys.executable, str(TRAIN), "deep", "--managed", "--iterations", str(iterations)]
        expected = losses(lines_of(train, environment))
        assert len(set(expected)) == iterations, "losses that do not change show nothing"
        target = ["--gpu", uuid_of_nvidia(), "--link", "driver"] if options.nvidia else []
        follow = [
            str(options.follow), "--policies", options.policies, "--gpu-mib", options.gpu_mib, "--off-after", str(planned_iterations), *target,
            str(options.helper.absolute()), *train,
        ]
        lines = lines_of(follow, dict(environment, CUDA_LAB_LOG=str(folder / "log")))
        assert losses(lines) == expected, "the losses with a plan are others"
        plan, = (line for line in lines if line.get("event") == "planned")
        followed = [line for line in lines if line.get("state") == "planned"]
        assert followed and not any(line["helper_ended"] for line in followed), followed
        # One at which the helper sees the plan, and so many in which it follows it.
        full = [line for line in followed if line["issued"] + line["skipped"] > 0]
        issued, skipped = (sum(line[name] for line in lines if "issued" in line) for name in ("issued", "skipped"))
        late = sum(line["late"] for line in full)
        if options.nvidia:
            check_counters(plan, followed)
            print(f"median ms of an iteration: {iteration_ms(lines)}")
        else:
            check_prefetches(plan, prefetches(folder), issued, late == skipped == 0)
            print("all prefetches are planned ones")
        print(f"{options.policies}: {issued} prefetches; late {late}, skipped {skipped}; the losses of {iterations} iterations are those without")
        off = [line for line in lines if line.get("state") == "off"]
        assert off and off[-1]["issued"] == 0, "moves after the plan"


if __name__ == "__main__":
    main()
