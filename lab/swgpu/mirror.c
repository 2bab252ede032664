// SPDX-License-Identifier: GPL-2.0 OR MIT
#include <linux/mm.h>
#include <linux/shmem_fs.h>

#include "mirror.h"
#include "mmu.h"
#include "space.h"
#include "swgpu.h"

int mirror_init(struct mirror *mirror)
{
    xa_init(&mirror->permission_pages);
    mirror->write_va = MIRROR_NO_VA;
    mirror->poison = alloc_page(GFP_KERNEL | __GFP_ZERO);
    if (!mirror->poison)
        return -ENOMEM;
    mirror->anchor = shmem_file_setup("swgpu", 0, VM_NORESERVE);
    if (!IS_ERR(mirror->anchor))
        return 0;
    __free_page(mirror->poison);
    return PTR_ERR(mirror->anchor);
}

void mirror_destroy(struct mirror *mirror)
{
    struct page *page;
    unsigned long index;

    xa_for_each(&mirror->permission_pages, index, page) __free_page(page);
    xa_destroy(&mirror->permission_pages);
    __free_page(mirror->poison);
    fput(mirror->anchor);
}

void mirror_attach(struct mirror *mirror, struct gpu_space *space, struct user_channel *channel)
{
    mutex_lock(&space->gpu->lock);
    mirror->channel = channel;
    mirror->space = space;
    space->mirror = mirror;
    mutex_unlock(&space->gpu->lock);
}

void mirror_detach(struct mirror *mirror)
{
    struct gpu_space *space = mirror->space;

    mutex_lock(&space->gpu->lock);
    space->mirror = NULL;
    mutex_unlock(&space->gpu->lock);
    mirror->space = NULL;
}

/* === Permissions === */

struct page *mirror_permission_page(struct mirror *mirror, unsigned long index)
{
    struct page *page = xa_load(&mirror->permission_pages, index), *other;

    if (page)
        return page;
    page = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
    if (!page)
        return NULL;
    other = xa_cmpxchg(&mirror->permission_pages, index, NULL, page, GFP_KERNEL);
    if (!other)
        return page;
    __free_page(page);
    return xa_is_err(other) ? NULL : other;
}

static void set_permissions(struct mirror *mirror, u64 va, u64 end, u8 permission)
{
    for (; va < end; va += SWGPU_PAGE_BYTES) {
        u64 index = va / SWGPU_PAGE_BYTES;
        struct page *page = permission ? mirror_permission_page(mirror, index / PAGE_SIZE) :
                                         xa_load(&mirror->permission_pages, index / PAGE_SIZE);

        if (page)
            WRITE_ONCE(((u8 *)page_address(page))[index % PAGE_SIZE], permission);
    }
}

static bool may(struct gpu_space *space, u64 va, enum access_type type, struct mmu_target *target)
{
    return mmu_translate(space, va, type, target) == MMU_NO_FAULT && space_is_local(space, target);
}

u64 mirror_permit(struct gpu_space *space, u64 va, u64 end)
{
    struct mmu_target target;
    u8 permission = SWGPU_MAY_READ;

    va = ALIGN_DOWN(va, SWGPU_PAGE_BYTES);
    /* What allows more comes first: most pages take one walk. */
    if (may(space, va, ACCESS_ATOMIC, &target))
        permission |= SWGPU_MAY_WRITE | SWGPU_MAY_ATOMIC;
    else if (may(space, va, ACCESS_WRITE, &target))
        permission |= SWGPU_MAY_WRITE;
    else if (!may(space, va, ACCESS_READ, &target))
        return va + SWGPU_PAGE_BYTES;
    end = min(end, va + target.bytes);
    if (space->mirror)
        set_permissions(space->mirror, va, end, permission);
    return end;
}

/* === Removal === */

static void flush(struct mirror *mirror)
{
    u64 bytes = mirror->stale_end - mirror->stale_begin;

    if (bytes)
        unmap_mapping_range(mirror->anchor->f_mapping, mirror->stale_begin, bytes, 1);
    mirror->stale_begin = mirror->stale_end = 0;
}

void mirror_flush(struct gpu_space *space)
{
    if (space->mirror)
        flush(space->mirror);
}

void mirror_invalidate(struct gpu_space *space, u64 va, u64 bytes)
{
    struct mirror *mirror = space->mirror;

    if (!mirror)
        return;
    set_permissions(mirror, va, va + bytes, 0);
    if (mirror->stale_end != va) { /* entries are mostly written in order */
        flush(mirror);
        mirror->stale_begin = va;
    }
    mirror->stale_end = va + bytes;
}

void mirror_reset(struct gpu_space *space)
{
    struct mirror *mirror = space->mirror;
    struct page *page;
    unsigned long index;

    if (!mirror)
        return;
    xa_for_each(&mirror->permission_pages, index, page) clear_page(page_address(page));
    unmap_mapping_range(mirror->anchor->f_mapping, 0, SWGPU_PERMISSIONS_OFFSET, 1);
}
