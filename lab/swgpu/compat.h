/* SPDX-License-Identifier: GPL-2.0 OR MIT
 *
 * Differences between the drivers' interfaces to the resource manager. The rest of the model is the
 * same under all of them, and checks the version nowhere else.
 */
#ifndef SWGPU_COMPAT_H
#define SWGPU_COMPAT_H

#include "nvtypes.h"
#include "nv_uvm_types.h"

#include "driver_version.h"

/* Parameter of nvUvmInterfaceAddressSpaceCreate: 550 and later request ATS by it, which no card
 * here has. */
#if DRIVER_MAJOR >= 550
#define COMPAT_ENABLE_ATS_PARAMETER NvBool enableAts,
#else
#define COMPAT_ENABLE_ATS_PARAMETER
#endif

/* 535 has no such field, and assumes 2 MiB. */
static inline void compat_set_max_vidmem_page_bytes(UvmGpuFbInfo *info, NvU64 bytes)
{
#if DRIVER_MAJOR >= 550
    info->maxVidmemPageSize = bytes;
#endif
}

/* 535 expects the reader of the fault buffer that the hardware writes; later drivers only with
 * confidential computing. */
static inline void compat_driver_reads_fault_buffer(UvmGpuFaultInfo *info)
{
#if DRIVER_MAJOR < 550
    info->replayable.bUvmOwnsHwFaultBuffer = NV_TRUE;
#endif
}

#endif
