/* A program that forks while another thread looks through the list of loaded libraries, for tests of the helper: each child calls the
 * driver for the first time.
 *
 *   forks LIBRARY FUNCTION     FUNCTION of LIBRARY calls the driver, or is of it */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int is_over;

static int none(struct dl_phdr_info *info, size_t bytes, void *nothing) { return (void)info, (void)bytes, (void)nothing, 0; }

static void *looks(void *nothing) {
  while (!is_over) dl_iterate_phdr(none, NULL);
  return nothing;
}

int main(int count, char **arguments) {
  if (count < 3) return 2;
  if (getenv("DRIVER") && !dlopen(getenv("DRIVER"), RTLD_NOW | RTLD_GLOBAL)) return printf("%s\n", dlerror()), 1;
  void *library = dlopen(arguments[1], RTLD_NOW);
  if (!library) return printf("%s\n", dlerror()), 1;
  int (*call)(unsigned) = (int (*)(unsigned))dlsym(library, arguments[2]);
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
