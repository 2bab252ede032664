// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "method.h"
#include "swgpu.h"

u32 *host_channel_semaphore(struct host_channel *channel, u64 va, u64 bytes)
{
    struct mmu_target target;

    if (mmu_translate(channel->space, va, ACCESS_WRITE, &target) != MMU_NO_FAULT || target.bytes < bytes)
        return NULL;
    return target.memory;
}

void semaphore_release(u32 *semaphore, u32 payload, bool timestamp)
{
    if (timestamp)
        WRITE_ONCE(*(u64 *)(semaphore + 2), swgpu_time_ns());
    smp_store_release(semaphore, payload);
}

bool is_idle(const struct idle *table, size_t count, u32 number)
{
    size_t i;

    for (i = 0; i < count; i++) {
        if (table[i].number == number)
            return true;
    }
    return false;
}

enum verdict unknown_method(struct host_channel *channel, const char *class_name, u32 method, u32 data)
{
    struct swgpu *gpu = channel->gpu;
    u32 bit = channel->subchannel * SWGPU_METHODS + method / sizeof(u32);

    atomic64_inc(&gpu->unknown_methods);
    if (!test_and_set_bit(bit, gpu->unknown_methods_printed))
        pr_err("swgpu: error: gpu %u: unknown %s method 0x%x (data 0x%x)\n", gpu->index, class_name, method, data);
    return VERDICT_NEXT;
}
