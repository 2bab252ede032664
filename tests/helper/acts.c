/* A CUDA program that does what lines of standard input say, and answers each with a line: for tests of commands to the helper. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "count.h"
#include "filter.h"

extern CUresult cuDevicePrimaryCtxRetain(Handle *, int), cuDevicePrimaryCtxReset_v2(int), cuCtxSetCurrent(Handle);
extern CUresult cuCtxDestroy_v2(Handle), cuCtxDetach(Handle);
extern CUresult cuMemAllocManaged(uint64_t *, size_t, unsigned), cuMemAlloc_v2(uint64_t *, size_t), cuMemFree_v2(uint64_t);
extern CUresult cuMemsetD8_v2(uint64_t, unsigned char, size_t), cuMemcpyDtoH_v2(void *, uint64_t, size_t);
extern CUresult cuMemAdvise(uint64_t, size_t, unsigned, int), cuMemRangeGetAttribute(void *, size_t, unsigned, uint64_t, size_t);
extern CUresult cuStreamCreate(Handle *, unsigned), cuStreamDestroy_v2(Handle), cuStreamSynchronize(Handle), cuCtxSynchronize(void);
extern CUresult cuStreamBeginCapture_v2(Handle, int), cuStreamEndCapture(Handle, Handle *);
extern CUresult cuGraphInstantiateWithFlags(Handle *, Handle, unsigned long long), cuGraphLaunch(Handle, Handle);

static Handle context;

static void begin(void) {
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  load();
}

/* Launches on new memory, with advice of its own on every second one, and returns what the kernels counted. */
static unsigned counted(int launches) {
  unsigned sum = 0, value;
  for (int at = 0; at < launches; at++) {
    uint64_t word;
    CHECK(cuMemAllocManaged(&word, 1 << 16, 1));
    CHECK(cuMemsetD8_v2(word, 0, 1 << 16));
    if (at % 2) CHECK(cuMemAdvise(word, 1 << 16, 3, at % 4 == 1 ? -1 : 0));
    launch(word, NULL);
    CHECK(cuMemcpyDtoH_v2(&value, word, 4));
    CHECK(cuMemFree_v2(word));
    sum += value;
  }
  return sum;
}

static unsigned counted_in_contexts(int contexts) {
  unsigned sum = 0;
  for (int at = 0; at < contexts; at++) {
    sum += counted(4);
    CHECK(cuDevicePrimaryCtxReset_v2(0));
    begin();
  }
  return sum;
}

static void *thread(void *launches) {
  CHECK(cuCtxSetCurrent(context));
  return (void *)(uintptr_t)counted((int)(uintptr_t)launches);
}

/* What is captured while commands are carried out: until the next line. */
static unsigned counted_by_graph(void) {
  Handle stream, graph, executable;
  uint64_t word;
  unsigned value;
  char line[64];
  CHECK(cuMemAllocManaged(&word, 4096, 1));
  CHECK(cuMemsetD8_v2(word, 0, 4096));
  CHECK(cuStreamCreate(&stream, 1));
  CHECK(cuStreamBeginCapture_v2(stream, 0));
  launch(word, stream);
  printf("capturing\n");
  if (!fgets(line, sizeof line, stdin)) exit(1);
  launch(word, stream);
  CHECK(cuStreamEndCapture(stream, &graph));
  CHECK(cuGraphInstantiateWithFlags(&executable, graph, 0));
  CHECK(cuGraphLaunch(executable, stream));
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuMemcpyDtoH_v2(&value, word, 4));
  CHECK(cuStreamDestroy_v2(stream));
  CHECK(cuMemFree_v2(word));
  return value;
}

static int child(void) {
  int status;
  pid_t pid = fork();
  if (pid == 0) {
    uint64_t address;
    /* Its calls find no CUDA, and wait for nobody. */
    cuMemFree_v2(4096);
    cuMemAdvise(4096, 4096, 1, 0);
    cuCtxDestroy_v2(context);
    exit(cuMemAllocManaged(&address, 4096, 1) ? 7 : 8);
  }
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void *ends_later(void *nothing) {
  usleep(300000);
  return nothing;
}

static void *exits(void *code) {
  exit((int)(uintptr_t)code);
}

/* A filter of system calls, which permits them all. */
static int filter(void) { return install_filter("errno", NULL, 0, 0); }

int main(int count, char **arguments) {
  char line[256];
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (count > 1 && strcmp(arguments[1], "filter") == 0) {
    char *again[] = {arguments[0], NULL};
    CHECK(filter());
    execv("/proc/self/exe", again);
  }
  CHECK(cuInit(0));
  begin();
  if (count > 1 && strcmp(arguments[1], "limited") == 0) {
    /* As a user who may have one process, and has. */
    CHECK(setresuid(65533, 65533, 65533));
    CHECK(setrlimit(RLIMIT_NPROC, &(struct rlimit){1, 1}));
  }
  printf("ready\n");
  while (fgets(line, sizeof line, stdin)) {
    char what[32];
    unsigned long long address, bytes, first = 0, second = 0;
    address = bytes = 0;
    if (sscanf(line, "%31s %llu %llu %llu %llu", what, &address, &bytes, &first, &second) < 1) continue;
    if (strcmp(what, "reserve") == 0) {
      /* Without work, for which libcuda has threads. */
      uint64_t made;
      CHECK(cuMemAllocManaged(&made, address, 1));
      printf("%llu\n", (unsigned long long)made);
    } else if (strcmp(what, "managed") == 0 || strcmp(what, "device") == 0) {
      uint64_t made;
      CHECK(what[0] == 'm' ? cuMemAllocManaged(&made, address, 1) : cuMemAlloc_v2(&made, address));
      if (what[0] == 'm') CHECK(cuMemsetD8_v2(made, 5, address));
      printf("%llu\n", (unsigned long long)made);
    } else if (strcmp(what, "free") == 0) {
      printf("%d\n", cuMemFree_v2(address));
    } else if (strcmp(what, "advise") == 0) {
      printf("%d\n", cuMemAdvise(address, bytes, (unsigned)first, (int)second));
    } else if (strcmp(what, "advise-many") == 0) {
      /* Advice on every second page, so many times. */
      for (unsigned long long at = 0; at < bytes; at++) CHECK(cuMemAdvise(address + at * 8192, 4096, 3, 0));
      printf("0\n");
    } else if (strcmp(what, "close-all") == 0) {
      /* As programs do that start others. */
      close_range(100, ~0U, 0);
      printf("closed\n");
    } else if (strcmp(what, "attributes") == 0) {
      int duplicate, preferred, accessed, prefetched;
      CHECK(cuMemRangeGetAttribute(&duplicate, 4, 1, address, bytes));
      CHECK(cuMemRangeGetAttribute(&preferred, 4, 2, address, bytes));
      CHECK(cuMemRangeGetAttribute(&accessed, 4, 3, address, bytes));
      CHECK(cuMemRangeGetAttribute(&prefetched, 4, 4, address, bytes));
      printf("%d %d %d %d\n", duplicate, preferred, accessed, prefetched);
    } else if (strcmp(what, "sum") == 0) {
      unsigned char *copy = malloc(bytes);
      unsigned long long sum = 0;
      CHECK(cuMemcpyDtoH_v2(copy, address, bytes));
      for (unsigned long long at = 0; at < bytes; at++) sum += copy[at];
      free(copy);
      printf("%llu\n", sum);
    } else if (strcmp(what, "count") == 0) {
      printf("counted %u\n", counted((int)address));
    } else if (strcmp(what, "threads") == 0) {
      printf("counted %u\n", counted_by(4, thread, (int)address));
    } else if (strcmp(what, "contexts") == 0) {
      printf("counted %u\n", counted_in_contexts((int)address));
    } else if (strcmp(what, "other") == 0 || strcmp(what, "detached") == 0) {
      /* Another context, which ends with its memory; the second kind at the next line. */
      Handle other;
      uint64_t made;
      CHECK(cuCtxCreate_v2(&other, 0, 0));
      CHECK(cuMemAllocManaged(&made, 1 << 21, 1));
      if (what[0] == 'd') {
        printf("%llu\n", (unsigned long long)made);
        if (!fgets(line, sizeof line, stdin)) exit(1);
        CHECK(cuCtxDetach(other));
      } else {
        CHECK(cuCtxDestroy_v2(other));
      }
      CHECK(cuCtxSetCurrent(context));
      printf("%llu\n", (unsigned long long)made);
    } else if (strcmp(what, "capture") == 0) {
      printf("counted %u\n", counted_by_graph());
    } else if (strcmp(what, "filter") == 0) {
      printf("%d\n", filter());
    } else if (strcmp(what, "fork") == 0) {
      printf("child exited with %d\n", child());
    } else if (strcmp(what, "exit") == 0) {
      exit((int)address);
    } else if (strcmp(what, "exit-elsewhere") == 0) {
      pthread_t other;
      CHECK(pthread_create(&other, NULL, exits, (void *)(uintptr_t)address));
      pause();
    } else if (strcmp(what, "leave") == 0) {
      /* The last thread ends the process, and none before it. */
      pthread_t other;
      CHECK(pthread_create(&other, NULL, ends_later, NULL));
      printf("left\n");
      pthread_exit(NULL);
    } else if (strcmp(what, "exec") == 0) {
      execlp("echo", "echo", "executed", NULL);
    }
  }
  return 5;
}
