/* A program without CUDA in which a thread asks the loader for functions, for tests of the helper: without it, these calls do not take the
 * lock of the loader's list of libraries.
 *
 *   asking forks CALL     children of forks at that time open a library
 *   asking waits CALL     a callback of dl_iterate_phdr, which holds the lock of the list, waits for the thread
 *
 * CALL: whole, dlsym with RTLD_DEFAULT; handle, dlsym with the handle of a library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILDREN 300
#define HUNG_MAX 2

static void *library;
static const char *how;
static volatile int has_begun, is_over, is_iterating;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void call(void) { dlsym(strcmp(how, "handle") == 0 ? library : RTLD_DEFAULT, "cos"); }

static void *calls(void *nothing) {
  while (!is_over) call();
  return nothing;
}

static void forks(void) {
  int hung = 0, failed = 0;
  for (int child = 0; child < CHILDREN && hung < HUNG_MAX; child++) {
    pid_t process = fork();
    if (process == 0) {
      alarm(5);
      _exit(dlopen("libutil.so.1", RTLD_NOW) == NULL);
    }
    int status;
    waitpid(process, &status, 0);
    hung += WIFSIGNALED(status);
    failed += WIFEXITED(status) && WEXITSTATUS(status) != 0;
  }
  printf("hung: %d, failed: %d\n", hung, failed);
}

static void calls_at_once(void) {
  has_begun = 1;
  while (!is_iterating) {
  }
  call();
}

static void *begins(void *nothing) {
  pthread_once(&once, calls_at_once);
  return nothing;
}

static int waits(struct dl_phdr_info *info, size_t bytes, void *nothing) {
  (void)info, (void)bytes, (void)nothing;
  is_iterating = 1;
  pthread_once(&once, calls_at_once);
  return 1;
}

int main(int count, char **arguments) {
  if (count < 3) return 2;
  int is_of_forks = strcmp(arguments[1], "forks") == 0;
  pthread_t thread;
  how = arguments[2];
  library = dlopen("libm.so.6", RTLD_NOW);
  pthread_create(&thread, NULL, is_of_forks ? calls : begins, NULL);
  if (is_of_forks) forks();
  alarm(10);
  while (!is_of_forks && !has_begun) {
  }
  if (!is_of_forks) printf("waited: %d\n", dl_iterate_phdr(waits, NULL));
  is_over = 1;
  pthread_join(thread, NULL);
  return 5;
}
