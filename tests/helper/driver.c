/* A driver whose calls do nothing: what remains of a call is the cost of what stands before it. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef int CUresult;
typedef void *Handle;

CUresult cuInit(unsigned flags) { return (void)flags, 0; }
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
CUresult cuCtxSetCurrent(Handle context) { return (void)context, 0; }
CUresult cuDeviceGet(int *device, int at) { return *device = at, 0; }
CUresult cuDeviceGetAttribute(int *value, int attribute, int device) { return (void)attribute, (void)device, *value = 1, 0; }
CUresult cuDeviceGetCount(int *count) { return *count = 1, 0; }
CUresult cuDeviceGetUuid_v2(void *uuid, int device) { return (void)device, memset(uuid, 7, 16), 0; }
CUresult cuEventCreate(Handle *event, unsigned flags) { return (void)flags, *event = (Handle)0x7000, 0; }
CUresult cuEventDestroy_v2(Handle event) { return (void)event, 0; }
CUresult cuEventRecord(Handle event, Handle stream) { return (void)event, (void)stream, 0; }
CUresult cuMemPrefetchAsync(uint64_t address, size_t bytes, int device, Handle stream) {
  return (void)address, (void)bytes, (void)device, (void)stream, 0;
}
CUresult cuStreamGetCaptureInfo(Handle stream, unsigned *status, uint64_t *id) { return (void)stream, *status = 0, *id = 0, 0; }
CUresult cuStreamCreate(Handle *stream, unsigned flags) { return (void)flags, *stream = (Handle)0x8000, 0; }
CUresult cuStreamDestroy_v2(Handle stream) { return (void)stream, 0; }
CUresult cuStreamWaitEvent(Handle stream, Handle event, unsigned flags) { return (void)stream, (void)event, (void)flags, 0; }
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
