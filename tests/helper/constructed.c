/* A library that is linked to the driver, and calls it in its constructor. */
#include <stdio.h>

extern int cuInit(unsigned);

__attribute__((constructor)) static void loads(void) { printf("cuInit: %d\n", cuInit(0)); }
