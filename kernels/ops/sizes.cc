#include "kernels/ops/sizes.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "kernels/cuda/device_places.h"
#include "kernels/packing/layout.h"
#include "kernels/packing/quantized_rows.h"

namespace skein::kernels {

namespace {

// A page fills the CPU's lanes, and is small enough that a sequence's last page wastes little.
constexpr int64_t kCpuPageTokens = kLanes;
// A block of kernels/cuda/kv_layout.h, for the same reason.
constexpr int64_t kCudaPageTokens = 16;

ProgramSizes CpuSizes(const Program& program, const KvSpec& kv, const Limits& limits) {
  ProgramSizes sizes;
  for (const ProgramWeight& weight : program.weights) sizes.weights += PackedBytes(weight.spec);
  KvSpec page = kv;
  page.pages = 1;
  sizes.page = KvBytes(page);
  sizes.workspace = PlaceBuffers(program, limits).bytes + GatherBytes(program) +
                    IntegerBytes(program, limits) + ExpertBytes(program, limits);
  return sizes;
}

ProgramSizes CudaSizes(const Program& program, const KvSpec& kv, const Limits& limits) {
  ProgramSizes sizes;
  for (const ProgramWeight& weight : program.weights) {
    sizes.weights += cuda::DeviceBytes(weight.spec);
  }
  sizes.page = kv.layers * cuda::PageBytes(kv);
  sizes.workspace =
      cuda::PlaceOnDevice(program, limits, kv.page_size, cuda::kHopperMultiprocessors).bytes;
  sizes.context = cuda::kContextBytes + cuda::kLibraryBytes;
  sizes.graphs = cuda::GraphBytes(program, limits);
  sizes.pinned = cuda::PinnedBy(program, limits).sum();
  sizes.draws = DTypeBytes(DType::kF32, cuda::DrawFloats(program, limits));
  return sizes;
}

}  // namespace

ProgramSizes SizesOf(DeviceKind kind, const Program& program, const KvSpec& kv,
                     const Limits& limits) {
  return kind == DeviceKind::kCpu ? CpuSizes(program, kv, limits) : CudaSizes(program, kv, limits);
}

int64_t PeerSumBytes(DeviceKind kind, int ranks) {
  return kind == DeviceKind::kCpu ? 0 : cuda::PeerSumBytes(ranks);
}

absl::Status CheckLimits(DeviceKind kind, const Limits& limits) {
  return kind == DeviceKind::kCpu ? absl::OkStatus() : cuda::CheckLimits(limits);
}

int64_t PageTokens(DeviceKind kind) {
  return kind == DeviceKind::kCpu ? kCpuPageTokens : kCudaPageTokens;
}

DType ActivationDType(DeviceKind kind, DType weights) {
  if (kind == DeviceKind::kCpu) return DType::kF32;
  return weights == DType::kF16 ? DType::kF16 : DType::kBF16;
}

int64_t BufferRows(const BufferSpec& buffer, const Limits& limits) {
  return buffer.rows == BufferSpec::Rows::kTokens ? limits.rows : limits.outputs;
}

BufferPlaces PlaceBuffers(const Program& program, const Limits& limits) {
  constexpr int64_t kLine = 64;
  BufferPlaces places;
  const auto take = [&places](int64_t bytes) {
    return std::exchange(places.bytes, places.bytes + (bytes + kLine - 1) / kLine * kLine);
  };
  for (BufferId id = 0; id < static_cast<BufferId>(program.buffers.size()); ++id) {
    const int64_t elements = BufferRows(program.buffers[id], limits) * program.buffers[id].cols;
    const bool per_batch = id == program.input || id == program.output;
    const bool converts = per_batch && program.hop_dtype != DType::kF32;
    for (int i = 0; i < Executable::kBatches; ++i) {
      const bool own = i == 0 || (per_batch && !converts);
      places.buffers[i].push_back(own ? take(DTypeBytes(DType::kF32, elements))
                                      : places.buffers[0][id]);
      places.hops[i].push_back(converts ? take(DTypeBytes(program.hop_dtype, elements)) : -1);
    }
  }
  return places;
}

int64_t IntegerBytes(const Program& program, const Limits& limits) {
  if (program.exact) return 0;
  int64_t bytes = 0;
  const auto count = [&](WeightId weight, BufferId in) {
    const WeightSpec& spec = program.weights[weight].spec;
    if (!HasIntegerRows(spec)) return;
    bytes = std::max(bytes,
                     BufferRows(program.buffers[in], limits) * QuantizedRows::RowBytes(spec.cols));
  };
  for (const Op& op : program.ops) {
    if (const auto* product = std::get_if<MatMulOp>(&op)) count(product->weight, product->in);
    if (const auto* experts = std::get_if<ExpertsOp>(&op)) {
      for (int32_t i = 0; i < 2 * experts->count; ++i)
        count(experts->first_weight + i, experts->in);
    }
  }
  return bytes;
}

int64_t ExpertBytes(const Program& program, const Limits& limits) {
  int64_t bytes = 0;
  for (const Op& op : program.ops) {
    const auto* experts = std::get_if<ExpertsOp>(&op);
    if (experts == nullptr) continue;
    const BufferSpec& in = program.buffers[experts->in];
    const int64_t inner = program.weights[experts->first_weight + 1].spec.cols;
    const int64_t rows = BufferRows(in, limits);
    const int64_t chosen = program.buffers[experts->routes].cols / 2;
    bytes = std::max(bytes, DTypeBytes(DType::kF32, rows * (2 * in.cols + 3 * inner)) +
                                DTypeBytes(DType::kI64, rows * chosen + experts->count + 1));
  }
  return bytes;
}

int64_t GatherBytes(const Program& program) {
  if (program.logits < 0 || program.vocab_shards == 1) return 0;
  // This shard's logits come first; then all logits, by shard as they arrive; then all by row.
  const int64_t stride = program.vocab_part.block * program.vocab_part.blocks;
  return DTypeBytes(DType::kF32, kGatheredRows * stride * (1 + 2 * program.vocab_shards));
}

}  // namespace skein::kernels
