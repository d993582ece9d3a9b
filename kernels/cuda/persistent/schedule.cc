#include "kernels/cuda/persistent/schedule.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/status_util.h"

namespace skein::kernels::cuda {
namespace {

using Kind = ScheduledOp::Kind;
using Then = ScheduledOp::Then;

// Bytes of an element of the arena.
constexpr int64_t kElementBytes = 2;
constexpr int64_t kFloatBytes = 4;
constexpr ArenaPlace kNowhere = -1;

template <typename... Args>
absl::Status Cannot(const Args&... args) {
  return absl::UnimplementedError(absl::StrCat("the persistent step has no ", args...));
}

class Scheduler {
 public:
  explicit Scheduler(const Program& program) : program_(program) {}

  absl::StatusOr<Schedule> Make() {
    if (program_.deterministic) return Cannot("sums that do not depend on the layout");
    if (program_.input >= 0) {
      SKEIN_RETURN_IF_ERROR(Need16Bits(program_.input));
      ScheduledOp& take_in = Push(Kind::kTakeIn);
      take_in.cols = Buffer(program_.input).cols;
      take_in.out = Take(take_in.cols);
      vectors_[program_.input] = Made(take_in.out);
    }
    while (at_ < program_.ops.size()) {
      const size_t first = at_;
      const absl::Status status =
          std::visit([this](const auto& op) { return Add(op); }, program_.ops[at_]);
      SKEIN_RETURN_IF_ERROR(Annotate(status, absl::StrCat("operation ", first)));
      ++at_;
    }
    if (schedule_.attention.heads == 0) return Cannot("Program without attention");
    if (program_.output >= 0) {
      const auto output = vectors_.find(program_.output);
      if (output == vectors_.end() || output->second.normed ||
          !MakesResidual(schedule_.ops[output->second.maker])) {
        return Cannot("way to give an output that is no sum");
      }
      schedule_.ops[output->second.maker].to_port = true;
    }
    return std::move(schedule_);
  }

 private:
  // A buffer as the operations that come see it.
  struct Vector {
    ArenaPlace place = 0;
    size_t maker = 0;     // the operation that gives it
    bool normed = false;  // it is a norm of `out` of that one
    float eps = 0;
    int32_t sums = 0;  // over shards that it depends on: those before this one
  };

  // Whether a norm of what it gives, and the output port, can be had on the way.
  static bool MakesResidual(const ScheduledOp& op) {
    switch (op.kind) {
      case Kind::kEmbed:
        return op.sum < 0;
      case Kind::kProduct:
        return op.then == Then::kAdd;
      case Kind::kTakeIn:
      case Kind::kSum:
        return true;
      case Kind::kAttention:
        break;
    }
    return false;
  }

  const BufferSpec& Buffer(BufferId id) const { return program_.buffers[id]; }
  // The operation so many places further on, if it is such a one.
  template <typename Next>
  const Next* Following(size_t places) const {
    return OpAt<Next>(program_, at_ + places);
  }

  ArenaPlace Take(int64_t cols) {
    return std::exchange(schedule_.row_bytes, schedule_.row_bytes + cols * kElementBytes);
  }

  ScheduledOp& Push(Kind kind) {
    ScheduledOp& op = schedule_.ops.emplace_back();
    op.kind = kind;
    op.op = static_cast<int32_t>(at_);
    return op;
  }

  absl::Status Need16Bits(BufferId id) const {
    if (Buffer(id).dtype != DType::kF32) return absl::OkStatus();
    return Cannot("buffers of F32, as ", Buffer(id).name, " is");
  }
  absl::StatusOr<Vector> Find(BufferId id) const {
    const auto found = vectors_.find(id);
    if (found != vectors_.end()) return found->second;
    return Cannot("way to read ", Buffer(id).name, " here");
  }
  // As it lies.
  absl::StatusOr<ArenaPlace> FindPlain(BufferId id) const {
    SKEIN_ASSIGN_OR_RETURN(const Vector vector, Find(id));
    if (!vector.normed) return vector.place;
    return Cannot("sum or norm of a norm, as of ", Buffer(id).name);
  }
  // What the newest operation gives.
  Vector Made(ArenaPlace place, int32_t sums = 0) const {
    return {.place = place, .maker = schedule_.ops.size() - 1, .sums = sums};
  }

  // A norm of what lies in `in`, as `out`.
  absl::Status AddNorm(BufferId in, WeightId gain, float eps, BufferId out) {
    SKEIN_ASSIGN_OR_RETURN(Vector vector, Find(in));
    if (vector.normed) return Cannot("norm of a norm, as of ", Buffer(in).name);
    ScheduledOp& maker = schedule_.ops[vector.maker];
    if (maker.gain >= 0) return Cannot("two norms of one vector, ", Buffer(in).name);
    if (!MakesResidual(maker)) {
      return Cannot("norm of other than a sum or an embedding, as of ", Buffer(in).name);
    }
    const int64_t cols = Buffer(in).cols;
    maker.gain = gain;
    maker.normed = Take(cols);
    maker.squares = Take(cols / kTileCols * kFloatBytes / kElementBytes);
    vector.normed = true;
    vector.place = maker.normed;
    vector.eps = eps;
    vectors_[out] = vector;
    return absl::OkStatus();
  }

  absl::Status Add(const EmbedOp& op) {
    SKEIN_RETURN_IF_ERROR(Need16Bits(op.out));
    ScheduledOp& embed = Push(Kind::kEmbed);
    embed.weight = op.table;
    embed.first_id = op.first_id;
    embed.count = op.count;
    embed.cols = Buffer(op.out).cols;
    if (IsSummed(op.out)) {
      embed.sum = schedule_.sums;
      ++at_;
      PushSum(embed.cols, kNowhere, /*bias=*/-1, op.out);
      return absl::OkStatus();
    }
    embed.out = Take(embed.cols);
    vectors_[op.out] = Made(embed.out);
    return absl::OkStatus();
  }

  // Whether the next operation sums the buffer over shards.
  bool IsSummed(BufferId id) const {
    const auto* sum = Following<AllReduceOp>(1);
    return sum != nullptr && sum->buffer == id;
  }
  // A bias of the buffer so many places further on.
  const AddBiasOp* FollowingBias(BufferId id, size_t places) const {
    const auto* bias = Following<AddBiasOp>(places);
    return bias != nullptr && bias->buffer == id ? bias : nullptr;
  }
  // out = what lies in `old` + the bias + what the newest operation has sent.
  void PushSum(int64_t cols, ArenaPlace old, WeightId bias, BufferId out) {
    ScheduledOp& sum = Push(Kind::kSum);
    sum.sum = schedule_.sums++;
    sum.bias = bias;
    sum.cols = cols;
    sum.old = old;
    sum.out = Take(cols);
    schedule_.sum_cols = std::max(schedule_.sum_cols, cols);
    vectors_[out] = Made(sum.out, schedule_.sums);
  }

  absl::Status Add(const RmsNormOp& op) { return AddNorm(op.in, op.gain, op.eps, op.out); }

  absl::Status Add(const GatherRowsOp& op) {
    // All rows are computed, and those that are outputs written.
    SKEIN_ASSIGN_OR_RETURN(vectors_[op.out], Find(op.in));
    return absl::OkStatus();
  }

  absl::Status Add(const MatMulOp& op) {
    const WeightSpec& spec = program_.weights[op.weight].spec;
    if (spec.cols % kPanelCols != 0) {
      return Cannot("product over ", spec.cols, " columns: it takes multiples of ", kPanelCols);
    }
    if (spec.rows > int64_t{kUnitRows} * std::numeric_limits<uint16_t>::max()) {
      return Cannot("product of ", spec.rows, " rows");
    }
    SKEIN_ASSIGN_OR_RETURN(const Vector in, Find(op.in));
    vectors_.erase(op.out);  // what it held before
    ScheduledOp& product = Push(Kind::kProduct);
    product.in = in.place;
    if (in.normed) {
      product.of_normed = true;
      product.in_squares = schedule_.ops[in.maker].squares;
      product.eps = in.eps;
    }
    product.weight = op.weight;
    product.cols = spec.cols;
    product.rows = spec.rows;
    if (op.out == program_.logits) {
      product.then = Then::kLogits;
      if (const auto* bias = FollowingBias(op.out, 1)) {
        product.bias = bias->bias;
        ++at_;
      }
      return absl::OkStatus();
    }
    SKEIN_RETURN_IF_ERROR(Need16Bits(op.out));
    if (spec.rows % kUnitRows != 0) {
      return Cannot("product of ", spec.rows, " rows: it takes multiples of ", kUnitRows);
    }
    const bool sends = IsSummed(op.out);
    size_t behind = sends ? 2 : 1;
    if (const auto* bias = FollowingBias(op.out, behind)) {
      product.bias = bias->bias;
      ++behind;
    }
    if (sends) {
      // A shard that is two sums on has heard of all others' last one: see shards.cuh.
      if (in.sums != schedule_.sums) return Cannot("sum over shards that does not need the last");
      product.then = Then::kSend;
      product.sum = schedule_.sums;
    }
    if (const auto* add = Following<AddRmsNormOp>(behind); add != nullptr && add->delta == op.out) {
      SKEIN_RETURN_IF_ERROR(AddTo(product, add->residual, add->residual, in.sums));
      at_ += behind;
      return AddNorm(add->residual, add->gain, add->eps, add->out);
    }
    if (const auto* add = Following<AddOp>(behind); add != nullptr && add->delta == op.out) {
      at_ += behind;
      return AddTo(product, add->residual, add->out, in.sums);
    }
    if (sends) return Cannot("sum over shards that nothing is added to");
    if (const auto* swiglu = Following<GluOp>(behind);
        swiglu != nullptr && swiglu->gate_up == op.out) {
      product.then = Then::kSwiGlu;
      product.out = Take(spec.rows / 2);
      vectors_[swiglu->out] = Made(product.out, in.sums);
      at_ += behind;
      return absl::OkStatus();
    }
    const auto* norm = Following<QkNormOp>(behind);
    if (norm != nullptr && norm->qkv != op.out) norm = nullptr;
    if (norm != nullptr) ++behind;
    const auto* rope = Following<RopeAppendKvOp>(behind);
    const auto* attention = Following<AttentionOp>(behind + 1);
    if (rope != nullptr && attention != nullptr && rope->qkv == op.out &&
        attention->qkv == op.out) {
      product.then = Then::kQkv;
      product.out = Take(spec.rows);
      at_ += behind + 1;
      return AddAttention(norm, *rope, *attention, product.out, in.sums);
    }
    return Cannot("use for what comes of weight ", program_.weights[op.weight].name);
  }

  // product: of which `from` takes the sum, as `to`; over shards, where it sends. sums: of what it
  // reads, as Vector has it.
  absl::Status AddTo(ScheduledOp& product, BufferId from, BufferId to, int32_t sums) {
    SKEIN_RETURN_IF_ERROR(Need16Bits(from));
    SKEIN_RETURN_IF_ERROR(Need16Bits(to));
    SKEIN_ASSIGN_OR_RETURN(const ArenaPlace old, FindPlain(from));
    if (product.then == Then::kSend) {
      PushSum(product.rows, old, std::exchange(product.bias, -1), to);
      return absl::OkStatus();
    }
    product.then = Then::kAdd;
    product.old = old;
    product.out = Take(product.rows);
    vectors_[to] = Made(product.out, sums);
    return absl::OkStatus();
  }

  // norm: null, where there is none. sums: likewise.
  absl::Status AddAttention(const QkNormOp* norm, const RopeAppendKvOp& rope, const AttentionOp& op,
                            ArenaPlace qkv, int32_t sums) {
    SKEIN_RETURN_IF_ERROR(Need16Bits(op.out));
    const AttentionHeads shape = {op.heads, op.kv_heads, op.head_dim, rope.inverse_frequencies};
    AttentionHeads& common = schedule_.attention;
    if (common.heads == 0) common = shape;
    if (common.heads != shape.heads || common.kv_heads != shape.kv_heads ||
        common.head_dim != shape.head_dim ||
        common.inverse_frequencies != shape.inverse_frequencies) {
      return Cannot("layers of unlike heads or frequencies");
    }
    ScheduledOp& attention = Push(Kind::kAttention);
    attention.in = qkv;
    attention.cols = Buffer(op.qkv).cols;
    if (norm != nullptr) {
      attention.q_gain = norm->q_gain;
      attention.k_gain = norm->k_gain;
      attention.eps = norm->eps;
    }
    attention.layer = op.layer;
    attention.window = op.window;
    attention.scale = op.scale;
    attention.out = Take(Buffer(op.out).cols);
    vectors_[op.out] = Made(attention.out, sums);
    return absl::OkStatus();
  }

  absl::Status Add(const AddRmsNormOp&) { return Cannot("norm of a sum that follows no product"); }
  absl::Status Add(const AddOp&) { return Cannot("sum that follows no product"); }
  absl::Status Add(const AddBiasOp&) { return Cannot("bias that follows no product"); }
  absl::Status Add(const QkNormOp&) { return Cannot("norm of heads that follows no product"); }
  absl::Status Add(const GluOp&) { return Cannot("gated unit that follows no product"); }
  absl::Status Add(const ScaleOp&) { return Cannot("scale"); }
  absl::Status Add(const SoftCapOp&) { return Cannot("soft cap"); }
  absl::Status Add(const RouteOp&) { return Cannot("choice of experts"); }
  absl::Status Add(const ExpertsOp&) { return Cannot("experts"); }
  absl::Status Add(const CombineExpertsOp&) { return Cannot("sum of experts"); }
  absl::Status Add(const AddGatedOp&) { return Cannot("gated sum"); }
  absl::Status Add(const RopeAppendKvOp&) { return Cannot("rotation that follows no product"); }
  absl::Status Add(const AttentionOp&) { return Cannot("attention that follows no rotation"); }
  absl::Status Add(const AllReduceOp&) { return Cannot("sum over shards that follows no product"); }

  const Program& program_;
  size_t at_ = 0;
  Schedule schedule_;
  std::map<BufferId, Vector> vectors_;
};

}  // namespace

StepMemory MemoryOf(const Schedule& schedule, int64_t rows) {
  constexpr int64_t kAlignment = 256;
  const auto aligned = [](int64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  };
  const AttentionHeads& attention = schedule.attention;
  // Of four elements 16 bytes.
  const int64_t parts_of_row = int64_t{attention.heads} * attention.head_dim * 4 *
                               MostSegments(attention.kv_heads) * kSegmentParts;
  return {.arena = aligned(rows * schedule.row_bytes), .parts = aligned(rows * parts_of_row)};
}

absl::StatusOr<Schedule> MakeSchedule(const Program& program) { return Scheduler(program).Make(); }

// Of a product with many tiles for each block some stay free: multiprocessors differ in how fast
// they read. A tile alone takes longer where `in` has to be staged for it. Of others the tiles are
// given in order of blocks, each some or one more: those blocks get one more that have read the
// least so far.
void ShareTiles(int32_t blocks, int32_t rows, Schedule& schedule) {
  // Tiles of a share of which a tile alone is no great part, and, where `in` stays, costs little.
  constexpr int64_t kMany = 10;
  constexpr int64_t kManyKept = 5;
  schedule.shares.assign(schedule.ops.size() * (blocks + 1), 0);
  std::vector<int64_t> read(blocks);
  std::vector<int32_t> order(blocks);
  for (size_t i = 0; i < schedule.ops.size(); ++i) {
    ScheduledOp& op = schedule.ops[i];
    if (op.kind != ScheduledOp::Kind::kProduct) continue;
    const int64_t tiles = (op.rows + kUnitRows - 1) / kUnitRows;
    std::vector<int64_t> counts(blocks, tiles / blocks);
    const bool kept = KeptBytes(rows, static_cast<int>(op.cols)) > 0;
    if (counts[0] >= (kept ? kManyKept : kMany)) {
      // About a sixth is free.
      counts.assign(blocks, tiles * 5 / (6 * blocks));
    } else {
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](int32_t a, int32_t b) { return read[a] < read[b]; });
      for (int64_t more = 0; more < tiles % blocks; ++more) ++counts[order[more]];
      for (int32_t b = 0; b < blocks; ++b) read[b] += counts[b] * op.cols;
    }
    uint16_t* const begins = &schedule.shares[i * (blocks + 1)];
    for (int32_t b = 0; b < blocks; ++b) {
      begins[b + 1] = static_cast<uint16_t>(begins[b] + counts[b]);
    }
    op.first_free_tile = begins[blocks];
  }
}

}  // namespace skein::kernels::cuda
