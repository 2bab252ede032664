// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Stand-in for NVIDIA's management library over the software GPUs: the functions that uvmd calls,
 * and no other.
 *
 * Its values come from the module: /dev/swgpu, and /proc/driver/nvidia/gpus. Only the indices are
 * its own: the last GPU has index 0. With two GPUs or more an index then differs from the driver's
 * processor id less one, which it equals by accident on many nodes.
 *
 * /tmp/nvml-hangs: while that file exists, no call returns.
 *
 * Return values, as in nvml.h: 0 SUCCESS, 6 NOT_FOUND, 9 DRIVER_NOT_LOADED, 999 UNKNOWN.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "../swgpu/swgpu_ioctl.h"

#define DEVICE "/dev/swgpu"
#define GPUS "/proc/driver/nvidia/gpus"
#define GPUS_MAX 32
#define UUID_CHARS (sizeof("GPU-00000000-0000-0000-0000-000000000000"))

enum { SUCCESS = 0, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9, UNKNOWN = 999 };

struct pci_info {
    char bus_id_legacy[16];
    unsigned int domain, bus, device, pci_device_id, pci_sub_system_id;
    char bus_id[32];
};

struct memory {
    unsigned int version;
    unsigned long long total, reserved, free, used;
};

/* Device handle, by the module's index of the GPU. */
static struct device {
    unsigned int gpu;
} devices[GPUS_MAX];

/* Makes one request. The file is open only for its duration: an open file would prevent the
 * module from being unloaded. */
static int ask(unsigned long request, void *answer)
{
    int file = open(DEVICE, O_RDONLY | O_CLOEXEC);
    int failed;

    if (file < 0)
        return DRIVER_NOT_LOADED;
    failed = ioctl(file, request, answer);
    close(file);
    return failed ? UNKNOWN : SUCCESS;
}

static int ask_info(unsigned int gpu, struct swgpu_info *info)
{
    while (access("/tmp/nvml-hangs", F_OK) == 0)
        usleep(10000);
    memset(info, 0, sizeof(*info));
    info->gpu = gpu;
    return ask(SWGPU_IOC_INFO, info);
}

static void format_uuid(const unsigned char *uuid, char *text)
{
    unsigned int at;

    text += sprintf(text, "GPU-");
    for (at = 0; at < 16; at++)
        text += sprintf(text, at == 4 || at == 6 || at == 8 || at == 10 ? "-%02x" : "%02x", uuid[at]);
}

/* Reads the value of a key in the file `information` of the GPU with this UUID. */
static int find_information(const char *uuid, const char *key, char *value, size_t size)
{
    DIR *gpus = opendir(GPUS);
    struct dirent *entry;
    int found = 0;

    while (gpus && !found && (entry = readdir(gpus))) {
        char path[sizeof(GPUS) + sizeof(entry->d_name) + 16], line[256];
        FILE *file;
        int is_its = 0;

        snprintf(path, sizeof(path), GPUS "/%s/information", entry->d_name);
        file = fopen(path, "re");
        if (!file)
            continue;
        while (fgets(line, sizeof(line), file)) {
            char *rest = strchr(line, ':');

            if (!rest)
                continue;
            *rest++ = 0;
            rest += strspn(rest, " \t");
            rest[strcspn(rest, "\n")] = 0;
            if (!strcmp(line, key))
                snprintf(value, size, "%s", rest);
            is_its |= !strcmp(line, "GPU UUID") && !strcmp(rest, uuid);
        }
        fclose(file);
        found = is_its;
    }
    if (gpus)
        closedir(gpus);
    return found ? SUCCESS : NOT_FOUND;
}

static int information(const struct device *device, const char *key, char *value, size_t size)
{
    struct swgpu_info info;
    char uuid[UUID_CHARS];
    int status = ask_info(device->gpu, &info);

    if (status)
        return status;
    format_uuid(info.uuid, uuid);
    return find_information(uuid, key, value, size);
}

int nvmlInit_v2(void)
{
    struct swgpu_info info;

    return ask_info(0, &info);
}

int nvmlShutdown(void)
{
    return SUCCESS;
}

const char *nvmlErrorString(int error)
{
    (void)error;
    return "error of the stand-in for NVML";
}

int nvmlDeviceGetHandleByUUID(const char *wanted, struct device **device)
{
    struct swgpu_info info = { .gpu_count = 1 };
    char uuid[UUID_CHARS];
    unsigned int gpu;

    for (gpu = 0; gpu < info.gpu_count && gpu < GPUS_MAX; gpu++) {
        int status = ask_info(gpu, &info);

        if (status)
            return status;
        format_uuid(info.uuid, uuid);
        if (!strcmp(uuid, wanted)) {
            devices[gpu].gpu = gpu;
            *device = &devices[gpu];
            return SUCCESS;
        }
    }
    return NOT_FOUND;
}

int nvmlDeviceGetIndex(const struct device *device, unsigned int *index)
{
    struct swgpu_info info;
    int status = ask_info(device->gpu, &info);

    if (!status)
        *index = info.gpu_count - 1 - device->gpu;
    return status;
}

int nvmlDeviceGetName(const struct device *device, char *name, unsigned int size)
{
    return information(device, "Model", name, size);
}

int nvmlDeviceGetPciInfo_v3(const struct device *device, struct pci_info *info)
{
    char address[16] = "";
    int status;

    memset(info, 0, sizeof(*info));
    status = information(device, "Bus Location", address, sizeof(address));
    if (status)
        return status;
    snprintf(info->bus_id_legacy, sizeof(info->bus_id_legacy), "%s", address);
    /* NVML's domain has eight digits, the kernel's four. */
    snprintf(info->bus_id, sizeof(info->bus_id), "0000%s", address);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(const struct device *device, struct memory *memory)
{
    struct swgpu_counters counters = { .gpu = device->gpu };
    struct swgpu_info info;
    int status = ask_info(device->gpu, &info);

    if (!status)
        status = ask(SWGPU_IOC_COUNTERS, &counters);
    if (status)
        return status;
    memory->total = info.memory_bytes;
    memory->free = counters.free_bytes;
    memory->used = info.memory_bytes - counters.free_bytes;
    memory->reserved = 0;
    return SUCCESS;
}
