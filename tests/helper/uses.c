/* An object that is linked to the helper and to the driver, which a program opens and closes. */
#include "count.h"

extern CUresult cuMemAllocManaged(uint64_t *, size_t, unsigned), cuMemsetD32_v2(uint64_t, unsigned, size_t), cuMemcpyDtoH_v2(void *, uint64_t, size_t);
extern CUresult cuMemFree_v2(uint64_t);

/* In the current context. */
unsigned used(void) {
  uint64_t word;
  unsigned value;
  load();
  CHECK(cuMemAllocManaged(&word, 4096, 1));
  CHECK(cuMemsetD32_v2(word, 0, 1024));
  launch(word, NULL);
  CHECK(cuMemcpyDtoH_v2(&value, word, 4));
  CHECK(cuMemFree_v2(word));
  return value;
}
