/* A library that stands for the driver as stubs do which open it lazily: a program that is linked to this one needs no driver to start. */
#include <dlfcn.h>
#include <stddef.h>

typedef int CUresult;
typedef void *Handle;

static void *of_driver(const char *name) {
  static void *driver;
  if (!driver) driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return driver ? dlsym(driver, name) : NULL;
}

#define STUB(name, parameters, arguments)                                 \
  CUresult name parameters {                                              \
    CUresult(*function) parameters = (CUresult(*) parameters)of_driver(#name); \
    return function ? function arguments : 100;                           \
  }

STUB(cuInit, (unsigned flags), (flags))
STUB(cuDeviceGet, (int *device, int at), (device, at))
STUB(cuDevicePrimaryCtxRetain, (Handle * context, int device), (context, device))
STUB(cuDevicePrimaryCtxRelease_v2, (int device), (device))
STUB(cuCtxSetCurrent, (Handle context), (context))
STUB(cuMemAllocManaged, (Handle * address, size_t bytes, unsigned flags), (address, bytes, flags))
STUB(cuMemsetD8_v2, (Handle address, unsigned char value, size_t bytes), (address, value, bytes))
STUB(cuMemFree_v2, (Handle address), (address))
