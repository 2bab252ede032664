#!/usr/bin/env python3
"""Plans that the helper follows, published by a stand-in for uvmd: what is moved at which launch, and that the program ends as without it.

    helper_plans.py HELPER PLAN CUDA_FOLDER PROGRAMS [--kills N]

HELPER is libuvmd_helper.so, PLAN recorder's example of that name, CUDA_FOLDER has the lab's libcuda.so.1, PROGRAMS what
tests/helper/build made. Needs CAP_CHECKPOINT_RESTORE and CAP_SYS_PTRACE, as root has them.
"""
import ctypes
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

# No compiled module beside the sources.
sys.dont_write_bytecode = True
from helper_program import SECONDS_MAX, LineProgram, SharedMemory, run_tests, within  # noqa: E402

# Of tests/helper/plans.c.
OPS, BUFFERS, BYTES = 8, 4, 2 << 20
# Ops behind which a move of Program.moves begins.
BEGINS = {0, 2, 5, 6}
# Words of the plan's memory: see helper/call-ring/src/plan.rs.
PERIOD_MAX, MOVES_MAX = 16384, 4096
TABLE = 64
BEAT, GENERATION, STATE_GENERATION, STATE = 8, 16, 24, 25
GPU, FIRST, PERIOD, MOVES, BUDGET = (TABLE + at for at in (0, 2, 3, 4, 5))
FIRST_MOVE = TABLE + 8 + PERIOD_MAX
PLAN_BYTES = (FIRST_MOVE + 4 * MOVES_MAX) * 8
HOST = -1
# What the helper adds to the program, in the lab's log.
ADDED = {"prefetch", "record_event", "wait_event"}


class Shared(SharedMemory):
    """The memory of a plan."""

    def __init__(self, pid):
        super().__init__(pid, "uvmd-plan", PLAN_BYTES)


class Held:
    """A thread of another process that does not run, while others of it do."""

    SEIZE, INTERRUPT, DETACH, ALL_CHILDREN = 0x4206, 0x4207, 17, 0x40000000

    def __init__(self, thread):
        self.thread = thread

    def trace(self, request):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.ptrace(ctypes.c_long(request), ctypes.c_long(self.thread), None, None) != 0:
            raise OSError(ctypes.get_errno(), "ptrace")

    def __enter__(self):
        self.trace(self.SEIZE)
        self.trace(self.INTERRUPT)
        os.waitpid(self.thread, self.ALL_CHILDREN)

    def __exit__(self, *_):
        self.trace(self.DETACH)


class Planner:
    """recorder's example, as uvmd."""

    def __init__(self, test, pid):
        self.child = subprocess.Popen([test.plan, str(pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def tell(self, line):
        self.child.stdin.write(line + "\n")

    def do(self, line):
        self.tell(line)
        answer = self.child.stdout.readline()
        assert answer, f"{line}: the planner has ended"
        return json.loads(answer)

    def kill(self):
        self.child.kill()
        self.child.communicate()


class Program(LineProgram):
    """programs/plans."""

    def __init__(self, test, helper=True, iterations=20, log=False, **settings):
        self.log = test.folder / "log" if log else None
        with_log = {"CUDA_LAB_LOG": str(self.log)} if log else {}
        super().__init__(test, [test.programs / "plans"], helper, {**with_log, **settings})
        self.buffers = [int(word) for word in self.read().split()]
        self.test, self.planner = test, None
        if helper:
            self.planner = Planner(test, self.pid)
            self.planner.do("mode act")
        # Twice: what a program has done at first may differ.
        self.do(f"iterate {iterations}")
        if helper:
            assert self.planner.do(f"learn {OPS}")["differ"] == 0

    def run(self, *ops):
        for op in ops:
            assert self.do(f"op {op}") == "launched"

    def move(self, buffer, destination, begin_op, wait_op="-", offset=0, size=BYTES, expiry_op=None):
        expiry = "" if expiry_op is None else f":{expiry_op}"
        return f"{self.buffers[buffer] + offset}:{size}:{destination}:{begin_op}:{wait_op}{expiry}"

    def step(self, *ops):
        """Launches of the plan with all moves, each of which is handed over before the next launch."""
        moves = self.report()["moves"]
        for op in ops:
            self.run(op)
            moves += op in BEGINS
            self.has(moves=moves)

    def relearn(self):
        """The iteration of last, after launches that were none of it."""
        self.do("iterate 20")
        assert self.planner.do(f"learn {OPS}")["differ"] == 0

    def moves(self):
        """Of all kinds: one of which a launch of the next iteration waits, and one that none waits for."""
        return [
            self.move(0, "host", 0, 3), self.move(0, "gpu", 2, 4), self.move(1, "gpu", 5, 1, 65536, 1 << 20), self.move(2, "host", 6),
        ]

    def publish(self, *moves, budget=1 << 30, how="publish"):
        answer = self.planner.do(" ".join([how, str(budget), *(moves or self.moves())]))
        return within("the helper has looked at the plan", lambda: self.report_of(answer["generation"])) if "generation" in answer else answer

    def report_of(self, generation):
        report = self.report()
        return report if report["generation"] == generation else None

    def follow(self, *moves, **options):
        report = self.publish(*moves, **options)
        assert report["state"] == "Following", report
        return report

    def report(self):
        return self.planner.do("report")

    def thread(self):
        """The helper's thread."""
        tasks = pathlib.Path(f"/proc/{self.pid}/task").iterdir()
        return next(int(task.name) for task in tasks if (task / "comm").read_text(encoding="ascii") == "uvmd-helper\n")

    def has(self, **values):
        """Waits until the report has these values."""
        def met():
            report = self.report()
            return report if all(report[name] == value for name, value in values.items()) else None
        try:
            return within(f"the report has {values}", met, 10)
        except AssertionError:
            raise AssertionError(f"not {values}: {self.report()}") from None

    def lines(self):
        """The log: of the program's first thread, and of the helper's."""
        lines = [json.loads(line) for line in pathlib.Path(f"{self.log}.{self.pid}").read_text(encoding="utf-8").splitlines()]
        return [line for line in lines if line["thread"] == self.pid], [line for line in lines if line["thread"] != self.pid and line["op"] in ADDED]

    def added(self):
        """What is in the log beside the program's own calls."""
        own, helpers = self.lines()
        return sum(line["op"] in ADDED for line in own) + len(helpers)

    def end(self, line=None):
        """Exit code, and what it still says."""
        if line:
            self.tell(line)
        out, _ = self.child.communicate(timeout=SECONDS_MAX)
        if self.planner:
            self.planner.kill()
        return self.child.returncode, out


class Test:
    def __init__(self, options, folder):
        self.helper, self.plan, self.folder = str(options.helper), str(options.plan), folder
        self.programs, self.kills = options.programs, options.kills
        self.environment = dict(os.environ, LD_LIBRARY_PATH=str(options.cuda))

    def follows(self):
        """Each move behind its launch, on the helper's streams, and each wait before its launch."""
        program = Program(self, log=True)
        before = program.report()
        assert before["state"] == "None" and before["generation"] == 0, before
        began = len(program.lines()[0])
        assert program.added() == 0
        program.follow()
        iterations = 3
        for _ in range(iterations):
            program.step(*range(OPS))
        report = program.report()
        assert program.do("iterate 0") == f"counted {32 * (20 + iterations) * sum(range(1, OPS + 1))}"
        expected = dict(state="Following", iterations=iterations, moves=4 * iterations, late=0, skipped=0, mismatched=0,
                        bytes_to_gpu=3 * (BYTES + (1 << 20)), bytes_to_host=3 * 2 * BYTES)
        assert {name: report[name] for name in expected} == expected, report
        own, helpers = program.lines()
        own = [line for line in own[began:] if line["op"] in ADDED | {"launch"}]
        stream, = {line["stream"] for line in own}
        # Moves in the order in which they begin, of each of which three calls are made.
        groups = [helpers[at:at + 3] for at in range(0, len(helpers), 3)]
        assert [[line["op"] for line in group] for group in groups] == [["wait_event", "prefetch", "record_event"]] * len(groups)
        places = [(program.buffers[0], BYTES, HOST), (program.buffers[0], BYTES, 0), (program.buffers[1] + 65536, 1 << 20, 0), (program.buffers[2], BYTES, HOST)]
        assert [tuple(group[1][key] for key in ("address", "bytes", "to")) for group in groups] == places * iterations
        to_host, to_gpu = (groups[at][0]["stream"] for at in (0, 1))
        assert len({stream, to_host, to_gpu}) == 3
        assert all({line["stream"] for line in group} == {to_gpu if group[1]["to"] == 0 else to_host} for group in groups)
        anchors, ends = ([group[at]["event"] for group in groups[:4]] for at in (0, 2))
        assert len(set(anchors + ends)) == 8
        said = []
        for at in range(iterations):
            for op in range(OPS):
                waits = {3: [ends[0]], 4: [ends[1]], 1: [ends[2]] if at else []}.get(op, [])
                begins = {0: [anchors[0]], 2: [anchors[1]], 5: [anchors[2]], 6: [anchors[3]]}.get(op, [])
                said += [("wait_event", event) for event in waits] + [("launch", op + 1)] + [("record_event", event) for event in begins]
        got = [(line["op"], line["grid"][0] if line["op"] == "launch" else line["event"]) for line in own]
        assert got == said, f"{got}\ninstead of\n{said}"
        # Each move lies behind its anchor and before what waits for it.
        for group in groups:
            anchor = [line["seq"] for line in own if line["op"] == "record_event" and line["event"] == group[0]["event"] and line["seq"] < group[0]["seq"]]
            assert anchor, "a move waits for an anchor that no launch has recorded"
        # In this stream alone: not in the legacy default one.
        program.step(0, 1)
        count = program.added()
        for op, skipped in ((2, 1), (3, 2)):
            assert program.do(f"other-stream {op}") == "launched"
            program.has(moves=4 * iterations + 1, skipped=skipped, state="Following")
        assert program.added() == count
        program.run(4)
        program.step(5, 6, 7, 0)
        program.has(moves=4 * iterations + 4, skipped=2, late=0, state="Following")
        # The next plan may be in another one.
        program.follow()
        assert program.do("other-stream 1") == "launched" and program.report()["state"] == "Following"
        program.run(*range(2, OPS))
        assert program.do("other-stream 0") == "launched"
        program.has(moves=4 * iterations + 5, skipped=2, state="Following")
        launched, recorded = program.lines()[0][-2:]
        assert (launched["op"], recorded["op"]) == ("launch", "record_event") and launched["stream"] == recorded["stream"] != stream
        program.run(1, 2, 3)
        program.has(moves=4 * iterations + 5, skipped=5, state="Following")
        assert program.end()[0] == 5
        print("moves begin behind their launches, and launches wait for them, in order")

    def orders_no_streams(self):
        """Launches that wait for the host in one stream hold up no other one: a program that no plan may have wait for ever."""
        program = Program(self)
        program.follow(program.move(0, "host", 0), program.move(0, "gpu", 1, 3))
        program.run(0)
        program.has(moves=1)
        # Its second op is behind work that waits for what the program does after its fourth op.
        assert program.do("crossed") == "passed"
        program.has(state="Following", moves=1, skipped=1)
        assert program.end()[0] == 5
        print("a plan orders no streams that the program does not")

    def moves_in_parts(self):
        """A large move, as commands are: a call of the program waits for a part of it."""
        program = Program(self, log=True)
        part, size = 32 << 20, 80 << 20
        begin = int(program.do("large 81")) + 4096
        program.follow(f"{begin}:{size}:gpu:1:3", program.move(1, "gpu", 4, 5))
        for op, moves in ((0, 0), (1, 1), (2, 1), (3, 1), (4, 2), (5, 2)):
            program.run(op)
            program.has(moves=moves, late=0, skipped=0)
        own, helpers = program.lines()
        prefetches = [line for line in helpers if line["op"] == "prefetch"]
        count = len(prefetches) - 1
        assert count >= 3 and [line["op"] for line in helpers] == ["wait_event", *["prefetch"] * count, "record_event", "wait_event", "prefetch", "record_event"]
        at = begin
        for line in prefetches[:-1]:
            assert line["address"] == at and line["bytes"] == min(part - at % part, begin + size - at), line
            at += line["bytes"]
        assert at == begin + size
        waited = next(line for line in own if line["op"] == "wait_event")
        assert waited["event"] == helpers[count + 1]["event"] and waited["seq"] > helpers[count + 1]["seq"]
        assert program.report()["bytes_to_gpu"] == size + BYTES
        assert program.end()[0] == 5
        print(f"a large move is made in {count} parts")

    def gives_back(self):
        """Streams and events are there while a plan is, and a second longer."""
        program = Program(self, log=True)
        program.follow()
        program.step(*range(OPS))
        generation = program.planner.do("withdraw")["generation"]
        program.has(generation=generation, state="Stopped(Withdrawn)")
        count = program.added()
        program.run(*range(OPS))
        destroyed = lambda: sum('"stream_destroy"' in line for line in pathlib.Path(f"{program.log}.{program.pid}").read_text(encoding="utf-8").splitlines())
        within("both streams are destroyed", lambda: destroyed() == 2, 10)
        assert program.added() == count
        # They are made anew for the next plan.
        program.follow()
        program.step(*range(OPS))
        assert program.has(moves=8)["skipped"] == 0
        assert program.end()[0] == 5
        print("a withdrawn plan leaves nothing behind")

    def wakes_seldom(self):
        """The helper's thread, while a program does nothing."""
        program = Program(self)
        program.follow()
        program.step(*range(OPS))
        status = pathlib.Path(f"/proc/{program.pid}/task/{program.thread()}/status")
        waits = lambda: int(next(line.split()[1] for line in status.read_text(encoding="ascii").splitlines() if line.startswith("voluntary")))
        begun, before = time.monotonic(), waits()
        time.sleep(2)
        rate = (waits() - before) / (time.monotonic() - begun)
        assert 1 <= rate < 30, f"{rate} a second"
        # It does for moves.
        program.step(*range(OPS))
        program.has(state="Following", late=0, skipped=0)
        assert program.end()[0] == 5
        print(f"the helper's thread wakes {rate:.0f} times a second in an idle program")

    def counts_late_moves(self):
        """A launch does not wait for a move that is not handed over. It is made all the same, unless it has expired."""
        program = Program(self, log=True)
        program.follow(program.move(0, "gpu", 1, 2), program.move(1, "host", 3, 4, expiry_op=6), program.move(2, "gpu", 6, 0))
        with Held(program.thread()):
            program.run(*range(OPS))
            report = program.report()
            assert (report["late"], report["moves"], report["skipped"], report["state"]) == (2, 0, 0, "Following"), report
            # Of the next iteration: one waits in the queue for the second time, and one is waited for at its begin.
            program.run(0, 1)
            report = program.report()
            assert (report["late"], report["moves"], report["skipped"]) == (3, 0, 1), report
        program.has(moves=2, bytes_to_gpu=2 * BYTES, bytes_to_host=0, late=3, expired=1, skipped=1)
        program.run(2, 3)
        program.has(moves=3, bytes_to_host=BYTES, late=3)
        program.run(4, 5, 6)
        program.has(moves=4, late=3)
        program.run(7, 0)
        own, helpers = program.lines()
        waits = [line for line in own if line["op"] == "wait_event"]
        ends = [line["event"] for line in helpers if line["op"] == "record_event"]
        assert len(waits) == 3 and {line["event"] for line in waits} == set(ends), waits
        # Late, and before its expiry.
        with Held(program.thread()):
            program.run(1, 2, 3, 4, 5)
            assert program.report()["late"] == 5
        program.has(moves=6, bytes_to_host=2 * BYTES, late=5, skipped=1)
        # What begins behind the launch at which it expires is behind it.
        program.run(6)
        program.has(moves=7, late=5, expired=1)
        program.run(7, 0)
        own, helpers = program.lines()
        leaving = [line["event"] for line in helpers if line["op"] == "record_event"][-2]
        waits = [line["event"] for line in own if line["op"] == "wait_event"]
        assert len(waits) == 5 and waits[-2] == leaving, waits
        assert program.do("iterate 0") == f"counted {32 * (23 * sum(range(1, OPS + 1)) + 1)}"
        assert program.end()[0] == 5

        # As fast as it goes.
        program = Program(self)
        program.follow(program.move(0, "gpu", 1, 2), program.move(1, "host", 3, 4))
        begun = program.report()["iterations"]
        program.do("iterate 500")
        report = program.report()
        assert report["state"] == "Following" and report["iterations"] - begun == 500 and report["mismatched"] == 0, report
        assert report["moves"] + report["late"] + report["skipped"] >= 1000, report
        assert program.end()[0] == 5
        print(f"late moves are counted, {report['late']} of 1,000 at full speed")

    def waits_for_hand_overs(self):
        """A launch waits until its move is handed over, also one at which the move expires."""
        program = Program(self)
        move = program.move(1, "host", 3, 4, expiry_op=4)

        def counted(how, iterations):
            before = program.follow(move, how=how)
            program.do(f"iterate {iterations}")
            report = program.report()
            return {name: report[name] - before[name] for name in ("moves", "late", "expired", "iterations")}

        def all_made():
            waiting = counted("publish-waiting", 50)
            return waiting if waiting["moves"] == 50 else None

        def comes_late():
            ahead = counted("publish", 500)
            return ahead if ahead["expired"] + ahead["late"] > 0 else None

        # How many depends on what else the machine has to do.
        ahead = within("moves are late where no launch waits", comes_late, 30)
        # Beside other processes the thread may come to no move within 10 ms. Then no launch waits for a second.
        waiting = within("launches wait for all moves", all_made, 30)
        assert (waiting["late"], waiting["expired"]) == (0, 0), waiting
        print(f"all moves are made where launches wait for them, and {ahead['moves']} of 500 otherwise")
        # In vain: it goes on.
        program.follow(move, how="publish-waiting")
        before = program.report()
        with Held(program.thread()):
            program.run(*range(OPS))
            assert program.report()["late"] == before["late"] + 1
        assert program.end()[0] == 5

    def stops_at_drift(self):
        """Within the op that is another, by what is launched or by its pointers."""
        program = Program(self, log=True)
        # The third launch is none of the plan: a move would begin behind its own.
        for kind, odd, place in (("signature", "op 6", 2), ("pointers", "other-buffer 2", 2), ("first", "op 5", 0)):
            mismatched = program.follow()["mismatched"]
            program.step(*range(OPS), *range(place))
            count = program.added()
            program.do(odd)
            report = program.report()
            assert report["state"] == f"Drifted({place})" and report["mismatched"] == mismatched + 1, f"{kind}: {report}"
            program.run(*range(place + 1, OPS), *range(OPS))
            time.sleep(0.05)
            assert program.added() == count and program.report()["moves"] == report["moves"], kind
            # What follows is known by its numbers.
            program.relearn()
        program.follow()
        program.step(*range(OPS))
        program.has(state="Following")
        assert program.end()[0] == 5
        print("a launch that is none of the plan ends it at once")

    def obeys_the_switch(self):
        program = Program(self, log=True)
        for mode in ("record", "off"):
            program.follow()
            program.step(0, 1, 2)
            moves = program.report()["moves"]
            count = program.added()
            program.planner.do(f"mode {mode}")
            program.run(3, 4, 5, 6, 7)
            program.has(state="Stopped(Mode)", moves=moves)
            assert program.added() == count, mode
            # It is not taken up again.
            program.planner.do("mode act")
            program.run(*range(OPS))
            time.sleep(0.05)
            assert program.added() == count and program.report()["state"] == "Stopped(Mode)", mode
            # Launches had no number while it was off.
            program.planner.kill()
            program.planner = Planner(self, program.pid)
            program.relearn()
        assert program.end()[0] == 5
        print("the switch holds from the next launch on")

    def passes_through_without_uvmd(self):
        """5 s after its last beat, whether the program launches or not."""
        programs = [Program(self, log=True), Program(self, log=True)]
        for program in programs:
            program.follow()
            program.step(*range(OPS))
            program.planner.kill()
        shared = [Shared(program.pid) for program in programs]
        stopped_by_beat = 3 << 56 | 14 << 48
        ages = [None, None]
        while None in ages:
            programs[0].run(*range(OPS))
            for at, memory in enumerate(shared):
                age = (time.monotonic_ns() - memory.words[BEAT]) / 1e9
                assert age < 10, "a plan is followed without a beat"
                if ages[at] is None and memory.words[STATE] == stopped_by_beat:
                    ages[at] = age
            time.sleep(0.01)
        # A loaded machine may look a little later.
        assert all(5 <= age < 5.5 for age in ages), ages
        for program in programs:
            count = program.added()
            program.run(*range(OPS))
            assert program.added() == count
        # The next uvmd begins anew.
        programs[0].planner = Planner(self, programs[0].pid)
        programs[0].relearn()
        programs[0].follow()
        assert all(program.end()[0] == 5 for program in programs)
        print(f"calls pass through {' and '.join(f'{age:.2f}' for age in ages)} s after the last beat of an uvmd that was killed")

    def refuses(self):
        """What is none of the program's to move, with its reason, and without a call."""
        program = Program(self, log=True)
        shared = Shared(program.pid)
        own = program.moves()
        beyond = program.move(BUFFERS - 1, "gpu", 0, 1, 0, 1 << 40)
        for moves, reason in (([beyond], "NotAllocated"), ([f"{4096}:{4096}:gpu:0:1"], "NotAllocated")):
            report = program.publish(*moves, budget=1 << 50)
            assert report["state"] == f"Refused({reason})", report
        for moves, budget, reason in (
            (own, BYTES, "Budget"), ([program.move(0, "gpu", 3), program.move(0, "gpu", 2)], 1 << 30, "Order"), ([program.move(0, "gpu", OPS)], 1 << 30, "Op"),
            ([program.move(0, "gpu", 0, 0, 1)], 1 << 30, "Range"), ([program.move(0, "gpu", 0, 0, 0, 100)], 1 << 30, "Range"),
        ):
            answer = program.publish(*moves, budget=budget)
            assert answer == {"refused": reason}, answer
        # Written by somebody who does not check.
        numbers = {"Period": 1, "MoveCount": 2, "Op": 4, "Range": 5, "Destination": 6, "Budget": 7, "NoDevice": 10}
        for at, value, reason in (
            (PERIOD, PERIOD_MAX + 1, "Period"), (MOVES, MOVES_MAX + 1, "MoveCount"), (MOVES, (1 << 64) - 1, "MoveCount"),
            (FIRST_MOVE + 2, 7, "Destination"), (FIRST_MOVE + 3, OPS, "Op"), (FIRST_MOVE + 1, 100, "Range"),
            (BUDGET, 4096, "Budget"), (GPU, 1, "NoDevice"),
        ):
            program.follow()
            before = shared.words[at]
            generation = shared.words[GENERATION] + 2
            shared.words[at], shared.words[GENERATION] = value, generation
            program.run(*range(OPS))
            within("it is refused", lambda: shared.words[STATE_GENERATION] == generation and shared.words[STATE] == 4 << 56 | numbers[reason] << 48, 5)
            count = program.added()
            program.run(*range(OPS))
            assert program.added() == count, reason
            shared.words[at] = before
        # The program's own advice, before and meanwhile: on the place alone.
        prefer, duplicate, prefer_nowhere = 3, 1, 4
        assert program.do(f"advise 2 {prefer}") == "advised"
        assert program.publish()["state"] == "Refused(ProgramAdvice)"
        assert program.do(f"advise 2 {prefer_nowhere}") == "advised" and program.do(f"advise 2 {duplicate}") == "advised"
        skipped = program.follow()["skipped"]
        program.step(*range(OPS))
        assert program.do(f"advise 2 {prefer}") == "advised"
        program.step(*range(OPS - 2))
        program.run(6)
        program.has(skipped=skipped + 1, state="Following")
        program.run(7)
        # Memory that is freed ends the plan.
        assert program.do("free 3") == "freed" and program.report()["state"] == "Following"
        count = program.added()
        assert program.do("free 1") == "freed" and program.report()["state"] == "Stopped(Freed)"
        assert program.publish(program.move(1, "gpu", 0))["state"] == "Refused(NotAllocated)"
        assert program.added() == count
        assert program.end()[0] == 5
        print("what may not be moved is refused, with the reason")

    def numbers_launches(self):
        """Those that the driver refuses, too, of which there are no records."""
        program = Program(self)
        for count in range(3):
            assert program.do("refused") == "refused with 1"
            program.relearn()
            program.follow()
            program.step(*range(OPS))
            program.has(moves=4 * (count + 1), iterations=count + 1, state="Following")
        # It is none of the plan.
        assert program.do("refused") == "refused with 1"
        program.has(state="Drifted(0)")
        assert program.end()[0] == 5
        print("launches that the driver refuses leave the numbers of the others as they are")

    def stops_where_the_driver_fails(self):
        program = Program(self, log=True, CUDA_LAB_CONCURRENT="0")
        assert program.publish()["state"] == "Refused(Unsupported)" and program.added() == 0
        assert program.end()[0] == 5
        program = Program(self)
        # An iteration whose last op has any pointers.
        program.run(*range(OPS - 1))
        assert program.do(f"other-buffer {OPS - 1}") == "launched"
        program.run(*range(OPS))
        assert program.planner.do(f"learn {OPS}")["differ"] == 0
        program.follow()
        program.step(*range(OPS - 2))
        with Held(program.thread()):
            program.run(OPS - 2)
            assert "no access" in program.do("fault") and program.read() == "failed with 700"
            assert program.report()["state"] == "Following"
        report = program.has(state="Stopped(Failed(700))")
        assert (report["moves"], report["skipped"]) == (3, 1), report
        assert program.end()[0] == 5
        print("a plan stops where the driver fails")

    def leaves_captures_alone(self):
        program = Program(self, log=True)
        report = program.follow()
        program.step(0, 1)
        count = program.added()
        # It is an op of the plan, behind which nothing begins.
        assert program.do("capture-op 2") == "captured"
        assert program.added() == count
        assert program.has(skipped=report["skipped"] + 1)["state"] == "Following"
        program.step(*range(3, OPS))
        program.has(moves=3, iterations=1, state="Following")
        # One whose end failed goes on.
        program.step(0, 1)
        count, skipped = program.added(), program.report()["skipped"]
        assert program.do("begin-capture") == "begun" and program.do("fail-capture") == "failed with 903"
        program.run(2)
        assert program.do("end-capture") == "captured" and program.added() == count
        program.has(skipped=skipped + 1, state="Following")
        program.step(*range(3, OPS))
        # The switch is another at its begin than at its end, both ways round.
        for begin, end in (("off", "act"), ("act", "off")):
            program.planner.do(f"mode {begin}")
            assert program.do("begin-capture") == "begun"
            program.planner.do(f"mode {end}")
            assert program.do("end-capture") == "captured"
            program.planner.do("mode act")
            program.planner.kill()
            program.planner = Planner(self, program.pid)
            program.relearn()
            skipped = program.follow()["skipped"]
            program.step(0, 1)
            count = program.added()
            assert program.do("capture-op 2") == "captured" and program.added() == count, (begin, end)
            program.has(skipped=skipped + 1, state="Following")
            program.step(*range(3, OPS))
            program.has(skipped=skipped + 1, state="Following")
        # A graph is an op like a kernel.
        assert program.do("capture") == "captured"
        program.relearn()
        program.follow()
        program.step(*range(OPS))
        program.has(state="Following")
        own, _ = program.lines()
        launched = max(line["seq"] for line in own if line["op"] == "graph_launch")
        assert any(line["op"] == "record_event" and line["seq"] > launched for line in own)
        assert program.end()[0] == 5
        print("captured launches and graphs are ops, and nothing is added to a capture")

    def ends_with_contexts(self):
        program = Program(self)
        program.follow()
        program.do("iterate 20 100")
        assert program.do("other-context") == "ended" and program.report()["state"] == "Following"
        assert program.do("reset") == "counted 0" and program.report()["state"] == "Stopped(ContextEnded)"
        program.relearn()
        skipped = program.follow()["skipped"]
        program.step(*range(OPS))
        program.has(skipped=skipped, state="Following")
        assert program.end()[0] == 5
        print("a plan ends with its context")

    def ends_as_without(self):
        """Results and exit codes, with a plan."""
        for line, code in (("iterate 300", 5), ("iterate 20 200", 5), ("threads 100", 5), ("reset", 5), ("fork", 5), ("exit 3", 3), ("exit-elsewhere 4", 4), ("exec", 0)):
            results = []
            for helper in (False, True):
                program = Program(self, helper=helper)
                if helper:
                    program.follow()
                program.tell(line)
                said = [program.read()] if code == 5 else []
                results.append((said, program.end()))
            assert results[0] == results[1] and results[1][1][0] == code, f"{line}: {results}"
            print(f"same: {line}")

    def follows_again_and_again(self):
        """Plans one after the other, beside two threads that launch and a third side that reads."""
        program = Program(self)
        program.tell("threads 400")
        states = set()
        for _ in range(30):
            states.add(program.publish()["state"].partition("(")[0])
            time.sleep(0.002)
        assert program.read() == f"counted {32 * (20 + 800) * sum(range(1, OPS + 1))}"
        assert states <= {"Following", "Drifted"} and states, states
        # Beside one thread, each is followed for a while.
        program.relearn()
        iterations, states = program.report()["iterations"], set()
        program.tell("iterate 200 100")
        for _ in range(20):
            states.add(program.publish()["state"])
            time.sleep(0.01)
        assert program.read() == f"counted {32 * (20 + 800 + 20 + 200) * sum(range(1, OPS + 1))}"
        report = program.report()
        assert states == {"Following"} and report["state"] == "Following" and report["iterations"] > iterations, (states, report)
        assert program.end()[0] == 5
        print("two threads launch, and plans come and go")

    def survives_kills(self):
        """Either side dies at any time, and the other goes on."""
        generator = random.Random(1)
        program = Program(self)
        count = 20
        for _ in range(self.kills):
            program.follow()
            program.tell("iterate 50")
            time.sleep(generator.uniform(0, 0.01))
            program.planner.kill()
            count += 50
            assert program.read() == f"counted {32 * count * sum(range(1, OPS + 1))}"
            program.planner = Planner(self, program.pid)
            program.relearn()
            count += 20
        # Within a publish, too.
        shared = Shared(program.pid)
        for _ in range(self.kills):
            program.planner.tell(" ".join(["publish-for-ever", str(1 << 30), *program.moves()]))
            program.tell("iterate 50")
            time.sleep(generator.uniform(0.001, 0.01))
            program.planner.kill()
            # An accessor writes a plan within microseconds: as if it had been killed before the last word.
            shared.words[GENERATION] |= 1
            count += 50
            assert program.read() == f"counted {32 * count * sum(range(1, OPS + 1))}"
            program.planner = Planner(self, program.pid)
            program.relearn()
            count += 20
        program.follow()
        assert program.end()[0] == 5
        for _ in range(self.kills):
            program = Program(self)
            program.follow()
            program.tell("for-ever")
            time.sleep(generator.uniform(0, 0.03))
            program.child.kill()
            assert program.child.wait(timeout=SECONDS_MAX) == -signal.SIGKILL
            assert program.report() is not None, "the planner reads what is left"
            program.planner.kill()
        print(f"{self.kills} kills of each side, and as many within a publish")

    def withstands_garbage(self):
        """Whatever is written into the memory of the plan, the program goes on."""
        generator = random.Random(2)
        program = Program(self)
        shared = Shared(program.pid)
        program.follow()
        program.tell("threads 300")
        seen = set()
        end = time.monotonic() + 3
        while time.monotonic() < end:
            for _ in range(generator.randrange(6)):
                at = generator.choice((generator.randrange(64), TABLE + generator.randrange(16), FIRST_MOVE + generator.randrange(20), GENERATION, PERIOD, MOVES))
                shared.words[at] = generator.choice((0, 1, 2, 4, OPS, 4096, generator.getrandbits(64), generator.choice(program.buffers) + 4096 * generator.randrange(600)))
            if generator.random() < 0.3:
                # One that is a plan but for a word.
                shared.words[0], shared.words[1], shared.words[2] = int.from_bytes(b"UVMDPLAN", "little"), 2 << 32, PLAN_BYTES
                program.planner.do(" ".join(["publish", str(1 << 30), *program.moves()]))
                shared.words[generator.choice((PERIOD, MOVES, FIRST, FIRST_MOVE, FIRST_MOVE + 1, FIRST_MOVE + 3))] = generator.choice((1, OPS - 1, generator.getrandbits(20), generator.getrandbits(64)))
            shared.words[BEAT] = time.monotonic_ns()
            seen.add(shared.words[STATE] >> 56)
            time.sleep(0.001)
        assert program.read() == f"counted {32 * (20 + 600) * sum(range(1, OPS + 1))}"
        assert {1, 4} <= seen, f"no plan was followed, or none refused: {seen}"
        assert program.end()[0] == 5
        print("whatever is in the memory of the plan, the program goes on")


NAMES = (
    "follows", "orders_no_streams", "moves_in_parts", "gives_back", "wakes_seldom", "counts_late_moves", "waits_for_hand_overs",
    "stops_at_drift", "obeys_the_switch", "passes_through_without_uvmd", "refuses", "numbers_launches",
    "stops_where_the_driver_fails", "leaves_captures_alone", "ends_with_contexts", "ends_as_without",
    "follows_again_and_again", "survives_kills", "withstands_garbage",
)


if __name__ == "__main__":
    run_tests(__doc__, Test, "plan", lambda _: NAMES)
