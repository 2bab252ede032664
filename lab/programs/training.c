/* The smallest training: each iteration changes all layers, one launch each, waits for the GPU, and pauses as one that
   waits for its data. Until SIGTERM; then it verifies its memory, and fails if that is wrong.

       training LAYERS PAUSE_MS [SYNCS]

   A line for each iteration. SYNCS are calls that wait for the GPU, at the end of an iteration: many records at once. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef int CUresult;
typedef void *Handle;
extern CUresult cuInit(unsigned), cuDevicePrimaryCtxRetain(Handle *, int), cuCtxSetCurrent(Handle), cuCtxSynchronize(void);
extern CUresult cuModuleLoadData(Handle *, const void *), cuModuleGetFunction(Handle *, Handle, const char *);
extern CUresult cuMemAllocManaged(uint64_t *, size_t, unsigned);
extern CUresult cuLaunchKernel(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void **, void **);

/* A layer is a block of the driver's, of which a kernel changes a word in each 64 KiB. */
enum { LAYERS_MAX = 64, LAYER_BYTES = 2 << 20, STRIDE_BYTES = 64 << 10, WORDS = LAYER_BYTES / STRIDE_BYTES };

static const char PTX[] =
    ".version 6.4\n.target sm_60\n.address_size 64\n"
    ".visible .entry step(.param .u64 layer) {\n"
    "  .reg .b64 %rd<3>; .reg .b32 %r<3>;\n"
    "  ld.param.u64 %rd1, [layer];\n  mov.u32 %r1, %tid.x;\n  mul.wide.u32 %rd2, %r1, 65536;\n  add.s64 %rd1, %rd1, %rd2;\n"
    "  ld.global.u32 %r2, [%rd1];\n  add.s32 %r2, %r2, 1;\n  st.global.u32 [%rd1], %r2;\n  ret;\n}\n";

static volatile sig_atomic_t is_over;

static void end(int signal) {
  (void)signal;
  is_over = 1;
}

static void check(CUresult result, const char *what) {
  if (result != 0) {
    printf("%s: %d\n", what, result);
    exit(1);
  }
}
#define CHECK(call) check(call, #call)

int main(int count, char **arguments) {
  int layers = count > 1 ? atoi(arguments[1]) : 0, pause_ms = count > 2 ? atoi(arguments[2]) : 0;
  int syncs = count > 3 ? atoi(arguments[3]) : 0;
  uint64_t memory[LAYERS_MAX];
  unsigned iterations = 0;
  Handle context, module, function;
  if (count < 3 || layers < 0 || layers > LAYERS_MAX) {
    fprintf(stderr, "usage: training LAYERS PAUSE_MS [SYNCS]\n");
    return 2;
  }
  setvbuf(stdout, NULL, _IOLBF, 0);
  signal(SIGTERM, end);
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuModuleLoadData(&module, PTX));
  CHECK(cuModuleGetFunction(&function, module, "step"));
  for (int layer = 0; layer < layers; layer++) CHECK(cuMemAllocManaged(&memory[layer], LAYER_BYTES, 1));
  while (!is_over) {
    for (int layer = 0; layer < layers; layer++) {
      void *parameters[] = {&memory[layer]};
      CHECK(cuLaunchKernel(function, 1, 1, 1, WORDS, 1, 1, 0, NULL, parameters, NULL));
    }
    CHECK(cuCtxSynchronize());
    for (int sync = 0; sync < syncs; sync++) CHECK(cuCtxSynchronize());
    printf("iteration %u\n", ++iterations);
    usleep(pause_ms * 1000);
  }
  for (int layer = 0; layer < layers; layer++)
    for (int at = 0; at < WORDS; at++) {
      unsigned word = *(volatile unsigned *)(uintptr_t)(memory[layer] + (uint64_t)at * STRIDE_BYTES);
      if (word != iterations) {
        printf("layer %d is wrong: %u after %u iterations\n", layer, word, iterations);
        return 1;
      }
    }
  printf("right after %u iterations\n", iterations);
  return 0;
}
