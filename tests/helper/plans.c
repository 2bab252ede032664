/* A CUDA program whose launches repeat, and which does what lines of standard input say: for tests of plans. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "count.h"

extern CUresult cuDevicePrimaryCtxRetain(Handle *, int), cuDevicePrimaryCtxReset_v2(int), cuCtxSetCurrent(Handle);
extern CUresult cuCtxDestroy_v2(Handle);
extern CUresult cuMemAllocManaged(uint64_t *, size_t, unsigned), cuMemFree_v2(uint64_t), cuMemsetD8_v2(uint64_t, unsigned char, size_t);
extern CUresult cuMemAdvise(uint64_t, size_t, unsigned, int), cuMemcpyDtoH_v2(void *, uint64_t, size_t), cuCtxSynchronize(void);
extern CUresult cuStreamCreate(Handle *, unsigned), cuStreamSynchronize(Handle);
extern CUresult cuStreamBeginCapture_v2(Handle, int), cuStreamEndCapture(Handle, Handle *);
extern CUresult cuLaunchHostFunc(Handle, void (*)(void *), void *);
extern CUresult cuEventCreate(Handle *, unsigned), cuEventRecord(Handle, Handle), cuStreamWaitEvent(Handle, Handle, unsigned);
extern CUresult cuGraphInstantiateWithFlags(Handle *, Handle, unsigned long long), cuGraphLaunch(Handle, Handle);

/* An iteration has a launch on each of the buffers, with another grid each, so many times. */
enum { BUFFERS = 4, OPS = 8, BYTES = 2 << 20, GRAPH_OP = 5 };

static Handle context, stream, executable;
static uint64_t buffers[BUFFERS];

static void run(unsigned op) {
  if (executable && op == GRAPH_OP)
    CHECK(cuGraphLaunch(executable, stream));
  else
    launch_grid(op + 1, buffers[op % BUFFERS], stream);
}

static unsigned counted(void) {
  unsigned sum = 0, value;
  CHECK(cuStreamSynchronize(stream));
  for (int at = 0; at < BUFFERS; at++)
    if (buffers[at]) {
      CHECK(cuMemcpyDtoH_v2(&value, buffers[at], 4));
      sum += value;
    }
  return sum;
}

static void begin(void) {
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  load();
  CHECK(cuStreamCreate(&stream, 1));
  for (int at = 0; at < BUFFERS; at++) {
    CHECK(cuMemAllocManaged(&buffers[at], BYTES, 1));
    CHECK(cuMemsetD8_v2(buffers[at], 0, BYTES));
  }
}

static void *thread(void *iterations) {
  CHECK(cuCtxSetCurrent(context));
  for (int at = 0; at < (int)(uintptr_t)iterations; at++)
    for (unsigned op = 0; op < OPS; op++) run(op);
  return NULL;
}

static void waits_for(void *flag) {
  while (!*(volatile int *)flag) usleep(100);
}

/* The graph of an op, in place of its launch. */
static void capture(void) {
  Handle graph;
  CHECK(cuStreamBeginCapture_v2(stream, 0));
  launch_grid(GRAPH_OP + 1, buffers[GRAPH_OP % BUFFERS], stream);
  CHECK(cuStreamEndCapture(stream, &graph));
  CHECK(cuGraphInstantiateWithFlags(&executable, graph, 0));
}

static int child(void) {
  int status;
  pid_t pid = fork();
  if (pid == 0) {
    /* Its calls find no CUDA, and wait for nobody. */
    cuMemFree_v2(buffers[0]);
    cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
    exit(cuCtxSynchronize() ? 7 : 8);
  }
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void *exits(void *code) {
  exit((int)(uintptr_t)code);
}

int main(void) {
  char line[256];
  setvbuf(stdout, NULL, _IOLBF, 0);
  CHECK(cuInit(0));
  begin();
  for (int at = 0; at < BUFFERS; at++) printf("%llu ", (unsigned long long)buffers[at]);
  printf("\n");
  while (fgets(line, sizeof line, stdin)) {
    char what[32];
    unsigned number = 0, second = 0;
    if (sscanf(line, "%31s %u %u", what, &number, &second) < 1) continue;
    if (strcmp(what, "iterate") == 0) {
      for (unsigned at = 0; at < number; at++)
        for (unsigned op = 0; op < OPS; op++) {
          run(op);
          if (second) usleep(second);
        }
      printf("counted %u\n", counted());
    } else if (strcmp(what, "op") == 0) {
      run(number);
      printf("launched\n");
    } else if (strcmp(what, "other-buffer") == 0) {
      /* The launch of an op, on a buffer that is not the op's. */
      launch_grid(number + 1, buffers[(number + 1) % BUFFERS], stream);
      printf("launched\n");
    } else if (strcmp(what, "other-stream") == 0) {
      launch_grid(number + 1, buffers[number % BUFFERS], NULL);
      printf("launched\n");
    } else if (strcmp(what, "capture") == 0) {
      capture();
      printf("captured\n");
    } else if (strcmp(what, "capture-op") == 0) {
      /* An op that is captured, and not launched. */
      Handle graph;
      CHECK(cuStreamBeginCapture_v2(stream, 0));
      launch_grid(number + 1, buffers[number % BUFFERS], stream);
      CHECK(cuStreamEndCapture(stream, &graph));
      printf("captured\n");
    } else if (strcmp(what, "crossed") == 0) {
      /* An op in another stream, behind work that goes on once the program has got through the next two. */
      Handle other;
      volatile int is_passed = 0;
      CHECK(cuStreamCreate(&other, 1));
      CHECK(cuLaunchHostFunc(other, waits_for, (void *)&is_passed));
      launch_grid(2, buffers[1], other);
      usleep(100000);
      run(2), run(3);
      CHECK(cuStreamSynchronize(stream));
      is_passed = 1;
      CHECK(cuStreamSynchronize(other));
      printf("passed\n");
    } else if (strcmp(what, "fault") == 0) {
      /* The last op, on memory that is not there: all that follows in the context fails. */
      launch_grid(OPS, 16, stream);
      printf("failed with %d\n", cuStreamSynchronize(stream));
    } else if (strcmp(what, "large") == 0) {
      uint64_t large;
      CHECK(cuMemAllocManaged(&large, (size_t)number << 20, 1));
      printf("%llu\n", (unsigned long long)large);
    } else if (strcmp(what, "refused") == 0) {
      /* A launch with blocks of no threads. */
      printf("refused with %d\n", cuLaunchKernel(function, 1, 1, 1, 0, 1, 1, 0, stream, NULL, NULL));
    } else if (strcmp(what, "begin-capture") == 0) {
      CHECK(cuStreamBeginCapture_v2(stream, 0));
      printf("begun\n");
    } else if (strcmp(what, "end-capture") == 0) {
      Handle graph;
      CHECK(cuStreamEndCapture(stream, &graph));
      printf("captured\n");
    } else if (strcmp(what, "fail-capture") == 0) {
      /* The end of a capture in a stream that has joined it: the capture goes on. */
      Handle graph, joined, there, back;
      CHECK(cuStreamCreate(&joined, 1)), CHECK(cuEventCreate(&there, 2)), CHECK(cuEventCreate(&back, 2));
      CHECK(cuEventRecord(there, stream)), CHECK(cuStreamWaitEvent(joined, there, 0));
      printf("failed with %d\n", cuStreamEndCapture(joined, &graph));
      CHECK(cuEventRecord(back, joined)), CHECK(cuStreamWaitEvent(stream, back, 0));
    } else if (strcmp(what, "free") == 0) {
      CHECK(cuMemFree_v2(buffers[number]));
      buffers[number] = 0;
      printf("freed\n");
    } else if (strcmp(what, "advise") == 0) {
      CHECK(cuMemAdvise(buffers[number], 4096, second, 0));
      printf("advised\n");
    } else if (strcmp(what, "threads") == 0) {
      counted_by(2, thread, (int)number);
      printf("counted %u\n", counted());
    } else if (strcmp(what, "reset") == 0) {
      CHECK(cuDevicePrimaryCtxReset_v2(0));
      executable = NULL;
      begin();
      printf("counted %u\n", counted());
    } else if (strcmp(what, "other-context") == 0) {
      /* A context beside, in which nothing of a plan is. */
      Handle other;
      CHECK(cuCtxCreate_v2(&other, 0, 0));
      CHECK(cuCtxDestroy_v2(other));
      CHECK(cuCtxSetCurrent(context));
      printf("ended\n");
    } else if (strcmp(what, "fork") == 0) {
      printf("child exited with %d\n", child());
    } else if (strcmp(what, "exit") == 0) {
      run(0);
      exit((int)number);
    } else if (strcmp(what, "exit-elsewhere") == 0) {
      pthread_t other;
      CHECK(pthread_create(&other, NULL, exits, (void *)(uintptr_t)number));
      for (unsigned op = 0;; op = (op + 1) % OPS) run(op);
    } else if (strcmp(what, "for-ever") == 0) {
      for (unsigned op = 0;; op = (op + 1) % OPS) run(op), op == 0 ? cuStreamSynchronize(stream) : 0;
    } else if (strcmp(what, "exec") == 0) {
      run(0);
      execlp("echo", "echo", "executed", NULL);
    }
  }
  return 5;
}
