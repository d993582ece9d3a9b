#include "kernels/cuda/cuda_memory.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/status_util.h"
#include "kernels/cuda/check_kernels.h"
#include "kernels/cuda/copy_page.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/device_places.h"
#include "kernels/cuda/make_rows.h"
#include "kernels/ops/validate.h"

namespace skein::kernels::cuda {
namespace {

// Staging comes in pieces of at least this, so that pieces serve one another's requests.
constexpr int64_t kStagingPiece = int64_t{4} << 20;
// At once: more than the link carries while a thread reads its next piece.
constexpr int64_t kMaxStagingBytes = int64_t{256} << 20;

// Whether a GluOp right behind, or behind a bias, reads what comes of the matrix, each time.
// Programs read it nowhere else.
bool FeedsSwiGluAlone(const Program& program, WeightId weight) {
  bool feeds = false;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    if (const auto* embed = std::get_if<EmbedOp>(&program.ops[i])) {
      if (embed->table == weight) return false;
    }
    const auto* product = std::get_if<MatMulOp>(&program.ops[i]);
    if (product == nullptr || product->weight != weight) continue;
    size_t next = i + 1;
    if (const auto* bias = OpAt<AddBiasOp>(program, next)) next += bias->buffer == product->out;
    const auto* swiglu = OpAt<GluOp>(program, next);
    if (swiglu == nullptr || swiglu->gate_up != product->out) return false;
    if (program.buffers[product->out].port) return false;
    feeds = true;
  }
  return feeds;
}

absl::Status CheckWeight(const WeightSpec& spec, DType dtype) {
  SKEIN_RETURN_IF_ERROR(ValidateWeightSpec(spec));
  if (spec.kind == WeightSpec::Kind::kVector) return absl::OkStatus();
  for (const WeightSpec::Part& part : PartsOf(spec)) {
    if (part.dtype == dtype) continue;
    return absl::UnimplementedError(absl::StrCat(
        "a matrix of ", std::string(DTypeName(part.dtype)),
        "; GPUs compute with BF16 or F16, here ", std::string(DTypeName(dtype)),
        ", as the model's config.json says or by default: convert the model, correct its "
        "torch_dtype, or compute on cpu"));
  }
  return absl::OkStatus();
}

absl::Status UseDevice(int device) {
  SKEIN_CUDA_RETURN_IF_ERROR(cudaSetDevice(device));
  return absl::OkStatus();
}

}  // namespace

class CudaWeights::PinnedStaging final : public Staging {
 public:
  PinnedStaging(CudaWeights& weights, std::unique_ptr<Lent> lent, int64_t bytes)
      : weights_(weights), lent_(std::move(lent)), bytes_(bytes) {}
  ~PinnedStaging() override { weights_.GiveBack(std::move(lent_)); }
  absl::Span<std::byte> bytes() override {
    return {lent_->memory.data(), static_cast<size_t>(bytes_)};
  }
  Lent& lent() { return *lent_; }

 private:
  CudaWeights& weights_;
  std::unique_ptr<Lent> lent_;
  const int64_t bytes_;
};

absl::StatusOr<std::unique_ptr<CudaWeights>> CudaWeights::Create(const Program& program,
                                                                 int device) {
  auto weights = std::unique_ptr<CudaWeights>(new CudaWeights(program, device));
  SKEIN_RETURN_IF_ERROR(weights->Init(program));
  return weights;
}

CudaWeights::~CudaWeights() { cudaSetDevice(device_); }

absl::Status CudaWeights::Init(const Program& program) {
  SKEIN_RETURN_IF_ERROR(UseDevice(device_));
  offsets_ = {0};
  for (WeightId id = 0; id < static_cast<WeightId>(specs().size()); ++id) {
    const auto& [name, spec] = specs()[id];
    SKEIN_RETURN_IF_ERROR(
        Annotate(CheckWeight(spec, DTypeOfMatrices(program)), absl::StrCat("weight ", name)));
    offsets_.push_back(offsets_.back() + DeviceBytes(spec));
    interleaved_.push_back(spec.kind == WeightSpec::Kind::kMatrix &&
                           spec.rows % (2 * kInterleave) == 0 && FeedsSwiGluAlone(program, id));
  }
  SKEIN_ASSIGN_OR_RETURN(stream_, OwnedStream::Create());
  SKEIN_ASSIGN_OR_RETURN(memory_, DeviceMemory::Allocate(offsets_.back(), "weights"));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Staging>> CudaWeights::Stage(int64_t bytes) {
  SKEIN_RETURN_IF_ERROR(UseDevice(device_));
  std::unique_ptr<Lent> lent;
  int64_t more = 0;  // to be allocated
  {
    MutexLock lock(&mutex_);
    while (true) {
      const auto fits = std::find_if(idle_.begin(), idle_.end(), [&](const auto& idle) {
        return idle->memory.bytes() >= bytes;
      });
      const bool full = staging_bytes_ + bytes > kMaxStagingBytes && staging_bytes_ > 0;
      if (fits != idle_.end()) {
        SKEIN_ASSIGN_OR_RETURN(const bool copied, (*fits)->copied.Done());
        if (copied || full) {
          lent = std::move(*fits);
          idle_.erase(fits);
          break;
        }
      }
      if (!full) {
        more = std::max(bytes, kStagingPiece);
        staging_bytes_ += more;
        break;
      }
      if (!idle_.empty()) {  // all of them too small: make room
        SKEIN_RETURN_IF_ERROR(idle_.front()->copied.Synchronize());
        staging_bytes_ -= idle_.front()->memory.bytes();
        idle_.pop_front();
        continue;
      }
      changed_.Wait(&mutex_);
    }
  }
  if (more > 0) {
    lent = std::make_unique<Lent>();
    absl::StatusOr<PinnedMemory> memory = PinnedMemory::Allocate(more, "weights on their way");
    if (!memory.ok()) {
      MutexLock lock(&mutex_);
      staging_bytes_ -= more;
      changed_.NotifyAll();
      return memory.status();
    }
    lent->memory = *std::move(memory);
    SKEIN_ASSIGN_OR_RETURN(lent->copied, OwnedEvent::Create());
  }
  SKEIN_RETURN_IF_ERROR(lent->copied.Synchronize());
  return std::make_unique<PinnedStaging>(*this, std::move(lent), bytes);
}

void CudaWeights::GiveBack(std::unique_ptr<Lent> lent) {
  MutexLock lock(&mutex_);
  idle_.push_back(std::move(lent));
  changed_.NotifyAll();
}

absl::Status CudaWeights::CopyRows(const WeightRows& rows, const std::byte* from) {
  const WeightSpec& spec = specs()[rows.weight].spec;
  const int64_t row_bytes = DTypeBytes(DType::kBF16, spec.cols);
  std::byte* const to = memory_.data() + offsets_[rows.weight];
  const auto copy = [&](std::byte* to, int64_t to_pitch, int64_t width, int64_t count) {
    SKEIN_CUDA_RETURN_IF_ERROR(cudaMemcpy2DAsync(to, to_pitch, from, width, width, count,
                                                 cudaMemcpyHostToDevice,
                                                 CudaStream(stream_.get())));
    from += width * count;
    return absl::OkStatus();
  };
  if (!interleaved_[rows.weight]) {
    return copy(to + rows.first * row_bytes, rows.count * row_bytes, rows.count * row_bytes, 1);
  }
  const int64_t half = spec.rows / 2;
  for (int64_t row = rows.first, end = rows.first + rows.count; row < end;) {
    const int64_t of_kind = row % half;
    const int64_t half_end = std::min(end, row < half ? half : spec.rows);
    std::byte* const place = to + (of_kind / kInterleave * 2 * kInterleave +
                                   (row < half ? 0 : kInterleave) + of_kind % kInterleave) *
                                      row_bytes;
    // Whole groups at once; a part of one where the rows begin or end in it.
    const int64_t groups = of_kind % kInterleave == 0 ? (half_end - row) / kInterleave : 0;
    const int64_t part = std::min(kInterleave - of_kind % kInterleave, half_end - row);
    if (groups > 0) {
      SKEIN_RETURN_IF_ERROR(
          copy(place, 2 * kInterleave * row_bytes, kInterleave * row_bytes, groups));
      row += groups * kInterleave;
    } else {
      SKEIN_RETURN_IF_ERROR(copy(place, part * row_bytes, part * row_bytes, 1));
      row += part;
    }
  }
  return absl::OkStatus();
}

absl::Status CudaWeights::Load(const WeightRows& rows, std::unique_ptr<Staging> staged) {
  SKEIN_RETURN_IF_ERROR(UseDevice(device_));
  const absl::Span<std::byte> bytes = staged->bytes();
  SKEIN_RETURN_IF_ERROR(ValidateRows(specs(), rows, static_cast<int64_t>(bytes.size())));
  auto& pinned = static_cast<PinnedStaging&>(*staged);
  const WeightSpec& spec = specs()[rows.weight].spec;
  if (spec.kind == WeightSpec::Kind::kVector) {
    std::vector<float> floats(spec.cols);
    ConvertToFloat(spec.dtype, bytes.data(), spec.cols, floats.data());
    // Few and small: they need not be on their way.
    SKEIN_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(memory_.data() + offsets_[rows.weight],
                                               floats.data(), floats.size() * sizeof(float),
                                               cudaMemcpyHostToDevice, CudaStream(stream_.get())));
    return stream_.Synchronize();
  }
  SKEIN_RETURN_IF_ERROR(CopyRows(rows, bytes.data()));
  return pinned.lent().copied.Record(stream_.get());
}

absl::Status CudaWeights::Make(const WeightRows& rows, const CountedRows& numbers) {
  SKEIN_RETURN_IF_ERROR(UseDevice(device_));
  const auto weights = static_cast<WeightId>(specs().size());
  if (rows.weight < 0 || rows.weight >= weights) return ValidateRows(specs(), rows, 0);
  const WeightSpec& spec = specs()[rows.weight].spec;
  if (spec.kind != WeightSpec::Kind::kMatrix) {
    return absl::UnimplementedError("vectors are loaded");
  }
  SKEIN_RETURN_IF_ERROR(
      ValidateRows(specs(), rows, DTypeBytes(spec.dtype, rows.count * spec.cols)));
  return Enqueue(MakeRows{.numbers = numbers,
                          .dtype = spec.dtype,
                          .rows = rows.count,
                          .cols = spec.cols,
                          .first_row = rows.first,
                          .gates = interleaved_[rows.weight] ? spec.rows / 2 : 0,
                          .matrix = memory_.data() + offsets_[rows.weight]},
                 stream_.get());
}

absl::StatusOr<std::vector<float>> CudaWeights::ReadVector(WeightId weight) const {
  SKEIN_RETURN_IF_ERROR(UseDevice(device_));
  SKEIN_RETURN_IF_ERROR(stream_.Synchronize());
  std::vector<float> values(static_cast<size_t>(specs()[weight].spec.cols));
  SKEIN_CUDA_RETURN_IF_ERROR(cudaMemcpy(values.data(), floats(weight),
                                        values.size() * sizeof(float), cudaMemcpyDeviceToHost));
  return values;
}

absl::Status CudaWeights::FinishLoading() {
  SKEIN_RETURN_IF_ERROR(UseDevice(device_));
  SKEIN_RETURN_IF_ERROR(stream_.Synchronize());
  MutexLock lock(&mutex_);
  for (const auto& idle : idle_) staging_bytes_ -= idle->memory.bytes();
  idle_.clear();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<CudaKv>> CudaKv::Create(const KvSpec& spec, int device,
                                                       bool on_host) {
  SKEIN_RETURN_IF_ERROR(ValidateKvSpec(spec));
  if (spec.dtype == KvDType::kF32 || spec.page_size % kKvBlock != 0 ||
      !KvHeadDimIsSupported(static_cast<int>(spec.head_dim))) {
    return absl::UnimplementedError(
        absl::StrCat("a cache of ", spec.dtype == KvDType::kF32 ? "F32, " : "", "pages of ",
                     spec.page_size, " and heads of ", spec.head_dim,
                     "; GPUs have caches of BF16, F16 or int8, pages of a "
                     "multiple of 16 and heads of 64, 96 or 128"));
  }
  SKEIN_RETURN_IF_ERROR(UseDevice(device));
  auto kv = std::unique_ptr<CudaKv>(new CudaKv(spec, device));
  const int64_t bytes = spec.layers * spec.pages * PageBytes(spec);
  if (on_host) {
    SKEIN_ASSIGN_OR_RETURN(kv->host_memory_, PinnedMemory::Allocate(bytes, "swapped pages"));
    kv->data_ = kv->host_memory_.data();
  } else {
    SKEIN_ASSIGN_OR_RETURN(kv->device_memory_, DeviceMemory::Allocate(bytes, "the KV cache"));
    kv->data_ = kv->device_memory_.data();
  }
  SKEIN_ASSIGN_OR_RETURN(kv->stream_, OwnedStream::Create());
  return kv;
}

int64_t CudaKv::layer_stride() const { return spec().pages * PageBytes(spec()); }

std::byte* CudaKv::page(int32_t page) const { return data_ + page * PageBytes(spec()); }

KvLayer CudaKv::layer(int64_t layer) const {
  return {.data = data_ + layer * layer_stride(),
          .kv_heads = static_cast<int32_t>(spec().kv_heads),
          .head_dim = static_cast<int32_t>(spec().head_dim),
          .page_size = static_cast<int32_t>(spec().page_size),
          .int8 = spec().dtype == KvDType::kInt8};
}

absl::Status CudaKv::EnqueueCopy(const CudaKv& from, int32_t from_page, int32_t to_page,
                                 Stream stream) {
  if (this == &from && from_page == to_page) return absl::OkStatus();
  return Enqueue(cuda::CopyPage{.from = from.page(from_page),
                                .to = page(to_page),
                                .from_layer_stride = from.layer_stride(),
                                .to_layer_stride = layer_stride(),
                                .layers = spec().layers,
                                .page_bytes = PageBytes(spec())},
                 stream);
}

absl::Status CudaKv::CopyPage(const KvCache& from, int32_t from_page, int32_t to_page) {
  const auto* other = dynamic_cast<const CudaKv*>(&from);
  if (other == nullptr) return absl::InvalidArgumentError("another back end's cache");
  SKEIN_RETURN_IF_ERROR(ValidatePageCopy(from.spec(), from_page, spec(), to_page));
  SKEIN_RETURN_IF_ERROR(UseDevice(device_));
  SKEIN_RETURN_IF_ERROR(EnqueueCopy(*other, from_page, to_page, stream_.get()));
  return stream_.Synchronize();
}

}  // namespace skein::kernels::cuda
