/* A program that opens a library with RTLD_DEEPBIND, as Python opens that of Taichi, for tests of the helper. The library calls the driver.
 *
 *   deep LIBRARY HOW [FIRST]
 *
 * HOW: now, lazy; origin, by a path that the loader expands; filtered, under a filter that kills a process which makes memory writable.
 * FIRST is opened before, for all. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "filter.h"

/* A filter that kills the process if it makes memory writable. */
static int filter(void) {
  struct sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_WRITE, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  return install_steps(steps, sizeof(steps) / sizeof(steps[0]), 0);
}

int main(int count, char **arguments) {
  if (count < 3) return 2;
  int how = strcmp(arguments[2], "lazy") == 0 ? RTLD_LAZY : RTLD_NOW;
  char path[4096];
  snprintf(path, sizeof(path), "%s", arguments[1]);
  if (strcmp(arguments[2], "origin") == 0) snprintf(path, sizeof(path), "$ORIGIN/%s", basename(arguments[1]));
  if (count > 3 && !dlopen(arguments[3], RTLD_NOW | RTLD_GLOBAL)) return printf("%s\n", dlerror()), 1;
  printf("missing: %d\n", dlopen("/nonexistent.so", how | RTLD_DEEPBIND) == NULL && dlerror() != NULL);
  if (strcmp(arguments[2], "filtered") == 0 && filter()) return 3;
  void *library = dlopen(path, how | RTLD_LOCAL | RTLD_DEEPBIND);
  if (!library) return printf("%s\n", dlerror()), 1;
  printf("error: %s\n", dlerror());
  if (strcmp(arguments[2], "filtered") == 0) return 5;
  int (*run)(void) = (int (*)(void))dlsym(library, "run");
  return run();
}
