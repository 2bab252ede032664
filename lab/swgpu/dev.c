// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * /dev/swgpu: see swgpu_ioctl.h. Each open file is a client with its own address spaces, each with one channel.
 */
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "client.h"
#include "mirror.h"
#include "program.h"
#include "space.h"
#include "swgpu.h"

struct client_space {
    struct list_head node;
    struct gpu_space *space;
    u32 space_handle;
    struct user_channel *channel;
};

static int swgpu_open(struct inode *inode, struct file *file)
{
    struct client *client = kzalloc(sizeof(*client), GFP_KERNEL);
    int status;

    if (!client)
        return -ENOMEM;
    mutex_init(&client->lock);
    INIT_LIST_HEAD(&client->spaces);
    INIT_LIST_HEAD(&client->allocations);
    status = mirror_init(&client->mirror);
    if (status)
        goto free_client;
    status = -ENOMEM;
    client->handle = handle_create(HANDLE_CLIENT, 0, client);
    if (!client->handle)
        goto destroy_mirror;
    file->private_data = client;
    /* The device's own address_space would join the mappings of all clients: a removal from one
     * mirror would reach all of them. */
    file->f_mapping = client->mirror.anchor->f_mapping;
    return 0;

destroy_mirror:
    mirror_destroy(&client->mirror);
free_client:
    kfree(client);
    return status;
}

/* The driver may hold the space and the channel longer: it has its own references. */
static void destroy_space(struct client_space *owned)
{
    if (owned->channel) {
        handle_destroy(owned->channel->handle);
        user_channel_stop(owned->channel);
        user_channel_put(owned->channel);
    }
    handle_destroy(owned->space_handle);
    space_put(owned->space);
    kfree(owned);
}

static int swgpu_release(struct inode *inode, struct file *file)
{
    struct client *client = file->private_data;
    struct client_space *owned, *next;

    if (client->mirror.space)
        mirror_detach(&client->mirror);
    list_for_each_entry_safe(owned, next, &client->spaces, node)
        destroy_space(owned);
    client_free_all(client);
    if (client->log)
        log_close(client->log);
    handle_destroy(client->handle);
    file->f_mapping = inode->i_mapping;
    mirror_destroy(&client->mirror);
    kfree(client);
    return 0;
}

static long ioctl_info(void __user *argument)
{
    struct swgpu_info info;
    struct swgpu *gpu;

    if (copy_from_user(&info, argument, sizeof(info)))
        return -EFAULT;
    gpu = swgpu_at(info.gpu);
    if (!gpu)
        return -ENODEV;
    info = (struct swgpu_info){
        .gpu = gpu->index,
        .gpu_count = swgpu_gpu_count,
        .memory_bytes = gpu->vidmem_bytes,
        .peer_mask = gpu->peer_mask,
    };
    memcpy(info.uuid, gpu->uuid.uuid, sizeof(info.uuid));
    strscpy(info.arch, gpu->arch->name, sizeof(info.arch));
    return copy_to_user(argument, &info, sizeof(info)) ? -EFAULT : 0;
}

static long ioctl_counters(void __user *argument)
{
    struct swgpu_counters counters;
    struct swgpu *gpu;
    u32 index;

    if (get_user(index, &((struct swgpu_counters __user *)argument)->gpu))
        return -EFAULT;
    gpu = swgpu_at(index);
    if (!gpu)
        return -ENODEV;
    mutex_lock(&gpu->lock);
    counters = gpu->counters;
    mutex_unlock(&gpu->lock);
    counters.gpu = index;
    counters.unknown_methods = atomic64_read(&gpu->unknown_methods);
    counters.errors = atomic64_read(&gpu->errors);
    counters.free_bytes = pma_free_bytes(&gpu->pma);
    return copy_to_user(argument, &counters, sizeof(counters)) ? -EFAULT : 0;
}

static struct client_space *create_space(struct client *client, struct swgpu *gpu)
{
    struct client_space *owned = kzalloc(sizeof(*owned), GFP_KERNEL);

    if (!owned)
        return NULL;
    owned->space = space_create(gpu, task_tgid_nr(current));
    if (!owned->space) {
        kfree(owned);
        return NULL;
    }
    owned->channel = user_channel_create(gpu, owned->space);
    if (owned->channel)
        owned->channel->handle = handle_create(HANDLE_CHANNEL, client->handle, owned->channel);
    owned->space_handle = handle_create(HANDLE_SPACE, client->handle, owned->space);
    if (owned->channel && owned->channel->handle && owned->space_handle)
        return owned;
    destroy_space(owned);
    return NULL;
}

static long ioctl_space(struct client *client, void __user *argument)
{
    struct swgpu_space request;
    struct client_space *owned;
    struct swgpu *gpu;

    if (copy_from_user(&request, argument, sizeof(request)))
        return -EFAULT;
    gpu = swgpu_at(request.gpu);
    if (!gpu)
        return -ENODEV;
    owned = create_space(client, gpu);
    if (!owned)
        return -ENOMEM;
    mutex_lock(&client->lock);
    if (!client->mirror.space)
        mirror_attach(&client->mirror, owned->space, owned->channel);
    list_add(&owned->node, &client->spaces);
    mutex_unlock(&client->lock);

    request.client = client->handle;
    request.va_space = owned->space_handle;
    request.channel = owned->channel->handle;
    return copy_to_user(argument, &request, sizeof(request)) ? -EFAULT : 0;
}

struct user_channel *client_find_channel(struct client *client, u32 handle)
{
    struct user_channel *channel = NULL;
    struct client_space *owned;

    mutex_lock(&client->lock);
    list_for_each_entry(owned, &client->spaces, node) {
        if (owned->channel->handle == handle)
            channel = owned->channel;
    }
    mutex_unlock(&client->lock);
    return channel;
}

static long ioctl_channel_counters(struct client *client, void __user *argument)
{
    struct swgpu_channel_counters counters;
    struct user_channel *channel;

    if (copy_from_user(&counters, argument, sizeof(counters)))
        return -EFAULT;
    channel = client_find_channel(client, counters.channel);
    if (!channel)
        return -ENOENT;
    mutex_lock(&channel->gpu->lock);
    counters.access = channel->counters;
    mutex_unlock(&channel->gpu->lock);
    counters.reserved = 0;
    return copy_to_user(argument, &counters, sizeof(counters)) ? -EFAULT : 0;
}

static long ioctl_log(struct client *client, void __user *argument)
{
    struct swgpu_log request;
    struct swgpu *gpu;
    struct log *log;
    long status = -EBUSY;

    if (copy_from_user(&request, argument, sizeof(request)))
        return -EFAULT;
    gpu = swgpu_at(request.gpu);
    if (!gpu)
        return -ENODEV;
    if (request.capacity < SWGPU_LOG_CAPACITY_MIN || request.capacity > SWGPU_LOG_CAPACITY_MAX || request.reserved)
        return -EINVAL;
    mutex_lock(&client->lock);
    if (!client->log) {
        log = log_open(gpu, request.channel, request.capacity);
        status = PTR_ERR_OR_ZERO(log);
        if (!status)
            smp_store_release(&client->log, log);
    }
    mutex_unlock(&client->lock);
    return status;
}

static long ioctl_mark(void __user *argument)
{
    struct swgpu_mark mark;
    struct swgpu *gpu;

    if (copy_from_user(&mark, argument, sizeof(mark)))
        return -EFAULT;
    gpu = swgpu_at(mark.gpu);
    if (!gpu)
        return -ENODEV;
    if ((mark.event != SWGPU_LOG_CPU_BEGIN && mark.event != SWGPU_LOG_CPU_END) || mark.type > SWGPU_ATOMIC_ADD ||
        mark.reserved)
        return -EINVAL;
    log_mark(gpu, &mark);
    return 0;
}

static ssize_t swgpu_read(struct file *file, char __user *buffer, size_t bytes, loff_t *offset)
{
    struct client *client = file->private_data;
    struct log *log = smp_load_acquire(&client->log);

    if (!log || bytes < sizeof(struct swgpu_log_record))
        return -EINVAL;
    return log_read(log, buffer, bytes);
}

static long swgpu_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
    struct client *client = file->private_data;
    void __user *user = (void __user *)argument;

    switch (command) {
    case SWGPU_IOC_INFO:
        return ioctl_info(user);
    case SWGPU_IOC_SPACE:
        return ioctl_space(client, user);
    case SWGPU_IOC_RUN:
        return client_run(client, user);
    case SWGPU_IOC_ACCESSED:
        return client_accessed(client, user);
    case SWGPU_IOC_COUNTERS:
        return ioctl_counters(user);
    case SWGPU_IOC_CHANNEL_COUNTERS:
        return ioctl_channel_counters(client, user);
    case SWGPU_IOC_ALLOC:
        return client_alloc(client, user);
    case SWGPU_IOC_FREE:
        return client_free(client, user);
    case SWGPU_IOC_LEDGER:
        return ledger_read(user);
    case SWGPU_IOC_LOG:
        return ioctl_log(client, user);
    case SWGPU_IOC_MARK:
        return ioctl_mark(user);
    default:
        return -ENOTTY;
    }
}

static int swgpu_mmap(struct file *file, struct vm_area_struct *vma)
{
    struct client *client = file->private_data;
    int status;

    mutex_lock(&client->lock);
    status = mirror_mmap(&client->mirror, vma);
    mutex_unlock(&client->lock);
    return status;
}

static const struct file_operations file_operations = {
    .owner = THIS_MODULE,
    .open = swgpu_open,
    .release = swgpu_release,
    .read = swgpu_read,
    .mmap = swgpu_mmap,
    .unlocked_ioctl = swgpu_ioctl,
};

/* Open to all users, as the nodes of a real card are. */
static struct miscdevice device = {
    .minor = MISC_DYNAMIC_MINOR,
    .name = "swgpu",
    .fops = &file_operations,
    .mode = 0666,
};

int swgpu_dev_register(void)
{
    return misc_register(&device);
}

void swgpu_dev_unregister(void)
{
    misc_deregister(&device);
}
