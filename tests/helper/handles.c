/* A CUDA program that finds the driver in unusual ways, for tests of the helper. Its argument says how. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
typedef void *Handle;

static void check(CUresult result, const char *what) {
  if (result != 0) {
    printf("%s: %d\n", what, result);
    exit(1);
  }
}
#define CHECK(call) check(call, #call)
#define FUNCTION(name, ...) CUresult (*name)(__VA_ARGS__) = (CUresult(*)(__VA_ARGS__))dlsym(driver, #name)

int main(int count, char **arguments) {
  const char *how = count > 1 ? arguments[1] : "";
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (!driver) return 2;
  if (strcmp(how, "process") == 0) driver = dlopen(NULL, RTLD_NOW);
  if (strcmp(how, "reopened") == 0) {
    int version;
    FUNCTION(cuDriverGetVersion, int *);
    CHECK(cuDriverGetVersion(&version));
    dlclose(driver);
    driver = dlopen("libcuda.so.1", RTLD_NOW);
  }
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
