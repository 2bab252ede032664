// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The resource manager's interface to nvidia-uvm, first part: cards, address spaces, memory.
 * nv_uvm_interface.h documents each call. The opaque handles of the interface are pointers here: a
 * device is a struct swgpu, an address space a struct gpu_space. Calls that are not defined in
 * rm*.c get stubs that print an error.
 */
#include <linux/module.h>
#include <linux/pci.h>

#include "nv_uvm_interface.h"

#include "compat.h"
#include "space.h"
#include "swgpu.h"

/* Numbers of the smallest real cards. They only size the driver's tables of GPCs and of their
 * TLBs. */
#define GPC_COUNT 8
#define TPC_PER_GPC 2
#define COPY_ENGINES 2
#define LINK_RATE_MBPS 25000
#define MAX_SUBCONTEXTS 64
#define DMA_ADDRESS_LIMIT (1ull << 47)

static struct swgpu *gpu_of_device(uvmGpuDeviceHandle device)
{
    return (struct swgpu *)device;
}

static struct gpu_space *space_of(uvmGpuAddressSpaceHandle handle)
{
    return (struct gpu_space *)handle;
}

/* === Sessions and cards === */

NV_STATUS nvUvmInterfaceRegisterGpu(const NvProcessorUuid *gpuUuid, UvmGpuPlatformInfo *gpuInfo)
{
    struct swgpu *gpu = swgpu_find(gpuUuid);

    if (!gpu)
        return NV_ERR_GPU_UUID_NOT_FOUND;
    gpuInfo->pci_dev = gpu->pci;
    gpuInfo->dma_addressable_start = 0;
    gpuInfo->dma_addressable_limit = DMA_ADDRESS_LIMIT - 1;
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceRegisterGpu);

void nvUvmInterfaceUnregisterGpu(const NvProcessorUuid *gpuUuid)
{
}
EXPORT_SYMBOL(nvUvmInterfaceUnregisterGpu);

NV_STATUS nvUvmInterfaceSessionCreate(uvmGpuSessionHandle *session, UvmPlatformInfo *platformInfo)
{
    memset(platformInfo, 0, sizeof(*platformInfo));
    *session = (uvmGpuSessionHandle)swgpu_gpus; /* a session has no state: any address will do */
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceSessionCreate);

NV_STATUS nvUvmInterfaceSessionDestroy(uvmGpuSessionHandle session)
{
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceSessionDestroy);

NV_STATUS nvUvmInterfaceDeviceCreate(uvmGpuSessionHandle session, const UvmGpuInfo *pGpuInfo,
                                     const NvProcessorUuid *gpuUuid, uvmGpuDeviceHandle *device,
                                     NvBool bCreateSmcPartition)
{
    struct swgpu *gpu = swgpu_find(gpuUuid);

    if (!gpu || bCreateSmcPartition)
        return NV_ERR_OBJECT_NOT_FOUND;
    *device = (uvmGpuDeviceHandle)gpu;
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceDeviceCreate);

void nvUvmInterfaceDeviceDestroy(uvmGpuDeviceHandle device)
{
}
EXPORT_SYMBOL(nvUvmInterfaceDeviceDestroy);

NV_STATUS nvUvmInterfaceGetGpuInfo(const NvProcessorUuid *gpuUuid, const UvmGpuClientInfo *pGpuClientInfo,
                                   UvmGpuInfo *pGpuInfo)
{
    struct swgpu *gpu = swgpu_find(gpuUuid);

    if (!gpu)
        return NV_ERR_GPU_UUID_NOT_FOUND;
    memset(pGpuInfo, 0, sizeof(*pGpuInfo));
    strscpy(pGpuInfo->name, gpu->arch->product_name, sizeof(pGpuInfo->name));
    pGpuInfo->uuid = gpu->uuid;
    pGpuInfo->gpuArch = gpu->arch->architecture;
    pGpuInfo->hostClass = gpu->arch->host_class;
    pGpuInfo->ceClass = gpu->arch->ce_class;
    pGpuInfo->subdeviceCount = 1;
    pGpuInfo->gpcCount = GPC_COUNT;
    pGpuInfo->maxGpcCount = GPC_COUNT;
    pGpuInfo->tpcCount = GPC_COUNT * TPC_PER_GPC;
    pGpuInfo->maxTpcPerGpcCount = TPC_PER_GPC;
    pGpuInfo->sysmemLink = UVM_LINK_TYPE_PCIE;
    pGpuInfo->sysmemLinkRateMBps = LINK_RATE_MBPS;
    compat_set_access_counter_buffers(pGpuInfo, 1);
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceGetGpuInfo);

NV_STATUS nvUvmInterfaceQueryCaps(uvmGpuDeviceHandle device, UvmGpuCaps *caps)
{
    memset(caps, 0, sizeof(*caps));
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceQueryCaps);

NV_STATUS nvUvmInterfaceQueryCopyEnginesCaps(uvmGpuDeviceHandle device, UvmGpuCopyEnginesCaps *caps)
{
    u32 i;

    memset(caps, 0, sizeof(*caps));
    for (i = 0; i < COPY_ENGINES; i++) {
        UvmGpuCopyEngineCaps *ce = &caps->copyEngineCaps[i];

        ce->supported = NV_TRUE;
        ce->sysmem = NV_TRUE;
        ce->sysmemRead = NV_TRUE;
        ce->sysmemWrite = NV_TRUE;
        ce->p2p = NV_TRUE;
        ce->cePceMask = BIT(i);
    }
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceQueryCopyEnginesCaps);

NV_STATUS nvUvmInterfaceGetFbInfo(uvmGpuDeviceHandle device, UvmGpuFbInfo *fbInfo)
{
    struct swgpu *gpu = gpu_of_device(device);

    memset(fbInfo, 0, sizeof(*fbInfo));
    fbInfo->maxAllocatableAddress = gpu->vidmem_bytes - 1;
    fbInfo->heapSize = gpu->vidmem_bytes >> 10;
    compat_set_max_vidmem_page_bytes(fbInfo, UVM_PAGE_SIZE_2M);
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceGetFbInfo);

NV_STATUS nvUvmInterfaceGetEccInfo(uvmGpuDeviceHandle device, UvmGpuEccInfo *eccInfo)
{
    /* No interrupt is ever pending. */
    static NvU32 interrupts;

    memset(eccInfo, 0, sizeof(*eccInfo));
    if (swgpu_has_ecc()) {
        eccInfo->bEccEnabled = NV_TRUE;
        eccInfo->eccMask = 1;
        eccInfo->eccReadLocation = &interrupts;
        eccInfo->eccErrorNotifier = &swgpu_ecc_error;
    }
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceGetEccInfo);

/* === Address spaces === */

static void fill_space_info(struct swgpu *gpu, UvmGpuAddressSpaceInfo *info)
{
    memset(info, 0, sizeof(*info));
    info->bigPageSize = UVM_PAGE_SIZE_64K;
    info->time0Offset = &gpu->time_ns[0];
    info->time1Offset = &gpu->time_ns[1];
    info->maxSubctxCount = MAX_SUBCONTEXTS;
}

NV_STATUS nvUvmInterfaceAddressSpaceCreate(uvmGpuDeviceHandle device, unsigned long long vaBase,
                                           unsigned long long vaSize,
                                           COMPAT_ENABLE_ATS_PARAMETER uvmGpuAddressSpaceHandle *vaSpace,
                                           UvmGpuAddressSpaceInfo *vaSpaceInfo)
{
    struct gpu_space *space = space_create(gpu_of_device(device), 0);

    if (!space)
        return NV_ERR_NO_MEMORY;
    *vaSpace = (uvmGpuAddressSpaceHandle)space;
    fill_space_info(space->gpu, vaSpaceInfo);
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceAddressSpaceCreate);

static void get_space(void *object)
{
    kref_get(&((struct gpu_space *)object)->refs);
}

NV_STATUS nvUvmInterfaceDupAddressSpace(uvmGpuDeviceHandle device, NvHandle hUserClient, NvHandle hUserVASpace,
                                        uvmGpuAddressSpaceHandle *vaSpace, UvmGpuAddressSpaceInfo *vaSpaceInfo)
{
    struct gpu_space *space = handle_get(HANDLE_SPACE, hUserClient, hUserVASpace, get_space);

    if (!space)
        return NV_ERR_OBJECT_NOT_FOUND;
    if (space->gpu != gpu_of_device(device)) {
        space_put(space);
        return NV_ERR_INVALID_ARGUMENT;
    }
    *vaSpace = (uvmGpuAddressSpaceHandle)space;
    fill_space_info(space->gpu, vaSpaceInfo);
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceDupAddressSpace);

void nvUvmInterfaceAddressSpaceDestroy(uvmGpuAddressSpaceHandle vaSpace)
{
    space_put(space_of(vaSpace));
}
EXPORT_SYMBOL(nvUvmInterfaceAddressSpaceDestroy);

NV_STATUS nvUvmInterfaceSetPageDirectory(uvmGpuAddressSpaceHandle vaSpace, NvU64 physAddress, unsigned numEntries,
                                         NvBool bVidMemAperture, NvU32 pasid COMPAT_DMA_ADDRESS_PARAMETER)
{
    compat_set_dma_address(physAddress);
    space_set_root(space_of(vaSpace), bVidMemAperture ? APERTURE_VIDMEM : APERTURE_SYSMEM, physAddress);
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceSetPageDirectory);

NV_STATUS nvUvmInterfaceUnsetPageDirectory(uvmGpuAddressSpaceHandle vaSpace)
{
    space_clear_root(space_of(vaSpace));
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceUnsetPageDirectory);

/* === The resource manager's memory === */

static NV_STATUS map_memory(struct gpu_space *space, struct rm_memory *source, u64 bytes, u64 alignment, u64 *va)
{
    *va = space_map_memory(space, source, bytes, alignment);
    return *va ? NV_OK : NV_ERR_NO_MEMORY;
}

NV_STATUS nvUvmInterfaceMemoryAllocSys(uvmGpuAddressSpaceHandle vaSpace, NvLength length, UvmGpuPointer *gpuPointer,
                                       UvmGpuAllocInfo *allocInfo)
{
    return map_memory(space_of(vaSpace), NULL, length, allocInfo->alignment, gpuPointer);
}
EXPORT_SYMBOL(nvUvmInterfaceMemoryAllocSys);

NV_STATUS nvUvmInterfaceMemoryAllocFB(uvmGpuAddressSpaceHandle vaSpace, NvLength length, UvmGpuPointer *gpuPointer,
                                      UvmGpuAllocInfo *allocInfo)
{
    if (allocInfo->bContiguousPhysAlloc) {
        swgpu_error(space_of(vaSpace)->gpu, "physically contiguous memory of the resource manager is not modelled");
        return NV_ERR_NOT_SUPPORTED;
    }
    return map_memory(space_of(vaSpace), NULL, length, allocInfo->alignment, gpuPointer);
}
EXPORT_SYMBOL(nvUvmInterfaceMemoryAllocFB);

void nvUvmInterfaceMemoryFree(uvmGpuAddressSpaceHandle vaSpace, UvmGpuPointer gpuPointer)
{
    space_unmap_memory(space_of(vaSpace), gpuPointer);
}
EXPORT_SYMBOL(nvUvmInterfaceMemoryFree);

/* Returns the memory of the mapping at `va`. It lives while the caller, the driver, keeps its
 * mapping. */
static struct rm_memory *mapped_memory(struct gpu_space *space, u64 va)
{
    struct rm_mapping *mapping;

    mutex_lock(&space->gpu->lock);
    mapping = space_find_mapping(space, va);
    mutex_unlock(&space->gpu->lock);
    return mapping ? mapping->memory : NULL;
}

NV_STATUS nvUvmInterfaceMemoryCpuMap(uvmGpuAddressSpaceHandle vaSpace, UvmGpuPointer gpuPointer, NvLength length,
                                     void **cpuPtr, NvU64 pageSize)
{
    struct rm_memory *memory = mapped_memory(space_of(vaSpace), gpuPointer);

    if (!memory || length > memory->bytes)
        return NV_ERR_INVALID_ARGUMENT;
    *cpuPtr = memory->data;
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceMemoryCpuMap);

void nvUvmInterfaceMemoryCpuUnMap(uvmGpuAddressSpaceHandle vaSpace, void *cpuPtr)
{
}
EXPORT_SYMBOL(nvUvmInterfaceMemoryCpuUnMap);

NV_STATUS nvUvmInterfaceDupAllocation(uvmGpuAddressSpaceHandle srcVaSpace, NvU64 srcAddress,
                                      uvmGpuAddressSpaceHandle dstVaSpace, NvU64 dstVaAlignment, NvU64 *dstAddress)
{
    struct rm_memory *memory = mapped_memory(space_of(srcVaSpace), srcAddress);

    if (!memory)
        return NV_ERR_OBJECT_NOT_FOUND;
    return map_memory(space_of(dstVaSpace), memory, 0, dstVaAlignment, dstAddress);
}
EXPORT_SYMBOL(nvUvmInterfaceDupAllocation);

/* === Frames === */

NV_STATUS nvUvmInterfaceGetPmaObject(uvmGpuDeviceHandle device, void **pPma, const UvmPmaStatistics **pPmaPubStats)
{
    struct swgpu *gpu = gpu_of_device(device);

    *pPma = &gpu->pma;
    *pPmaPubStats = &gpu->pma.stats;
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceGetPmaObject);

NV_STATUS nvUvmInterfacePmaRegisterEvictionCallbacks(void *pPma, uvmPmaEvictPagesCallback evictPages,
                                                     uvmPmaEvictRangeCallback evictRange, void *callbackData)
{
    pma_set_eviction(pPma, evictPages, callbackData);
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfacePmaRegisterEvictionCallbacks);

void nvUvmInterfacePmaUnregisterEvictionCallbacks(void *pPma)
{
    pma_set_eviction(pPma, NULL, NULL);
}
EXPORT_SYMBOL(nvUvmInterfacePmaUnregisterEvictionCallbacks);

NV_STATUS nvUvmInterfacePmaAllocPages(void *pPma, NvLength pageCount, NvU64 pageSize,
                                      UvmPmaAllocationOptions *pPmaAllocOptions, NvU64 *pPages)
{
    return pma_alloc(pPma, pageCount, pageSize, pPmaAllocOptions, pPages);
}
EXPORT_SYMBOL(nvUvmInterfacePmaAllocPages);

NV_STATUS nvUvmInterfacePmaPinPages(void *pPma, NvU64 *pPages, NvLength pageCount, NvU64 pageSize, NvU32 flags)
{
    return pma_pin(pPma, pPages, pageCount, pageSize);
}
EXPORT_SYMBOL(nvUvmInterfacePmaPinPages);

void nvUvmInterfacePmaFreePages(void *pPma, NvU64 *pPages, NvLength pageCount, NvU64 pageSize, NvU32 flags)
{
    pma_free(pPma, pPages, pageCount, pageSize);
}
EXPORT_SYMBOL(nvUvmInterfacePmaFreePages);
