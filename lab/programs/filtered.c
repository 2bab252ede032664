/* Runs a program under a filter of system calls, by which it may start threads, and no processes.

       filtered kill|trap|errno PROGRAM ARGUMENT... */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REFUSE(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, refusal)

int main(int count, char **arguments) {
  if (count < 3) return 2;
  unsigned refusal = strcmp(arguments[1], "kill") == 0 ? SECCOMP_RET_KILL_PROCESS : strcmp(arguments[1], "trap") == 0 ? SECCOMP_RET_TRAP : SECCOMP_RET_ERRNO | EPERM;
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      REFUSE(__NR_fork), REFUSE(__NR_vfork), REFUSE(__NR_clone), REFUSE(__NR_wait4), REFUSE(__NR_gettid),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    perror("filtered");
    return 2;
  }
  execv(arguments[2], arguments + 2);
  perror(arguments[2]);
  return 2;
}
