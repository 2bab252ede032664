/* SPDX-License-Identifier: GPL-2.0 OR MIT
 *
 * Client of the resource manager: one open file of /dev/swgpu, and its objects. The functions below
 * are its ioctls; each takes the address of the caller's parameters.
 */
#ifndef SWGPU_CLIENT_H
#define SWGPU_CLIENT_H

#include <linux/compiler.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/types.h>

#include "mirror.h"

struct user_channel;

struct client {
    u32 handle;
    struct mutex lock;            /* covers the lists */
    struct list_head spaces;      /* struct client_space, in dev.c */
    struct list_head allocations; /* struct allocation, in allocation.c */
    u32 last_allocation;          /* handle of the newest one */
    struct mirror mirror;         /* of its first space */
    struct log *log;              /* NULL until SWGPU_IOC_LOG; then as long as the file */
};

/* Returns NULL if the client has no such channel. The channel lives as long as the file, which
 * the caller of the ioctl holds. */
struct user_channel *client_find_channel(struct client *client, u32 handle);

/* kernel.c */
long client_run(struct client *client, void __user *argument);
long client_accessed(struct client *client, void __user *argument);

/* allocation.c */
long client_alloc(struct client *client, void __user *argument);
long client_free(struct client *client, void __user *argument);
/* Called when the file is closed. */
void client_free_all(struct client *client);

#endif
