// SPDX-License-Identifier: GPL-2.0 OR MIT
#include <linux/bits.h>
#include <linux/io.h>
#include <linux/mm.h>

#include "mmu.h"
#include "space.h"
#include "swgpu.h"

/* Fields at the same place in both formats. */
#define ENTRY_VALID BIT_ULL(0) /* in a directory: the entry is itself a page's entry */
#define ENTRY_APERTURE(entry) (((entry) >> 1) & 3)

/* ENTRY_APERTURE of a directory's entry; 0 is invalid. */
#define PDE_VIDMEM 1
/* ENTRY_APERTURE of a page's entry. */
#define PTE_VIDMEM 0
#define PTE_PEER 1

#define BIG_PAGE_SHIFT 16
#define SMALL_PAGE_SHIFT 12

const struct mmu_format mmu_ver2 = {
    .va_bits = 49,
    .level_count = 4,
    .level = { { 47, 2 }, { 38, 9 }, { 29, 9 }, { 21, 8 } },
    .address_shift = 4,
    .directory_address_mask = GENMASK_ULL(53, 8),
    .big_table_address_mask = GENMASK_ULL(53, 4),
    .sysmem_address_mask = GENMASK_ULL(53, 8),
    .vidmem_address_mask = GENMASK_ULL(32, 8),
    .peer_address_mask = GENMASK_ULL(32, 8),
    .peer_id_shift = 33,
    .invalid_kind_mask = BIT_ULL(3) | BIT_ULL(5), /* VOL and PRIVILEGE */
    .sparse = BIT_ULL(3),
    .big_hides_small = BIT_ULL(5),
    .read_only = BIT_ULL(6),
    .no_atomics = BIT_ULL(7),
};

/* Bits 7:3 are the permission control flags (PCF). The values that the driver uses form these
 * single bits. */
const struct mmu_format mmu_ver3 = {
    .va_bits = 57,
    .level_count = 5,
    .level = { { 56, 1 }, { 47, 9 }, { 38, 9 }, { 29, 9 }, { 21, 8 } },
    .address_shift = 0,
    .directory_address_mask = GENMASK_ULL(51, 12),
    .big_table_address_mask = GENMASK_ULL(51, 8),
    .sysmem_address_mask = GENMASK_ULL(51, 12),
    .vidmem_address_mask = GENMASK_ULL(39, 12),
    .peer_address_mask = GENMASK_ULL(51, 12),
    .peer_id_shift = 61,
    .invalid_kind_mask = GENMASK_ULL(7, 3),
    .sparse = 1ull << 3,
    .big_hides_small = 3ull << 3,
    .read_only = BIT_ULL(5),
    .no_atomics = BIT_ULL(6),
};

void *mmu_physical(struct swgpu *owner, enum mmu_aperture aperture, u64 address, u64 bytes)
{
    u64 last = address + bytes - 1;

    if (!bytes || last < address)
        return NULL;
    switch (aperture) {
    case APERTURE_VIDMEM:
    case APERTURE_PEER:
        return last < owner->vidmem_bytes ? owner->vidmem + address : NULL;
    case APERTURE_SYSMEM:
        /* The guest has no IOMMU: the driver's DMA addresses are physical ones. */
        return pfn_valid(PHYS_PFN(address)) && pfn_valid(PHYS_PFN(last)) ? phys_to_virt(address) : NULL;
    default:
        return NULL;
    }
}

/* Reads one entry of a page table; false if the table lies outside of memory. */
static bool read_entry(struct swgpu *gpu, enum mmu_aperture aperture, u64 table, u64 offset, u64 *entry)
{
    const u64 *memory = mmu_physical(gpu, aperture, table + offset, sizeof(*entry));

    if (!memory) {
        swgpu_error(gpu, "page table at 0x%llx is outside of memory", table);
        return false;
    }
    *entry = READ_ONCE(*memory);
    return true;
}

static enum mmu_aperture directory_aperture(u64 entry)
{
    return ENTRY_APERTURE(entry) == PDE_VIDMEM ? APERTURE_VIDMEM : APERTURE_SYSMEM;
}

/* Decodes the target of a page's entry, `offset` bytes into the page. False if it is not memory. */
static bool page_target(struct swgpu *gpu, const struct mmu_format *format, u64 entry, u32 page_shift, u64 offset,
                        struct mmu_target *target)
{
    u64 mask = format->sysmem_address_mask;

    target->owner = gpu;
    switch (ENTRY_APERTURE(entry)) {
    case PTE_VIDMEM:
        target->aperture = APERTURE_VIDMEM;
        mask = format->vidmem_address_mask;
        break;
    case PTE_PEER:
        target->aperture = APERTURE_PEER;
        mask = format->peer_address_mask;
        target->owner = swgpu_peer(gpu, (entry >> format->peer_id_shift) & SWGPU_PEER_ID_MASK);
        break;
    default:
        target->aperture = APERTURE_SYSMEM;
    }
    /* The driver's tests map a page of 512 MiB at an unaligned address: hardware ignores the lower
     * bits. Nor need the host have memory for all of it. */
    target->address = (((entry & mask) << format->address_shift) & ~(BIT_ULL(page_shift) - 1)) + offset;
    target->bytes = BIT_ULL(page_shift) - offset;
    if (target->aperture == APERTURE_SYSMEM && page_shift > format->level[format->level_count - 1].shift)
        target->bytes = min(target->bytes, SWGPU_PAGE_BYTES - (offset & (SWGPU_PAGE_BYTES - 1)));
    /* The driver maps a card's whole memory with pages of 512 MiB, which may extend beyond its
     * end. */
    if (target->aperture != APERTURE_SYSMEM && target->owner && target->address < target->owner->vidmem_bytes)
        target->bytes = min(target->bytes, target->owner->vidmem_bytes - target->address);
    target->memory =
        target->owner ? mmu_physical(target->owner, target->aperture, target->address, target->bytes) : NULL;
    return target->memory;
}

static enum mmu_fault target_of(struct swgpu *gpu, const struct mmu_format *format, u64 entry, u64 va, u32 page_shift,
                                enum access_type type, struct mmu_target *target)
{
    if (type != ACCESS_READ && (entry & format->read_only))
        return MMU_FAULT_READ_ONLY;
    if (type == ACCESS_ATOMIC && (entry & format->no_atomics))
        return MMU_FAULT_ATOMIC;
    if (!page_target(gpu, format, entry, page_shift, va & (BIT_ULL(page_shift) - 1), target)) {
        swgpu_error(gpu, "page at 0x%llx maps to no memory (entry 0x%llx)", va, entry);
        return MMU_FAULT_PTE;
    }
    return MMU_NO_FAULT;
}

static enum mmu_fault sparse(u64 va, u32 page_shift, struct mmu_target *target)
{
    target->aperture = APERTURE_SPARSE;
    target->memory = NULL;
    target->bytes = BIT_ULL(page_shift) - (va & (BIT_ULL(page_shift) - 1));
    return MMU_NO_FAULT;
}

/* The last directory has two halves for each 2 MiB: a table of 64 KiB pages, and one of 4 KiB
 * pages; or one page entry for all of it. */
static enum mmu_fault walk_dual(struct swgpu *gpu, const struct mmu_format *format, const u64 half[2], u64 va,
                                enum access_type type, struct mmu_target *target)
{
    u32 shift = format->level[format->level_count - 1].shift;
    u64 in_page = va & (BIT_ULL(shift) - 1);
    u64 entry;

    if (half[0] & ENTRY_VALID)
        return target_of(gpu, format, half[0], va, shift, type, target);

    if (ENTRY_APERTURE(half[0])) {
        u64 table = (half[0] & format->big_table_address_mask) << format->address_shift;

        if (!read_entry(gpu, directory_aperture(half[0]), table, (in_page >> BIG_PAGE_SHIFT) * sizeof(entry), &entry))
            return MMU_FAULT_PDE;
        if (entry & ENTRY_VALID)
            return target_of(gpu, format, entry, va, BIG_PAGE_SHIFT, type, target);
        if ((entry & format->invalid_kind_mask) == format->sparse)
            return sparse(va, BIG_PAGE_SHIFT, target);
        if ((entry & format->invalid_kind_mask) == format->big_hides_small)
            return MMU_FAULT_PTE;
    }
    if (ENTRY_APERTURE(half[1])) {
        u64 table = (half[1] & format->directory_address_mask) << format->address_shift;

        if (!read_entry(gpu, directory_aperture(half[1]), table, (in_page >> SMALL_PAGE_SHIFT) * sizeof(entry), &entry))
            return MMU_FAULT_PDE;
        if (entry & ENTRY_VALID)
            return target_of(gpu, format, entry, va, SMALL_PAGE_SHIFT, type, target);
        if ((entry & format->invalid_kind_mask) == format->sparse)
            return sparse(va, SMALL_PAGE_SHIFT, target);
        return MMU_FAULT_PTE;
    }
    if (ENTRY_APERTURE(half[0]))
        return MMU_FAULT_PTE;
    if ((half[0] & format->invalid_kind_mask) == format->sparse)
        return sparse(va, shift, target);
    return MMU_FAULT_PDE;
}

static enum mmu_fault walk(struct gpu_space *space, u64 va, enum access_type type, struct mmu_target *target)
{
    struct swgpu *gpu = space->gpu;
    const struct mmu_format *format = gpu->arch->mmu;
    enum mmu_aperture aperture = space->root_aperture;
    u64 table = space->root;
    u32 level;

    for (level = 0;; level++) {
        bool last = level == format->level_count - 1;
        u64 index = (va >> format->level[level].shift) & (BIT_ULL(format->level[level].index_bits) - 1);
        u64 half[2] = { 0, 0 };

        if (!read_entry(gpu, aperture, table, index * (last ? sizeof(half) : sizeof(half[0])), &half[0]))
            return MMU_FAULT_PDE;
        if (last) {
            if (!read_entry(gpu, aperture, table, index * sizeof(half) + sizeof(half[0]), &half[1]))
                return MMU_FAULT_PDE;
            return walk_dual(gpu, format, half, va, type, target);
        }
        if (half[0] & ENTRY_VALID)
            return target_of(gpu, format, half[0], va, format->level[level].shift, type, target);
        if (!ENTRY_APERTURE(half[0]))
            return MMU_FAULT_PDE;
        aperture = directory_aperture(half[0]);
        table = (half[0] & format->directory_address_mask) << format->address_shift;
    }
}

enum mmu_fault mmu_translate(struct gpu_space *space, u64 va, enum access_type type, struct mmu_target *target)
{
    struct rm_mapping *mapping = space_find_mapping(space, va);

    if (mapping) {
        target->aperture = APERTURE_RM;
        target->memory = mapping->memory->data + (va - mapping->va);
        target->bytes = mapping->va + mapping->memory->bytes - va;
        return MMU_NO_FAULT;
    }
    if (!space->has_root)
        return MMU_FAULT_PDE;
    return walk(space, va, type, target);
}

/* === Tables by entry === */

static bool is_dual(const struct mmu_format *format, const struct mmu_table *table)
{
    return table->level == format->level_count - 1;
}

static u32 entry_shift(const struct mmu_format *format, const struct mmu_table *table)
{
    if (table->level < format->level_count)
        return format->level[table->level].shift;
    return table->level == format->level_count ? BIG_PAGE_SHIFT : SMALL_PAGE_SHIFT;
}

u32 mmu_entry_count(struct swgpu *gpu, const struct mmu_table *table)
{
    const struct mmu_format *format = gpu->arch->mmu;

    if (table->level < format->level_count)
        return BIT(format->level[table->level].index_bits);
    return BIT(format->level[format->level_count - 1].shift - entry_shift(format, table));
}

u32 mmu_entry_bytes(struct swgpu *gpu, const struct mmu_table *table)
{
    return is_dual(gpu->arch->mmu, table) ? 2 * sizeof(u64) : sizeof(u64);
}

/* Locates a whole table; false if it lies outside of memory. */
static bool find_table(struct swgpu *gpu, enum mmu_aperture aperture, u64 address, u64 va, u32 level,
                       struct mmu_table *table)
{
    *table = (struct mmu_table){ .aperture = aperture, .level = level, .address = address, .va = va };
    table->entries = mmu_physical(gpu, aperture, address, mmu_entry_count(gpu, table) * mmu_entry_bytes(gpu, table));
    return table->entries;
}

bool mmu_root(struct gpu_space *space, struct mmu_table *table)
{
    return space->has_root && find_table(space->gpu, space->root_aperture, space->root, 0, 0, table);
}

static void add_table(struct swgpu *gpu, u64 pde, u64 address_mask, u32 level, struct mmu_entry *entry)
{
    u64 address = (pde & address_mask) << gpu->arch->mmu->address_shift;

    if (ENTRY_APERTURE(pde) &&
        find_table(gpu, directory_aperture(pde), address, entry->va, level, &entry->tables[entry->table_count]))
        entry->table_count++;
}

void mmu_decode(struct swgpu *gpu, const struct mmu_table *table, u32 index, struct mmu_entry *entry)
{
    const struct mmu_format *format = gpu->arch->mmu;
    u32 shift = entry_shift(format, table);
    const u64 *words = table->entries + index * mmu_entry_bytes(gpu, table) / sizeof(u64);
    u64 word = READ_ONCE(words[0]);

    *entry = (struct mmu_entry){ .va = table->va + ((u64)index << shift) };
    if (word & ENTRY_VALID) {
        entry->is_page = page_target(gpu, format, word, shift, 0, &entry->page);
    } else if (is_dual(format, table)) {
        add_table(gpu, READ_ONCE(words[1]), format->directory_address_mask, format->level_count + 1, entry);
        add_table(gpu, word, format->big_table_address_mask, format->level_count, entry);
        if (entry->table_count == 2)
            entry->tables[1].small_entries = entry->tables[0].entries;
    } else if (table->level < format->level_count) {
        add_table(gpu, word, format->directory_address_mask, table->level + 1, entry);
    } else {
        entry->hides_small =
            table->level == format->level_count && (word & format->invalid_kind_mask) == format->big_hides_small;
    }
}
