#include "kernels/cuda/blas_linear.h"

#include <cublasLt.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cublas_status.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/resources.h"

namespace skein::kernels::cuda {
namespace {

absl::StatusOr<cudaDataType_t> TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kF32:
      return CUDA_R_32F;
    default:
      return absl::UnimplementedError(
          absl::StrCat("a product of ", std::string(DTypeName(dtype)), "; there are BF16 and F16"));
  }
}

// Of operands, at least; cuBLASLt supposes 256 bytes unless it is told.
constexpr uint32_t kAlignment = 16;

absl::Status Validate(const BlasLinear& op) {
  if ((op.dtype != DType::kBF16 && op.dtype != DType::kF16) ||
      (op.out_dtype != op.dtype && op.out_dtype != DType::kF32)) {
    return absl::UnimplementedError(absl::StrCat("BlasLinear of ", std::string(DTypeName(op.dtype)),
                                                 " to ", std::string(DTypeName(op.out_dtype)),
                                                 ": BF16 or F16, to the same or to F32"));
  }
  if (op.rows < 0 || op.n <= 0 || op.k <= 0 ||
      (op.k | op.in_stride | op.weight_stride | op.out_stride) % 8 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("BlasLinear of ", op.rows, " rows, ", op.n, " by ", op.k,
                     ": inner dimension and strides are multiples of 8"));
  }
  for (const void* operand : {op.in, op.weight, static_cast<const void*>(op.out)}) {
    if (reinterpret_cast<uintptr_t>(operand) % kAlignment != 0) {
      return absl::InvalidArgumentError("BlasLinear: operands are 16-byte aligned");
    }
  }
  return absl::OkStatus();
}

struct DestroyPreference {
  void operator()(cublasLtMatmulPreference_t preference) const {
    cublasLtMatmulPreferenceDestroy(preference);
  }
};

}  // namespace

// cuBLAS thinks in columns: row-major [r, c] is its column-major [c, r]. So it makes
// out^T [n, rows] = weight [n, k] * in^T [k, rows].
struct Blas::Product {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t weight = nullptr;
  cublasLtMatrixLayout_t in = nullptr;
  cublasLtMatrixLayout_t out = nullptr;
  std::vector<cublasLtMatmulAlgo_t> algorithms;  // the chosen one is the first

  Product() = default;
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;
  ~Product() {
    if (operation != nullptr) cublasLtMatmulDescDestroy(operation);
    for (cublasLtMatrixLayout_t layout : {weight, in, out}) {
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
    }
  }

  absl::Status Describe(const BlasLinear& op) {
    SKEIN_ASSIGN_OR_RETURN(const cudaDataType_t type, TypeOf(op.dtype));
    SKEIN_ASSIGN_OR_RETURN(const cudaDataType_t out_type, TypeOf(op.out_dtype));
    const auto rows = static_cast<uint64_t>(op.rows);
    const auto n = static_cast<uint64_t>(op.n);
    const auto k = static_cast<uint64_t>(op.k);
    SKEIN_CUBLAS_RETURN_IF_ERROR(
        cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t transposed = CUBLAS_OP_T;
    SKEIN_CUBLAS_RETURN_IF_ERROR(cublasLtMatmulDescSetAttribute(
        operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)));
    SKEIN_CUBLAS_RETURN_IF_ERROR(cublasLtMatrixLayoutCreate(&weight, type, k, n, op.weight_stride));
    SKEIN_CUBLAS_RETURN_IF_ERROR(cublasLtMatrixLayoutCreate(&in, type, k, rows, op.in_stride));
    SKEIN_CUBLAS_RETURN_IF_ERROR(
        cublasLtMatrixLayoutCreate(&out, out_type, n, rows, op.out_stride));
    return absl::OkStatus();
  }
};

absl::StatusOr<std::unique_ptr<Blas>> Blas::Create(void* workspace, size_t workspace_bytes) {
  cublasLtHandle_t handle = nullptr;
  SKEIN_CUBLAS_RETURN_IF_ERROR(cublasLtCreate(&handle));
  return std::unique_ptr<Blas>(new Blas(handle, workspace, workspace_bytes));
}

Blas::Blas(void* handle, void* workspace, size_t workspace_bytes)
    : handle_(handle), workspace_(workspace), workspace_bytes_(workspace_bytes) {}

Blas::~Blas() {
  products_.clear();
  cublasLtDestroy(static_cast<cublasLtHandle_t>(handle_));
}

absl::StatusOr<std::unique_ptr<Blas::Product>> Blas::Choose(const BlasLinear& op, int count) const {
  auto product = std::make_unique<Product>();
  SKEIN_RETURN_IF_ERROR(product->Describe(op));
  cublasLtMatmulPreference_t preference = nullptr;
  SKEIN_CUBLAS_RETURN_IF_ERROR(cublasLtMatmulPreferenceCreate(&preference));
  const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>, DestroyPreference> owner(
      preference);
  const uint64_t workspace_bytes = workspace_bytes_;
  SKEIN_CUBLAS_RETURN_IF_ERROR(
      cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                           &workspace_bytes, sizeof(workspace_bytes)));
  // Partial sums are joined in float: rounded ones would be rounded twice.
  const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  SKEIN_CUBLAS_RETURN_IF_ERROR(cublasLtMatmulPreferenceSetAttribute(
      preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof(reductions)));
  for (cublasLtMatmulPreferenceAttributes_t attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    SKEIN_CUBLAS_RETURN_IF_ERROR(cublasLtMatmulPreferenceSetAttribute(
        preference, attribute, &kAlignment, sizeof(kAlignment)));
  }
  std::vector<cublasLtMatmulHeuristicResult_t> best(count);
  int found = 0;
  SKEIN_CUBLAS_RETURN_IF_ERROR(cublasLtMatmulAlgoGetHeuristic(
      static_cast<cublasLtHandle_t>(handle_), product->operation, product->weight, product->in,
      product->out, product->out, preference, count, best.data(), &found));
  for (int i = 0; i < found; ++i) {
    if (best[i].state == CUBLAS_STATUS_SUCCESS) product->algorithms.push_back(best[i].algo);
  }
  if (product->algorithms.empty()) {
    return absl::UnimplementedError(
        absl::StrCat("cuBLASLt has no algorithm for ", op.rows, " rows, ", op.n, " by ", op.k));
  }
  return product;
}

Blas::Key Blas::KeyOf(const BlasLinear& op) {
  return {static_cast<int64_t>(op.dtype),
          static_cast<int64_t>(op.out_dtype),
          op.n,
          op.k,
          op.in_stride,
          op.weight_stride,
          op.out_stride,
          op.rows};
}

absl::Status Blas::Multiply(const BlasLinear& op, const Product& product, int algorithm,
                            Stream stream) const {
  const float one = 1;
  const float zero = 0;
  SKEIN_CUBLAS_RETURN_IF_ERROR(cublasLtMatmul(
      static_cast<cublasLtHandle_t>(handle_), product.operation, &one, op.weight, product.weight,
      op.in, product.in, &zero, op.out, product.out, op.out, product.out,
      &product.algorithms[algorithm], workspace_, workspace_bytes_, CudaStream(stream)));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Blas::Product>> Blas::ChooseAs(const BlasLinear& op,
                                                              const Product& more) const {
  auto product = std::make_unique<Product>();
  SKEIN_RETURN_IF_ERROR(product->Describe(op));
  cublasLtMatmulHeuristicResult_t result = {};
  const cublasStatus_t fits = cublasLtMatmulAlgoCheck(
      static_cast<cublasLtHandle_t>(handle_), product->operation, product->weight, product->in,
      product->out, product->out, &more.algorithms.front(), &result);
  if (fits != CUBLAS_STATUS_SUCCESS || result.workspaceSize > workspace_bytes_)
    return Choose(op, 1);
  product->algorithms = {more.algorithms.front()};
  return product;
}

absl::Status Blas::Enqueue(const BlasLinear& op, Stream stream) {
  SKEIN_RETURN_IF_ERROR(Validate(op));
  if (op.rows == 0) return absl::OkStatus();
  const Key key = KeyOf(op);
  auto place = products_.lower_bound(key);
  if (place == products_.end() || place->first != key) {
    Key more = place == products_.end() ? Key{} : place->first;
    more.back() = key.back();
    SKEIN_ASSIGN_OR_RETURN(std::unique_ptr<Product> product,
                           more == key ? ChooseAs(op, *place->second) : Choose(op, 1));
    place = products_.emplace(key, std::move(product)).first;
  }
  return Multiply(op, *place->second, 0, stream);
}

// Milliseconds of a product.
absl::StatusOr<float> Blas::Time(absl::Span<const BlasLinear> ops, const Product& product,
                                 int algorithm, Stream stream) const {
  constexpr int kProducts = 6;
  SKEIN_ASSIGN_OR_RETURN(OwnedEvent begin, OwnedEvent::Create(/*timed=*/true));
  SKEIN_ASSIGN_OR_RETURN(OwnedEvent end, OwnedEvent::Create(/*timed=*/true));
  SKEIN_RETURN_IF_ERROR(Multiply(ops.front(), product, algorithm, stream));
  SKEIN_RETURN_IF_ERROR(begin.Record(stream));
  for (int i = 0; i < kProducts; ++i) {
    SKEIN_RETURN_IF_ERROR(Multiply(ops[(i + 1) % ops.size()], product, algorithm, stream));
  }
  SKEIN_RETURN_IF_ERROR(end.Record(stream));
  SKEIN_RETURN_IF_ERROR(end.Synchronize());
  SKEIN_ASSIGN_OR_RETURN(const float milliseconds, end.MillisecondsSince(begin));
  return milliseconds / kProducts;
}

absl::Status Blas::Tune(absl::Span<const BlasLinear> ops, Stream stream) {
  for (const BlasLinear& op : ops) SKEIN_RETURN_IF_ERROR(Validate(op));
  // The heuristics' order is seldom far off: what is fastest is among the first.
  constexpr int kAlgorithms = 8;
  SKEIN_ASSIGN_OR_RETURN(std::unique_ptr<Product> product, Choose(ops.front(), kAlgorithms));
  int best = 0;
  float least = std::numeric_limits<float>::infinity();
  for (int i = 0; i < static_cast<int>(product->algorithms.size()); ++i) {
    const absl::StatusOr<float> time = Time(ops, *product, i, stream);
    if (!time.ok() || *time >= least) continue;  // one that cannot run is none
    best = i;
    least = *time;
  }
  product->algorithms = {product->algorithms[best]};
  products_[KeyOf(ops.front())] = std::move(product);
  return absl::OkStatus();
}

}  // namespace skein::kernels::cuda
