// SPDX-License-Identifier: GPL-2.0 OR MIT
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "log.h"
#include "program.h"
#include "space.h"
#include "swgpu.h"

/* Records that a read takes off the ring at a time, before it copies them to the caller. */
#define READ_RECORDS 64

struct log {
    struct list_head node; /* in logs.open */
    struct swgpu *gpu;
    u32 channel; /* 0 for all */
    u32 capacity;
    u64 written; /* records written in total, and likewise read: their difference is the fill level of the ring */
    u64 taken;
    u64 lost; /* since the last record */
    u64 first_lost;
    struct swgpu_log_record records[];
};

/* One order for the logs of all cards. */
static atomic64_t last_sequence;

void logs_init(struct logs *logs)
{
    spin_lock_init(&logs->lock);
    INIT_LIST_HEAD(&logs->open);
}

static struct swgpu_log_record *record_at(struct log *log, u64 index)
{
    u32 slot;

    div_u64_rem(index, log->capacity, &slot);
    return &log->records[slot];
}

static u64 room(const struct log *log)
{
    return log->capacity - (log->written - log->taken);
}

/* Whether the event only extends the last record: the same page accessed again, the next page
 * copied or mapped. */
static bool merge(struct log *log, const struct swgpu_log_record *event)
{
    struct swgpu_log_record *last;
    u64 step;

    if (log->lost || log->written == log->taken || event->event > SWGPU_LOG_MAP)
        return false;
    last = record_at(log, log->written - 1);
    step = event->event == SWGPU_LOG_ACCESS ? 0 : last->weight;
    if (last->event != event->event || last->pid != event->pid || last->type != event->type ||
        last->from != event->from || last->to != event->to || last->physical + step != event->physical ||
        last->va + (event->pid ? step : 0) != event->va)
        return false;
    last->weight += event->weight;
    return true;
}

/* Writes a record of lost events, if there is room. */
static void put_lost(struct log *log)
{
    if (!log->lost || !room(log))
        return;
    *record_at(log, log->written++) = (struct swgpu_log_record){
        .sequence = log->first_lost,
        .weight = log->lost,
        .event = SWGPU_LOG_LOST,
    };
    log->lost = 0;
}

static void put(struct log *log, const struct swgpu_log_record *event)
{
    if (merge(log, event))
        return;
    if (room(log) < (log->lost ? 2 : 1)) {
        if (!log->lost++)
            log->first_lost = event->sequence;
        return;
    }
    put_lost(log);
    *record_at(log, log->written++) = *event;
}

/* `channel` is 0 for events without a channel. */
static void log_event(struct swgpu *gpu, u32 channel, struct swgpu_log_record event)
{
    struct log *log;

    spin_lock(&gpu->logs.lock);
    event.sequence = atomic64_inc_return(&last_sequence);
    list_for_each_entry(log, &gpu->logs.open, node) {
        if (!channel || !log->channel || log->channel == channel)
            put(log, &event);
    }
    spin_unlock(&gpu->logs.lock);
}

static bool is_off(const struct swgpu *gpu)
{
    return list_empty(&gpu->logs.open); /* a log that is being opened concurrently may miss this event */
}

u8 log_place(const struct mmu_target *target)
{
    switch (target->aperture) {
    case APERTURE_VIDMEM:
        return SWGPU_LOCAL;
    case APERTURE_SYSMEM:
        return SWGPU_HOST;
    case APERTURE_PEER:
        return SWGPU_PEER;
    default:
        return SWGPU_OTHER;
    }
}

void log_access(const struct user_channel *channel, enum access_type type, u64 va, const struct mmu_target *target)
{
    struct swgpu_log_record event = {
        .weight = 1,
        .va = ALIGN_DOWN(va, SWGPU_PAGE_BYTES),
        .pid = channel->space->pid,
        .event = SWGPU_LOG_ACCESS,
        .type = type,
        .from = log_place(target),
    };

    if (is_off(channel->gpu))
        return;
    if (event.from != SWGPU_OTHER)
        event.physical = ALIGN_DOWN(target->address, SWGPU_PAGE_BYTES);
    log_event(channel->gpu, channel->handle, event);
}

void log_copy(struct swgpu *gpu, const struct mmu_target *to, const struct mmu_target *from, u64 bytes)
{
    bool comes = to->aperture == APERTURE_VIDMEM;
    u64 start = comes ? to->address : from->address;
    u64 offset;

    if (is_off(gpu) || (!comes && from->aperture != APERTURE_VIDMEM))
        return;
    for (offset = 0; offset < bytes; offset += SWGPU_PAGE_BYTES) {
        struct swgpu_log_record event = {
            .weight = SWGPU_PAGE_BYTES,
            .physical = start + offset,
            .event = SWGPU_LOG_COPY,
            .from = log_place(from),
            .to = log_place(to),
        };

        /* The page is mapped only after the copy into it: its last user is a former one. */
        if (!comes)
            event.pid = ledger_user(gpu, event.physical, &event.va);
        log_event(gpu, 0, event);
    }
}

void log_mapping(struct swgpu *gpu, u64 address, u64 bytes, u32 pid, u64 va)
{
    if (!is_off(gpu))
        log_event(gpu, 0,
                  (struct swgpu_log_record){
                      .weight = bytes, .va = va, .physical = address, .pid = pid, .event = SWGPU_LOG_MAP });
}

void log_mark(struct swgpu *gpu, const struct swgpu_mark *mark)
{
    if (!is_off(gpu))
        log_event(gpu, 0,
                  (struct swgpu_log_record){
                      .weight = mark->bytes,
                      .va = mark->va,
                      .pid = task_tgid_nr(current),
                      .event = mark->event,
                      .type = mark->type,
                  });
}

struct log *log_open(struct swgpu *gpu, u32 channel, u32 capacity)
{
    struct log *log = __vmalloc(struct_size(log, records, capacity), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);

    if (!log)
        return ERR_PTR(-ENOMEM);
    *log = (struct log){ .gpu = gpu, .channel = channel, .capacity = capacity };
    spin_lock(&gpu->logs.lock);
    list_add(&log->node, &gpu->logs.open);
    spin_unlock(&gpu->logs.lock);
    return log;
}

void log_close(struct log *log)
{
    spin_lock(&log->gpu->logs.lock);
    list_del(&log->node);
    spin_unlock(&log->gpu->logs.lock);
    vfree(log);
}

static u32 take(struct log *log, struct swgpu_log_record *records, u32 max)
{
    u32 count = 0;

    spin_lock(&log->gpu->logs.lock);
    if (log->written == log->taken)
        put_lost(log);
    while (count < max && log->taken != log->written)
        records[count++] = *record_at(log, log->taken++);
    spin_unlock(&log->gpu->logs.lock);
    return count;
}

ssize_t log_read(struct log *log, char __user *buffer, size_t bytes)
{
    struct swgpu_log_record *records = kmalloc_array(READ_RECORDS, sizeof(*records), GFP_KERNEL);
    size_t done = 0;

    if (!records)
        return -ENOMEM;
    while (bytes - done >= sizeof(*records)) {
        u32 count = take(log, records, min_t(size_t, READ_RECORDS, (bytes - done) / sizeof(*records)));

        if (!count)
            break;
        if (copy_to_user(buffer + done, records, count * sizeof(*records))) {
            kfree(records);
            return -EFAULT; /* bad buffer: the records taken for it are lost */
        }
        done += count * sizeof(*records);
    }
    kfree(records);
    return done;
}
