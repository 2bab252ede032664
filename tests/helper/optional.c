/* A program that calls the driver if it is there, by a weak reference, while another thread opens a library, for tests of the helper.
 *
 *   optional LIBRARY TIMES */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

extern int cuInit(unsigned) __attribute__((weak));

static volatile int has_begun, is_over;

static void *calls(void *nothing) {
  while (!is_over) {
    has_begun = 1;
    if (cuInit) cuInit(0);
  }
  return nothing;
}

int main(int count, char **arguments) {
  if (count < 3) return 2;
  pthread_t caller;
  int opened = 0;
  pthread_create(&caller, NULL, calls, NULL);
  while (!has_begun) {
  }
  for (int turn = 0; turn < atoi(arguments[2]); turn++) {
    opened += dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL) != NULL;
    /* Where it was, there is nothing. */
    mmap(NULL, 4096 * (1 + turn % 5), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  is_over = 1;
  pthread_join(caller, NULL);
  printf("opened: %d\n", opened);
  return 5;
}
