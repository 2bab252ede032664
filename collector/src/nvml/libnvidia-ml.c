/*
 * A stand-in for NVIDIA's management library: one GPU, and what a test wants to go wrong. As nvml.h has it: 0 is success, 6 is NOT_FOUND,
 * 9 is DRIVER_NOT_LOADED, 15 is GPU_IS_LOST. Its state is in the files of a folder.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifndef FOLDER
#error "FOLDER is where the test and this library tell each other things"
#endif

struct pci_info {
    char bus_id_legacy[16];
    unsigned int domain, bus, device, pci_device_id, pci_sub_system_id;
    char bus_id[32];
};

struct memory {
    unsigned int version;
    unsigned long long total, reserved, free, used;
};

static int is_set(const char *name)
{
    return access(name, F_OK) == 0;
}

static void note(const char *line)
{
    FILE *file = fopen(FOLDER "/calls", "a");

    if (file) {
        fprintf(file, "%s\n", line);
        fclose(file);
    }
}

int nvmlInit_v2(void)
{
    note("init");
    return is_set(FOLDER "/not-loaded") ? 9 : 0;
}

int nvmlShutdown(void)
{
    note("shutdown");
    return 0;
}

const char *nvmlErrorString(int error)
{
    (void)error;
    return "an error";
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    note("handle");
    while (is_set(FOLDER "/hangs"))
        usleep(1000);
    *device = &note;
    return strcmp(uuid, "GPU-03030303-0303-0303-0303-030303030303") == 0 ? 0 : 6;
}

int nvmlDeviceGetIndex(void *device, unsigned int *index)
{
    (void)device;
    *index = 3;
    return is_set(FOLDER "/lost") ? 15 : 0;
}

int nvmlDeviceGetName(void *device, char *name, unsigned int length)
{
    (void)device;
    snprintf(name, length, "NVIDIA H200");
    return 0;
}

int nvmlDeviceGetPciInfo_v3(void *device, struct pci_info *info)
{
    (void)device;
    memset(info, 0, sizeof(*info));
    snprintf(info->bus_id_legacy, sizeof(info->bus_id_legacy), "0000:AB:00.0");
    snprintf(info->bus_id, sizeof(info->bus_id), "00000000:AB:00.0");
    return 0;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory *memory)
{
    (void)device;
    if (is_set(FOLDER "/no-memory"))
        return 3;
    memory->total = 1000;
    memory->reserved = 100;
    memory->free = 600;
    memory->used = 300;
    return 0;
}

int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned int *generation)
{
    (void)device;
    *generation = 4;
    return 0;
}

int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned int *lanes)
{
    (void)device;
    *lanes = 16;
    return 0;
}
