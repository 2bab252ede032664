/* SPDX-License-Identifier: GPL-2.0 OR MIT
 *
 * Physical memory allocator: who has which 2 MiB frame of a card's memory.
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

    /* How memory taken by others makes the driver give some back. Set while the driver holds the card; the lock keeps
     * it there while a call is under way. */
    struct rw_semaphore evict_lock;
    uvmPmaEvictPagesCallback evict_pages;
    void *evict_data;
};

int pma_init(struct pma *pma, struct swgpu *gpu, u64 bytes);
void pma_destroy(struct pma *pma);
u64 pma_free_bytes(struct pma *pma);

/* From now on the driver can be asked for frames; with NULL, not any more, and no such call is under way. */
void pma_set_eviction(struct pma *pma, uvmPmaEvictPagesCallback evict_pages, void *data);

/* The driver's own. */
NV_STATUS pma_alloc(struct pma *pma, u64 count, u64 page_bytes, UvmPmaAllocationOptions *options, u64 *pages);
NV_STATUS pma_pin(struct pma *pma, const u64 *pages, u64 count, u64 page_bytes);
void pma_free(struct pma *pma, const u64 *pages, u64 count, u64 page_bytes);

/* One frame for somebody else, which the driver has to give up where none is free. Sleeps. -ENOMEM if it cannot. */
int pma_take(struct pma *pma, u64 *page);

#endif
