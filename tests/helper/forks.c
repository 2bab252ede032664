/* A program that forks while another thread looks through the list of loaded libraries, for tests of the helper: each child calls the
 * driver for the first time.
 *
 *   forks HOW LIBRARY FUNCTION [LEAVES]     FUNCTION of LIBRARY calls the driver, or is of it
 *
 * HOW: plain; closed, once a library was closed; left, once the destructor of LEAVES has left by a longjmp. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int is_over;
static jmp_buf before;

static int none(struct dl_phdr_info *info, size_t bytes, void *nothing) { return (void)info, (void)bytes, (void)nothing, 0; }

static void *looks(void *nothing) {
  while (!is_over) dl_iterate_phdr(none, NULL);
  return nothing;
}

static void leaves(void) { longjmp(before, 1); }

int main(int count, char **arguments) {
  if (count < 4) return 2;
  const char *how = arguments[1];
  if (getenv("DRIVER") && !dlopen(getenv("DRIVER"), RTLD_NOW | RTLD_GLOBAL)) return printf("%s\n", dlerror()), 1;
  void *library = dlopen(arguments[2], RTLD_NOW);
  if (!library) return printf("%s\n", dlerror()), 1;
  int (*call)(unsigned) = (int (*)(unsigned))dlsym(library, arguments[3]);
  if (strcmp(how, "closed") == 0) dlclose(dlopen("libm.so.6", RTLD_NOW));
  if (strcmp(how, "left") == 0) {
    void *leaving = dlopen(arguments[4], RTLD_NOW);
    *(void (**)(void))dlsym(leaving, "at_end") = leaves;
    if (setjmp(before) == 0) dlclose(leaving);
  }
  pthread_t looker;
  pthread_create(&looker, NULL, looks, NULL);
  int hung = 0, failed = 0;
  for (int turn = 0; turn < 100 && hung < 2; turn++) {
    pid_t child = fork();
    if (child == 0) {
      alarm(5);
      _exit(call(0));
    }
    int status;
    waitpid(child, &status, 0);
    hung += WIFSIGNALED(status);
    failed += WIFEXITED(status) && WEXITSTATUS(status) != 0;
  }
  is_over = 1;
  pthread_join(looker, NULL);
  printf("hung: %d, failed: %d\n", hung, failed);
  fflush(stdout);
  _exit(5);
}
