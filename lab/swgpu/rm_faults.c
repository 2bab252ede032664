// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The resource manager's interface to nvidia-uvm, third part: interrupts, fault buffers, access counters.
 */
#include <linux/module.h>
#include <linux/rwsem.h>
#include <linux/slab.h>

#include "nv_uvm_interface.h"

#include "compat.h"
#include "swgpu.h"

/* The driver expects a buffer for non-replayable faults and one for access counters. Nothing is
 * ever written into them here. The size exceeds the driver's default batches of 256 packets of
 * 32 bytes. */
#define UNUSED_BUFFER_BYTES 65536

#define INTERRUPT_MASK 1
/* Any handle but 0 means that there is a buffer. */
#define BUFFER_HANDLE 1

/* === Callbacks into the driver === */

static DECLARE_RWSEM(callbacks_lock);
static compat_callbacks *callbacks;

static NV_STATUS register_callbacks(compat_callbacks *imported)
{
    NV_STATUS status = NV_ERR_IN_USE;

    down_write(&callbacks_lock);
    if (!callbacks) {
        callbacks = imported;
        status = NV_OK;
    }
    up_write(&callbacks_lock);
    return status;
}

static void forget_callbacks(void)
{
    down_write(&callbacks_lock);
    callbacks = NULL;
    up_write(&callbacks_lock);
}

#ifdef DRIVER_HAS_UvmEventsLinux
NV_STATUS nvUvmInterfaceRegisterUvmEvents(compat_callbacks *importedEvents)
{
    return register_callbacks(importedEvents);
}
EXPORT_SYMBOL(nvUvmInterfaceRegisterUvmEvents);

void nvUvmInterfaceDeRegisterUvmEvents(void)
{
    forget_callbacks();
}
EXPORT_SYMBOL(nvUvmInterfaceDeRegisterUvmEvents);
#else
NV_STATUS nvUvmInterfaceRegisterUvmCallbacks(compat_callbacks *importedUvmOps)
{
    return register_callbacks(importedUvmOps);
}
EXPORT_SYMBOL(nvUvmInterfaceRegisterUvmCallbacks);

void nvUvmInterfaceDeRegisterUvmOps(void)
{
    forget_callbacks();
}
EXPORT_SYMBOL(nvUvmInterfaceDeRegisterUvmOps);
#endif

void swgpu_raise_interrupt(struct swgpu *gpu)
{
    down_read(&callbacks_lock);
    if (callbacks)
        callbacks->isrTopHalf(&gpu->uuid);
    up_read(&callbacks_lock);
}

NV_STATUS nvUvmInterfaceServiceDeviceInterruptsRM(uvmGpuDeviceHandle device)
{
    return NV_OK; /* the resource manager has no interrupts of its own */
}
EXPORT_SYMBOL(nvUvmInterfaceServiceDeviceInterruptsRM);

/* === Replayable faults === */

NV_STATUS nvUvmInterfaceOwnPageFaultIntr(uvmGpuDeviceHandle device, NvBool bOwnInterrupts)
{
    struct swgpu *gpu = (struct swgpu *)device;

    mutex_lock(&gpu->lock);
    gpu->faults.owned_by_driver = bOwnInterrupts;
    mutex_unlock(&gpu->lock);
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceOwnPageFaultIntr);

static void *unused_buffer(void)
{
    return kvzalloc(UNUSED_BUFFER_BYTES, GFP_KERNEL);
}

NV_STATUS nvUvmInterfaceInitFaultInfo(uvmGpuDeviceHandle device, UvmGpuFaultInfo *pFaultInfo)
{
    struct swgpu *gpu = (struct swgpu *)device;
    struct fault_registers *registers = &gpu->faults.registers;

    memset(pFaultInfo, 0, sizeof(*pFaultInfo));
    pFaultInfo->nonReplayable.shadowBufferAddress = unused_buffer();
    if (!pFaultInfo->nonReplayable.shadowBufferAddress)
        return NV_ERR_NO_MEMORY;
    if (fault_buffer_create(gpu)) {
        kvfree(pFaultInfo->nonReplayable.shadowBufferAddress);
        return NV_ERR_NO_MEMORY;
    }
    pFaultInfo->nonReplayable.bufferSize = UNUSED_BUFFER_BYTES;

    pFaultInfo->replayable.pFaultBufferGet = &registers->get;
    pFaultInfo->replayable.pFaultBufferPut = &registers->put;
    pFaultInfo->replayable.pFaultBufferInfo = &registers->info;
    pFaultInfo->replayable.pPmcIntr = &registers->interrupt;
    pFaultInfo->replayable.pPmcIntrEnSet = &registers->interrupt_enable_set;
    pFaultInfo->replayable.pPmcIntrEnClear = &registers->interrupt_enable_clear;
    pFaultInfo->replayable.pPrefetchCtrl = &registers->prefetch_control;
    pFaultInfo->replayable.replayableFaultMask = INTERRUPT_MASK;
    pFaultInfo->replayable.bufferAddress = gpu->faults.buffer;
    pFaultInfo->replayable.bufferSize = gpu->faults.capacity * FAULT_PACKET_BYTES;
    pFaultInfo->faultBufferHandle = BUFFER_HANDLE;
    compat_driver_reads_fault_buffer(pFaultInfo);
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceInitFaultInfo);

NV_STATUS nvUvmInterfaceDestroyFaultInfo(uvmGpuDeviceHandle device, UvmGpuFaultInfo *pFaultInfo)
{
    fault_buffer_destroy((struct swgpu *)device);
    kvfree(pFaultInfo->nonReplayable.shadowBufferAddress);
    memset(pFaultInfo, 0, sizeof(*pFaultInfo));
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceDestroyFaultInfo);

/* === Non-replayable faults: copy engines and Host run kernel channels only, whose bad accesses
 * are channel errors here === */

NV_STATUS nvUvmInterfaceHasPendingNonReplayableFaults(UvmGpuFaultInfo *pFaultInfo, NvBool *hasPendingFaults)
{
    *hasPendingFaults = NV_FALSE;
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceHasPendingNonReplayableFaults);

NV_STATUS nvUvmInterfaceGetNonReplayableFaults(UvmGpuFaultInfo *pFaultInfo, void *pFaultBuffer, NvU32 *numFaults)
{
    *numFaults = 0;
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceGetNonReplayableFaults);

/* === Access counters: the driver sets the buffer up; no notification is ever raised === */

NV_STATUS nvUvmInterfaceInitAccessCntrInfo(uvmGpuDeviceHandle device, UvmGpuAccessCntrInfo *pAccessCntrInfo,
                                           NvU32 accessCntrIndex)
{
    struct swgpu *gpu = (struct swgpu *)device;
    u32 *registers = gpu->access_counter_registers;

    memset(pAccessCntrInfo, 0, sizeof(*pAccessCntrInfo));
    pAccessCntrInfo->bufferAddress = unused_buffer();
    if (!pAccessCntrInfo->bufferAddress)
        return NV_ERR_NO_MEMORY;
    pAccessCntrInfo->bufferSize = UNUSED_BUFFER_BYTES;
    memset(registers, 0, sizeof(gpu->access_counter_registers));
    pAccessCntrInfo->pAccessCntrBufferGet = &registers[0];
    pAccessCntrInfo->pAccessCntrBufferPut = &registers[1];
    pAccessCntrInfo->pAccessCntrBufferFull = &registers[2];
    pAccessCntrInfo->pHubIntr = &registers[3];
    pAccessCntrInfo->pHubIntrEnSet = &registers[4];
    pAccessCntrInfo->pHubIntrEnClear = &registers[5];
    pAccessCntrInfo->accessCounterMask = INTERRUPT_MASK;
    pAccessCntrInfo->accessCntrBufferHandle = BUFFER_HANDLE;
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceInitAccessCntrInfo);

NV_STATUS nvUvmInterfaceDestroyAccessCntrInfo(uvmGpuDeviceHandle device, UvmGpuAccessCntrInfo *pAccessCntrInfo)
{
    kvfree(pAccessCntrInfo->bufferAddress);
    memset(pAccessCntrInfo, 0, sizeof(*pAccessCntrInfo));
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceDestroyAccessCntrInfo);

NV_STATUS nvUvmInterfaceEnableAccessCntr(uvmGpuDeviceHandle device, UvmGpuAccessCntrInfo *pAccessCntrInfo,
                                         COMPAT_ACCESS_COUNTER_CONFIG *pAccessCntrConfig)
{
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceEnableAccessCntr);

NV_STATUS nvUvmInterfaceDisableAccessCntr(uvmGpuDeviceHandle device, UvmGpuAccessCntrInfo *pAccessCntrInfo)
{
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceDisableAccessCntr);
