/* A library as those that limit a container's GPU memory: it exports functions of the driver, and a dlsym that returns these, whatever library is
 * asked. It finds the driver's own functions at the first look-up of one, once for all, by the dlsym after it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
typedef void *Handle;
typedef void *(*Dlsym)(void *, const char *);

#define CALLS(EACH) \
  EACH(cuInit, (unsigned flags), (flags)) \
  EACH(cuMemAllocManaged, (uint64_t *address, size_t bytes, unsigned flags), (address, bytes, flags)) \
  EACH(cuMemFree_v2, (uint64_t address), (address)) \
  EACH(cuMemsetD8_v2, (uint64_t address, unsigned char value, size_t bytes), (address, value, bytes)) \
  EACH(cuCtxDestroy_v2, (Handle context), (context)) \
  EACH(cuLaunchKernel, (Handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, Handle stream, void **each, void **extra), \
       (function, gx, gy, gz, bx, by, bz, shared, stream, each, extra)) \
  EACH(cuGetProcAddress_v2, (const char *name, void **found, int version, uint64_t flags, unsigned *status), (name, found, version, flags, status))

static Dlsym real_dlsym;
static void *own;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int calls;

__attribute__((destructor)) static void report(void) {
  if (getenv("LIMITER_REPORTS")) fprintf(stderr, "calls pass the limiter: %s\n", calls > 0 ? "yes" : "no");
}

#define POINTER(name, parameters, arguments) static CUresult(*real_##name) parameters;
CALLS(POINTER)

static void find_driver(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NODELETE);
#define FIND(name, parameters, arguments) real_##name = (CUresult(*) parameters)real_dlsym(driver, #name);
  CALLS(FIND)
  if (driver) dlclose(driver);
}

static void find_dlsym(void) {
  Dl_info info;
  if (real_dlsym) return;
  real_dlsym = (Dlsym)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
  if (dladdr(&once, &info)) own = dlopen(info.dli_fname, RTLD_LAZY);
}

#define WRAPPER(name, parameters, arguments) \
  CUresult name parameters { \
    find_dlsym(); \
    pthread_once(&once, find_driver); \
    calls++; \
    return real_##name ? real_##name arguments : 3; \
  }
CALLS(WRAPPER)

/* The same pointer is not given out twice to a thread by RTLD_NEXT: that counts as a recursion. */
static void *guarded(void *found) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static struct { pthread_t thread; void *found; } last[100];
  static int count;
  pthread_mutex_lock(&lock);
  for (int at = 0; at < (count < 100 ? count : 100); at++)
    if (last[at].found == found && pthread_equal(last[at].thread, pthread_self())) {
      pthread_mutex_unlock(&lock);
      return NULL;
    }
  last[count % 100].thread = pthread_self();
  last[count++ % 100].found = found;
  pthread_mutex_unlock(&lock);
  return found;
}

void *dlsym(void *handle, const char *name) {
  find_dlsym();
  if (handle == RTLD_NEXT) return guarded(real_dlsym(RTLD_NEXT, name));
  if (name[0] == 'c' && name[1] == 'u') {
    if (strcmp(name, "cuGetExportTable")) pthread_once(&once, find_driver);
    void *found = real_dlsym(own, name);
    if (found) return found;
  }
  return real_dlsym(handle, name);
}
