#include "kernels/cuda/cuda_executable.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "base/units.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/device_places.h"
#include "kernels/cuda/load_kernels.h"
#include "kernels/cuda/nvtx_range.h"
#include "kernels/cuda/prepare_batch.h"
#include "kernels/cuda/stream_k_sizes.h"

namespace skein::kernels::cuda {
namespace {

// Left to the kernels of hops, which wait on the device for the other stage, a block on each: a
// kernel that has a block on every multiprocessor would begin its last one when another one ends.
constexpr int32_t kHopMultiprocessors = 4;

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
  if (program_.logits >= 0 && compiled_->CanBeCaptured()) SKEIN_RETURN_IF_ERROR(CaptureGraphs());
  warm_ = true;
  return absl::OkStatus();
}

int32_t CudaExecutable::GraphRows() const {
  const int64_t rows = rows_.rows();
  if (rows == 0 || rows_.sequences() != rows || rows_.outputs() != rows) return 0;
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
  return bindings_.collectives == nullptr ? absl::OkStatus() : bindings_.collectives->Check();
}

void CudaExecutable::Abort(const absl::Status& why) {
  masks_.Fail(why);
  MutexLock lock(&mutex_);
  if (aborted_.ok()) aborted_ = why;
}

absl::Status CudaExecutable::Health() const {
  SKEIN_CUDA_RETURN_IF_ERROR(cudaSetDevice(facts_.device));
  const cudaError_t code = cudaStreamQuery(CudaStream(stream_.get()));
  if (code == cudaSuccess || code == cudaErrorNotReady) return absl::OkStatus();
  MutexLock lock(&mutex_);
  return Annotate(CudaStatus(code, "cudaStreamQuery"),
                  newest_.empty() ? "before the first step" : newest_ + ", or one before");
}

void CudaExecutable::SetTokens(absl::Span<const int32_t> slots, absl::Span<const int32_t> tokens) {
  for (size_t i = 0; i < slots.size(); ++i) {
    const auto set = std::find_if(set_tokens_.begin(), set_tokens_.end(),
                                  [&](const SetPair& pair) { return pair.index == slots[i]; });
    if (set != set_tokens_.end()) {
      set->value = tokens[i];
    } else {
      set_tokens_.push_back({slots[i], tokens[i]});
    }
  }
}

absl::Status CudaExecutable::TakeIn(int i) {
  BatchRun& run = runs_[i];
  const Batch& batch = batches_[i];
  run.shortened.clear();
  for (const SlotStart& start : batch.starts) SKEIN_RETURN_IF_ERROR(StartDraws(start, i));
  SKEIN_RETURN_IF_ERROR(
      slots_->Update(batch, [&](const SlotUpdate& update) { run.shortened.push_back(&update); }));
  for (const SlotUpdate* update : run.shortened) {
    SKEIN_RETURN_IF_ERROR(TakeBackDraws(*update, i));
  }
  SKEIN_RETURN_IF_ERROR(slots_->Fill(batch, rows_));
  // Where no operation takes rows out, a batch's outputs are another stage's.
  if (!rules_.outputs) rows_.output_rows.clear();
  run.first_positions.clear();
  for (int64_t s = 0; s < rows_.sequences(); ++s) {
    run.first_positions.push_back(rows_.positions[rows_.row_begin[s]]);
  }
  ListDraws(i);
  bool guesses = false;
  for (const BatchSequence& sequence : batch.sequences) {
    if (!sequence.draws) continue;
    run.guesses.push_back(sequence.guesses);
    guesses |= sequence.guesses > 0;
  }
  if (!guesses) run.guesses.clear();
  return guesses ? PutDownGuesses(i) : absl::OkStatus();
}

absl::Status CudaExecutable::Upload(int i, int32_t padded) {
  const Batch& batch = batches_[i];
  BatchUpload& upload = upload_;
  upload = {.rows = static_cast<int32_t>(rows_.rows()),
            .sequences = static_cast<int32_t>(rows_.sequences()),
            .outputs = static_cast<int32_t>(rows_.outputs()),
            .tokens = static_cast<int32_t>(set_tokens_.size())};
  for (const BatchRun::Draw& draw : runs_[i].draws) {
    upload.greedy += draw.kind == Kind::kGreedy ? 1 : 0;
    upload.sampled += draw.kind == Kind::kSampled || draw.kind == Kind::kMasked ? 1 : 0;
  }
  for (const SlotUpdate& update : batch.updates) {
    upload.pages += static_cast<int64_t>(update.pages.size());
  }
  std::byte* const block = uploads_.data() + i * workspace_.places.upload_bytes;
  const auto put = [block](int64_t place, const auto& list) {
    if (!list.empty()) std::memcpy(block + place, list.data(), list.size() * sizeof(list[0]));
  };
  put(upload.kv_slots(), rows_.kv_slots);
  put(upload.set_tokens(), set_tokens_);
  // As the mirror has them: an entry that is set twice has one value.
  auto* page = reinterpret_cast<SetPair*>(block + upload.set_pages());
  for (const SlotUpdate& update : batch.updates) {
    const int64_t first = update.slot * limits_.slot_pages + update.first_page;
    for (size_t p = 0; p < update.pages.size(); ++p) {
      const int64_t index = first + static_cast<int64_t>(p);
      *page++ = {static_cast<int32_t>(index), rows_.page_tables[index]};
    }
  }
  auto* id = reinterpret_cast<int32_t*>(block + upload.token_ids());
  int64_t row = 0;
  for (const BatchSequence& sequence : batch.sequences) {
    for (int32_t r = 0; r < sequence.rows; ++r, ++row) {
      const int32_t token = batch.token_ids[row];
      *id++ = token < 0 ? NewestOf(sequence.slot) : token;
    }
  }
  put(upload.positions(), rows_.positions);
  put(upload.row_begin(), rows_.row_begin);
  put(upload.slots(), rows_.slots);
  put(upload.lengths(), rows_.context_lengths);
  put(upload.output_rows(), rows_.output_rows);
  FillDraws(i, block);
  set_tokens_.clear();

  auto* const to = workspace_.At<std::byte>(workspace_.places.uploads[i]);
  SKEIN_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(to, block, static_cast<size_t>(upload.bytes()),
                                             cudaMemcpyHostToDevice, CudaStream(stream_.get())));
  return Prepare(upload, {.batch = i, .rows = padded, .sequences = padded, .outputs = padded});
}

absl::Status CudaExecutable::Prepare(const BatchUpload& upload, const BatchShape& padded) {
  const DevicePlaces& places = workspace_.places;
  return cuda::Enqueue(
      PrepareBatch{.upload = upload,
                   .block = workspace_.At<std::byte>(places.uploads[padded.batch]),
                   .drawn = last_drawn_,
                   .drawn_count = last_drawn_count_,
                   .padded_rows = std::max(padded.rows, upload.rows),
                   .padded_sequences = std::max(padded.sequences, upload.sequences),
                   .padded_outputs = std::max(padded.outputs, upload.outputs),
                   .newest_tokens = workspace_.At<int32_t>(places.newest_tokens),
                   .lengths = workspace_.At<int32_t>(places.lengths),
                   .page_tables = workspace_.At<int32_t>(places.page_tables),
                   .token_ids = workspace_.At<int32_t>(places.token_ids),
                   .positions = workspace_.At<int32_t>(places.positions),
                   .kv_slots = workspace_.At<int64_t>(places.kv_slots),
                   .row_begin = workspace_.At<int32_t>(places.row_begin),
                   .slots = workspace_.At<int32_t>(places.slots),
                   .output_rows = workspace_.At<int32_t>(places.output_rows)},
      stream_.get());
}

absl::Status CudaExecutable::CopyPages(const Batch& batch) {
  auto* const swap = static_cast<CudaKv*>(bindings_.swap);
  for (const PageCopy& copy : batch.copies) {
    const bool out = copy.kind == PageCopy::Kind::kSwapOut;
    const bool in = copy.kind == PageCopy::Kind::kSwapIn;
    SKEIN_RETURN_IF_ERROR(
        (out ? swap : kv_)->EnqueueCopy(in ? *swap : *kv_, copy.from, copy.to, stream_.get()));
  }
  return absl::OkStatus();
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
  SKEIN_RETURN_IF_ERROR(ValidateBatch(rules_, batch));
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
  SKEIN_RETURN_IF_ERROR(std::exchange(after_, absl::OkStatus()));
  put_down_bytes_ = 0;
  SKEIN_RETURN_IF_ERROR(TakeBackGuesses(i));
  SKEIN_RETURN_IF_ERROR(TakeIn(i));
  if (bindings_.collectives != nullptr) bindings_.collectives->BeginBatch(batch);
  SKEIN_RETURN_IF_ERROR(CopyPages(batch));
  const int32_t padded = profile_steps_ > 0 ? 0 : GraphRows();
  runs_[i].what = absl::StrCat(
      "step ", batch.step, ": ", FormatCount(rows_.sequences(), "sequence"), " of ",
      FormatCount(rows_.rows(), "row"), padded > 0 ? absl::StrCat(", the graph of ", padded) : "");
  {
    MutexLock lock(&mutex_);
    newest_ = runs_[i].what;
  }
  if (profile_steps_ > 0) return RunMarked(i);
  SKEIN_RETURN_IF_ERROR(Upload(i, padded));
  SKEIN_RETURN_IF_ERROR(AwaitExchanges(i));
  if (padded > 0) {
    const bool ports = !graphs_[1].empty();
    const OwnedGraph& graph = graphs_[ports ? i : 0].at(padded);
    const auto launch = [&] { return graph.Launch(stream_.get()); };
    const int64_t sums = compiled_->sums();
    SKEIN_RETURN_IF_ERROR(sums == 0 ? launch()
                                    : bindings_.collectives->Replay(sums, stream_.get(), launch));
  } else {
    SKEIN_RETURN_IF_ERROR(compiled_->Enqueue(ShapeOf(i)));
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
  if (stream.handle != nullptr) after_.Update(NoteExchange(i, stream));
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
