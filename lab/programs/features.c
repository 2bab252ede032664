/* What kernels of real programs need in addition to loads and stores, on managed memory: variables of a module, barriers of a grid, memory that
   kernels allocate, and tensor cores. Opens CUDA by its name for development, and compares each result with the CPU's.

       features KERNELS

   KERNELS is the folder with grids.ptx and matrices.ptx. A line for each feature. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef int CUresult;
typedef void *Handle;
typedef unsigned Extent;

/* Functions of the driver: type and name. */
#define FUNCTIONS(X)                                                                                                             \
  X(cuInit, (unsigned))                                                                                                          \
  X(cuDevicePrimaryCtxRetain, (Handle *, int))                                                                                   \
  X(cuCtxSetCurrent, (Handle))                                                                                                   \
  X(cuCtxSynchronize, (void))                                                                                                    \
  X(cuModuleLoadData, (Handle *, const void *))                                                                                  \
  X(cuModuleGetFunction, (Handle *, Handle, const char *))                                                                       \
  X(cuModuleGetGlobal_v2, (uint64_t *, size_t *, Handle, const char *))                                                          \
  X(cuMemAllocManaged, (uint64_t *, size_t, unsigned))                                                                           \
  X(cuLaunchKernel, (Handle, Extent, Extent, Extent, Extent, Extent, Extent, unsigned, Handle, void **, void **))                \
  X(cuLaunchCooperativeKernel, (Handle, Extent, Extent, Extent, Extent, Extent, Extent, unsigned, Handle, void **))
#define POINTER(name, arguments) static CUresult(*name) arguments;
FUNCTIONS(POINTER)

static const char VARIABLES[] =
    ".version 8.0\n.target sm_75\n.address_size 64\n"
    ".global .attribute(.managed) .align 4 .u32 counter = 40;\n"
    ".global .attribute(.managed) .align 4 .b8 table[65536];\n"
    ".visible .entry bump() {\n"
    "  .reg .b32 %r<3>; .reg .b64 %rd<3>;\n"
    "  mov.u32 %r0, %tid.x;\n  atom.global.add.u32 %r1, [counter], %r0;\n  mul.wide.u32 %rd0, %r0, 4;\n  mov.u64 %rd1, table;\n"
    "  add.s64 %rd1, %rd1, %rd0;\n  st.global.u32 [%rd1+32768], %r0;\n  ret;\n}\n";

static void expect(int is_right, const char *what) {
  printf("%s: %s\n", what, is_right ? "right" : "wrong");
  if (!is_right) exit(1);
}

static void check(CUresult result, const char *what) {
  if (result != 0) {
    printf("%s: %d\n", what, result);
    exit(1);
  }
}
#define CHECK(call) check(call, #call)

static void *managed(size_t bytes) {
  uint64_t address;
  CHECK(cuMemAllocManaged(&address, bytes, 1));
  return (void *)address;
}

static Handle function(Handle module, const char *name) {
  Handle found;
  CHECK(cuModuleGetFunction(&found, module, name));
  return found;
}

static Handle load(const char *folder, const char *name) {
  static char path[4096], text[1 << 20];
  Handle module;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "r");
  expect(file != NULL, path);
  text[fread(text, 1, sizeof text - 1, file)] = 0;
  fclose(file);
  CHECK(cuModuleLoadData(&module, text));
  return module;
}

static void variables(void) {
  Handle module;
  uint64_t counter, table;
  size_t bytes;
  CHECK(cuModuleLoadData(&module, VARIABLES));
  CHECK(cuModuleGetGlobal_v2(&counter, &bytes, module, "counter"));
  CHECK(cuModuleGetGlobal_v2(&table, &bytes, module, "table"));
  volatile unsigned *count = (volatile unsigned *)counter, *numbers = (volatile unsigned *)table;
  int is_right = *count == 40 && numbers[0] == 0 && bytes == 65536;
  *count = 2;
  for (unsigned round = 1; round <= 3; round++) {
    CHECK(cuLaunchKernel(function(module, "bump"), 1, 1, 1, 100, 1, 1, 0, NULL, NULL, NULL));
    CHECK(cuCtxSynchronize());
    is_right &= *count == 2 + round * 4950 && numbers[8192 + 99] == 99;
    numbers[8192 + 99] = 0;
  }
  expect(is_right, "managed variables");
}

enum { BLOCKS = 16, THREADS = 64, VALUES = BLOCKS * THREADS };

static void barriers(Handle module) {
  unsigned *values = managed(VALUES * sizeof *values), before[VALUES], after[VALUES], rounds = 3;
  for (unsigned at = 0; at < VALUES; at++) values[at] = before[at] = at * at;
  void *arguments[] = {&values, &rounds};
  CHECK(cuLaunchCooperativeKernel(function(module, "rounds"), BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, arguments));
  CHECK(cuCtxSynchronize());
  int is_right = 1;
  for (unsigned round = 0; round < rounds; round++) {
    for (unsigned at = 0; at < VALUES; at++) after[at] = before[(at + 37) % VALUES] + round;
    for (unsigned at = 0; at < VALUES; at++) before[at] = after[at];
  }
  for (unsigned at = 0; at < VALUES; at++) is_right &= values[at] == after[at];
  expect(is_right, "barriers of a grid");
}

static void lists(Handle module) {
  uint64_t *heads = managed(THREADS * sizeof *heads);
  unsigned *sums = managed(THREADS * sizeof *sums), sum = 0;
  void *arguments[] = {&heads, &sums};
  int is_right = 1;
  CHECK(cuLaunchKernel(function(module, "lists"), 1, 1, 1, THREADS, 1, 1, 0, NULL, arguments, NULL));
  CHECK(cuCtxSynchronize());
  for (unsigned thread = 0; thread < THREADS; sum += thread * thread, thread++) is_right &= sums[thread] == sum;
  CHECK(cuLaunchKernel(function(module, "free_lists"), 1, 1, 1, THREADS, 1, 1, 0, NULL, arguments, NULL));
  CHECK(cuCtxSynchronize());
  for (unsigned thread = 0; thread < THREADS; thread++) is_right &= sums[thread] == thread;
  expect(is_right, "memory that kernels allocate");
}

enum { ROWS = 32, COLUMNS = 16, DEPTH = 32 };

static void products(Handle module) {
  static const uint16_t HALVES[] = {0x0000, 0x3c00, 0x4000, 0xbc00};
  static const int NUMBERS[] = {0, 1, 2, -1};
  uint16_t *a = managed(ROWS * DEPTH * sizeof *a), *b = managed(COLUMNS * DEPTH * sizeof *b);
  float *c = managed(ROWS * COLUMNS * sizeof *c);
  int columns = COLUMNS, depth = DEPTH, is_right = 1;
  for (int at = 0; at < ROWS * DEPTH; at++) a[at] = HALVES[at * 7 / 3 % 4];
  for (int at = 0; at < COLUMNS * DEPTH; at++) b[at] = HALVES[at * 5 / 2 % 4];
  void *arguments[] = {&a, &b, &c, &columns, &depth};
  CHECK(cuLaunchKernel(function(module, "matmul_mma"), 1, 1, 1, 128, 1, 1, 0, NULL, arguments, NULL));
  CHECK(cuCtxSynchronize());
  for (int row = 0; row < ROWS; row++)
    for (int column = 0; column < COLUMNS; column++) {
      int sum = 0;
      for (int at = 0; at < DEPTH; at++) sum += NUMBERS[(row * DEPTH + at) * 7 / 3 % 4] * NUMBERS[(column * DEPTH + at) * 5 / 2 % 4];
      is_right &= c[row * COLUMNS + column] == (float)sum;
    }
  expect(is_right, "tensor cores");
}

int main(int count, char **arguments) {
  Handle context, driver = dlopen("libcuda.so", RTLD_NOW);
  if (count != 2 || !driver) {
    fprintf(stderr, "%s\n", driver ? "usage: features KERNELS" : dlerror());
    return 2;
  }
#define LOOK_UP(name, arguments) *(void **)&name = dlsym(driver, #name);
  FUNCTIONS(LOOK_UP)
  setvbuf(stdout, NULL, _IOLBF, 0);
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  variables();
  Handle grids = load(arguments[1], "grids.ptx");
  barriers(grids);
  lists(grids);
  products(load(arguments[1], "matrices.ptx"));
  return 0;
}
