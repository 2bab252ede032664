/* SPDX-License-Identifier: GPL-2.0 OR MIT
 *
 * The driver's channels: a GPFIFO whose entries point at pushbuffers, whose methods go to Host, the
 * copy engine or the software class (method.h). All under the card's lock unless noted.
 */
#ifndef SWGPU_CHANNEL_H
#define SWGPU_CHANNEL_H

#include <linux/list.h>
#include <linux/types.h>

#include "nvtypes.h"
#include "nvgputypes.h"

#include "mmu.h"

struct gpu_space;
struct swgpu;

struct host_channel {
    struct list_head node; /* in swgpu.host_channels */
    struct swgpu *gpu;
    struct gpu_space *space;
    u32 id;
    bool dead;

    /* Read and written by the driver. */
    u64 *gpfifo;
    u32 gpfifo_entries;
    u32 get;
    u32 put;
    u32 doorbell;
    u32 doorbell_token;
    NvNotification error_notifier;

    /* The pushbuffer segment in progress. */
    u64 extended_base; /* address bits 40 and up of the segments */
    u64 segment_va;
    u32 segment_words; /* words left */
    u64 page_va;       /* page last translated in this slice, and its address */
    const u32 *page;

    /* The sequence of methods in progress. */
    u32 method;
    u32 subchannel;
    u32 method_words; /* words left */
    u32 method_step;  /* increment of the address after each word */
    bool step_once;   /* increment only after the first word */

    /* Latched method data, by method address / 4. */
    u32 host[0x88 / 4];
    u32 ce[0x720 / 4];
    u32 sw[0x118 / 4];
};

/* Creates a channel in `space`, on which it takes a reference. Takes the lock itself, as does
 * host_channel_destroy. */
struct host_channel *host_channel_create(struct gpu_space *space, u32 gpfifo_entries);
void host_channel_destroy(struct host_channel *channel);

/* Runs up to a slice of the channel's work; returns whether it made progress. */
bool host_channel_step(struct host_channel *channel);

#endif
