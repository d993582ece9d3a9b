// The interface that runs Programs on a device. The back ends are the reference (scalar, the oracle
// of tests), the CPU's and CUDA's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/counted_numbers.h"
#include "base/expert_load.h"
#include "base/peer_sums.h"
#include "base/stream.h"
#include "base/view.h"
#include "kernels/ops/batch.h"
#include "kernels/ops/program.h"

namespace skein::kernels {

// Exchanges a Program's data with the other shards of its stage. The engine implements it over a
// communicator; kernels know nothing of how.
class Collectives {
 public:
  virtual ~Collectives() = default;
  // Called on the thread that makes a batch's calls, before the first one, so that a report of a
  // hang can name the step, whatever the host prepares meanwhile, and shards find that they have
  // unlike batches.
  virtual void BeginBatch(const Batch& /*batch*/) {}
  // Sums `data` over the shards, in place.
  virtual absl::Status AllReduce(View data, Stream stream) = 0;
  // out = the shards' inputs in shard order; out.elements() = shards * in.elements().
  virtual absl::Status AllGather(ConstView in, View out, Stream stream) = 0;
  // Called between operations by back ends that compute on the calling thread, and by others while
  // they wait: what it sent earlier may need its help to arrive.
  virtual absl::Status Progress() { return absl::OkStatus(); }

  // Whether AllReduce gives a device's stream the sum and returns, so that a graph can hold it.
  virtual bool RunOnDevice() const { return false; }
  // Gives a stream that is being captured a sum.
  virtual absl::Status CaptureAllReduce(View /*data*/, Stream /*stream*/) {
    return absl::UnimplementedError("these sums cannot be captured");
  }
  // Not null: such sums go over memory that kernels reach, so that one of the back end's may make
  // the sum itself, with more on the way. A stream that is being captured just gets the kernel.
  virtual const PeerMemory* PeersOf(const View& /*data*/) const { return nullptr; }
  // As AllReduce, by such a kernel, which `give` gives the stream.
  virtual absl::Status AllReduceBy(View /*data*/, Stream /*stream*/,
                                   absl::FunctionRef<absl::Status()> give) {
    return give();
  }
  // Calls `launch`, which gives `stream` a graph that has captured so many sums, or a kernel that
  // makes them.
  virtual absl::Status Replay(int64_t /*sums*/, Stream /*stream*/,
                              absl::FunctionRef<absl::Status()> launch) {
    return launch();
  }
  // Tells what has gone wrong with calls that streams have, without waiting. A back end asks again
  // and again while it waits for a device, and when it has waited: after an error the data are
  // void.
  virtual absl::Status Check() { return absl::OkStatus(); }
};

// Lends memory of the host for rows on their way to a device.
class Staging {
 public:
  virtual ~Staging() = default;
  virtual absl::Span<std::byte> bytes() = 0;
};

// Rows [first, first + count) of a weight.
struct WeightRows {
  WeightId weight = 0;
  int64_t first = 0;
  int64_t count = 0;
  // 0: the rows' elements. Quantised weights may have more components (scales, zeros).
  int32_t component = 0;
};

// Holds all weights of a Program in a back end's own layout, in one piece of the device's memory,
// zero-filled. Row lookup (EmbedOp) and product (MatMulOp) work on the same form, so tied
// embeddings are kept once. Any number of threads may fill it; executables read it afterwards.
class Weights {
 public:
  virtual ~Weights() = default;
  const std::vector<ProgramWeight>& specs() const { return specs_; }
  virtual int64_t bytes() const = 0;
  virtual int64_t bytes(WeightId weight) const = 0;

  // Returns memory of so many bytes to read rows into; waits while too much is on its way.
  virtual absl::StatusOr<std::unique_ptr<Staging>> Stage(int64_t bytes) = 0;
  // Takes rows, [count, cols] in their dtype, from what was staged; they may be on their way until
  // FinishLoading. Rows may come in any order and pieces, from any thread, but those of one call
  // have one dtype. InvalidArgument for rows that are not there.
  virtual absl::Status Load(const WeightRows& rows, std::unique_ptr<Staging> staged) = 0;
  // Makes rows of a matrix of BF16 where they are to lie, with the bits that Load would be given;
  // any thread may call. Unimplemented where the back end makes none: they are to be loaded.
  virtual absl::Status Make(const WeightRows& /*rows*/, const CountedRows& /*numbers*/) {
    return absl::UnimplementedError("this back end makes no weights");
  }
  // Returns the numbers of a vector whose rows have come.
  virtual absl::StatusOr<std::vector<float>> ReadVector(WeightId weight) const = 0;
  // Call it once all rows have come, before Compile.
  virtual absl::Status FinishLoading() = 0;

 protected:
  explicit Weights(const Program& program) : specs_(program.weights) {}

 private:
  const std::vector<ProgramWeight> specs_;
};

// Holds the paged keys and values of all of a rank's layers. The layout inside a page is the back
// end's.
class KvCache {
 public:
  virtual ~KvCache() = default;
  const KvSpec& spec() const { return spec_; }

  // Makes page `to_page` of all layers a copy of page `from_page` of `from`: this cache (before a
  // write to a shared page) or another one of the same back end, with as many pages as it likes (to
  // swap out and in). Neither may have an executable that runs. Costs a copy of the page's bytes.
  // InvalidArgument for a page out of range, another back end's cache, or one whose pages have
  // another shape or dtype.
  virtual absl::Status CopyPage(const KvCache& from, int32_t from_page, int32_t to_page) = 0;

 protected:
  explicit KvCache(const KvSpec& spec) : spec_(spec) {}

 private:
  KvSpec spec_;
};

// Sees what weights are multiplied by, product by product, on the thread that runs the batch.
class ProductObserver {
 public:
  virtual ~ProductObserver() = default;
  // `in` [rows, cols of the weight]: of a MatMulOp, or those rows of an ExpertsOp that chose the
  // weight's expert, of which a batch may give some in one call and some in the next. Valid during
  // the call.
  virtual void Multiplied(WeightId weight, const float* in, int64_t rows) = 0;
};

// The parts that a Program is bound to. All of them outlive the executable.
struct Bindings {
  const Weights* weights = nullptr;    // the Program's; may be null where it has none
  KvCache* kv = nullptr;               // null where no operation uses it
  KvCache* swap = nullptr;             // where pages are swapped to; may be null
  Collectives* collectives = nullptr;  // may be null where the Program has none
  // May be null. Unimplemented where a back end computes on a device.
  ProductObserver* products = nullptr;
};

// Names a batch on its way. Later ones are greater.
using Ticket = int64_t;

// A Program bound to weights, cache, collectives and buffers, with the state of its slots, which
// are all free at first. Batches run one after the other, in the order of Enqueue; back ends that
// compute on the host may run them on the calling thread. Draws the tokens of a Program that has
// logits: a pure function of logits, parameters and history, with the same bits on every shard. One
// thread at a time may call, SetMask and Abort aside.
class Executable {
 public:
  // So many batches may be under way at once, each with its own input and result.
  static constexpr int kBatches = 2;

  virtual ~Executable() = default;

  // Captures and tunes what the device needs, and lets the collectives meet. Every rank of the
  // replica calls it once, before its first batch.
  virtual absl::Status WarmUp() = 0;

  // Returns the input of batch `i` in [0, kBatches). It must not be touched while the batch is
  // under way, which takes out of it what it likes.
  virtual Batch& batch(int i) = 0;
  // The stream on which a port is exchanged with another stage: its memory is the device's.
  virtual Stream port_stream(BufferId /*id*/) const { return kHostStream; }
  // Returns the whole storage of a port, [limits.rows or outputs, cols], in the device's memory; a
  // null view for a buffer that is no port. Its address never changes. Input and output are each
  // batch's own; logits are those of the batch that ran last. A run may overwrite its input.
  virtual View port(BufferId id, int i) = 0;

  // Runs batch `i`, which is not under way. InvalidArgument for a batch that breaks its contract
  // (too many rows; a slot, page or token out of range), and FailedPrecondition before WarmUp;
  // nothing runs then. Wait tells what fails later. After an error nothing more can be run.
  virtual absl::StatusOr<Ticket> Enqueue(int i) = 0;
  // Makes work that `stream` is given from now on wait for the batch; on kHostStream the caller
  // waits, by polling, so that an Abort is always heard. Returns whether the batch was over by the
  // deadline. Errors are those of the collectives, and Abort's.
  virtual absl::StatusOr<bool> Wait(Ticket ticket, Stream stream, absl::Time deadline) = 0;
  // The next run of batch `i` waits for what `stream` was given so far.
  virtual void After(int i, Stream stream) = 0;

  // Returns the result of batch `i`'s last run, which is over; an empty one where the Program has
  // no logits.
  virtual const BatchResult& result(int i) const = 0;
  // Sets the newest tokens of these slots, which another rank drew, for batches that are enqueued
  // from now on. `tokens` lies in the host's memory.
  virtual void SetTokens(absl::Span<const int32_t> slots, absl::Span<const int32_t> tokens) = 0;

  // Tells which tokens the sequence of batch `i` in `slot`, which is `masked`, may draw: bits
  // [draws, MaskWords(vocabulary)], where draws are one and its guesses; bit t % 32 of word t / 32
  // is token t's. The bits are copied. Any thread may call, once for each batch and slot, as soon
  // as the batch was filled, also while it runs: only the draws wait. They fail where a mask has
  // another size or comes twice. A back end may wait for it in Enqueue, of this batch or of one
  // behind: a mask is set before these, or by another thread. Each rank that draws needs the same
  // mask.
  virtual void SetMask(int i, int32_t slot, absl::Span<const uint32_t> bits) = 0;

  // Makes what is under way, and all that follows, fail with `why`. Any thread.
  virtual void Abort(const absl::Status& why) = 0;
  // Tells whether the device itself has failed, without waiting: who has enqueued a batch may be
  // waiting for something else. Any thread, once WarmUp is over.
  virtual absl::Status Health() const { return absl::OkStatus(); }
  // Names the batch that was enqueued last, for messages: "step 7: 2 sequences of 2 rows". Any
  // thread; asks no device.
  virtual std::string Newest() const { return ""; }
  // Tells how evenly rows chose experts so far; none without experts. Any thread.
  virtual std::optional<ExpertLoad> expert_load() const { return std::nullopt; }
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;  // "reference", "cpu", "cuda"

  // Allocates all weights at once: their readers are known, so that a back end may interleave them.
  // ResourceExhausted, with the bytes asked for, when memory does not suffice. InvalidArgument
  // names the weight.
  virtual absl::StatusOr<std::unique_ptr<Weights>> AllocateWeights(const Program& program) = 0;
  virtual absl::StatusOr<std::unique_ptr<KvCache>> AllocateKv(const KvSpec& spec) = 0;
  // For pages that are swapped out: memory of the host, whatever the device.
  virtual absl::StatusOr<std::unique_ptr<KvCache>> AllocateSwap(const KvSpec& spec) {
    return AllocateKv(spec);
  }

  // InvalidArgument names the operation's index for a Program that contradicts itself (ids out of
  // range, shapes that do not match, forbidden aliases). InvalidArgument, too, for limits and
  // bindings that the Program does not fit.
  virtual absl::StatusOr<std::unique_ptr<Executable>> Compile(const Program& program,
                                                              const Limits& limits,
                                                              const Bindings& bindings) = 0;
};

}  // namespace skein::kernels
