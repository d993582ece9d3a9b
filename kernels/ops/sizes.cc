#include "kernels/ops/sizes.h"

#include "base/dtype.h"
#include "kernels/ops/backend.h"
#include "kernels/packing/layout.h"

namespace skein::kernels {

int64_t WeightBytes(const Program& program) {
  int64_t bytes = 0;
  for (const ProgramWeight& weight : program.weights) bytes += PackedBytes(weight.spec);
  return bytes;
}

int64_t BufferRows(const BufferSpec& buffer, const Limits& limits) {
  return buffer.rows == BufferSpec::Rows::kTokens ? limits.rows : limits.outputs;
}

bool IsPerBatch(const Program& program, BufferId id) {
  return id == program.input || id == program.output;
}

int64_t BufferBytes(const Program& program, const Limits& limits) {
  int64_t elements = 0;
  int64_t hops = 0;
  for (BufferId id = 0; id < static_cast<BufferId>(program.buffers.size()); ++id) {
    const BufferSpec& buffer = program.buffers[id];
    const int64_t padded =
        (BufferRows(buffer, limits) * buffer.cols + kLanes - 1) / kLanes * kLanes;
    const int64_t hop = HopBytes(program, id, limits);
    elements += padded * (IsPerBatch(program, id) && hop == 0 ? Executable::kBatches : 1);
    hops += hop * Executable::kBatches;
  }
  return DTypeBytes(DType::kF32, elements) + hops;
}

int64_t HopBytes(const Program& program, BufferId id, const Limits& limits) {
  if (!IsPerBatch(program, id) || program.hop_dtype == DType::kF32) return 0;
  constexpr int64_t kLine = 64;
  const int64_t elements = BufferRows(program.buffers[id], limits) * program.buffers[id].cols;
  return (DTypeBytes(program.hop_dtype, elements) + kLine - 1) / kLine * kLine;
}

int64_t GatherBytes(const Program& program) {
  if (program.logits < 0 || program.vocab_shards == 1) return 0;
  // Own logits; then all, by shard as they come, and by row.
  const int64_t stride = program.vocab_part.block * program.vocab_part.blocks;
  return DTypeBytes(DType::kF32, kGatheredRows * stride * (1 + 2 * program.vocab_shards));
}

}  // namespace skein::kernels
