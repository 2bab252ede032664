/* A program without glibc, which looks functions up by name. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int cuOfProgram(void) { return 0; }

int main(void) {
  void *own = dlopen(NULL, RTLD_NOW);
  printf("%d %d %d\n", dlsym(RTLD_DEFAULT, "printf") != NULL, dlsym(own, "puts") != NULL, dlsym(own, "no_such_function") != NULL);
  return 6;
}
