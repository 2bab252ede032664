/* SPDX-License-Identifier: GPL-2.0 OR MIT
 *
 * The driver's channels: a GPFIFO whose entries point at pushbuffers, whose methods go to Host, the
 * copy engine or the software class. All under the card's lock unless noted.
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

/* Effect of a method on its channel. */
enum verdict {
    VERDICT_NEXT,  /* done, continue */
    VERDICT_STALL, /* a semaphore is not released yet: retry the method later */
    VERDICT_ERROR, /* the channel is dead, as after robust channel recovery (RC) */
};

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

/* Counts and prints an error of the channel's work, and returns VERDICT_ERROR. */
#define host_channel_error(channel, fmt, ...)                                                                          \
    ({                                                                                                                 \
        swgpu_error((channel)->gpu, "channel %u: " fmt, (channel)->id, ##__VA_ARGS__);                                 \
        VERDICT_ERROR;                                                                                                 \
    })

/* Returns the words of a semaphore: a payload and, with a timestamp, the card's time 8 bytes
 * further. NULL if it is not mapped. */
u32 *host_channel_semaphore(struct host_channel *channel, u64 va, u64 bytes);
void semaphore_release(u32 *semaphore, u32 payload, bool timestamp);

/* host.c, ce.c, sw.c: methods of each class. An unknown method is counted and has no effect. */
enum verdict host_method(struct host_channel *channel, u32 method, u32 data);
enum verdict ce_method(struct host_channel *channel, u32 method, u32 data);
enum verdict sw_method(struct host_channel *channel, u32 method, u32 data);

/* Known method or operation without effect in this model, by number. */
struct idle {
    u32 number;
    const char *reason;
};
bool is_idle(const struct idle *table, size_t count, u32 number);
/* Counts a method that no table contains, and prints the first one. It has no effect. */
enum verdict unknown_method(struct host_channel *channel, const char *class_name, u32 method, u32 data);

#endif
