#!/usr/bin/env python3
"""Compares the calls that the helper recorded with those that the lab's CUDA driver logged, one by one.

    calls.py LOG RECORDED [--managed]

Both are lines of JSON: of CUDA_LAB_LOG, and of recorder's example `record`. Calls of a thread are compared in their
order; those of different threads have no common order. Streams have a name of their own on each side: each name of
one side has to be one name of the other. With --managed, the driver gave managed memory for device memory.
"""
import argparse
import collections
import json
import sys

# Of the log, what the helper records: not events, modules and functions of the program.
RECORDED = {"malloc", "free", "launch", "memcpy", "memset", "prefetch", "advise", "sync", "graph_instantiate", "graph_launch", "register", "unregister", "context_destroy"}
# Nodes of graphs that do no work on memory.
IDLE = {"record_event", "wait_event", "host", "empty"}


def read(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def node_of_log(node):
    """What a node of a graph does, of the log."""
    if "kernel" in node:
        return launch_of_log(node)
    return tuple((key, node[key]) for key in ("op", "to", "from", "address", "bytes") if key in node)


def launch_of_log(call):
    pointers = tuple((pointer["at"], pointer["base"] + pointer["offset"]) for pointer in call["pointers"])
    return ("launch", call["kernel"], tuple(call["grid"]), tuple(call["block"]), call["shared"], pointers)


def work_of_log(call, managed):
    """What a call does, in the form that both sides have; then its stream."""
    op = call["op"]
    if op == "malloc":
        kind = "device" if managed and call["kind"] == "managed" else call["kind"]
        return (op, call["address"], call["bytes"], kind), None
    if op == "free":
        return (op, call["address"]), None
    if op == "launch":
        return launch_of_log(call), call["stream"]
    if op == "memcpy":
        return (op, call["to"], call["from"], call["bytes"], call["rows"], call["async"]), call["stream"]
    if op == "memset":
        return (op, call["address"], call["bytes"], call["rows"], call["async"]), call["stream"]
    if op == "prefetch":
        return (op, call["address"], call["bytes"], call["to"]), call["stream"]
    if op == "advise":
        # Advice without a place has none here.
        return (op, call["address"], call["bytes"], call["advice"], call["to"] if call["to"] is not None else -1), None
    if op == "sync":
        return (op, call["what"]), call["stream"] if call["what"] == "stream" else None
    if op in ("graph_instantiate", "graph_launch"):
        nodes = tuple(sorted(repr(node_of_log(node)) for node in call["nodes"] if node.get("op") not in IDLE))
        return (op, nodes), call["stream"] if op == "graph_launch" else None
    if op == "register":
        return ("malloc", call["address"], call["bytes"], "registered"), None
    if op == "unregister":
        return ("free", call["address"]), None
    raise ValueError(f"an operation of the log without a comparison: {op}")


class Recorded:
    """Calls as recorded, with names of functions and nodes of graphs, as uvmd puts them together."""

    def __init__(self, managed):
        self.managed = managed
        self.functions = {}
        self.graphs = collections.defaultdict(dict)
        self.executables = {}
        self.captured = collections.defaultdict(list)

    def graph_of(self, node):
        return next((nodes for nodes in self.graphs.values() if node in nodes), None)

    def launch(self, call):
        pointers = tuple(map(tuple, call["pointers"])) if call["pointers"] is not None else None
        return ("launch", self.functions.get(call["function"]), tuple(call["grid"]), tuple(call["block"]), call["shared"], pointers)

    def node(self, call):
        if call["op"] == "launch":
            return self.launch(call)
        return tuple((key, call[key]) for key in ("op", "to", "from", "address", "bytes") if key in call)

    def work(self, call):
        """As work_of_log; None for what is not a call of its own there."""
        op = call["op"]
        target = call.get("target")
        if op == "function":
            self.functions[call["function"]] = call["name"]
            return None
        if target == "graph":
            nodes = self.graphs[call["graph"]] if call["graph"] else self.graph_of(call["node"])
            nodes[call["node"]] = self.node(call)
            return None
        if target == "executable":
            self.executables[call["executable"]][call["node"]] = self.node(call)
            return None
        if target == "captured":
            self.captured[call["capture"]].append(self.node(call))
        if op == "malloc":
            kind = "device" if self.managed and call["kind"] == "managed" else call["kind"]
            return (op, call["address"], call["bytes"], kind), None
        if op == "free":
            return (op, call["address"]), None
        if op == "launch":
            return self.launch(call), call.get("stream")
        if op == "memcpy":
            return (op, call["to"], call["from"], call["bytes"], call["rows"], call["async"]), call.get("stream")
        if op == "memset":
            return (op, call["address"], call["bytes"], call["rows"], call["async"]), call.get("stream")
        if op == "prefetch":
            return (op, call["address"], call["bytes"], call["to"]), call["stream"]
        if op == "advise":
            return (op, call["address"], call["bytes"], call["advice"], call["to"]), None
        if op == "sync":
            return (op, call["what"]), call["stream"] if call["what"] == "stream" else None
        if op == "graph_instantiate":
            self.executables[call["executable"]] = dict(self.graphs[call["graph"]])
            return (op, self.nodes(call["executable"])), None
        if op == "graph_launch":
            return (op, self.nodes(call["executable"])), call["stream"]
        if op == "capture":
            self.graphs[call["graph"]] = dict(enumerate(self.captured.pop(call["capture"], [])))
        elif op == "graph_clone":
            # The nodes of a clone have handles of their own, which nobody tells.
            self.graphs[call["clone"]] = {("clone", node): work for node, work in self.graphs[call["graph"]].items()}
        return None

    def nodes(self, executable):
        return tuple(sorted(map(repr, self.executables[executable].values())))


def is_of_variable(work, variables):
    """Whether a call is the helper's for a managed variable of a module, which has no call of its own in the log."""
    return work[0] in ("malloc", "free") and any(begin <= work[1] < end for begin, end in variables)


def without_variables(ours, theirs, variables):
    """The recorded calls without those for managed variables. Their addresses may be allocated again later: what was logged stays."""
    calls = []
    for work, stream in ours:
        logged = theirs[len(calls)][0] if len(calls) < len(theirs) else None
        if work == logged or not is_of_variable(work, variables):
            calls.append((work, stream))
    return calls


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log")
    parser.add_argument("recorded")
    parser.add_argument("--managed", action="store_true")
    options = parser.parse_args()

    logged = collections.defaultdict(list)
    variables = []
    for call in read(options.log):
        if call["op"] == "module_load":
            variables.append((call["managed"], call["managed"] + call["managed_bytes"]))
        elif call["op"] == "context_destroy":
            logged[call["thread"]] += [(("free", address), None) for address in call["freed"]]
        elif call["op"] in RECORDED:
            logged[call["thread"]].append(work_of_log(call, options.managed))
    recorded = collections.defaultdict(list)
    side = Recorded(options.managed)
    for call in read(options.recorded):
        work = side.work(call)
        calls = recorded[call["thread"]]
        if call["op"] == "not_freed":
            # A free is recorded before it is made; this one failed.
            calls.pop(max(at for at, made in enumerate(calls) if made == (("free", call["address"]), None)))
        elif work is not None:
            calls.append(work)

    failures = 0
    names = {}
    for thread in sorted(set(logged) | set(recorded)):
        theirs = logged[thread]
        ours = without_variables(recorded[thread], theirs, variables)
        if len(ours) != len(theirs):
            print(f"thread {thread}: {len(ours)} calls recorded, {len(theirs)} logged", file=sys.stderr)
            failures += 1
        for at, ((our_work, our_stream), (their_work, their_stream)) in enumerate(zip(ours, theirs)):
            is_per_thread = our_stream is not None and our_stream & 15 == 2
            name = (our_stream, thread) if is_per_thread else our_stream
            # Of captured work, the graph is known, and not the stream.
            is_captured = our_stream is None and their_stream is not None
            if our_work != their_work or (not is_captured and names.setdefault(their_stream, name) != name):
                print(f"thread {thread}, call {at}:\n  recorded {our_work} stream {our_stream}\n  logged   {their_work} stream {their_stream}", file=sys.stderr)
                failures += 1
                break
    streams = [name for name in names.values() if name is not None]
    if len(set(streams)) != len(streams):
        print(f"two streams of the log have one name: {names}", file=sys.stderr)
        failures += 1
    counts = collections.Counter(work[0] for calls in logged.values() for work, _ in calls)
    print(f"{sum(counts.values())} calls of {len(logged)} threads: {dict(sorted(counts.items()))}")
    if not counts or failures:
        sys.exit(f"{failures} differences")


if __name__ == "__main__":
    main()
