/* SPDX-License-Identifier: GPL-2.0 OR MIT
 *
 * The MMU's replayable-fault unit: buffer of fault packets, and replays. All under the card's lock,
 * except the registers, which the driver writes at any time.
 */
#ifndef SWGPU_FAULT_H
#define SWGPU_FAULT_H

#include <linux/types.h>

#include "mmu.h"

struct swgpu;
struct user_channel;

#define FAULT_PACKET_BYTES 32

/* Registers that the driver writes as memory. The model reads only GET: the interrupt is
 * level-triggered, and the driver ignores it while it services faults. */
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
    u32 raised_put;        /* index behind the last packet; the driver sees the packets up to registers.put */
    bool owned_by_driver;  /* the driver, and not the resource manager, handles the interrupt */
    u64 replay_generation; /* programs retry waiting accesses when it has increased */
};

/* The next two functions take the lock themselves. */
int fault_buffer_create(struct swgpu *gpu);
void fault_buffer_destroy(struct swgpu *gpu);

/* Whether there are packets that the driver has not fetched. */
bool fault_pending(struct swgpu *gpu);

/* Writes a packet, or counts an overflow. */
void fault_raise(struct user_channel *channel, u64 va, enum access_type type, enum mmu_fault fault);

/* Makes all packets visible to the driver. A real card has raised all its faults by the time the
 * driver reads the buffer; here both are equally fast, so the packets become visible when no
 * program can make progress. */
void fault_show(struct swgpu *gpu);

void fault_replay(struct swgpu *gpu);

#endif
