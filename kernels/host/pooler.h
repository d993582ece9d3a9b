// Sums up the rows that batches pool, on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "kernels/ops/backend.h"
#include "kernels/ops/batch.h"
#include "kernels/ops/program.h"

namespace skein::kernels {

// Immutable; threads may share it.
class Pooler {
 public:
  // Of a Program that has pooled.in, once its weights are loaded. Errors are ReadVector's.
  static absl::StatusOr<Pooler> Create(const Program& program, const Weights& weights);

  // Calls its second argument with every number below the first, on the threads that compute.
  using ForEach = absl::FunctionRef<void(int64_t, absl::FunctionRef<void(int64_t)>)>;

  // Replaces `pooled` by the sums of the batch's sequences that pool. `rows` holds the buffer
  // pooled.in, [rows, cols] of `dtype`, as the run left it.
  void Pool(const Batch& batch, DType dtype, const std::byte* rows, ForEach for_each,
            std::vector<PooledRows>& pooled) const;

 private:
  // The norm's output, added to `sum` [cols].
  void Add(DType dtype, const std::byte* row, std::vector<float>& scratch,
           std::vector<double>& sum) const;

  std::vector<float> gain_;  // [cols]
  float eps_ = 0;
};

}  // namespace skein::kernels
