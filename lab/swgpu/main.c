// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Software GPU in the place of nvidia.ko: it exports the resource manager's interface, so that the
 * real nvidia-uvm.ko loads over it and drives it as a card.
 */
#include <linux/dma-mapping.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "space.h"
#include "swgpu.h"

static char *arch = "hopper";
module_param(arch, charp, 0444);
MODULE_PARM_DESC(arch, "architecture to model: a name in arch.c");

static unsigned int memory_mib = 64;
module_param(memory_mib, uint, 0444);
MODULE_PARM_DESC(memory_mib, "memory of each card, an even number of MiB");

static unsigned int gpus = 1;
module_param(gpus, uint, 0444);
MODULE_PARM_DESC(gpus, "number of cards; each needs a pci-testdev of its own");

static bool nvlink;
module_param(nvlink, bool, 0444);
MODULE_PARM_DESC(nvlink, "join all cards by NVLink: they reach each other's memory");

static bool ecc;
module_param(ecc, bool, 0444);
MODULE_PARM_DESC(ecc, "cards have ECC; see ecc_error");

/* NvBool, to which UvmGpuEccInfo points. */
NvBool swgpu_ecc_error;
module_param_named(ecc_error, swgpu_ecc_error, byte, 0644);
MODULE_PARM_DESC(ecc_error, "1: each card reports an uncorrected ECC error, which is fatal to nvidia-uvm");

bool swgpu_has_ecc(void)
{
    return ecc;
}

static unsigned int fault_buffer_packets = 4096;
module_param(fault_buffer_packets, uint, 0444);
MODULE_PARM_DESC(fault_buffer_packets, "capacity of the replayable-fault buffer: a small one overflows");

#define FAULT_BUFFER_PACKETS_MIN 16
#define FAULT_BUFFER_PACKETS_MAX 0xfffff /* maximum of the registers' index field */

/* QEMU's pci-testdev. Any function is sufficient, since only the DMA API reads it; this one has
 * no driver that would claim it. */
#define STAND_IN_VENDOR 0x1b36
#define STAND_IN_DEVICE 0x0005

#define DMA_ADDRESS_BITS 47

static void destroy_gpu(struct swgpu *gpu)
{
    swgpu_engine_stop(gpu);
    tables_destroy(&gpu->tables);
    ledger_destroy(gpu);
    pma_destroy(&gpu->pma);
    vfree(gpu->vidmem);
    pci_dev_put(gpu->pci);
    kfree(gpu);
}

/* On failure the caller destroys the initialized parts. */
static int init_gpu(struct swgpu *gpu, const struct swgpu_arch *row)
{
    static const u8 uuid_prefix[NV_UUID_LEN - 1] = "swgpu software";
    int status;

    gpu->arch = row;
    if (nvlink)
        gpu->peer_mask = (BIT(gpus) - 1) & ~BIT(gpu->index);
    memcpy(gpu->uuid.uuid, uuid_prefix, sizeof(uuid_prefix));
    gpu->uuid.uuid[NV_UUID_LEN - 1] = gpu->index;
    mutex_init(&gpu->lock);
    tables_init(&gpu->tables);
    logs_init(&gpu->logs);
    INIT_LIST_HEAD(&gpu->host_channels);
    INIT_LIST_HEAD(&gpu->user_channels);
    gpu->faults.capacity = fault_buffer_packets;

    status = dma_set_mask_and_coherent(&gpu->pci->dev, DMA_BIT_MASK(DMA_ADDRESS_BITS));
    if (status)
        return status;
    gpu->vidmem_bytes = (u64)memory_mib << 20;
    gpu->vidmem = __vmalloc(gpu->vidmem_bytes, GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN);
    if (!gpu->vidmem) {
        pr_err("swgpu: the machine has no %u MiB for the memory of card %u\n", memory_mib, gpu->index);
        return -ENOMEM;
    }
    status = pma_init(&gpu->pma, gpu, gpu->vidmem_bytes);
    if (!status)
        status = ledger_init(gpu);
    return status ?: swgpu_engine_start(gpu);
}

static int create_gpu(unsigned int index, const struct swgpu_arch *row, struct pci_dev *pci)
{
    struct swgpu *gpu = kzalloc(sizeof(*gpu), GFP_KERNEL);
    int status;

    if (!gpu)
        return -ENOMEM;
    gpu->index = index;
    gpu->pci = pci_dev_get(pci);
    status = init_gpu(gpu, row);
    if (status) {
        destroy_gpu(gpu);
        return status;
    }
    swgpu_gpus[swgpu_gpu_count++] = gpu;
    return 0;
}

static void destroy_gpus(void)
{
    while (swgpu_gpu_count)
        destroy_gpu(swgpu_gpus[--swgpu_gpu_count]);
}

static int create_gpus(const struct swgpu_arch *row)
{
    struct pci_dev *pci = NULL;
    int status = 0;

    while (!status && swgpu_gpu_count < gpus) {
        pci = pci_get_device(STAND_IN_VENDOR, STAND_IN_DEVICE, pci);
        if (!pci) {
            pr_err("swgpu: %u cards asked for, but only %u pci-testdev found\n", gpus, swgpu_gpu_count);
            status = -ENODEV;
            break;
        }
        status = create_gpu(swgpu_gpu_count, row, pci);
    }
    pci_dev_put(pci);
    return status;
}

static bool parameters_are_valid(void)
{
    return memory_mib >= 4 && memory_mib % 2 == 0 && gpus && gpus <= SWGPU_MAX_GPUS &&
           fault_buffer_packets >= FAULT_BUFFER_PACKETS_MIN && fault_buffer_packets <= FAULT_BUFFER_PACKETS_MAX;
}

static int __init swgpu_init(void)
{
    const struct swgpu_arch *row = swgpu_arch_find(arch);
    int status;

    if (!row || !parameters_are_valid()) {
        pr_err("swgpu: bad parameter (arch=%s memory_mib=%u gpus=%u fault_buffer_packets=%u)\n", arch, memory_mib, gpus,
               fault_buffer_packets);
        return -EINVAL;
    }
    status = create_gpus(row);
    if (!status)
        status = swgpu_dev_register();
    if (status) {
        destroy_gpus();
        return status;
    }
    swgpu_procfs_create();
    pr_info("swgpu: %u x %s with %u MiB%s\n", swgpu_gpu_count, row->product_name, memory_mib,
            nvlink ? ", joined by NVLink" : "");
    return 0;
}

static void __exit swgpu_exit(void)
{
    swgpu_dev_unregister();
    swgpu_procfs_remove();
    destroy_gpus();
    handles_destroy();
}

module_init(swgpu_init);
module_exit(swgpu_exit);
MODULE_DESCRIPTION("Software GPU under the real nvidia-uvm driver");
MODULE_LICENSE("Dual MIT/GPL");
