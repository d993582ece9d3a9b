#include "kernels/host/executable.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace skein::kernels {

HostExecutable::HostExecutable(const Program& program, Bindings bindings)
    : program_(program), bindings_(std::move(bindings)) {}

int64_t HostExecutable::MaxRows(BufferId id) const {
  return program_.buffers[id].rows == BufferSpec::Rows::kTokens ? program_.max_rows
                                                                : program_.max_outputs;
}

absl::Status HostExecutable::Init() {
  const KvSpec* kv_spec = kv() == nullptr ? nullptr : &kv()->spec();
  const std::vector<const PackedWeight*>& weights = bindings_.weights;
  SKEIN_RETURN_IF_ERROR(ValidateProgram(program_, kv_spec));
  if (weights.size() != program_.weights.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(weights.size(), " weights for a Program of ", program_.weights.size()));
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == nullptr || weights[i]->spec() != program_.weights[i].spec) {
      return absl::InvalidArgumentError(absl::StrCat("weight ", i, " (", program_.weights[i].name,
                                                     ") is missing or has another shape"));
    }
  }
  rules_ = RulesOf(program_, kv_spec);

  // Buffers start on cache lines.
  const auto padded = [](int64_t elements) { return (elements + kLanes - 1) / kLanes * kLanes; };
  std::vector<int64_t> offsets;
  int64_t elements = 0;
  for (size_t i = 0; i < program_.buffers.size(); ++i) {
    offsets.push_back(elements);
    elements += padded(MaxElements(static_cast<BufferId>(i)));
  }
  const int64_t gathered = elements;
  int64_t largest_gather = 0;
  bool has_collectives = false;
  for (const Op& op : program_.ops) {
    const auto* gather = std::get_if<AllGatherColumnsOp>(&op);
    has_collectives |= gather != nullptr || std::holds_alternative<AllReduceOp>(op);
    if (gather != nullptr) largest_gather = std::max(largest_gather, MaxElements(gather->out));
  }
  if (has_collectives && bindings_.collectives == nullptr) {
    return absl::InvalidArgumentError("the Program has collectives and is bound to none");
  }
  elements += largest_gather;
  SKEIN_ASSIGN_OR_RETURN(
      memory_, HostMemory::Allocate(DTypeBytes(DType::kF32, elements), "a Program's buffers"));
  for (int64_t offset : offsets) data_.push_back(memory_.floats() + offset);
  gathered_ = memory_.floats() + gathered;
  return absl::OkStatus();
}

View HostExecutable::port(BufferId id) {
  if (id < 0 || id >= static_cast<BufferId>(data_.size()) || !program_.buffers[id].port) return {};
  return {data_[id], DType::kF32, MaxRows(id), cols(id)};
}

absl::Status HostExecutable::AllGather(const AllGatherColumnsOp& op, int64_t rows) {
  const int64_t in_cols = cols(op.in);
  const int64_t out_cols = cols(op.out);
  const View in = {data(op.in), DType::kF32, rows, in_cols};
  // One row's shards are in order as they come.
  float* shards = rows == 1 ? data(op.out) : gathered_;
  SKEIN_RETURN_IF_ERROR(
      bindings_.collectives->AllGather(in, {shards, DType::kF32, rows, out_cols}, kHostStream));
  if (rows == 1) return absl::OkStatus();
  for (int64_t first = 0; first < out_cols; first += in_cols) {
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(row(op.out, r) + first, shards, DTypeBytes(DType::kF32, in_cols));
      shards += in_cols;
    }
  }
  return absl::OkStatus();
}

absl::Status HostExecutable::Run(const Batch& batch) {
  SKEIN_RETURN_IF_ERROR(ValidateBatch(rules_, batch));
  Collectives* const collectives = bindings_.collectives;
  Begin(batch);
  for (const Op& op : program_.ops) {
    if (const auto* reduce = std::get_if<AllReduceOp>(&op)) {
      const BufferId id = reduce->buffer;
      const View view = {data(id), DType::kF32, RowsOf(id, batch), cols(id)};
      if (view.elements() == 0) continue;  // on every rank: all run the same batch
      SKEIN_RETURN_IF_ERROR(collectives->AllReduce(view, kHostStream));
    } else if (const auto* gather = std::get_if<AllGatherColumnsOp>(&op)) {
      const int64_t rows = RowsOf(gather->in, batch);
      if (rows == 0) continue;
      SKEIN_RETURN_IF_ERROR(AllGather(*gather, rows));
    } else {
      Compute(op, batch);
      if (collectives != nullptr) SKEIN_RETURN_IF_ERROR(collectives->Progress());
    }
  }
  return absl::OkStatus();
}

}  // namespace skein::kernels
