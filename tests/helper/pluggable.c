// Allocates as PyTorch does by a CUDAPluggableAllocator of the helper, and lets both processors write the memory; then in a thread that has
// no context, as those of its autograd. With "first" behind the file, nobody else has made a context. Exits with 0 if it is right.
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define BYTES (3 << 20)
#define BLOCKS 4

int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuCtxGetCurrent(void **);
int cuCtxSynchronize(void);
int cuMemsetD32_v2(uint64_t, unsigned, size_t);
int cuPointerGetAttribute(void *, int, uint64_t);

static void *(*allocate)(ssize_t, int, void *);
static void (*release)(void *, ssize_t, int, void *);

// Returns NULL if it is right.
static void *without_context(void *failed) {
  void *context = failed;
  uint32_t *block = allocate(BYTES, 0, NULL);
  if (!block || cuCtxGetCurrent(&context) || context) return failed;
  block[0] = 1;
  release(block, BYTES, 0, NULL);
  // There is no such device.
  return allocate(BYTES, 99, NULL) ? failed : NULL;
}

static int is_right(void) {
  pthread_t thread;
  void *failed;
  volatile uint32_t *blocks[BLOCKS];
  for (int at = 0; at < BLOCKS; at++) {
    unsigned is_managed = 0;
    blocks[at] = allocate(BYTES, 0, NULL);
    if (!blocks[at] || cuPointerGetAttribute(&is_managed, 8, (uint64_t)blocks[at]) || !is_managed) return 0;
    blocks[at][0] = 1;
    if (cuMemsetD32_v2((uint64_t)(blocks[at] + 1), at, BYTES / 4 - 1)) return 0;
  }
  if (cuCtxSynchronize()) return 0;
  for (int at = 0; at < BLOCKS; at++) {
    for (int word = 1; word < BYTES / 4; word++)
      if (blocks[at][0] != 1 || blocks[at][word] != (uint32_t)at) return 0;
    release((void *)blocks[at], BYTES, 0, NULL);
  }
  // Refused, as the driver refuses them.
  if (allocate(0, 0, NULL) || allocate(-1, 0, NULL)) return 0;
  return !pthread_create(&thread, NULL, without_context, &failed) && !pthread_join(thread, &failed) && !failed;
}

// The context stays, in which this is the first to allocate.
static int is_first_right(void) {
  void *context;
  uint32_t *block = allocate(BYTES, 0, NULL);
  if (!block || cuCtxGetCurrent(&context) || context) return 0;
  block[0] = 7;
  if (cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuMemsetD32_v2((uint64_t)(block + 1), 8, 1) || cuCtxSynchronize()) return 0;
  if (block[0] != 7 || block[1] != 8) return 0;
  release(block, BYTES, 0, NULL);
  return 1;
}

int main(int count, char **arguments) {
  void *context;
  void *helper = count >= 2 ? dlopen(arguments[1], RTLD_NOW) : NULL;
  if (!helper || cuInit(0)) return 2;
  *(void **)&allocate = dlsym(helper, "uvmd_malloc");
  *(void **)&release = dlsym(helper, "uvmd_free");
  if (!allocate || !release) return 1;
  if (count == 3) return !is_first_right();
  return cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || !is_right();
}
