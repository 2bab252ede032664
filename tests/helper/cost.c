/* Nanoseconds of a launch with four pointers among BLOCKS live allocations, or of an allocation and its free beside them: the least of many bursts,
   between which a reader of calls has time. The first half of them is not counted: a plan is adopted meanwhile. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int CUresult;
typedef void *Handle;
enum { BURSTS = 50 };

static double now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1e9 + time.tv_nsec;
}

int main(int count, char **arguments) {
  if (count != 3) return 2;
  int blocks = atoi(arguments[1]), frees = !strcmp(arguments[2], "free");
  /* As many records each: what a lane has room for. */
  int calls = frees ? 500 : 1000;
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) return 1;
  CUresult (*allocate)(uint64_t *, size_t, unsigned) = (CUresult(*)(uint64_t *, size_t, unsigned))dlsym(driver, "cuMemAllocManaged");
  CUresult (*launch)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void **, void **) =
      (CUresult(*)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void **, void **))dlsym(driver, "cuLaunchKernel");
  CUresult (*release)(uint64_t) = (CUresult(*)(uint64_t))dlsym(driver, "cuMemFree_v2");
  uint64_t *addresses = calloc(blocks, sizeof *addresses);
  for (int at = 0; at < blocks; at++) allocate(&addresses[at], 1 << 21, 1);
  double least = 1e12;
  for (int burst = 0; burst < BURSTS; burst++) {
    struct timespec rest = {0, burst < BURSTS / 2 ? 60000000 : 30000000};
    nanosleep(&rest, NULL);
    double begin = now_ns();
    for (int at = 0; frees && at < calls; at++) {
      uint64_t address;
      allocate(&address, 1 << 21, 1);
      release(address);
    }
    for (int at = 0; !frees && at < calls; at++) {
      void *each[4];
      for (int argument = 0; argument < 4; argument++) each[argument] = &addresses[(at * 4 + argument) % blocks];
      launch((Handle)0x5000, 100, 1, 1, 256, 1, 1, 0, (Handle)0x6000, each, NULL);
    }
    double each_ns = (now_ns() - begin) / calls;
    if (burst >= BURSTS / 2 && each_ns < least) least = each_ns;
  }
  printf("%.1f\n", least);
  return 0;
}
