// A device's way of running Programs: the reference (scalar, the oracle of tests), the CPU's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/stream.h"
#include "base/view.h"
#include "kernels/ops/batch.h"
#include "kernels/ops/program.h"

namespace skein::kernels {

// What a Program needs of the other shards of its stage. Implemented over a communicator by the
// engine; kernels know nothing of how.
class Collectives {
 public:
  virtual ~Collectives() = default;
  // The sum over the shards, in place.
  virtual absl::Status AllReduce(View data, Stream stream) = 0;
  // out = the shards' inputs in shard order; out.elements() = shards * in.elements().
  virtual absl::Status AllGather(ConstView in, View out, Stream stream) = 0;
  // Called between operations by back ends that compute on the calling thread: what it sent earlier
  // may need its help to arrive.
  virtual absl::Status Progress() { return absl::OkStatus(); }
};

// A weight in a back end's own layout, in the device's memory. Row lookup (EmbedOp) and product
// (MatMulOp) work on the same packed form, so tied embeddings are kept once.
class PackedWeight {
 public:
  virtual ~PackedWeight() = default;
  const WeightSpec& spec() const { return spec_; }
  virtual int64_t bytes() const = 0;

 protected:
  explicit PackedWeight(const WeightSpec& spec) : spec_(spec) {}

 private:
  WeightSpec spec_;
};

// The paged keys and values of all of a rank's layers; the layout inside a page is the back end's.
class KvCache {
 public:
  virtual ~KvCache() = default;
  const KvSpec& spec() const { return spec_; }

  // Page `to_page` of all layers becomes that of `from`: this cache (before a write to a shared
  // page) or another one of the same back end, with as many pages as it likes (to swap out and in).
  // Not while an executable runs on either. Costs a copy of the page's bytes. InvalidArgument for a
  // page out of range, another back end's cache, or one whose pages have another shape or dtype.
  virtual absl::Status CopyPage(const KvCache& from, int32_t from_page, int32_t to_page) = 0;

 protected:
  explicit KvCache(const KvSpec& spec) : spec_(spec) {}

 private:
  KvSpec spec_;
};

// What a Program is bound to. All of it outlives the executable.
struct Bindings {
  std::vector<const PackedWeight*> weights;  // [i] fills program.weights[i]
  KvCache* kv = nullptr;                     // null where no operation uses it
  KvCache* swap = nullptr;                   // where pages are swapped to; may be null
  Collectives* collectives = nullptr;        // may be null where the Program has none
};

// A batch on its way; later ones are greater.
using Ticket = int64_t;

// A Program bound to weights, cache, collectives and buffers, with the state of its slots, which
// are all free at first. Batches run one after the other, in the order of Enqueue; back ends that
// compute on the host may run them on the calling thread. Draws the tokens of a Program that has
// logits: a pure function of logits, parameters and history, with the same bits on every shard. One
// thread at a time, except Abort.
class Executable {
 public:
  // That may be under way at once, each with its own input and result.
  static constexpr int kBatches = 2;

  virtual ~Executable() = default;

  // Every rank of the replica calls it, once, before its first batch: what is captured or tuned on
  // the device is, and the collectives have met.
  virtual absl::Status WarmUp() = 0;

  // The input of batch `i` in [0, kBatches). Not to be touched while the batch is under way, which
  // takes out of it what it likes.
  virtual Batch& batch(int i) = 0;
  // The whole storage of a port, [limits.rows or outputs, cols], in the device's memory; its
  // address never changes. Input and output are each batch's own; logits are those of the batch
  // that ran last. A null view for a buffer that is no port. A run may overwrite what it takes in.
  virtual View port(BufferId id, int i) = 0;

  // Runs batch `i`, which is not under way. InvalidArgument for one that breaks its contract (too
  // many rows, a slot, page or token outside of its range), before anything runs. What fails later,
  // Wait tells. After an error nothing more can be run.
  virtual absl::StatusOr<Ticket> Enqueue(int i) = 0;
  // Work that `stream` is given from now on waits for the batch; on kHostStream the caller does, by
  // polling, so that an Abort is always heard. Whether the batch was over by the deadline; errors
  // are what the collectives or Abort said.
  virtual absl::StatusOr<bool> Wait(Ticket ticket, Stream stream, absl::Time deadline) = 0;
  // The next run of batch `i` waits for what `stream` was given so far.
  virtual void After(int i, Stream stream) = 0;

  // Of batch `i`'s last run, which is over; empty where the Program has no logits.
  virtual const BatchResult& result(int i) const = 0;
  // The newest tokens of these slots, for batches that are enqueued from now on: what another rank
  // drew. `tokens` lies in the host's memory.
  virtual void SetTokens(absl::Span<const int32_t> slots, absl::Span<const int32_t> tokens) = 0;

  // Makes what is under way, and all that follows, fail with `why`. Any thread.
  virtual void Abort(const absl::Status& why) = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;  // "reference", "cpu"

  // Zero-filled. ResourceExhausted when memory does not suffice, with the bytes asked for.
  virtual absl::StatusOr<std::unique_ptr<PackedWeight>> AllocateWeight(const WeightSpec& spec) = 0;
  // Packs rows [first_row, first_row + count): `data` is [count, cols] in spec().dtype, unaligned.
  // Rows may come in any order and pieces; different rows may be packed by different threads.
  virtual absl::Status PackRows(PackedWeight& weight, int64_t first_row, int64_t count,
                                const std::byte* data) = 0;
  virtual absl::StatusOr<std::unique_ptr<KvCache>> AllocateKv(const KvSpec& spec) = 0;

  // InvalidArgument for a Program that contradicts itself, naming the operation's index (ids out of
  // range, shapes that do not match, forbidden aliases), and for limits and bindings that it does
  // not fit.
  virtual absl::StatusOr<std::unique_ptr<Executable>> Compile(const Program& program,
                                                              const Limits& limits,
                                                              Bindings bindings) = 0;
};

}  // namespace skein::kernels
