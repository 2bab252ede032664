/* A kernel that counts, and what programs of the helper's tests launch it with. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef int CUresult;
typedef void *Handle;
extern CUresult cuInit(unsigned), cuDeviceGet(int *, int), cuCtxCreate_v2(Handle *, unsigned, int);
extern CUresult cuMemAllocManaged(uint64_t *, size_t, unsigned), cuMemFree_v2(uint64_t);
extern CUresult cuMemsetD32_v2(uint64_t, unsigned, size_t), cuMemcpyDtoH_v2(void *, uint64_t, size_t), cuStreamSynchronize(Handle);
extern CUresult cuModuleLoadData(Handle *, const void *), cuModuleGetFunction(Handle *, Handle, const char *);
extern CUresult cuLaunchKernel(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void **, void **);

static const char PTX[] =
    ".version 6.4\n.target sm_70\n.address_size 64\n"
    ".visible .entry count(.param .u64 p) {\n"
    "  .reg .b64 %rd<2>; .reg .b32 %r<2>;\n"
    "  ld.param.u64 %rd1, [p];\n  atom.global.add.u32 %r1, [%rd1], 1;\n  ret;\n}\n";

static void check(CUresult result, const char *what) {
  if (result != 0) {
    printf("%s: %d\n", what, result);
    exit(1);
  }
}
#define CHECK(call) check(call, #call)

static Handle module, function;

/* Into the current context. */
static void load(void) {
  CHECK(cuModuleLoadData(&module, PTX));
  CHECK(cuModuleGetFunction(&function, module, "count"));
}

/* A context on the first device, with the kernel in it. */
static inline Handle begin_context(void) {
  int device;
  Handle context;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuCtxCreate_v2(&context, 0, device));
  load();
  return context;
}

/* Adds 32 to a word for each block of the grid. */
static inline void launch_grid(unsigned grid, uint64_t word, Handle stream) {
  void *arguments[] = {&word};
  CHECK(cuLaunchKernel(function, grid, 1, 1, 32, 1, 1, 0, stream, arguments, NULL));
}

/* Adds 64 to a word. */
static inline void launch(uint64_t word, Handle stream) { launch_grid(2, word, stream); }

/* Sum that the kernels of this many launches in a stream count, in managed memory of its own. */
static inline unsigned counted_in(Handle stream, int launches) {
  uint64_t word;
  unsigned value = 0;
  CHECK(cuMemAllocManaged(&word, 4096, 1));
  CHECK(cuMemsetD32_v2(word, 0, 1024));
  for (int at = 0; at < launches; at++) launch(word, stream);
  if (stream) CHECK(cuStreamSynchronize(stream));
  CHECK(cuMemcpyDtoH_v2(&value, word, 4));
  CHECK(cuMemFree_v2(word));
  return value;
}

/* What so many threads count, each by so many launches: `thread` takes their number, and returns the sum. */
static inline unsigned counted_by(int count, void *(*thread)(void *), int launches) {
  pthread_t threads[32];
  unsigned sum = 0;
  for (int at = 0; at < count; at++) CHECK(pthread_create(&threads[at], NULL, thread, (void *)(uintptr_t)launches));
  for (int at = 0; at < count; at++) {
    void *value;
    pthread_join(threads[at], &value);
    sum += (unsigned)(uintptr_t)value;
  }
  return sum;
}
