/* SPDX-License-Identifier: GPL-2.0 OR MIT
 *
 * What user programs ask of the software GPU, over /dev/swgpu. Stands in for what the CUDA driver would do with RM and
 * with the GPU's own queues: make an address space and a channel, run a kernel, read the hardware's counters.
 *
 * One open file is one client of the resource manager. Its address spaces and channels go when it is closed.
 */
#ifndef SWGPU_IOCTL_H
#define SWGPU_IOCTL_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Kinds of access. */
#define SWGPU_READ 0
#define SWGPU_WRITE 1
#define SWGPU_ATOMIC_ADD 2

/* One 8-byte access by the GPU. A read stores what it found in `value`, an atomic what was there before. */
struct swgpu_access {
    __u64 va; /* 8-byte aligned, below 2^49 (2^57 on hopper) */
    __u64 value;
};

struct swgpu_info {
    __u32 gpu;       /* in: index of the GPU */
    __u32 gpu_count; /* out, and so the rest */
    __u64 memory_bytes;
    __u8 uuid[16];
    char arch[16]; /* "hopper" */
};

/* A GPU address space and one channel in it. The handles go into UVM_REGISTER_GPU_VASPACE and UVM_REGISTER_CHANNEL,
 * with this file as rmCtrlFd. */
struct swgpu_space {
    __u32 gpu;      /* in */
    __u32 client;   /* out: hClient */
    __u32 va_space; /* out: hVaSpace */
    __u32 channel;  /* out: hChannel */
};

/* A kernel: the accesses are issued in order, at most `window` of them waiting on a fault at a time; accesses to one
 * page keep their order. Returns when all are done, or one of these errors:
 *
 * - EFAULT: the driver cancelled an access as fatal; `done` says how many were done. The channel is dead from then on,
 *   as a CUDA context is: further runs give EFAULT too, with `done` 0.
 * - EINTR: killed.
 * - ECANCELED: the driver stopped the channel, as it does when its VA space goes.
 * - ENXIO: the channel is not registered with the driver.
 * - ENOENT, EBUSY, EINVAL: no such channel, another kernel runs on it, a bad field or address.
 */
struct swgpu_run {
    __u32 channel;  /* in */
    __u32 type;     /* in: SWGPU_READ, ... */
    __u32 window;   /* in: at least 1; more than SWGPU_WINDOW_MAX means that many */
    __u32 count;    /* in: at most SWGPU_RUN_MAX */
    __u64 accesses; /* in: address of struct swgpu_access[count], read and written */
    __u32 done;     /* out */
    __u32 reserved; /* in: 0 */
};
#define SWGPU_RUN_MAX (1u << 20)
#define SWGPU_WINDOW_MAX 4096u

/* What the hardware itself saw, since the module was loaded. */
struct swgpu_counters {
    __u32 gpu; /* in */
    __u32 reserved;
    __u64 fault_packets;   /* written to the fault buffer */
    __u64 fault_overflows; /* not written because the buffer was full; the access raises it again after the replay */
    __u64 replays;         /* asked for by the driver, those without a waiting access too */
    __u64 cancels;
    __u64 copied_htod_bytes; /* page-aligned copies of whole pages, by the apertures of their ends */
    __u64 copied_dtoh_bytes;
    __u64 copied_dtod_bytes;
    __u64 copied_other_bytes; /* all else that copy engines write: page tables, memsets, semaphores */
    __u64 accesses;           /* done */
    __u64 remote_accesses;    /* of those, accesses to memory that is not the GPU's own */
    __u64 unknown_methods;    /* pushbuffer methods the model does not know: a non-zero value invalidates the run */
    __u64 errors;             /* channel errors (RC), bad addresses in copies, broken packets: likewise */
    __u64 free_bytes;         /* memory that nobody has */
};

#define SWGPU_IOC_INFO _IOWR('G', 1, struct swgpu_info)
#define SWGPU_IOC_SPACE _IOWR('G', 2, struct swgpu_space)
#define SWGPU_IOC_RUN _IOWR('G', 3, struct swgpu_run)
#define SWGPU_IOC_COUNTERS _IOWR('G', 4, struct swgpu_counters)

#endif
