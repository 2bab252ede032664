/* Another way to hook, for comparison: dlsym by name, and a lock around each call, as a tool has it that lets one process at a time use the GPU. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

typedef int CUresult;
typedef void *Handle;
typedef CUresult Launch(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void **, void **);

static Launch *real_launch;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int has_turn = 1;

static CUresult launch(Handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, Handle stream, void **each, void **extra) {
  pthread_mutex_lock(&lock);
  int may = has_turn;
  pthread_mutex_unlock(&lock);
  return may ? real_launch(function, gx, gy, gz, bx, by, bz, shared, stream, each, extra) : 999;
}

void *dlsym(void *handle, const char *name) {
  static void *(*real)(void *, const char *);
  if (!real) real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
  void *found = real(handle, name);
  if (found && strcmp(name, "cuLaunchKernel") == 0) {
    real_launch = (Launch *)found;
    return (void *)launch;
  }
  return found;
}
