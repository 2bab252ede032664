// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The rule. A page's user is the address space that mapped it last. A departure is a copy from a
 * frame to the host whose user has no page of that block of 2 MiB mapped there any more. The driver
 * evicts in this way: it first unmaps the block and then copies it, while a fault of the CPU mostly
 * takes a part and leaves the rest mapped. A row follows a departure in three cases: a block that
 * was not in the frame maps a page of it; any block maps a page of the departed block; or page
 * tables or a device allocation take the frame. If the departed block comes back first, or the
 * driver frees the frame, there is no row.
 */
#include <linux/bits.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "ledger.h"
#include "space.h"
#include "swgpu.h"

#define PAGES_PER_FRAME (PMA_FRAME_BYTES / SWGPU_PAGE_BYTES)

/* Size of the driver's blocks, 2 MiB of virtual addresses, as a shift. */
#define BLOCK_SHIFT 21

/* Maximum of recorded departures per frame: blocks smaller than 2 MiB share a frame, mostly by
 * 64 KiB. */
#define DEPARTURES_MAX 32

struct page_user {
    u64 va;
    u32 space; /* gpu_space.id; 0 for none */
    u32 pid;
    bool mapped;
};

struct departure {
    u64 bytes; /* 0 for none */
    u64 block;
    u32 space;
    u32 pid;
};

struct frame {
    struct departure departures[DEPARTURES_MAX];
};

int ledger_init(struct swgpu *gpu)
{
    struct ledger *ledger = &gpu->ledger;

    spin_lock_init(&ledger->lock);
    ledger->pages = vcalloc(gpu->vidmem_bytes / SWGPU_PAGE_BYTES, sizeof(*ledger->pages));
    ledger->frames = vcalloc(gpu->vidmem_bytes / PMA_FRAME_BYTES, sizeof(*ledger->frames));
    ledger->rows = vcalloc(SWGPU_LEDGER_ROWS_MAX, sizeof(*ledger->rows));
    return ledger->pages && ledger->frames && ledger->rows ? 0 : -ENOMEM;
}

void ledger_destroy(struct swgpu *gpu)
{
    vfree(gpu->ledger.pages);
    vfree(gpu->ledger.frames);
    vfree(gpu->ledger.rows);
}

static struct page_user *page_at(struct swgpu *gpu, u64 address)
{
    return &gpu->ledger.pages[address / SWGPU_PAGE_BYTES];
}

static struct frame *frame_at(struct swgpu *gpu, u64 address)
{
    return &gpu->ledger.frames[address >> PMA_FRAME_SHIFT];
}

static bool is_of_block(const struct page_user *page, u32 space, u64 block)
{
    return page->space == space && page->va >> BLOCK_SHIFT == block;
}

static void add_row(struct ledger *ledger, const struct departure *departure, u32 taker, u32 taker_pid)
{
    struct swgpu_ledger_row *row;
    u32 i;

    for (i = 0; i < ledger->row_count; i++) {
        row = &ledger->rows[i];
        if (row->victim_pid == departure->pid && row->taker == taker && row->taker_pid == taker_pid)
            break;
    }
    if (i == SWGPU_LEDGER_ROWS_MAX) {
        ledger->lost_bytes += departure->bytes;
        return;
    }
    row = &ledger->rows[i];
    if (i == ledger->row_count) {
        *row = (struct swgpu_ledger_row){ .victim_pid = departure->pid, .taker = taker, .taker_pid = taker_pid };
        ledger->row_count++;
    }
    row->frames++;
    row->copied_out_bytes += departure->bytes;
}

static bool is_departed(const struct frame *frame, u32 space, u64 block)
{
    u32 i;

    for (i = 0; i < DEPARTURES_MAX; i++) {
        const struct departure *departure = &frame->departures[i];

        if (departure->bytes && departure->space == space && departure->block == block)
            return true;
    }
    return false;
}

static bool has_departures(const struct frame *frame)
{
    u32 i;

    for (i = 0; i < DEPARTURES_MAX; i++) {
        if (frame->departures[i].bytes)
            return true;
    }
    return false;
}

static struct page_user *first_page(struct swgpu *gpu, u64 address)
{
    return page_at(gpu, ALIGN_DOWN(address, PMA_FRAME_BYTES));
}

/* Whether the space has or had pages of the block in the frame, since the frame was last taken
 * from it. */
static bool block_is_known(struct swgpu *gpu, u64 address, u32 space, u64 block)
{
    const struct page_user *page = first_page(gpu, address);
    u32 i;

    for (i = 0; i < PAGES_PER_FRAME; i++) {
        if (is_of_block(&page[i], space, block))
            return true;
    }
    return false;
}

static void forget_block(struct swgpu *gpu, u64 address, u32 space, u64 block)
{
    struct page_user *page = first_page(gpu, address);
    u32 i;

    for (i = 0; i < PAGES_PER_FRAME; i++) {
        if (is_of_block(&page[i], space, block))
            page[i] = (struct page_user){};
    }
}

/* Adds a row for each departure from the frame: the taker has taken it. */
static void take(struct swgpu *gpu, u64 address, u32 taker, u32 taker_pid)
{
    struct frame *frame = frame_at(gpu, address);
    u32 i;

    for (i = 0; i < DEPARTURES_MAX; i++) {
        struct departure *departure = &frame->departures[i];

        if (!departure->bytes)
            continue;
        add_row(&gpu->ledger, departure, taker, taker_pid);
        forget_block(gpu, address, departure->space, departure->block);
        departure->bytes = 0;
    }
}

/* Removes the departure of a block that is mapped again before the frame was taken. */
static void come_back(struct frame *frame, u32 space, u64 block)
{
    u32 i;

    for (i = 0; i < DEPARTURES_MAX; i++) {
        if (frame->departures[i].space == space && frame->departures[i].block == block)
            frame->departures[i].bytes = 0;
    }
}

static void map_page(struct swgpu *gpu, u64 address, const struct gpu_space *space, u64 va)
{
    struct page_user *page = page_at(gpu, address);
    struct frame *frame = frame_at(gpu, address);
    u64 block = va >> BLOCK_SHIFT;

    come_back(frame, space->id, block);
    if (has_departures(frame) &&
        (is_departed(frame, page->space, page->va >> BLOCK_SHIFT) || !block_is_known(gpu, address, space->id, block)))
        take(gpu, address, SWGPU_TAKER_SPACE, space->pid);
    if (!page->mapped || page->space != space->id || page->va != va)
        log_mapping(gpu, address, SWGPU_PAGE_BYTES, space->pid, va);
    *page = (struct page_user){ .va = va, .space = space->id, .pid = space->pid, .mapped = true };
}

void ledger_mapped(struct swgpu *gpu, u64 address, u64 bytes, const struct gpu_space *space, u64 va)
{
    u64 offset;

    spin_lock(&gpu->ledger.lock);
    for (offset = 0; offset < bytes; offset += SWGPU_PAGE_BYTES)
        map_page(gpu, address + offset, space, va + offset);
    spin_unlock(&gpu->ledger.lock);
}

void ledger_unmapped(struct swgpu *gpu, u64 address, u64 bytes, const struct gpu_space *space, u64 va)
{
    u64 offset;

    spin_lock(&gpu->ledger.lock);
    for (offset = 0; offset < bytes; offset += SWGPU_PAGE_BYTES) {
        struct page_user *page = page_at(gpu, address + offset);

        if (page->space == space->id && page->va == va + offset)
            page->mapped = false;
    }
    spin_unlock(&gpu->ledger.lock);
}

static bool block_is_mapped(struct swgpu *gpu, u64 address, const struct page_user *user)
{
    const struct page_user *page = first_page(gpu, address);
    u32 i;

    for (i = 0; i < PAGES_PER_FRAME; i++) {
        if (page[i].mapped && is_of_block(&page[i], user->space, user->va >> BLOCK_SHIFT))
            return true;
    }
    return false;
}

static void depart(struct ledger *ledger, struct frame *frame, const struct page_user *user)
{
    u64 block = user->va >> BLOCK_SHIFT;
    struct departure *free = NULL;
    u32 i;

    for (i = 0; i < DEPARTURES_MAX; i++) {
        struct departure *departure = &frame->departures[i];

        if (!departure->bytes) {
            free = free ?: departure;
        } else if (departure->space == user->space && departure->block == block) {
            departure->bytes += SWGPU_PAGE_BYTES;
            return;
        }
    }
    if (free)
        *free = (struct departure){ SWGPU_PAGE_BYTES, block, user->space, user->pid };
    else
        ledger->lost_bytes += SWGPU_PAGE_BYTES;
}

void ledger_copied_out(struct swgpu *gpu, u64 address, u64 bytes)
{
    struct ledger *ledger = &gpu->ledger;
    u64 end = address + bytes;

    spin_lock(&ledger->lock);
    for (; address < end; address += SWGPU_PAGE_BYTES) {
        struct page_user *user = page_at(gpu, address);

        if (!block_is_mapped(gpu, address, user))
            depart(ledger, frame_at(gpu, address), user);
    }
    spin_unlock(&ledger->lock);
}

void ledger_taken(struct swgpu *gpu, u64 address, u32 taker, u32 taker_pid)
{
    spin_lock(&gpu->ledger.lock);
    take(gpu, address, taker, taker_pid);
    spin_unlock(&gpu->ledger.lock);
}

void ledger_freed(struct swgpu *gpu, u64 address)
{
    spin_lock(&gpu->ledger.lock);
    memset(frame_at(gpu, address), 0, sizeof(struct frame));
    memset(first_page(gpu, address), 0, PAGES_PER_FRAME * sizeof(struct page_user));
    spin_unlock(&gpu->ledger.lock);
}

u32 ledger_user(struct swgpu *gpu, u64 address, u64 *va)
{
    struct page_user user;

    spin_lock(&gpu->ledger.lock);
    user = *page_at(gpu, address);
    spin_unlock(&gpu->ledger.lock);
    *va = user.va;
    return user.pid;
}

static long copy_rows(struct swgpu *gpu, struct swgpu_ledger *request)
{
    struct ledger *ledger = &gpu->ledger;
    struct swgpu_ledger_row *rows = kvcalloc(SWGPU_LEDGER_ROWS_MAX, sizeof(*rows), GFP_KERNEL);
    long status = 0;

    if (!rows)
        return -ENOMEM;
    spin_lock(&ledger->lock);
    request->count = min(ledger->row_count, request->capacity);
    request->left_out = ledger->row_count - request->count;
    request->lost_bytes = ledger->lost_bytes;
    memcpy(rows, ledger->rows, request->count * sizeof(*rows));
    spin_unlock(&ledger->lock);
    if (copy_to_user(u64_to_user_ptr(request->rows), rows, request->count * sizeof(*rows)))
        status = -EFAULT;
    kvfree(rows);
    return status;
}

long ledger_read(void __user *argument)
{
    struct swgpu_ledger request;
    struct swgpu *gpu;
    long status;

    if (copy_from_user(&request, argument, sizeof(request)))
        return -EFAULT;
    gpu = swgpu_at(request.gpu);
    if (!gpu)
        return -ENODEV;
    if (request.capacity > SWGPU_LEDGER_ROWS_MAX)
        return -EINVAL;
    status = copy_rows(gpu, &request);
    if (!status && copy_to_user(argument, &request, sizeof(request)))
        status = -EFAULT;
    return status;
}
