// SPDX-License-Identifier: GPL-2.0 OR MIT
#include <linux/slab.h>

#include "nvmisc.h"

#include "channel.h"
#include "method.h"
#include "space.h"
#include "swgpu.h"

#include "nvidia-uvm/cla06fsubch.h"
#include "nvidia-uvm/clc86f.h"
#include "nv_uvm_types.h"
#include "methods.h"

/* GPFIFO entries that one channel may complete before the next channel's turn. */
#define SLICE_ENTRIES 8

/* Host's own methods lie below this address, on every subchannel. */
#define HOST_METHOD_END 0x100

#define NO_PAGE (~0ull)

/* Status that the resource manager writes to the notifier of a channel it has killed. */
#define ERROR_NOTIFIER_STATUS 0xffff

struct host_channel *host_channel_create(struct gpu_space *space, u32 gpfifo_entries)
{
    struct host_channel *channel = kzalloc(sizeof(*channel), GFP_KERNEL);

    if (!channel)
        return NULL;
    channel->gpfifo = kvcalloc(gpfifo_entries, sizeof(*channel->gpfifo), GFP_KERNEL);
    if (!channel->gpfifo) {
        kfree(channel);
        return NULL;
    }
    channel->gpfifo_entries = gpfifo_entries;
    channel->gpu = space->gpu;
    channel->space = space;
    kref_get(&space->refs);

    mutex_lock(&channel->gpu->lock);
    channel->id = channel->gpu->next_channel_id++;
    list_add_tail(&channel->node, &channel->gpu->host_channels);
    mutex_unlock(&channel->gpu->lock);
    swgpu_engine_kick(channel->gpu);
    return channel;
}

void host_channel_destroy(struct host_channel *channel)
{
    mutex_lock(&channel->gpu->lock);
    list_del(&channel->node);
    mutex_unlock(&channel->gpu->lock);
    space_put(channel->space);
    kvfree(channel->gpfifo);
    kfree(channel);
}

static enum verdict dispatch(struct host_channel *channel, u32 data)
{
    u32 method = channel->method;

    if (method < HOST_METHOD_END)
        return host_method(channel, method, data);
    switch (channel->subchannel) {
    case NVA06F_SUBCHANNEL_COPY_ENGINE:
        return ce_method(channel, method, data);
    case UVM_SW_OBJ_SUBCHANNEL:
        return sw_method(channel, method, data);
    default:
        return host_channel_error(channel, "method 0x%x on subchannel %u, which has no class", method,
                                  channel->subchannel);
    }
}

/* Returns the next word of the segment, or NULL if it is not mapped. */
static const u32 *peek_word(struct host_channel *channel)
{
    u64 page_va = channel->segment_va & ~(SWGPU_PAGE_BYTES - 1);

    if (page_va != channel->page_va) {
        struct mmu_target target;

        if (mmu_translate(channel->space, page_va, ACCESS_READ, &target) != MMU_NO_FAULT || !target.memory)
            return NULL;
        channel->page_va = page_va;
        channel->page = target.memory;
    }
    return channel->page + (channel->segment_va - page_va) / sizeof(u32);
}

static void consume_word(struct host_channel *channel)
{
    channel->segment_va += sizeof(u32);
    channel->segment_words--;
}

/* Decodes a method header. */
static enum verdict begin_method(struct host_channel *channel, u32 header)
{
    if (header == NVC86F_DMA_NOP)
        return VERDICT_NEXT;
    channel->method = DRF_VAL(C86F, _DMA, _METHOD_ADDRESS, header) << 2;
    channel->subchannel = DRF_VAL(C86F, _DMA, _METHOD_SUBCHANNEL, header);
    channel->method_words = DRF_VAL(C86F, _DMA, _METHOD_COUNT, header);
    channel->method_step = sizeof(u32);
    channel->step_once = false;

    switch (DRF_VAL(C86F, _DMA, _SEC_OP, header)) {
    case NVC86F_DMA_SEC_OP_INC_METHOD:
        return VERDICT_NEXT;
    case NVC86F_DMA_SEC_OP_NON_INC_METHOD:
        channel->method_step = 0;
        return VERDICT_NEXT;
    case NVC86F_DMA_SEC_OP_ONE_INC:
        channel->step_once = true;
        return VERDICT_NEXT;
    case NVC86F_DMA_SEC_OP_IMMD_DATA_METHOD:
        channel->method_words = 0;
        return dispatch(channel, DRF_VAL(C86F, _DMA, _IMMD_DATA, header));
    default:
        return host_channel_error(channel, "method header 0x%x is not modelled", header);
    }
}

static void end_method_word(struct host_channel *channel)
{
    channel->method_words--;
    channel->method += channel->method_step;
    if (channel->step_once)
        channel->method_step = 0;
}

/* Runs the segment in progress. */
static enum verdict run_segment(struct host_channel *channel)
{
    while (channel->segment_words) {
        const u32 *word = peek_word(channel);
        bool is_header = !channel->method_words;
        enum verdict verdict;

        if (!word)
            return host_channel_error(channel, "pushbuffer at 0x%llx is not mapped", channel->segment_va);
        verdict = is_header ? begin_method(channel, *word) : dispatch(channel, *word);
        if (verdict != VERDICT_NEXT)
            return verdict;
        if (!is_header)
            end_method_word(channel);
        consume_word(channel);
    }
    if (channel->method_words)
        return host_channel_error(channel, "pushbuffer ends %u words short of method 0x%x", channel->method_words,
                                  channel->method);
    return VERDICT_NEXT;
}

static enum verdict begin_entry(struct host_channel *channel, u64 entry)
{
    u32 low = lower_32_bits(entry);
    u32 high = upper_32_bits(entry);

    /* ENTRY1_SYNC controls waiting before a fetch; here entries run one after the other anyway. */
    channel->segment_words = DRF_VAL(C86F, _GP_ENTRY1, _LENGTH, high);
    if (channel->segment_words) {
        channel->segment_va = channel->extended_base | ((u64)DRF_VAL(C86F, _GP_ENTRY1, _GET_HI, high) << 32) |
                              ((u64)DRF_VAL(C86F, _GP_ENTRY0, _GET, low) << 2);
        return VERDICT_NEXT;
    }
    switch (DRF_VAL(C86F, _GP_ENTRY1, _OPCODE, high)) {
    case NVC86F_GP_ENTRY1_OPCODE_NOP:
        return VERDICT_NEXT;
    case NVC86F_GP_ENTRY1_OPCODE_SET_PB_SEGMENT_EXTENDED_BASE:
        if (channel->gpu->arch->gpfifo_extended_base) {
            channel->extended_base = (u64)DRF_VAL(C86F, _GP_ENTRY0, _PB_EXTENDED_BASE_OPERAND, low) << 40;
            return VERDICT_NEXT;
        }
        fallthrough;
    default:
        return host_channel_error(channel, "GPFIFO control entry 0x%llx is not modelled", entry);
    }
}

static void kill_channel(struct host_channel *channel)
{
    channel->dead = true;
    smp_store_release(&channel->error_notifier.status, ERROR_NOTIFIER_STATUS);
}

bool host_channel_step(struct host_channel *channel)
{
    bool progress = false;
    u32 entries;

    if (channel->dead)
        return false;
    channel->page_va = NO_PAGE; /* the driver may have changed the mapping since the last slice */
    for (entries = 0; entries < SLICE_ENTRIES; entries++) {
        u32 words = channel->segment_words;
        enum verdict verdict = VERDICT_NEXT;

        if (!words) {
            if (channel->get == smp_load_acquire(&channel->put))
                return progress;
            verdict = begin_entry(channel, channel->gpfifo[channel->get]);
        }
        if (verdict == VERDICT_NEXT)
            verdict = run_segment(channel);
        if (verdict == VERDICT_ERROR) {
            kill_channel(channel);
            return true;
        }
        if (verdict == VERDICT_STALL)
            return progress || channel->segment_words != words;
        WRITE_ONCE(channel->get, channel->get + 1 == channel->gpfifo_entries ? 0 : channel->get + 1);
        progress = true;
    }
    return true;
}
