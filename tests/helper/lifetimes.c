/* A CUDA program whose libraries, threads and processes end in many ways, for tests of the helper.
 *
 *   lifetimes WHAT [LIBRARY]
 *
 * With ACT in its environment it plays uvmd, and has the helper start its thread. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "count.h"
#include "ring.h"

extern CUresult cuCtxSetCurrent(Handle);
/* Of the ABI of C++: what `thread_local` objects are destroyed by. */
extern int __cxa_thread_atexit_impl(void (*)(void *), void *, void *);
extern void *__dso_handle;

static Handle context;

/* Lanes of the ring that threads have for themselves. */
static int owned_lanes(void) {
  int owned = 0;
  for (int lane = 0; ring() && lane < DEDICATED_LANES; lane++) owned += ring()[LANE_HEADERS + lane * LANE_HEADER_WORDS + OWNER] != 0;
  return owned;
}

/* Counts by a launch, in whatever state the thread is. */
static unsigned counted(void) { return counted_in(NULL, 1); }

static void begin(void) {
  context = begin_context();
  counted();
  act(counted);
}

/* Result of a call, at a time when the driver may refuse it. */
static CUresult call(void) {
  uint64_t word;
  CUresult result = cuMemAllocManaged(&word, 4096, 1);
  return result == 0 ? cuMemFree_v2(word) : result;
}

static void say_call(void *at) { printf("%s: %d\n", (const char *)at, call()); }

/* Data of a thread: destroyed again and again, and each time the driver is called. */
static pthread_key_t before, after;
static int destroyed, refused;
static void destroy(void *rounds) {
  destroyed++;
  refused += call() != 0;
  if ((uintptr_t)rounds > 1) pthread_setspecific(after, (void *)((uintptr_t)rounds - 1));
}

static void *with_keys(void *nothing) {
  pthread_setspecific(before, (void *)1);
  pthread_setspecific(after, (void *)4);
  call();
  return nothing;
}

static void *with_destructors(void *nothing) {
  CHECK(cuCtxSetCurrent(context));
  __cxa_thread_atexit_impl(destroy, (void *)1, &__dso_handle);
  counted();
  __cxa_thread_atexit_impl(destroy, (void *)1, &__dso_handle);
  return nothing;
}

static void run_each(void *(*thread)(void *), int threads) {
  pthread_t one;
  for (int at = 0; at < threads; at++) {
    CHECK(pthread_create(&one, NULL, thread, NULL));
    pthread_join(one, NULL);
  }
  printf("destroyed %d, refused %d\n", destroyed, refused);
  fflush(stdout);
  /* Those of the first thread, of the driver's and the helper's. */
  if (owned_lanes() > 1) printf("%d lanes are lost\n", owned_lanes());
}

static void child_exits(void) { printf("exit of %s\n", getenv("CHILD") ? "the child" : "the program"); }

static void counts_at_exit(void) { say_call("at exit"); }

/* Forks, and waits for the child: it exits as `exit` has it, with all handlers. */
static void *forks(void *nothing) {
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    setenv("CHILD", "1", 1);
    printf("ring in the child: %d\n", ring() != NULL);
    uint64_t word;
    printf("call in the child: %d\n", cuMemAllocManaged(&word, 4096, 1));
    exit(7);
  }
  int status;
  waitpid(child, &status, 0);
  printf("child: %d\n", status);
  return nothing;
}

static void *executes(void *name) {
  char *again[] = {name, "plain", NULL};
  fflush(stdout);
  execv("/proc/self/exe", again);
  return NULL;
}

static void in_thread(void *(*run)(void *), void *argument) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, run, argument));
  pthread_join(thread, NULL);
}

static void *open_and_close(void *path) {
  for (int at = 0; at < 3; at++) {
    void *library = dlopen(path, at == 1 ? RTLD_NOW | RTLD_GLOBAL : RTLD_LAZY);
    unsigned (*used)(void) = library ? (unsigned (*)(void))dlsym(library, "used") : NULL;
    if (!library) printf("%s\n", dlerror());
    if (used && context) printf("used %u\n", used());
    if (library) dlclose(library);
  }
  return NULL;
}

static void *ends_last(void *nothing) {
  usleep(20000);
  CHECK(cuCtxSetCurrent(context));
  say_call("after the first thread's end");
  exit(5);
  return nothing;
}

int main(int count, char **arguments) {
  const char *what = count > 1 ? arguments[1] : "plain";
  volatile int is = 0;
#define IS(name) (strcmp(what, name) == 0 && (is = 1))
  setvbuf(stdout, NULL, _IOFBF, 4096);
  if (IS("open-first")) open_and_close(arguments[2]);
  if (IS("open-in-thread")) in_thread(open_and_close, arguments[2]);
  if (IS("fork-first")) {
    fflush(stdout);
    pid_t child = fork();
    int status = 0;
    if (child != 0) waitpid(child, &status, 0);
    begin();
    printf("counted %u\n", counted());
    if (child == 0 && getenv("LD_PRELOAD") && !ring()) printf("the child is not recorded\n");
    if (child != 0) printf("child: %d\n", status);
    return 5;
  }
  if (IS("keys")) {
    /* On the stand-in for the driver, which answers at any time; its first call is that of the first thread. */
    CHECK(pthread_key_create(&before, destroy));
    call();
    CHECK(pthread_key_create(&after, destroy));
    run_each(with_keys, 40);
    return 5;
  }
  if (IS("exit")) atexit(counts_at_exit);
  begin();
  if (IS("open")) open_and_close(arguments[2]);
  if (IS("destructors")) run_each(with_destructors, 40);
  if (IS("exit")) {
    atexit(counts_at_exit);
    __cxa_thread_atexit_impl(say_call, "destructor of the first thread", &__dso_handle);
  }
  if (IS("fork-in-thread")) {
    atexit(child_exits);
    in_thread(forks, NULL);
  }
  if (IS("vfork")) {
    fflush(stdout);
    pid_t child = vfork();
    if (child == 0) _exit(3);
    int status;
    waitpid(child, &status, 0);
    printf("vfork: %d, system: %d\n", status, system("exit 4"));
  }
  if (IS("exec-in-thread")) in_thread(executes, arguments[0]);
  if (IS("first-thread-ends")) {
    pthread_t thread;
    fflush(stdout);
    CHECK(pthread_create(&thread, NULL, ends_last, NULL));
    pthread_exit(NULL);
  }
  printf("counted %u\n", counted());
  return is || IS("plain") ? 5 : 2;
}
