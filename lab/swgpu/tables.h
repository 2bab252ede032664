/* SPDX-License-Identifier: GPL-2.0 OR MIT
 *
 * Monitor of the page tables of users' address spaces: the memory that holds them, and the pages
 * that the driver maps and unmaps by writing them. Reports to the ledger. All under the card's
 * lock.
 */
#ifndef SWGPU_TABLES_H
#define SWGPU_TABLES_H

#include <linux/types.h>
#include <linux/xarray.h>

struct gpu_space;
struct swgpu;

struct tables {
    struct xarray pages; /* struct table_page by the kernel's page number of its address */
};

void tables_init(struct tables *tables);
void tables_destroy(struct tables *tables);

/* The space got its root, with all tables below it; or is about to lose it. */
void tables_add_root(struct gpu_space *space);
void tables_remove_root(struct gpu_space *space);

/* Called before and after each write of the copy engine to memory, which may overwrite a page
 * table. */
void tables_before_write(struct swgpu *gpu, const void *memory, u64 bytes);
void tables_after_write(struct swgpu *gpu, const void *memory, u64 bytes);

#endif
