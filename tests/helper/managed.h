/* Calls of the driver: a context, and managed memory that is set and freed. FUNCTION(name, ...) declares a function of the driver, or finds it. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef int CUresult;
typedef void *Handle;

#ifdef FINDS
#include <dlfcn.h>
#define FUNCTION(name, ...) CUresult (*name)(__VA_ARGS__) = (CUresult(*)(__VA_ARGS__))dlsym(driver, #name)
#else
#define FUNCTION(name, ...) extern CUresult name(__VA_ARGS__)
#endif
#define CHECK(call) \
  if ((call) != 0) return printf("%s failed\n", #call), 1

/* DRIVER: handle to find functions by; ignored where they are declared. */
static int use_managed_memory(void *driver) {
  (void)driver;
  FUNCTION(cuInit, unsigned);
  FUNCTION(cuDeviceGet, int *, int);
  FUNCTION(cuCtxCreate_v2, Handle *, unsigned, int);
  FUNCTION(cuCtxDestroy_v2, Handle);
  FUNCTION(cuMemAllocManaged, uint64_t *, size_t, unsigned);
  FUNCTION(cuMemsetD8_v2, uint64_t, unsigned char, size_t);
  FUNCTION(cuMemFree_v2, uint64_t);
  int device;
  Handle context;
  uint64_t memory;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuCtxCreate_v2(&context, 0, device));
  CHECK(cuMemAllocManaged(&memory, 4096, 1));
  CHECK(cuMemsetD8_v2(memory, 1, 4096));
  CHECK(cuMemFree_v2(memory));
  CHECK(cuCtxDestroy_v2(context));
  printf("done\n");
  return 0;
}
