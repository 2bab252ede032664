/* A CUDA program that installs a filter of system calls, for tests of the helper.
 *
 *   self_filtered WHEN ACTION NUMBER...
 *
 * WHEN: `first`, before it initializes CUDA; `later`, when it has launched; `all`, as `later` and for all of its threads, with another one
 * that launches then. With ACT in its environment it plays uvmd before, and has the helper start its thread, for which it waits at its end;
 * with ACT_LATER, it does so when the filter is there.
 * ACTION and NUMBER: see filter.h. With `trap`, a handler of the program counts the calls, and refuses them.
 * Its output: what was counted, and how often the handler was called, which varies if calls of the program itself do. */
#define _GNU_SOURCE
#include <signal.h>
#include <time.h>
#include <ucontext.h>

#include "count.h"
#include "filter.h"
#include "ring.h"

extern CUresult cuCtxSetCurrent(Handle);

static Handle context;
static volatile sig_atomic_t trapped;
static char **numbers;
static int number_count;

static void handler(int signal, siginfo_t *information, void *state) {
  (void)signal, (void)information;
  trapped++;
  ((ucontext_t *)state)->uc_mcontext.gregs[REG_RAX] = -ENOSYS;
}

/* In the default stream. */
static unsigned counted(int launches) { return counted_in(NULL, launches); }

static unsigned counted_once(void) { return counted(1); }

static void install(const char *action, int for_all) {
  if (install_filter(action, numbers, number_count, for_all ? SECCOMP_FILTER_FLAG_TSYNC : 0)) _exit(3);
}

static volatile int has_begun, is_filtered, has_ended;

/* Launches before and under the filter. To print in the handler would be a call of its own. */
static void *other(void *nothing) {
  cuCtxSetCurrent(context);
  unsigned before = counted(2);
  has_begun = 1;
  while (!is_filtered) {
  }
  unsigned under = 0;
  for (int at = 0; at < 20; at++) under += counted(2);
  has_ended = 1;
  if (before != 128 || under != 20 * 128) _exit(4);
  for (;;) {
  }
  return nothing;
}

int main(int count, char **arguments) {
  if (count < 4) return 2;
  const char *when = arguments[1], *action = arguments[2];
  numbers = arguments + 3;
  number_count = count - 3;
  struct sigaction change = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
  sigaction(SIGSYS, &change, NULL);
  int is_first = strcmp(when, "first") == 0, for_all = strcmp(when, "all") == 0;
  if (is_first) install(action, 0);
  context = begin_context();
  counted(3);
  act(counted_once);
  volatile uint64_t *words = getenv("ACT_LATER") ? ring() : NULL;
  if (for_all) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, other, NULL));
    while (!has_begun) {
    }
  }
  if (!is_first) install(action, for_all);
  if (words) words[MODE] = ACT;
  is_filtered = 1;
  unsigned sum = 0;
  for (int at = 0; at < 5; at++) sum += counted(3);
  while (for_all && !has_ended) {
  }
  if (getenv("ACT")) {
    /* Time for the thread to look after the process twice. */
    struct timespec time = {2, 500000000};
    int nobody = 0;
    syscall(SYS_futex, &nobody, 0, 0, &time, NULL, 0);
  }
  char output[64];
  int length = snprintf(output, sizeof output, "counted %u, trapped %d\n", sum, (int)trapped);
  if (write(1, output, (size_t)length) != length) return 6;
  _exit(5);
}
