/* SPDX-License-Identifier: GPL-2.0 OR MIT
 *
 * Frame ledger of a card: the address space that last mapped each page of its memory, the bytes
 * copied out of the page to the host since, and the next taker of the frame. Its lock nests inside
 * the card's, because the engine of another card may map this one's memory.
 */
#ifndef SWGPU_LEDGER_H
#define SWGPU_LEDGER_H

#include <linux/compiler.h>
#include <linux/spinlock.h>
#include <linux/types.h>

#include "swgpu_ioctl.h"

struct gpu_space;
struct swgpu;

struct ledger {
    spinlock_t lock;
    struct page_user *pages; /* by page of the card's memory */
    struct frame *frames;    /* by frame of 2 MiB */
    struct swgpu_ledger_row *rows;
    u32 row_count;
    u64 lost_bytes;
};

int ledger_init(struct swgpu *gpu);
void ledger_destroy(struct swgpu *gpu);

/* A page of `bytes` bytes of the card's memory became valid in the space, or became invalid. */
void ledger_mapped(struct swgpu *gpu, u64 address, u64 bytes, const struct gpu_space *space, u64 va);
void ledger_unmapped(struct swgpu *gpu, u64 address, u64 bytes, const struct gpu_space *space, u64 va);

/* Whole pages of the card's memory were copied to the host's. */
void ledger_copied_out(struct swgpu *gpu, u64 address, u64 bytes);

/* The frame of the address was taken by something other than an address space. */
void ledger_taken(struct swgpu *gpu, u64 address, u32 taker, u32 taker_pid);
/* The driver freed the frame: its departures have no taker. */
void ledger_freed(struct swgpu *gpu, u64 address);

/* Returns the process that last mapped the page, and its address: 0 if none did. */
u32 ledger_user(struct swgpu *gpu, u64 address, u64 *va);

/* SWGPU_IOC_LEDGER */
long ledger_read(void __user *argument);

#endif
