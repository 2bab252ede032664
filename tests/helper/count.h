/* A kernel that counts, and what programs of the helper's tests launch it with. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef int CUresult;
typedef void *Handle;
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

/* Adds 32 to a word for each block of the grid. */
static inline void launch_grid(unsigned grid, uint64_t word, Handle stream) {
  void *arguments[] = {&word};
  CHECK(cuLaunchKernel(function, grid, 1, 1, 32, 1, 1, 0, stream, arguments, NULL));
}

/* Adds 64 to a word. */
static inline void launch(uint64_t word, Handle stream) { launch_grid(2, word, stream); }

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
