/* A driver whose calls do nothing: what remains of a call is the cost of what stands before it. */
#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef void *Handle;

CUresult cuDriverGetVersion(int *version) { return *version = 12090, 0; }
CUresult cuCtxGetCurrent(Handle *context) { return *context = (Handle)0x1000, 0; }
CUresult cuCtxGetDevice(int *device) { return *device = 0, 0; }
CUresult cuFuncGetName(const char **name, Handle function) { return (void)function, *name = "kernel", 0; }
/* Four parameters of 8 bytes. */
CUresult cuFuncGetParamInfo(Handle function, size_t at, size_t *offset, size_t *bytes) {
  (void)function;
  if (at >= 4) return 1;
  return *offset = at * 8, *bytes = 8, 0;
}
CUresult cuMemAllocManaged(uint64_t *address, size_t bytes, unsigned flags) {
  static uint64_t next = 0x200000000000;
  (void)flags;
  *address = next;
  next += bytes;
  return 0;
}
CUresult cuMemFree_v2(uint64_t address) { return (void)address, 0; }
CUresult cuLaunchKernel(Handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, Handle stream, void **each, void **extra) {
  static volatile unsigned launches;
  (void)function, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream, (void)each, (void)extra;
  launches++;
  return 0;
}
