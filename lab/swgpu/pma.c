// SPDX-License-Identifier: GPL-2.0 OR MIT
#include <linux/bitmap.h>

#include "nvmisc.h"
#include "nvstatus.h"

#include "pma.h"
#include "swgpu.h"

/* Flags without effect here: there is one region of one speed and protection, and only the
 * driver evicts. */
#define FLAGS_WITHOUT_EFFECT                                                                                           \
    (UVM_PMA_ALLOCATE_DONT_EVICT | UVM_PMA_ALLOCATE_NO_ZERO | UVM_PMA_ALLOCATE_TURN_BLACKLIST_OFF)
#define FLAGS_MODELLED (UVM_PMA_ALLOCATE_PINNED | UVM_PMA_ALLOCATE_CONTIGUOUS | UVM_PMA_ALLOCATE_ALLOW_PARTIAL)

int pma_init(struct pma *pma, struct swgpu *gpu, u64 bytes)
{
    pma->gpu = gpu;
    spin_lock_init(&pma->lock);
    init_rwsem(&pma->evict_lock);
    pma->frame_count = pma->free_count = bytes >> PMA_FRAME_SHIFT;
    pma->used = bitmap_zalloc(pma->frame_count, GFP_KERNEL);
    pma->pinned = bitmap_zalloc(pma->frame_count, GFP_KERNEL);
    if (!pma->used || !pma->pinned)
        return -ENOMEM;
    pma->stats.numPages2m = pma->frame_count;
    pma->stats.numFreePages2m = pma->frame_count;
    pma->stats.numFreePages64k = pma->frame_count * (PMA_FRAME_BYTES / UVM_PAGE_SIZE_64K);
    return 0;
}

void pma_destroy(struct pma *pma)
{
    bitmap_free(pma->used);
    bitmap_free(pma->pinned);
}

u64 pma_free_bytes(struct pma *pma)
{
    return (u64)READ_ONCE(pma->free_count) << PMA_FRAME_SHIFT;
}

static void set_free_count(struct pma *pma, u32 free_count)
{
    WRITE_ONCE(pma->free_count, free_count);
    pma->stats.numFreePages2m = free_count;
    pma->stats.numFreePages64k = free_count * (PMA_FRAME_BYTES / UVM_PAGE_SIZE_64K);
}

static void take(struct pma *pma, u32 frame, bool pinned)
{
    __set_bit(frame, pma->used);
    if (pinned)
        __set_bit(frame, pma->pinned);
    set_free_count(pma, pma->free_count - 1);
}

static NV_STATUS alloc_contiguous(struct pma *pma, u64 count, bool pinned, u64 *pages)
{
    unsigned long first = bitmap_find_next_zero_area(pma->used, pma->frame_count, 0, count, 0);
    u64 i;

    if (first >= pma->frame_count)
        return NV_ERR_NO_MEMORY;
    for (i = 0; i < count; i++)
        take(pma, first + i, pinned);
    pages[0] = (u64)first << PMA_FRAME_SHIFT; /* PMA's contract: the first page represents the whole allocation */
    return NV_OK;
}

static NV_STATUS alloc_scattered(struct pma *pma, u64 count, UvmPmaAllocationOptions *options, u64 *pages)
{
    unsigned long frame = 0;
    u64 i;

    if (options->flags & UVM_PMA_ALLOCATE_ALLOW_PARTIAL)
        count = min_t(u64, count, pma->free_count);
    if (!count || count > pma->free_count)
        return NV_ERR_NO_MEMORY;
    for (i = 0; i < count; i++) {
        frame = find_next_zero_bit(pma->used, pma->frame_count, frame);
        take(pma, frame, options->flags & UVM_PMA_ALLOCATE_PINNED);
        pages[i] = (u64)frame << PMA_FRAME_SHIFT;
    }
    options->numPagesAllocated = count;
    return NV_OK;
}

NV_STATUS pma_alloc(struct pma *pma, u64 count, u64 page_bytes, UvmPmaAllocationOptions *options, u64 *pages)
{
    NV_STATUS status;

    if (page_bytes != PMA_FRAME_BYTES || (options->flags & ~(FLAGS_MODELLED | FLAGS_WITHOUT_EFFECT))) {
        swgpu_error(pma->gpu, "allocation of %llu-byte frames with flags 0x%x is not modelled", page_bytes,
                    options->flags);
        return NV_ERR_NOT_SUPPORTED;
    }

    spin_lock(&pma->lock);
    if (options->flags & UVM_PMA_ALLOCATE_CONTIGUOUS)
        status = alloc_contiguous(pma, count, options->flags & UVM_PMA_ALLOCATE_PINNED, pages);
    else
        status = alloc_scattered(pma, count, options, pages);
    spin_unlock(&pma->lock);
    options->resultFlags = 0; /* zeroed memory is not promised: the driver clears it if necessary */
    return status;
}

/* Whether this is a whole, allocated frame. */
static bool frame_in_use(struct pma *pma, u64 page, u64 page_bytes)
{
    u64 frame = page >> PMA_FRAME_SHIFT;

    return page_bytes == PMA_FRAME_BYTES && IS_ALIGNED(page, PMA_FRAME_BYTES) && frame < pma->frame_count &&
           test_bit(frame, pma->used);
}

NV_STATUS pma_pin(struct pma *pma, const u64 *pages, u64 count, u64 page_bytes)
{
    NV_STATUS status = NV_OK;
    u64 i;

    for (i = 0; i < count; i++) {
        spin_lock(&pma->lock);
        if (frame_in_use(pma, pages[i], page_bytes))
            __set_bit(pages[i] >> PMA_FRAME_SHIFT, pma->pinned);
        else
            status = NV_ERR_INVALID_ARGUMENT;
        spin_unlock(&pma->lock);
        if (status != NV_OK) {
            swgpu_error(pma->gpu, "pin of a frame at 0x%llx that nobody has", pages[i]);
            break;
        }
    }
    return status;
}

void pma_free(struct pma *pma, const u64 *pages, u64 count, u64 page_bytes)
{
    u64 i;

    for (i = 0; i < count; i++) {
        bool ok;

        spin_lock(&pma->lock);
        ok = frame_in_use(pma, pages[i], page_bytes);
        if (ok) {
            ledger_freed(pma->gpu, pages[i]);
            __clear_bit(pages[i] >> PMA_FRAME_SHIFT, pma->used);
            __clear_bit(pages[i] >> PMA_FRAME_SHIFT, pma->pinned);
            set_free_count(pma, pma->free_count + 1);
        }
        spin_unlock(&pma->lock);
        if (!ok)
            swgpu_error(pma->gpu, "free of a frame at 0x%llx that nobody has", pages[i]);
    }
}

void pma_set_eviction(struct pma *pma, uvmPmaEvictPagesCallback evict_pages, void *data)
{
    down_write(&pma->evict_lock);
    pma->evict_pages = evict_pages;
    pma->evict_data = data;
    up_write(&pma->evict_lock);
}

/* Evicts a frame. It stays allocated, and belongs to the caller. */
static NV_STATUS evict(struct pma *pma, u64 *page)
{
    NV_STATUS status = NV_ERR_NO_MEMORY;

    down_read(&pma->evict_lock);
    if (pma->evict_pages)
        status = pma->evict_pages(pma->evict_data, PMA_FRAME_BYTES, page, 1, 0,
                                  (u64)pma->frame_count << PMA_FRAME_SHIFT, UVM_PMA_GPU_MEMORY_TYPE_UNPROTECTED);
    up_read(&pma->evict_lock);
    return status == NV_OK ? pma_pin(pma, page, 1, PMA_FRAME_BYTES) : status;
}

int pma_take(struct pma *pma, u64 *page)
{
    UvmPmaAllocationOptions options = { .flags = UVM_PMA_ALLOCATE_PINNED };

    if (pma_alloc(pma, 1, PMA_FRAME_BYTES, &options, page) == NV_OK || evict(pma, page) == NV_OK)
        return 0;
    /* The driver may have freed frames that it could not hand over. */
    return pma_alloc(pma, 1, PMA_FRAME_BYTES, &options, page) == NV_OK ? 0 : -ENOMEM;
}
