/* A program that opens a library with RTLD_DEEPBIND, as Python's of Taichi is opened, for tests of the helper. The library calls the driver.
 *
 *   deep LIBRARY HOW    HOW: now, lazy */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int count, char **arguments) {
  if (count < 3) return 2;
  int how = strcmp(arguments[2], "lazy") == 0 ? RTLD_LAZY : RTLD_NOW;
  printf("missing: %d\n", dlopen("/nonexistent.so", how | RTLD_DEEPBIND) == NULL && dlerror() != NULL);
  void *library = dlopen(arguments[1], how | RTLD_LOCAL | RTLD_DEEPBIND);
  if (!library) return printf("%s\n", dlerror()), 1;
  printf("error: %s\n", dlerror());
  int (*run)(void) = (int (*)(void))dlsym(library, "run");
  return run();
}
