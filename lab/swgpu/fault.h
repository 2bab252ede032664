/* SPDX-License-Identifier: GPL-2.0 OR MIT
 *
 * The MMU's replayable-fault unit: the buffer of fault packets, replays and cancels. All under the card's lock, but for
 * the registers, which the driver writes when it likes.
 */
#ifndef SWGPU_FAULT_H
#define SWGPU_FAULT_H

#include <linux/types.h>

#include "mmu.h"

struct swgpu;
struct user_channel;

#define FAULT_PACKET_BYTES 32

/* Written by the driver as memory. Only GET means something to the model: the interrupt is level-triggered, and the
 * driver itself ignores it while it is at work. */
struct fault_registers {
    u32 get;
    u32 put;
    u32 info;
    u32 interrupt;
    u32 interrupt_enable_set;
    u32 interrupt_enable_clear;
    u32 prefetch_control;
};

struct fault_unit {
    struct fault_registers registers;
    u32 *buffer;           /* NULL while the driver does not hold the card */
    u32 capacity;          /* packets of FAULT_PACKET_BYTES */
    u32 raised_put;        /* behind the last packet; the driver sees those before registers.put */
    bool owned_by_driver;  /* it, and not the resource manager, takes the interrupt */
    u64 replay_generation; /* a program whose accesses wait tries them again when this has moved */
};

/* Which waiting accesses the driver gives up. */
struct fault_cancel {
    bool by_instance; /* all of the channel with this instance pointer, or: */
    u64 instance;
    enum mmu_aperture root_aperture; /* those in the address spaces with this root, on this page, of these types */
    u64 root;
    u64 page_va;
    u32 access_types; /* mask of BIT(enum access_type) */
};

/* These two take the lock themselves. */
int fault_buffer_create(struct swgpu *gpu);
void fault_buffer_destroy(struct swgpu *gpu);

/* Whether there are packets that the driver has not taken. */
bool fault_pending(struct swgpu *gpu);

/* Writes a packet, or counts that there was no room for it. */
void fault_raise(struct user_channel *channel, u64 va, enum access_type type, enum mmu_fault fault);

/* Shows the driver all packets. A card has long gone as far as it can when the driver looks: here both are as fast, so
 * they are shown when a program can go no further. */
void fault_show(struct swgpu *gpu);

void fault_replay(struct swgpu *gpu);
void fault_cancel(struct swgpu *gpu, const struct fault_cancel *cancel);

#endif
