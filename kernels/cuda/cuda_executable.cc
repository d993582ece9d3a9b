#include "kernels/cuda/cuda_executable.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "base/units.h"
#include "kernels/cuda/check_kernels.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/device_places.h"
#include "kernels/cuda/load_kernels.h"
#include "kernels/cuda/nvtx_range.h"
#include "kernels/cuda/stream_k_sizes.h"

namespace skein::kernels::cuda {
namespace {

// The rows by which products are tuned: those of graphs, then twice as many each time.
std::vector<int32_t> TunedRows(const Limits& limits) {
  std::vector<int32_t> all = GraphRows(limits);
  while (all.empty() || all.back() < limits.rows) {
    const int64_t next = all.empty() ? 1 : 2 * int64_t{all.back()};
    all.push_back(static_cast<int32_t>(std::min(next, limits.rows)));
  }
  return all;
}

}  // namespace

CudaExecutable::CudaExecutable(const Program& program, const Limits& limits,
                               const Bindings& bindings, const DeviceFacts& facts,
                               const CudaOptions& options)
    : program_(program),
      limits_(limits),
      bindings_(bindings),
      facts_(facts),
      options_(options),
      profile_steps_(options.profile_steps),
      kv_(static_cast<CudaKv*>(bindings.kv)),
      slot_draws_(limits.slots),
      masks_(limits.slots) {}

absl::StatusOr<std::unique_ptr<CudaExecutable>> CudaExecutable::Create(const Program& program,
                                                                       const Limits& limits,
                                                                       const Bindings& bindings,
                                                                       const DeviceFacts& facts,
                                                                       const CudaOptions& options) {
  auto executable = std::unique_ptr<CudaExecutable>(
      new CudaExecutable(program, limits, bindings, facts, options));
  SKEIN_RETURN_IF_ERROR(executable->Init());
  return executable;
}

CudaExecutable::~CudaExecutable() {
  Abort(absl::CancelledError("the executable is gone"));
  cudaSetDevice(facts_.device);
  for (const OwnedStream* stream : {&stream_, &host_stream_, &input_stream_, &output_stream_}) {
    if (stream->get().handle != nullptr) stream->Synchronize().IgnoreError();
  }
}

absl::Status CudaExecutable::Init() {
  SKEIN_CUDA_RETURN_IF_ERROR(cudaSetDevice(facts_.device));
  const KvSpec* const kv_spec = kv_ == nullptr ? nullptr : &kv_->spec();
  const KvSpec* const swap_spec = bindings_.swap == nullptr ? nullptr : &bindings_.swap->spec();
  SKEIN_RETURN_IF_ERROR(ValidateProgram(program_, limits_, kv_spec));
  SKEIN_RETURN_IF_ERROR(CheckLimits(limits_));
  SKEIN_RETURN_IF_ERROR(ValidateBindings(program_, bindings_));
  if (bindings_.products != nullptr) {
    return absl::UnimplementedError("products on a GPU cannot be observed: use a CPU's back end");
  }
  rules_ = RulesOf(program_, limits_, kv_spec, swap_spec);
  slots_.emplace(limits_, kv_spec == nullptr ? 0 : kv_spec->page_size);
  SKEIN_ASSIGN_OR_RETURN(stream_, OwnedStream::Create());
  SKEIN_ASSIGN_OR_RETURN(input_stream_, OwnedStream::Create());
  SKEIN_ASSIGN_OR_RETURN(output_stream_, OwnedStream::Create());
  SKEIN_ASSIGN_OR_RETURN(finished_, OwnedEvent::Create());
  const bool ports = program_.input >= 0 || program_.output >= 0;
  workspace_ = {
      .places = PlaceOnDevice(program_, limits_, kv_spec == nullptr ? 0 : kv_spec->page_size,
                              facts_.multiprocessors),
      .page_table_stride = limits_.slot_pages,
      .multiprocessors = facts_.multiprocessors - (ports ? kHopMultiprocessors : 0),
      .stream = stream_.get()};
  const DevicePlaces& places = workspace_.places;
  SKEIN_ASSIGN_OR_RETURN(memory_, DeviceMemory::Allocate(places.bytes, "activations"));
  workspace_.data = memory_.data();
  SKEIN_CUDA_RETURN_IF_ERROR(
      cudaMemset(workspace_.At<void>(places.stream_k_workspace), 0xff,
                 static_cast<size_t>(StreamKWorkspaceBytes(facts_.multiprocessors))));
  SKEIN_CUDA_RETURN_IF_ERROR(cudaDeviceSynchronize());
  SKEIN_ASSIGN_OR_RETURN(blas_, Blas::Create(workspace_.At<void>(places.blas_workspace),
                                             static_cast<size_t>(kBlasWorkspaceBytes)));
  workspace_.blas = blas_.get();
  SKEIN_ASSIGN_OR_RETURN(compiled_, CompileProgram(program_, bindings_, workspace_));
  const PinnedSizes pinned = PinnedBy(program_, limits_);
  SKEIN_ASSIGN_OR_RETURN(uploads_, PinnedMemory::Allocate(pinned.uploads, "batches"));
  for (int i = 0; i < kBatches; ++i) {
    runs_[i].self = this;
    runs_[i].batch = i;
    SKEIN_ASSIGN_OR_RETURN(runs_[i].done, OwnedEvent::Create());
    for (const OwnedStream* stream : {&input_stream_, &output_stream_}) {
      SKEIN_RETURN_IF_ERROR(AddExchange(i, stream->get()));
    }
    SKEIN_ASSIGN_OR_RETURN(runs_[i].masked, OwnedEvent::Create());
  }
  if (program_.logits < 0) return absl::OkStatus();
  SKEIN_ASSIGN_OR_RETURN(pool_, ThreadPool::Create(options_.threads));
  SKEIN_ASSIGN_OR_RETURN(sampler_, Sampler::Create(program_, limits_, bindings_.collectives));
  SKEIN_ASSIGN_OR_RETURN(host_stream_, OwnedStream::Create());
  SKEIN_ASSIGN_OR_RETURN(drawn_, PinnedMemory::Allocate(pinned.drawn, "tokens"));
  SKEIN_ASSIGN_OR_RETURN(made_, PinnedMemory::Allocate(pinned.made, "tokens"));
  SKEIN_ASSIGN_OR_RETURN(bits_, PinnedMemory::Allocate(pinned.masks, "masks"));
  SKEIN_ASSIGN_OR_RETURN(put_down_, PinnedMemory::Allocate(pinned.put_down, "histories"));
  SKEIN_ASSIGN_OR_RETURN(logits_, PinnedMemory::Allocate(pinned.logits, "logits"));
  SKEIN_ASSIGN_OR_RETURN(pooled_, PinnedMemory::Allocate(pinned.pooled, "pooled rows"));
  return absl::OkStatus();
}

BatchShape CudaExecutable::LargestShape(int64_t rows) const {
  return {.rows = static_cast<int32_t>(rows),
          .sequences = static_cast<int32_t>(std::min<int64_t>(rows, limits_.slots)),
          .outputs = static_cast<int32_t>(std::min(rows, limits_.outputs)),
          .decodes = true,
          .prefills = true};
}

absl::Status CudaExecutable::RunForNobody(const BatchShape& shape) {
  SKEIN_RETURN_IF_ERROR(Prepare({}, shape));
  SKEIN_RETURN_IF_ERROR(compiled_->Enqueue(shape));
  return AwaitStream();
}

absl::Status CudaExecutable::CaptureGraphs() {
  const bool ports = program_.input >= 0 || program_.output >= 0;
  for (const int32_t rows : cuda::GraphRows(limits_)) {
    for (int i = 0; i < (ports ? kBatches : 1); ++i) {
      Tell(absl::StrCat("capturing the graph of ", FormatCount(rows, "row")));
      BatchShape shape = {
          .batch = i, .rows = rows, .sequences = rows, .outputs = rows, .decodes = true};
      SKEIN_RETURN_IF_ERROR(RunForNobody(shape));
      shape.captured = true;
      SKEIN_ASSIGN_OR_RETURN(graphs_[i][rows], OwnedGraph::Capture(stream_.get(), [&] {
                               return compiled_->Enqueue(shape);
                             }));
    }
  }
  return AwaitStream();
}

void CudaExecutable::Tell(std::string_view stage) const {
  if (options_.warming_up) options_.warming_up(stage);
}

absl::Status CudaExecutable::WarmUp() {
  SKEIN_CUDA_RETURN_IF_ERROR(cudaSetDevice(facts_.device));
  Tell("loading kernels");
  SKEIN_RETURN_IF_ERROR(LoadKernels());
  if (program_.logits >= 0 && program_.pooled.in >= 0) {
    SKEIN_ASSIGN_OR_RETURN(pooler_, Pooler::Create(program_, *bindings_.weights));
  }
  for (const int32_t rows : TunedRows(limits_)) {
    Tell(absl::StrCat("tuning products of ", FormatCount(rows, "row")));
    SKEIN_RETURN_IF_ERROR(compiled_->Tune(LargestShape(rows)));
  }
  // Shards exchange as much as they ever will: what they exchange by is allocated here.
  Tell("running the largest batch");
  SKEIN_RETURN_IF_ERROR(RunForNobody(LargestShape(limits_.rows)));
  if (program_.logits >= 0 && sharded()) {
    const DevicePlaces& places = workspace_.places;
    SKEIN_RETURN_IF_ERROR(SumOverShards(places.gathered, kSampledAtOnce * places.gathered_stride));
    SKEIN_RETURN_IF_ERROR(SumOverShards(places.candidates, CandidateFloats(program_, limits_)));
    SKEIN_RETURN_IF_ERROR(AwaitStream());
  }
  if (compiled_->CanBeCaptured()) SKEIN_RETURN_IF_ERROR(CaptureGraphs());
  SKEIN_RETURN_IF_ERROR(ChooseDecode());
  warm_ = true;
  return absl::OkStatus();
}

int32_t CudaExecutable::GraphRows() const {
  const int64_t rows = rows_.rows();
  if (rows == 0 || rows_.sequences() != rows) return 0;
  if (rules_.outputs && rows_.outputs() != rows) return 0;
  const auto graph = graphs_[0].lower_bound(static_cast<int32_t>(rows));
  return graph == graphs_[0].end() ? 0 : graph->first;
}

View CudaExecutable::port(BufferId id, int i) {
  if (id < 0 || id >= static_cast<BufferId>(program_.buffers.size())) return {};
  const BufferSpec& buffer = program_.buffers[id];
  if (!buffer.port) return {};
  const bool tokens = buffer.rows == BufferSpec::Rows::kTokens;
  return {workspace_.Buffer(id, i), buffer.dtype, tokens ? limits_.rows : limits_.outputs,
          buffer.cols};
}

absl::Status CudaExecutable::CheckAborted() {
  MutexLock lock(&mutex_);
  return aborted_;
}

absl::Status CudaExecutable::CheckCollectives() {
  if (persistent_ != nullptr) SKEIN_RETURN_IF_ERROR(persistent_->Check());
  return bindings_.collectives == nullptr ? absl::OkStatus() : bindings_.collectives->Check();
}

void CudaExecutable::Abort(const absl::Status& why) {
  masks_.Fail(why);
  MutexLock lock(&mutex_);
  if (aborted_.ok()) aborted_ = why;
  if (persistent_ != nullptr) persistent_->Abort();
}

absl::Status CudaExecutable::Health() const {
  SKEIN_CUDA_RETURN_IF_ERROR(cudaSetDevice(facts_.device));
  const cudaError_t code = cudaStreamQuery(CudaStream(stream_.get()));
  if (code == cudaSuccess || code == cudaErrorNotReady) return absl::OkStatus();
  MutexLock lock(&mutex_);
  return Annotate(CudaStatus(code, "cudaStreamQuery"),
                  newest_.empty() ? "before the first step" : newest_ + ", or one before");
}

std::string CudaExecutable::Newest() const {
  MutexLock lock(&mutex_);
  return newest_;
}

BatchShape CudaExecutable::ShapeOf(int i) const {
  BatchShape shape = {.batch = i,
                      .rows = static_cast<int32_t>(rows_.rows()),
                      .sequences = static_cast<int32_t>(rows_.sequences()),
                      .outputs = static_cast<int32_t>(rows_.outputs())};
  for (const BatchSequence& sequence : batches_[i].sequences) {
    (sequence.rows == 1 ? shape.decodes : shape.prefills) = true;
  }
  return shape;
}

absl::StatusOr<Ticket> CudaExecutable::Enqueue(int i) {
  SKEIN_RETURN_IF_ERROR(CheckAborted());
  if (!warm_) return absl::FailedPreconditionError("a batch came before WarmUp");
  const Batch& batch = batches_[i];
  SKEIN_RETURN_IF_ERROR(Annotate(ValidateBatch(rules_, batch), absl::StrCat("step ", batch.step)));
  // What fails behind this has changed the slots: nothing more can be run.
  absl::Status status = Run(i);
  if (!status.ok()) {
    status = Annotate(status, absl::StrCat("step ", batch.step));
    Abort(status);
    return status;
  }
  runs_[i].ticket = ++tickets_;
  return tickets_;
}

absl::Status CudaExecutable::Run(int i) {
  const Batch& batch = batches_[i];
  SKEIN_CUDA_RETURN_IF_ERROR(cudaSetDevice(facts_.device));
  SKEIN_RETURN_IF_ERROR(std::exchange(between_, absl::OkStatus()));
  put_down_bytes_ = 0;
  SKEIN_RETURN_IF_ERROR(TakeBackGuesses(i));
  SKEIN_RETURN_IF_ERROR(TakeIn(i));
  if (bindings_.collectives != nullptr) bindings_.collectives->BeginBatch(batch);
  SKEIN_RETURN_IF_ERROR(CopyPages(batch));
  const BatchShape shape = ShapeOf(i);
  runs_[i].pools =
      pooler_.has_value() && std::any_of(batch.sequences.begin(), batch.sequences.end(),
                                         [](const BatchSequence& of) { return of.pooled > 0; });
  const bool persistent = profile_steps_ == 0 && GoesPersistent(i, shape);
  const int32_t padded = profile_steps_ > 0 || persistent ? 0 : GraphRows();
  runs_[i].what =
      absl::StrCat("step ", batch.step, ": ", FormatCount(rows_.sequences(), "sequence"), " of ",
                   FormatCount(rows_.rows(), "row"),
                   persistent   ? ", by one kernel"
                   : padded > 0 ? absl::StrCat(", the graph of ", padded)
                                : "");
  {
    MutexLock lock(&mutex_);
    newest_ = runs_[i].what;
  }
  if (profile_steps_ > 0) return RunMarked(i);
  SKEIN_RETURN_IF_ERROR(Upload(i, padded));
  SKEIN_RETURN_IF_ERROR(AwaitExchanges(i));
  if (persistent) {
    SKEIN_RETURN_IF_ERROR(ReplaySums([&] { return persistent_->Enqueue(shape); }));
  } else if (padded > 0) {
    const bool ports = !graphs_[1].empty();
    const OwnedGraph& graph = graphs_[ports ? i : 0].at(padded);
    SKEIN_RETURN_IF_ERROR(ReplaySums([&] { return graph.Launch(stream_.get()); }));
  } else {
    SKEIN_RETURN_IF_ERROR(compiled_->Enqueue(shape));
  }
  return EnqueueDraws(i);
}

absl::Status CudaExecutable::RunMarked(int i) {
  {
    const NvtxRange range("upload");
    SKEIN_RETURN_IF_ERROR(Upload(i, /*padded=*/0));
  }
  SKEIN_RETURN_IF_ERROR(AwaitExchanges(i));
  BatchShape shape = ShapeOf(i);
  shape.marked = true;
  SKEIN_RETURN_IF_ERROR(compiled_->Enqueue(shape));
  const NvtxRange range("draws");
  if (--profile_steps_ == 0 && options_.profile_ended) options_.profile_ended();
  return EnqueueDraws(i);
}

absl::StatusOr<bool> CudaExecutable::Wait(Ticket ticket, Stream stream, absl::Time deadline) {
  const auto run = std::find_if(runs_.begin(), runs_.end(),
                                [ticket](const BatchRun& run) { return run.ticket == ticket; });
  if (run == runs_.end()) return true;  // a later one took its place
  SKEIN_CUDA_RETURN_IF_ERROR(cudaSetDevice(facts_.device));
  if (stream.handle != nullptr) {
    SKEIN_RETURN_IF_ERROR(run->done.Delay(stream));
    return true;
  }
  absl::Status idle;
  const absl::StatusOr<bool> looked = run->done.Await(deadline, [&] { return idle = Idle(); });
  SKEIN_RETURN_IF_ERROR(Annotate(idle, run->what));
  SKEIN_RETURN_IF_ERROR(Annotate(looked.status(), run->what));
  // What ended because the collectives failed is not done.
  SKEIN_RETURN_IF_ERROR(Annotate(CheckCollectives(), run->what));
  const bool done = *looked;
  if (done) SKEIN_RETURN_IF_ERROR(run->status);
  return done;
}

absl::Status CudaExecutable::Idle() {
  SKEIN_RETURN_IF_ERROR(CheckCollectives());
  SKEIN_RETURN_IF_ERROR(CheckAborted());
  return bindings_.collectives == nullptr ? absl::OkStatus() : bindings_.collectives->Progress();
}

absl::Status CudaExecutable::AwaitStream() {
  SKEIN_RETURN_IF_ERROR(finished_.Record(stream_.get()));
  SKEIN_RETURN_IF_ERROR(
      finished_.Await(absl::InfiniteFuture(), [this] { return Idle(); }).status());
  // What ended because the collectives failed is not done.
  return CheckCollectives();
}

void CudaExecutable::After(int i, Stream stream) {
  if (stream.handle != nullptr) between_.Update(NoteExchange(i, stream));
}

absl::Status CudaExecutable::AddExchange(int i, Stream stream) {
  BatchRun::Exchange& exchange = runs_[i].exchanges.emplace_back();
  exchange.stream = stream;
  SKEIN_ASSIGN_OR_RETURN(exchange.given, OwnedEvent::Create());
  return absl::OkStatus();
}

absl::Status CudaExecutable::NoteExchange(int i, Stream stream) {
  std::vector<BatchRun::Exchange>& all = runs_[i].exchanges;
  auto exchange = std::find_if(
      all.begin(), all.end(), [stream](const auto& e) { return e.stream.handle == stream.handle; });
  if (exchange == all.end()) {
    SKEIN_RETURN_IF_ERROR(AddExchange(i, stream));
    exchange = all.end() - 1;
  }
  exchange->due = true;
  return exchange->given.Record(stream);
}

absl::Status CudaExecutable::AwaitExchanges(int i) {
  for (BatchRun::Exchange& exchange : runs_[i].exchanges) {
    if (!std::exchange(exchange.due, false)) continue;
    SKEIN_RETURN_IF_ERROR(exchange.given.Delay(stream_.get()));
  }
  return absl::OkStatus();
}

}  // namespace skein::kernels::cuda
