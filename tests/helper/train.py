"""A small training with PyTorch, deterministic: prints a hash of its losses, and to standard error the median of an iteration.

    train.py eager|graph|compile [--allocator FILE] [--held]

--allocator has all memory allocated by uvmd_malloc and uvmd_free of this file, the helper. --held waits for a line on standard input, with the
GPU's driver open and before the first allocation: who counts from outside can attach meanwhile.
"""
import argparse
import ctypes
import hashlib
import statistics
import sys
import time

import torch

ITERATIONS = 40


def is_managed(tensor):
    """Whether the driver says that a tensor's memory is managed (CU_POINTER_ATTRIBUTE_IS_MANAGED)."""
    answer = ctypes.c_uint(0)
    address = ctypes.c_uint64(tensor.data_ptr())
    return ctypes.CDLL("libcuda.so.1").cuPointerGetAttribute(ctypes.byref(answer), 8, address) == 0 and answer.value == 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=["eager", "graph", "compile"])
    parser.add_argument("--allocator")
    parser.add_argument("--held", action="store_true")
    options = parser.parse_args()
    mode = options.mode
    if options.allocator:
        allocator = torch.cuda.memory.CUDAPluggableAllocator(options.allocator, "uvmd_malloc", "uvmd_free")
        torch.cuda.memory.change_current_allocator(allocator)
    if options.held:
        # Creates the context, and with it the driver's VA space.
        torch.cuda.synchronize()
        sys.stdin.readline()
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    layers = [torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten()]
    layers += [torch.nn.Linear(32 * 32 * 32, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)]
    model = torch.nn.Sequential(*layers).cuda()
    if is_managed(next(model.parameters())) != bool(options.allocator):
        sys.exit("memory is managed without the allocator, or not by it")
    optimizer = torch.optim.Adam(model.parameters(), capturable=mode == "graph")
    images, labels = torch.randn(64, 3, 32, 32).cuda(), torch.randint(0, 10, (64,)).cuda()
    forward = torch.compile(model) if mode == "compile" else model

    def step():
        optimizer.zero_grad(set_to_none=False)
        loss = torch.nn.functional.cross_entropy(forward(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    iterate = step
    if mode == "graph":
        # Warm-up on another stream, as PyTorch's documentation asks of a capture.
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = step()

        def iterate():
            graph.replay()
            return captured

    losses, times_ms = [], []
    for _ in range(ITERATIONS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        losses.append(iterate().item())
        times_ms.append((time.perf_counter() - begin) * 1e3)
    print(mode, hashlib.sha256(repr(losses).encode()).hexdigest()[:16], losses[0], losses[-1])
    print(f"{statistics.median(times_ms):.2f} ms", file=sys.stderr)


if __name__ == "__main__":
    main()
