// Prints, for each function of the CUDA driver that standard input names, whose pointers this program gets: those of the helper
// ("hook") or of the driver ("driver"): by dlsym, and by cuGetProcAddress and its second version for versions of CUDA and kinds of streams.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef int (*GetProcAddress)(const char *, void **, int, unsigned long);
typedef int (*GetProcAddress2)(const char *, void **, int, unsigned long, int *);

static const char *owner(void *function) {
  Dl_info info;
  if (!function) return "none";
  if (!dladdr(function, &info)) return "nobody";
  return strstr(info.dli_fname, "uvmd_helper") ? "hook" : strstr(info.dli_fname, "libcuda") ? "driver" : info.dli_fname;
}

// Name that cuGetProcAddress takes: without the suffixes of versions and streams.
static void base_of(const char *name, char *base) {
  static const char *const SUFFIXES[] = {"_ptsz", "_ptds", "_v2", "_v3"};
  strcpy(base, name);
  for (int at = 0; at < 4; at++) {
    size_t length = strlen(base), suffix = strlen(SUFFIXES[at]);
    if (length > suffix && !strcmp(base + length - suffix, SUFFIXES[at])) base[length - suffix] = 0;
  }
}

int main(void) {
  static const int VERSIONS[] = {4000, 9000, 11040, 12000, 12030, 12060};
  char name[128], base[128];
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) return fprintf(stderr, "%s\n", dlerror()), 1;
  GetProcAddress get = (GetProcAddress)dlsym(driver, "cuGetProcAddress");
  GetProcAddress2 get2 = (GetProcAddress2)dlsym(driver, "cuGetProcAddress_v2");
  if (!get || !get2) return fprintf(stderr, "no cuGetProcAddress\n"), 1;
  while (fgets(name, sizeof name, stdin)) {
    name[strcspn(name, "\n")] = 0;
    printf("dlsym %s %s\n", name, owner(dlsym(driver, name)));
    base_of(name, base);
    for (int at = 0; at < (int)(sizeof VERSIONS / sizeof *VERSIONS); at++) {
      for (unsigned long per_thread = 0; per_thread < 2; per_thread++) {
        void *function = NULL, *function2 = NULL;
        int status;
        if (get(base, &function, VERSIONS[at], per_thread ? 2 : 1)) function = NULL;
        if (get2(base, &function2, VERSIONS[at], per_thread ? 2 : 1, &status)) function2 = NULL;
        printf("%d/%lu %s %s\n", VERSIONS[at], per_thread, base, owner(function));
        printf("%d/%lu/2 %s %s\n", VERSIONS[at], per_thread, base, owner(function2));
      }
    }
  }
  return 0;
}
