// Products of matrices by tensor cores: by the API of mma.h, and by tiles that ldmatrix loads.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

template <class Element> struct Multiplied { using Type = Element; };
template <> struct Multiplied<float> { using Type = wmma::precision::tf32; };

template <int M, int N, int K, class Element, class Sum, class LayoutA, class LayoutB>
__device__ void product(const Element *a, int a_stride, const Element *b, int b_stride, Sum *c, int c_stride, wmma::layout_t layout) {
  using Type = typename Multiplied<Element>::Type;
  wmma::fragment<wmma::matrix_a, M, N, K, Type, LayoutA> left;
  wmma::fragment<wmma::matrix_b, M, N, K, Type, LayoutB> right;
  wmma::fragment<wmma::accumulator, M, N, K, Sum> sum;
  wmma::load_matrix_sync(left, a, a_stride);
  wmma::load_matrix_sync(right, b, b_stride);
  wmma::load_matrix_sync(sum, c, c_stride, layout);
  wmma::mma_sync(sum, left, right, sum);
  wmma::store_matrix_sync(c, sum, c_stride, layout);
}

extern "C" __global__ void wmma_16_16_16(const half *a, const half *b, float *c) {
  product<16, 16, 16, half, float, wmma::row_major, wmma::col_major>(a, 16, b, 16, c, 16, wmma::mem_row_major);
}

// By way of shared memory.
extern "C" __global__ void wmma_32_8_16(const half *a, const half *b, half *c) {
  __shared__ half left[512], right[128], sum[256];
  for (int i = threadIdx.x; i < 512; i += 32) left[i] = a[i];
  for (int i = threadIdx.x; i < 128; i += 32) right[i] = b[i];
  for (int i = threadIdx.x; i < 256; i += 32) sum[i] = c[i];
  __syncwarp();
  product<32, 8, 16, half, half, wmma::col_major, wmma::row_major>(left, 32, right, 8, sum, 32, wmma::mem_col_major);
  __syncwarp();
  for (int i = threadIdx.x; i < 256; i += 32) c[i] = sum[i];
}

extern "C" __global__ void wmma_8_32_16(const signed char *a, const signed char *b, int *c) {
  product<8, 32, 16, signed char, int, wmma::row_major, wmma::col_major>(a, 16, b, 16, c, 32, wmma::mem_row_major);
}

extern "C" __global__ void wmma_bf16(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c) {
  product<16, 16, 16, __nv_bfloat16, float, wmma::col_major, wmma::row_major>(a, 16, b, 16, c, 16, wmma::mem_row_major);
}

extern "C" __global__ void wmma_tf32(const float *a, const float *b, float *c) {
  product<16, 16, 8, float, float, wmma::row_major, wmma::col_major>(a, 8, b, 8, c, 16, wmma::mem_col_major);
}

extern "C" __global__ void wmma_f64(const double *a, const double *b, double *c) {
  product<8, 8, 4, double, double, wmma::row_major, wmma::row_major>(a, 4, b, 8, c, 8, wmma::mem_col_major);
}

// A tile of 16 x 16 a warp.
extern "C" __global__ void matmul_wmma(const half *a, const half *b, float *c, int n, int k) {
  const half *rows = a + blockIdx.y * 16 * k, *columns = b + blockIdx.x * 16 * k;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> right;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fill_fragment(sum, 0.f);
  for (int i = 0; i < k; i += 16) {
    wmma::load_matrix_sync(left, rows + i, k);
    wmma::load_matrix_sync(right, columns + i, k);
    wmma::mma_sync(sum, left, right, sum);
  }
  wmma::store_matrix_sync(c + blockIdx.y * 16 * n + blockIdx.x * 16, sum, n, wmma::mem_row_major);
}

// A tile of 32 x 16 a block of four warps, each of which has 16 x 8 of it, by way of shared memory.
extern "C" __global__ void matmul_mma(const half *a, const half *b, float *c, int n, int k) {
  __shared__ __align__(16) half left[32][24], right[16][24];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, down = warp / 2 * 16, across = warp % 2 * 8;
  float sum[4] = {};
  for (int from = 0; from < k; from += 16) {
    for (int i = threadIdx.x; i < 32 * 16; i += 128) left[i / 16][i % 16] = a[(blockIdx.y * 32 + i / 16) * k + from + i % 16];
    for (int i = threadIdx.x; i < 16 * 16; i += 128) right[i / 16][i % 16] = b[(blockIdx.x * 16 + i / 16) * k + from + i % 16];
    __syncthreads();
    unsigned x[4], y[2];
    unsigned rows = (unsigned)__cvta_generic_to_shared(&left[down + lane % 16][lane / 16 * 8]);
    unsigned columns = (unsigned)__cvta_generic_to_shared(&right[across + lane % 8][lane / 8 % 2 * 8]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(rows));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(y[0]), "=r"(y[1]) : "r"(columns));
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    __syncthreads();
  }
  float *tile = c + (blockIdx.y * 32 + down + lane / 4) * n + blockIdx.x * 16 + across + lane % 4 * 2;
  tile[0] = sum[0], tile[1] = sum[1], tile[8 * n] = sum[2], tile[8 * n + 1] = sum[3];
}
