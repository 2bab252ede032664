// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The resource manager's interface to nvidia-uvm, second part: the driver's channels, and the
 * users' channels that it registers. A TSG and an address space are the same object here; a channel
 * is a struct host_channel, a retained one a struct user_channel.
 */
#include <linux/module.h>

#include "nv_uvm_interface.h"

#include "channel.h"
#include "compat.h"
#include "program.h"
#include "space.h"
#include "swgpu.h"

/* === The driver's channels === */

NV_STATUS nvUvmInterfaceTsgAllocate(uvmGpuAddressSpaceHandle vaSpace, const UvmGpuTsgAllocParams *allocParams,
                                    uvmGpuTsgHandle *tsg)
{
    struct gpu_space *space = (struct gpu_space *)vaSpace;

    if (allocParams->engineType != UVM_GPU_CHANNEL_ENGINE_TYPE_CE) {
        swgpu_error(space->gpu, "channels of engine type %u are not modelled", allocParams->engineType);
        return NV_ERR_NOT_SUPPORTED;
    }
    kref_get(&space->refs);
    *tsg = (uvmGpuTsgHandle)space;
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceTsgAllocate);

void nvUvmInterfaceTsgDestroy(uvmGpuTsgHandle tsg)
{
    space_put((struct gpu_space *)tsg);
}
EXPORT_SYMBOL(nvUvmInterfaceTsgDestroy);

NV_STATUS nvUvmInterfaceChannelAllocate(const uvmGpuTsgHandle tsg, const UvmGpuChannelAllocParams *allocParams,
                                        uvmGpuChannelHandle *channel, UvmGpuChannelInfo *channelInfo)
{
    struct host_channel *host = host_channel_create((struct gpu_space *)tsg, allocParams->numGpFifoEntries);

    if (!host)
        return NV_ERR_NO_MEMORY;
    memset(channelInfo, 0, sizeof(*channelInfo));
    channelInfo->gpGet = &host->get;
    channelInfo->gpPut = &host->put;
    channelInfo->gpFifoEntries = (UvmGpuPointer *)host->gpfifo;
    channelInfo->numGpFifoEntries = host->gpfifo_entries;
    channelInfo->channelClassNum = host->gpu->arch->host_class;
    channelInfo->errorNotifier = &host->error_notifier;
    channelInfo->hwChannelId = host->id;
    channelInfo->workSubmissionOffset = &host->doorbell;
    channelInfo->workSubmissionToken = host->id;
    channelInfo->pWorkSubmissionToken = &host->doorbell_token;
    *channel = (uvmGpuChannelHandle)host;
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceChannelAllocate);

void nvUvmInterfaceChannelDestroy(uvmGpuChannelHandle channel)
{
    host_channel_destroy((struct host_channel *)channel);
}
EXPORT_SYMBOL(nvUvmInterfaceChannelDestroy);

#ifdef DRIVER_HAS_nvUvmInterfaceReportFatalError
/* The driver has logged the error itself, and expects nothing. */
void nvUvmInterfaceReportFatalError(NV_STATUS error)
{
}
EXPORT_SYMBOL(nvUvmInterfaceReportFatalError);
#endif

/* === Users' channels === */

static void get_channel(void *object)
{
    kref_get(&((struct user_channel *)object)->refs);
}

NV_STATUS nvUvmInterfaceRetainChannel(uvmGpuAddressSpaceHandle vaSpace, NvHandle hClient, NvHandle hChannel,
                                      void **retainedChannel, UvmGpuChannelInstanceInfo *channelInstanceInfo)
{
    struct user_channel *channel = handle_get(HANDLE_CHANNEL, hClient, hChannel, get_channel);

    if (!channel)
        return NV_ERR_OBJECT_NOT_FOUND;
    if (channel->space != (struct gpu_space *)vaSpace) {
        user_channel_put(channel);
        return NV_ERR_INVALID_ARGUMENT;
    }
    /* No resources: a channel here has no context buffers that the driver would have to map. */
    memset(channelInstanceInfo, 0, sizeof(*channelInstanceInfo));
    channelInstanceInfo->base = user_channel_instance(channel);
    channelInstanceInfo->chId = channel->handle;
    channelInstanceInfo->channelEngineType = UVM_GPU_CHANNEL_ENGINE_TYPE_GR;
    channelInstanceInfo->clearFaultedToken = channel->handle;
    *retainedChannel = channel;
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceRetainChannel);

NV_STATUS nvUvmInterfaceBindChannelResources(void *retainedChannel,
                                             UvmGpuChannelResourceBindParams *channelResourceBindParams)
{
    return user_channel_bind(retainedChannel) ? NV_OK : NV_ERR_INVALID_STATE;
}
EXPORT_SYMBOL(nvUvmInterfaceBindChannelResources);

void nvUvmInterfaceStopChannel(void *retainedChannel, NvBool bImmediate)
{
    user_channel_stop(retainedChannel);
}
EXPORT_SYMBOL(nvUvmInterfaceStopChannel);

void nvUvmInterfaceReleaseChannel(void *retainedChannel)
{
    user_channel_put(retainedChannel);
}
EXPORT_SYMBOL(nvUvmInterfaceReleaseChannel);
