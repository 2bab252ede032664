/* What deep opens: a library that is linked to the driver, or finds it by itself (FINDS). It has a table of functions that it makes read-only. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/mman.h>

#include "managed.h"

static void *table[512] __attribute__((aligned(4096))) = {(void *)dlsym, (void *)dlopen};

__attribute__((constructor)) static void seal(void) { mprotect(table, sizeof(table), PROT_READ); }

int run(void) {
#ifdef FINDS
  return use_managed_memory(dlopen("libcuda.so.1", RTLD_LAZY));
#else
  return use_managed_memory(NULL);
#endif
}
