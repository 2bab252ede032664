// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The resource manager's interface to nvidia-uvm, fourth part: access of cards to each other's
 * memory. Over NVLink it exists from the start, over PCIe when a process requests it.
 */
#include <linux/module.h>

#include "nv_uvm_interface.h"

#include "compat.h"
#include "swgpu.h"

#define PCIE_RATE_MBPS 25000
#define NVLINK_RATE_MBPS 450000
/* Any handle but 0: there is no object behind it. */
#define P2P_OBJECT_HANDLE 1
/* Every copy engine supports all operations. */
#define COPY_ENGINE 0

/* The driver treats all generations alike. */
#define NVLINK UVM_LINK_TYPE_NVLINK_4

NV_STATUS nvUvmInterfaceGetP2PCaps(uvmGpuDeviceHandle device1, uvmGpuDeviceHandle device2,
                                   UvmGpuP2PCapsParams *p2pCapsParams)
{
    const struct swgpu *gpu1 = (struct swgpu *)device1;
    const struct swgpu *gpu2 = (struct swgpu *)device2;

    memset(p2pCapsParams, 0, sizeof(*p2pCapsParams));
    p2pCapsParams->peerIds[0] = gpu2->index;
    p2pCapsParams->peerIds[1] = gpu1->index;
    if (gpu1->peer_mask & BIT(gpu2->index)) {
        p2pCapsParams->p2pLink = NVLINK;
        p2pCapsParams->optimalNvlinkWriteCEs[0] = COPY_ENGINE;
        p2pCapsParams->optimalNvlinkWriteCEs[1] = COPY_ENGINE;
        p2pCapsParams->totalLinkLineRateMBps = NVLINK_RATE_MBPS;
    } else {
        p2pCapsParams->p2pLink = UVM_LINK_TYPE_PCIE;
        p2pCapsParams->totalLinkLineRateMBps = PCIE_RATE_MBPS;
    }
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceGetP2PCaps);

#ifdef DRIVER_HAS_nvUvmInterfaceGetNvlinkInfo
NV_STATUS nvUvmInterfaceGetNvlinkInfo(uvmGpuDeviceHandle device, UvmGpuNvlinkInfo *nvlinkInfo)
{
    memset(nvlinkInfo, 0, sizeof(*nvlinkInfo)); /* no recovery from link errors */
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceGetNvlinkInfo);
#endif

NV_STATUS nvUvmInterfaceP2pObjectCreate(uvmGpuDeviceHandle device1, uvmGpuDeviceHandle device2, NvHandle *hP2pObject)
{
    *hP2pObject = P2P_OBJECT_HANDLE;
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceP2pObjectCreate);

void nvUvmInterfaceP2pObjectDestroy(uvmGpuSessionHandle session, NvHandle hP2pObject)
{
}
EXPORT_SYMBOL(nvUvmInterfaceP2pObjectDestroy);
