/* SPDX-License-Identifier: GPL-2.0 OR MIT
 *
 * Mirror of a GPU address space in the address space of its process, so that a load or store of the
 * CPU accesses what the GPU's page tables map: the CPU's page tables are the GPU's TLB.
 *
 * A miss raises a genuine fault on the space's channel and waits for the driver. Each write of the
 * driver to the GPU's page tables first removes what it changes from the mirror, under the card's
 * lock, so that no access uses a stale translation.
 *
 * Beside the mirror a table of permissions, one byte for each page, tells the process
 * what it can access without a miss. The mirror keeps it up to date under the same lock.
 */
#ifndef SWGPU_MIRROR_H
#define SWGPU_MIRROR_H

#include <linux/fs.h>
#include <linux/types.h>
#include <linux/xarray.h>

struct gpu_space;
struct user_channel;

#define MIRROR_NO_VA U64_MAX /* of write_va */

struct mirror {
    struct file *anchor;           /* its address_space holds the mappings of this client's file alone */
    struct gpu_space *space;       /* NULL until the client creates its first space; then as long as the file */
    struct user_channel *channel;  /* of the space */
    struct page *poison;           /* what a dead channel accesses; user data of this client alone */
    struct xarray permission_pages; /* struct page, by index in the table */
    u64 write_va;                  /* page written to that was inserted for reading: its next miss is a write's */
    u64 stale_begin, stale_end;    /* range to remove; empty if equal. Under the card's lock */
};

/* Of the client's file: at its opening, mmap and closing. No mapping is left when it is closed. */
int mirror_init(struct mirror *mirror);
int mirror_mmap(struct mirror *mirror, struct vm_area_struct *vma); /* mirror_fault.c */
void mirror_destroy(struct mirror *mirror);

/* Returns a page of the table of permissions, which is zero at first; NULL without memory. */
struct page *mirror_permission_page(struct mirror *mirror, unsigned long index);

/* Attaches the mirror to a space with its channel, and detaches it. Take the card's lock. */
void mirror_attach(struct mirror *mirror, struct gpu_space *space, struct user_channel *channel);
void mirror_detach(struct mirror *mirror);

/* The rest under the card's lock, for spaces with and without a mirror. */

/* The entries of this range change: takes back the permissions, and removes the range from the
 * mirror at the next mirror_flush(). Both come before the change, but for 4 KiB entries that a 64 KiB
 * entry hides: after it, in the same hold of the lock, before the driver learns of the change. */
void mirror_invalidate(struct gpu_space *space, u64 va, u64 bytes);
void mirror_flush(struct gpu_space *space);
/* Removes everything: the channel is dead. */
void mirror_reset(struct gpu_space *space);
/* Gives the permissions of the pages from `va` to the end of its page-table entry, or to `end`.
 * Returns where that is. */
u64 mirror_permit(struct gpu_space *space, u64 va, u64 end);

#endif
