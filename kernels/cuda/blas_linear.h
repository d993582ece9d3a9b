// A product of many rows with a matrix, by cuBLASLt.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "base/stream.h"

namespace skein::kernels::cuda {

// out[r, n] = sum over k of in[r, k] * weight[n, k], accumulated in float. No residual is added on
// the way: where both are of 16 bits, cuBLASLt rounds the product before.
struct BlasLinear {
  DType dtype = DType::kBF16;      // of in and weight: BF16 or F16
  DType out_dtype = DType::kBF16;  // dtype, or F32
  int64_t rows = 0;
  int64_t n = 0;
  int64_t k = 0;                 // a multiple of 8
  const void* in = nullptr;      // [rows, k], 16-byte aligned, as all of these
  const void* weight = nullptr;  // [n, k]
  void* out = nullptr;           // [rows, n]
  int64_t in_stride = 0;         // elements from row to row, multiples of 8
  int64_t weight_stride = 0;
  int64_t out_stride = 0;
};

// A cuBLASLt handle of the current device, and the algorithms that it chose for shapes seen before.
// One thread at a time; products of one handle share its workspace, and so one stream.
class Blas {
 public:
  // 32 MiB are what cuBLAS asks for on Hopper. The workspace is the device's, 256-byte aligned, and
  // outlives the handle.
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;
  static absl::StatusOr<std::unique_ptr<Blas>> Create(void* workspace, size_t workspace_bytes);
  ~Blas();
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  // A product that was not tuned is done as the tuned one of the next more rows. Where there is
  // none it asks cuBLASLt's heuristics, and CUDA may load a kernel, which takes memory of the
  // device.
  absl::Status Enqueue(const BlasLinear& op, Stream stream);
  // Tries what the heuristics think of for products that differ in their operands alone, and keeps
  // the fastest. Products with other weights follow each other, so that the cache helps none.
  // Writes to `out`; waits for the stream.
  absl::Status Tune(absl::Span<const BlasLinear> ops, Stream stream);

 private:
  struct Product;
  using Key = std::array<int64_t, 8>;  // the rows come last

  Blas(void* handle, void* workspace, size_t workspace_bytes);
  static Key KeyOf(const BlasLinear& op);
  // With the first of at most `count` algorithms, which are put down best first.
  absl::StatusOr<std::unique_ptr<Product>> Choose(const BlasLinear& op, int count) const;
  // With the algorithm of a product of more rows, where it serves.
  absl::StatusOr<std::unique_ptr<Product>> ChooseAs(const BlasLinear& op,
                                                    const Product& more) const;
  absl::Status Multiply(const BlasLinear& op, const Product& product, int algorithm,
                        Stream stream) const;
  absl::StatusOr<float> Time(absl::Span<const BlasLinear> ops, const Product& product,
                             int algorithm, Stream stream) const;

  void* const handle_;  // a cublasLtHandle_t
  void* const workspace_;
  const size_t workspace_bytes_;
  std::map<Key, std::unique_ptr<Product>> products_;
};

}  // namespace skein::kernels::cuda
