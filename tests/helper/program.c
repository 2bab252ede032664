/* A CUDA program that is linked to the driver, for tests of the helper. Its argument says what it does besides. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "count.h"

extern CUresult cuCtxSetCurrent(Handle), cuCtxDetach(Handle);
extern CUresult cuModuleUnload(Handle);
extern CUresult cuMemAlloc_v2(uint64_t *, size_t);
extern CUresult cuCtxSynchronize(void), cuStreamCreate(Handle *, unsigned), cuStreamDestroy_v2(Handle);
extern CUresult cuStreamBeginCapture_v2(Handle, int), cuStreamEndCapture(Handle, Handle *);
extern CUresult cuGraphInstantiateWithFlags(Handle *, Handle, unsigned long long), cuGraphLaunch(Handle, Handle), cuGraphExecDestroy(Handle), cuGraphDestroy(Handle);

static Handle context;

/* In a stream of its own. */
static unsigned counted(int launches) {
  Handle stream;
  CHECK(cuStreamCreate(&stream, 0));
  unsigned value = counted_in(stream, launches);
  CHECK(cuStreamDestroy_v2(stream));
  return value;
}

static void *thread(void *launches) {
  CHECK(cuCtxSetCurrent(context));
  return (void *)(uintptr_t)counted((int)(uintptr_t)launches);
}

/* Many threads at once, more than the ring has lanes, and again as many after them. */
static unsigned counted_by_threads(void) {
  unsigned sum = 0;
  for (int turn = 0; turn < 2; turn++) sum += counted_by(24, thread, 10);
  return sum;
}

static unsigned counted_by_graph(void) {
  Handle stream, graph, executable;
  uint64_t word;
  unsigned value;
  CHECK(cuStreamCreate(&stream, 0));
  CHECK(cuMemAlloc_v2(&word, 4));
  CHECK(cuMemsetD32_v2(word, 0, 1));
  CHECK(cuStreamBeginCapture_v2(stream, 0));
  for (int at = 0; at < 5; at++) launch(word, stream);
  CHECK(cuStreamEndCapture(stream, &graph));
  CHECK(cuGraphInstantiateWithFlags(&executable, graph, 0));
  for (int at = 0; at < 3; at++) CHECK(cuGraphLaunch(executable, stream));
  CHECK(cuCtxSynchronize());
  CHECK(cuMemcpyDtoH_v2(&value, word, 4));
  CHECK(cuGraphExecDestroy(executable));
  CHECK(cuGraphDestroy(graph));
  CHECK(cuMemFree_v2(word));
  return value;
}

static void *exits(void *nothing) {
  (void)nothing;
  usleep(2000);
  exit(3);
}

static int child(void) {
  int status;
  fflush(stdout);
  pid_t pid = fork();
  if (pid == 0) {
    /* A child has no CUDA, but may do all else. */
    free(malloc(1 << 20));
    printf("child of a fork\n");
    exit(7);
  }
  waitpid(pid, &status, 0);
  return WEXITSTATUS(status);
}

int main(int count, char **arguments) {
  const char *what = count > 1 ? arguments[1] : "run";
  extern char **environ;
  if (strcmp(what, "dlerror") == 0) {
    /* As manuals have it: an error is known by dlerror alone. */
    void *library = dlopen(arguments[2], RTLD_NOW);
    dlerror();
    void *found = dlsym(library, "cuOfAnother");
    const char *error = dlerror();
    printf("found: %d, error: %s\n", found != NULL, error ? error : "none");
  }
  if (strcmp(what, "mlockall") == 0) printf("mlockall: %d\n", mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT));
  context = begin_context();
  printf("counted %u\n", counted(20));
  if (strcmp(what, "closefrom") == 0) closefrom(3);
  if (strcmp(what, "fork") == 0) printf("child exited with %d\n", child());
  if (strcmp(what, "threads") == 0) printf("threads counted %u\n", counted_by_threads());
  if (strcmp(what, "graph") == 0) printf("graph counted %u\n", counted_by_graph());
  if (strcmp(what, "unload") == 0) {
    for (int at = 0; at < 50; at++) {
      CHECK(cuModuleUnload(module));
      load();
      counted(1);
    }
  }
  if (strcmp(what, "detach") == 0) {
    /* A context that ends with memory in it. */
    Handle other;
    uint64_t word;
    CHECK(cuCtxCreate_v2(&other, 0, 0));
    CHECK(cuMemAllocManaged(&word, 1 << 20, 1));
    CHECK(cuCtxDetach(other));
    CHECK(cuCtxSetCurrent(context));
  }
  if (strcmp(what, "exec") == 0) {
    char *again[] = {arguments[0], "run", NULL};
    fflush(stdout);
    execv("/proc/self/exe", again);
  }
  if (strcmp(what, "spawn") == 0) {
    pid_t pid;
    int status;
    char *again[] = {arguments[0], "run", NULL};
    fflush(stdout);
    posix_spawn(&pid, "/proc/self/exe", NULL, NULL, again, environ);
    waitpid(pid, &status, 0);
    printf("spawned: %d\n", status);
  }
  if (strcmp(what, "exit") == 0) {
    pthread_t other;
    fflush(stdout);
    pthread_create(&other, NULL, exits, NULL);
    for (;;) counted(10);
  }
  if (strcmp(what, "for-ever") == 0) {
    printf("begins\n");
    fflush(stdout);
    for (;;) counted(10);
  }
  printf("counted %u\n", counted(20));
  return 5;
}
