// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * /proc/driver/nvidia/gpus/ADDRESS/information, where nvidia.ko says which card is which. Same file, same keys; only
 * those that mean something here.
 */
#include <linux/pci.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

#include "swgpu.h"

static struct proc_dir_entry *root;

static int show_information(struct seq_file *file, void *unused)
{
    const struct swgpu *gpu = file->private;

    seq_printf(file, "Model: \t\t %s\n", gpu->arch->product_name);
    seq_printf(file, "GPU UUID: \t GPU-%pUb\n", gpu->uuid.uuid);
    seq_printf(file, "Bus Location: \t %s\n", pci_name(gpu->pci));
    return 0;
}

/* A folder that cannot be made is missing, and nothing else: the driver does not need it. */
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
}

void swgpu_procfs_remove(void)
{
    proc_remove(root);
}
