/* Types of the kernel that the driver's structures contain, for offsets without a kernel's headers. What uvmd reads of the driver lies
 * before the kernel's types, or is given by its distance from a field after them: their sizes here are those of a usual x86-64 kernel. */
typedef unsigned char u8, __u8;
typedef unsigned short u16, __u16;
typedef unsigned int u32, __u32;
typedef unsigned long long u64, __u64;
typedef signed char s8;
typedef short s16;
typedef int s32, pid_t;
typedef long long s64, ktime_t, loff_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t, uid_t, gid_t, gfp_t, dev_t, fmode_t;
typedef unsigned long uint64_t, uintptr_t, size_t, pgoff_t, dma_addr_t, phys_addr_t, vm_fault_t;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t, ssize_t;
typedef int wchar_t;
typedef _Bool bool;
typedef struct { int counter; } atomic_t;
typedef struct { s64 counter; } atomic64_t, atomic_long_t;
typedef struct { u32 lock; } spinlock_t, raw_spinlock_t, rwlock_t;
typedef struct { unsigned long pgprot; } pgprot_t;
typedef struct { unsigned long bits[16]; } nodemask_t;
typedef struct cpumask { unsigned long bits[128]; } cpumask_t;
struct list_head { struct list_head *next, *prev; };
struct hlist_head { void *first; };
struct hlist_node { void *next, **pprev; };
struct rb_node { unsigned long color; struct rb_node *right, *left; };
struct rb_root { struct rb_node *node; };
struct mutex { atomic_long_t owner; raw_spinlock_t wait_lock; u32 osq; struct list_head wait_list; };
struct rw_semaphore { atomic_long_t count, owner; u32 osq; raw_spinlock_t wait_lock; struct list_head wait_list; };
struct semaphore { raw_spinlock_t lock; unsigned count; struct list_head wait_list; };
typedef struct wait_queue_head { spinlock_t lock; struct list_head head; } wait_queue_head_t;
struct completion { unsigned done; wait_queue_head_t wait; };
struct radix_tree_root { spinlock_t lock; gfp_t flags; void *node; };
struct xarray { spinlock_t lock; gfp_t flags; void *head; };
struct work_struct { atomic_long_t data; struct list_head entry; void *func; };
struct kref { atomic_t refcount; };
struct sg_table { void *sgl; unsigned nents, orig_nents; };
struct mmu_notifier { struct hlist_node hlist; void *ops, *mm; u64 rcu[2]; unsigned users; };
struct mmu_interval_notifier { u64 interval_tree[6]; void *ops, *mm; struct hlist_node deferred_item; unsigned long invalidate_seq; };
struct address_space { u64 words[24]; };
struct migrate_vma { u64 words[10]; };
struct dev_pagemap { u64 words[17]; };
struct cdev { u64 words[13]; };
struct proc_dir_entry;
#define DECLARE_BITMAP(name, bits) unsigned long name[((bits) + 63) / 64]
#define BITS_PER_LONG 64
#define BITS_TO_LONGS(bits) (((bits) + 63) / 64)
#define PAGE_SHIFT 12
#define PAGE_SIZE (1UL << PAGE_SHIFT)
#define PMD_SIZE (1UL << 21)
#define ____cacheline_aligned_in_smp
#define __user
#define NULL ((void *)0)
/* Of uvm_linux.h. Heterogeneous memory management adds fields after those that uvmd reads. */
#define UVM_IS_CONFIG_HMM() 0
#define UVM_CAN_USE_MMU_NOTIFIERS() 1
#define UVM_ATS_SUPPORTED() 0
#define UVM_CGROUP_ACCOUNTING_SUPPORTED() 0
#define UVM_HMM_RANGE_FAULT_SUPPORTED() 0
#define UVM_CDMM_PAGES_SUPPORTED() 0
#define UVM_THREAD_AFFINITY_SUPPORTED() 1
#define ilog2(n) (63 - __builtin_clzl(n))
#define order_base_2(n) ((n) > 1 ? ilog2((n) - 1) + 1 : 0)
