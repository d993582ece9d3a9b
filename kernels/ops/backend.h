// A device's way of running Programs: the reference (scalar, the oracle of tests), the CPU's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
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
  Collectives* collectives = nullptr;        // may be null where the Program has none
};

// A Program bound to weights, cache, collectives and buffers. Nothing is allocated by Run. One
// thread at a time.
class Executable {
 public:
  virtual ~Executable() = default;

  // Runs every operation. Errors: InvalidArgument for a batch that breaks its contract (too many
  // rows, a slot, page or token outside of its range), checked before anything runs; otherwise what
  // the collectives returned.
  virtual absl::Status Run(const Batch& batch) = 0;

  // The whole storage of a port, [max rows, cols], in the device's memory; its address never
  // changes. A null view for a buffer that is no port. A run may overwrite what it takes in.
  virtual View port(BufferId id) = 0;

  // Host work on results: calls task(i) for i in [0, tasks), on the threads that Run computes with
  // where those are the host's, and returns when all are done. Not during Run.
  virtual void OnHost(int64_t tasks, absl::FunctionRef<void(int64_t)> task) {
    for (int64_t i = 0; i < tasks; ++i) task(i);
  }
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
  // range, shapes that do not match, forbidden aliases), and for bindings that it does not fit.
  virtual absl::StatusOr<std::unique_ptr<Executable>> Compile(const Program& program,
                                                              Bindings bindings) = 0;
};

}  // namespace skein::kernels
