// SPDX-License-Identifier: GPL-2.0 OR MIT
#include <linux/atomic.h>
#include <linux/slab.h>

#include "fault.h"
#include "mirror.h"
#include "program.h"
#include "space.h"
#include "swgpu.h"

/* Accesses that one channel may issue before the next channel's turn. */
#define SLICE_ACCESSES 64

struct user_channel *user_channel_create(struct swgpu *gpu, struct gpu_space *space)
{
    struct user_channel *channel = kzalloc(sizeof(*channel), GFP_KERNEL);

    if (!channel)
        return NULL;
    kref_init(&channel->refs);
    mutex_init(&channel->turn);
    channel->gpu = gpu;
    channel->space = space;
    kref_get(&space->refs);
    mutex_lock(&gpu->lock);
    list_add_tail(&channel->node, &gpu->user_channels);
    mutex_unlock(&gpu->lock);
    return channel;
}

static void release_channel(struct kref *refs)
{
    struct user_channel *channel = container_of(refs, struct user_channel, refs);

    mutex_lock(&channel->gpu->lock);
    list_del(&channel->node);
    mutex_unlock(&channel->gpu->lock);
    space_put(channel->space);
    kfree(channel);
}

void user_channel_put(struct user_channel *channel)
{
    kref_put(&channel->refs, release_channel);
}

static void finish(struct user_channel *channel, int status)
{
    struct program *program = channel->running;

    channel->running = NULL;
    fault_show(channel->gpu);
    program->status = status;
    complete(&program->finished);
}

bool user_channel_bind(struct user_channel *channel)
{
    bool bound = false;

    mutex_lock(&channel->gpu->lock);
    if (channel->state == CHANNEL_UNBOUND) {
        channel->state = CHANNEL_BOUND;
        bound = true;
    }
    mutex_unlock(&channel->gpu->lock);
    return bound;
}

void user_channel_stop(struct user_channel *channel)
{
    mutex_lock(&channel->gpu->lock);
    if (channel->state != CHANNEL_FAULTED)
        channel->state = CHANNEL_STOPPED;
    mirror_reset(channel->space);
    if (channel->running)
        finish(channel, -ECANCELED);
    mutex_unlock(&channel->gpu->lock);
}

static int start(struct user_channel *channel, struct program *program)
{
    switch (channel->state) {
    case CHANNEL_UNBOUND:
        return -ENXIO;
    case CHANNEL_STOPPED:
        return -ECANCELED;
    case CHANNEL_FAULTED:
        return -EFAULT;
    case CHANNEL_BOUND:
        break;
    }
    channel->running = program;
    return 0;
}

static int run_in_turn(struct user_channel *channel, struct program *program)
{
    struct swgpu *gpu = channel->gpu;
    int status;

    init_completion(&program->finished);
    mutex_lock(&gpu->lock);
    status = start(channel, program);
    mutex_unlock(&gpu->lock);
    if (status)
        return status;

    swgpu_engine_kick(gpu);
    if (!wait_for_completion_killable(&program->finished))
        return program->status;

    /* Killed. Its packets stay in the buffer, as on a real card: the driver services them or
     * finds that the channel is gone. */
    mutex_lock(&gpu->lock);
    if (channel->running == program)
        channel->running = NULL;
    fault_show(gpu);
    mutex_unlock(&gpu->lock);
    return -EINTR;
}

int program_run(struct user_channel *channel, struct program *program)
{
    int status;

    if (mutex_lock_killable(&channel->turn))
        return -EINTR;
    status = run_in_turn(channel, program);
    mutex_unlock(&channel->turn);
    return status;
}

static u64 page_of(u64 va)
{
    return va & ~(SWGPU_PAGE_BYTES - 1);
}

/* Whether an older access to this page waits: accesses to one page keep their order. */
static bool older_waits(const struct program *program, u64 va, u32 older_count)
{
    u32 i;

    for (i = 0; i < older_count; i++) {
        if (page_of(program->accesses[program->waiting[i]].va) == page_of(va))
            return true;
    }
    return false;
}

static void count_access(struct swgpu_access_counters *counters, enum access_type type, enum mmu_aperture aperture,
                         u64 millibytes)
{
    counters->accesses++;
    if (aperture == APERTURE_VIDMEM || aperture == APERTURE_SPARSE)
        return;
    counters->remote_accesses++;
    if (type != ACCESS_WRITE)
        *(aperture == APERTURE_PEER ? &counters->remote_from_peer_millibytes : &counters->remote_htod_millibytes) +=
            millibytes;
    if (type != ACCESS_READ)
        *(aperture == APERTURE_PEER ? &counters->remote_to_peer_millibytes : &counters->remote_dtoh_millibytes) +=
            millibytes;
}

/* A touch is no access: the program accesses the page by its mirror. */
static void finish_touch(struct user_channel *channel, enum access_type type, struct swgpu_access *access,
                         const struct mmu_target *target)
{
    log_access(channel, type, access->va, target);
    access->value = log_place(target);
    mirror_permit(channel->space, access->va, U64_MAX);
}

static void perform(struct user_channel *channel, enum access_type type, struct swgpu_access *access,
                    const struct mmu_target *target)
{
    u64 millibytes = channel->running->access_millibytes;
    u64 *memory = target->memory;

    count_access(&channel->counters, type, target->aperture, millibytes);
    count_access(&channel->gpu->counters.access, type, target->aperture, millibytes);
    log_access(channel, type, access->va, target);

    switch (type) {
    case ACCESS_READ:
        access->value = memory ? READ_ONCE(*memory) : 0;
        break;
    case ACCESS_WRITE:
        if (memory)
            WRITE_ONCE(*memory, access->value);
        break;
    case ACCESS_ATOMIC:
        /* Atomic with respect to the CPU too, which may have the page mapped if it is in system
         * memory. */
        access->value = memory ? atomic64_fetch_add(access->value, (atomic64_t *)memory) : 0;
        break;
    }
}

static enum access_type type_of(const struct program *program, const struct swgpu_access *access)
{
    return program->touch ? (enum access_type)access->value : program->type;
}

/* Attempts an access, and returns whether it completed; if not, it has raised its fault and has
 * to wait. */
static bool attempt(struct user_channel *channel, u32 index, u32 older_count)
{
    struct program *program = channel->running;
    struct swgpu_access *access = &program->accesses[index];
    enum access_type type = type_of(program, access);
    struct mmu_target target;
    enum mmu_fault fault = mmu_translate(channel->space, access->va, type, &target);

    if (fault != MMU_NO_FAULT) {
        fault_raise(channel, access->va, type, fault);
        return false;
    }
    if (older_waits(program, access->va, older_count))
        return false;
    if (program->touch)
        finish_touch(channel, type, access, &target);
    else
        perform(channel, type, access, &target);
    program->done++;
    return true;
}

static void retry_waiting(struct user_channel *channel)
{
    struct program *program = channel->running;
    u32 kept = 0;
    u32 i;

    for (i = 0; i < program->waiting_count; i++) {
        if (!attempt(channel, program->waiting[i], kept))
            program->waiting[kept++] = program->waiting[i];
    }
    program->waiting_count = kept;
}

bool program_step(struct user_channel *channel)
{
    struct program *program = channel->running;
    u64 generation = channel->gpu->faults.replay_generation;
    bool progress = false;
    u32 issued;

    if (!program)
        return false;
    if (program->waiting_count && program->replay_generation != generation) {
        retry_waiting(channel);
        progress = true;
    }
    program->replay_generation = generation;

    for (issued = 0; issued < SLICE_ACCESSES; issued++) {
        if (program->next == program->count || program->waiting_count == program->window)
            break;
        if (!attempt(channel, program->next, program->waiting_count))
            program->waiting[program->waiting_count++] = program->next;
        program->next++;
        progress = true;
    }
    if (program->next == program->count && !program->waiting_count)
        finish(channel, 0);
    return progress;
}

bool program_is_stuck(const struct user_channel *channel)
{
    const struct program *program = channel->running;

    return program && program->waiting_count &&
           (program->waiting_count == program->window || program->next == program->count);
}

/* Cancels waiting accesses of a channel: the matching ones, or all (NULL). */
static void cancel_accesses(struct user_channel *channel, const struct program_cancel *cancel)
{
    struct program *program = channel->running;
    u64 va_mask = BIT_ULL(channel->gpu->arch->mmu->va_bits) - 1;
    u32 i;

    if (!program)
        return;
    for (i = 0; i < program->waiting_count; i++) {
        const struct swgpu_access *access = &program->accesses[program->waiting[i]];

        if (!cancel || ((cancel->access_types & BIT(type_of(program, access))) &&
                        !((page_of(access->va) ^ cancel->page_va) & va_mask))) {
            channel->state = CHANNEL_FAULTED;
            mirror_reset(channel->space);
            finish(channel, -EFAULT);
            return;
        }
    }
}

void program_cancel(struct swgpu *gpu, const struct program_cancel *cancel)
{
    struct user_channel *channel;

    gpu->counters.cancels++;
    list_for_each_entry(channel, &gpu->user_channels, node) {
        if (cancel->by_instance) {
            if (user_channel_instance(channel) == cancel->instance)
                cancel_accesses(channel, NULL);
        } else if (channel->space->has_root && channel->space->root_aperture == cancel->root_aperture &&
                   channel->space->root == cancel->root) {
            cancel_accesses(channel, cancel);
        }
    }
}
