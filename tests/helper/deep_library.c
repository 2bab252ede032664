/* What deep opens: a library that is linked to the driver, or finds it by itself (FINDS). It has a table of functions that it makes read-only. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

typedef int CUresult;
typedef void *Handle;

#ifdef FINDS
#define FUNCTION(name, ...) CUresult (*name)(__VA_ARGS__) = (CUresult(*)(__VA_ARGS__))dlsym(driver, #name)
#else
#define FUNCTION(name, ...) extern CUresult name(__VA_ARGS__)
#endif
#define CHECK(call) \
  if ((call) != 0) return printf("%s failed\n", #call), 1

static void *table[512] __attribute__((aligned(4096))) = {(void *)dlsym, (void *)dlopen};

__attribute__((constructor)) static void seal(void) { mprotect(table, sizeof(table), PROT_READ); }

int run(void) {
#ifdef FINDS
  void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
#endif
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
  for (int turn = 0; turn < 3; turn++) {
    CHECK(cuMemAllocManaged(&memory, 4096, 1));
    CHECK(cuMemsetD8_v2(memory, 1, 4096));
    CHECK(cuMemFree_v2(memory));
  }
  CHECK(cuCtxDestroy_v2(context));
  printf("done\n");
  return 5;
}
