/* Another library that programs may have preloaded: it stands between them and dlsym, as tools do that hook by name. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* A name like those of the driver, in a library that is none. */
int cuOfAnother(void) { return 0; }

static unsigned calls;

__attribute__((destructor)) static void report(void) {
  if (getenv("OTHER_PRELOAD_REPORTS")) fprintf(stderr, "the other library saw dlsym: %s\n", calls > 0 ? "yes" : "no");
}

void *dlsym(void *handle, const char *name) {
  static void *(*real)(void *, const char *);
  if (!real) real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
  calls++;
  return real(handle, name);
}
