/* A program that opens, closes and opens again a library which is linked to the driver, for tests of the helper.
 *
 *   reopened LIBRARY [initializes]     LIBRARY has that function, or else a constructor */
#include <dlfcn.h>
#include <stdio.h>
#include <sys/mman.h>

int main(int count, char **arguments) {
  if (count < 2) return 2;
  for (int turn = 0; turn < 3; turn++) {
    void *library = dlopen(arguments[1], RTLD_NOW);
    if (!library) return printf("%s\n", dlerror()), 1;
    int (*initializes)(void) = count > 2 ? (int (*)(void))dlsym(library, arguments[2]) : NULL;
    if (initializes) printf("cuInit: %d\n", initializes());
    fflush(stdout);
    printf("closed: %d\n", dlclose(library));
    /* Where it was, there is nothing, and it is elsewhere the next time. */
    for (int at = 0; at < 2000; at++) mmap(NULL, 4096 * (1 + at % 7), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  return 5;
}
