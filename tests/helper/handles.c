/* A CUDA program that finds the driver in unusual ways, for tests of the helper. Its argument says how. */
#define FINDS
#include <string.h>

#include "managed.h"

int main(int count, char **arguments) {
  const char *how = count > 1 ? arguments[1] : "";
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (!driver) return 2;
  if (strcmp(how, "process") == 0) driver = dlopen(NULL, RTLD_NOW);
  if (strcmp(how, "reopened") == 0) {
    int version;
    FUNCTION(cuDriverGetVersion, int *);
    CHECK(cuDriverGetVersion(&version));
    dlclose(driver);
    driver = dlopen("libcuda.so.1", RTLD_NOW);
  }
  return use_managed_memory(driver);
}
