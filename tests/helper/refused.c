/* A program that makes each hooked call with arguments that are no addresses. Its driver refuses them all. */
#include <stdint.h>
#include <stdio.h>

#define EACH(name) int name(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
#include "hooked.h"
#undef EACH

int main(void) {
  int calls = 0, refused = 0;
#define EACH(name) calls++, refused += name(8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8) == 1;
#include "hooked.h"
  printf("%d of %d calls were refused\n", refused, calls);
  return calls == refused ? 5 : 1;
}
