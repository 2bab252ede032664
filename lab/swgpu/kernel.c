// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * SWGPU_IOC_RUN: copies a kernel from user space, runs it, and returns the values that it read.
 */
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "client.h"
#include "program.h"
#include "swgpu.h"

static bool request_is_valid(const struct swgpu_run *request)
{
    return request->type <= SWGPU_ATOMIC_ADD && request->window && request->count <= SWGPU_RUN_MAX &&
           request->access_millibytes <= SWGPU_ACCESS_MILLIBYTES_MAX && request->flags <= SWGPU_RUN_TOUCH;
}

static bool accesses_are_valid(const struct swgpu *gpu, const struct program *program)
{
    u64 va_end = BIT_ULL(gpu->arch->mmu->va_bits);
    u32 i;

    for (i = 0; i < program->count; i++) {
        const struct swgpu_access *access = &program->accesses[i];

        if (access->va >= va_end || (access->va & 7) || (program->touch && access->value > SWGPU_ATOMIC_ADD))
            return false;
    }
    return true;
}

static long run(struct user_channel *channel, struct swgpu_run *request)
{
    void __user *user_accesses = u64_to_user_ptr(request->accesses);
    u64 bytes = (u64)request->count * sizeof(struct swgpu_access);
    struct program program = {
        .touch = request->flags & SWGPU_RUN_TOUCH,
        .type = (enum access_type)request->type,
        .count = request->count,
        .window = min3(request->window, request->count, (u32)SWGPU_WINDOW_MAX),
        .access_millibytes = request->access_millibytes,
    };
    long status = -ENOMEM;

    BUILD_BUG_ON(SWGPU_READ != ACCESS_READ || SWGPU_WRITE != ACCESS_WRITE || SWGPU_ATOMIC_ADD != ACCESS_ATOMIC);

    if (!request->count)
        return 0;
    program.accesses = kvmalloc(bytes, GFP_KERNEL);
    program.waiting = kvmalloc_array(program.window, sizeof(*program.waiting), GFP_KERNEL);
    if (!program.accesses || !program.waiting)
        goto out;
    status = -EFAULT;
    if (copy_from_user(program.accesses, user_accesses, bytes))
        goto out;
    status = -EINVAL;
    if (!accesses_are_valid(channel->gpu, &program))
        goto out;

    status = program_run(channel, &program);
    request->done = program.done;
    if ((program.touch || program.type != ACCESS_WRITE) && program.done &&
        copy_to_user(user_accesses, program.accesses, bytes))
        status = -EFAULT;
out:
    kvfree(program.waiting);
    kvfree(program.accesses);
    return status;
}

long client_run(struct client *client, void __user *argument)
{
    struct user_channel *channel;
    struct swgpu_run request;
    long status;

    if (copy_from_user(&request, argument, sizeof(request)))
        return -EFAULT;
    if (!request_is_valid(&request))
        return -EINVAL;
    channel = client_find_channel(client, request.channel);
    if (!channel)
        return -ENOENT;
    request.done = 0;
    status = run(channel, &request);
    if (put_user(request.done, &((struct swgpu_run __user *)argument)->done))
        return -EFAULT;
    return status;
}

/* The counters as numbers, in the order of their fields. */
#define COUNTERS (sizeof(struct swgpu_access_counters) / sizeof(u64))

static bool counters_are_valid(const struct swgpu_access_counters *counters)
{
    const u64 *numbers = (const u64 *)counters;
    u32 i;

    for (i = 0; i < COUNTERS; i++) {
        if (numbers[i] > SWGPU_ACCESSED_MAX)
            return false;
    }
    return true;
}

static void add_counters(struct swgpu_access_counters *sum, const struct swgpu_access_counters *more)
{
    const u64 *addends = (const u64 *)more;
    u64 *sums = (u64 *)sum;
    u32 i;

    for (i = 0; i < COUNTERS; i++)
        sums[i] += addends[i];
}

/* Accesses by the mirror, which only the process knows. */
long client_accessed(struct client *client, void __user *argument)
{
    struct swgpu_accessed request;
    struct user_channel *channel;
    bool alive;

    if (copy_from_user(&request, argument, sizeof(request)))
        return -EFAULT;
    if (request.reserved || !counters_are_valid(&request.access))
        return -EINVAL;
    channel = client_find_channel(client, request.channel);
    if (!channel)
        return -ENOENT;
    mutex_lock(&channel->gpu->lock);
    add_counters(&channel->counters, &request.access);
    add_counters(&channel->gpu->counters.access, &request.access);
    alive = channel->state == CHANNEL_BOUND;
    mutex_unlock(&channel->gpu->lock);
    return alive ? 0 : -EFAULT;
}
