/* SPDX-License-Identifier: GPL-2.0 OR MIT
 *
 * User channels and the access programs that run on them. All under the card's lock unless noted.
 */
#ifndef SWGPU_PROGRAM_H
#define SWGPU_PROGRAM_H

#include <linux/completion.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/types.h>

#include "mmu.h"
#include "swgpu_ioctl.h"

struct gpu_space;
struct swgpu;

enum user_channel_state {
    CHANNEL_UNBOUND, /* the driver does not know it (yet), so that nobody would service its faults */
    CHANNEL_BOUND,
    CHANNEL_STOPPED, /* by the driver: it is tearing the address space down */
    CHANNEL_FAULTED, /* one of its accesses was cancelled: as on a real card, nothing runs on it any more */
};

struct user_channel {
    struct kref refs;
    struct list_head node; /* in swgpu.user_channels */
    struct swgpu *gpu;
    struct gpu_space *space;
    u32 handle;
    enum user_channel_state state;
    struct mutex turn; /* of the callers of program_run(); taken before the card's lock */
    struct program *running;
    struct swgpu_access_counters counters;
};

/* Accesses in the order of issue. Faulted accesses wait, at most `window` of them, until a
 * replay; later ones continue meanwhile. */
struct program {
    struct swgpu_access *accesses;
    bool touch; /* the accesses only translate: `value` is first the type of each, then its place */
    enum access_type type; /* of all; unused with `touch` */
    u32 count;
    u32 window;
    u64 access_millibytes;
    u32 next; /* first access that was not issued */
    u32 done;
    u32 *waiting; /* indices of the waiting accesses, in order */
    u32 waiting_count;
    u64 replay_generation; /* of the last retry of the waiting accesses */
    int status;
    struct completion finished;
};

/* Waiting accesses that the driver cancels. */
struct program_cancel {
    bool by_instance; /* all accesses of the channel with this instance pointer, or: */
    u64 instance;
    enum mmu_aperture root_aperture; /* accesses in the address spaces with this root, on this page, of these types */
    u64 root;
    u64 page_va;
    u32 access_types; /* mask of BIT(enum access_type) */
};

/* Creates a channel with one reference on itself and one on its space. Takes the lock itself, as
 * do the next two functions. */
struct user_channel *user_channel_create(struct swgpu *gpu, struct gpu_space *space);
void user_channel_put(struct user_channel *channel);
/* Returns false if it has been bound, stopped or has faulted before: a channel is bound once. */
bool user_channel_bind(struct user_channel *channel);
/* Ends the running program. A faulted channel stays faulted. */
void user_channel_stop(struct user_channel *channel);

/* Returns the address by which fault packets name the channel: no memory, only a unique number. */
static inline u64 user_channel_instance(const struct user_channel *channel)
{
    return (u64)channel->handle << 12;
}

/* Runs a program to its end, after those that came before it, and returns its status: 0, -EFAULT
 * cancelled, -EINTR killed, -ECANCELED stopped, -ENXIO channel not bound. Takes the lock itself,
 * sleeps. */
int program_run(struct user_channel *channel, struct program *program);

/* Issues and retries up to a slice of accesses; returns whether any made progress. */
bool program_step(struct user_channel *channel);

/* Whether no access can complete before a replay. */
bool program_is_stuck(const struct user_channel *channel);

/* Cancels waiting accesses of all channels for the driver. */
void program_cancel(struct swgpu *gpu, const struct program_cancel *cancel);

#endif
