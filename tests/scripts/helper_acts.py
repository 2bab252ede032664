#!/usr/bin/env python3
"""Commands to the helper, by a stand-in for uvmd: what it carries out, what it refuses, and that the program ends as without it.

    helper_acts.py HELPER RECORD CUDA_FOLDER PROGRAMS [--workload UVM_WORKLOAD] [--tinygrad DIR] [--numba DIR] [--kills N]
    helper_acts.py HELPER RECORD CUDA_FOLDER PROGRAMS --nvidia GPU_CHECK [--kills N]

HELPER is libuvmd_helper.so, RECORD recorder's example, CUDA_FOLDER has the lab's libcuda.so.1, PROGRAMS what
tests/helper/build made. With --nvidia, the driver is NVIDIA's, on the first GPU, and gpu-check attaches its counters:
tests that need the lab's log or several GPUs are left out. Needs CAP_CHECKPOINT_RESTORE, as root has it.
"""
import ctypes
import json
import os
import pathlib
import random
import resource
import signal
import subprocess
import sys
import time

# No compiled module beside the sources.
sys.dont_write_bytecode = True
from helper_program import (  # noqa: E402
    SECONDS_MAX, LineProgram, SharedMemory, add_programs, numba_kernels, run_tests, tinygrad_environment, tinygrad_training, uuid_of_nvidia, within,
    without_times,
)

# Words of the shared memory: see helper/call-ring/src/memory.rs and command.rs.
BYTES, MODE, FILTERS, COMMANDS = 8192 + (1 << 20) + 15 * (64 << 10), 16, 25, 512
AGENT, STAGE, ACTION, GPU, BEGIN, END, ANSWER, ADVICE_CALLS = (COMMANDS + at for at in (0, 8, 9, 10, 12, 13, 16, 17))
OFF, RECORD, ACT = range(3)
ABSENT, RUNNING, ENDED = range(3)
PENDING, TAKEN, ANSWERED = 1, 2, 3
ACTIONS = ["prefetch-to-gpu", "prefetch-to-host", "prefer-gpu", "prefer-host", "prefer-nowhere", "access-by-gpu", "no-access-by-gpu", "duplicate", "do-not-duplicate", "prefer-host-no-more"]
WITHDRAWALS = {"prefer-nowhere", "no-access-by-gpu", "do-not-duplicate", "prefer-host-no-more"}
ANSWERS = {1: "done", 2: "failed", 3: "not allocated", 4: "program's advice", 5: "no device", 6: "unsupported", 7: "not acting"}
# Where the lab has managed memory, on plain memory.
MANAGED = 0x2000_0000_0000
NO_DEVICE = -2
# What the helper's thread does, in the lab's log.
HELPERS_OPS = {"advise", "capture_mode", "prefetch", "stream_create", "stream_destroy"}


def uuid_of(device):
    """Of a GPU of the lab, on plain memory."""
    return b"lab GPU, plain " + bytes([device + 1])


class Ring(SharedMemory):
    """The ring of a process."""

    gpu = uuid_of(0)

    def __init__(self, pid):
        super().__init__(pid, "uvmd-ring", BYTES)
        # Of all commands that were waited for, and of the last.
        self.advice_calls = self.last_advice_calls = 0

    def wake(self):
        futex, wake_all = 202, 1
        ctypes.CDLL(None).syscall(futex, ctypes.byref(self.words, STAGE * 8), wake_all, 1 << 30, 0, 0, 0)

    def submit(self, action, begin, end, gpu=None):
        words, gpu = self.words, gpu or self.gpu
        stage = words[STAGE]
        assert stage & 3 != TAKEN, "the last one is being carried out"
        words[ANSWER], words[ACTION] = 0, action if isinstance(action, int) else ACTIONS.index(action) + 1
        words[GPU], words[GPU + 1] = (int.from_bytes(half, "little") for half in (gpu[:8], gpu[8:]))
        words[BEGIN], words[END] = begin, end
        number = (stage >> 2) + 1
        words[STAGE] = number << 2 | PENDING
        self.wake()
        return number

    def answer(self, number):
        if self.words[STAGE] != number << 2 | ANSWERED:
            return None
        kind, result = divmod(self.words[ANSWER], 1 << 32)
        return ANSWERS[kind] + (f" {result}" if result else "")

    def command(self, *arguments, **keywords):
        number = self.submit(*arguments, **keywords)
        answer = within("an answer", lambda: self.answer(number))
        self.last_advice_calls = self.words[ADVICE_CALLS]
        self.advice_calls += self.last_advice_calls
        return answer


def find_ring(pid):
    try:
        return Ring(pid)
    except (StopIteration, FileNotFoundError):
        return None


class Program(LineProgram):
    """programs/acts."""

    def __init__(self, test, helper=True, environment=None, mode=ACT, first="count 1", arguments=()):
        super().__init__(test, [test.programs / "acts", *arguments], helper, environment or {})
        assert self.child.stdout.readline() == "ready\n"
        self.ring = Ring(self.pid) if helper else None
        if helper and mode == ACT:
            self.ring.words[MODE] = ACT
        self.do(first)
        if helper and mode == ACT:
            within("the helper's thread runs or has ended", lambda: self.ring.words[AGENT] != ABSENT)

    def number(self, line):
        return int(self.do(line))

    def helper(self):
        """The helper's thread."""
        (thread,) = [thread for thread, name in self.threads().items() if name == "uvmd-helper"]
        return thread

    def threads(self):
        tasks = pathlib.Path(f"/proc/{self.pid}/task").iterdir()
        return {int(task.name): (task / "comm").read_text(encoding="ascii").strip() for task in tasks}

    def end(self, line=None):
        """Exit code, and what it still says."""
        if line:
            self.tell(line)
        out, _ = self.child.communicate(timeout=SECONDS_MAX)
        return self.child.returncode, out


def spam(ring, seed, managed):
    """Commands of all kinds about the memory that a program has, one after the other, for ever."""
    generator = random.Random(seed)
    while True:
        begin = managed + (generator.randrange(256) << 12)
        number = ring.submit(generator.choice(ACTIONS), begin, begin + (generator.choice((1, 1, 1, 4, 16, 512)) << 12))
        end = time.monotonic() + SECONDS_MAX
        while ring.answer(number) is None:
            assert time.monotonic() < end, "no answer"
            time.sleep(generator.choice((0, 0, 0.0005)))


class Spammer:
    """A process that gives commands until it is killed."""

    def __init__(self, ring, seed=1, managed=MANAGED):
        self.pid = os.fork()
        if self.pid == 0:
            try:
                # Those of the programs' input: it would not end.
                os.closerange(3, 1024)
                spam(ring, seed, managed)
            finally:
                os._exit(1)

    def is_alive(self):
        return os.waitpid(self.pid, os.WNOHANG) == (0, 0)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        assert os.WIFSIGNALED(status), "the commands had no answers"


class Test:
    def __init__(self, options, folder):
        self.helper, self.record, self.folder = str(options.helper), str(options.record), folder
        self.programs, self.workload, self.kills, self.gpu_check = options.programs, options.workload, options.kills, options.nvidia
        self.tinygrad, self.numba = options.tinygrad, options.numba
        if self.gpu_check:
            Ring.gpu = bytes.fromhex(uuid_of_nvidia().removeprefix("GPU-").replace("-", ""))
        self.environment = dict(os.environ, LD_LIBRARY_PATH=str(options.cuda))

    def has_log(self):
        return not self.gpu_check

    def logged_by(self, program, thread):
        lines = (self.folder / f"log.{program.pid}").read_text(encoding="utf-8").splitlines()
        return [line for line in map(json.loads, lines) if line["thread"] == thread]

    def carries_out(self):
        """Each action, by what the driver says of the memory afterwards, and by its log."""
        program = Program(self, environment={"CUDA_LAB_LOG": str(self.folder / "log")})
        ring, size = program.ring, 4 << 20
        assert ring.words[AGENT] == RUNNING
        helper = program.helper()
        begin = program.number(f"managed {size}")
        end = begin + size
        host, gpu = -1, 0
        for action, attributes in (
            ("prefetch-to-gpu", f"0 {NO_DEVICE} {NO_DEVICE} {gpu}"), ("prefetch-to-host", f"0 {NO_DEVICE} {NO_DEVICE} {host}"),
            ("prefer-gpu", f"0 {gpu} {NO_DEVICE} {host}"), ("prefer-host", f"0 {host} {NO_DEVICE} {host}"),
            ("prefer-nowhere", f"0 {NO_DEVICE} {NO_DEVICE} {host}"), ("access-by-gpu", f"0 {NO_DEVICE} {gpu} {host}"),
            ("no-access-by-gpu", f"0 {NO_DEVICE} {NO_DEVICE} {host}"), ("duplicate", f"1 {NO_DEVICE} {NO_DEVICE} {host}"),
            ("do-not-duplicate", f"0 {NO_DEVICE} {NO_DEVICE} {host}"), ("prefer-host", f"0 {host} {NO_DEVICE} {host}"),
            ("prefer-host-no-more", f"0 {NO_DEVICE} {NO_DEVICE} {host}"),
        ):
            assert (answer := ring.command(action, begin, end)) == "done", f"{action}: {answer}"
            assert (got := program.do(f"attributes {begin} {size}")) == attributes, f"{action}: {got}"
        large = program.number(f"managed {100 << 20}")
        assert ring.command("prefetch-to-gpu", large, large + (100 << 20)) == "done"
        assert program.number(f"sum {begin} {size}") == 5 * size
        assert program.end()[0] == 5
        print("each action is carried out, and done when it is answered")
        if self.has_log():
            self.made_the_calls(program, helper)

    def made_the_calls(self, program, helper):
        """Those of `carries_out`."""
        ring, own = program.ring, self.logged_by(program, helper)
        # Before all else it has its calls leave captures of the program's alone.
        relaxed = 2
        assert own[0]["op"] == "capture_mode" and own[0]["mode"] == relaxed, own
        advice = [line["advice"] for line in own if line["op"] == "advise"]
        assert advice == [3, 3, 4, 5, 6, 1, 2, 3, 3, 4] and ring.advice_calls == len(advice), own
        # The large one is moved in parts.
        moved = [line["bytes"] >> 20 for line in own if line["op"] == "prefetch"]
        assert moved[:2] == [4, 4] and sum(moved[2:]) == 100 and max(moved) == 32, moved
        assert {line["op"] for line in own} <= HELPERS_OPS, own
        print("and by these calls alone")

    def moves_what_the_driver_counts(self):
        """Bytes of prefetches, of which the program's own memory has each once in each direction."""
        program = Program(self)
        size = 64 << 20
        begin = program.number(f"managed {size}")
        watch = subprocess.Popen([self.gpu_check, "process", str(program.pid), "--watch-ms", "60000"], stdout=subprocess.PIPE, text=True)
        descriptors = pathlib.Path(f"/proc/{watch.pid}/fd")
        within("the driver's counters are attached", lambda: any("nvidia-uvm-tools" in os.readlink(at) for at in descriptors.iterdir() if at.is_symlink()))
        time.sleep(1)
        # Written by the GPU at first: it is there already.
        for action in ("prefetch-to-host", "prefetch-to-gpu", "prefetch-to-gpu", "prefetch-to-host"):
            assert (answer := program.ring.command(action, begin, begin + size)) == "done", f"{action}: {answer}"
        time.sleep(0.5)
        assert program.end()[0] == 5
        counted = json.loads(watch.communicate(timeout=SECONDS_MAX)[0])["counted"]
        assert (counted["bytes_htod"], counted["bytes_dtoh"]) == (size, 2 * size), counted
        print(f"the driver counts what prefetches move: {counted}")

    def refuses(self):
        program = Program(self, environment={"CUDA_LAB_DEVICES": "2"})
        ring, size = program.ring, 2 << 20
        begin = program.number(f"managed {size}")
        device = program.number(f"device {size}")

        def answers(expected, action, at=begin, end=None, **keywords):
            answer = ring.command(action, at, end or at + size, **keywords)
            assert answer == expected, f"{action}: {answer} instead of {expected}"

        for action in ACTIONS:
            answers("not allocated", action, device)
            expected = "done" if action in WITHDRAWALS else "not allocated"
            answers(expected, action, begin - 4096)
            answers(expected, action, begin, begin + size + (1 << 20))
            answers("not allocated", action, 4096)
            answers("no device", action, gpu=b"no GPU with this")
            # The program has no context there.
            answers("no device", action, gpu=uuid_of(1))
        answers("unsupported", 77)
        answers("unsupported", "duplicate", begin + size, begin)

        # The program's own advice, in part of the range.
        assert program.number(f"advise {begin + 65536} 65536 1 0") == 0
        for action in ACTIONS[2:]:
            answers("done" if action in WITHDRAWALS - {"do-not-duplicate"} else "program's advice", action, begin + 65536, begin + 131072)
            answers("done" if action in WITHDRAWALS else "program's advice", action)
        answers("done", "prefer-host", begin, begin + 65536)
        answers("done", "prefetch-to-gpu")
        assert program.number(f"advise {begin + 65536} 65536 2 0") == 0
        answers("done", "duplicate")
        assert program.number(f"advise {begin} 4096 3 -1") == 0
        answers("program's advice", "prefetch-to-gpu")
        assert program.number(f"advise {begin} {size} 4 0") == 0
        answers("done", "prefetch-to-gpu")

        # Memory that is gone, by itself or with its context.
        assert program.number(f"advise {begin} {size} 5 0") == 0
        assert program.number(f"free {begin}") == 0
        answers("not allocated", "prefer-gpu")
        assert program.number(f"managed {size}") == begin
        answers("done", "prefer-gpu")
        other = program.number("other")
        answers("not allocated", "prefetch-to-gpu", other)
        detached = program.number("detached")
        answers("done", "prefetch-to-gpu", detached)
        assert program.number("detach") == detached
        answers("not allocated", "prefetch-to-gpu", detached)
        answers("done", "prefetch-to-gpu")
        assert program.do("contexts 1").startswith("counted")
        answers("not allocated", "prefetch-to-gpu")
        begin = program.number(f"managed {size}")
        answers("done", "prefetch-to-gpu", begin)

        # The switch.
        for mode in (RECORD, OFF):
            ring.words[MODE] = mode
            answers("not acting", "prefetch-to-gpu", begin)
        # What is freed or advised meanwhile is known.
        assert program.number(f"advise {begin} {size} 3 -1") == 0
        ring.words[MODE] = ACT
        answers("program's advice", "prefetch-to-gpu", begin)
        ring.words[MODE] = OFF
        assert program.number(f"free {begin}") == 0
        ring.words[MODE] = ACT
        answers("not allocated", "prefetch-to-gpu", begin)
        assert program.end()[0] == 5
        print("what may not be carried out is refused, with the reason")

    def withdraws(self):
        """What undoes advice does so for all of the range but what the program has advised on the same subject."""
        program = Program(self, environment={"CUDA_LAB_LOG": str(self.folder / "log")})
        helper = program.helper()
        ring, size, piece = program.ring, 2 << 20, 65536
        begin = program.number(f"managed {size}")
        before, own, behind = (begin, piece), (begin + piece, piece), (begin + 2 * piece, size - 2 * piece)
        whole, host, gpu = (begin, size), -1, 0

        def does(expected, advice_calls, action, place=whole):
            answer = ring.command(action, place[0], sum(place))
            assert (answer, ring.last_advice_calls) == (expected, advice_calls), f"{action}: {answer}, {ring.last_advice_calls} calls"

        def advises(place, advice, device=gpu):
            return program.number(f"advise {place[0]} {place[1]} {advice} {device}")

        def has(place, duplicate=0, preferred=NO_DEVICE, accessed=NO_DEVICE):
            got = program.do(f"attributes {place[0]} {place[1]}").rsplit(" ", 1)[0]
            assert got == f"{duplicate} {preferred} {accessed}", f"{place}: {got}"

        # Another subject.
        does("done", 1, "prefer-host")
        assert advises(own, 1) == 0
        does("done", 1, "prefer-nowhere")
        has(before), has(own, duplicate=1), has(behind)
        does("done", 2, "do-not-duplicate")
        does("program's advice", 0, "do-not-duplicate", own)
        has(own, duplicate=1)
        assert advises(own, 2) == 0
        # The same.
        for action, each in (("prefer-nowhere", 1), ("prefer-host-no-more", 2)):
            does("done", 1, "prefer-host")
            assert advises(own, 3) == 0
            does("done", 2 * each, action)
            has(before), has(own, preferred=gpu), has(behind)
            does("program's advice", 0, action, own)
            # In whole pages.
            does("program's advice", 0, action, (own[0] + 4096, 8192))
            does("done", each, action, (own[0] - 4096, 8192))
            has(own, preferred=gpu)
            assert advises(own, 4) == 0
        does("done", 1, "access-by-gpu")
        assert advises(own, 5) == 0
        does("done", 2, "no-access-by-gpu")
        has(before), has(own, accessed=gpu), has(behind)
        assert advises(own, 6) == 0
        # Advice of a later driver, which fails here, is not known: nothing is given there, and all is undone.
        does("done", 1, "prefer-host")
        assert advises(own, 77) != 0
        does("program's advice", 0, "prefer-host")
        does("done", 1, "prefer-nowhere")
        has(whole)
        # Memory that is there no more.
        other = program.number(f"managed {size}"), size
        first, last = sorted((begin, other[0]))
        both = first, last + size - first
        does("done", 1, "prefer-host", other)
        assert program.number(f"free {begin}") == 0
        does("not allocated", 0, "prefer-host", both)
        does("done", 1, "prefer-nowhere", both)
        has(other)
        assert program.number(f"free {other[0]}") == 0
        does("not allocated", 0, "prefer-nowhere", both)
        # In a table without room, what the program has advised is not known.
        begin = program.number(f"managed {64 << 20}")
        place = begin, 64 << 20
        does("done", 1, "prefer-host", place)
        assert program.do(f"advise-many {begin} 2100") == "0"
        does("program's advice", 0, "duplicate", (begin + (60 << 20), 4096))
        does("done", 1, "prefer-nowhere", (begin + (60 << 20), 4096))
        assert program.end()[0] == 5
        if self.has_log():
            calls = [line for line in self.logged_by(program, helper) if line["op"] == "advise"]
            assert len(calls) == ring.advice_calls, f"{len(calls)} calls, {ring.advice_calls} in the answers"
        print("what undoes advice leaves the program's own alone, and nothing else")

    def needs_no_descriptor(self):
        """The thread goes on where no file may be opened, and where a program has closed all that it did not open itself."""
        program = Program(self)
        begin = program.number(f"managed {1 << 20}")
        assert program.do("close-all") == "closed"
        resource.prlimit(program.pid, resource.RLIMIT_NOFILE, (0, 0))
        time.sleep(2.5)
        assert program.ring.words[AGENT] == RUNNING and "uvmd-helper" in program.threads().values()
        for action in ("prefetch-to-gpu", "duplicate", "do-not-duplicate"):
            assert (answer := program.ring.command(action, begin, begin + (1 << 20))) == "done", f"{action}: {answer}"
        assert program.end()[0] == 5
        print("no descriptor is needed")

    def starts(self):
        """The thread is there once there is something to act on, and only then."""
        program = Program(self, mode=RECORD)
        assert program.do("count 4") == "counted 256"
        assert "uvmd-helper" not in program.threads().values() and program.ring.words[AGENT] == ABSENT
        # Nobody takes a command.
        number = program.ring.submit("duplicate", MANAGED, MANAGED + 4096)
        time.sleep(0.1)
        assert program.ring.answer(number) is None
        assert program.end()[0] == 5
        # No thread can be made.
        program = Program(self, arguments=["limited"], mode=RECORD, first="reserve 65536")
        program.ring.words[MODE] = ACT
        assert program.do("device 65536").isdigit()
        within("the agent has ended", lambda: program.ring.words[AGENT] == ENDED)
        assert "uvmd-helper" not in program.threads().values()
        assert program.end() == (5, "")
        # A filter of system calls that was there before and is admitted, as in a container, and one that is installed since.
        program = Program(self, arguments=["filter"], environment={"UVMD_HELPER_FILTERS": "1"})
        assert program.ring.words[AGENT] == RUNNING and program.ring.words[FILTERS] == 1
        assert program.end()[0] == 5
        program = Program(self, mode=RECORD)
        assert program.ring.words[FILTERS] == 0 and program.do("filter") == "0"
        program.ring.words[MODE] = ACT
        assert program.do("count 4") == "counted 256" and program.ring.words[AGENT] == ENDED
        assert program.end() == (5, "")
        # One that is installed while the thread is there: it is not known which calls of the driver are forbidden.
        program = Program(self)
        begin = program.number("managed 65536")
        assert program.ring.command("duplicate", begin, begin + 65536) == "done"
        assert program.do("filter") == "0"
        assert program.ring.command("do-not-duplicate", begin, begin + 65536) == "not acting"
        within("the agent has ended", lambda: program.ring.words[AGENT] == ENDED)
        assert "uvmd-helper" in program.threads().values(), "its end would take system calls"
        assert program.end()[0] == 5
        # Memory for a thread would be memory that the program lacks.
        program = Program(self, mode=RECORD)
        used = int(pathlib.Path(f"/proc/{program.pid}/statm").read_text(encoding="ascii").split()[0]) * 4096
        resource.prlimit(program.pid, resource.RLIMIT_AS, (used + (1 << 30), used + (1 << 30)))
        program.ring.words[MODE] = ACT
        assert program.do("count 4") == "counted 256" and program.ring.words[AGENT] == ENDED
        assert program.end() == (5, "")
        print("the thread is there if it is to act and can be, and only then")

    def blocks_signals(self):
        program = Program(self)
        helper = program.helper()
        status = pathlib.Path(f"/proc/{program.pid}/task/{helper}/status").read_text(encoding="ascii")
        blocked = int(next(line for line in status.splitlines() if line.startswith("SigBlk")).split()[1], 16)
        # All but those of the C library, and two that cannot be.
        assert blocked == ~(0b111 << 31 | 1 << signal.SIGKILL - 1 | 1 << signal.SIGSTOP - 1) & (1 << 64) - 1, hex(blocked)
        own = pathlib.Path(f"/proc/{program.pid}/status").read_text(encoding="ascii")
        assert "SigBlk:\t0000000000000000" in own
        assert program.end()[0] == 5
        print("no handler of the program's runs in the thread")

    def ends_as_without(self):
        """Results and exit codes, with commands all the time."""
        for line, code in (("count 200", 5), ("threads 60", 5), ("contexts 20", 5), ("capture", 5), ("fork", 5), ("exit 3", 3), ("exit-elsewhere 4", 4), ("leave", 0), ("exec", 0)):
            if line == "leave" and self.gpu_check:
                # NVIDIA's threads do not end with those of the program.
                continue
            results = []
            for helper in (False, True):
                program = Program(self, helper=helper, first="reserve 65536" if line == "leave" else "count 1")
                managed = program.number("reserve 65536")
                spammer = Spammer(program.ring, managed=managed) if helper else None
                program.tell(line)
                said = []
                if line == "capture":
                    said.append(program.read())
                    time.sleep(0.3)
                    program.tell("")
                if line.startswith(("count", "threads", "contexts", "capture", "fork")):
                    said.append(program.read())
                results.append((said, program.end()))
                if spammer:
                    assert spammer.is_alive(), f"{line}: the commands had no answers"
                    spammer.kill()
            assert results[0] == results[1] and results[1][1][0] == code, f"{line}: {results}"
            print(f"same: {line}")

    def ends_without_threads(self):
        """The thread does not keep a process alive whose own threads have ended, also if it has a stream."""
        for has_stream in (False, True):
            program = Program(self, first="reserve 65536")
            if has_stream:
                begin = program.number(f"reserve {1 << 20}")
                assert program.ring.command("prefetch-to-gpu", begin, begin + (1 << 20)) == "done"
            # Within its time limit: it never would with the thread.
            assert program.end("leave")[0] == 0
        print("a process without threads of its own ends")

    def records_truly(self):
        """What is recorded is what the program did, and nothing of the helper's own. Workloads verify their data, too."""
        commands = {"threads": ([self.programs / "program", "threads"], 5)}
        if self.tinygrad:
            self.environment.update(tinygrad_environment(self.tinygrad, self.folder))
            commands["tinygrad"] = (tinygrad_training(5, "--managed"), 0)
        if self.numba:
            commands["Numba"] = (numba_kernels(self.numba), 0)
        if self.workload:
            names = subprocess.run([self.workload, "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
            for name in (line.split()[0] for line in names):
                commands[name] = ([self.workload, "--mib", "16", "--iterations", "10", name], 0)
        for name, (command, code) in commands.items():
            alone = subprocess.run(command, env=self.environment, stdout=subprocess.PIPE, text=True, check=False)
            assert alone.returncode == code, f"{name} alone: {alone.returncode}"
            expected = without_times(alone.stdout.encode())
            # A program may be done before the thread has been of use.
            carried_out = within("calls of the helper's beside those of a program", lambda: self.recorded_beside_commands(command, code, expected))
            print(f"recorded beside {carried_out} calls of the helper's: {name}")

    def recorded_beside_commands(self, command, code, expected):
        """Calls of the helper's beside a program that says what it says alone, and whose own calls are recorded truly."""
        log = self.folder / "acts-log"
        record = [self.record, "--act", f"{self.helper}:{self.programs}/hold.so", self.folder / "calls", *command]
        child = subprocess.Popen(record, env={**self.environment, "CUDA_LAB_LOG": str(log)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        children = pathlib.Path(f"/proc/{child.pid}/task/{child.pid}/children")
        (program,) = within("the program", lambda: children.read_text(encoding="ascii").split())
        ring = within("the ring", lambda: find_ring(program) or child.poll() is not None)
        spammer = Spammer(ring)
        out, said = child.communicate(timeout=SECONDS_MAX)
        spammer.kill()
        assert without_times(out.encode()) == expected, f"{out} instead of {expected}"
        assert child.returncode == code and "dropped: 0, late: 0, unrecorded: 0, unknown: 0, invalid: 0" in said, said
        lines = [json.loads(line) for line in pathlib.Path(f"{log}.{program}").read_text(encoding="utf-8").splitlines()]
        operations = {}
        for line in lines:
            operations.setdefault(line["thread"], set()).add(line["op"])
        # Those of the program allocate as well.
        helpers = [thread for thread, all_of_it in operations.items() if all_of_it <= HELPERS_OPS and thread != int(program)]
        own = self.folder / "own-log"
        own.write_text("".join(json.dumps(line) + "\n" for line in lines if line["thread"] not in helpers), encoding="utf-8")
        comparison = pathlib.Path(__file__).with_name("calls.py")
        subprocess.run([sys.executable, comparison, own, self.folder / "calls"], stdout=subprocess.DEVNULL, check=True)
        return sum(line["thread"] in helpers and line["op"] in ("advise", "prefetch") for line in lines)

    def survives_kills(self):
        """uvmd dies at any time, and so does the program: the other side goes on."""
        generator = random.Random(1)
        program = Program(self)
        for seed in range(self.kills):
            managed = program.number("reserve 65536")
            program.tell("count 20")
            spammer = Spammer(program.ring, seed, managed)
            time.sleep(generator.uniform(0, 0.03))
            spammer.kill()
            assert program.read() == "counted 1280"
            # The next uvmd goes on: also behind a command that nobody took, or whose answer nobody read.
            within("the last one is carried out", lambda: program.ring.words[STAGE] & 3 != TAKEN)
        begin = program.number(f"managed {1 << 20}")
        assert program.ring.command("prefetch-to-gpu", begin, begin + (1 << 20)) == "done"
        assert program.end()[0] == 5
        for seed in range(self.kills):
            program = Program(self)
            spammer = Spammer(program.ring, seed, program.number("reserve 65536"))
            program.tell("count 1000")
            time.sleep(generator.uniform(0, 0.03))
            program.child.kill()
            assert program.end()[0] == -signal.SIGKILL
            assert spammer.is_alive()
            spammer.kill()
        print(f"{self.kills} kills of each side")

    def withstands_garbage(self):
        """Whatever is written into the command's words, the program goes on."""
        generator = random.Random(2)
        program = Program(self)
        managed = program.number("reserve 65536")
        program.tell("threads 40")
        end = time.monotonic() + 1
        while time.monotonic() < end:
            at = COMMANDS + generator.randrange(24)
            program.ring.words[at] = generator.choice((0, 1, 5, generator.getrandbits(64), managed + generator.randrange(1 << 22)))
            program.ring.wake()
        assert program.read() == "counted 10240"
        assert program.end()[0] == 5
        print("whatever is in the command's words, the program goes on")


NAMES = (
    "carries_out", "refuses", "withdraws", "needs_no_descriptor", "starts", "blocks_signals", "ends_as_without",
    "ends_without_threads", "records_truly", "survives_kills", "withstands_garbage",
)
NVIDIA_NAMES = ("carries_out", "moves_what_the_driver_counts", "withdraws", "blocks_signals", "ends_as_without", "survives_kills", "withstands_garbage")


def add_arguments(parser):
    parser.add_argument("--workload", type=pathlib.Path, help="uvm-workload, to record all of it beside commands")
    add_programs(parser)
    parser.add_argument("--nvidia", type=pathlib.Path, metavar="GPU_CHECK", help="gpu-check, where the driver is NVIDIA's")


if __name__ == "__main__":
    run_tests(__doc__, Test, "record", lambda options: NVIDIA_NAMES if options.nvidia else NAMES, add_arguments)
