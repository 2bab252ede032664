/* A library whose constructor and destructor wait for a thread that calls the driver: the loader holds its lock meanwhile, unless the
 * program is linked to the library. With DIRECT in its environment, the constructor calls the driver itself. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "ring.h"

typedef int CUresult;
extern CUresult cuInit(unsigned), cuMemFree_v2(uint64_t), cuMemAllocManaged(uint64_t *, size_t, unsigned);

static pthread_t worker;
static volatile int has_begun, is_over;

static void *initializes(void *nothing) {
  printf("cuInit: %d\n", cuInit(0));
  if (getenv("RECORDED")) printf("recorded: %d\n", ring() != NULL);
  return nothing;
}

/* Makes its first call to free memory at its end. */
static void *works(void *nothing) {
  while (!is_over) {
  }
  uint64_t word = 0;
  CUresult allocated = cuMemAllocManaged(&word, 4096, 1);
  printf("cuMemAllocManaged: %d, cuMemFree: %d\n", allocated, cuMemFree_v2(word));
  return nothing;
}

__attribute__((constructor)) static void loads(void) {
  if (getenv("DIRECT")) {
    initializes(NULL);
  } else {
    pthread_create(&worker, NULL, initializes, NULL);
    pthread_join(worker, NULL);
  }
  printf("loaded\n");
}

void begin(void) {
  has_begun = 1;
  pthread_create(&worker, NULL, works, NULL);
}

__attribute__((destructor)) static void unloads(void) {
  is_over = 1;
  if (has_begun) pthread_join(worker, NULL);
  printf("unloaded\n");
  fflush(stdout);
}
