/* Programs whose execve never completes, as a user without privileges can have it: it writes back a page of a file that
   this program serves (FUSE), which does not answer. Until it is killed, whoever reads their /proc/PID/stat waits, too,
   with a kernel that takes the lock of an execve for that.

       slow_exec COUNT

   A line for each of COUNT programs: its process, before it calls execve. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file's inode number is its name, the pid of the process that opens it: programs that shared a page would wait for each
   other before their execve. */
enum { PAGE_BYTES = 4096, FOLDER = 1, FOR_EVER_SECONDS = 1000000 };
static const char MOUNT[] = "/mnt";

static void check(int is_right, const char *what) {
  if (!is_right) {
    printf("%s: %s\n", what, strerror(errno));
    exit(1);
  }
}
#define CHECK(condition) check(condition, #condition)

static void write_to(const char *path, const char *text) {
  int file = open(path, O_WRONLY);
  CHECK(file >= 0);
  CHECK(write(file, text, strlen(text)) == (ssize_t)strlen(text));
  close(file);
}

/* --- the program */

static void run(void) {
  char path[64];
  snprintf(path, sizeof path, "%s/%d", MOUNT, getpid());
  int file = open(path, O_RDWR);
  CHECK(file >= 0);
  volatile char *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  CHECK(page != MAP_FAILED);
  /* Closed before the page changes: a close would write it back. */
  close(file);
  page[0] = 1;
  printf("%d\n", getpid());
  fflush(stdout);
  execl("/bin/sleep", "sleep", "1000000", NULL);
  _exit(1);
}

/* --- the server of the file */

static struct fuse_attr attributes_of(uint64_t node) {
  int is_folder = node == FOLDER;
  return (struct fuse_attr){.ino = node, .nlink = 1, .mode = is_folder ? S_IFDIR | 0755 : S_IFREG | 0777,
                            .size = is_folder ? 0 : PAGE_BYTES, .blksize = PAGE_BYTES};
}

static void answer(int device, uint64_t request, int error, const void *body, size_t length) {
  struct {
    struct fuse_out_header header;
    char body[PAGE_BYTES];
  } out = {.header = {.len = sizeof out.header + length, .error = -error, .unique = request}};
  memcpy(out.body, body, length);
  CHECK(write(device, &out, out.header.len) == (ssize_t)out.header.len);
}
#define ANSWER(body) answer(device, in->unique, 0, &(body), sizeof(body))

static void serve(int device, const struct fuse_in_header *in) {
  static const char ZEROS[PAGE_BYTES];
  switch (in->opcode) {
  case FUSE_INIT:
    ANSWER(((struct fuse_init_out){.major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = PAGE_BYTES}));
    break;
  case FUSE_LOOKUP: {
    uint64_t node = strtoull((const char *)(in + 1), NULL, 10);
    ANSWER(((struct fuse_entry_out){.nodeid = node, .attr_valid = FOR_EVER_SECONDS, .entry_valid = FOR_EVER_SECONDS,
                                    .attr = attributes_of(node)}));
    break;
  }
  case FUSE_GETATTR:
    ANSWER(((struct fuse_attr_out){.attr_valid = FOR_EVER_SECONDS, .attr = attributes_of(in->nodeid)}));
    break;
  case FUSE_OPEN:
    ANSWER(((struct fuse_open_out){0}));
    break;
  case FUSE_READ:
    ANSWER(ZEROS);
    break;
  case FUSE_FLUSH:
  case FUSE_RELEASE:
    answer(device, in->unique, 0, "", 0);
    break;
  case FUSE_WRITE: /* never answered */
  case FUSE_FORGET:
  case FUSE_BATCH_FORGET:
  case FUSE_INTERRUPT:
    break;
  default:
    answer(device, in->unique, ENOSYS, "", 0);
  }
}

static int mount_file(void) {
  char map[64], options[128];
  unsigned user = getuid(), group = getgid();
  CHECK(unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0);
  write_to("/proc/self/setgroups", "deny");
  snprintf(map, sizeof map, "0 %u 1", user);
  write_to("/proc/self/uid_map", map);
  snprintf(map, sizeof map, "0 %u 1", group);
  write_to("/proc/self/gid_map", map);
  int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  CHECK(device >= 0);
  snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
  CHECK(mount("fuse", MOUNT, "fuse", MS_NOSUID | MS_NODEV, options) == 0);
  return device;
}

int main(int count, char **arguments) {
  static char request[1 << 20];
  if (count != 2) {
    fprintf(stderr, "usage: slow_exec COUNT\n");
    return 2;
  }
  int device = mount_file();
  for (int program = 0; program < atoi(arguments[1]); program++)
    if (fork() == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      close(device);
      run();
    }
  for (;;) {
    ssize_t length = read(device, request, sizeof request);
    if (length < 0 && errno != EINTR && errno != ENOENT) return 1;
    if (length > 0) serve(device, (struct fuse_in_header *)request);
  }
}
