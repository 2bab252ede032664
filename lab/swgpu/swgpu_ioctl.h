/* SPDX-License-Identifier: GPL-2.0 OR MIT
 *
 * Requests of user programs to the software GPU, over /dev/swgpu. They stand in for the CUDA
 * driver's use of RM and of the GPU's queues: create an address space and a channel, run a kernel,
 * read the hardware's counters.
 *
 * One open file is one client of the resource manager. Its address spaces and channels are
 * destroyed when it is closed.
 */
#ifndef SWGPU_IOCTL_H
#define SWGPU_IOCTL_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Kinds of access. */
#define SWGPU_READ 0
#define SWGPU_WRITE 1
#define SWGPU_ATOMIC_ADD 2

/* One 8-byte access by the GPU. A read stores the found value in `value`, an atomic the value
 * before the addition. */
struct swgpu_access {
    __u64 va; /* 8-byte aligned, below 2^49 (2^57 on hopper) */
    __u64 value;
};

struct swgpu_info {
    __u32 gpu;       /* in: index of the GPU */
    __u32 gpu_count; /* out, as are the following */
    __u64 memory_bytes;
    __u8 uuid[16];
    char arch[16];   /* "hopper" */
    __u32 peer_mask; /* by index: GPUs that it reaches directly, by NVLink; others by way of the host */
    __u32 reserved;
};

/* A GPU address space and one channel in it. The handles are parameters of
 * UVM_REGISTER_GPU_VASPACE and UVM_REGISTER_CHANNEL, with this file as rmCtrlFd. Work on the
 * channel is attributed to the process that makes this request. */
struct swgpu_space {
    __u32 gpu;      /* in */
    __u32 client;   /* out: hClient */
    __u32 va_space; /* out: hVaSpace */
    __u32 channel;  /* out: hChannel */
};

/* A kernel: the accesses are issued in order, at most `window` of them waiting on a fault at a
 * time; accesses to one page keep their order. It waits for other kernels on its channel. Returns
 * when all are done, or with one of these errors:
 *
 * - EFAULT: the driver cancelled an access as fatal; `done` is the number of completed accesses.
 *   The channel is dead from then on, as a CUDA context is: further runs return EFAULT too, with
 *   `done` 0.
 * - EINTR: killed.
 * - ECANCELED: the driver stopped the channel, as it does when its VA space is destroyed.
 * - ENXIO: the channel is not registered with the driver.
 * - ENOENT, EINVAL: no such channel, a bad field or address. */
struct swgpu_run {
    __u32 channel;           /* in */
    __u32 type;              /* in: SWGPU_READ, ... */
    __u32 window;            /* in: at least 1; larger values mean SWGPU_WINDOW_MAX */
    __u32 count;             /* in: at most SWGPU_RUN_MAX */
    __u64 accesses;          /* in: address of struct swgpu_access[count], read and written */
    __u64 access_millibytes; /* in: thousandths of a byte that each access moves over the bus if its page is not in the
                                GPU's memory; at most SWGPU_ACCESS_MILLIBYTES_MAX */
    __u32 done;              /* out */
    __u32 flags;             /* in: 0, or SWGPU_RUN_TOUCH */
};
/* The accesses only translate, with the faults that this takes: `value` is the kind of each (`type` is unused), then
 * the place of its memory, SWGPU_LOCAL, ... */
#define SWGPU_RUN_TOUCH 1u
#define SWGPU_RUN_MAX (1u << 20)
#define SWGPU_WINDOW_MAX 4096u
#define SWGPU_ACCESS_MILLIBYTES_MAX (1ull << 32)

/* The mirror: mmap(MAP_SHARED) of /dev/swgpu at an offset that is a GPU address maps the address
 * space of the file's first channel, so that loads and stores of the process are accesses of that
 * channel. What does not translate is faulted in, one access at a time. Touch pages
 * (SWGPU_RUN_TOUCH) for many faults at a time, for atomics, and to learn which memory is not the
 * GPU's, so that accesses to it can be counted (SWGPU_IOC_ACCESSED). On a dead channel, reads return
 * anything and writes go nowhere. A page without memory, as a sparse one, is SIGBUS.
 *
 * At SWGPU_PERMISSIONS_OFFSET plus address / 4,096 follows the table of permissions, a byte for each
 * page of 4 KiB: SWGPU_MAY_READ, ... where it is in the GPU's memory. The GPU sets a byte when an
 * access has translated there, and clears it before the driver changes the translation. The process
 * may write bytes of pages at which it has no managed memory. */
#define SWGPU_PERMISSIONS_OFFSET (1ull << 60)
#define SWGPU_MAY_READ 1u
#define SWGPU_MAY_WRITE 2u
#define SWGPU_MAY_ATOMIC 4u

/* Completed accesses, and the bus traffic of those to memory other than the GPU's: in
 * thousandths of a byte, as given for their run, so that the channels' figures add up to the
 * GPU's. An atomic moves them both ways. */
struct swgpu_access_counters {
    __u64 accesses;
    __u64 remote_accesses;             /* of those, accesses to memory other than the GPU's */
    __u64 remote_htod_millibytes;      /* read from host memory */
    __u64 remote_dtoh_millibytes;      /* written to host memory */
    __u64 remote_from_peer_millibytes; /* read from another GPU's memory */
    __u64 remote_to_peer_millibytes;   /* written to another GPU's memory */
};

/* Accesses of a channel by its mirror, which the GPU cannot count: the process does.
 *
 * - EFAULT: the channel is dead, or the driver does not know it (yet). What it has read through the
 *   mirror since is no data; the accesses are counted all the same. */
struct swgpu_accessed {
    __u32 channel; /* in, as are the following */
    __u32 reserved; /* 0 */
    struct swgpu_access_counters access; /* each at most SWGPU_ACCESSED_MAX */
};
#define SWGPU_ACCESSED_MAX (1ull << 48)

/* Counts of the hardware itself, since the module was loaded.
 *
 * Copies are those of whole pages, page-aligned, by source and destination memory. Each is
 * counted once, at the GPU whose copy engine made it. */
struct swgpu_counters {
    __u32 gpu; /* in */
    __u32 reserved;
    __u64 fault_packets;   /* written to the fault buffer */
    __u64 fault_overflows; /* not written because the buffer was full; the access raises it again after the replay */
    __u64 replays;         /* requested by the driver, including those without a waiting access */
    __u64 cancels;
    __u64 copied_htod_bytes;      /* from the host's memory to the GPU's */
    __u64 copied_dtoh_bytes;      /* from the GPU's memory to the host's */
    __u64 copied_dtod_bytes;      /* within the GPU's memory */
    __u64 copied_from_peer_bytes; /* from another GPU's memory to this one's */
    __u64 copied_to_peer_bytes;   /* from this GPU's memory to another's */
    __u64 copied_other_bytes;     /* all other writes of copy engines: page tables, memsets, semaphores */
    struct swgpu_access_counters access;
    __u64 unknown_methods; /* pushbuffer methods unknown to the model: a non-zero value invalidates the run */
    __u64 errors;          /* channel errors (RC), bad addresses in copies, broken packets: likewise */
    __u64 free_bytes;      /* unallocated memory */
};

/* Accesses of one channel of this file. */
struct swgpu_channel_counters {
    __u32 channel; /* in */
    __u32 reserved;
    struct swgpu_access_counters access; /* out */
};

/* Memory of a GPU that is not managed, as of cudaMalloc: whole frames of 2 MiB, pinned. If no
 * frame is free, the driver has to evict managed memory. Freed with the file at the latest.
 *
 * - ENOMEM: there are too few frames, and the driver cannot evict more. */
struct swgpu_alloc {
    __u32 gpu;    /* in */
    __u32 handle; /* out: for SWGPU_IOC_FREE */
    __u64 bytes;  /* in: rounded up to frames */
};

struct swgpu_free {
    __u32 handle; /* in. ENOENT: this file has no such allocation */
    __u32 reserved;
};

/* The frame ledger: victims and takers of frames, since the module was loaded. A frame changes
 * hands when pages of it have been copied out to memory elsewhere and then another process, or
 * the same process for other addresses, takes it. README.md describes the limits of this rule. */
#define SWGPU_TAKER_SPACE 0      /* a process's address space maps it */
#define SWGPU_TAKER_DRIVER 1     /* the driver puts page tables there; taker_pid is 0 */
#define SWGPU_TAKER_ALLOCATION 2 /* SWGPU_IOC_ALLOC takes it */

struct swgpu_ledger_row {
    __u32 victim_pid; /* 0: unknown */
    __u32 taker_pid;
    __u32 taker; /* SWGPU_TAKER_SPACE, ... */
    __u32 reserved;
    __u64 frames;           /* number of frames, or parts of one, that changed hands between the two */
    __u64 copied_out_bytes; /* of the victim's pages, before the frame was taken */
};

struct swgpu_ledger {
    __u32 gpu;        /* in */
    __u32 capacity;   /* in: capacity in rows, at most SWGPU_LEDGER_ROWS_MAX */
    __u64 rows;       /* in: address of struct swgpu_ledger_row[capacity], written */
    __u32 count;      /* out: rows written */
    __u32 left_out;   /* out: rows beyond the capacity */
    __u64 lost_bytes; /* out: copied out, but in no row: the ledger is limited to SWGPU_LEDGER_ROWS_MAX pairs */
};
#define SWGPU_LEDGER_ROWS_MAX 1024u

/* The log of a GPU: accesses page by page, copies of whole pages by its copy engines, and the
 * mappings that locate each page. Open from this call until the file is closed, one per file
 * (EBUSY). read() returns whole records, oldest first, and 0 bytes if there are none. It never
 * waits. */
struct swgpu_log {
    __u32 gpu;     /* in */
    __u32 channel; /* in: log only the accesses of this channel (of any file); 0 for all. Copies and mappings are always
                      logged */
    __u32 capacity; /* in: records stored until they are read, SWGPU_LOG_CAPACITY_MIN to _MAX */
    __u32 reserved; /* in: 0 */
};
#define SWGPU_LOG_CAPACITY_MIN 2u
#define SWGPU_LOG_CAPACITY_MAX (1u << 18)

/* Consecutive events of this log are one record if they are equal accesses, or copies or
 * mappings of consecutive pages. */
#define SWGPU_LOG_ACCESS 0
#define SWGPU_LOG_COPY 1
#define SWGPU_LOG_MAP 2  /* page-table entries that make pages of this GPU's memory valid */
#define SWGPU_LOG_LOST 3 /* `weight` events are missing here, copies and mappings by the page, as the ring was full */
/* Marks of a process (SWGPU_IOC_MARK): its CPU accesses to `weight` bytes from `va` begin or end
 * here. */
#define SWGPU_LOG_CPU_BEGIN 4
#define SWGPU_LOG_CPU_END 5

#define SWGPU_LOCAL 0 /* this GPU's memory */
#define SWGPU_HOST 1
#define SWGPU_PEER 2  /* another GPU's memory */
#define SWGPU_OTHER 3 /* none: a sparse page */

struct swgpu_log_record {
    __u64 sequence; /* of the first event of the record; one order for all GPUs */
    __u64 weight;   /* accesses; bytes of a copy, a mapping or a mark; lost events */
    __u64 va; /* of the (first) page; in a copy out of this GPU's memory, its last mapped address; in one into it 0 */
    __u64 physical; /* of the (first) page: its location; in a copy, the end in this GPU's memory */
    __u32 pid;      /* process of the va; 0 for none */
    __u8 event;     /* SWGPU_LOG_* */
    __u8 type;      /* access, mark: SWGPU_READ, ... */
    __u8 from;      /* access: location of the page; copy: source. SWGPU_LOCAL, ... */
    __u8 to;        /* copy: destination */
};

/* A mark in the logs of a GPU, in the order of their records: begin or end of CPU accesses,
 * which the GPU cannot see. */
struct swgpu_mark {
    __u32 gpu;      /* in, as are the following */
    __u32 event;    /* SWGPU_LOG_CPU_BEGIN or _END */
    __u32 type;     /* SWGPU_READ, ... */
    __u32 reserved; /* 0 */
    __u64 va;
    __u64 bytes;
};

#define SWGPU_IOC_INFO _IOWR('G', 1, struct swgpu_info)
#define SWGPU_IOC_SPACE _IOWR('G', 2, struct swgpu_space)
#define SWGPU_IOC_RUN _IOWR('G', 3, struct swgpu_run)
#define SWGPU_IOC_COUNTERS _IOWR('G', 4, struct swgpu_counters)
#define SWGPU_IOC_CHANNEL_COUNTERS _IOWR('G', 5, struct swgpu_channel_counters)
#define SWGPU_IOC_ALLOC _IOWR('G', 6, struct swgpu_alloc)
#define SWGPU_IOC_FREE _IOWR('G', 7, struct swgpu_free)
#define SWGPU_IOC_LEDGER _IOWR('G', 8, struct swgpu_ledger)
#define SWGPU_IOC_LOG _IOWR('G', 9, struct swgpu_log)
#define SWGPU_IOC_MARK _IOWR('G', 10, struct swgpu_mark)
#define SWGPU_IOC_ACCESSED _IOWR('G', 11, struct swgpu_accessed)

#endif
