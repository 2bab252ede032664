/* CPU code of which the faults on managed memory are known. In each round the GPU changes a word in each block of the
   driver's, and two functions read these words on the CPU: often() of 8 blocks, and seldom() of 2 others. Each read is
   one fault: the block came back to the GPU, and the CPU accesses nothing else in it.

       sites ROUNDS PAUSE_MS

   A line with the counts, then it waits for the end of its input. The pauses are before the CPU's turn and the GPU's:
   the driver throttles what goes back and forth faster. */
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

enum { BLOCK_BYTES = 2 << 20, OFTEN = 8, SELDOM = 2, BLOCKS = OFTEN + SELDOM };

static const char PTX[] =
    ".version 6.4\n.target sm_60\n.address_size 64\n"
    ".visible .entry step(.param .u64 memory) {\n"
    "  .reg .b64 %rd<3>; .reg .b32 %r<3>;\n"
    "  ld.param.u64 %rd1, [memory];\n  mov.u32 %r1, %tid.x;\n  mul.wide.u32 %rd2, %r1, 2097152;\n  add.s64 %rd1, %rd1, %rd2;\n"
    "  ld.global.u32 %r2, [%rd1];\n  add.s32 %r2, %r2, 1;\n  st.global.u32 [%rd1], %r2;\n  ret;\n}\n";

static void check(CUresult result, const char *what) {
  if (result != 0) {
    printf("%s: %d\n", what, result);
    exit(1);
  }
}
#define CHECK(call) check(call, #call)

static unsigned word(uint64_t memory, int block) {
  return *(volatile unsigned *)(uintptr_t)(memory + (uint64_t)block * BLOCK_BYTES);
}

/* Not specialised for its caller: each has one instruction that reads. */
#define FUNCTION __attribute__((noipa)) static unsigned

FUNCTION often(uint64_t memory, int first, int end) {
  unsigned sum = 0;
  for (int block = first; block < end; block++) sum += word(memory, block);
  return sum;
}

FUNCTION seldom(uint64_t memory, int first, int end) {
  unsigned sum = 0;
  for (int block = end - 1; block >= first; block--) sum += word(memory, block);
  return sum;
}

int main(int count, char **arguments) {
  int rounds = count > 1 ? atoi(arguments[1]) : 0, pause_ms = count > 2 ? atoi(arguments[2]) : 0;
  uint64_t memory;
  Handle context, module, function;
  if (count != 3 || rounds <= 0) {
    fprintf(stderr, "usage: sites ROUNDS PAUSE_MS\n");
    return 2;
  }
  setvbuf(stdout, NULL, _IOLBF, 0);
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuModuleLoadData(&module, PTX));
  CHECK(cuModuleGetFunction(&function, module, "step"));
  CHECK(cuMemAllocManaged(&memory, (size_t)BLOCKS * BLOCK_BYTES, 1));
  for (int round = 1; round <= rounds; round++) {
    void *parameters[] = {&memory};
    CHECK(cuLaunchKernel(function, 1, 1, 1, BLOCKS, 1, 1, 0, NULL, parameters, NULL));
    CHECK(cuCtxSynchronize());
    usleep(pause_ms * 1000);
    unsigned sum = often(memory, 0, OFTEN) + seldom(memory, OFTEN, BLOCKS);
    if (sum != (unsigned)(BLOCKS * round)) {
      printf("the sum of round %d is wrong: %u\n", round, sum);
      return 1;
    }
    usleep(pause_ms * 1000);
  }
  printf("often %d seldom %d\n", rounds * OFTEN, rounds * SELDOM);
  while (getchar() != EOF) continue;
  return 0;
}
