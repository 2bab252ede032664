/* SPDX-License-Identifier: GPL-2.0 OR MIT
 *
 * The GPU's memory management: page-table walks and physical addresses. There is no TLB: every
 * access walks, so that an invalidation has no effect.
 */
#ifndef SWGPU_MMU_H
#define SWGPU_MMU_H

#include <linux/types.h>

struct gpu_space;
struct swgpu;

enum mmu_aperture {
    APERTURE_VIDMEM,
    APERTURE_SYSMEM,
    APERTURE_PEER,   /* another card's memory */
    APERTURE_RM,     /* memory that the resource manager mapped for the driver: pushbuffers, semaphores */
    APERTURE_SPARSE, /* no memory: reads return zero, writes are dropped */
};

enum access_type {
    ACCESS_READ,
    ACCESS_WRITE,
    ACCESS_ATOMIC,
};

/* NV_PFAULT_FAULT_TYPE_*, the same on all architectures. */
enum mmu_fault {
    MMU_FAULT_PDE = 0x0,
    MMU_FAULT_PTE = 0x2,
    MMU_FAULT_READ_ONLY = 0x6,
    MMU_FAULT_ATOMIC = 0xf,
    MMU_NO_FAULT = 0x100,
};

/* Target of a virtual address, up to the end of its page. */
struct mmu_target {
    enum mmu_aperture aperture;
    struct swgpu *owner; /* of APERTURE_VIDMEM and APERTURE_PEER: the card of the memory */
    u64 address;         /* in the memory; unused for APERTURE_RM and APERTURE_SPARSE */
    void *memory;        /* NULL for APERTURE_SPARSE */
    u64 bytes;
};

/* Format of page tables: the levels from the root to the dual directory PDE0, below which are
 * the tables of 64 KiB and 4 KiB pages. */
struct mmu_format {
    u32 va_bits;
    u32 level_count;
    struct mmu_level {
        u8 shift;
        u8 index_bits;
    } level[5];
    u32 address_shift; /* shift from entry bits to address bits */
    u64 directory_address_mask;
    u64 big_table_address_mask;
    u64 sysmem_address_mask;
    u64 vidmem_address_mask;
    u64 peer_address_mask;
    u32 peer_id_shift;     /* a field of three bits */
    u64 invalid_kind_mask; /* in an invalid entry, the bits that encode the kind of invalid */
    u64 sparse;
    u64 big_hides_small; /* an invalid 64 KiB entry that also stands for its sixteen 4 KiB entries */
    u64 read_only;
    u64 no_atomics;
};

extern const struct mmu_format mmu_ver2; /* Pascal to Ada */
extern const struct mmu_format mmu_ver3; /* Hopper */

/* One table, for walks over entries. Levels count from the root; below the last directory are
 * the tables of 64 KiB pages and those of 4 KiB pages. */
struct mmu_table {
    enum mmu_aperture aperture;
    u32 level;
    u64 address;
    u64 va; /* address of the first entry */
    const u64 *entries;
    const u64 *small_entries; /* of a table of 64 KiB pages: entries of the table of 4 KiB pages beside it, or NULL */
};

/* Target of an entry: up to two tables, or a page, or nothing. */
struct mmu_entry {
    u32 table_count;
    struct mmu_table tables[2];
    bool is_page;
    bool hides_small; /* the 4 KiB entries beside it are ignored */
    u64 va;
    struct mmu_target page;
};

/* Returns false if the space has no root, or one outside of memory. */
bool mmu_root(struct gpu_space *space, struct mmu_table *table);
u32 mmu_entry_count(struct swgpu *gpu, const struct mmu_table *table);
u32 mmu_entry_bytes(struct swgpu *gpu, const struct mmu_table *table);
void mmu_decode(struct swgpu *gpu, const struct mmu_table *table, u32 index, struct mmu_entry *entry);

/* Translates under the card's lock; the pointer is valid until the lock is released. */
enum mmu_fault mmu_translate(struct gpu_space *space, u64 va, enum access_type type, struct mmu_target *target);

/* Returns memory by its physical address; `owner` is the card of card memory. NULL if there is
 * no such memory. */
void *mmu_physical(struct swgpu *owner, enum mmu_aperture aperture, u64 address, u64 bytes);

#endif
