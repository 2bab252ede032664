// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * - /proc/driver/nvidia/gpus/ADDRESS/information, in which nvidia.ko identifies the cards. Same
 *   file, same keys; only those with a meaning here.
 * - /proc/driver/swgpu/gpus/UUID/link, which stands in for a meter of the card's link to the host.
 */
#include <linux/math64.h>
#include <linux/pci.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

#include "swgpu.h"

#define MILLIBYTES_PER_BYTE 1000

static struct proc_dir_entry *root;
static struct proc_dir_entry *own_root;

static int show_information(struct seq_file *file, void *unused)
{
    const struct swgpu *gpu = file->private;

    seq_printf(file, "Model: \t\t %s\n", gpu->arch->product_name);
    seq_printf(file, "GPU UUID: \t GPU-%pUb\n", gpu->uuid.uuid);
    seq_printf(file, "Bus Location: \t %s\n", pci_name(gpu->pci));
    return 0;
}

/* Traffic of all programs over the link to the host since the module was loaded. */
static int show_link(struct seq_file *file, void *unused)
{
    struct swgpu *gpu = file->private;
    struct swgpu_counters counters;

    mutex_lock(&gpu->lock);
    counters = gpu->counters;
    mutex_unlock(&gpu->lock);
    seq_printf(file, "copied_htod_bytes: %llu\n", counters.copied_htod_bytes);
    seq_printf(file, "copied_dtoh_bytes: %llu\n", counters.copied_dtoh_bytes);
    seq_printf(file, "remote_htod_bytes: %llu\n", div_u64(counters.access.remote_htod_millibytes, MILLIBYTES_PER_BYTE));
    seq_printf(file, "remote_dtoh_bytes: %llu\n", div_u64(counters.access.remote_dtoh_millibytes, MILLIBYTES_PER_BYTE));
    return 0;
}

static void create_link(struct proc_dir_entry *gpus, struct swgpu *gpu)
{
    char name[64];
    struct proc_dir_entry *folder;

    snprintf(name, sizeof(name), "GPU-%pUb", gpu->uuid.uuid);
    folder = proc_mkdir(name, gpus);
    if (folder)
        proc_create_single_data("link", 0444, folder, show_link, gpu);
}

/* A folder that cannot be created is missing, without further effect: the driver does not need
 * it. */
void swgpu_procfs_create(void)
{
    struct proc_dir_entry *gpus;
    unsigned int i;

    root = proc_mkdir("driver/nvidia", NULL);
    gpus = root ? proc_mkdir("gpus", root) : NULL;
    for (i = 0; gpus && i < swgpu_gpu_count; i++) {
        struct proc_dir_entry *folder = proc_mkdir(pci_name(swgpu_gpus[i]->pci), gpus);

        if (folder)
            proc_create_single_data("information", 0444, folder, show_information, swgpu_gpus[i]);
    }

    own_root = proc_mkdir("driver/swgpu", NULL);
    gpus = own_root ? proc_mkdir("gpus", own_root) : NULL;
    for (i = 0; gpus && i < swgpu_gpu_count; i++)
        create_link(gpus, swgpu_gpus[i]);
}

void swgpu_procfs_remove(void)
{
    proc_remove(own_root);
    proc_remove(root);
}
