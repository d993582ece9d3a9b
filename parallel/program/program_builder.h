// Collects a Program's buffers, weights and operations: what architectures build with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/range.h"
#include "kernels/ops/program.h"
#include "model/config/model_config.h"
#include "model/format/tensor_source.h"
#include "parallel/program/rank_program.h"

namespace skein::plan {

// A slice of a matrix [rows, cols] of the model.
struct MatrixSlice {
  std::string tensor;
  int64_t total_rows = 0;  // of the whole tensor, as the configuration implies
  int64_t total_cols = 0;
  Range rows;
  Range cols;
};

class ProgramBuilder {
 public:
  // `tensors` may be null: then all of them are there, in the types that `config` says, which
  // outlives the builder. Buffers are of `activations`.
  ProgramBuilder(const model::TensorSource* tensors, const model::ModelConfig& config,
                 DType activations)
      : tensors_(tensors), config_(config), activations_(activations) {}

  kernels::BufferId AddTokenBuffer(std::string name, int64_t cols) {
    return AddTokenBuffer(std::move(name), cols, activations_);
  }
  kernels::BufferId AddTokenBuffer(std::string name, int64_t cols, DType dtype) {
    return AddBuffer({std::move(name), kernels::BufferSpec::Rows::kTokens, cols,
                      /*port=*/false, dtype});
  }
  kernels::BufferId AddOutputBuffer(std::string name, int64_t cols) {
    return AddBuffer({std::move(name), kernels::BufferSpec::Rows::kOutputs, cols,
                      /*port=*/false, activations_});
  }
  // Of F32, whatever the activations: draws look at differences of logits.
  kernels::BufferId AddLogits(int64_t cols) {
    return AddBuffer({"logits", kernels::BufferSpec::Rows::kOutputs, cols});
  }

  // `&kernels::Program::input` and the like.
  void SetPort(kernels::BufferId kernels::Program::* port, kernels::BufferId id) {
    result_.program.*port = id;
    result_.program.buffers[id].port = true;
  }

  // One weight of slices stacked by rows (q|k|v), whose dtypes may differ; `min_rows` pads with
  // zero rows. Slices agree in columns, which are summed in inner blocks with these bounds, if any.
  absl::StatusOr<kernels::WeightId> AddMatrix(std::string name, std::vector<MatrixSlice> slices,
                                              int32_t inner_blocks = 1, int64_t min_rows = 0,
                                              std::vector<int64_t> inner_bounds = {});
  // One vector of slices behind each other, to all of which `add` is added.
  absl::StatusOr<kernels::WeightId> AddVector(std::vector<VectorSlice> slices, float add = 0);
  kernels::WeightId AddConstant(std::string name, std::vector<float> values);

  // Operations from here on are of this layer of the model; -1: of none.
  void SetLayer(int64_t layer) { layer_ = static_cast<int32_t>(layer); }
  void Add(kernels::Op op) {
    result_.program.ops.push_back(op);
    result_.program.op_layers.push_back(layer_);
  }

  RankProgram& result() { return result_; }

 private:
  kernels::BufferId AddBuffer(kernels::BufferSpec spec);
  // Of a tensor of this shape.
  absl::StatusOr<DType> DTypeOf(const std::string& tensor, std::vector<int64_t> shape) const;

  const model::TensorSource* const tensors_;
  const model::ModelConfig& config_;
  const DType activations_;
  int32_t layer_ = -1;
  RankProgram result_;
};

}  // namespace skein::plan
