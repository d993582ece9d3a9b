#include "worker/loader/shard_loader.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/clock.h"
#include "base/counted_numbers.h"
#include "base/dtype.h"
#include "base/mutex.h"
#include "base/range.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "model/format/identity.h"

namespace skein::worker {
namespace {

// Small enough that scratch memory does not count, large enough that calls do not.
constexpr int64_t kPieceBytes = 4 << 20;

// What is read, hashed and packed at once: some rows of a part, or a whole vector.
struct Piece {
  const plan::StoredVector* vector = nullptr;  // if this is one; else what follows
  const plan::WeightPart* part = nullptr;
  const model::TensorInfo* tensor = nullptr;
  std::vector<Range> slice;
  int64_t first_row = 0;  // of the weight
  int64_t rows = 0;
  int64_t bytes = 0;
};

absl::Status CutPart(const model::TensorSource& tensors, const plan::WeightPart& part,
                     std::vector<Piece>* pieces) {
  SKEIN_ASSIGN_OR_RETURN(const model::TensorInfo* tensor, tensors.Find(part.tensor));
  const int64_t rows = part.slice[0].size();
  const int64_t row_bytes = DTypeBytes(tensor->dtype, part.slice.back().size());
  const int64_t step = std::max<int64_t>(1, kPieceBytes / std::max<int64_t>(1, row_bytes));
  for (int64_t row = 0; row < rows; row += step) {
    const int64_t count = std::min(step, rows - row);
    Piece piece{nullptr, &part, tensor, part.slice, part.first_row + row, count, count * row_bytes};
    const int64_t begin = part.slice[0].begin + row;
    piece.slice[0] = {begin, begin + count};
    pieces->push_back(std::move(piece));
  }
  return absl::OkStatus();
}

absl::StatusOr<Piece> PieceOf(const model::TensorSource& tensors,
                              const plan::StoredVector& vector) {
  Piece piece = {.vector = &vector};
  for (const plan::VectorSlice& slice : vector.slices) {
    SKEIN_ASSIGN_OR_RETURN(const model::TensorInfo* tensor, tensors.Find(slice.tensor));
    piece.bytes += DTypeBytes(tensor->dtype, slice.elements.size());
  }
  return piece;
}

absl::Status LoadFloats(kernels::WeightId weight, const std::vector<float>& values,
                        kernels::Weights& weights) {
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
  SKEIN_ASSIGN_OR_RETURN(std::unique_ptr<kernels::Staging> staged, weights.Stage(bytes));
  std::memcpy(staged->bytes().data(), values.data(), static_cast<size_t>(bytes));
  return weights.Load({.weight = weight, .count = 1}, std::move(staged));
}

// Works the pieces off with several threads.
class Loader {
 public:
  Loader(const model::TensorSource& tensors, const std::vector<Piece>& pieces,
         const ShardLoadOptions& options, LoadedShard& shard)
      : tensors_(tensors), pieces_(pieces), options_(options), shard_(shard) {
    for (const Piece& piece : pieces) total_bytes_ += piece.bytes;
  }

  absl::Status Run() {
    std::vector<std::thread> helpers;
    for (int i = 1; i < options_.threads; ++i) helpers.emplace_back([this] { Work(); });
    Work();
    for (std::thread& helper : helpers) helper.join();
    MutexLock lock(&mutex_);
    shard_.bytes_read = done_bytes_;
    shard_.slice_digest = hasher_.Digest();
    return status_;
  }

 private:
  void Work() {
    while (true) {
      const size_t i = next_.fetch_add(1);
      if (i >= pieces_.size()) return;
      const Piece& piece = pieces_[i];
      absl::Status status = piece.vector != nullptr ? LoadVector(*piece.vector) : Load(piece);
      if (status.ok()) Done(piece.bytes);
      MutexLock lock(&mutex_);
      status_.Update(status);
      if (!status_.ok()) next_ = pieces_.size();
    }
  }

  absl::Status Load(const Piece& piece) {
    SKEIN_ASSIGN_OR_RETURN(std::unique_ptr<kernels::Staging> staged,
                           shard_.weights->Stage(piece.bytes));
    SKEIN_RETURN_IF_ERROR(tensors_.Read(*piece.tensor, piece.slice, staged->bytes()));
    hasher_.Add(piece.part->tensor, piece.slice, staged->bytes());
    SKEIN_RETURN_IF_ERROR(Annotate(shard_.weights->Load({.weight = piece.part->weight,
                                                         .first = piece.first_row,
                                                         .count = piece.rows,
                                                         .component = piece.part->component},
                                                        std::move(staged)),
                                   piece.part->tensor));
    return absl::OkStatus();
  }

  absl::Status LoadVector(const plan::StoredVector& vector) {
    std::vector<float> values;
    for (const plan::VectorSlice& slice : vector.slices) {
      SKEIN_ASSIGN_OR_RETURN(const model::TensorInfo* tensor, tensors_.Find(slice.tensor));
      const int64_t count = slice.elements.size();
      std::vector<std::byte> stored(static_cast<size_t>(DTypeBytes(tensor->dtype, count)));
      SKEIN_RETURN_IF_ERROR(tensors_.Read(*tensor, {{slice.elements}}, absl::MakeSpan(stored)));
      hasher_.Add(slice.tensor, {slice.elements}, stored);
      const size_t first = values.size();
      values.resize(first + static_cast<size_t>(count));
      ConvertToFloat(tensor->dtype, stored.data(), count, values.data() + first);
    }
    for (float& value : values) value += vector.add;
    return LoadFloats(vector.weight, values, *shard_.weights);
  }

  void Done(int64_t bytes) {
    MutexLock lock(&mutex_);
    done_bytes_ += bytes;
    if (options_.progress) options_.progress(done_bytes_, total_bytes_);
  }

  const model::TensorSource& tensors_;
  const std::vector<Piece>& pieces_;
  const ShardLoadOptions& options_;
  LoadedShard& shard_;
  int64_t total_bytes_ = 0;
  std::atomic<size_t> next_{0};
  model::SliceHasher hasher_;

  Mutex mutex_;
  int64_t done_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

// Has the part made where it is to lie; false where it is to be read.
absl::StatusOr<bool> MakePart(const model::TensorSource& tensors, const plan::WeightPart& part,
                              LoadedShard& shard) {
  SKEIN_ASSIGN_OR_RETURN(const model::TensorInfo* tensor, tensors.Find(part.tensor));
  std::optional<CountedRows> numbers = tensors.Counted(*tensor);
  if (!numbers.has_value() || tensor->dtype != DType::kBF16) return false;
  const Range rows = part.slice[0];
  const Range cols = part.slice[1];
  numbers->first += rows.begin * numbers->stride + cols.begin;
  const absl::Status made = shard.weights->Make({.weight = part.weight,
                                                 .first = part.first_row,
                                                 .count = rows.size(),
                                                 .component = part.component},
                                                *numbers);
  if (absl::IsUnimplemented(made)) return false;
  SKEIN_RETURN_IF_ERROR(Annotate(made, part.tensor));
  shard.bytes_made += DTypeBytes(tensor->dtype, rows.size() * cols.size());
  return true;
}

}  // namespace

absl::StatusOr<LoadedShard> LoadShard(const model::TensorSource& tensors,
                                      const plan::RankProgram& program, kernels::Backend& backend,
                                      const ShardLoadOptions& options) {
  const absl::Time begin = absl::Now();
  LoadedShard shard;
  SKEIN_ASSIGN_OR_RETURN(shard.weights, backend.AllocateWeights(program.program));
  for (const plan::ConstantVector& constant : program.constants) {
    SKEIN_RETURN_IF_ERROR(LoadFloats(constant.weight, constant.values, *shard.weights));
  }
  std::vector<Piece> pieces;
  for (const plan::WeightPart& part : program.parts) {
    SKEIN_ASSIGN_OR_RETURN(const bool made, MakePart(tensors, part, shard));
    if (!made) SKEIN_RETURN_IF_ERROR(CutPart(tensors, part, &pieces));
  }
  for (const plan::StoredVector& vector : program.vectors) {
    SKEIN_ASSIGN_OR_RETURN(pieces.emplace_back(), PieceOf(tensors, vector));
  }
  SKEIN_RETURN_IF_ERROR(Loader(tensors, pieces, options, shard).Run());
  SKEIN_RETURN_IF_ERROR(shard.weights->FinishLoading());
  shard.time = absl::Now() - begin;
  return shard;
}

}  // namespace skein::worker
