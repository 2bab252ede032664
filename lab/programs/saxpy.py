#!/usr/bin/env python3
"""Runs a kernel on managed memory with cuda-bindings, unmodified, checks its result, and prints a line of JSON.

    saxpy.py [--elements N]

NVRTC compiles the kernel to PTX. The arrays are prefetched to the GPU before it and to the host after it.
"""
import argparse
import ctypes
import json
import sys
import time

import numpy
from cuda.bindings import driver, nvrtc

SOURCE = b"""
extern "C" __global__ void saxpy(float a, const float* x, float* y, size_t elements) {
    size_t at = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < elements) y[at] += a * x[at];
}
"""
BLOCK = 256
STREAM = 0


def checked(answer):
    """What a function returned behind its status, which is an error's or success."""
    status, *values = answer
    if status != 0:
        sys.exit(f"error: {status!r}")
    return values[0] if len(values) == 1 else values


def ptx(capability):
    """The kernel for this compute capability."""
    program = checked(nvrtc.nvrtcCreateProgram(SOURCE, b"saxpy.cu", 0, [], []))
    checked(nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_%d%d" % capability]))
    text = bytearray(checked(nvrtc.nvrtcGetPTXSize(program)))
    checked(nvrtc.nvrtcGetPTX(program, text))
    return bytes(text)


def managed(elements):
    """A managed array, which lives as long as the process."""
    pointer = checked(driver.cuMemAllocManaged(4 * elements, driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL))
    return numpy.ctypeslib.as_array((ctypes.c_float * elements).from_address(int(pointer)))


def prefetch(array, kind):
    location = driver.CUmemLocation()
    location.type, location.id = kind, 0
    checked(driver.cuMemPrefetchAsync(array.ctypes.data, array.nbytes, location, 0, STREAM))


def saxpy(elements):
    """The number of wrong elements."""
    device = checked(driver.cuDeviceGet(0))
    checked(driver.cuCtxSetCurrent(checked(driver.cuDevicePrimaryCtxRetain(device))))
    attributes = driver.CUdevice_attribute
    capability = tuple(checked(driver.cuDeviceGetAttribute(attribute, device)) for attribute in
                       (attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR))
    kernel = checked(driver.cuModuleGetFunction(checked(driver.cuModuleLoadData(ptx(capability))), b"saxpy"))

    x, y = managed(elements), managed(elements)
    x[:] = numpy.arange(elements) % 1000
    y[:] = 3
    kinds = driver.CUmemLocationType
    for array in (x, y):
        prefetch(array, kinds.CU_MEM_LOCATION_TYPE_DEVICE)
    arguments = (2.0, x.ctypes.data, y.ctypes.data, elements), (ctypes.c_float, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    checked(driver.cuLaunchKernel(kernel, -(-elements // BLOCK), 1, 1, BLOCK, 1, 1, 0, STREAM, arguments, 0))
    prefetch(y, kinds.CU_MEM_LOCATION_TYPE_HOST)
    checked(driver.cuCtxSynchronize())
    return int(numpy.count_nonzero(y != 2 * x + 3))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=int, default=1 << 20)
    options = parser.parse_args()
    checked(driver.cuInit(0))
    begin = time.monotonic()
    wrong = saxpy(options.elements)
    print(json.dumps({"kernel": "saxpy", "elements": options.elements, "wrong": wrong, "seconds": round(time.monotonic() - begin, 3)}))
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
