#include "kernels/ops/validate.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "kernels/ops/invalid.h"

namespace skein::kernels {
namespace {

constexpr int64_t kMaxElements = std::numeric_limits<int64_t>::max() / 64;

bool Fits(int64_t a, int64_t b) { return a >= 0 && b >= 0 && (b == 0 || a <= kMaxElements / b); }

// Checks the operations of one Program. Each operation has an overload of Check.
class Checker {
 public:
  Checker(const Program& program, const Limits& limits, const KvSpec* kv)
      : program_(program), limits_(limits), kv_(kv) {}

  absl::Status Buffers() const {
    if (limits_.rows < 1 || limits_.outputs < 0 || limits_.slots < 1 || limits_.slot_pages < 0) {
      return Invalid("limits of ", limits_.rows, " rows, ", limits_.outputs, " outputs, ",
                     limits_.slots, " slots of ", limits_.slot_pages, " pages");
    }
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      const BufferSpec& buffer = program_.buffers[i];
      if (buffer.cols < 1 || !Fits(buffer.cols, limits_.rows + limits_.outputs)) {
        return Invalid("buffer ", i, " (", buffer.name, ") has ", buffer.cols, " columns");
      }
      if (!IsFloat(buffer.dtype)) {
        return Invalid("buffer ", i, " (", buffer.name, ") is of ", Name(buffer.dtype));
      }
    }
    SKEIN_RETURN_IF_ERROR(Port("input", program_.input, BufferSpec::Rows::kTokens));
    SKEIN_RETURN_IF_ERROR(Port("output", program_.output, BufferSpec::Rows::kTokens));
    SKEIN_RETURN_IF_ERROR(Port("logits", program_.logits, BufferSpec::Rows::kOutputs));
    SKEIN_RETURN_IF_ERROR(Pooled());
    SKEIN_RETURN_IF_ERROR(Vocabulary());
    if (!IsFloat(program_.hop_dtype)) return Invalid("hops of ", Name(program_.hop_dtype));
    if (program_.input < 0) return absl::OkStatus();
    return Differ("input", program_.input, "output", program_.output);
  }

  absl::Status Check(const EmbedOp& op) const {
    SKEIN_RETURN_IF_ERROR(Matrix(op.table));
    SKEIN_RETURN_IF_ERROR(Buffer("out", op.out));
    const WeightSpec& table = Spec(op.table);
    if (op.first_id < 0 || op.count < 0 || op.count > table.rows) {
      return Invalid("ids [", op.first_id, ", +", op.count, ") of a table of ", table.rows,
                     " rows");
    }
    if (!Tokens(op.out)) return Invalid("out must have a row for each token");
    return Columns("out", op.out, table.cols);
  }
  absl::Status Check(const RmsNormOp& op) const {
    SKEIN_RETURN_IF_ERROR(SameShape("in", op.in, "out", op.out));
    return Vector("gain", op.gain, Cols(op.in));
  }
  absl::Status Check(const AddOp& op) const {
    SKEIN_RETURN_IF_ERROR(SameShape("residual", op.residual, "delta", op.delta));
    SKEIN_RETURN_IF_ERROR(SameShape("residual", op.residual, "out", op.out));
    SKEIN_RETURN_IF_ERROR(Differ("residual", op.residual, "delta", op.delta));
    return Differ("delta", op.delta, "out", op.out);
  }
  absl::Status Check(const AddRmsNormOp& op) const {
    SKEIN_RETURN_IF_ERROR(SameShape("residual", op.residual, "delta", op.delta));
    SKEIN_RETURN_IF_ERROR(SameShape("residual", op.residual, "out", op.out));
    SKEIN_RETURN_IF_ERROR(Differ("residual", op.residual, "delta", op.delta));
    SKEIN_RETURN_IF_ERROR(Differ("residual", op.residual, "out", op.out));
    return Vector("gain", op.gain, Cols(op.residual));
  }
  absl::Status Check(const MatMulOp& op) const {
    SKEIN_RETURN_IF_ERROR(Matrix(op.weight));
    SKEIN_RETURN_IF_ERROR(SameRows("in", op.in, "out", op.out));
    SKEIN_RETURN_IF_ERROR(Columns("in", op.in, Spec(op.weight).cols));
    return Columns("out", op.out, Spec(op.weight).rows);
  }
  absl::Status Check(const AddBiasOp& op) const {
    SKEIN_RETURN_IF_ERROR(Buffer("buffer", op.buffer));
    return Vector("bias", op.bias, Cols(op.buffer));
  }
  absl::Status Check(const QkNormOp& op) const {
    SKEIN_RETURN_IF_ERROR(Heads(op));
    SKEIN_RETURN_IF_ERROR(Vector("q_gain", op.q_gain, op.head_dim));
    return Vector("k_gain", op.k_gain, op.head_dim);
  }
  absl::Status Check(const RopeAppendKvOp& op) const {
    SKEIN_RETURN_IF_ERROR(LayerHeads(op));
    if (op.head_dim % 2 != 0) return Invalid("head_dim ", op.head_dim, " is odd");
    if (!std::isfinite(op.magnitude)) return Invalid("a magnitude of ", op.magnitude);
    SKEIN_RETURN_IF_ERROR(Vector("inverse_frequencies", op.inverse_frequencies));
    const int64_t rotated = 2 * Spec(op.inverse_frequencies).cols;
    if (rotated <= op.head_dim) return absl::OkStatus();
    return Invalid(rotated, " dimensions to rotate of heads of ", op.head_dim);
  }
  absl::Status Check(const AttentionOp& op) const {
    SKEIN_RETURN_IF_ERROR(LayerHeads(op));
    SKEIN_RETURN_IF_ERROR(SameRows("qkv", op.qkv, "out", op.out));
    if (op.window < 0) return Invalid("a window of ", op.window, " positions");
    if (!(op.softcap >= 0 && std::isfinite(op.softcap)))
      return Invalid("a soft cap of ", op.softcap);
    return Columns("out", op.out, int64_t{op.heads} * op.head_dim);
  }
  absl::Status Check(const GluOp& op) const {
    SKEIN_RETURN_IF_ERROR(SameRows("gate_up", op.gate_up, "out", op.out));
    return Columns("gate_up", op.gate_up, 2 * Cols(op.out));
  }
  absl::Status Check(const ScaleOp& op) const {
    if (!std::isfinite(op.scale)) return Invalid("a scale of ", op.scale);
    return Buffer("buffer", op.buffer);
  }
  absl::Status Check(const SoftCapOp& op) const {
    if (!(op.cap > 0 && std::isfinite(op.cap))) return Invalid("a soft cap of ", op.cap);
    return Buffer("buffer", op.buffer);
  }
  absl::Status Check(const GatherRowsOp& op) const {
    SKEIN_RETURN_IF_ERROR(Buffer("in", op.in));
    SKEIN_RETURN_IF_ERROR(Buffer("out", op.out));
    if (!Tokens(op.in)) return Invalid("in must have a row for each token");
    if (Tokens(op.out)) return Invalid("out must have a row for each output");
    return Columns("out", op.out, Cols(op.in));
  }
  absl::Status Check(const AllReduceOp& op) const { return Buffer("buffer", op.buffer); }
  absl::Status Check(const RouteOp& op) const {
    SKEIN_RETURN_IF_ERROR(SameRows("logits", op.logits, "out", op.out));
    if (op.chosen < 1 || op.chosen > Cols(op.logits)) {
      return Invalid(op.chosen, " experts a row of ", Cols(op.logits));
    }
    if (At(op.out).dtype != DType::kF32) return Invalid("routes of ", Name(At(op.out).dtype));
    return Columns("out", op.out, 2 * int64_t{op.chosen});
  }
  absl::Status Check(const ExpertsOp& op) const {
    SKEIN_RETURN_IF_ERROR(Slots("in", op.in, op.routes, "out", op.out));
    if (op.first < 0 || op.count < 1) return Invalid("experts [", op.first, ", +", op.count, ")");
    for (int32_t expert = 0; expert < op.count; ++expert) {
      const WeightId gate_up = op.first_weight + 2 * expert;
      SKEIN_RETURN_IF_ERROR(Matrix(gate_up));
      SKEIN_RETURN_IF_ERROR(Matrix(gate_up + 1));
      const WeightSpec& first = Spec(op.first_weight);
      if (Spec(gate_up).rows != first.rows || Spec(gate_up).cols != Cols(op.in) ||
          Spec(gate_up + 1).rows != Cols(op.in) || 2 * Spec(gate_up + 1).cols != first.rows) {
        return Invalid("expert ", op.first + expert, " has weights of [", Spec(gate_up).rows, ", ",
                       Spec(gate_up).cols, "] and [", Spec(gate_up + 1).rows, ", ",
                       Spec(gate_up + 1).cols, "] for rows of ", Cols(op.in));
      }
    }
    return absl::OkStatus();
  }
  absl::Status Check(const CombineExpertsOp& op) const {
    return Slots("out", op.out, op.routes, "in", op.in);
  }
  absl::Status Check(const AddGatedOp& op) const {
    SKEIN_RETURN_IF_ERROR(SameShape("buffer", op.buffer, "delta", op.delta));
    SKEIN_RETURN_IF_ERROR(Differ("buffer", op.buffer, "delta", op.delta));
    SKEIN_RETURN_IF_ERROR(SameRows("gate", op.gate, "buffer", op.buffer));
    SKEIN_RETURN_IF_ERROR(Differ("gate", op.gate, "delta", op.delta));
    return Columns("gate", op.gate, 1);
  }

  // What two operations that follow each other may not do.
  absl::Status Pair(size_t first) const {
    const auto* bias = OpAt<AddBiasOp>(program_, first);
    const auto* sum = OpAt<AllReduceOp>(program_, first + 1);
    if (bias == nullptr || sum == nullptr || bias->buffer != sum->buffer) return absl::OkStatus();
    return Invalid("a bias of ", At(bias->buffer).name,
                   ", which shards sum: each would add it; it goes behind the sum");
  }

 private:
  static bool IsFloat(DType dtype) {
    return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
  }
  static std::string Name(DType dtype) { return std::string(DTypeName(dtype)); }
  const BufferSpec& At(BufferId id) const { return program_.buffers[id]; }
  const WeightSpec& Spec(WeightId id) const { return program_.weights[id].spec; }
  int64_t Cols(BufferId id) const { return At(id).cols; }
  bool Tokens(BufferId id) const { return At(id).rows == BufferSpec::Rows::kTokens; }

  absl::Status Vocabulary() const {
    if (program_.logits < 0) return absl::OkStatus();
    const VocabularyPart& part = program_.vocab_part;
    const int64_t stride = Fits(part.block, part.blocks) ? part.block * part.blocks : 0;
    if (program_.vocab_size < 1 || part.first < 0 || stride < 1 || program_.vocab_shards < 1 ||
        program_.vocab_size > stride * program_.vocab_shards) {
      return Invalid("logits of ", program_.vocab_shards, " shards of ", part.blocks, " blocks of ",
                     part.block, " for a vocabulary of ", program_.vocab_size);
    }
    if (stride > Cols(program_.logits)) {
      return Invalid("logits: ", stride, " tokens in ", Cols(program_.logits), " columns");
    }
    return absl::OkStatus();
  }
  absl::Status Pooled() const {
    const PooledBuffer& pooled = program_.pooled;
    if (pooled.in == -1) return absl::OkStatus();
    SKEIN_RETURN_IF_ERROR(Buffer("pooled", pooled.in));
    if (!Tokens(pooled.in)) return Invalid("pooled: a buffer must have a row for each token");
    return Vector("pooled: gain", pooled.gain, Cols(pooled.in));
  }
  absl::Status Port(const char* what, BufferId id, BufferSpec::Rows rows) const {
    if (id == -1) return absl::OkStatus();
    SKEIN_RETURN_IF_ERROR(Buffer(what, id));
    if (!At(id).port) return Invalid(what, ": buffer ", At(id).name, " is no port");
    if (At(id).rows == rows) return absl::OkStatus();
    return Invalid(what, ": buffer ", At(id).name, " has the wrong kind of rows");
  }
  absl::Status Buffer(const char* what, BufferId id) const {
    if (id >= 0 && static_cast<size_t>(id) < program_.buffers.size()) return absl::OkStatus();
    return Invalid(what, ": no buffer ", id, " among ", program_.buffers.size());
  }
  absl::Status Weight(const char* what, WeightId id, WeightSpec::Kind kind) const {
    if (id < 0 || static_cast<size_t>(id) >= program_.weights.size()) {
      return Invalid(what, ": no weight ", id, " among ", program_.weights.size());
    }
    if (Spec(id).kind == kind) return absl::OkStatus();
    return Invalid(what, ": weight ", program_.weights[id].name, " is not a ",
                   kind == WeightSpec::Kind::kMatrix ? "matrix" : "vector");
  }
  absl::Status Matrix(WeightId id) const { return Weight("weight", id, WeightSpec::Kind::kMatrix); }
  absl::Status Vector(const char* what, WeightId id) const {
    return Weight(what, id, WeightSpec::Kind::kVector);
  }
  absl::Status Vector(const char* what, WeightId id, int64_t cols) const {
    SKEIN_RETURN_IF_ERROR(Vector(what, id));
    if (Spec(id).cols == cols) return absl::OkStatus();
    return Invalid(what, ": weight ", program_.weights[id].name, " has ", Spec(id).cols,
                   " elements instead of ", cols);
  }
  absl::Status Columns(const char* what, BufferId id, int64_t cols) const {
    if (Cols(id) == cols) return absl::OkStatus();
    return Invalid(what, ": buffer ", At(id).name, " has ", Cols(id), " columns instead of ", cols);
  }
  absl::Status Differ(const char* a_name, BufferId a, const char* b_name, BufferId b) const {
    if (a != b) return absl::OkStatus();
    return Invalid(a_name, " and ", b_name, " are both buffer ", At(a).name);
  }
  // Requires that both exist, differ and have the same kind of rows.
  absl::Status SameRows(const char* in_name, BufferId in, const char* out_name,
                        BufferId out) const {
    SKEIN_RETURN_IF_ERROR(Buffer(in_name, in));
    SKEIN_RETURN_IF_ERROR(Buffer(out_name, out));
    SKEIN_RETURN_IF_ERROR(Differ(in_name, in, out_name, out));
    if (At(in).rows == At(out).rows) return absl::OkStatus();
    return Invalid(in_name, " and ", out_name, " have different kinds of rows");
  }
  // Requires that both exist and have the same shape; they may be one.
  absl::Status SameShape(const char* a_name, BufferId a, const char* b_name, BufferId b) const {
    if (a != b) SKEIN_RETURN_IF_ERROR(SameRows(a_name, a, b_name, b));
    SKEIN_RETURN_IF_ERROR(Buffer(a_name, a));
    return Columns(b_name, b, Cols(a));
  }
  // Requires that `slots` has a row of `rows` for each of a row's experts.
  absl::Status Slots(const char* rows_name, BufferId rows, BufferId routes, const char* slots_name,
                     BufferId slots) const {
    SKEIN_RETURN_IF_ERROR(SameRows(rows_name, rows, slots_name, slots));
    SKEIN_RETURN_IF_ERROR(SameRows(rows_name, rows, "routes", routes));
    SKEIN_RETURN_IF_ERROR(Differ(slots_name, slots, "routes", routes));
    if (Cols(routes) % 2 != 0) return Invalid("routes of ", Cols(routes), " columns");
    return Columns(slots_name, slots, Cols(routes) / 2 * Cols(rows));
  }
  // Requires that qkv has such heads and, where there is one, the cache.
  template <typename T>
  absl::Status Heads(const T& op) const {
    SKEIN_RETURN_IF_ERROR(Buffer("qkv", op.qkv));
    if (!Tokens(op.qkv)) return Invalid("qkv must have a row for each token");
    if (op.heads < 1 || op.kv_heads < 1 || op.head_dim < 1 || op.heads % op.kv_heads != 0) {
      return Invalid(op.heads, " heads, ", op.kv_heads, " KV heads of ", op.head_dim);
    }
    const int64_t cols = (int64_t{op.heads} + 2 * op.kv_heads) * op.head_dim;
    SKEIN_RETURN_IF_ERROR(Columns("qkv", op.qkv, cols));
    if (kv_ == nullptr || (kv_->kv_heads == op.kv_heads && kv_->head_dim == op.head_dim)) {
      return absl::OkStatus();
    }
    return Invalid(op.kv_heads, " KV heads of ", op.head_dim, ", but the cache has ", kv_->kv_heads,
                   " of ", kv_->head_dim);
  }
  // And that the cache has the layer.
  template <typename T>
  absl::Status LayerHeads(const T& op) const {
    SKEIN_RETURN_IF_ERROR(Heads(op));
    if (kv_ == nullptr) return Invalid("there is no KV cache");
    if (op.layer >= 0 && op.layer < kv_->layers) return absl::OkStatus();
    return Invalid("layer ", op.layer, " of a cache of ", kv_->layers);
  }

  const Program& program_;
  const Limits& limits_;
  const KvSpec* kv_;
};

// Each begins where the one before ends, and between the blocks of quantised rows.
absl::Status ValidateInnerBlocks(const WeightSpec& spec) {
  if (spec.inner_blocks < 1 || spec.inner_blocks > kMaxInnerBlocks) {
    return Invalid("inner_blocks is ", spec.inner_blocks, ", outside of [1, ", kMaxInnerBlocks,
                   "]");
  }
  const auto bounds = static_cast<int64_t>(spec.inner_bounds.size());
  if (bounds != 0 && bounds != spec.inner_blocks + 1) {
    return Invalid(bounds, " bounds of ", spec.inner_blocks, " inner blocks");
  }
  if (InnerBound(spec, 0) != 0 || InnerBound(spec, spec.inner_blocks) != spec.cols) {
    return Invalid("inner blocks from ", InnerBound(spec, 0), " to ",
                   InnerBound(spec, spec.inner_blocks), " of ", spec.cols, " columns");
  }
  const std::vector<WeightSpec::Part> parts = PartsOf(spec);
  for (int32_t block = 0; block < spec.inner_blocks; ++block) {
    const int64_t end = InnerBound(spec, block + 1);
    if (end < InnerBound(spec, block)) return Invalid("inner block ", block, " ends at ", end);
    for (const WeightSpec::Part& part : parts) {
      const int64_t elements = BlockElements(part.dtype);
      if (end % elements == 0) continue;
      return Invalid("inner block ", block, " ends at column ", end, ", inside of a block of ",
                     elements, " of ", std::string(DTypeName(part.dtype)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateWeightSpec(const WeightSpec& spec) {
  if (spec.rows < 1 || spec.cols < 1 || !Fits(spec.rows + kTileRows, spec.cols)) {
    return Invalid("a weight of ", spec.rows, " x ", spec.cols);
  }
  if (spec.kind == WeightSpec::Kind::kVector && spec.rows != 1) {
    return Invalid("a vector of ", spec.rows, " rows");
  }
  int64_t rows = 0;
  for (const WeightSpec::Part& part : PartsOf(spec)) {
    if (part.rows < 1) return Invalid("a part of ", part.rows, " rows");
    if (!IsWeight(part.dtype)) {
      return Invalid("a weight of ", std::string(DTypeName(part.dtype)));
    }
    if (spec.kind == WeightSpec::Kind::kVector && IsQuantized(part.dtype)) {
      return Invalid("a vector of ", std::string(DTypeName(part.dtype)));
    }
    rows += part.rows;
  }
  if (rows != spec.rows) return Invalid("parts of ", rows, " rows of ", spec.rows);
  return ValidateInnerBlocks(spec);
}

absl::Status ValidateKvSpec(const KvSpec& spec) {
  if (spec.layers < 1 || spec.kv_heads < 1 || spec.head_dim < 1 || spec.page_size < 1 ||
      spec.pages < 1) {
    return Invalid("a KV cache of ", spec.layers, " layers, ", spec.kv_heads, " heads of ",
                   spec.head_dim, ", ", spec.pages, " pages of ", spec.page_size, " tokens");
  }
  int64_t elements = 2;
  for (int64_t factor :
       {spec.head_dim + kLanes, spec.page_size + kLanes, spec.kv_heads, spec.layers, spec.pages}) {
    if (!Fits(elements, factor)) return Invalid("a KV cache whose size overflows");
    elements *= factor;
  }
  return absl::OkStatus();
}

absl::Status ValidatePageCopy(const KvSpec& from, int32_t from_page, const KvSpec& to,
                              int32_t to_page) {
  KvSpec same = from;
  same.pages = to.pages;
  if (same != to) return Invalid("the caches' pages have different shapes or dtypes");
  if (from_page < 0 || from_page >= from.pages) {
    return Invalid("from_page: no page ", from_page, " of ", from.pages);
  }
  if (to_page < 0 || to_page >= to.pages) {
    return Invalid("to_page: no page ", to_page, " of ", to.pages);
  }
  return absl::OkStatus();
}

absl::Status ValidateRows(const std::vector<ProgramWeight>& weights, const WeightRows& rows,
                          int64_t bytes) {
  if (rows.weight < 0 || static_cast<size_t>(rows.weight) >= weights.size()) {
    return Invalid("no weight ", rows.weight, " of ", weights.size());
  }
  const auto& [name, spec] = weights[rows.weight];
  if (rows.component != 0) return Invalid("weight ", name, " has no component ", rows.component);
  if (rows.first < 0 || rows.count < 0 || rows.first > spec.rows ||
      rows.count > spec.rows - rows.first) {
    return Invalid("weight ", name, ": rows [", rows.first, ", +", rows.count, ") of ", spec.rows);
  }
  int64_t begin = 0;
  for (const WeightSpec::Part& part : PartsOf(spec)) {
    const int64_t end = begin + part.rows;
    if (rows.first < end || end == spec.rows) {
      if (rows.first + rows.count > end) {
        return Invalid("weight ", name, ": rows [", rows.first, ", +", rows.count,
                       ") are of unlike parts");
      }
      if (bytes == DTypeBytes(part.dtype, rows.count * spec.cols)) return absl::OkStatus();
      return Invalid("weight ", name, ": ", bytes, " bytes for ", rows.count, " rows of ",
                     spec.cols, " ", std::string(DTypeName(part.dtype)));
    }
    begin = end;
  }
  return absl::OkStatus();
}

absl::Status ValidateProgram(const Program& program, const Limits& limits, const KvSpec* kv) {
  const Checker checker(program, limits, kv);
  SKEIN_RETURN_IF_ERROR(checker.Buffers());
  for (const ProgramWeight& weight : program.weights) {
    SKEIN_RETURN_IF_ERROR(
        Annotate(ValidateWeightSpec(weight.spec), absl::StrCat("weight ", weight.name)));
  }
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const absl::Status status =
        std::visit([&](const auto& op) { return checker.Check(op); }, program.ops[i]);
    SKEIN_RETURN_IF_ERROR(Annotate(status, absl::StrCat("operation ", i)));
    SKEIN_RETURN_IF_ERROR(Annotate(checker.Pair(i), absl::StrCat("operation ", i)));
  }
  return absl::OkStatus();
}

absl::Status ValidateBindings(const Program& program, const Bindings& bindings) {
  static const auto& kNone = *new std::vector<ProgramWeight>;
  const std::vector<ProgramWeight>& weights =
      bindings.weights == nullptr ? kNone : bindings.weights->specs();
  if (weights.size() != program.weights.size()) {
    return Invalid(weights.size(), " weights for a Program of ", program.weights.size());
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i].spec != program.weights[i].spec) {
      return Invalid("weight ", i, " (", program.weights[i].name, ") has another shape");
    }
  }
  bool has_collectives = program.logits >= 0 && program.vocab_shards > 1;
  for (const Op& op : program.ops) has_collectives |= std::holds_alternative<AllReduceOp>(op);
  if (has_collectives && bindings.collectives == nullptr) {
    return Invalid("the Program has collectives and is bound to none");
  }
  return absl::OkStatus();
}

}  // namespace skein::kernels
