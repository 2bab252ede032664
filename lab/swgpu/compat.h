/* SPDX-License-Identifier: GPL-2.0 OR MIT
 *
 * Differences between the drivers' interfaces to the resource manager. The rest of the model is the
 * same under all of them, and checks the version nowhere else.
 */
#ifndef SWGPU_COMPAT_H
#define SWGPU_COMPAT_H

#include "nvtypes.h"
#include "nv_uvm_types.h"

/* Made by build-modules, which defines a name DRIVER_HAS_enableAts of these sources if the driver's
 * headers of this interface have the word enableAts; an underscore stands for a space. */
#include "driver_has.h"

/* Parameter of nvUvmInterfaceAddressSpaceCreate: 550 and later request ATS by it, which no card
 * here has. */
#ifdef DRIVER_HAS_enableAts
#define COMPAT_ENABLE_ATS_PARAMETER NvBool enableAts,
#else
#define COMPAT_ENABLE_ATS_PARAMETER
#endif

/* Parameter of nvUvmInterfaceSetPageDirectory: 575 and later ask for the bus address of a directory
 * in the host's memory. Without an IOMMU it is the physical one. */
#ifdef DRIVER_HAS_dmaAddress
#define COMPAT_DMA_ADDRESS_PARAMETER , NvU64 *dmaAddress
#define compat_set_dma_address(address) (*dmaAddress = (address))
#else
#define COMPAT_DMA_ADDRESS_PARAMETER
#define compat_set_dma_address(address) ((void)(address))
#endif

/* Of nvUvmInterfaceEnableAccessCntr: constant in later versions of 570, and from 575 on. */
#ifdef DRIVER_HAS_const_UvmGpuAccessCntrConfig
#define COMPAT_ACCESS_COUNTER_CONFIG const UvmGpuAccessCntrConfig
#else
#define COMPAT_ACCESS_COUNTER_CONFIG UvmGpuAccessCntrConfig
#endif

/* The driver's callbacks, renamed in 590. */
#ifdef DRIVER_HAS_UvmEventsLinux
typedef struct UvmEventsLinux compat_callbacks;
#else
typedef struct UvmOpsUvmEvents compat_callbacks;
#endif

/* 570 and later have several buffers of access counters. */
static inline void compat_set_access_counter_buffers(UvmGpuInfo *info, NvU32 count)
{
#ifdef DRIVER_HAS_accessCntrBufferCount
    info->accessCntrBufferCount = count;
#endif
}

/* 535 has no such field, and assumes 2 MiB. */
static inline void compat_set_max_vidmem_page_bytes(UvmGpuFbInfo *info, NvU64 bytes)
{
#ifdef DRIVER_HAS_maxVidmemPageSize
    info->maxVidmemPageSize = bytes;
#endif
}

/* 535 expects the reader of the fault buffer that the hardware writes; later drivers only with
 * confidential computing. */
static inline void compat_driver_reads_fault_buffer(UvmGpuFaultInfo *info)
{
#ifdef DRIVER_HAS_bUvmOwnsHwFaultBuffer
    info->replayable.bUvmOwnsHwFaultBuffer = NV_TRUE;
#endif
}

#endif
