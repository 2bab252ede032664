// Has the CUDA runtime find the driver's functions, and counts in the memory of the process those that the helper hooks: "hooks", by pointers
// to the helper's, and "past", by pointers to the driver's own. Standard input has a line for each: its name, and its offset in the driver in
// hexadecimal.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

int cudaGetDeviceCount(int *);
int cudaFree(void *);

#define FUNCTIONS_MAX 512
#define LOADED_MAX 64

// Sought pointers are inverted, so that this program holds none itself.
static struct function {
  char name[64];
  uintptr_t offset, inverted_hook, inverted_driver;
  int is_hook, is_past;
} functions[FUNCTIONS_MAX];

// What is loaded of the driver and of the helper, which have pointers of their own.
static struct { uintptr_t begin, end; } loaded[LOADED_MAX];
static int loaded_len;
static uintptr_t driver;

static int look(struct dl_phdr_info *info, size_t size, void *unused) {
  (void)size, (void)unused;
  int is_driver = strstr(info->dlpi_name, "libcuda.so") != NULL;
  if (is_driver) driver = info->dlpi_addr;
  if (!is_driver && !strstr(info->dlpi_name, "uvmd_helper")) return 0;
  for (int at = 0; at < info->dlpi_phnum && loaded_len < LOADED_MAX; at++) {
    if (info->dlpi_phdr[at].p_type != PT_LOAD) continue;
    loaded[loaded_len].begin = info->dlpi_addr + info->dlpi_phdr[at].p_vaddr;
    loaded[loaded_len].end = loaded[loaded_len].begin + info->dlpi_phdr[at].p_memsz;
    loaded_len++;
  }
  return 0;
}

static int is_loaded(uintptr_t address) {
  for (int at = 0; at < loaded_len; at++)
    if (address >= loaded[at].begin && address < loaded[at].end) return 1;
  return 0;
}

int main(void) {
  char line[512];
  int len = 0, devices, hooks = 0, past = 0;
  void *handle = dlopen("libcuda.so.1", RTLD_NOW); // stays, also where the runtime gives up
  if (!handle) return fprintf(stderr, "%s\n", dlerror()), 1;
  while (len < FUNCTIONS_MAX && fgets(line, sizeof line, stdin))
    if (sscanf(line, "%63s %lx", functions[len].name, &functions[len].offset) == 2) len++;
  int counted = cudaGetDeviceCount(&devices), freed = cudaFree(NULL);
  dl_iterate_phdr(look, NULL);
  for (int at = 0; at < len; at++) {
    functions[at].inverted_driver = ~(driver + functions[at].offset);
    functions[at].inverted_hook = ~(uintptr_t)dlsym(handle, functions[at].name);
  }
  FILE *maps = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof line, maps)) {
    uintptr_t begin, end;
    char rights[5], path[256] = "";
    sscanf(line, "%lx-%lx %4s %*s %*s %*s %255s", &begin, &end, rights, path);
    // On the stack there is what calls have left.
    if (strncmp(rights, "rw-p", 4) || !strcmp(path, "[stack]")) continue;
    for (uintptr_t address = begin; address < end; address += sizeof(uintptr_t)) {
      if (is_loaded(address)) continue;
      uintptr_t word = *(volatile uintptr_t *)address;
      if (!is_loaded(word)) continue;
      for (int at = 0; at < len; at++) {
        if (~word == functions[at].inverted_driver) functions[at].is_past = 1;
        else if (~word == functions[at].inverted_hook) functions[at].is_hook = 1;
      }
    }
  }
  for (int at = 0; at < len; at++) hooks += functions[at].is_hook, past += functions[at].is_past;
  printf("errors %d %d, hooks %d, past %d\n", counted, freed, hooks, past);
  return 0;
}
