/* What a launch costs on a GPU's own driver: the least mean of bursts of launches of an empty kernel with four pointers. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef int CUresult;
typedef void *Handle;

static const char PTX[] =
    ".version 6.4\n.target sm_70\n.address_size 64\n"
    ".visible .entry nothing(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d) {\n  ret;\n}\n";

enum { BURSTS = 200, LAUNCHES = 500 };

static double now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1e9 + time.tv_nsec;
}

static void check(CUresult result, const char *what) {
  if (result != 0) {
    printf("%s: %d\n", what, result);
    exit(1);
  }
}
#define CHECK(call) check(call, #call)

int main(int count, char **arguments) {
  int blocks = count > 1 ? atoi(arguments[1]) : 4, device;
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver || blocks < 4 || blocks > 4096) return 1;
#define FUNCTION(name, ...) CUresult (*name)(__VA_ARGS__) = (CUresult(*)(__VA_ARGS__))dlsym(driver, #name)
  FUNCTION(cuInit, unsigned);
  FUNCTION(cuDeviceGet, int *, int);
  FUNCTION(cuDevicePrimaryCtxRetain, Handle *, int);
  FUNCTION(cuCtxSetCurrent, Handle);
  FUNCTION(cuModuleLoadData, Handle *, const void *);
  FUNCTION(cuModuleGetFunction, Handle *, Handle, const char *);
  FUNCTION(cuMemAllocManaged, uint64_t *, size_t, unsigned);
  FUNCTION(cuCtxSynchronize, void);
  FUNCTION(cuLaunchKernel, Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void **, void **);
  Handle context, module, function;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuModuleLoadData(&module, PTX));
  CHECK(cuModuleGetFunction(&function, module, "nothing"));
  uint64_t *memory = calloc(blocks, sizeof *memory);
  for (int at = 0; at < blocks; at++) CHECK(cuMemAllocManaged(&memory[at], 4096, 1));
  double least = 1e18;
  for (int burst = 0; burst < BURSTS; burst++) {
    double begin = now_ns();
    for (int at = 0; at < LAUNCHES; at++) {
      uint64_t pointers[4];
      void *each[4];
      for (int of = 0; of < 4; of++) pointers[of] = memory[(at * 7 + of * 13) % blocks], each[of] = &pointers[of];
      CHECK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, each, NULL));
    }
    double mean = (now_ns() - begin) / LAUNCHES;
    if (mean < least) least = mean;
    CHECK(cuCtxSynchronize());
  }
  printf("%.1f\n", least);
  return 0;
}
