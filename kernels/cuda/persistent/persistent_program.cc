#include "kernels/cuda/persistent/persistent_program.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "base/view.h"
#include "kernels/cuda/check_kernels.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/forms.h"
#include "kernels/cuda/peer_memory.h"
#include "kernels/cuda/peer_sum.h"
#include "kernels/cuda/persistent/launch_step.h"
#include "kernels/cuda/tensor_map.h"

namespace skein::kernels::cuda {
namespace {

using Kind = ScheduledOp::Kind;
using Then = ScheduledOp::Then;

// Units of 16 KB on their way at once; the fastest of 3 to 11, and of 2 to 11, on an H100, and of 4
// to 8, and of 2 to 4, on an H200.
constexpr int32_t kInFlight = 4;
constexpr int32_t kInFlightAhead = 2;

// Longer than any step may take. Where other ranks are waited for, by its sums or by hops that keep
// multiprocessors from it, the host has a deadline, and this is longer.
constexpr absl::Duration kMostWait = absl::Seconds(30);
constexpr absl::Duration kMostWaitForOthers = absl::Hours(1);

template <typename T>
absl::StatusOr<DeviceMemory> Put(const std::vector<T>& values, const char* what) {
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
  SKEIN_ASSIGN_OR_RETURN(DeviceMemory memory, DeviceMemory::Allocate(bytes, what));
  SKEIN_CUDA_RETURN_IF_ERROR(
      cudaMemcpy(memory.data(), values.data(), static_cast<size_t>(bytes), cudaMemcpyHostToDevice));
  return memory;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PersistentProgram>> PersistentProgram::Create(
    const Program& program, const Bindings& bindings, const Workspace& workspace,
    int64_t most_rows) {
  SKEIN_RETURN_IF_ERROR(NeedHopper("the persistent step"));
  auto made = std::unique_ptr<PersistentProgram>(
      new PersistentProgram(program, workspace, std::min<int64_t>(most_rows, kMostStepRows)));
  SKEIN_RETURN_IF_ERROR(made->Init(bindings));
  return made;
}

// A sum times a gain above 1 may be more than F16 has, until its row's factor comes: gains are
// divided by a power of two, and factors multiplied.
absl::Status PersistentProgram::ScaleGains(const CudaWeights& weights) {
  for (const ScheduledOp& op : schedule_.ops) {
    if (op.gain < 0 || dtype_ != DType::kF16) continue;
    std::vector<float> gain(program_.weights[op.gain].spec.cols);
    SKEIN_CUDA_RETURN_IF_ERROR(cudaMemcpy(gain.data(), weights.floats(op.gain),
                                          gain.size() * sizeof(float), cudaMemcpyDeviceToHost));
    float largest = 0;
    for (const float value : gain) largest = std::max(largest, std::abs(value));
    if (!(largest > 1) || !std::isfinite(largest)) continue;
    ScaledGain& scaled = scaled_[op.normed];
    scaled.left = std::exp2(std::ceil(std::log2(largest)));
    for (float& value : gain) value /= scaled.left;
    SKEIN_ASSIGN_OR_RETURN(scaled.gain, Put(gain, "gains"));
  }
  return absl::OkStatus();
}

absl::StatusOr<StepOp> PersistentProgram::Bind(const ScheduledOp& op, const CudaWeights& weights,
                                               const CudaKv& kv,
                                               std::vector<CUtensorMap>& maps) const {
  const auto bytes = [](int64_t place) { return static_cast<uint32_t>(place); };
  const auto floats = [&](WeightId id) { return id < 0 ? nullptr : weights.floats(id); };
  StepOp bound = {.kind = static_cast<int32_t>(op.kind),
                  .then = static_cast<int32_t>(op.then),
                  .in = bytes(op.in),
                  .old = bytes(op.old),
                  .out = bytes(op.out),
                  .normed = bytes(op.normed),
                  .squares = bytes(op.squares),
                  .in_squares = bytes(op.in_squares),
                  .cols = static_cast<int32_t>(op.cols),
                  .rows = static_cast<int32_t>(op.rows),
                  .of_normed = op.of_normed ? 1 : 0,
                  .gain = floats(op.gain),
                  .eps = op.eps,
                  .first_id = static_cast<int32_t>(op.first_id),
                  .count = static_cast<int32_t>(op.count),
                  .window = op.window,
                  .scale = op.scale,
                  .sum = op.sum,
                  .to_port = op.to_port ? 1 : 0,
                  .bias = floats(op.bias)};
  if (const auto scaled = scaled_.find(op.normed); op.gain >= 0 && scaled != scaled_.end()) {
    bound.gain = reinterpret_cast<const float*>(scaled->second.gain.data());
  }
  if (const auto scaled = scaled_.find(op.in); op.of_normed && scaled != scaled_.end()) {
    bound.factor = scaled->second.left;
  }
  switch (op.kind) {
    case Kind::kEmbed:
      bound.memory = const_cast<std::byte*>(weights.data(op.weight));
      bound.stride = bound.cols;
      break;
    case Kind::kAttention:
      bound.memory = kv.layer(op.layer).data;
      bound.gain = floats(op.q_gain);
      bound.k_gain = floats(op.k_gain);
      break;
    case Kind::kTakeIn:
    case Kind::kSum:
      break;
    case Kind::kProduct: {
      if (op.then == Then::kSwiGlu && !weights.interleaved(op.weight)) {
        return absl::UnimplementedError("the persistent step needs gates and ups interleaved");
      }
      bound.map = static_cast<int32_t>(maps.size());
      SKEIN_ASSIGN_OR_RETURN(const CUtensorMap map,
                             PanelMapOf(dtype_, weights.data(op.weight), op.rows, op.cols,
                                        kUnitRows, kUnitCols / kPanelCols));
      maps.push_back(map);
      if (op.then == Then::kLogits) {
        bound.memory = workspace_.Buffer(program_.logits, 0);
        bound.stride = static_cast<int32_t>(program_.buffers[program_.logits].cols);
      }
      break;
    }
  }
  return bound;
}

absl::Status PersistentProgram::Init(const Bindings& bindings) {
  dtype_ = DTypeOfMatrices(program_);
  SKEIN_ASSIGN_OR_RETURN(schedule_, MakeSchedule(program_));
  const StepMemory memory = MemoryOf(schedule_, most_rows_);  // as DevicePlaces has it
  const auto& weights = *static_cast<const CudaWeights*>(bindings.weights);
  const auto& kv = *static_cast<const CudaKv*>(bindings.kv);
  SKEIN_RETURN_IF_ERROR(ScaleGains(weights));
  std::vector<StepOp> ops;
  std::vector<CUtensorMap> maps;
  for (const ScheduledOp& op : schedule_.ops) {
    SKEIN_ASSIGN_OR_RETURN(const StepOp bound, Bind(op, weights, kv, maps));
    ops.push_back(bound);
  }
  for (const auto& [shared, rows] :
       {std::pair(&few_, kFewRows), std::pair(&many_, kMostStepRows)}) {
    ShareTiles(workspace_.multiprocessors, rows, schedule_);
    for (size_t i = 0; i < ops.size(); ++i) {
      ops[i].first_free_tile = schedule_.ops[i].first_free_tile;
    }
    SKEIN_ASSIGN_OR_RETURN(shared->ops, Put(ops, "a persistent step"));
    SKEIN_ASSIGN_OR_RETURN(shared->shares, Put(schedule_.shares, "a persistent step"));
  }
  SKEIN_ASSIGN_OR_RETURN(maps_, Put(maps, "a persistent step"));
  arena_bytes_ = memory.arena;
  auto* const own = workspace_.At<char>(workspace_.places.step);
  SKEIN_CUDA_RETURN_IF_ERROR(cudaMemset(own, 0xff, static_cast<size_t>(2 * arena_bytes_)));
  SKEIN_CUDA_RETURN_IF_ERROR(cudaDeviceSynchronize());
  SKEIN_ASSIGN_OR_RETURN(
      given_, DeviceMemory::Allocate(2 * static_cast<int64_t>(ops.size() * sizeof(uint32_t)),
                                     "a persistent step"));
  SKEIN_ASSIGN_OR_RETURN(report_, PinnedMemory::Allocate(sizeof(StepReport), "a step's report"));
  new (report_.data()) StepReport;
  const bool others = schedule_.sums > 0 || program_.input >= 0 || program_.output >= 0;
  const AttentionHeads& attention = schedule_.attention;
  const DevicePlaces& places = workspace_.places;
  step_ = {.maps = reinterpret_cast<const CUtensorMap*>(maps_.data()),
           .op_count = static_cast<int32_t>(ops.size()),
           .given_count = static_cast<int32_t>(ops.size()),
           .parts = own + 2 * arena_bytes_,
           .batch = {.row_begin = workspace_.At<int32_t>(places.row_begin),
                     .slots = workspace_.At<int32_t>(places.slots),
                     .page_tables = workspace_.At<int32_t>(places.page_tables),
                     .page_table_stride = workspace_.page_table_stride},
           .token_ids = workspace_.At<int32_t>(places.token_ids),
           .positions = workspace_.At<int32_t>(places.positions),
           .kv_slots = workspace_.At<int64_t>(places.kv_slots),
           .output_rows = workspace_.At<int32_t>(places.output_rows),
           .attention = attention,
           .kv = kv.layer(0),
           .inverse_frequencies = weights.floats(attention.inverse_frequencies),
           .in_flight = kInFlight,
           .in_flight_ahead = kInFlightAhead,
           .report = reinterpret_cast<StepReport*>(report_.data()),
           .most_nanoseconds = static_cast<uint64_t>(
               absl::ToInt64Nanoseconds(others ? kMostWaitForOthers : kMostWait)),
           .sums = schedule_.sums};
  SKEIN_RETURN_IF_ERROR(dtype_ == DType::kF16
                            ? CheckF16StepFits(step_, workspace_.multiprocessors)
                            : CheckBf16StepFits(step_, workspace_.multiprocessors));
  return schedule_.sums > 0 ? MeetShards(bindings) : absl::OkStatus();
}

absl::Status PersistentProgram::MeetShards(const Bindings& bindings) {
  const PeerMemory* peers = nullptr;
  for (; most_rows_ > 0; --most_rows_) {
    const View widest = {workspace_.data, dtype_, most_rows_, schedule_.sum_cols};
    peers = bindings.collectives->PeersOf(widest);
    if (peers != nullptr && widest.bytes() <= MostOneShotBytes(peers->ranks)) break;
  }
  if (most_rows_ == 0) {
    return absl::UnimplementedError(
        "the persistent step has no sums over shards that do not go over peer memory");
  }
  step_.peers = *peers;
  return absl::OkStatus();
}

absl::Status PersistentProgram::Enqueue(const BatchShape& shape) {
  PersistentStep step = step_;
  const Shared& shared = shape.rows <= kFewRows ? few_ : many_;
  step.ops = reinterpret_cast<const StepOp*>(shared.ops.data());
  step.shares = reinterpret_cast<const uint16_t*>(shared.shares.data());
  step.rows = shape.rows;
  step.outputs = shape.outputs;
  step.batch.sequences = shape.sequences;
  const auto port = [&](BufferId id) {
    return id < 0 ? nullptr : static_cast<char*>(workspace_.Buffer(id, shape.batch));
  };
  step.input = port(program_.input);
  step.output = port(program_.output);
  auto* const arenas = workspace_.At<char>(workspace_.places.step);
  step.arena = arenas + steps_ % 2 * arena_bytes_;
  step.idle_arena = arenas + (steps_ + 1) % 2 * arena_bytes_;
  step.idle_bytes = rows_before_ * schedule_.row_bytes;
  // Of memory that was zero at first.
  const int32_t ops = step_.op_count;
  step.epoch = static_cast<uint32_t>(steps_ * ops + 1);
  auto* const given = reinterpret_cast<uint32_t*>(given_.data());
  step.given = given + steps_ % 2 * ops;
  step.idle_given = given + (steps_ + 1) % 2 * ops;
  const ScheduledOp& last = schedule_.ops.back();
  const bool ends_in_logits = last.kind == Kind::kProduct && last.then == Then::kLogits;
  if (ends_in_logits && shape.outputs == 0) --step.op_count;
  rows_before_ = shape.rows;
  ++steps_;
  return dtype_ == DType::kF16
             ? LaunchF16Step(step, workspace_.multiprocessors, workspace_.stream)
             : LaunchBf16Step(step, workspace_.multiprocessors, workspace_.stream);
}

void PersistentProgram::Abort() {
  reinterpret_cast<volatile StepReport*>(report_.data())->aborted = 1;
}

absl::Status PersistentProgram::Check() const {
  const auto& report = *reinterpret_cast<const volatile StepReport*>(report_.data());
  if (report.aborted == 0) return absl::OkStatus();
  const uint32_t op = report.op;
  const uint32_t block = report.block;
  const uint32_t peer = report.peer;
  if (op >= schedule_.ops.size()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      "a persistent step was given up: block ", block, " waited too long in operation ",
      schedule_.ops[op].op, peer == StepReport::kNone ? "" : absl::StrCat(", for shard ", peer)));
}

}  // namespace skein::kernels::cuda
