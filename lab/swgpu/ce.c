// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The copy engine: copies, fills and semaphores. The numbers of the methods are the same in the
 * classes from C0B5 (Pascal) to C8B5 (Hopper), as far as these have them.
 */
#include "nvmisc.h"

#include "method.h"
#include "space.h"
#include "swgpu.h"

#include "nvidia-uvm/clc8b5.h"
#include "methods.h"

static const struct idle idle_methods[] = {
    { NVC8B5_NOP, "does nothing" },
    { NVC8B5_SET_MEMORY_SCRUB_PARAMETERS, "whether scrubbed memory may be discarded changes nothing of what it holds" },
};

/* One end of a transfer. */
struct transfer_end {
    bool is_virtual;
    enum mmu_aperture aperture; /* of a physical address, as is the next */
    struct swgpu *owner;
    u64 address;
    enum access_type access;
};

/* Translates the address of an end's next byte. False if it is not memory. */
static bool locate(struct host_channel *channel, const struct transfer_end *end, struct mmu_target *target)
{
    if (end->is_virtual)
        return mmu_translate(channel->space, end->address, end->access, target) == MMU_NO_FAULT;
    target->aperture = end->aperture;
    target->owner = end->owner;
    target->address = end->address;
    target->bytes = SWGPU_PAGE_BYTES - (end->address & (SWGPU_PAGE_BYTES - 1));
    target->memory = mmu_physical(end->owner, end->aperture, end->address, target->bytes);
    return target->memory;
}

static enum verdict bad_address(struct host_channel *channel, const struct transfer_end *end)
{
    return host_channel_error(channel, "copy engine %s at %s address 0x%llx, which is no memory",
                              end->access == ACCESS_READ ? "reads" : "writes", end->is_virtual ? "virtual" : "physical",
                              end->address);
}

/* The kernel's memcpy and memset use `rep` instructions by byte, which an emulated CPU executes
 * one byte at a time: these are faster there. */
static void copy_words(void *to, const void *from, u64 bytes)
{
    u64 *d = to;
    const u64 *s = from;
    u64 i;

    if (((unsigned long)to | (unsigned long)from | bytes) & 31) {
        memcpy(to, from, bytes);
        return;
    }
    for (i = 0; i < bytes / sizeof(u64); i += 4) {
        u64 w0 = READ_ONCE(s[i]), w1 = READ_ONCE(s[i + 1]), w2 = READ_ONCE(s[i + 2]), w3 = READ_ONCE(s[i + 3]);

        WRITE_ONCE(d[i], w0);
        WRITE_ONCE(d[i + 1], w1);
        WRITE_ONCE(d[i + 2], w2);
        WRITE_ONCE(d[i + 3], w3);
    }
}

/* Fills with an 8-byte pattern of which `phase` bytes have been written before. */
static void fill_words(void *to, u64 pattern, u64 phase, u64 bytes)
{
    u8 *d = to;
    u64 i = 0;

    if (!((unsigned long)to & 7) && !(phase & 7)) {
        for (; i + sizeof(u64) <= bytes; i += sizeof(u64))
            WRITE_ONCE(*(u64 *)(d + i), pattern);
    }
    for (; i < bytes; i++)
        d[i] = pattern >> (((phase + i) & 7) * 8);
}

static void count_copy(struct swgpu *gpu, bool whole_pages, enum mmu_aperture to, enum mmu_aperture from, u64 bytes)
{
    struct swgpu_counters *counters = &gpu->counters;

    if (whole_pages && to == APERTURE_VIDMEM && from == APERTURE_SYSMEM)
        counters->copied_htod_bytes += bytes;
    else if (whole_pages && to == APERTURE_SYSMEM && from == APERTURE_VIDMEM)
        counters->copied_dtoh_bytes += bytes;
    else if (whole_pages && to == APERTURE_VIDMEM && from == APERTURE_VIDMEM)
        counters->copied_dtod_bytes += bytes;
    else if (whole_pages && to == APERTURE_VIDMEM && from == APERTURE_PEER)
        counters->copied_from_peer_bytes += bytes;
    else if (whole_pages && to == APERTURE_PEER && from == APERTURE_VIDMEM)
        counters->copied_to_peer_bytes += bytes;
    else
        counters->copied_other_bytes += bytes;
}

static enum verdict copy(struct host_channel *channel, struct transfer_end to, struct transfer_end from, u64 bytes)
{
    bool whole_pages = !((to.address | from.address | bytes) & (SWGPU_PAGE_BYTES - 1));

    while (bytes) {
        struct mmu_target target, source;
        u64 step;

        if (!locate(channel, &from, &source))
            return bad_address(channel, &from);
        if (!locate(channel, &to, &target))
            return bad_address(channel, &to);
        step = min3(bytes, source.bytes, target.bytes);
        if (target.memory)
            tables_before_write(channel->gpu, target.memory, step);
        if (target.memory && source.memory)
            copy_words(target.memory, source.memory, step);
        else if (target.memory)
            fill_words(target.memory, 0, 0, step);
        if (target.memory)
            tables_after_write(channel->gpu, target.memory, step);
        if (whole_pages && target.aperture == APERTURE_SYSMEM && source.aperture == APERTURE_VIDMEM)
            ledger_copied_out(channel->gpu, source.address, step);
        if (whole_pages)
            log_copy(channel->gpu, &target, &source, step);
        count_copy(channel->gpu, whole_pages, target.aperture, source.aperture, step);
        to.address += step;
        from.address += step;
        bytes -= step;
    }
    return VERDICT_NEXT;
}

static enum verdict fill(struct host_channel *channel, struct transfer_end to, u64 pattern, u64 bytes)
{
    u64 done = 0;

    while (done < bytes) {
        struct mmu_target target;
        u64 step;

        if (!locate(channel, &to, &target))
            return bad_address(channel, &to);
        step = min(bytes - done, target.bytes);
        if (target.memory) {
            tables_before_write(channel->gpu, target.memory, step);
            fill_words(target.memory, pattern, done, step);
            tables_after_write(channel->gpu, target.memory, step);
        }
        channel->gpu->counters.copied_other_bytes += step;
        to.address += step;
        done += step;
    }
    return VERDICT_NEXT;
}

/* Builds the element that SET_REMAP_COMPONENTS makes of the constants, repeated to 8 bytes;
 * returns its size, 0 if it is not modelled. */
static u32 remap_pattern(struct host_channel *channel, u64 *pattern)
{
    u32 components = channel->ce[NVC8B5_SET_REMAP_COMPONENTS / 4];
    u32 component_bytes = DRF_VAL(C8B5, _SET_REMAP_COMPONENTS, _COMPONENT_SIZE, components) + 1;
    u32 count = DRF_VAL(C8B5, _SET_REMAP_COMPONENTS, _NUM_DST_COMPONENTS, components) + 1;
    u32 bytes = component_bytes * count;
    u32 i;

    if (!is_power_of_2(bytes) || bytes > sizeof(*pattern))
        return 0;
    *pattern = 0;
    for (i = 0; i < count; i++) {
        u32 source = (components >> (4 * i)) & 7; /* DST_X, DST_Y, ... are 4 bits apart */
        u64 value;

        if (source == NVC8B5_SET_REMAP_COMPONENTS_DST_X_CONST_A)
            value = channel->ce[NVC8B5_SET_REMAP_CONST_A / 4];
        else if (source == NVC8B5_SET_REMAP_COMPONENTS_DST_X_CONST_B)
            value = channel->ce[NVC8B5_SET_REMAP_CONST_B / 4];
        else
            return 0;
        *pattern |= (value & GENMASK_ULL(component_bytes * 8 - 1, 0)) << (i * component_bytes * 8);
    }
    for (i = bytes; i < sizeof(*pattern); i *= 2)
        *pattern |= *pattern << (i * 8);
    return bytes;
}

static enum verdict transfer_end(struct host_channel *channel, bool physical, u32 phys_mode, u32 upper_method,
                                 enum access_type access, struct transfer_end *end)
{
    u32 target = channel->ce[phys_mode / 4];

    end->is_virtual = !physical;
    end->owner = channel->gpu;
    end->access = access;
    end->address = ((u64)channel->ce[upper_method / 4] << 32) | channel->ce[upper_method / 4 + 1];
    if (!physical)
        return VERDICT_NEXT;
    /* SET_SRC_PHYS_MODE and SET_DST_PHYS_MODE have the same fields. */
    switch (DRF_VAL(C8B5, _SET_SRC_PHYS_MODE, _TARGET, target)) {
    case NVC8B5_SET_SRC_PHYS_MODE_TARGET_LOCAL_FB:
        end->aperture = APERTURE_VIDMEM;
        return VERDICT_NEXT;
    case NVC8B5_SET_SRC_PHYS_MODE_TARGET_COHERENT_SYSMEM:
        end->aperture = APERTURE_SYSMEM;
        return VERDICT_NEXT;
    case NVC8B5_SET_SRC_PHYS_MODE_TARGET_PEERMEM:
        end->aperture = APERTURE_PEER;
        end->owner = swgpu_peer(channel->gpu, DRF_VAL(C8B5, _SET_SRC_PHYS_MODE, _PEER_ID, target));
        if (end->owner && !DRF_VAL(C8B5, _SET_SRC_PHYS_MODE, _FLA, target))
            return VERDICT_NEXT;
        fallthrough;
    default:
        return host_channel_error(channel, "copy engine target 0x%x is not modelled", target);
    }
}

/* Checks the bits of LAUNCH_DMA for operations that the driver never requests here. */
static bool launch_is_modelled(struct host_channel *channel, u32 launch)
{
    return FLD_TEST_DRF(C8B5, _LAUNCH_DMA, _SRC_MEMORY_LAYOUT, _PITCH, launch) &&
           FLD_TEST_DRF(C8B5, _LAUNCH_DMA, _DST_MEMORY_LAYOUT, _PITCH, launch) &&
           FLD_TEST_DRF(C8B5, _LAUNCH_DMA, _MULTI_LINE_ENABLE, _FALSE, launch) &&
           FLD_TEST_DRF(C8B5, _LAUNCH_DMA, _COPY_TYPE, _DEFAULT, launch) &&
           (channel->gpu->arch->ce_scrubber || FLD_TEST_DRF(C8B5, _LAUNCH_DMA, _MEMORY_SCRUB_ENABLE, _FALSE, launch));
}

static enum verdict transfer(struct host_channel *channel, u32 launch)
{
    bool scrub = FLD_TEST_DRF(C8B5, _LAUNCH_DMA, _MEMORY_SCRUB_ENABLE, _TRUE, launch);
    bool remap = FLD_TEST_DRF(C8B5, _LAUNCH_DMA, _REMAP_ENABLE, _TRUE, launch);
    u64 length = channel->ce[NVC8B5_LINE_LENGTH_IN / 4];
    struct transfer_end to, from;
    enum verdict verdict;
    u32 element_bytes;
    u64 pattern;

    if (!launch_is_modelled(channel, launch))
        return host_channel_error(channel, "copy engine launch 0x%x is not modelled", launch);

    verdict = transfer_end(channel, FLD_TEST_DRF(C8B5, _LAUNCH_DMA, _DST_TYPE, _PHYSICAL, launch),
                           NVC8B5_SET_DST_PHYS_MODE, NVC8B5_OFFSET_OUT_UPPER, ACCESS_WRITE, &to);
    if (verdict != VERDICT_NEXT)
        return verdict;

    if (scrub) {
        pattern = ((u64)channel->ce[NVC8B5_SET_REMAP_CONST_B / 4] << 32) | channel->ce[NVC8B5_SET_REMAP_CONST_A / 4];
        return fill(channel, to, pattern, length);
    }
    if (remap) {
        element_bytes = remap_pattern(channel, &pattern);
        if (!element_bytes)
            return host_channel_error(channel, "remap 0x%x is not modelled",
                                      channel->ce[NVC8B5_SET_REMAP_COMPONENTS / 4]);
        return fill(channel, to, pattern, length * element_bytes);
    }
    verdict = transfer_end(channel, FLD_TEST_DRF(C8B5, _LAUNCH_DMA, _SRC_TYPE, _PHYSICAL, launch),
                           NVC8B5_SET_SRC_PHYS_MODE, NVC8B5_OFFSET_IN_UPPER, ACCESS_READ, &from);
    if (verdict != VERDICT_NEXT)
        return verdict;
    return copy(channel, to, from, length);
}

static enum verdict release_semaphore(struct host_channel *channel, u32 launch)
{
    u64 va = ((u64)channel->ce[NVC8B5_SET_SEMAPHORE_A / 4] << 32) | channel->ce[NVC8B5_SET_SEMAPHORE_B / 4];
    u32 payload = channel->ce[NVC8B5_SET_SEMAPHORE_PAYLOAD / 4];
    u32 type = DRF_VAL(C8B5, _LAUNCH_DMA, _SEMAPHORE_TYPE, launch);
    bool timestamp = type == NVC8B5_LAUNCH_DMA_SEMAPHORE_TYPE_RELEASE_SEMAPHORE_WITH_TIMESTAMP;
    bool reduction = FLD_TEST_DRF(C8B5, _LAUNCH_DMA, _SEMAPHORE_REDUCTION_ENABLE, _TRUE, launch);
    u32 *semaphore = host_channel_semaphore(channel, va, timestamp ? 16 : 4);

    if (!semaphore)
        return host_channel_error(channel, "copy engine semaphore at 0x%llx is not mapped", va);
    if (type == NVC8B5_LAUNCH_DMA_SEMAPHORE_TYPE_RELEASE_CONDITIONAL_INTR_SEMAPHORE ||
        !FLD_TEST_DRF(C8B5, _LAUNCH_DMA, _SEMAPHORE_PAYLOAD_SIZE, _ONE_WORD, launch) ||
        (reduction && !FLD_TEST_DRF(C8B5, _LAUNCH_DMA, _SEMAPHORE_REDUCTION, _INC, launch)))
        return host_channel_error(channel, "copy engine semaphore by launch 0x%x is not modelled", launch);

    /* The reduction INC counts up and wraps at the payload. */
    if (reduction)
        payload = *semaphore >= payload ? 0 : *semaphore + 1;
    semaphore_release(semaphore, payload, timestamp);
    channel->gpu->counters.copied_other_bytes += timestamp ? 16 : 4;
    return VERDICT_NEXT;
}

static enum verdict launch_dma(struct host_channel *channel, u32 launch)
{
    enum verdict verdict = VERDICT_NEXT;

    if (!FLD_TEST_DRF(C8B5, _LAUNCH_DMA, _DATA_TRANSFER_TYPE, _NONE, launch))
        verdict = transfer(channel, launch);
    if (verdict == VERDICT_NEXT && !FLD_TEST_DRF(C8B5, _LAUNCH_DMA, _SEMAPHORE_TYPE, _NONE, launch))
        verdict = release_semaphore(channel, launch);
    return verdict;
}

enum verdict ce_method(struct host_channel *channel, u32 method, u32 data)
{
    switch (method) {
    case NVC8B5_SET_SEMAPHORE_A:
    case NVC8B5_SET_SEMAPHORE_B:
    case NVC8B5_SET_SEMAPHORE_PAYLOAD:
    case NVC8B5_SET_SRC_PHYS_MODE:
    case NVC8B5_SET_DST_PHYS_MODE:
    case NVC8B5_OFFSET_IN_UPPER:
    case NVC8B5_OFFSET_IN_LOWER:
    case NVC8B5_OFFSET_OUT_UPPER:
    case NVC8B5_OFFSET_OUT_LOWER:
    case NVC8B5_LINE_LENGTH_IN:
    case NVC8B5_SET_REMAP_CONST_A:
    case NVC8B5_SET_REMAP_CONST_B:
    case NVC8B5_SET_REMAP_COMPONENTS:
        channel->ce[method / 4] = data;
        return VERDICT_NEXT;
    case NVC8B5_LAUNCH_DMA:
        return launch_dma(channel, data);
    default:
        if (is_idle(idle_methods, ARRAY_SIZE(idle_methods), method))
            return VERDICT_NEXT;
        return unknown_method(channel, "copy engine", method, data);
    }
}
