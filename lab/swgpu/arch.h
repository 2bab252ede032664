/* SPDX-License-Identifier: GPL-2.0 OR MIT
 *
 * Differences between GPU architectures, one row each in arch.c. The rest of the model is common to
 * all of them.
 */
#ifndef SWGPU_ARCH_H
#define SWGPU_ARCH_H

#include <linux/types.h>

struct mmu_format;

struct swgpu_arch {
    const char *name; /* value of the module parameter, and of swgpu_info.arch */
    const char *product_name;
    u32 architecture; /* NV2080_CTRL_MC_ARCH_INFO_ARCHITECTURE_*: the driver selects its HAL by it */
    u32 host_class;
    u32 ce_class;
    u32 graphics_mmu_engine_id; /* NV_PFAULT_MMU_ENG_ID_GRAPHICS: in the fault packets of compute work */
    const struct mmu_format *mmu;
    bool gpfifo_extended_base; /* a GPFIFO control entry carries the pushbuffer's address bits 40 and up */
    bool ce_scrubber;          /* LAUNCH_DMA has MEMORY_SCRUB_ENABLE */
};

/* Returns NULL if there is no such row. */
const struct swgpu_arch *swgpu_arch_find(const char *name);

#endif
