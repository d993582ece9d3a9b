#include "kernels/cuda/device_places.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "kernels/cuda/batch_upload.h"
#include "kernels/cuda/decode_sizes.h"
#include "kernels/cuda/peer_memory.h"
#include "kernels/cuda/persistent/schedule.h"
#include "kernels/cuda/stream_k_sizes.h"
#include "kernels/sampling/device_draw.h"

namespace skein::kernels::cuda {
namespace {

// cudaMalloc's; more than any kernel asks for.
constexpr int64_t kAlignment = 256;

constexpr int64_t RoundUp(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Of a row of the whole vocabulary, in floats.
int64_t GatheredStride(const Program& program) {
  constexpr int64_t kVector = 4;
  return (program.vocab_size + kVector - 1) / kVector * kVector;
}

// Beyond, launches are hidden behind what they launch.
constexpr int32_t kMostGraphRows = 512;

// Each a fifth more than the one before, at most, or what a kernel takes at once, so that padding
// costs little.
int32_t NextGraphRows(int32_t rows) {
  if (rows < 8) return rows * 2;
  const int32_t step = rows < 32 ? 8 : (rows < 128 ? 16 : (rows < 256 ? 32 : 64));
  return rows + step;
}

}  // namespace

std::vector<int32_t> GraphRows(const Limits& limits) {
  const auto most = static_cast<int32_t>(
      std::min<int64_t>({limits.rows, limits.outputs, limits.slots, kMostGraphRows}));
  std::vector<int32_t> all;
  for (int32_t next = 1; all.empty() ? most > 0 : all.back() < most; next = NextGraphRows(next)) {
    all.push_back(std::min(next, most));
  }
  return all;
}

int64_t GraphBytes(const Program& program, const Limits& limits) {
  constexpr int64_t kKernelBytes = 2048;
  auto kernels = static_cast<int64_t>(program.ops.size());
  std::set<int32_t> windows;  // each has a plan
  for (const Op& op : program.ops) {
    const auto* attention = std::get_if<AttentionOp>(&op);
    if (attention != nullptr) ++kernels, windows.insert(attention->window);
  }
  kernels += static_cast<int64_t>(windows.size());
  const bool ports = program.input >= 0 || program.output >= 0;
  const auto graphs = static_cast<int64_t>(GraphRows(limits).size());
  return graphs * (ports ? Executable::kBatches : 1) * kernels * kKernelBytes;
}

int64_t PeerSumBytes(int ranks) {
  constexpr int64_t kPiece = int64_t{2} << 20;  // of CUDA's memory: one buffer has whole ones
  if (ranks < 2 || ranks > kMostPeers) return 0;
  return (kExchangeBytes + kPiece - 1) / kPiece * kPiece;
}

absl::Status CheckLimits(const Limits& limits) {
  constexpr int64_t kMostPages = std::numeric_limits<int32_t>::max();
  if (limits.slots <= kMaxDecodeSequences && limits.slot_pages <= kMostPages / limits.slots) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(limits.slots, " sequences of ", limits.slot_pages,
                   " pages each: GPUs have at most ", kMaxDecodeSequences, " sequences, and ",
                   kMostPages, " pages for all; serve fewer sequences at once, or shorter ones"));
}

int64_t DeviceBytes(const WeightSpec& spec) {
  const bool vector = spec.kind == WeightSpec::Kind::kVector;
  return RoundUp(DTypeBytes(vector ? DType::kF32 : DType::kBF16, spec.rows * spec.cols));
}

int64_t PageBytes(const KvSpec& spec) {
  const int64_t vector_bytes = spec.dtype == KvDType::kInt8
                                   ? spec.head_dim + DTypeBytes(DType::kF32, 1)  // with its scale
                                   : DTypeBytes(DType::kBF16, spec.head_dim);
  return spec.kv_heads * spec.page_size * 2 * vector_bytes;
}

PinnedSizes PinnedBy(const Program& program, const Limits& limits) {
  constexpr int64_t kBatches = Executable::kBatches;
  PinnedSizes sizes = {.uploads = kBatches * BatchUpload::MaxBytes(limits)};
  if (program.pooled.in >= 0) {
    const BufferSpec& pooled = program.buffers[program.pooled.in];
    sizes.pooled = kBatches * DTypeBytes(pooled.dtype, limits.rows * pooled.cols);
  }
  if (program.logits < 0) return sizes;
  sizes.drawn = kBatches * limits.slots * static_cast<int64_t>(sizeof(SetPair));
  const int64_t draws = kBatches * limits.outputs;
  sizes.made = draws * static_cast<int64_t>(sizeof(DeviceDraw));
  sizes.masks = draws * MaskWords(program.vocab_size) * static_cast<int64_t>(sizeof(uint32_t));
  sizes.put_down = kBatches * kPutDownBytes;
  sizes.logits = DTypeBytes(DType::kF32, limits.outputs * program.buffers[program.logits].cols);
  return sizes;
}

int64_t CandidateFloats(const Program& program, const Limits& limits) {
  return int64_t{2} * program.vocab_shards * limits.outputs;
}

int64_t DrawFloats(const Program& program, const Limits& limits) {
  if (program.logits < 0 || program.vocab_shards <= 1) return 0;
  return std::max(CandidateFloats(program, limits), kSampledAtOnce * GatheredStride(program));
}

DevicePlaces PlaceOnDevice(const Program& program, const Limits& limits, int64_t page_size,
                           int32_t multiprocessors) {
  DevicePlaces places;
  const auto take = [&places](int64_t bytes) {
    return std::exchange(places.bytes, places.bytes + RoundUp(bytes));
  };
  for (BufferId id = 0; id < static_cast<BufferId>(program.buffers.size()); ++id) {
    const BufferSpec& buffer = program.buffers[id];
    const int64_t rows = buffer.rows == BufferSpec::Rows::kTokens ? limits.rows : limits.outputs;
    for (int i = 0; i < Executable::kBatches; ++i) {
      const bool own = i == 0 || id == program.input || id == program.output;
      places.buffers[i].push_back(own ? take(DTypeBytes(buffer.dtype, rows * buffer.cols))
                                      : places.buffers[0][id]);
    }
  }
  const auto ints = [&take](int64_t count) {
    return take(count * static_cast<int64_t>(sizeof(int32_t)));
  };
  places.token_ids = ints(limits.rows);
  places.positions = ints(limits.rows);
  places.kv_slots = ints(2 * limits.rows);  // of 64 bits
  places.row_begin = ints(limits.slots + 1);
  places.slots = ints(limits.slots);
  places.output_rows = ints(limits.outputs);
  places.lengths = ints(limits.slots);
  places.page_tables = ints(limits.slots * limits.slot_pages);
  places.newest_tokens = ints(limits.slots);
  if (program.logits >= 0) {
    // A sequence's last token has no position.
    places.history_stride = limits.slot_pages * page_size + 1;
    places.histories = ints(limits.slots * places.history_stride);
    places.lists = take(limits.slots * kSlotEntries * int64_t{sizeof(SetPair)});
    places.breakers = ints(limits.slots * MaskWords(program.vocab_size));
    places.mus = ints(limits.slots);
  }
  if (program.logits >= 0 && program.vocab_shards > 1) {
    places.gathered_stride = GatheredStride(program);
    places.gathered = ints(kSampledAtOnce * places.gathered_stride);
    places.candidates = ints(CandidateFloats(program, limits));
  }
  places.upload_bytes = BatchUpload::MaxBytes(limits);
  for (int64_t& upload : places.uploads) upload = take(places.upload_bytes);
  places.best = ints(2 * limits.outputs);
  places.arrived = ints(limits.outputs);
  int64_t partials = 0;
  for (const Op& op : program.ops) {
    if (const auto* a = std::get_if<AttentionOp>(&op)) {
      if (!places.decode_plans.contains(a->window)) {
        places.decode_plans[a->window] = take(DecodePlanBytes(limits.slots, multiprocessors));
      }
      partials = std::max(partials,
                          DecodePartialBytes(a->heads, a->kv_heads, a->head_dim, multiprocessors));
    }
  }
  places.decode_partials = take(partials);
  places.blas_workspace = take(kBlasWorkspaceBytes);
  places.stream_k_workspace = take(StreamKWorkspaceBytes(multiprocessors));
  const absl::StatusOr<Schedule> schedule = MakeSchedule(program);
  if (schedule.ok()) {
    places.step = take(MemoryOf(*schedule, std::min<int64_t>(limits.rows, kMostStepRows)).sum());
  }
  return places;
}

}  // namespace skein::kernels::cuda
