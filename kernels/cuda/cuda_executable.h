// Runs Programs on a GPU. Batches are queued on one stream; the host goes on meanwhile.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "base/range.h"
#include "base/stream.h"
#include "base/thread_pool.h"
#include "base/view.h"
#include "kernels/cuda/batch_upload.h"
#include "kernels/cuda/blas_linear.h"
#include "kernels/cuda/compile.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/device_draws.h"
#include "kernels/cuda/persistent/decode_choice.h"
#include "kernels/cuda/persistent/persistent_program.h"
#include "kernels/cuda/resources.h"
#include "kernels/host/masks.h"
#include "kernels/host/pooler.h"
#include "kernels/host/sampler.h"
#include "kernels/host/slots.h"
#include "kernels/ops/backend.h"
#include "kernels/ops/validate.h"

namespace skein::kernels::cuda {

struct DeviceFacts {
  int device = 0;  // CUDA's number
  int32_t multiprocessors = 0;
};

// A batch is one upload, the kernels, and where the Program has logits its draws. They are made on
// the device, where the next batch finds the tokens; the host reports them while that one runs, and
// says which guesses were right. The few that it makes itself, from rows of logits, the next batch
// waits for. Shards sum up what each of them has of a row, so that all draw from the whole one.
//
// The host keeps a mirror of the slots: a batch's rows are known as it is enqueued, but for what
// guesses before it gave; a batch behind one with guesses waits for it.
class CudaExecutable final : public Executable {
 public:
  static absl::StatusOr<std::unique_ptr<CudaExecutable>> Create(const Program& program,
                                                                const Limits& limits,
                                                                const Bindings& bindings,
                                                                const DeviceFacts& facts,
                                                                const CudaOptions& options);
  ~CudaExecutable() override;

  absl::Status WarmUp() override;
  Batch& batch(int i) override { return batches_[i]; }
  Stream port_stream(BufferId id) const override {
    return (id == program_.input ? input_stream_ : output_stream_).get();
  }
  View port(BufferId id, int i) override;
  absl::StatusOr<Ticket> Enqueue(int i) override;
  absl::StatusOr<bool> Wait(Ticket ticket, Stream stream, absl::Time deadline) override;
  void After(int i, Stream stream) override;
  const BatchResult& result(int i) const override { return runs_[i].result; }
  void SetTokens(absl::Span<const int32_t> slots, absl::Span<const int32_t> tokens) override;
  void SetMask(int i, int32_t slot, absl::Span<const uint32_t> bits) override {
    masks_.Set(i, slot, bits);
  }
  void Abort(const absl::Status& why) override;
  absl::Status Health() const override;
  std::string Newest() const override;

 private:
  // Of draws. Masked ones are sampled, and wait for their masks.
  enum class Kind : uint8_t { kGreedy, kSampled, kMasked, kByHost };
  // What a slot's draws depend on, but for its output.
  struct SlotDraws {
    Kind kind = Kind::kByHost;
    SampledDraw draw;  // see SlotParameters
    serving::SamplingParams sampling;
    // Answers to one share it.
    std::shared_ptr<const std::vector<int32_t>> prompt =
        std::make_shared<const std::vector<int32_t>>();
    uint64_t position = 0;  // tokens that were drawn, also by batches that are under way
  };
  // A batch under way, or its last one.
  struct BatchRun {
    CudaExecutable* self = nullptr;
    int batch = 0;
    Ticket ticket = 0;
    std::string what;  // for errors of its kernels, which CUDA tells of without a name
    OwnedEvent done;
    // By streams: the next run waits for what they were given.
    struct Exchange {
      Stream stream;
      OwnedEvent given;
      bool due = false;
    };
    std::vector<Exchange> exchanges;
    OwnedEvent masked;  // the masks are in the host's pinned memory
    // For its draws, which come later: what the slots said as it was enqueued.
    bool by_host = false;  // some of them
    // Or a prompt's token that its row tells of.
    struct Draw {
      int64_t output = 0;
      int32_t slot = 0;
      Kind kind = Kind::kByHost;
      int32_t guesses = 0;  // before it
      bool leaves = true;   // as SampledDraw has it
      int32_t token = -1;   // the prompt's, with `logprobs`
      int32_t logprobs = -1;
      bool begins() const { return token < 0 && guesses == 0; }  // the first one of a sequence
    };
    std::vector<Draw> draws;
    int32_t masks = 0;          // of those that the device makes
    std::vector<int32_t> made;  // [outputs]: the index of its draw among those made, or -1
    std::vector<const SlotUpdate*> shortened;
    std::vector<int64_t> first_positions;  // [sequences]
    absl::Status status;                   // of the draws
    bool pools = false;                    // some of its sequences do
    BatchResult result;
    // [sequences that draw]: guesses whose outcome the slots have not heard of; else empty.
    std::vector<int32_t> guesses;
  };

  CudaExecutable(const Program& program, const Limits& limits, const Bindings& bindings,
                 const DeviceFacts& facts, const CudaOptions& options);
  absl::Status Init();
  absl::Status CheckAborted();
  // Of what streams have of the collectives, for the thread of their calls; and of a step by one
  // kernel, which may be given up.
  absl::Status CheckCollectives();
  // What a thread does between looks at what it waits for: hears Abort, and helps on what it sent.
  absl::Status Idle();
  // Waits for all that the stream was given.
  absl::Status AwaitStream();

  // Queues batch `i`, which was checked.
  absl::Status Run(int i);
  // The same, launched kernel by kernel, with ranges of NVTX.
  absl::Status RunMarked(int i);
  absl::Status TakeIn(int i);
  // What runs instead, where a captured graph fits: so many rows, sequences and outputs; else 0.
  int32_t GraphRows() const;
  BatchShape ShapeOf(int i) const;
  absl::Status AddExchange(int i, Stream stream);
  absl::Status NoteExchange(int i, Stream stream);
  // Of the batch's last run, and of its input.
  absl::Status AwaitExchanges(int i);
  absl::Status Upload(int i, int32_t padded);
  // `padded`: the counts up to which the batch's arrays are filled, where it has fewer.
  absl::Status Prepare(const BatchUpload& upload, const BatchShape& padded);
  // The most sequences and outputs that so many rows may be of.
  BatchShape LargestShape(int64_t rows) const;
  // A batch of padding alone, to its end.
  absl::Status RunForNobody(const BatchShape& shape);
  absl::Status CaptureGraphs();
  // Which batches go by the persistent step.
  absl::Status ChooseDecode();
  // Of a step of so many sequences, of one row each at the end of so many positions; the mean of
  // shards.
  absl::StatusOr<StepTimes> TimeDecode(int32_t rows, const OwnedGraph& graph, int64_t length);
  // The length at which contexts are timed, for which there are pages; 1 where there are none.
  int64_t TimedLength(int32_t rows) const;
  // What PrepareBatch fills, as if rows were of such sequences, but for their places in the cache.
  absl::Status PretendContexts(int32_t rows, int64_t length);
  // Of this stage's shards, on all of them.
  absl::StatusOr<std::vector<float>> SumOverRanks(std::vector<float> values);
  // Gives the stream a step, which has all sums over shards.
  absl::Status ReplaySums(absl::FunctionRef<absl::Status()> launch);
  // Whether such a batch does.
  bool GoesPersistent(int i, const BatchShape& shape) const;
  void Tell(std::string_view stage) const;  // of WarmUp
  absl::Status CopyPages(const Batch& batch);
  absl::Status StartDraws(const SlotStart& start, int i);
  // Brings something of the host's into the device's memory, before batch `i` runs.
  absl::Status PutDown(int i, void* to, const void* from, int64_t bytes);
  absl::Status PutDownTokens(int i, int32_t slot, int64_t position,
                             absl::Span<const int32_t> tokens);
  absl::Status PutDownMu(int i, int32_t slot, float mu);
  // What the host drew of a slot that the device draws for else.
  absl::Status PutDownDraws(int i, const SampledTokens& drawn);
  SlotMemory MemoryOfSlots() const;
  bool CanSample() const;  // on the device
  Kind KindOf(const BatchSequence& sequence) const;
  void ListPromptTokens(const BatchSequence& sequence, int64_t first_position, int64_t first_output,
                        BatchRun& run) const;
  SampledDraw SampledDrawOf(const BatchRun::Draw& draw) const;
  // Which draws the batch has, and who makes them.
  void ListDraws(int i);
  // The guesses of slots whose draws depend on their histories.
  absl::Status PutDownGuesses(int i);
  void FillDraws(int i, std::byte* block);  // of the upload; slots are longer by a draw then
  DeviceDraw* MadeBy(int i) const;          // [outputs]
  absl::Status EnqueueDraws(int i);
  absl::Status EnqueueGreedy(const BatchRun& run, const DrawRows& rows);
  absl::Status EnqueueSampled(BatchRun& run, const DrawRows& rows);
  absl::Status EnqueueSampled(const SampledDraws& draws);
  absl::Status SumOverShards(int64_t place, int64_t floats);
  static void AwaitMasks(void* run);
  absl::Status AwaitMasks(const BatchRun& run);
  uint32_t* BitsOf(int i) const;  // [outputs, MaskWords]
  absl::Status CopyRows(const BatchRun& run);
  // [rows, cols] of the buffer that is pooled, in the host's memory.
  std::byte* PooledRowsOf(int i) const;
  absl::Status CopyPooledRows(const BatchRun& run);
  void ForEach(int64_t tasks, absl::FunctionRef<void(int64_t)> task) const;
  absl::Status DrawWithOthers(BatchRun& run);
  void TakeUpDraws(const BatchRun& run);
  bool sharded() const { return program_.vocab_shards > 1; }
  void NumberMade(BatchRun& run) const;
  absl::Status TakeBackDraws(const SlotUpdate& update, int i);
  // On a thread of CUDA's, when what is drawn from is there.
  static void Draw(void* run);
  absl::Status Draw(BatchRun& run);
  absl::Status TakeBackGuesses(int i);

  const Program program_;
  const Limits limits_;
  const Bindings bindings_;
  const DeviceFacts facts_;
  const CudaOptions options_;
  int profile_steps_ = 0;  // left
  CudaKv* const kv_;
  BatchRules rules_;
  OwnedStream stream_;
  // Each hop has its own, so that what comes waits behind nothing that goes.
  OwnedStream input_stream_;
  OwnedStream output_stream_;
  OwnedStream host_stream_;  // of what the host does to draw, in the batches' order
  OwnedEvent finished_;      // all that stream_ was given when it was recorded last
  DeviceMemory memory_;
  PinnedMemory uploads_;   // [batches], as places_.uploads
  PinnedMemory drawn_;     // SetPair [batches][slots]
  PinnedMemory made_;      // DeviceDraw [batches][outputs]: by kind
  PinnedMemory bits_;      // of masks, [batches][outputs][MaskWords], in the order of their draws
  PinnedMemory put_down_;  // [batches][kPutDownBytes]
  int64_t put_down_bytes_ = 0;  // of the batch that is enqueued
  PinnedMemory logits_;         // float [outputs, cols], of the batch that draws last
  PinnedMemory pooled_;         // [batches][rows, cols]
  std::unique_ptr<Blas> blas_;
  Workspace workspace_;
  std::unique_ptr<CompiledProgram> compiled_;
  // Of batches in which every row is its sequence's only one, and an output: by their rows.
  std::array<std::map<int32_t, OwnedGraph>, kBatches> graphs_;
  // Of batches of few rows; null where there is none. And which of them it takes.
  std::unique_ptr<PersistentProgram> persistent_;
  DecodeChoice decode_choice_;
  std::unique_ptr<ThreadPool> pool_;

  std::optional<SlotStates> slots_;
  std::vector<SlotDraws> slot_draws_;    // [slots]
  HostBatch rows_;                       // of the batch that is enqueued
  BatchUpload upload_;                   // likewise
  std::vector<SetPair> set_tokens_;      // that the next batch brings
  const SetPair* last_drawn_ = nullptr;  // by the batch that was enqueued last
  int32_t last_drawn_count_ = 0;
  std::array<Batch, kBatches> batches_;
  std::array<BatchRun, kBatches> runs_;
  Ticket tickets_ = 0;
  bool warm_ = false;
  absl::Status between_;  // of After and SetTokens, for the next batch to tell

  std::optional<Sampler> sampler_;  // used in the order of host_stream_ alone
  std::optional<Pooler> pooler_;    // set by WarmUp, where rows can be pooled
  TokenMasks masks_;
  mutable Mutex mutex_;
  absl::Status aborted_ ABSL_GUARDED_BY(mutex_);
  std::string newest_ ABSL_GUARDED_BY(mutex_);  // batch, as BatchRun::what
};

}  // namespace skein::kernels::cuda
