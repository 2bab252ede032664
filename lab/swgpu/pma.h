/* SPDX-License-Identifier: GPL-2.0 OR MIT
 *
 * Physical memory allocator: who has which 2 MiB frame of a card's memory.
 */
#ifndef SWGPU_PMA_H
#define SWGPU_PMA_H

#include <linux/spinlock.h>
#include <linux/types.h>

#include "nv_uvm_types.h"

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

    /* How memory taken by others makes the driver give some back. Set while the driver holds the card. */
    void *evict_pages; /* uvmPmaEvictPagesCallback */
    void *evict_range; /* uvmPmaEvictRangeCallback */
    void *evict_data;
};

int pma_init(struct pma *pma, struct swgpu *gpu, u64 bytes);
void pma_destroy(struct pma *pma);
u64 pma_free_bytes(struct pma *pma);

NV_STATUS pma_alloc(struct pma *pma, u64 count, u64 page_bytes, UvmPmaAllocationOptions *options, u64 *pages);
NV_STATUS pma_pin(struct pma *pma, const u64 *pages, u64 count, u64 page_bytes);
void pma_free(struct pma *pma, const u64 *pages, u64 count, u64 page_bytes);

#endif
