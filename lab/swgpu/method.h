/* SPDX-License-Identifier: GPL-2.0 OR MIT
 *
 * Methods of the driver's channels: those of each class, and what they share. A method knows its
 * channel's state, and nothing of how channels run. All under the card's lock.
 */
#ifndef SWGPU_METHOD_H
#define SWGPU_METHOD_H

#include <linux/types.h>

#include "channel.h"

/* Effect of a method on its channel. */
enum verdict {
    VERDICT_NEXT,  /* done, continue */
    VERDICT_STALL, /* a semaphore is not released yet: retry the method later */
    VERDICT_ERROR, /* the channel is dead, as after robust channel recovery (RC) */
};

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
