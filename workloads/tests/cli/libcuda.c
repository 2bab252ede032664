/*
 * Stand-in for libcuda in the tests: one GPU whose memory is host memory and whose kernels run on
 * the CPU. It checks its arguments as the real library does, and reports resources that are still
 * allocated at the release of the context. It has only the functions that uvm-workload calls.
 *
 * STAND_IN_INIT=CODE        result of cuInit
 * STAND_IN_CONCURRENT=0|1   whether the GPU supports page faults
 * STAND_IN_FREE_MIB=N       free memory of the GPU
 * STAND_IN_LOSES=WORD       the GPU's writes to that word of managed memory are lost
 * STAND_IN_HANGS=1          kernels never end
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, NO_DEVICE = 100, INVALID_IMAGE = 200, NOT_FOUND = 500 };

static const uint64_t MULTIPLIER = 0x9E3779B97F4A7C15u;
static struct {
    uint64_t *words;
    size_t bytes;
} managed;
static uint64_t *plain;
static int contexts, modules, events;

static long long setting(const char *name, long long fallback)
{
    const char *text = getenv(name);
    return text ? atoll(text) : fallback;
}

int cuInit(unsigned flags) { return flags == 0 ? (int)setting("STAND_IN_INIT", SUCCESS) : INVALID_VALUE; }
int cuDriverGetVersion(int *version) { *version = 12090; return SUCCESS; }
int cuDeviceGetCount(int *count) { *count = 1; return SUCCESS; }
int cuDeviceGet(int *device, int index) { *device = 0; return index == 0 ? SUCCESS : INVALID_VALUE; }
int cuDeviceGetName(char *name, int size, int device) { snprintf(name, (size_t)size, "stand-in"); return device; }
int cuDeviceGetUuid_v2(char *uuid, int device) { memset(uuid, 0x11, 16); return device; }
int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    switch (attribute) {
        case 83: *value = 1; break;
        case 89: *value = (int)setting("STAND_IN_CONCURRENT", 1); break;
        case 75: *value = 9; break;
        default: *value = 0;
    }
    return device;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = &contexts; contexts++; return device; }
int cuDevicePrimaryCtxRelease_v2(int device)
{
    if (--contexts == 0 && (modules || events || managed.words || plain)) {
        fprintf(stderr, "not freed: %d modules, %d events, memory %p %p\n", modules, events, (void *)managed.words, (void *)plain);
        abort();
    }
    return device;
}
int cuCtxSetCurrent(void *context) { return context == &contexts ? SUCCESS : INVALID_VALUE; }
int cuCtxSynchronize(void) { return SUCCESS; }
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    *free_bytes = (size_t)setting("STAND_IN_FREE_MIB", 16384) << 20;
    *total = (size_t)16384 << 20;
    return SUCCESS;
}

int cuMemAllocManaged(uint64_t *address, size_t bytes, unsigned flags)
{
    if (flags != 1 || bytes == 0 || managed.words)
        return INVALID_VALUE;
    managed.words = aligned_alloc(1 << 21, (bytes + (1 << 21) - 1) >> 21 << 21);
    memset(managed.words, 0, bytes);
    managed.bytes = bytes;
    *address = (uint64_t)managed.words;
    return SUCCESS;
}
int cuMemAlloc_v2(uint64_t *address, size_t bytes)
{
    plain = malloc(bytes);
    *address = (uint64_t)plain;
    return SUCCESS;
}
int cuMemFree_v2(uint64_t address)
{
    uint64_t **owner = address == (uint64_t)managed.words ? &managed.words : &plain;
    if (address != (uint64_t)*owner)
        return INVALID_VALUE;
    free(*owner);
    *owner = NULL;
    return SUCCESS;
}
int cuMemsetD32_v2(uint64_t address, unsigned value, size_t count)
{
    for (size_t at = 0; at < count; at++)
        ((unsigned *)address)[at] = value;
    return SUCCESS;
}
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) { memcpy(to, (void *)from, bytes); return SUCCESS; }

static int is_whole_allocation(uint64_t address, size_t bytes) { return address == (uint64_t)managed.words && bytes == managed.bytes; }
int cuMemAdvise(uint64_t address, size_t bytes, int advice, int device)
{
    return is_whole_allocation(address, bytes) && (advice == 1 || advice == 3 || advice == 5) && (device == 0 || device == -1) ? SUCCESS : INVALID_VALUE;
}
int cuMemPrefetchAsync(uint64_t address, size_t bytes, int device, void *stream)
{
    return is_whole_allocation(address, bytes) && (device == 0 || device == -1) && !stream ? SUCCESS : INVALID_VALUE;
}

static const char *const KERNELS[] = { "write_pattern", "increment", "weigh", "weigh_shuffled" };
int cuModuleLoadData(void **module, const void *image)
{
    if (!strstr(image, ".version") || !strstr(image, "weigh_shuffled"))
        return INVALID_IMAGE;
    modules++;
    *module = &modules;
    return SUCCESS;
}
int cuModuleUnload(void *module) { modules--; return module == &modules ? SUCCESS : INVALID_VALUE; }
int cuModuleGetFunction(void **function, void *module, const char *name)
{
    for (int at = 0; at < 4; at++)
        if (module == &modules && !strcmp(name, KERNELS[at])) {
            *function = (void *)&KERNELS[at];
            return SUCCESS;
        }
    return NOT_FOUND;
}

static void write_word(uint64_t *word, uint64_t value)
{
    if (word - managed.words != setting("STAND_IN_LOSES", -1))
        *word = value;
}

int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                   unsigned shared, void *stream, void **parameters, void **extra)
{
    if (!grid_x || grid_y != 1 || grid_z != 1 || block_x != 256 || block_y != 1 || block_z != 1 || shared || stream || extra)
        return INVALID_VALUE;
    const char *name = *(const char **)function;
    uint64_t *words = *(uint64_t **)parameters[0];
    uint64_t second = *(uint64_t *)parameters[1], sum = 0;
    if (setting("STAND_IN_HANGS", 0) && second)
        pause();
    if (!strcmp(name, "weigh_shuffled")) {
        unsigned shift = *(unsigned *)parameters[2];
        uint64_t seed = *(uint64_t *)parameters[3];
        for (uint64_t k = 0; k <= second; k++) {
            uint64_t page = (k * 0xD1342543DE82EF95u + seed) & second;
            page ^= page >> shift;
            page = page * 0xAF251AF3B0F025B5u & second;
            page ^= page >> shift;
            sum += words[page * 512] * (2 * page * 512 + 1);
        }
        **(uint64_t **)parameters[4] += sum;
        return SUCCESS;
    }
    uint64_t stride = *(uint64_t *)parameters[2];
    for (uint64_t k = 0; k < second; k++) {
        uint64_t i = k * stride;
        if (!strcmp(name, "write_pattern"))
            write_word(&words[i], (i ^ *(uint64_t *)parameters[3]) * MULTIPLIER);
        else if (!strcmp(name, "increment"))
            write_word(&words[i], words[i] + 1);
        else
            sum += words[i] * (2 * i + 1);
    }
    if (!strcmp(name, "weigh"))
        **(uint64_t **)parameters[3] += sum;
    return SUCCESS;
}

int cuEventCreate(struct timespec **event, unsigned flags) { *event = calloc(1, sizeof(**event)); events++; return (int)flags; }
int cuEventRecord(struct timespec *event, void *stream) { clock_gettime(CLOCK_MONOTONIC, event); return stream ? INVALID_VALUE : SUCCESS; }
int cuEventSynchronize(struct timespec *event) { return event ? SUCCESS : INVALID_VALUE; }
int cuEventElapsedTime(float *milliseconds, struct timespec *begin, struct timespec *end)
{
    *milliseconds = (float)((end->tv_sec - begin->tv_sec) * 1e3 + (end->tv_nsec - begin->tv_nsec) / 1e6);
    return SUCCESS;
}
int cuEventDestroy_v2(struct timespec *event) { free(event); events--; return SUCCESS; }

int cuGetErrorName(int error, const char **name) { *name = error == NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_SOME"; return SUCCESS; }
int cuGetErrorString(int error, const char **text) { *text = error == NO_DEVICE ? "no CUDA-capable device is detected" : "some error"; return SUCCESS; }
