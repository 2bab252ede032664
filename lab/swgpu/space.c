// SPDX-License-Identifier: GPL-2.0 OR MIT
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <linux/xarray.h>

#include "space.h"
#include "swgpu.h"

/* Mappings have the lowest free addresses. These stay below 2^40 unless the driver requests an
 * alignment of that size: the GPFIFO's entries hold no more address bits on architectures before
 * Hopper. */
#define RM_VA_START (64ull << 30)
#define RM_VA_END (1ull << 47)
#define RM_VA_ALIGNMENT (2ull << 20)

static atomic_t last_id;

struct gpu_space *space_create(struct swgpu *gpu, u32 pid)
{
    struct gpu_space *space = kzalloc(sizeof(*space), GFP_KERNEL);

    if (!space)
        return NULL;
    kref_init(&space->refs);
    space->gpu = gpu;
    space->id = atomic_inc_return(&last_id);
    space->pid = pid;
    INIT_LIST_HEAD(&space->mappings);
    return space;
}

static void release_memory(struct kref *refs)
{
    struct rm_memory *memory = container_of(refs, struct rm_memory, refs);

    vfree(memory->data);
    kfree(memory);
}

static void release_mapping(struct rm_mapping *mapping)
{
    kref_put(&mapping->memory->refs, release_memory);
    kfree(mapping);
}

static void release_space(struct kref *refs)
{
    struct gpu_space *space = container_of(refs, struct gpu_space, refs);
    struct rm_mapping *mapping, *next;

    space_clear_root(space); /* no page table may refer to it any more */
    list_for_each_entry_safe(mapping, next, &space->mappings, node)
        release_mapping(mapping);
    kfree(space);
}

void space_put(struct gpu_space *space)
{
    kref_put(&space->refs, release_space);
}

void space_set_root(struct gpu_space *space, enum mmu_aperture aperture, u64 address)
{
    mutex_lock(&space->gpu->lock);
    tables_remove_root(space);
    space->has_root = true;
    space->root_aperture = aperture;
    space->root = address;
    tables_add_root(space);
    mutex_unlock(&space->gpu->lock);
}

void space_clear_root(struct gpu_space *space)
{
    mutex_lock(&space->gpu->lock);
    tables_remove_root(space);
    space->has_root = false;
    mutex_unlock(&space->gpu->lock);
}

static struct rm_memory *create_memory(u64 bytes)
{
    struct rm_memory *memory = kzalloc(sizeof(*memory), GFP_KERNEL);

    if (!memory)
        return NULL;
    kref_init(&memory->refs);
    memory->bytes = PAGE_ALIGN(max(bytes, 1ull));
    memory->data = vzalloc(memory->bytes);
    if (memory->data)
        return memory;
    kfree(memory);
    return NULL;
}

/* Inserts the mapping into the first gap that is large enough. */
static bool insert_mapping(struct gpu_space *space, struct rm_mapping *mapping, u64 alignment)
{
    u64 va = ALIGN(RM_VA_START, alignment);
    struct rm_mapping *next;

    list_for_each_entry(next, &space->mappings, node) {
        if (va + mapping->memory->bytes <= next->va)
            break;
        va = ALIGN(next->va + next->memory->bytes, alignment);
    }
    if (va + mapping->memory->bytes > RM_VA_END)
        return false;
    mapping->va = va;
    list_add_tail(&mapping->node, &next->node); /* before `next`, or at the end if there is none */
    return true;
}

u64 space_map_memory(struct gpu_space *space, struct rm_memory *source, u64 bytes, u64 alignment)
{
    struct rm_mapping *mapping = kzalloc(sizeof(*mapping), GFP_KERNEL);
    u64 va = 0;

    if (!mapping)
        return 0;
    if (source)
        kref_get(&source->refs);
    else
        source = create_memory(bytes);
    if (!source) {
        kfree(mapping);
        return 0;
    }
    mapping->memory = source;

    mutex_lock(&space->gpu->lock);
    if (insert_mapping(space, mapping, max_t(u64, alignment, RM_VA_ALIGNMENT)))
        va = mapping->va;
    mutex_unlock(&space->gpu->lock);
    if (!va)
        release_mapping(mapping);
    return va;
}

void space_unmap_memory(struct gpu_space *space, u64 va)
{
    struct rm_mapping *mapping;

    mutex_lock(&space->gpu->lock);
    mapping = space_find_mapping(space, va);
    if (mapping)
        list_del(&mapping->node);
    mutex_unlock(&space->gpu->lock);
    if (mapping)
        release_mapping(mapping);
    else
        swgpu_error(space->gpu, "free of memory at 0x%llx that is not mapped", va);
}

/* === Handles === */

struct handle_entry {
    enum handle_type type;
    u32 client;
    void *object;
};

static DEFINE_XARRAY_ALLOC1(handles);
static DEFINE_MUTEX(handles_lock);
static u32 next_handle = 1;

u32 handle_create(enum handle_type type, u32 client, void *object)
{
    struct handle_entry *entry = kmalloc(sizeof(*entry), GFP_KERNEL);
    u32 handle = 0;

    if (!entry)
        return 0;
    *entry = (struct handle_entry){ .type = type, .client = client, .object = object };
    mutex_lock(&handles_lock);
    /* Cyclic: the fault buffer may hold packets with the instance pointer of a channel that has
     * just been destroyed. */
    if (xa_alloc_cyclic(&handles, &handle, entry, XA_LIMIT(1, 0xfffff), &next_handle, GFP_KERNEL) < 0) {
        kfree(entry);
        handle = 0;
    }
    mutex_unlock(&handles_lock);
    return handle;
}

void handle_destroy(u32 handle)
{
    mutex_lock(&handles_lock);
    kfree(xa_erase(&handles, handle));
    mutex_unlock(&handles_lock);
}

void *handle_get(enum handle_type type, u32 client, u32 handle, void (*get)(void *object))
{
    struct handle_entry *entry;
    void *object = NULL;

    mutex_lock(&handles_lock);
    entry = xa_load(&handles, handle);
    if (entry && entry->type == type && entry->client == client) {
        object = entry->object;
        get(object);
    }
    mutex_unlock(&handles_lock);
    return object;
}

void handles_destroy(void)
{
    xa_destroy(&handles);
}
