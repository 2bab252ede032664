// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Mappings of the mirror, and their misses. The lock order is mmap_lock, the card's lock, the
 * mapping's i_mmap_rwsem and the page tables' locks. A miss drops mmap_lock while it waits for the
 * driver, whose bottom half reads under the mmap_lock of this process.
 */
#include <linux/mm.h>
#include <linux/vmalloc.h>

#include "nv-mm.h"

#include "mirror.h"
#include "mmu.h"
#include "program.h"
#include "space.h"
#include "swgpu.h"

#define BLOCK_BYTES (2ull << 20)
#define PERMISSIONS_PGOFF (SWGPU_PERMISSIONS_OFFSET >> PAGE_SHIFT)

static vm_fault_t permission_fault(struct vm_fault *vmf)
{
    struct page *page = mirror_permission_page(vmf->vma->vm_private_data, vmf->pgoff - PERMISSIONS_PGOFF);

    if (!page)
        return VM_FAULT_OOM;
    get_page(page);
    vmf->page = page;
    return 0;
}

static const struct vm_operations_struct permission_operations = {
    .fault = permission_fault,
};

static unsigned long target_pfn(const struct mmu_target *target)
{
    return target->aperture == APERTURE_SYSMEM ? PHYS_PFN(target->address) : vmalloc_to_pfn(target->memory);
}

static vm_fault_t insert(struct vm_fault *vmf, u64 va, unsigned long pfn, bool writable)
{
    struct vm_area_struct *vma = vmf->vma;
    unsigned long address = vma->vm_start + (va - ((u64)vma->vm_pgoff << PAGE_SHIFT));
    unsigned long flags = writable ? vma->vm_flags : vma->vm_flags & ~VM_WRITE;

    /* Not vm_page_prot, which is read-only because there is a pfn_mkwrite(). */
    return vmf_insert_pfn_prot(vma, address, pfn, vm_get_page_prot(flags));
}

/* Inserts all pages of the block of `va` that are in the card's memory, with their permissions: they
 * no longer cause a fault of the mirror. Returns the result for the page of `va`. */
static vm_fault_t insert_block(struct vm_fault *vmf, struct gpu_space *space, u64 va)
{
    u64 block = ALIGN_DOWN(va, BLOCK_BYTES), permitted = block;
    u64 vma_begin = (u64)vmf->vma->vm_pgoff << PAGE_SHIFT;
    u64 begin = max(block, vma_begin);
    u64 end = min(block + BLOCK_BYTES, vma_begin + (vmf->vma->vm_end - vmf->vma->vm_start));
    vm_fault_t result = VM_FAULT_SIGBUS;

    while (permitted < block + BLOCK_BYTES)
        permitted = mirror_permit(space, permitted, block + BLOCK_BYTES);
    while (begin < end) {
        struct mmu_target target;
        bool writable = mmu_translate(space, begin, ACCESS_WRITE, &target) == MMU_NO_FAULT;
        u64 page_end;

        if ((!writable && mmu_translate(space, begin, ACCESS_READ, &target) != MMU_NO_FAULT) ||
            !space_is_local(space, &target)) {
            begin += SWGPU_PAGE_BYTES;
            continue;
        }
        page_end = min(begin + target.bytes, end);
        for (; begin < page_end; begin += SWGPU_PAGE_BYTES) {
            vm_fault_t inserted = insert(vmf, begin, target_pfn(&target), writable);

            if (begin == va)
                result = inserted;
            if (inserted != VM_FAULT_NOPAGE)
                return begin > va ? result : inserted;
            target.memory += SWGPU_PAGE_BYTES;
        }
    }
    return result;
}

static vm_fault_t insert_translated(struct vm_fault *vmf, struct mirror *mirror, u64 va,
                                    const struct mmu_target *target)
{
    struct mmu_target ignored;
    bool writable = mmu_translate(mirror->space, va, ACCESS_WRITE, &ignored) == MMU_NO_FAULT;

    if (space_is_local(mirror->space, target))
        return insert_block(vmf, mirror->space, va);
    if (!target->memory || target->aperture == APERTURE_RM)
        return VM_FAULT_SIGBUS;
    return insert(vmf, va, target_pfn(target), writable);
}

/* Raises a fault for the access and waits until the driver has serviced it. Called without locks. */
static void touch(struct user_channel *channel, u64 va, enum access_type type)
{
    struct swgpu_access access = { .va = va, .value = type };
    u32 waiting[1];
    struct program program = {
        .accesses = &access,
        .touch = true,
        .count = 1,
        .window = 1,
        .waiting = waiting,
    };

    program_run(channel, &program); /* its errors show when the access is repeated */
}

static vm_fault_t mirror_fault(struct vm_fault *vmf)
{
    struct mirror *mirror = vmf->vma->vm_private_data;
    struct user_channel *channel = mirror->channel;
    struct swgpu *gpu = mirror->space->gpu;
    u64 va = (u64)vmf->pgoff << PAGE_SHIFT;
    enum access_type type = ACCESS_READ;
    struct mmu_target target;
    vm_fault_t result = VM_FAULT_RETRY;
    struct file *file;

    mutex_lock(&gpu->lock);
    if ((vmf->flags & FAULT_FLAG_WRITE) || mirror->write_va == va)
        type = ACCESS_WRITE;
    if (channel->state == CHANNEL_UNBOUND)
        result = VM_FAULT_SIGBUS;
    else if (channel->state != CHANNEL_BOUND)
        result = insert(vmf, va, page_to_pfn(mirror->poison), true);
    else if (mmu_translate(mirror->space, va, type, &target) == MMU_NO_FAULT)
        result = insert_translated(vmf, mirror, va, &target);
    if (result != VM_FAULT_RETRY && mirror->write_va == va)
        mirror->write_va = MIRROR_NO_VA;
    mutex_unlock(&gpu->lock);
    if (result != VM_FAULT_RETRY || (vmf->flags & FAULT_FLAG_RETRY_NOWAIT))
        return result;
    if (!(vmf->flags & FAULT_FLAG_ALLOW_RETRY))
        return VM_FAULT_SIGBUS;

    file = get_file(vmf->vma->vm_file); /* and with it the mirror, the channel and this module */
    mmap_read_unlock(vmf->vma->vm_mm);
    touch(channel, va, type);
    fput(file);
    return VM_FAULT_RETRY;
}

/* A write to a page that was inserted for reading: removes it, so that the access is repeated as a
 * miss. It cannot wait for the driver itself, as it may not drop mmap_lock. The miss is one of a
 * write even if it reads: an emulated CPU does an atomic as a load and a store, and would have the
 * page inserted for reading again. There is one such page at a time: of two threads that write to
 * read-only pages at once, one may repeat its fault until the other is done. */
static vm_fault_t mirror_mkwrite(struct vm_fault *vmf)
{
    struct mirror *mirror = vmf->vma->vm_private_data;

    mutex_lock(&mirror->space->gpu->lock);
    mirror->write_va = (u64)vmf->pgoff << PAGE_SHIFT;
    mutex_unlock(&mirror->space->gpu->lock);
    zap_vma_ptes(vmf->vma, vmf->address & PAGE_MASK, PAGE_SIZE);
    return VM_FAULT_NOPAGE;
}

static const struct vm_operations_struct mirror_operations = {
    .fault = mirror_fault,
    .pfn_mkwrite = mirror_mkwrite,
};

static int map_permissions(struct mirror *mirror, struct vm_area_struct *vma)
{
    u64 end = ((u64)(vma->vm_pgoff - PERMISSIONS_PGOFF) << PAGE_SHIFT) + (vma->vm_end - vma->vm_start);

    if (end > BIT_ULL(mirror->space->gpu->arch->mmu->va_bits) / SWGPU_PAGE_BYTES)
        return -EINVAL;
    vma->vm_ops = &permission_operations;
    return 0;
}

static int map_space(struct mirror *mirror, struct vm_area_struct *vma)
{
    u64 end = ((u64)vma->vm_pgoff << PAGE_SHIFT) + (vma->vm_end - vma->vm_start);

    if (end > BIT_ULL(mirror->space->gpu->arch->mmu->va_bits))
        return -EINVAL;
    nv_vm_flags_set(vma, VM_PFNMAP);
    vma->vm_ops = &mirror_operations;
    return 0;
}

int mirror_mmap(struct mirror *mirror, struct vm_area_struct *vma)
{
    if (!mirror->space)
        return -ENXIO;
    if (!(vma->vm_flags & VM_SHARED))
        return -EINVAL;
    vma->vm_private_data = mirror;
    /* A child of the process has no channel. */
    nv_vm_flags_set(vma, VM_DONTEXPAND | VM_DONTDUMP | VM_DONTCOPY);
    return vma->vm_pgoff >= PERMISSIONS_PGOFF ? map_permissions(mirror, vma) : map_space(mirror, vma);
}
