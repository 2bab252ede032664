/* process FILE COPIES stay|exit: has FILE open twice, as 3 and 4, and COPIES more descriptors of 3. It goes on for good: "exit", without its first
 * thread. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

static void *go_on(void *unused) {
    (void)unused;
    for (;;)
        pause();
}

int main(int count, char **words) {
    const struct rlimit files = {.rlim_cur = 4096, .rlim_max = 4096};
    pthread_t thread;
    if (count != 4 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        return 1;
    int first = open(words[1], O_RDONLY), second = open(words[1], O_RDONLY), copies = atoi(words[2]);
    if (first < 0 || second < 0 || dup2(second, 100) < 0 || dup2(first, 3) < 0 || dup2(100, 4) < 0 || close(100) < 0)
        return 1;
    if (copies > 0 && setrlimit(RLIMIT_NOFILE, &files) < 0)
        return 1;
    for (; copies > 0; copies--)
        if (fcntl(3, F_DUPFD, 5) < 0)
            return 1;
    if (pthread_create(&thread, NULL, go_on, NULL) != 0 || write(1, "\n", 1) < 0)
        return 1;
    if (strcmp(words[3], "exit") == 0)
        pthread_exit(NULL);
    go_on(NULL);
}
