#include "kernels/cpu/cpu_backend.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "base/thread_pool.h"
#include "kernels/cpu/cpu_memory.h"
#include "kernels/cpu/experts.h"
#include "kernels/cpu/products.h"
#include "kernels/cpu/simd_ops.h"
#include "kernels/host/executable.h"
#include "kernels/host/memory.h"
#include "kernels/host/route.h"
#include "kernels/ops/sizes.h"
#include "kernels/ops/validate.h"

namespace skein::kernels {
namespace {

// These cost as many multiply-adds: a sine and a cosine in double, a cache line from further away.
constexpr int64_t kSineWork = 512;
constexpr int64_t kMissWork = 64;

// The size of a core's level 2 cache, the last that it does not share.
int64_t OwnCacheBytes() {
  constexpr int64_t kLeast = 256 << 10;
  return std::max<int64_t>(kLeast, sysconf(_SC_LEVEL2_CACHE_SIZE));
}

class CpuExecutable final : public HostExecutable {
 public:
  CpuExecutable(const Program& program, const Limits& limits, const Bindings& bindings,
                const SimdOps& simd, ThreadPool& pool)
      : HostExecutable(program, limits, bindings), simd_(simd), pool_(pool) {}

  absl::Status Init() {
    SKEIN_RETURN_IF_ERROR(HostExecutable::Init());
    for (const BufferSpec& buffer : program().buffers) {
      if (buffer.dtype == DType::kF32) continue;
      return absl::UnimplementedError(
          absl::StrCat("buffer ", buffer.name, ": the CPU computes in F32"));
    }
    const std::vector<Op>& ops = program().ops;
    steps_.resize(ops.size());
    bool attends = false;
    for (size_t i = 0; i < ops.size(); ++i) {
      if (const auto* rope = std::get_if<RopeAppendKvOp>(&ops[i])) {
        SKEIN_ASSIGN_OR_RETURN(steps_[i].rotation,
                               AddRotation(rope->inverse_frequencies, rope->magnitude));
      }
      if (const auto* attention = std::get_if<AttentionOp>(&ops[i])) {
        attends = true;
        Fuse(i, *attention);
      }
    }
    products_.emplace(simd_, pool_, Packed(), program().exact, product_observer());
    SKEIN_RETURN_IF_ERROR(products_->Allocate(IntegerBytes(program(), limits())));
    experts_.emplace(simd_, pool_, *products_);
    SKEIN_RETURN_IF_ERROR(experts_->Allocate(ExpertBytes(program(), limits())));
    return attends ? PrepareAttention() : absl::OkStatus();
  }

 private:
  // An operation as compiled. Fusions hold for batches in which each row is its sequence's only
  // one; see Fuses.
  struct Step {
    size_t rotation = 0;                       // a RopeAppendKvOp's: index into rotations_
    bool done_later = false;                   // a RopeAppendKvOp's: the attention behind does it
    const RopeAppendKvOp* rope = nullptr;      // that attention's; its rotation is the rope's
    const AttentionOp* fetches_for = nullptr;  // the product's before both
  };

  // Fuses operation `at` with those before it: a RopeAppendKvOp that writes just what the attention
  // reads, and the product that it rotates, biases and norms aside.
  void Fuse(size_t at, const AttentionOp& attention) {
    const std::vector<Op>& ops = program().ops;
    const auto* rope = at < 1 ? nullptr : std::get_if<RopeAppendKvOp>(&ops[at - 1]);
    if (rope == nullptr || rope->qkv != attention.qkv || rope->layer != attention.layer) return;
    steps_[at].rope = rope;
    steps_[at].rotation = steps_[at - 1].rotation;
    steps_[at - 1].done_later = true;
    size_t before = at - 1;
    while (before > 0 && (std::holds_alternative<AddBiasOp>(ops[before - 1]) ||
                          std::holds_alternative<QkNormOp>(ops[before - 1]))) {
      --before;
    }
    const auto* product = before < 1 ? nullptr : std::get_if<MatMulOp>(&ops[before - 1]);
    if (product != nullptr && product->out == rope->qkv) {
      steps_[before - 1].fetches_for = &attention;
    }
  }

  // Holds cosines and sines [max_rows, 2, half] of a batch's positions, the same for all layers.
  struct Rotation {
    WeightId frequencies;
    float magnitude;
    int64_t half;
    HostMemory memory;
    float* cosines(int64_t row) const { return memory.floats() + row * 2 * half; }
    float* sines(int64_t row) const { return cosines(row) + half; }
  };

  // Returns its index. Operations with the same frequencies and magnitude share one rotation.
  absl::StatusOr<size_t> AddRotation(WeightId frequencies, float magnitude) {
    for (size_t i = 0; i < rotations_.size(); ++i) {
      if (rotations_[i].frequencies == frequencies && rotations_[i].magnitude == magnitude)
        return i;
    }
    const int64_t half = spec(frequencies).cols;
    SKEIN_ASSIGN_OR_RETURN(
        HostMemory memory,
        HostMemory::Allocate(DTypeBytes(DType::kF32, limits().rows * 2 * half), "rotations"));
    rotations_.push_back({frequencies, magnitude, half, std::move(memory)});
    return rotations_.size() - 1;
  }

  absl::Status PrepareAttention() {
    sequence_of_row_.resize(limits().rows);
    const int64_t slots = kv()->spec().pages * kv()->spec().page_size;
    max_fetches_ = pool_.threads() * OwnCacheBytes() * 3 / 4 / Kv().layout().head_stride;
    fetches_.reserve(max_fetches_);
    scores_stride_ = (slots + 2 * kLanes - 2) / kLanes * kLanes;
    const int64_t scores = pool_.threads() * kHeadsAtOnce * scores_stride_;
    SKEIN_ASSIGN_OR_RETURN(
        scores_, HostMemory::Allocate(DTypeBytes(DType::kF32, scores), "attention scores"));
    return absl::OkStatus();
  }

  // Calls fn(r, thread) for rows [0, rows), each of `work` multiply-adds.
  template <typename Fn>
  void ForRows(int64_t rows, int64_t work, const Fn& fn) {
    ForTasks(pool_, rows, work, fn);
  }

  void ForEach(int64_t tasks, absl::FunctionRef<void(int64_t)> task) override {
    pool_.ForEach(tasks, [&](int64_t i, int) { task(i); });
  }

  void Begin(const HostBatch& batch) override {
    if (!sequence_of_row_.empty()) {
      for (int64_t s = 0; s < batch.sequences(); ++s) {
        for (int64_t r = batch.row_begin[s]; r < batch.row_begin[s + 1]; ++r) {
          sequence_of_row_[r] = static_cast<int32_t>(s);
        }
      }
    }
    for (const Rotation& rotation : rotations_) {
      const float* frequencies = Packed().floats(rotation.frequencies);
      ForRows(batch.rows(), kSineWork * rotation.half, [&](int64_t r, int) {
        for (int64_t i = 0; i < rotation.half; ++i) {
          const float angle = static_cast<float>(batch.positions[r]) * frequencies[i];
          // Doubles are used so that the rounded values do not depend on the C library.
          rotation.cosines(r)[i] = static_cast<float>(std::cos(double{angle}) * rotation.magnitude);
          rotation.sines(r)[i] = static_cast<float>(std::sin(double{angle}) * rotation.magnitude);
        }
      });
    }
  }

  void Compute(const Op& op, const HostBatch& batch) override {
    const Step& step = steps_[&op - program().ops.data()];
    std::visit([&](const auto& o) { Do(o, step, batch); }, op);
  }

  // A row that is its sequence's only one needs no key of the others: one pass rotates, appends and
  // attends.
  static bool Fuses(const HostBatch& batch) { return batch.rows() == batch.sequences(); }

  void Do(const EmbedOp& op, const Step&, const HostBatch& batch) {
    const int64_t n = cols(op.out);
    ForRows(batch.rows(), n * kMissWork, [&](int64_t r, int) {
      const int64_t id = batch.token_ids[r] - op.first_id;
      if (id >= 0 && id < op.count) {
        Packed().Lookup(op.table, id, row(op.out, r));
      } else {
        std::fill_n(row(op.out, r), n, 0.0f);
      }
    });
  }

  void Do(const RmsNormOp& op, const Step&, const HostBatch& batch) {
    const int64_t n = cols(op.in);
    ForRows(RowsOf(op.in, batch), n, [&](int64_t r, int) {
      simd_.rms_norm(row(op.in, r), Packed().floats(op.gain), op.eps, n, row(op.out, r));
    });
  }

  void Do(const AddOp& op, const Step&, const HostBatch& batch) {
    const int64_t n = cols(op.residual);
    ForRows(RowsOf(op.residual, batch), n, [&](int64_t r, int) {
      simd_.add(row(op.residual, r), row(op.delta, r), n, row(op.out, r));
    });
  }

  void Do(const AddRmsNormOp& op, const Step&, const HostBatch& batch) {
    const int64_t n = cols(op.residual);
    ForRows(RowsOf(op.residual, batch), n, [&](int64_t r, int) {
      float* residual = row(op.residual, r);
      simd_.add(residual, row(op.delta, r), n, residual);
      simd_.rms_norm(residual, Packed().floats(op.gain), op.eps, n, row(op.out, r));
    });
  }

  // Returns the pages that `attention` (null: none) will read first, in the order of its tasks: as
  // many of each task's as the threads' own caches hold beside weights. The list is empty for few
  // rows, whose products leave memory no time.
  FetchList FetchesOf(const AttentionOp* attention, const HostBatch& batch) {
    constexpr int64_t kMinRows = 5;
    const int64_t rows = batch.rows();
    if (attention == nullptr || rows < kMinRows) return {};
    const int64_t pages_each = max_fetches_ / (rows * attention->kv_heads);
    fetches_.clear();
    for (int64_t kv_head = 0; kv_head < attention->kv_heads; ++kv_head) {
      for (int64_t r = 0; r < rows; ++r) {
        const KvSlots slots = SlotsOf(*attention, kv_head, r, batch);
        const int64_t page_size = Kv().spec().page_size;
        const int64_t first = slots.first / page_size;
        const int64_t pages = (slots.context + page_size - 1) / page_size;
        for (int64_t page = first; page < std::min(pages, first + pages_each); ++page) {
          fetches_.push_back(slots.pages + slots.page_table[page] * Kv().layout().page_stride);
        }
      }
    }
    return {.blocks = fetches_.data(),
            .count = static_cast<int64_t>(fetches_.size()),
            .bytes = Kv().layout().head_stride};
  }

  void Do(const MatMulOp& op, const Step& step, const HostBatch& batch) {
    products_->Multiply({.in = data(op.in),
                         .rows = RowsOf(op.in, batch),
                         .weight = op.weight,
                         .out = data(op.out),
                         .fetch = FetchesOf(Fuses(batch) ? step.fetches_for : nullptr, batch)});
  }

  void Do(const AddBiasOp& op, const Step&, const HostBatch& batch) {
    const int64_t n = cols(op.buffer);
    ForRows(RowsOf(op.buffer, batch), n, [&](int64_t r, int) {
      simd_.add(row(op.buffer, r), Packed().floats(op.bias), n, row(op.buffer, r));
    });
  }

  void Do(const QkNormOp& op, const Step&, const HostBatch& batch) {
    ForRows(batch.rows(), int64_t{op.heads + op.kv_heads} * op.head_dim, [&](int64_t r, int) {
      for (int64_t h = 0; h < op.heads + op.kv_heads; ++h) {
        float* const head = row(op.qkv, r) + h * op.head_dim;
        simd_.rms_norm(head, Packed().floats(h < op.heads ? op.q_gain : op.k_gain), op.eps,
                       op.head_dim, head);
      }
    });
  }

  void Do(const RopeAppendKvOp& op, const Step& step, const HostBatch& batch) {
    if (Fuses(batch) && step.done_later) return;
    const Rotation& rotation = rotations_[step.rotation];
    ForRows(batch.rows() * op.kv_heads, cols(op.qkv) / op.kv_heads, [&](int64_t task, int) {
      RotateAndAppend(op, rotation, batch, task % batch.rows(), task / batch.rows());
    });
  }

  // Rotates the query heads and the key of one row and KV head, and writes its key and value.
  void RotateAndAppend(const RopeAppendKvOp& op, const Rotation& rotation, const HostBatch& batch,
                       int64_t r, int64_t kv_head) {
    const auto rotate = [&](float* head) {
      simd_.rotate(head, head + rotation.half, rotation.cosines(r), rotation.sines(r),
                   rotation.half);
    };
    const int64_t group = op.heads / op.kv_heads;
    float* const queries = row(op.qkv, r) + kv_head * group * op.head_dim;
    float* const key = row(op.qkv, r) + (op.heads + kv_head) * op.head_dim;
    const float* const value = key + int64_t{op.kv_heads} * op.head_dim;
    for (int64_t h = 0; h < group; ++h) rotate(queries + h * op.head_dim);
    rotate(key);
    Kv().Write(op.layer, kv_head, batch.kv_slots[r], key, value);
  }

  void Do(const AttentionOp& op, const Step& step, const HostBatch& batch) {
    const RopeAppendKvOp* const rope = Fuses(batch) ? step.rope : nullptr;
    const int64_t rows = batch.rows();
    const int64_t group = op.heads / op.kv_heads;
    int64_t slots = 0;  // the longest context, for the choice of threads
    for (int32_t length : batch.context_lengths) slots = std::max<int64_t>(slots, length);
    // Rows of one KV head follow each other: its keys and values stay in the cache.
    const int64_t tasks = rows * op.kv_heads;
    ForRows(tasks, slots * 2 * group * op.head_dim, [&](int64_t task, int thread) {
      const int64_t kv_head = task / rows;
      const int64_t r = task % rows;
      const int64_t first = kv_head * group * op.head_dim;
      if (rope != nullptr) RotateAndAppend(*rope, rotations_[step.rotation], batch, r, kv_head);
      simd_.attend({.queries = row(op.qkv, r) + first,
                    .heads = group,
                    .head_dim = op.head_dim,
                    .scale = op.scale,
                    .softcap = op.softcap,
                    .slots = SlotsOf(op, kv_head, r, batch),
                    .next = task + 1 < tasks
                                ? SlotsOf(op, (task + 1) / rows, (task + 1) % rows, batch)
                                : KvSlots(),
                    .dtype = Kv().spec().dtype,
                    .layout = Kv().layout(),
                    .page_size = Kv().spec().page_size,
                    .scores = scores_.floats() + thread * kHeadsAtOnce * scores_stride_,
                    .scores_stride = scores_stride_,
                    .out = row(op.out, r) + first});
    });
  }

  KvSlots SlotsOf(const AttentionOp& op, int64_t kv_head, int64_t r, const HostBatch& batch) const {
    const int64_t context = batch.positions[r] + int64_t{1};
    return {.pages = Kv().pages(op.layer, kv_head),
            .page_table = batch.pages(sequence_of_row_[r]),
            .context = context,
            .first = op.window > 0 ? std::max<int64_t>(0, context - op.window) : 0};
  }

  void Do(const GluOp& op, const Step&, const HostBatch& batch) {
    const int64_t n = cols(op.out);
    ForRows(RowsOf(op.out, batch), n * kExpWork, [&](int64_t r, int) {
      const float* gate = row(op.gate_up, r);
      const auto glu = op.activation == GateActivation::kSilu ? simd_.swiglu : simd_.geglu_tanh;
      glu(gate, gate + n, n, row(op.out, r));
    });
  }

  void Do(const ScaleOp& op, const Step&, const HostBatch& batch) {
    const int64_t n = cols(op.buffer);
    ForRows(RowsOf(op.buffer, batch), n,
            [&](int64_t r, int) { simd_.scale(row(op.buffer, r), op.scale, n); });
  }

  void Do(const SoftCapOp& op, const Step&, const HostBatch& batch) {
    const int64_t n = cols(op.buffer);
    ForRows(RowsOf(op.buffer, batch), n * kExpWork,
            [&](int64_t r, int) { simd_.soft_cap(row(op.buffer, r), op.cap, n); });
  }

  void Do(const GatherRowsOp& op, const Step&, const HostBatch& batch) {
    for (int64_t i = 0; i < batch.outputs(); ++i) {
      std::copy_n(row(op.in, batch.output_rows[i]), cols(op.in), row(op.out, i));
    }
  }

  // HostExecutable runs it.
  void Do(const AllReduceOp&, const Step&, const HostBatch&) {}

  void Do(const RouteOp& op, const Step&, const HostBatch& batch) {
    const int64_t experts = cols(op.logits);
    ForRows(RowsOf(op.logits, batch), 2 * experts * kExpWork, [&](int64_t r, int) {
      Route(row(op.logits, r), experts, op.chosen, op.normalized, row(op.out, r));
    });
  }

  void Do(const ExpertsOp& op, const Step&, const HostBatch& batch) {
    experts_->Compute(op, {.rows = RowsOf(op.in, batch),
                           .cols = cols(op.in),
                           .inner = spec(op.first_weight + 1).cols,
                           .chosen = cols(op.routes) / 2,
                           .in = data(op.in),
                           .routes = data(op.routes),
                           .out = data(op.out)});
  }

  void Do(const CombineExpertsOp& op, const Step&, const HostBatch& batch) {
    const int64_t n = cols(op.out);
    const int64_t chosen = cols(op.routes) / 2;
    ForRows(RowsOf(op.out, batch), n * chosen, [&](int64_t r, int) {
      float* const out = row(op.out, r);
      std::fill_n(out, n, 0.0f);
      for (int64_t i = 0; i < chosen; ++i) {
        simd_.add_scaled(row(op.in, r) + i * n, row(op.routes, r)[chosen + i], n, out);
      }
    });
  }

  void Do(const AddGatedOp& op, const Step&, const HostBatch& batch) {
    const int64_t n = cols(op.buffer);
    ForRows(RowsOf(op.buffer, batch), n, [&](int64_t r, int) {
      const double gate = 1.0 / (1.0 + std::exp(-double{row(op.gate, r)[0]}));
      simd_.add_scaled(row(op.delta, r), static_cast<float>(gate), n, row(op.buffer, r));
    });
  }

  const CpuWeights& Packed() const { return static_cast<const CpuWeights&>(weights()); }
  CpuKv& Kv() const { return static_cast<CpuKv&>(*kv()); }

  const SimdOps& simd_;
  ThreadPool& pool_;
  std::vector<Step> steps_;  // [operations]
  std::vector<Rotation> rotations_;
  std::vector<int32_t> sequence_of_row_;  // [max_rows]; empty without attention
  HostMemory scores_;                     // [threads, kHeadsAtOnce, scores_stride_]
  int64_t scores_stride_ = 0;
  std::optional<Products> products_;  // set by Init, as the next
  std::optional<Experts> experts_;
  std::vector<const std::byte*> fetches_;  // FetchesOf's list
  int64_t max_fetches_ = 0;
};

class CpuBackend final : public Backend {
 public:
  CpuBackend(const SimdOps& simd, std::unique_ptr<ThreadPool> pool)
      : simd_(simd), pool_(std::move(pool)) {}

  std::string_view name() const override { return "cpu"; }

  absl::StatusOr<std::unique_ptr<Weights>> AllocateWeights(const Program& program) override {
    auto weights = std::make_unique<CpuWeights>(program);
    SKEIN_RETURN_IF_ERROR(weights->Allocate());
    return weights;
  }

  absl::StatusOr<std::unique_ptr<KvCache>> AllocateKv(const KvSpec& spec) override {
    SKEIN_RETURN_IF_ERROR(ValidateKvSpec(spec));
    SKEIN_ASSIGN_OR_RETURN(HostMemory memory,
                           HostMemory::Allocate(KvBytes(spec), "a KV cache", /*huge_pages=*/true));
    return std::make_unique<CpuKv>(spec, std::move(memory));
  }

  absl::StatusOr<std::unique_ptr<Executable>> Compile(const Program& program, const Limits& limits,
                                                      const Bindings& bindings) override {
    auto executable = std::make_unique<CpuExecutable>(program, limits, bindings, simd_, *pool_);
    SKEIN_RETURN_IF_ERROR(executable->Init());
    return executable;
  }

 private:
  const SimdOps& simd_;
  const std::unique_ptr<ThreadPool> pool_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuOptions& options) {
  if (options.threads < 1) {
    return absl::InvalidArgumentError(absl::StrCat("threads is ", options.threads));
  }
  const SimdOps* simd = ChooseSimdOps(options.simd_targets);
  if (simd == nullptr) {
    return absl::UnimplementedError(
        "this CPU has no fused multiply-add; the CPU back end needs AVX2 (x86, 2013 and later)");
  }
  SKEIN_ASSIGN_OR_RETURN(auto pool, ThreadPool::Create(options.threads, options.cores));
  return std::make_unique<CpuBackend>(*simd, std::move(pool));
}

}  // namespace skein::kernels
