// SPDX-License-Identifier: GPL-2.0 OR MIT
#include <linux/vmalloc.h>

#include "nvmisc.h"

#include "fault.h"
#include "program.h"
#include "swgpu.h"

#include "nvidia-uvm/clc369.h"

#define PACKET_WORDS (FAULT_PACKET_BYTES / sizeof(u32))

/* GET holds the index in its low bits. Above them are flags that read as 0 and that the driver
 * writes as 1, to clear conditions that do not arise here. */
#define GET_INDEX_MASK 0xfffff

/* NV_PFAULT_ACCESS_TYPE_* and the first client of a GPC, the same on all architectures. Pascal's
 * packets (B069) have fewer fields, at the same places: the driver's code for Pascal does not
 * read the reserved ones. */
#define PFAULT_VIRT_READ 0
#define PFAULT_VIRT_WRITE 1
#define PFAULT_VIRT_ATOMIC_STRONG 2
#define PFAULT_CLIENT_GPC_T1_0 0

int fault_buffer_create(struct swgpu *gpu)
{
    u32 *buffer = vzalloc(array_size(gpu->faults.capacity, FAULT_PACKET_BYTES));

    BUILD_BUG_ON(FAULT_PACKET_BYTES != NVC369_BUF_SIZE);

    if (!buffer)
        return -ENOMEM;
    mutex_lock(&gpu->lock);
    memset(&gpu->faults.registers, 0, sizeof(gpu->faults.registers));
    gpu->faults.raised_put = 0;
    gpu->faults.buffer = buffer;
    mutex_unlock(&gpu->lock);
    return 0;
}

void fault_buffer_destroy(struct swgpu *gpu)
{
    u32 *buffer;

    mutex_lock(&gpu->lock);
    buffer = gpu->faults.buffer;
    gpu->faults.buffer = NULL;
    mutex_unlock(&gpu->lock);
    vfree(buffer);
}

static u32 get_index(struct fault_unit *faults)
{
    u32 get = READ_ONCE(faults->registers.get);

    if (get & ~GET_INDEX_MASK)
        cmpxchg(&faults->registers.get, get, get & GET_INDEX_MASK); /* unless the driver has written GET again */
    return get & GET_INDEX_MASK;
}

bool fault_pending(struct swgpu *gpu)
{
    struct fault_unit *faults = &gpu->faults;

    return faults->buffer && get_index(faults) != faults->registers.put;
}

static u32 pfault_access_type(enum access_type type)
{
    switch (type) {
    case ACCESS_READ:
        return PFAULT_VIRT_READ;
    case ACCESS_WRITE:
        return PFAULT_VIRT_WRITE;
    default:
        return PFAULT_VIRT_ATOMIC_STRONG;
    }
}

static void fill_packet(u32 *packet, struct user_channel *channel, u64 va, enum access_type type, enum mmu_fault fault)
{
    u64 instance = user_channel_instance(channel) >> 12;
    u64 page = va >> 12;
    u64 time_ns = swgpu_time_ns();

    FLD_SET_DRF_DEF_MW(C369, _BUF_ENTRY, _INST_APERTURE, _VID_MEM, packet);
    FLD_SET_DRF_NUM_MW(C369, _BUF_ENTRY, _INST_LO, lower_32_bits(instance), packet);
    FLD_SET_DRF_NUM_MW(C369, _BUF_ENTRY, _INST_HI, lower_32_bits(instance >> 20), packet);
    FLD_SET_DRF_NUM_MW(C369, _BUF_ENTRY, _ADDR_LO, lower_32_bits(page), packet);
    FLD_SET_DRF_NUM_MW(C369, _BUF_ENTRY, _ADDR_HI, lower_32_bits(page >> 20), packet);
    FLD_SET_DRF_NUM_MW(C369, _BUF_ENTRY, _TIMESTAMP_LO, lower_32_bits(time_ns), packet);
    FLD_SET_DRF_NUM_MW(C369, _BUF_ENTRY, _TIMESTAMP_HI, upper_32_bits(time_ns), packet);
    FLD_SET_DRF_NUM_MW(C369, _BUF_ENTRY, _ENGINE_ID, channel->gpu->arch->graphics_mmu_engine_id, packet);
    FLD_SET_DRF_NUM_MW(C369, _BUF_ENTRY, _FAULT_TYPE, (u32)fault, packet);
    FLD_SET_DRF_DEF_MW(C369, _BUF_ENTRY, _REPLAYABLE_FAULT, _TRUE, packet);
    FLD_SET_DRF_NUM_MW(C369, _BUF_ENTRY, _CLIENT, PFAULT_CLIENT_GPC_T1_0, packet);
    FLD_SET_DRF_NUM_MW(C369, _BUF_ENTRY, _ACCESS_TYPE, pfault_access_type(type), packet);
    FLD_SET_DRF_DEF_MW(C369, _BUF_ENTRY, _REPLAYABLE_FAULT_EN, _TRUE, packet);
    FLD_SET_DRF_DEF_MW(C369, _BUF_ENTRY, _VALID, _TRUE, packet);
}

void fault_raise(struct user_channel *channel, u64 va, enum access_type type, enum mmu_fault fault)
{
    struct swgpu *gpu = channel->gpu;
    struct fault_unit *faults = &gpu->faults;
    u32 packet[PACKET_WORDS] = { 0 };
    u32 put = faults->raised_put;
    u32 next = put + 1 == faults->capacity ? 0 : put + 1;
    u32 *slot;

    if (!faults->buffer || next == get_index(faults)) {
        gpu->counters.fault_overflows++;
        return;
    }
    fill_packet(packet, channel, va, type, fault);
    slot = faults->buffer + put * PACKET_WORDS;
    /* The valid bit is in the last word: the driver may read it before it sees PUT move. */
    memcpy(slot, packet, sizeof(packet) - sizeof(u32));
    smp_store_release(&slot[PACKET_WORDS - 1], packet[PACKET_WORDS - 1]);
    faults->raised_put = next;
    gpu->counters.fault_packets++;
}

void fault_show(struct swgpu *gpu)
{
    smp_store_release(&gpu->faults.registers.put, gpu->faults.raised_put);
}

void fault_replay(struct swgpu *gpu)
{
    gpu->faults.replay_generation++;
    gpu->counters.replays++;
}
