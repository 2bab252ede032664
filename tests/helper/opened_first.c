/* A program that opens the helper for its allocator, and the driver after it, as those of PyTorch may, for tests of the helper: it counts
 * the helper's searches of the loaded libraries.
 *
 *   opened_first HELPER DRIVER */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <sys/types.h>

#include "ring.h"

typedef int Callback(struct dl_phdr_info *, size_t, void *);

static int searches;

int dl_iterate_phdr(Callback *callback, void *data) {
  static int (*real)(Callback *, void *);
  if (!real) real = (int (*)(Callback *, void *))dlsym(RTLD_NEXT, "dl_iterate_phdr");
  searches++;
  return real(callback, data);
}

int main(int count, char **arguments) {
  void *helper = count == 3 ? dlopen(arguments[1], RTLD_NOW) : NULL;
  if (!helper || !dlopen(arguments[2], RTLD_NOW)) return printf("%s\n", dlerror()), 1;
  void *(*allocate)(ssize_t, int, void *) = (void *(*)(ssize_t, int, void *))dlsym(helper, "uvmd_malloc");
  void (*release)(void *, ssize_t, int, void *) = (void (*)(void *, ssize_t, int, void *))dlsym(helper, "uvmd_free");
  for (int time = 0; time < 3; time++) {
    int before = searches;
    void *memory = allocate(4096, 0, NULL);
    release(memory, 4096, 0, NULL);
    printf("allocated: %d, searches: %s\n", memory != NULL, searches > before ? "some" : "none");
  }
  printf("recorded: %d\n", ring() != NULL);
  return 5;
}
