// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * A write to entries of a page table unmaps the targets of the old entries and maps those of the
 * new ones. So each write is observed twice, before and after, and each time the entries in it are
 * visited, down to the pages.
 */
#include <linux/slab.h>

#include "ledger.h"
#include "mirror.h"
#include "mmu.h"
#include "space.h"
#include "swgpu.h"
#include "tables.h"

/* Tables are aligned to this, which is the size of the smallest one. */
#define SLOT_BYTES 256
#define SLOTS (SWGPU_PAGE_BYTES / SLOT_BYTES)

/* 4 KiB entries beside one of 64 KiB. */
#define SMALL_PER_BIG 16

/* Table, by the location of its first entry. Without a space: none. */
struct table {
    struct gpu_space *space;
    struct mmu_table at;
};

struct table_page {
    struct table slots[SLOTS];
};

enum visit {
    VISIT_ADD,
    VISIT_REMOVE,
};

static unsigned long page_key(const void *memory)
{
    return (unsigned long)memory / SWGPU_PAGE_BYTES;
}

static struct table *slot_of(struct table_page *page, const void *memory)
{
    return &page->slots[((unsigned long)memory % SWGPU_PAGE_BYTES) / SLOT_BYTES];
}

void tables_init(struct tables *tables)
{
    xa_init(&tables->pages);
}

void tables_destroy(struct tables *tables)
{
    struct table_page *page;
    unsigned long key;

    xa_for_each(&tables->pages, key, page) kfree(page);
    xa_destroy(&tables->pages);
}

static void add_table(struct gpu_space *space, const struct mmu_table *at)
{
    struct xarray *pages = &space->gpu->tables.pages;
    struct table_page *page = xa_load(pages, page_key(at->entries));

    if (!page) {
        page = kzalloc(sizeof(*page), GFP_KERNEL);
        if (!page || xa_is_err(xa_store(pages, page_key(at->entries), page, GFP_KERNEL))) {
            swgpu_error(space->gpu, "no memory to watch a page table");
            kfree(page);
            return;
        }
    }
    *slot_of(page, at->entries) = (struct table){ .space = space, .at = *at };
    if (at->aperture == APERTURE_VIDMEM)
        ledger_taken(space->gpu, at->address, SWGPU_TAKER_DRIVER, 0);
}

static void remove_table(struct gpu_space *space, const struct mmu_table *at)
{
    struct xarray *pages = &space->gpu->tables.pages;
    struct table_page *page = xa_load(pages, page_key(at->entries));

    if (!page)
        return;
    *slot_of(page, at->entries) = (struct table){};
    if (memchr_inv(page, 0, sizeof(*page)))
        return;
    xa_erase(pages, page_key(at->entries));
    kfree(page);
}

static void visit_page(struct gpu_space *space, const struct mmu_entry *entry, enum visit visit)
{
    const struct mmu_target *page = &entry->page;

    if (visit == VISIT_REMOVE)
        mirror_invalidate(space, entry->va, page->bytes);
    if (page->aperture != APERTURE_VIDMEM && page->aperture != APERTURE_PEER)
        return;
    if (visit == VISIT_ADD)
        ledger_mapped(page->owner, page->address, page->bytes, space, entry->va);
    else
        ledger_unmapped(page->owner, page->address, page->bytes, space, entry->va);
}

/* Visits the sixteen 4 KiB entries beside a 64 KiB one. By the kind of an invalid 64 KiB entry
 * the driver unmaps them, or maps them again, without writing them. */
static void visit_small_entries(struct gpu_space *space, const struct mmu_table *big, const struct mmu_entry *entry)
{
    struct mmu_table small = { .level = big->level + 1, .va = big->va, .entries = big->small_entries };
    u32 first = (entry->va - big->va) / SWGPU_PAGE_BYTES;
    struct mmu_entry small_entry;
    u32 i;

    for (i = 0; i < SMALL_PER_BIG; i++) {
        mmu_decode(space->gpu, &small, first + i, &small_entry);
        if (small_entry.is_page)
            visit_page(space, &small_entry, entry->hides_small ? VISIT_REMOVE : VISIT_ADD);
    }
}

/* Recursion is limited by the depth of the tables: each call goes to a lower level. */
static void visit_entries(struct gpu_space *space, const struct mmu_table *table, u32 first, u32 end, enum visit visit)
{
    struct mmu_entry entry;
    u32 t;

    for (; first < end; first++) {
        mmu_decode(space->gpu, table, first, &entry);
        if (entry.is_page)
            visit_page(space, &entry, visit);
        else if (table->small_entries && visit == VISIT_ADD)
            visit_small_entries(space, table, &entry);
        for (t = 0; t < entry.table_count; t++) {
            const struct mmu_table *below = &entry.tables[t];

            if (visit == VISIT_ADD)
                add_table(space, below);
            visit_entries(space, below, 0, mmu_entry_count(space->gpu, below), visit);
            if (visit == VISIT_REMOVE)
                remove_table(space, below);
        }
    }
}

static void visit_root(struct gpu_space *space, enum visit visit)
{
    struct mmu_table root;

    if (!space->pid || !mmu_root(space, &root))
        return;
    if (visit == VISIT_ADD)
        add_table(space, &root);
    visit_entries(space, &root, 0, mmu_entry_count(space->gpu, &root), visit);
    if (visit == VISIT_REMOVE)
        remove_table(space, &root);
    mirror_flush(space);
}

void tables_add_root(struct gpu_space *space)
{
    visit_root(space, VISIT_ADD);
}

void tables_remove_root(struct gpu_space *space)
{
    visit_root(space, VISIT_REMOVE);
}

/* Visits the entries of a table that lie in [start, end). */
static void visit_overlap(const struct table *table, unsigned long start, unsigned long end, enum visit visit)
{
    struct swgpu *gpu = table->space->gpu;
    unsigned long base = (unsigned long)table->at.entries;
    u32 entry_bytes = mmu_entry_bytes(gpu, &table->at);
    unsigned long table_end = base + mmu_entry_count(gpu, &table->at) * entry_bytes;

    start = max(start, base);
    end = min(end, table_end);
    if (start < end)
        visit_entries(table->space, &table->at, (start - base) / entry_bytes, DIV_ROUND_UP(end - base, entry_bytes),
                      visit);
    mirror_flush(table->space);
}

static void visit_write(struct swgpu *gpu, const void *memory, u64 bytes, enum visit visit)
{
    unsigned long start = (unsigned long)memory, end = start + bytes;
    unsigned long key;
    u32 i;

    if (xa_empty(&gpu->tables.pages))
        return;
    for (key = start / SWGPU_PAGE_BYTES; key * SWGPU_PAGE_BYTES < end; key++) {
        struct table_page *page = xa_load(&gpu->tables.pages, key);

        for (i = 0; page && i < SLOTS; i++) {
            if (page->slots[i].space)
                visit_overlap(&page->slots[i], start, end, visit);
        }
    }
}

void tables_before_write(struct swgpu *gpu, const void *memory, u64 bytes)
{
    visit_write(gpu, memory, bytes, VISIT_REMOVE);
}

void tables_after_write(struct swgpu *gpu, const void *memory, u64 bytes)
{
    visit_write(gpu, memory, bytes, VISIT_ADD);
}
