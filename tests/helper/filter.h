/* Filters of system calls (seccomp) that a program installs for itself. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FILTERED_CALLS_MAX = 64 };

/* Installs a filter of these steps. 0, or -1 if that fails. */
static inline int install_steps(struct sock_filter *steps, unsigned short count, unsigned flags) {
  struct sock_fprog filter = {count, steps};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return -1;
  return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter) ? -1 : 0;
}

/* Installs a filter, as the flags of seccomp(2) have it. ACTION: its result for the calls of these numbers, `kill`, `trap` or `errno`; with
 * `only`, it permits these and kills for all others. 0, or -1 if there is none. */
static inline int install_filter(const char *action, char **numbers, int count, unsigned flags) {
  struct sock_filter program[2 * FILTERED_CALLS_MAX + 2];
  unsigned short length = 0;
  unsigned listed, other = SECCOMP_RET_ALLOW;
  if (strcmp(action, "kill") == 0) listed = SECCOMP_RET_KILL_PROCESS;
  else if (strcmp(action, "trap") == 0) listed = SECCOMP_RET_TRAP;
  else if (strcmp(action, "errno") == 0) listed = SECCOMP_RET_ERRNO | EPERM;
  else if (strcmp(action, "only") == 0) listed = SECCOMP_RET_ALLOW, other = SECCOMP_RET_KILL_PROCESS;
  else return -1;
  if (count > FILTERED_CALLS_MAX) return -1;
  program[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
  for (int at = 0; at < count; at++) {
    program[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)atoi(numbers[at]), 0, 1);
    program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, listed);
  }
  program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, other);
  return install_steps(program, length, flags);
}
