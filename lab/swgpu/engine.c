// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * A card's engine: one kernel thread that runs every channel in turn. The driver rings by writing
 * GP_PUT to memory, which causes no wakeup; so the thread polls it: at once while work is likely,
 * then after short sleeps that grow while none arrives. It sleeps without limit while there is no
 * channel.
 */
#include <linux/kthread.h>
#include <linux/hrtimer.h>

#include "channel.h"
#include "program.h"
#include "swgpu.h"

#define POLL_MIN_NS (20 * NSEC_PER_USEC)
/* Polls without a sleep. The driver waits for its pushes in a loop with cpu_relax(), which lets an
 * emulated CPU go on at once; a sleep takes a timer, its interrupt and two switches there, more
 * than most pushes. */
#define POLLS_AT_ONCE 64
/* Maximum wait of the first push after an idle time. An idle card takes 2.5 % of a guest's CPU
 * in the lab; with 1 ms it took 6.6 %. */
#define POLL_MAX_NS (4 * NSEC_PER_MSEC)
/* Polls at the shortest interval before it grows: the driver mostly sends its pushes close
 * together. */
#define POLLS_AT_MIN 50
/* Interval of repeated interrupts. The level stays up until the driver fetches the packets, but
 * it need not be raised all the time. */
#define INTERRUPT_REPEAT_NS (200 * NSEC_PER_USEC)

/* Work found in one round of the engine. */
struct round {
    bool progress;
    bool idle;      /* no channel at all: no work can arrive by itself */
    bool programs;  /* programs run: their faults are being serviced */
    bool interrupt; /* fault packets are in the buffer */
    u32 fault_put;
};

static struct round engine_round(struct swgpu *gpu)
{
    struct round round = { .idle = true };
    struct host_channel *host;
    struct user_channel *user;

    mutex_lock(&gpu->lock);
    list_for_each_entry(host, &gpu->host_channels, node) {
        round.progress |= host_channel_step(host);
        round.idle = false;
    }
    list_for_each_entry(user, &gpu->user_channels, node) {
        if (!user->running)
            continue;
        round.progress |= program_step(user);
        if (program_is_stuck(user))
            fault_show(gpu);
        round.programs = true;
        round.idle = false;
    }
    round.interrupt = gpu->faults.owned_by_driver && fault_pending(gpu);
    round.fault_put = gpu->faults.registers.put;
    mutex_unlock(&gpu->lock);
    return round;
}

static void update_time(struct swgpu *gpu)
{
    u64 now = swgpu_time_ns();

    WRITE_ONCE(gpu->time_ns[0], lower_32_bits(now));
    WRITE_ONCE(gpu->time_ns[1], upper_32_bits(now));
}

static void engine_sleep(struct swgpu *gpu, u64 ns)
{
    if (ns)
        wait_event_interruptible_hrtimeout(gpu->engine_wait, READ_ONCE(gpu->engine_kicked) || kthread_should_stop(),
                                           ns_to_ktime(ns));
    else
        wait_event_interruptible(gpu->engine_wait, READ_ONCE(gpu->engine_kicked) || kthread_should_stop());
}

static u64 poll_interval_ns(const struct round *round, u32 empty_polls)
{
    u32 doublings;

    if (round->idle)
        return 0;
    if (round->programs || round->interrupt || empty_polls < POLLS_AT_MIN)
        return POLL_MIN_NS;
    doublings = min((empty_polls - POLLS_AT_MIN) / 8, 10u);
    return min((u64)POLL_MIN_NS << doublings, (u64)POLL_MAX_NS);
}

static int engine_main(void *data)
{
    struct swgpu *gpu = data;
    u32 empty_polls = 0;
    u64 interrupt_ns = 0;
    u32 interrupt_put = 0;

    while (!kthread_should_stop()) {
        struct round round;

        WRITE_ONCE(gpu->engine_kicked, false);
        update_time(gpu);
        round = engine_round(gpu);

        if (round.interrupt &&
            (round.fault_put != interrupt_put || swgpu_time_ns() - interrupt_ns > INTERRUPT_REPEAT_NS)) {
            interrupt_put = round.fault_put;
            interrupt_ns = swgpu_time_ns();
            swgpu_raise_interrupt(gpu);
        }
        if (round.progress) {
            empty_polls = 0;
            cond_resched();
            continue;
        }
        if (!round.idle && empty_polls < POLLS_AT_ONCE && num_online_cpus() > 1) {
            cpu_relax();
            cond_resched();
        } else {
            engine_sleep(gpu, poll_interval_ns(&round, empty_polls));
        }
        empty_polls++;
    }
    return 0;
}

int swgpu_engine_start(struct swgpu *gpu)
{
    struct task_struct *engine;

    init_waitqueue_head(&gpu->engine_wait);
    engine = kthread_run(engine_main, gpu, "swgpu%u", gpu->index);
    if (IS_ERR(engine))
        return PTR_ERR(engine);
    gpu->engine = engine;
    return 0;
}

void swgpu_engine_stop(struct swgpu *gpu)
{
    if (gpu->engine)
        kthread_stop(gpu->engine);
}
