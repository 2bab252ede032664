// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * SWGPU_IOC_ALLOC and SWGPU_IOC_FREE: memory of the card that is not managed, as of cudaMalloc. It
 * is never mapped: its only effect is that the driver cannot use it.
 */
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "client.h"
#include "swgpu.h"

struct allocation {
    struct list_head node; /* in client.allocations */
    struct swgpu *gpu;
    u32 handle; /* unique in the client */
    u32 frame_count;
    u64 frames[];
};

static void free_allocation(struct allocation *allocation)
{
    pma_free(&allocation->gpu->pma, allocation->frames, allocation->frame_count, PMA_FRAME_BYTES);
    kvfree(allocation);
}

/* Allocates frame by frame, so that a killed process need not wait until all are evicted. */
static int take_frames(struct allocation *allocation, u32 frame_count)
{
    while (allocation->frame_count < frame_count) {
        int status = -EINTR;

        if (!fatal_signal_pending(current))
            status = pma_take(&allocation->gpu->pma, &allocation->frames[allocation->frame_count]);
        if (status)
            return status;
        ledger_taken(allocation->gpu, allocation->frames[allocation->frame_count], SWGPU_TAKER_ALLOCATION,
                     task_tgid_nr(current));
        allocation->frame_count++;
    }
    return 0;
}

static struct allocation *allocate(struct swgpu *gpu, u64 bytes)
{
    u64 frame_count = DIV_ROUND_UP_ULL(bytes, PMA_FRAME_BYTES);
    struct allocation *allocation;
    int status;

    if (frame_count > gpu->pma.frame_count)
        return ERR_PTR(-ENOMEM);
    allocation = kvzalloc(struct_size(allocation, frames, frame_count), GFP_KERNEL);
    if (!allocation)
        return ERR_PTR(-ENOMEM);
    allocation->gpu = gpu;
    status = take_frames(allocation, frame_count);
    if (!status)
        return allocation;
    free_allocation(allocation);
    return ERR_PTR(status);
}

long client_alloc(struct client *client, void __user *argument)
{
    struct allocation *allocation;
    struct swgpu_alloc request;
    struct swgpu *gpu;

    if (copy_from_user(&request, argument, sizeof(request)))
        return -EFAULT;
    gpu = swgpu_at(request.gpu);
    if (!gpu)
        return -ENODEV;
    if (!request.bytes)
        return -EINVAL;
    allocation = allocate(gpu, min(request.bytes, U64_MAX - PMA_FRAME_BYTES));
    if (IS_ERR(allocation))
        return PTR_ERR(allocation);

    mutex_lock(&client->lock);
    request.handle = allocation->handle = ++client->last_allocation;
    list_add(&allocation->node, &client->allocations);
    mutex_unlock(&client->lock);
    return copy_to_user(argument, &request, sizeof(request)) ? -EFAULT : 0;
}

/* Removes it from the client's list, so that only one caller frees it. */
static struct allocation *remove_allocation(struct client *client, u32 handle)
{
    struct allocation *allocation, *found = NULL;

    mutex_lock(&client->lock);
    list_for_each_entry(allocation, &client->allocations, node) {
        if (allocation->handle == handle) {
            found = allocation;
            list_del(&found->node);
            break;
        }
    }
    mutex_unlock(&client->lock);
    return found;
}

long client_free(struct client *client, void __user *argument)
{
    struct allocation *allocation;
    struct swgpu_free request;

    if (copy_from_user(&request, argument, sizeof(request)))
        return -EFAULT;
    allocation = remove_allocation(client, request.handle);
    if (!allocation)
        return -ENOENT;
    free_allocation(allocation);
    return 0;
}

void client_free_all(struct client *client)
{
    struct allocation *allocation, *next;

    list_for_each_entry_safe(allocation, next, &client->allocations, node)
        free_allocation(allocation);
}
