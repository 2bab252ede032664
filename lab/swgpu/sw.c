// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The software class GP100_UVM_SW (C076): methods that trap to the resource manager, which on a
 * real card executes them by registers.
 */
#include "nvmisc.h"

#include "method.h"
#include "program.h"
#include "swgpu.h"

#include "nvidia-uvm/clc076.h"

static const struct idle idle_methods[] = {
    { NVC076_NO_OPERATION, "does nothing" },
};

static enum verdict cancel_by_instance(struct host_channel *channel)
{
    u32 a = channel->sw[NVC076_FAULT_CANCEL_A / 4];
    u32 b = channel->sw[NVC076_FAULT_CANCEL_B / 4];
    /* The targeted mode names a client of a GPC. All accesses come from one client, so the modes
     * do not differ. */
    struct program_cancel cancel = {
        .by_instance = true,
        .instance = ((u64)b << 32) | ((u64)DRF_VAL(C076, _FAULT_CANCEL_A, _INST_LOW, a) << 12),
    };

    program_cancel(channel->gpu, &cancel);
    return VERDICT_NEXT;
}

enum verdict sw_method(struct host_channel *channel, u32 method, u32 data)
{
    switch (method) {
    case NVC076_FAULT_CANCEL_A:
    case NVC076_FAULT_CANCEL_B:
        channel->sw[method / 4] = data;
        return VERDICT_NEXT;
    case NVC076_FAULT_CANCEL_C:
        return cancel_by_instance(channel);
    default:
        /* CLEAR_FAULTED among them: it follows a non-replayable fault, and there are none. */
        if (is_idle(idle_methods, ARRAY_SIZE(idle_methods), method))
            return VERDICT_NEXT;
        return unknown_method(channel, "software class", method, data);
    }
}
