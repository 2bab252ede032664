#!/usr/bin/env python3
"""Multiplies matrices of halves on tensor cores with cuda-bindings, unmodified, checks the result, and prints a line of JSON.

    tensor.py [--size N]

NVRTC compiles the kernel for compute capability 8.0. A block of four warps has a tile of 32 by 16, which cp.async and ldmatrix load, and mma
multiplies. Each number is a small fraction, so that all sums are exact in whichever order.
"""
import argparse
import ctypes
import json
import sys
import time

import numpy
from cuda.bindings import driver, nvrtc

SOURCE = b"""
extern "C" __global__ void product(const unsigned short* a, const unsigned short* b, float* c, int n, int k) {
    __shared__ __align__(16) unsigned short left[32][24], right[16][24];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, down = warp / 2 * 16, across = warp % 2 * 8;
    float sum[4] = {};
    for (int from = 0; from < k; from += 16) {
        int row = threadIdx.x / 2, column = threadIdx.x % 2 * 8;
        if (row < 48) {
            const unsigned short* source = row < 32 ? a + (blockIdx.y * 32 + row) * k : b + (blockIdx.x * 16 + row - 32) * k;
            unsigned to = (unsigned)__cvta_generic_to_shared(row < 32 ? &left[row][column] : &right[row - 32][column]);
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(__cvta_generic_to_global(source + from + column)));
        }
        asm volatile("cp.async.commit_group; cp.async.wait_group 0;" ::: "memory");
        __syncthreads();
        unsigned x[4], y[2];
        unsigned rows = (unsigned)__cvta_generic_to_shared(&left[down + lane % 16][lane / 16 * 8]);
        unsigned columns = (unsigned)__cvta_generic_to_shared(&right[across + lane % 8][lane / 8 % 2 * 8]);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(rows));
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(y[0]), "=r"(y[1]) : "r"(columns));
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                     : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
        __syncthreads();
    }
    float* tile = c + (blockIdx.y * 32 + down + lane / 4) * n + blockIdx.x * 16 + across + lane % 4 * 2;
    tile[0] = sum[0], tile[1] = sum[1], tile[8 * n] = sum[2], tile[8 * n + 1] = sum[3];
}
"""
STREAM = 0


def checked(answer):
    """Values that a function returned after its status; exits on an error."""
    status, *values = answer
    if status != 0:
        sys.exit(f"error: {status!r}")
    return values[0] if len(values) == 1 else values


def ptx():
    program = checked(nvrtc.nvrtcCreateProgram(SOURCE, b"tensor.cu", 0, [], []))
    checked(nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_80"]))
    text = bytearray(checked(nvrtc.nvrtcGetPTXSize(program)))
    checked(nvrtc.nvrtcGetPTX(program, text))
    return bytes(text)


def managed(rows, columns, element):
    """A managed matrix, which lives as long as the process."""
    pointer = checked(driver.cuMemAllocManaged(rows * columns * element.itemsize, driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL))
    memory = (ctypes.c_byte * (rows * columns * element.itemsize)).from_address(int(pointer))
    return numpy.frombuffer(memory, element).reshape(rows, columns)


def product(size):
    """The number of wrong elements."""
    checked(driver.cuCtxSetCurrent(checked(driver.cuDevicePrimaryCtxRetain(checked(driver.cuDeviceGet(0))))))
    kernel = checked(driver.cuModuleGetFunction(checked(driver.cuModuleLoadData(ptx())), b"product"))
    a, b = managed(size, size, numpy.dtype("f2")), managed(size, size, numpy.dtype("f2"))
    c = managed(size, size, numpy.dtype("f4"))
    random = numpy.random.default_rng(1)
    a[:] = random.integers(-32, 33, a.shape) / 16
    b[:] = random.integers(-32, 33, b.shape) / 16
    arguments = (a.ctypes.data, b.ctypes.data, c.ctypes.data, size, size), (ctypes.c_void_p,) * 3 + (ctypes.c_int,) * 2
    checked(driver.cuLaunchKernel(kernel, size // 16, size // 32, 1, 128, 1, 1, 0, STREAM, arguments, 0))
    checked(driver.cuCtxSynchronize())
    return int(numpy.count_nonzero(c != a.astype("f8") @ b.astype("f8").T))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=128, help="rows and columns, a multiple of 32")
    options = parser.parse_args()
    checked(driver.cuInit(0))
    begin = time.monotonic()
    wrong = product(options.size)
    print(json.dumps({"kernel": "product", "size": options.size, "wrong": wrong, "seconds": round(time.monotonic() - begin, 3)}))
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
