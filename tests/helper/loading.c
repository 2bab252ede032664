/* A program that loads and unloads a library which calls the driver meanwhile, for tests of the helper.
 *
 *   loading [LIBRARY] */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments) {
  for (int turn = 0; count > 1 && turn < 3; turn++) {
    void *library = dlopen(arguments[1], RTLD_LAZY);
    if (!library) return printf("%s\n", dlerror()), 1;
    void (*begin)(void) = (void (*)(void))dlsym(library, "begin");
    begin();
    printf("closed: %d\n", dlclose(library));
  }
  return 5;
}
