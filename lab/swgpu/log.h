/* SPDX-License-Identifier: GPL-2.0 OR MIT
 *
 * Log of a card (SWGPU_IOC_LOG): rings of records, one for each file that requested one. Their lock
 * nests inside the card's and the ledger's. Without an open log nothing is written.
 */
#ifndef SWGPU_LOG_H
#define SWGPU_LOG_H

#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/types.h>

#include "mmu.h"

struct gpu_space;
struct log;
struct swgpu;
struct swgpu_mark;
struct user_channel;

struct logs {
    spinlock_t lock;
    struct list_head open; /* struct log */
};

void logs_init(struct logs *logs);

/* Place of memory: SWGPU_LOCAL, ... */
u8 log_place(const struct mmu_target *target);

/* Each call logs one page, or for a copy and a mapping `bytes` bytes of pages. */
void log_access(const struct user_channel *channel, enum access_type type, u64 va, const struct mmu_target *target);
void log_copy(struct swgpu *gpu, const struct mmu_target *to, const struct mmu_target *from, u64 bytes);
void log_mapping(struct swgpu *gpu, u64 address, u64 bytes, u32 pid, u64 va);
void log_mark(struct swgpu *gpu, const struct swgpu_mark *mark);

/* Returns an error pointer if there is no memory. */
struct log *log_open(struct swgpu *gpu, u32 channel, u32 capacity);
void log_close(struct log *log);
/* Reads whole records, oldest first; returns bytes. */
ssize_t log_read(struct log *log, char __user *buffer, size_t bytes);

#endif
