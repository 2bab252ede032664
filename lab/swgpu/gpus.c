// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "swgpu.h"

struct swgpu *swgpu_gpus[SWGPU_MAX_GPUS];
unsigned int swgpu_gpu_count;

struct swgpu *swgpu_find(const NvProcessorUuid *uuid)
{
    unsigned int i;

    for (i = 0; i < swgpu_gpu_count; i++) {
        if (!memcmp(&swgpu_gpus[i]->uuid, uuid, sizeof(*uuid)))
            return swgpu_gpus[i];
    }
    return NULL;
}
