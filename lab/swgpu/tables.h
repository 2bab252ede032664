/* SPDX-License-Identifier: GPL-2.0 OR MIT
 *
 * Watches the page tables of users' address spaces: which memory holds them, and which pages the driver maps and unmaps
 * by writing them. Tells the ledger. All under the card's lock.
 */
#ifndef SWGPU_TABLES_H
#define SWGPU_TABLES_H

#include <linux/types.h>
#include <linux/xarray.h>

struct gpu_space;
struct swgpu;

struct tables {
    struct xarray pages; /* struct table_page by the kernel's address of the page, in pages */
};

void tables_init(struct tables *tables);
void tables_destroy(struct tables *tables);

/* The space has got its root, with whatever hangs on it; or is about to lose it. */
void tables_add_root(struct gpu_space *space);
void tables_remove_root(struct gpu_space *space);

/* Around each write of the copy engine to memory: what is overwritten may be a page table. */
void tables_before_write(struct swgpu *gpu, const void *memory, u64 bytes);
void tables_after_write(struct swgpu *gpu, const void *memory, u64 bytes);

#endif
