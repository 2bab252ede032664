// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Host's methods: semaphores, and the memory operations by which the driver replays and cancels
 * faults. Their numbers are the same in the classes from Pascal (C06F) to Hopper (C86F), as far as
 * these have them.
 */
#include "nvmisc.h"

#include "fault.h"
#include "method.h"
#include "program.h"
#include "swgpu.h"

#include "nvidia-uvm/clc076.h"
#include "nvidia-uvm/clc86f.h"
#if __has_include("nvidia-uvm/clc36f.h") /* up to 590 */
#include "nvidia-uvm/clc36f.h"
#endif
#include "methods.h"

static const struct idle idle_methods[] = {
    { NVC86F_NOP, "does nothing" },
    { NVC86F_WFI, "methods run one after the other: there is nothing to wait for" },
    { NVC86F_NON_STALL_INTERRUPT, "nobody waits for this interrupt" },
};

/* Memory operations without effect in this model, by MEM_OP_D_OPERATION. */
static const struct idle idle_memory_operations[] = {
    { NVC86F_MEM_OP_D_OPERATION_MEMBAR, "all memory is coherent" },
    { NVC86F_MEM_OP_D_OPERATION_ACCESS_COUNTER_CLR, "accesses are not counted for the driver" },
};

/* Operation of a semaphore's method, in either encoding. */
enum semaphore_operation {
    SEMAPHORE_RELEASE,
    SEMAPHORE_ACQUIRE_EQUAL,
    SEMAPHORE_ACQUIRE_AT_LEAST,
    SEMAPHORE_ACQUIRE_AT_LEAST_CIRCULAR,
};

static bool acquired(enum semaphore_operation operation, u32 value, u32 payload)
{
    switch (operation) {
    case SEMAPHORE_ACQUIRE_EQUAL:
        return value == payload;
    case SEMAPHORE_ACQUIRE_AT_LEAST:
        return value >= payload;
    default:
        return (s32)(value - payload) >= 0;
    }
}

static enum verdict use_semaphore(struct host_channel *channel, u64 va, enum semaphore_operation operation, u32 payload,
                                  bool timestamp)
{
    u32 *semaphore = host_channel_semaphore(channel, va, timestamp ? 16 : 4);

    if (!semaphore)
        return host_channel_error(channel, "semaphore at 0x%llx is not mapped", va);
    if (operation != SEMAPHORE_RELEASE)
        return acquired(operation, smp_load_acquire(semaphore), payload) ? VERDICT_NEXT : VERDICT_STALL;
    semaphore_release(semaphore, payload, timestamp);
    return VERDICT_NEXT;
}

/* Encoding of the driver's releases and acquires up to Volta. The hardware of later
 * architectures still supports it. */
static enum verdict execute_semaphore_d(struct host_channel *channel, u32 d)
{
    u32 upper = DRF_VAL(C36F, _SEMAPHOREA, _OFFSET_UPPER, channel->host[NVC36F_SEMAPHOREA / 4]);
    u32 lower = channel->host[NVC36F_SEMAPHOREB / 4] & DRF_SHIFTMASK(NVC36F_SEMAPHOREB_OFFSET_LOWER);
    u32 payload = channel->host[NVC36F_SEMAPHOREC / 4];
    u32 code = DRF_VAL(C36F, _SEMAPHORED, _OPERATION, d);
    /* A release of 16 bytes has a timestamp. */
    bool timestamp =
        code == NVC36F_SEMAPHORED_OPERATION_RELEASE && FLD_TEST_DRF(C36F, _SEMAPHORED, _RELEASE_SIZE, _16BYTE, d);
    enum semaphore_operation operation;

    switch (code) {
    case NVC36F_SEMAPHORED_OPERATION_RELEASE:
        operation = SEMAPHORE_RELEASE;
        break;
    case NVC36F_SEMAPHORED_OPERATION_ACQUIRE:
        operation = SEMAPHORE_ACQUIRE_EQUAL;
        break;
    case NVC36F_SEMAPHORED_OPERATION_ACQ_GEQ:
        operation = SEMAPHORE_ACQUIRE_AT_LEAST_CIRCULAR;
        break;
    default:
        return host_channel_error(channel, "SEMAPHORED operation %u is not modelled", code);
    }
    return use_semaphore(channel, ((u64)upper << 32) | lower, operation, payload, timestamp);
}

/* Encoding from Turing on, and of Volta's releases with a timestamp. */
static enum verdict execute_semaphore(struct host_channel *channel, u32 execute)
{
    u64 va = ((u64)channel->host[NVC86F_SEM_ADDR_HI / 4] << 32) | channel->host[NVC86F_SEM_ADDR_LO / 4];
    u32 payload = channel->host[NVC86F_SEM_PAYLOAD_LO / 4];
    u32 code = DRF_VAL(C86F, _SEM_EXECUTE, _OPERATION, execute);
    bool timestamp = FLD_TEST_DRF(C86F, _SEM_EXECUTE, _RELEASE_TIMESTAMP, _EN, execute);
    enum semaphore_operation operation;

    if (!FLD_TEST_DRF(C86F, _SEM_EXECUTE, _PAYLOAD_SIZE, _32BIT, execute))
        return host_channel_error(channel, "semaphore of 64 bits is not modelled");
    switch (code) {
    case NVC86F_SEM_EXECUTE_OPERATION_RELEASE:
        operation = SEMAPHORE_RELEASE;
        break;
    case NVC86F_SEM_EXECUTE_OPERATION_ACQUIRE:
        operation = SEMAPHORE_ACQUIRE_EQUAL;
        break;
    case NVC86F_SEM_EXECUTE_OPERATION_ACQ_STRICT_GEQ:
        operation = SEMAPHORE_ACQUIRE_AT_LEAST;
        break;
    case NVC86F_SEM_EXECUTE_OPERATION_ACQ_CIRC_GEQ:
        operation = SEMAPHORE_ACQUIRE_AT_LEAST_CIRCULAR;
        break;
    default:
        return host_channel_error(channel, "SEM_EXECUTE operation %u is not modelled", code);
    }
    return use_semaphore(channel, va, operation, payload, timestamp);
}

/* Returns the accesses that a cancel's ACCESS_TYPE field covers, as a mask of BIT(enum
 * access_type). */
static u32 cancelled_access_types(u32 field)
{
    switch (field) {
    case NVC86F_MEM_OP_C_TLB_INVALIDATE_ACCESS_TYPE_VIRT_READ:
        return BIT(ACCESS_READ);
    case NVC86F_MEM_OP_C_TLB_INVALIDATE_ACCESS_TYPE_VIRT_WRITE:
        return BIT(ACCESS_WRITE);
    case NVC86F_MEM_OP_C_TLB_INVALIDATE_ACCESS_TYPE_VIRT_ATOMIC_STRONG:
    case NVC86F_MEM_OP_C_TLB_INVALIDATE_ACCESS_TYPE_VIRT_ATOMIC_ALL:
        return BIT(ACCESS_ATOMIC);
    case NVC86F_MEM_OP_C_TLB_INVALIDATE_ACCESS_TYPE_VIRT_WRITE_AND_ATOMIC:
        return BIT(ACCESS_WRITE) | BIT(ACCESS_ATOMIC);
    case NVC86F_MEM_OP_C_TLB_INVALIDATE_ACCESS_TYPE_VIRT_ALL:
        return BIT(ACCESS_READ) | BIT(ACCESS_WRITE) | BIT(ACCESS_ATOMIC);
    default:
        return 0;
    }
}

static enum verdict cancel_by_va(struct host_channel *channel, u32 a, u32 b, u32 c, u32 d)
{
    bool vidmem = FLD_TEST_DRF(C86F, _MEM_OP_C, _TLB_INVALIDATE_PDB_APERTURE, _VID_MEM, c);
    struct program_cancel cancel = {
        .root_aperture = vidmem ? APERTURE_VIDMEM : APERTURE_SYSMEM,
        .root = ((u64)DRF_VAL(C86F, _MEM_OP_D, _TLB_INVALIDATE_PDB_ADDR_HI, d) << 32) |
                ((u64)DRF_VAL(C86F, _MEM_OP_C, _TLB_INVALIDATE_PDB_ADDR_LO, c) << 12),
        .page_va = ((u64)DRF_VAL(C86F, _MEM_OP_B, _TLB_INVALIDATE_TARGET_ADDR_HI, b) << 32) |
                   ((u64)DRF_VAL(C86F, _MEM_OP_A, _TLB_INVALIDATE_TARGET_ADDR_LO, a) << 12),
        .access_types = cancelled_access_types(DRF_VAL(C86F, _MEM_OP_C, _TLB_INVALIDATE_ACCESS_TYPE, c)),
    };
    u32 engine_id = DRF_VAL(C86F, _MEM_OP_A, _TLB_INVALIDATE_CANCEL_MMU_ENGINE_ID, a);

    if (engine_id != channel->gpu->arch->graphics_mmu_engine_id)
        return host_channel_error(channel, "cancel for MMU engine %u, which raises no faults", engine_id);
    program_cancel(channel->gpu, &cancel);
    return VERDICT_NEXT;
}

static enum verdict invalidate_tlb(struct host_channel *channel, u32 a, u32 b, u32 c, u32 d)
{
    u32 replay = DRF_VAL(C86F, _MEM_OP_C, _TLB_INVALIDATE_REPLAY, c);

    /* Replays are sent to the GPCs, in whose TLBs the accesses wait. */
    if (!FLD_TEST_DRF(C86F, _MEM_OP_C, _TLB_INVALIDATE_GPC, _ENABLE, c))
        return VERDICT_NEXT;
    switch (replay) {
    case NVC86F_MEM_OP_C_TLB_INVALIDATE_REPLAY_NONE:
        return VERDICT_NEXT; /* there is no TLB */
    case NVC86F_MEM_OP_C_TLB_INVALIDATE_REPLAY_START:
    case NVC86F_MEM_OP_C_TLB_INVALIDATE_REPLAY_START_ACK_ALL:
        fault_replay(channel->gpu);
        return VERDICT_NEXT;
    case NVC86F_MEM_OP_C_TLB_INVALIDATE_REPLAY_CANCEL_VA_GLOBAL:
        return cancel_by_va(channel, a, b, c, d);
    default:
        return host_channel_error(channel, "replay type %u is not modelled", replay);
    }
}

static enum verdict execute_memory_operation(struct host_channel *channel, u32 d)
{
    u32 a = channel->host[NVC86F_MEM_OP_A / 4];
    u32 b = channel->host[NVC86F_MEM_OP_B / 4];
    u32 c = channel->host[NVC86F_MEM_OP_C / 4];
    u32 operation = DRF_VAL(C86F, _MEM_OP_D, _OPERATION, d);

    switch (operation) {
    case NVC86F_MEM_OP_D_OPERATION_MMU_TLB_INVALIDATE:
    case NVC86F_MEM_OP_D_OPERATION_MMU_TLB_INVALIDATE_TARGETED:
        return invalidate_tlb(channel, a, b, c, d);
    default:
        if (is_idle(idle_memory_operations, ARRAY_SIZE(idle_memory_operations), operation))
            return VERDICT_NEXT;
        return host_channel_error(channel, "memory operation %u is not modelled", operation);
    }
}

static enum verdict set_object(struct host_channel *channel, u32 class)
{
    if (class == channel->gpu->arch->ce_class || class == GP100_UVM_SW)
        return VERDICT_NEXT; /* classes are bound to fixed subchannels */
    return host_channel_error(channel, "class 0x%x is not modelled", class);
}

enum verdict host_method(struct host_channel *channel, u32 method, u32 data)
{
    switch (method) {
    case NVC86F_SET_OBJECT:
        return set_object(channel, DRF_VAL(C86F, _SET_OBJECT, _NVCLASS, data));
    case NVC36F_SEMAPHOREA:
    case NVC36F_SEMAPHOREB:
    case NVC36F_SEMAPHOREC:
    case NVC86F_SEM_ADDR_LO:
    case NVC86F_SEM_ADDR_HI:
    case NVC86F_SEM_PAYLOAD_LO:
    case NVC86F_SEM_PAYLOAD_HI:
    case NVC86F_MEM_OP_A:
    case NVC86F_MEM_OP_B:
    case NVC86F_MEM_OP_C:
        channel->host[method / 4] = data;
        return VERDICT_NEXT;
    case NVC36F_SEMAPHORED:
        return execute_semaphore_d(channel, data);
    case NVC86F_SEM_EXECUTE:
        return execute_semaphore(channel, data);
    case NVC86F_MEM_OP_D:
        return execute_memory_operation(channel, data);
    default:
        if (is_idle(idle_methods, ARRAY_SIZE(idle_methods), method))
            return VERDICT_NEXT;
        return unknown_method(channel, "host", method, data);
    }
}
