/* A CUDA program that is linked to a stub of the driver, for tests of the helper: it says what each call answers. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef int CUresult;
typedef void *Handle;
extern CUresult cuInit(unsigned), cuDeviceGet(int *, int), cuCtxSetCurrent(Handle);
extern CUresult cuDevicePrimaryCtxRetain(Handle *, int), cuDevicePrimaryCtxRelease_v2(int);
extern CUresult cuMemAllocManaged(Handle *, size_t, unsigned), cuMemsetD8_v2(Handle, unsigned char, size_t), cuMemFree_v2(Handle);

#define SAY(call) printf("%s: %d\n", #call, call)

/* Whether the whole process has a function, by either handle, and the error. */
static void find(const char *name) {
  void *handles[] = {RTLD_DEFAULT, dlopen(NULL, RTLD_LAZY)};
  for (int at = 0; at < 2; at++) {
    void *found = dlsym(handles[at], name);
    const char *error = dlerror();
    printf("%s found: %d, error: %s\n", name, found != NULL, error ? strstr(error, "undefined") : "none");
  }
}

int main(void) {
  int device = 0;
  Handle context = NULL, memory = NULL;
  /* Neither the stub nor any library has the first one, as the driver is not loaded yet. */
  find("cuMemcpyDtoH_v2");
  find("cuMemFree_v2");
  SAY(cuDevicePrimaryCtxRetain(&context, 0));
  SAY(cuInit(0));
  SAY(cuDeviceGet(&device, 0));
  SAY(cuDevicePrimaryCtxRetain(&context, device));
  SAY(cuCtxSetCurrent(context));
  SAY(cuMemAllocManaged(&memory, 4096, 1));
  SAY(cuMemsetD8_v2(memory, 1, 4096));
  SAY(cuMemFree_v2(memory));
  SAY(cuDevicePrimaryCtxRelease_v2(device));
  /* The stub has loaded the driver for itself. */
  find("cuMemcpyDtoH_v2");
  find("cuMemFree_v2");
  dlopen("libcuda.so.1", RTLD_LAZY | RTLD_GLOBAL);
  find("cuMemcpyDtoH_v2");
  return 0;
}
