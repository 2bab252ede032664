/* SPDX-License-Identifier: GPL-2.0 OR MIT
 *
 * GPU address spaces, the memory that the resource manager maps into them, and the handles by which
 * user programs name their objects.
 */
#ifndef SWGPU_SPACE_H
#define SWGPU_SPACE_H

#include <linux/kref.h>
#include <linux/list.h>
#include <linux/types.h>

#include "mmu.h"

struct mirror;
struct swgpu;

/*
 * Memory of the resource manager. A real one would allocate it from the card or the system and map
 * it through the page tables. Here it is kernel memory, and a mapping is an entry in a list, so
 * that it uses none of the frames that the driver manages.
 */
struct rm_memory {
    struct kref refs;
    u8 *data;
    u64 bytes;
};

struct rm_mapping {
    struct list_head node;
    struct rm_memory *memory;
    u64 va;
};

struct gpu_space {
    struct kref refs;
    struct swgpu *gpu;
    struct list_head mappings; /* struct rm_mapping by address; empty except in the driver's spaces */
    u32 id;                    /* unique; never 0 */
    u32 pid;                   /* process that created it; 0 for the driver's */
    struct mirror *mirror;     /* of its client; NULL for none. Under the card's lock */
    bool has_root;
    enum mmu_aperture root_aperture;
    u64 root; /* physical address of the page directory base */
};

/* Creates an address space of a process, or of the driver (pid 0), with one reference. */
struct gpu_space *space_create(struct swgpu *gpu, u32 pid);
void space_put(struct gpu_space *space);

void space_set_root(struct gpu_space *space, enum mmu_aperture aperture, u64 address);
void space_clear_root(struct gpu_space *space);

/* Maps memory of the resource manager: new memory, or (`source` not NULL) existing memory once
 * more. Returns 0 for none. */
u64 space_map_memory(struct gpu_space *space, struct rm_memory *source, u64 bytes, u64 alignment);
void space_unmap_memory(struct gpu_space *space, u64 va);
/* Finds the mapping that contains `va`. Under the card's lock. Inline for the MMU, which is below
 * spaces. */
static inline struct rm_mapping *space_find_mapping(struct gpu_space *space, u64 va)
{
    struct rm_mapping *mapping;

    list_for_each_entry(mapping, &space->mappings, node) {
        if (va - mapping->va < mapping->memory->bytes)
            return mapping;
    }
    return NULL;
}

/* Whether the target is in the memory of the space's card. */
static inline bool space_is_local(const struct gpu_space *space, const struct mmu_target *target)
{
    return target->aperture == APERTURE_VIDMEM && target->owner == space->gpu;
}

/* Type of the object of a handle. All clients share one number space: a channel's handle is also
 * its instance pointer. */
enum handle_type {
    HANDLE_CLIENT,
    HANDLE_SPACE,
    HANDLE_CHANNEL,
};

/* Returns 0 if there is no memory for it. */
u32 handle_create(enum handle_type type, u32 client, void *object);
void handle_destroy(u32 handle);
/* Returns the object with one more reference, taken by `get` under the lock of the handles. NULL
 * if the client has no such object. */
void *handle_get(enum handle_type type, u32 client, u32 handle, void (*get)(void *object));
void handles_destroy(void);

#endif
