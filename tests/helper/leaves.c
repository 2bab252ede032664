/* A library whose destructor calls a function of the program's. */
#include <stddef.h>

void (*at_end)(void) = NULL;

__attribute__((destructor)) static void unloads(void) {
  if (at_end) at_end();
}
