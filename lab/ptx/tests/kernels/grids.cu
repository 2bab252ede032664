// Cooperative launches, and memory that kernels allocate.

#include <cooperative_groups.h>
namespace cg = cooperative_groups;

// Each round takes the value of a thread of another block, of the round before.
extern "C" __global__ void rounds(unsigned *values, int n) {
  cg::grid_group grid = cg::this_grid();
  for (int i = 0; i < n; i++) {
    unsigned at = grid.thread_rank(), value = values[(at + 37) % grid.size()];
    grid.sync();
    values[at] = value + i;
    grid.sync();
  }
}

extern "C" __global__ void is_cooperative(unsigned *valid) { valid[threadIdx.x] = cg::this_grid().is_valid(); }

// A list of as many numbers as the thread's index, whose sum it returns; the next kernel frees it.
struct Node {
  unsigned number;
  Node *next;
};

extern "C" __global__ void lists(Node **lists, unsigned *sums) {
  Node *list = nullptr;
  unsigned sum = 0;
  for (unsigned i = 0; i < threadIdx.x; i++) list = new Node{i * i, list};
  for (Node *node = list; node; node = node->next) sum += node->number;
  lists[threadIdx.x] = list;
  sums[threadIdx.x] = sum;
}

extern "C" __global__ void free_lists(Node **lists, unsigned *counts) {
  unsigned count = 0;
  for (Node *node = lists[threadIdx.x]; node; count++) {
    Node *next = node->next;
    delete node;
    node = next;
  }
  counts[threadIdx.x] = count;
}

// Whether that much can be allocated.
extern "C" __global__ void allocates(unsigned long long bytes, unsigned *success) {
  void *memory = malloc(bytes);
  *success = memory != nullptr;
  free(memory);
}
