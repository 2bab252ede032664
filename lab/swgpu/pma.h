/* SPDX-License-Identifier: GPL-2.0 OR MIT
 *
 * Physical memory allocator: owners of the 2 MiB frames of a card's memory.
 */
#ifndef SWGPU_PMA_H
#define SWGPU_PMA_H

#include <linux/rwsem.h>
#include <linux/spinlock.h>
#include <linux/types.h>

#include "nv_uvm_interface.h"

#define PMA_FRAME_SHIFT 21
#define PMA_FRAME_BYTES (1ull << PMA_FRAME_SHIFT)

struct swgpu;

struct pma {
    struct swgpu *gpu;
    spinlock_t lock;
    u32 frame_count;
    u32 free_count;
    unsigned long *used;    /* bitmap of frames */
    unsigned long *pinned;  /* bitmap, a subset of used: may not be evicted */
    UvmPmaStatistics stats; /* the driver reads it without a lock */

    /* Callback by which memory allocated by others makes the driver evict. Set while the driver
     * holds the card; the lock keeps it valid during a call. */
    struct rw_semaphore evict_lock;
    uvmPmaEvictPagesCallback evict_pages;
    void *evict_data;
};

int pma_init(struct pma *pma, struct swgpu *gpu, u64 bytes);
void pma_destroy(struct pma *pma);
u64 pma_free_bytes(struct pma *pma);

/* Sets the driver's callback for frames. With NULL, removes it, and waits for calls in progress. */
void pma_set_eviction(struct pma *pma, uvmPmaEvictPagesCallback evict_pages, void *data);

/* Allocations of the driver. */
NV_STATUS pma_alloc(struct pma *pma, u64 count, u64 page_bytes, UvmPmaAllocationOptions *options, u64 *pages);
NV_STATUS pma_pin(struct pma *pma, const u64 *pages, u64 count, u64 page_bytes);
void pma_free(struct pma *pma, const u64 *pages, u64 count, u64 page_bytes);

/* Allocates one frame for another user; the driver has to evict if none is free. Sleeps. -ENOMEM
 * if it cannot. */
int pma_take(struct pma *pma, u64 *page);

#endif
