// SPDX-License-Identifier: GPL-2.0 OR MIT
#include <linux/kernel.h>
#include <linux/string.h>

#include "arch.h"
#include "mmu.h"

#include "nvidia-uvm/clc46f.h"
#include "nvidia-uvm/clc56f.h"
#include "nvidia-uvm/clc5b5.h"
#include "nvidia-uvm/clc6b5.h"
#include "nvidia-uvm/clc7b5.h"
#include "nvidia-uvm/clc86f.h"
#include "nvidia-uvm/clc8b5.h"
#include "nvidia-uvm/ctrl2080mc.h"

/* 595 has neither Pascal nor Volta. */
#if __has_include("nvidia-uvm/clc06f.h")
#define HAS_PASCAL_AND_VOLTA
#include "nvidia-uvm/clc06f.h"
#include "nvidia-uvm/clc0b5.h"
#include "nvidia-uvm/clc36f.h"
#include "nvidia-uvm/clc3b5.h"
#endif

/* From 570 on. */
#if __has_include("nvidia-uvm/clca6f.h")
#define HAS_BLACKWELL
#include "nvidia-uvm/clc96f.h"
#include "nvidia-uvm/clc9b5.h"
#include "nvidia-uvm/clca6f.h"
#include "nvidia-uvm/clcab5.h"
#endif

/* The dev_fault.h of the architectures define the same names, so that only one could be
 * included: hence the literal numbers. */
static const struct swgpu_arch archs[] = {
    {
        .name = "hopper",
        .product_name = "Software GPU (GH100)",
        .architecture = NV2080_CTRL_MC_ARCH_INFO_ARCHITECTURE_GH100,
        .host_class = HOPPER_CHANNEL_GPFIFO_A,
        .ce_class = HOPPER_DMA_COPY_A,
        .graphics_mmu_engine_id = 384,
        .mmu = &mmu_ver3,
        .gpfifo_extended_base = true,
        .ce_scrubber = true,
    },
    {
        .name = "ampere",
        .product_name = "Software GPU (GA100)",
        .architecture = NV2080_CTRL_MC_ARCH_INFO_ARCHITECTURE_GA100,
        .host_class = AMPERE_CHANNEL_GPFIFO_A,
        .ce_class = AMPERE_DMA_COPY_A,
        .graphics_mmu_engine_id = 64,
        .mmu = &mmu_ver2,
    },
    {
        .name = "ada",
        .product_name = "Software GPU (AD102)",
        .architecture = NV2080_CTRL_MC_ARCH_INFO_ARCHITECTURE_AD100,
        .host_class = AMPERE_CHANNEL_GPFIFO_A,
        .ce_class = AMPERE_DMA_COPY_B,
        .graphics_mmu_engine_id = 64,
        .mmu = &mmu_ver2,
    },
    {
        .name = "turing",
        .product_name = "Software GPU (TU102)",
        .architecture = NV2080_CTRL_MC_ARCH_INFO_ARCHITECTURE_TU100,
        .host_class = TURING_CHANNEL_GPFIFO_A,
        .ce_class = TURING_DMA_COPY_A,
        .graphics_mmu_engine_id = 64,
        .mmu = &mmu_ver2,
    },
#ifdef HAS_BLACKWELL
    {
        .name = "blackwell",
        .product_name = "Software GPU (GB100)",
        .architecture = NV2080_CTRL_MC_ARCH_INFO_ARCHITECTURE_GB100,
        .host_class = BLACKWELL_CHANNEL_GPFIFO_A,
        .ce_class = BLACKWELL_DMA_COPY_A,
        .graphics_mmu_engine_id = 384,
        .mmu = &mmu_ver3,
        .gpfifo_extended_base = true,
        .ce_scrubber = true,
    },
    {
        .name = "blackwell_b",
        .product_name = "Software GPU (GB202)",
        .architecture = NV2080_CTRL_MC_ARCH_INFO_ARCHITECTURE_GB200,
        .host_class = BLACKWELL_CHANNEL_GPFIFO_B,
        .ce_class = BLACKWELL_DMA_COPY_B,
        .graphics_mmu_engine_id = 384,
        .mmu = &mmu_ver3,
        .gpfifo_extended_base = true,
        .ce_scrubber = true,
    },
#endif
#ifdef HAS_PASCAL_AND_VOLTA
    {
        .name = "volta",
        .product_name = "Software GPU (GV100)",
        .architecture = NV2080_CTRL_MC_ARCH_INFO_ARCHITECTURE_GV100,
        .host_class = VOLTA_CHANNEL_GPFIFO_A,
        .ce_class = VOLTA_DMA_COPY_A,
        .graphics_mmu_engine_id = 64,
        .mmu = &mmu_ver2,
    },
    {
        .name = "pascal",
        .product_name = "Software GPU (GP100)",
        .architecture = NV2080_CTRL_MC_ARCH_INFO_ARCHITECTURE_GP100,
        .host_class = PASCAL_CHANNEL_GPFIFO_A,
        .ce_class = PASCAL_DMA_COPY_A,
        .graphics_mmu_engine_id = 0,
        .mmu = &mmu_ver2,
    },
#endif
};

const struct swgpu_arch *swgpu_arch_find(const char *name)
{
    size_t i;

    for (i = 0; i < ARRAY_SIZE(archs); i++) {
        if (!strcmp(archs[i].name, name))
            return &archs[i];
    }
    return NULL;
}
