/* SPDX-License-Identifier: GPL-2.0 OR MIT
 *
 * Software GPU: one struct per card, and the reporting of unmodelled operations.
 *
 * Locking. swgpu.lock covers a card's channels, address spaces, fault unit and counters; its engine
 * thread holds it for one slice of work at a time. The frames of memory have a separate lock
 * (pma.h), because the driver allocates while it holds locks that the engine never sees. The ledger
 * (ledger.h), the logs (log.h) and the handles (space.h) have separate locks, too. The driver is
 * never called with swgpu.lock held.
 */
#ifndef SWGPU_H
#define SWGPU_H

#include <linux/atomic.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/printk.h>
#include <linux/sched.h>
#include <linux/timekeeping.h>
#include <linux/types.h>
#include <linux/wait.h>

#include "nvtypes.h"
#include "nvCpuUuid.h"

#include "arch.h"
#include "fault.h"
#include "ledger.h"
#include "log.h"
#include "pma.h"
#include "swgpu_ioctl.h"
#include "tables.h"

#define SWGPU_MAX_GPUS 8
#define SWGPU_PAGE_BYTES 4096ull
#define SWGPU_SUBCHANNELS 8
#define SWGPU_METHODS 4096 /* per subchannel: a method header has 12 bits for its number */

struct pci_dev;

struct swgpu {
    u32 index;
    const struct swgpu_arch *arch;
    NvProcessorUuid uuid;
    u32 peer_mask;       /* cards connected to this one by NVLink, by index */
    struct pci_dev *pci; /* for the DMA API only: the driver maps system memory through it */

    u8 *vidmem;
    u64 vidmem_bytes;
    struct pma pma;
    struct ledger ledger;
    struct logs logs;

    struct mutex lock;
    struct list_head host_channels; /* struct host_channel: the driver's */
    struct list_head user_channels; /* struct user_channel: created through /dev/swgpu */
    struct fault_unit faults;
    struct tables tables;
    struct swgpu_counters counters; /* without the three below and free_bytes */
    u32 next_channel_id;

    atomic64_t unknown_methods;
    DECLARE_BITMAP(unknown_methods_printed, SWGPU_SUBCHANNELS *SWGPU_METHODS);
    atomic64_t errors;

    u32 access_counter_registers[6]; /* written by the driver; never read here */
    u32 time_ns[2];                  /* registers TIME_0 and TIME_1: low and high half */

    struct task_struct *engine;
    wait_queue_head_t engine_wait;
    bool engine_kicked;
};

extern struct swgpu *swgpu_gpus[SWGPU_MAX_GPUS];
extern unsigned int swgpu_gpu_count;

/* Whether cards have ECC, and whether each reports an uncorrected error. */
bool swgpu_has_ecc(void);
extern NvBool swgpu_ecc_error;

/* The next two functions return NULL if there is no such card. */
struct swgpu *swgpu_find(const NvProcessorUuid *uuid);

static inline struct swgpu *swgpu_at(u32 index)
{
    return index < swgpu_gpu_count ? swgpu_gpus[index] : NULL;
}

/* Card of a peer id: `id` of three bits in this card's page tables and copies is the index of a
 * card. NULL for none. */
#define SWGPU_PEER_ID_MASK 7
static inline struct swgpu *swgpu_peer(const struct swgpu *gpu, u32 id)
{
    return id == gpu->index ? NULL : swgpu_at(id);
}

/* The card's clock. Real cards count nanoseconds too. */
static inline u64 swgpu_time_ns(void)
{
    return ktime_get_ns();
}

/* Wakes the engine, as there may be work: all that a channel needs of it. */
static inline void swgpu_engine_kick(struct swgpu *gpu)
{
    WRITE_ONCE(gpu->engine_kicked, true);
    wake_up_interruptible(&gpu->engine_wait);
}

/* Counts an error, which invalidates the run, and prints the first one of each place in the
 * code. */
#define swgpu_error(gpu, fmt, ...)                                                                                     \
    do {                                                                                                               \
        atomic64_inc(&(gpu)->errors);                                                                                  \
        pr_err_once("swgpu: error: gpu %u: " fmt "\n", (gpu)->index, ##__VA_ARGS__);                                   \
    } while (0)

/* engine.c */
int swgpu_engine_start(struct swgpu *gpu);
void swgpu_engine_stop(struct swgpu *gpu);

/* rm_faults.c: raises the interrupt at the driver, if it is loaded. Sleeps. */
void swgpu_raise_interrupt(struct swgpu *gpu);

/* procfs.c */
void swgpu_procfs_create(void);
void swgpu_procfs_remove(void);

/* dev.c */
int swgpu_dev_register(void);
void swgpu_dev_unregister(void);

#endif
