// Whether a CudaExecutable's small batches go by the persistent step.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "kernels/cuda/cuda_executable.h"
#include "kernels/cuda/cuda_status.h"

namespace skein::kernels::cuda {
namespace {

// Positions of all rows together, where steps are timed that have some: many bytes beside the
// weights' of a model of some billions, and few to wait for.
constexpr int64_t kTimedPositions = 65536;

// It is there when this returns, for any stream.
template <typename T>
absl::Status PutOnDevice(T* to, const std::vector<T>& values) {
  SKEIN_CUDA_RETURN_IF_ERROR(
      cudaMemcpy(to, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  SKEIN_CUDA_RETURN_IF_ERROR(cudaDeviceSynchronize());
  return absl::OkStatus();
}

}  // namespace

absl::Status CudaExecutable::ChooseDecode() {
  const auto remark = [this](const std::string& text) {
    if (options_.remark) options_.remark(text);
  };
  if (options_.decode == DecodeForm::kGraph) return absl::OkStatus();
  Tell("preparing the persistent step");
  absl::StatusOr<std::unique_ptr<PersistentProgram>> made =
      PersistentProgram::Create(program_, bindings_, workspace_, limits_.rows);
  if (!made.ok() && !absl::IsUnimplemented(made.status())) return made.status();
  // Shards go the same way, or none would hear of the others' sums.
  const auto own = static_cast<float>(workspace_.multiprocessors);
  SKEIN_ASSIGN_OR_RETURN(const std::vector<float> all,
                         SumOverRanks({1, made.ok() ? 1.0f : 0.0f, own, own * own}));
  std::string why_not(made.status().message());
  if (made.ok() && all[1] < all[0]) why_not = "a shard cannot run the persistent step";
  // As all shards see it: a mean may be one's own.
  if (made.ok() && all[0] * all[3] != all[2] * all[2]) why_not = "shards have unlike GPUs";
  if (!why_not.empty()) {
    remark(absl::StrCat("small batches are decoded by graphs: ", why_not));
    return absl::OkStatus();
  }
  {
    MutexLock lock(&mutex_);  // Abort reads it
    persistent_ = *std::move(made);
    if (!aborted_.ok()) persistent_->Abort();
  }
  if (options_.decode == DecodeForm::kPersistent) {
    decode_choice_.TakeAll();
    remark("batches of up to 16 rows are decoded by one kernel a step, as --decode has it");
    return absl::OkStatus();
  }
  // By the counts of rows that graphs have.
  for (const auto& [rows, graph] : graphs_[0]) {
    if (!persistent_->Takes({.rows = rows})) break;
    Tell(absl::StrCat("timing steps of ", FormatCount(rows, "row")));
    const int64_t length = TimedLength(rows);
    SKEIN_ASSIGN_OR_RETURN(const StepTimes without, TimeDecode(rows, graph, 1));
    SKEIN_ASSIGN_OR_RETURN(const StepTimes with, TimeDecode(rows, graph, length));
    decode_choice_.Add(rows, without, rows * (length - 1), with);
  }
  remark(absl::StrCat("steps by one kernel and by graphs take: ", decode_choice_.ToString()));
  return absl::OkStatus();
}

int64_t CudaExecutable::TimedLength(int32_t rows) const {
  if (kv_ == nullptr) return 1;
  const KvSpec& kv = kv_->spec();
  const int64_t pages = std::min<int64_t>(kv.pages / rows, limits_.slot_pages);
  return std::clamp<int64_t>(pages * kv.page_size, 1, kTimedPositions / rows);
}

absl::Status CudaExecutable::PretendContexts(int32_t rows, int64_t length) {
  const DevicePlaces& places = workspace_.places;
  const auto put = [&](int64_t place, const std::vector<int32_t>& values) {
    return PutOnDevice(workspace_.At<int32_t>(place), values);
  };
  std::vector<int32_t> counted(rows + 1);
  std::iota(counted.begin(), counted.end(), 0);
  SKEIN_RETURN_IF_ERROR(put(places.row_begin, counted));
  counted.pop_back();
  SKEIN_RETURN_IF_ERROR(put(places.slots, counted));
  SKEIN_RETURN_IF_ERROR(
      put(places.lengths, std::vector<int32_t>(rows, static_cast<int32_t>(length))));
  SKEIN_RETURN_IF_ERROR(
      put(places.positions, std::vector<int32_t>(rows, static_cast<int32_t>(length) - 1)));
  if (kv_ == nullptr) return absl::OkStatus();
  const int64_t page_size = kv_->spec().page_size;
  const int64_t pages = (length + page_size - 1) / page_size;
  std::vector<int32_t> table(pages);
  for (int32_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < pages; ++i) {
      table[i] = static_cast<int32_t>((row * pages + i) % kv_->spec().pages);
    }
    SKEIN_RETURN_IF_ERROR(put(
        places.page_tables + row * workspace_.page_table_stride * int64_t{sizeof(int32_t)}, table));
  }
  return absl::OkStatus();
}

absl::StatusOr<StepTimes> CudaExecutable::TimeDecode(int32_t rows, const OwnedGraph& graph,
                                                     int64_t length) {
  constexpr int kSteps = 5;
  const BatchShape shape = {.rows = rows, .sequences = rows, .outputs = rows};
  SKEIN_RETURN_IF_ERROR(Prepare({}, shape));
  SKEIN_RETURN_IF_ERROR(AwaitStream());
  SKEIN_RETURN_IF_ERROR(PretendContexts(rows, length));
  std::vector<float> times;
  for (const auto& launch : {std::function([&] { return persistent_->Enqueue(shape); }),
                             std::function([&] { return graph.Launch(stream_.get()); })}) {
    SKEIN_ASSIGN_OR_RETURN(OwnedEvent begin, OwnedEvent::Create(/*timed=*/true));
    SKEIN_ASSIGN_OR_RETURN(OwnedEvent end, OwnedEvent::Create(/*timed=*/true));
    SKEIN_RETURN_IF_ERROR(ReplaySums(launch));
    SKEIN_RETURN_IF_ERROR(begin.Record(stream_.get()));
    for (int i = 0; i < kSteps; ++i) SKEIN_RETURN_IF_ERROR(ReplaySums(launch));
    SKEIN_RETURN_IF_ERROR(end.Record(stream_.get()));
    SKEIN_RETURN_IF_ERROR(AwaitStream());
    SKEIN_ASSIGN_OR_RETURN(const float milliseconds, end.MillisecondsSince(begin));
    times.push_back(milliseconds / kSteps);
  }
  times.push_back(1);  // of each rank
  SKEIN_ASSIGN_OR_RETURN(times, SumOverRanks(std::move(times)));
  return StepTimes{times[0] / times[2], times[1] / times[2]};
}

bool CudaExecutable::GoesPersistent(int i, const BatchShape& shape) const {
  if (persistent_ == nullptr || !persistent_->Takes(shape)) return false;
  // The one kernel leaves no rows to pool.
  if (runs_[i].pools) return false;
  const int64_t of_rows =
      std::accumulate(rows_.positions.begin(), rows_.positions.end(), int64_t{0});
  const int64_t of_sequences = std::accumulate(rows_.context_lengths.begin(),
                                               rows_.context_lengths.end(), -rows_.sequences());
  return decode_choice_.Takes(shape.rows, of_rows, of_sequences);
}

absl::StatusOr<std::vector<float>> CudaExecutable::SumOverRanks(std::vector<float> values) {
  if (compiled_->sums() == 0 || values.empty()) return values;
  const size_t count = values.size();
  values.resize(count + count % 2);  // sums are of 8 bytes and more
  const size_t bytes = values.size() * sizeof(float);
  SKEIN_ASSIGN_OR_RETURN(DeviceMemory memory,
                         DeviceMemory::Allocate(static_cast<int64_t>(bytes), "decisions"));
  SKEIN_RETURN_IF_ERROR(PutOnDevice(reinterpret_cast<float*>(memory.data()), values));
  SKEIN_RETURN_IF_ERROR(bindings_.collectives->AllReduce(
      {memory.data(), DType::kF32, 1, static_cast<int64_t>(values.size())}, stream_.get()));
  SKEIN_RETURN_IF_ERROR(AwaitStream());
  SKEIN_CUDA_RETURN_IF_ERROR(
      cudaMemcpy(values.data(), memory.data(), bytes, cudaMemcpyDeviceToHost));
  values.resize(count);
  return values;
}

absl::Status CudaExecutable::ReplaySums(absl::FunctionRef<absl::Status()> launch) {
  const int64_t sums = compiled_->sums();
  return sums == 0 ? launch() : bindings_.collectives->Replay(sums, stream_.get(), launch);
}

}  // namespace skein::kernels::cuda
