#!/usr/bin/env python3
"""Plans made live for a training with tinygrad, natively on plain memory: what the helper prefetches is what was planned, and the losses are those without.

    plans.py HELPER FOLLOW CUDA_FOLDER TINYGRAD [--planner NAME] [--gpu-mib N]

HELPER is libuvmd_helper.so, FOLLOW the example of plans, CUDA_FOLDER has the lab's libcuda.so.1. Needs CAP_CHECKPOINT_RESTORE, as root has it.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

TRAIN = pathlib.Path(__file__).parents[2] / "lab/programs/train.py"
ITERATIONS, PLANNED = 13, 3
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("helper", "follow", "cuda", "tinygrad"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("--planner", default="foresight")
    parser.add_argument("--gpu-mib", default="32")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        environment = dict(
            os.environ, LD_LIBRARY_PATH=str(options.cuda.absolute()), PYTHONPATH=str(options.tinygrad), DEV="CUDA:PTX", PARALLEL="0", CACHEDB=str(folder / "cache"), JIT="2",
        )
        train = [sys.executable, str(TRAIN), "deep", "--managed", "--iterations", str(ITERATIONS)]
        expected = losses(lines_of(train, environment))
        assert len(set(expected)) == ITERATIONS, "losses that do not change show nothing"
        follow = [
            str(options.follow), "--planner", options.planner, "--gpu-mib", options.gpu_mib, "--off-after", str(PLANNED), str(options.helper.absolute()), *train,
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
        made = prefetches(folder)
        assert len(made) == issued > 0, f"{len(made)} prefetches, of which the helper reports {issued}"
        planned = [(begin, size, DESTINATIONS[destination]) for begin, size, destination, _, _ in plan["ranges"]]
        assert set(made) <= set(planned), "a prefetch that is not planned"
        if late == skipped == 0:
            rounds, rest = divmod(len(made), len(planned))
            # Those in each direction are in order; the two directions go beside each other.
            for to in DESTINATIONS.values():
                of = lambda moves: [move for move in moves if move[2] == to]
                assert of(made)[: rounds * len(of(planned))] == of(planned) * rounds, "prefetches are not in the order of the plan"
            print(f"{rounds} iterations and {rest} moves as planned")
        print(f"{options.planner}: {len(made)} prefetches, all planned; late {late}, skipped {skipped}; the losses of {ITERATIONS} iterations are those without")
        off = [line for line in lines if line.get("state") == "off"]
        assert off and off[-1]["issued"] == 0, "moves after the plan"


if __name__ == "__main__":
    main()
