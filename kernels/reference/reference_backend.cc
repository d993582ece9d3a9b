#include "kernels/reference/reference_backend.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numbers>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "base/status_macros.h"
#include "base/tree_sum.h"
#include "kernels/host/executable.h"
#include "kernels/host/memory.h"
#include "kernels/host/weights.h"
#include "kernels/ops/validate.h"
#include "kernels/packing/kv_codec.h"
#include "kernels/packing/quantized_rows.h"

namespace skein::kernels {
namespace {

// Keeps weights as rows of floats.
class ReferenceWeights final : public HostWeights {
 public:
  explicit ReferenceWeights(const Program& program) : HostWeights(program) {}
  absl::Status Allocate() {
    return HostWeights::Allocate(
        [](const WeightSpec& spec) { return DTypeBytes(DType::kF32, spec.rows * spec.cols); });
  }
  float* row(WeightId weight, int64_t r) const {
    return reinterpret_cast<float*>(data(weight)) + r * spec(weight).cols;
  }

 private:
  void Pack(const WeightRows& rows, const std::byte* data) override {
    int64_t begin = 0;
    for (const WeightSpec::Part& part : PartsOf(spec(rows.weight))) {
      if (rows.first >= begin && rows.first < begin + part.rows) {
        ConvertToFloat(part.dtype, data, rows.count * spec(rows.weight).cols,
                       row(rows.weight, rows.first));
      }
      begin += part.rows;
    }
  }
};

// A key or a value as the cache's dtype keeps it: elements [head_dim], each times the scale (1
// where the dtype has none).
class KvVector {
 public:
  KvVector(float* data, int64_t head_dim) : data_(data), head_dim_(head_dim) {}

  static int64_t Floats(const KvSpec& spec) { return spec.head_dim + 1; }
  double operator[](int64_t i) const { return double{data_[i]} * double{data_[head_dim_]}; }

  void Write(KvDType dtype, const float* in) {
    float& scale = data_[head_dim_];
    scale = dtype == KvDType::kInt8 ? Int8Scale(in, head_dim_) : 1.0f;
    for (int64_t i = 0; i < head_dim_; ++i) {
      switch (dtype) {
        case KvDType::kF32:
          data_[i] = in[i];
          break;
        case KvDType::kBF16:
          data_[i] = Bf16ToFloat(FloatToBf16(in[i]));
          break;
        case KvDType::kF16:
          data_[i] = F16ToFloat(FloatToF16(in[i]));
          break;
        case KvDType::kInt8:
          data_[i] = ToInt8(in[i], scale);
          break;
      }
    }
  }

 private:
  float* data_;
  int64_t head_dim_;
};

// Keeps vectors [layers, slots, 2 (key, value), kv_heads].
class ReferenceKv final : public KvCache {
 public:
  ReferenceKv(const KvSpec& spec, HostMemory memory) : KvCache(spec), memory_(std::move(memory)) {}
  static int64_t Floats(const KvSpec& spec) { return spec.layers * LayerFloats(spec); }

  KvVector key(int64_t layer, int64_t slot, int64_t head) const { return At(layer, slot, 0, head); }
  KvVector value(int64_t layer, int64_t slot, int64_t head) const {
    return At(layer, slot, 1, head);
  }

  absl::Status CopyPage(const KvCache& from, int32_t from_page, int32_t to_page) override {
    const auto* other = dynamic_cast<const ReferenceKv*>(&from);
    if (other == nullptr) return absl::InvalidArgumentError("another back end's cache");
    SKEIN_RETURN_IF_ERROR(ValidatePageCopy(from.spec(), from_page, spec(), to_page));
    for (int64_t layer = 0; layer < spec().layers; ++layer) {
      std::memmove(Page(layer, to_page), other->Page(layer, from_page),
                   DTypeBytes(DType::kF32, PageFloats(spec())));
    }
    return absl::OkStatus();
  }

 private:
  static int64_t PageFloats(const KvSpec& spec) {
    return spec.page_size * 2 * spec.kv_heads * KvVector::Floats(spec);
  }
  static int64_t LayerFloats(const KvSpec& spec) { return spec.pages * PageFloats(spec); }

  float* Page(int64_t layer, int64_t page) const {
    return memory_.floats() + layer * LayerFloats(spec()) + page * PageFloats(spec());
  }
  KvVector At(int64_t layer, int64_t slot, int64_t which, int64_t head) const {
    const int64_t vector = (slot % spec().page_size * 2 + which) * spec().kv_heads + head;
    return {Page(layer, slot / spec().page_size) + vector * KvVector::Floats(spec()),
            spec().head_dim};
  }

  HostMemory memory_;
};

// Sums in[k] * w[k]. Each inner block's sum is rounded to float, then they are joined as a tree, as
// shards do that hold some of the blocks each.
float SumOfBlocks(const float* in, const float* w, const WeightSpec& spec) {
  return TreeSum(0, spec.inner_blocks, [&](int64_t block) {
    double sum = 0;
    const int64_t end = InnerBound(spec, block + 1);
    for (int64_t k = InnerBound(spec, block); k < end; ++k) {
      sum += double{in[k]} * double{w[k]};
    }
    return static_cast<float>(sum);
  });
}

// What integers times scales stand for, as QuantizedRows has them.
void RoundToIntegers(std::vector<float>& row) {
  for (size_t begin = 0; begin < row.size(); begin += kScaledCols) {
    const auto block = std::span(row).subspan(begin, kScaledCols);
    float largest = 0;
    bool finite = true;
    for (const float value : block) {
      largest = std::max(largest, std::abs(value));
      finite &= std::isfinite(value);
    }
    if (!finite || largest <= kLeastMagnitude) {
      std::fill(block.begin(), block.end(), finite ? 0 : NAN);
      continue;
    }
    const float scale = largest / kMostInteger;
    const float factor = kMostInteger / largest;
    for (float& value : block) value = std::nearbyint(value * factor) * scale;
  }
}

class ReferenceExecutable final : public HostExecutable {
 public:
  ReferenceExecutable(const Program& program, const Limits& limits, const Bindings& bindings)
      : HostExecutable(program, limits, bindings) {}
  using HostExecutable::Init;

 private:
  void Compute(const Op& op, const HostBatch& batch) override {
    rows_ = &batch;
    std::visit([&](const auto& o) { Do(o, batch); }, op);
    std::visit(
        [this](const auto& o) {
          if constexpr (requires { o.out; }) {
            Wrote(o.out);
          } else if constexpr (requires { o.qkv; }) {
            Wrote(o.qkv);
          } else {
            Wrote(o.buffer);
          }
        },
        op);
  }
  // Rounds the buffer to its dtype, as a device would that keeps it so.
  void Wrote(BufferId id) override {
    const DType dtype = program().buffers[id].dtype;
    if (dtype == DType::kF32) return;
    uint16_t kept = 0;
    for (int64_t i = 0; i < RowsOf(id, *rows_) * cols(id); ++i) {
      ConvertFromFloat(dtype, data(id) + i, 1, &kept);
      ConvertToFloat(dtype, &kept, 1, data(id) + i);
    }
  }
  void ForEach(int64_t tasks, absl::FunctionRef<void(int64_t)> task) override {
    for (int64_t i = 0; i < tasks; ++i) task(i);
  }

  void Do(const EmbedOp& op, const HostBatch& batch) {
    for (int64_t r = 0; r < batch.rows(); ++r) {
      const int64_t id = batch.token_ids[r] - op.first_id;
      if (id >= 0 && id < op.count) {
        std::copy_n(Row(op.table, id), cols(op.out), row(op.out, r));
      } else {
        std::fill_n(row(op.out, r), cols(op.out), 0.0f);
      }
    }
  }

  void Do(const RmsNormOp& op, const HostBatch& batch) {
    for (int64_t r = 0; r < RowsOf(op.in, batch); ++r) {
      Norm(row(op.in, r), op.gain, op.eps, cols(op.in), row(op.out, r));
    }
  }

  void Do(const AddOp& op, const HostBatch& batch) {
    for (int64_t r = 0; r < RowsOf(op.residual, batch); ++r) {
      for (int64_t c = 0; c < cols(op.residual); ++c) {
        row(op.out, r)[c] = row(op.residual, r)[c] + row(op.delta, r)[c];
      }
    }
  }

  void Do(const AddRmsNormOp& op, const HostBatch& batch) {
    Do(AddOp{op.residual, op.delta, op.residual}, batch);
    Wrote(op.residual);
    Do(RmsNormOp{op.residual, op.gain, op.eps, op.out}, batch);
  }

  void Do(const MatMulOp& op, const HostBatch& batch) {
    for (int64_t r = 0; r < RowsOf(op.in, batch); ++r) {
      const std::vector<float> product = Product(op.weight, row(op.in, r));
      std::copy(product.begin(), product.end(), row(op.out, r));
    }
  }

  std::vector<float> Product(WeightId id, const float* in) {
    const WeightSpec& weight = spec(id);
    if (product_observer() != nullptr) product_observer()->Multiplied(id, in, 1);
    std::vector<float> rounded(in, in + weight.cols);
    if (HasIntegerRows(weight) && !program().exact) RoundToIntegers(rounded);
    std::vector<float> out;
    for (const WeightSpec::Part& part : PartsOf(weight)) {
      const float* const x = HasIntegers(part.dtype) ? rounded.data() : in;
      for (int64_t i = 0; i < part.rows; ++i) {
        out.push_back(SumOfBlocks(x, Row(id, static_cast<int64_t>(out.size())), weight));
      }
    }
    return out;
  }

  void Do(const AddBiasOp& op, const HostBatch& batch) {
    for (int64_t r = 0; r < RowsOf(op.buffer, batch); ++r) {
      for (int64_t c = 0; c < cols(op.buffer); ++c) row(op.buffer, r)[c] += Row(op.bias, 0)[c];
    }
  }

  void Do(const QkNormOp& op, const HostBatch& batch) {
    for (int64_t r = 0; r < batch.rows(); ++r) {
      for (int64_t h = 0; h < op.heads + op.kv_heads; ++h) {
        float* const head = row(op.qkv, r) + h * op.head_dim;
        Norm(head, h < op.heads ? op.q_gain : op.k_gain, op.eps, op.head_dim, head);
      }
    }
  }

  void Do(const RopeAppendKvOp& op, const HostBatch& batch) {
    const float* frequencies = Row(op.inverse_frequencies, 0);
    const int64_t half = spec(op.inverse_frequencies).cols;
    for (int64_t r = 0; r < batch.rows(); ++r) {
      float* qkv = row(op.qkv, r);
      for (int64_t h = 0; h < op.heads + op.kv_heads; ++h) {
        float* head = qkv + h * op.head_dim;
        for (int64_t i = 0; i < half; ++i) {
          const float angle = static_cast<float>(batch.positions[r]) * frequencies[i];
          const double cosine = std::cos(double{angle}) * op.magnitude;
          const double sine = std::sin(double{angle}) * op.magnitude;
          const double a = head[i];
          const double b = head[i + half];
          head[i] = static_cast<float>(a * cosine - b * sine);
          head[i + half] = static_cast<float>(b * cosine + a * sine);
        }
      }
      const float* keys = qkv + int64_t{op.heads} * op.head_dim;
      const float* values = keys + int64_t{op.kv_heads} * op.head_dim;
      for (int64_t h = 0; h < op.kv_heads; ++h) {
        const int64_t slot = batch.kv_slots[r];
        const KvDType dtype = Kv().spec().dtype;
        Kv().key(op.layer, slot, h).Write(dtype, keys + h * op.head_dim);
        Kv().value(op.layer, slot, h).Write(dtype, values + h * op.head_dim);
      }
    }
  }

  void Do(const AttentionOp& op, const HostBatch& batch) {
    for (int64_t s = 0; s < batch.sequences(); ++s) {
      for (int64_t r = batch.row_begin[s]; r < batch.row_begin[s + 1]; ++r) {
        for (int64_t h = 0; h < op.heads; ++h) Attend(op, batch, s, r, h);
      }
    }
  }

  void Attend(const AttentionOp& op, const HostBatch& batch, int64_t sequence, int64_t r,
              int64_t h) {
    const float* query = row(op.qkv, r) + h * op.head_dim;
    const int64_t kv_head = h / (op.heads / op.kv_heads);
    const int64_t page_size = Kv().spec().page_size;
    const int32_t* pages = batch.pages(sequence);
    const auto slot = [&](int64_t position) {
      return pages[position / page_size] * page_size + position % page_size;
    };

    const int64_t end = batch.positions[r] + int64_t{1};
    const int64_t first = op.window > 0 ? std::max<int64_t>(0, end - op.window) : 0;
    std::vector<double> weights(end);
    double largest = -std::numeric_limits<double>::infinity();
    for (int64_t p = first; p < end; ++p) {
      const KvVector key = Kv().key(op.layer, slot(p), kv_head);
      double score = 0;
      for (int64_t d = 0; d < op.head_dim; ++d) score += double{query[d]} * key[d];
      weights[p] = score * op.scale;
      if (op.softcap > 0) weights[p] = op.softcap * std::tanh(weights[p] / op.softcap);
      largest = std::max(largest, weights[p]);
    }
    double total = 0;
    for (int64_t p = first; p < end; ++p) total += weights[p] = std::exp(weights[p] - largest);

    float* out = row(op.out, r) + h * op.head_dim;
    for (int64_t d = 0; d < op.head_dim; ++d) {
      double sum = 0;
      for (int64_t p = first; p < end; ++p) {
        sum += weights[p] * Kv().value(op.layer, slot(p), kv_head)[d];
      }
      out[d] = static_cast<float>(sum / total);
    }
  }

  void Do(const GluOp& op, const HostBatch& batch) {
    for (int64_t r = 0; r < RowsOf(op.out, batch); ++r) {
      const float* gate = row(op.gate_up, r);
      const float* up = gate + cols(op.out);
      for (int64_t c = 0; c < cols(op.out); ++c) {
        row(op.out, r)[c] = static_cast<float>(Activate(op.activation, gate[c]) * up[c]);
      }
    }
  }

  static double Activate(GateActivation activation, double x) {
    if (activation == GateActivation::kSilu) return x / (1.0 + std::exp(-x));
    const double inner = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
    return 0.5 * x * (1.0 + std::tanh(inner));
  }

  void Do(const ScaleOp& op, const HostBatch& batch) {
    ForElements(op.buffer, batch, [&](float x) { return x * op.scale; });
  }

  void Do(const SoftCapOp& op, const HostBatch& batch) {
    ForElements(op.buffer, batch, [&](double x) { return op.cap * std::tanh(x / op.cap); });
  }

  template <typename Fn>
  void ForElements(BufferId id, const HostBatch& batch, const Fn& fn) {
    for (int64_t r = 0; r < RowsOf(id, batch); ++r) {
      for (int64_t c = 0; c < cols(id); ++c) row(id, r)[c] = static_cast<float>(fn(row(id, r)[c]));
    }
  }

  void Do(const GatherRowsOp& op, const HostBatch& batch) {
    for (int64_t i = 0; i < batch.outputs(); ++i) {
      std::copy_n(row(op.in, batch.output_rows[i]), cols(op.in), row(op.out, i));
    }
  }

  // HostExecutable runs it.
  void Do(const AllReduceOp&, const HostBatch&) {}

  void Do(const RouteOp& op, const HostBatch& batch) {
    const int64_t experts = cols(op.logits);
    for (int64_t r = 0; r < RowsOf(op.logits, batch); ++r) {
      const float* const logits = row(op.logits, r);
      std::vector<float> keys(logits, logits + experts);  // a NaN is chosen last
      std::replace_if(
          keys.begin(), keys.end(), [](float logit) { return std::isnan(logit); }, -INFINITY);
      std::vector<int64_t> order(experts);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](int64_t a, int64_t b) { return keys[a] > keys[b]; });
      const double largest = keys[order[0]];
      double all = 0;
      for (int64_t e = 0; e < experts; ++e) all += std::exp(double{logits[e]} - largest);
      order.resize(op.chosen);
      std::sort(order.begin(), order.end());
      double chosen = 0;
      for (const int64_t e : order) chosen += std::exp(double{logits[e]} - largest);
      if (!op.normalized || std::isnan(all)) chosen = all;
      for (int64_t i = 0; i < op.chosen; ++i) {
        row(op.out, r)[i] = static_cast<float>(order[i]);
        row(op.out, r)[op.chosen + i] =
            static_cast<float>(std::exp(double{logits[order[i]]} - largest) / chosen);
      }
    }
  }

  void Do(const ExpertsOp& op, const HostBatch& batch) {
    const int64_t n = cols(op.in);
    const int64_t chosen = cols(op.routes) / 2;
    for (int64_t r = 0; r < RowsOf(op.in, batch); ++r) {
      for (int64_t i = 0; i < chosen; ++i) {
        float* const out = row(op.out, r) + i * n;
        const int64_t expert = static_cast<int64_t>(row(op.routes, r)[i]) - op.first;
        std::fill_n(out, n, 0.0f);
        if (expert < 0 || expert >= op.count) continue;
        const auto gate_up = static_cast<WeightId>(op.first_weight + 2 * expert);
        const std::vector<float> products = Product(gate_up, row(op.in, r));
        const int64_t inner = spec(gate_up + 1).cols;
        std::vector<float> units(inner);
        for (int64_t c = 0; c < inner; ++c) {
          units[c] = static_cast<float>(Activate(op.activation, products[c]) * products[inner + c]);
        }
        const std::vector<float> sums = Product(gate_up + 1, units.data());
        std::copy(sums.begin(), sums.end(), out);
      }
    }
  }

  void Do(const CombineExpertsOp& op, const HostBatch& batch) {
    const int64_t n = cols(op.out);
    const int64_t chosen = cols(op.routes) / 2;
    for (int64_t r = 0; r < RowsOf(op.out, batch); ++r) {
      for (int64_t c = 0; c < n; ++c) {
        float sum = 0;
        for (int64_t i = 0; i < chosen; ++i) {
          sum += row(op.routes, r)[chosen + i] * row(op.in, r)[i * n + c];
        }
        row(op.out, r)[c] = sum;
      }
    }
  }

  void Do(const AddGatedOp& op, const HostBatch& batch) {
    for (int64_t r = 0; r < RowsOf(op.buffer, batch); ++r) {
      const double gate = 1.0 / (1.0 + std::exp(-double{row(op.gate, r)[0]}));
      for (int64_t c = 0; c < cols(op.buffer); ++c) {
        row(op.buffer, r)[c] += static_cast<float>(gate * row(op.delta, r)[c]);
      }
    }
  }

  void Norm(const float* in, WeightId gain, float eps, int64_t n, float* out) const {
    double squares = 0;
    for (int64_t c = 0; c < n; ++c) squares += double{in[c]} * double{in[c]};
    const double root = std::sqrt(squares / static_cast<double>(n) + eps);
    for (int64_t c = 0; c < n; ++c) {
      out[c] = static_cast<float>(in[c] / root * Row(gain, 0)[c]);
    }
  }

  const float* Row(WeightId id, int64_t r) const {
    return static_cast<const ReferenceWeights&>(weights()).row(id, r);
  }
  const HostBatch* rows_ = nullptr;  // of the batch that runs
  ReferenceKv& Kv() const { return static_cast<ReferenceKv&>(*kv()); }
};

class ReferenceBackend final : public Backend {
 public:
  std::string_view name() const override { return "reference"; }

  absl::StatusOr<std::unique_ptr<Weights>> AllocateWeights(const Program& program) override {
    auto weights = std::make_unique<ReferenceWeights>(program);
    SKEIN_RETURN_IF_ERROR(weights->Allocate());
    return weights;
  }

  absl::StatusOr<std::unique_ptr<KvCache>> AllocateKv(const KvSpec& spec) override {
    SKEIN_RETURN_IF_ERROR(ValidateKvSpec(spec));
    const int64_t bytes = DTypeBytes(DType::kF32, ReferenceKv::Floats(spec));
    SKEIN_ASSIGN_OR_RETURN(HostMemory memory, HostMemory::Allocate(bytes, "a KV cache"));
    return std::make_unique<ReferenceKv>(spec, std::move(memory));
  }

  absl::StatusOr<std::unique_ptr<Executable>> Compile(const Program& program, const Limits& limits,
                                                      const Bindings& bindings) override {
    auto executable = std::make_unique<ReferenceExecutable>(program, limits, bindings);
    SKEIN_RETURN_IF_ERROR(executable->Init());
    return executable;
  }
};

}  // namespace

std::unique_ptr<Backend> MakeReferenceBackend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace skein::kernels
