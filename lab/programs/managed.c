/* Managed memory for a program that has no option for it: what it allocates in stream order is managed, and is freed
   once the GPU is done. Preloaded before the helper, which sees the calls that are made in the end. For programs that
   find the driver's functions by dlsym with its handle, as Burn does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* CU_MEM_ATTACH_GLOBAL: all streams access it. */
#define GLOBAL 1

static int (*allocate)(uint64_t *, size_t, unsigned);
static int (*release)(uint64_t);

/* A pool also gives no bytes, managed memory does not. */
static int managed_alloc_async(uint64_t *address, size_t bytes, void *stream) {
  (void)stream;
  return allocate(address, bytes > 0 ? bytes : 1, GLOBAL);
}

/* The driver waits for the GPU. */
static int managed_free_async(uint64_t address, void *stream) {
  (void)stream;
  return release(address);
}

void *dlsym(void *handle, const char *name) {
  static void *(*behind)(void *, const char *);
  if (!behind) behind = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
  if (!strcmp(name, "cuMemAllocAsync")) {
    *(void **)&allocate = behind(handle, "cuMemAllocManaged");
    return allocate ? (void *)managed_alloc_async : NULL;
  }
  if (!strcmp(name, "cuMemFreeAsync")) {
    *(void **)&release = behind(handle, "cuMemFree_v2");
    return release ? (void *)managed_free_async : NULL;
  }
  return behind(handle, name);
}
