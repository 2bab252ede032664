// Kernels of the interpreter's tests, in the manner of those that train networks.
// `make.py` compiles them to kernels.ptx.

#define TILE 16
#define ALL 0xffffffffu

extern "C" __global__ void vector_add(const float *a, const float *b, float *c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

extern "C" __global__ void matmul(const float *a, const float *b, float *c, int m, int n, int k) {
  __shared__ float left[TILE][TILE], right[TILE][TILE];
  int row = blockIdx.y * TILE + threadIdx.y;
  int column = blockIdx.x * TILE + threadIdx.x;
  float sum = 0;
  for (int start = 0; start < k; start += TILE) {
    left[threadIdx.y][threadIdx.x] = row < m && start + threadIdx.x < k ? a[row * k + start + threadIdx.x] : 0.f;
    right[threadIdx.y][threadIdx.x] = column < n && start + threadIdx.y < k ? b[(start + threadIdx.y) * n + column] : 0.f;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILE; i++) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
    __syncthreads();
  }
  if (row < m && column < n) c[row * n + column] = sum;
}

__device__ float warp_sum(float value) {
  for (int distance = 16; distance; distance >>= 1) value += __shfl_down_sync(ALL, value, distance);
  return value;
}

__device__ float warp_max(float value) {
  for (int distance = 16; distance; distance >>= 1) value = fmaxf(value, __shfl_xor_sync(ALL, value, distance));
  return value;
}

extern "C" __global__ void reduce(const float *x, float *out, int n) {
  __shared__ float sums[32];
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
  sum = warp_sum(sum);
  if ((threadIdx.x & 31) == 0) sums[threadIdx.x >> 5] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = threadIdx.x < blockDim.x >> 5 ? sums[threadIdx.x] : 0.f;
    sum = warp_sum(sum);
    if (threadIdx.x == 0) atomicAdd(out, sum);
  }
}

extern "C" __global__ void softmax(const float *x, float *y, int columns) {
  extern __shared__ float parts[];
  const float *row = x + (size_t)blockIdx.x * columns;
  float *out = y + (size_t)blockIdx.x * columns;
  float largest = __int_as_float(0xff800000);
  for (int i = threadIdx.x; i < columns; i += blockDim.x) largest = fmaxf(largest, row[i]);
  largest = warp_max(largest);
  if (!(threadIdx.x & 31)) parts[threadIdx.x >> 5] = largest;
  __syncthreads();
  largest = parts[0];
  for (int i = 1; i < blockDim.x / 32; i++) largest = fmaxf(largest, parts[i]);
  __syncthreads();
  float sum = 0;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += expf(row[i] - largest);
  sum = warp_sum(sum);
  if (!(threadIdx.x & 31)) parts[threadIdx.x >> 5] = sum;
  __syncthreads();
  sum = 0;
  for (int i = 0; i < blockDim.x / 32; i++) sum += parts[i];
  for (int i = threadIdx.x; i < columns; i += blockDim.x) out[i] = expf(row[i] - largest) / sum;
}

extern "C" __global__ void histogram(const unsigned *x, unsigned *counts, unsigned long long *total, int n) {
  __shared__ unsigned local[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[x[i] & 255], 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&counts[i], local[i]);
  atomicAdd(total, 1ull);
}

extern "C" __global__ void conv3x3_relu(const float *x, const float *w, const float *bias, float *y, int channels, int height,
                                        int width, int outputs) {
  int column = blockIdx.x * blockDim.x + threadIdx.x;
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  int output = blockIdx.z % outputs, image = blockIdx.z / outputs;
  if (column >= width || row >= height) return;
  float sum = bias[output];
  for (int c = 0; c < channels; c++)
    for (int i = -1; i <= 1; i++)
      for (int j = -1; j <= 1; j++) {
        int h = row + i, v = column + j;
        if (h >= 0 && h < height && v >= 0 && v < width)
          sum += x[((image * channels + c) * height + h) * width + v] * w[((output * channels + c) * 3 + i + 1) * 3 + j + 1];
      }
  y[((image * outputs + output) * height + row) * width + column] = fmaxf(sum, 0.f);
}

extern "C" __global__ void layernorm(const float *x, const float *gain, const float *bias, float *y, int size, float epsilon) {
  __shared__ float parts[2][32];
  const float *row = x + (size_t)blockIdx.x * size;
  float sum = 0, squares = 0;
  for (int i = threadIdx.x; i < size; i += blockDim.x) {
    sum += row[i];
    squares += row[i] * row[i];
  }
  sum = warp_sum(sum);
  squares = warp_sum(squares);
  if (!(threadIdx.x & 31)) {
    parts[0][threadIdx.x >> 5] = sum;
    parts[1][threadIdx.x >> 5] = squares;
  }
  __syncthreads();
  sum = squares = 0;
  for (int i = 0; i < blockDim.x / 32; i++) {
    sum += parts[0][i];
    squares += parts[1][i];
  }
  float mean = sum / size, scale = rsqrtf(squares / size - mean * mean + epsilon);
  for (int i = threadIdx.x; i < size; i += blockDim.x)
    y[(size_t)blockIdx.x * size + i] = (row[i] - mean) * scale * gain[i] + bias[i];
}

extern "C" __global__ void adam(float *p, const float *g, float *m, float *v, int n, float rate, float b1, float b2, float epsilon,
                                int step) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float gradient = g[i];
  float first = m[i] = b1 * m[i] + (1 - b1) * gradient;
  float second = v[i] = b2 * v[i] + (1 - b2) * gradient * gradient;
  p[i] -= rate * (first / (1 - powf(b1, step))) / (sqrtf(second / (1 - powf(b2, step))) + epsilon);
}

extern "C" __global__ void gelu(const float *x, float *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = x[i];
  y[i] = 0.5f * v * (1.f + tanhf(0.79788456f * (v + 0.044715f * v * v * v)));
}

extern "C" __global__ void trigonometry(const float *x, float *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  y[3 * i] = sinf(x[i]);
  y[3 * i + 1] = cosf(x[i]);
  y[3 * i + 2] = logf(fabsf(x[i]) + 1.f);
}

extern "C" __global__ void embed(const long long *ids, const float4 *table, float4 *y, int quads) {
  for (int i = threadIdx.x; i < quads; i += blockDim.x) y[(size_t)blockIdx.x * quads + i] = table[ids[blockIdx.x] * quads + i];
}

// The zero-value codec: one warp for each unit of 32 words.
extern "C" __global__ void zvc_count(const unsigned *x, unsigned *counts, unsigned *masks, unsigned units) {
  unsigned unit = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31;
  if (unit >= units) return;
  unsigned mask = __ballot_sync(ALL, x[(size_t)unit * 32 + lane] != 0);
  if (!lane) {
    masks[unit] = mask;
    counts[unit] = 1 + __popc(mask);
  }
}

extern "C" __global__ void zvc_pack(const unsigned *x, const unsigned *offsets, const unsigned *masks, unsigned *out, unsigned units) {
  unsigned unit = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31;
  if (unit >= units) return;
  unsigned word = x[(size_t)unit * 32 + lane], mask = masks[unit];
  unsigned *packed = out + offsets[unit];
  if (!lane) packed[0] = mask;
  if (word) packed[1 + __popc(mask & ((1u << lane) - 1))] = word;
}

extern "C" __global__ void zvc_unpack(const unsigned *in, const unsigned *offsets, unsigned *x, unsigned units) {
  unsigned unit = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31;
  if (unit >= units) return;
  const unsigned *packed = in + offsets[unit];
  unsigned mask = packed[0];
  x[(size_t)unit * 32 + lane] = mask >> lane & 1 ? packed[1 + __popc(mask & ((1u << lane) - 1))] : 0u;
}

// Calls: a recursion, one by a table, and what a kernel prints.
__device__ __noinline__ unsigned fibonacci(unsigned n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__device__ __noinline__ int twice(int x) { return 2 * x; }
__device__ __noinline__ int square(int x) { return x * x; }
typedef int (*Function)(int);
__device__ Function table[2] = {twice, square};

extern "C" __global__ void calls(unsigned *recursive, int *indirect) {
  recursive[threadIdx.x] = fibonacci(threadIdx.x % 12);
  indirect[threadIdx.x] = table[threadIdx.x & 1](threadIdx.x);
}

extern "C" __device__ int printf(const char *, ...);
extern "C" __global__ void prints(int n) {
  if (threadIdx.x < n) printf("thread %d: %5.2f %s\n", threadIdx.x, threadIdx.x * 0.5, "text");
}

extern "C" __global__ void doubles(const double *x, double *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = sqrt(x[i] * x[i] + 1.0) / (x[i] + 3.0);
}
