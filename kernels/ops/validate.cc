#include "kernels/ops/validate.h"

#include <cstddef>
#include <limits>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "base/status_util.h"

namespace skein::kernels {
namespace {

constexpr int64_t kMaxElements = std::numeric_limits<int64_t>::max() / 64;

template <typename... Args>
absl::Status Invalid(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}

template <typename T>
constexpr bool kIs(const Op& op) {
  return std::holds_alternative<T>(op);
}

bool Fits(int64_t a, int64_t b) { return a >= 0 && b >= 0 && (b == 0 || a <= kMaxElements / b); }

// Checks the operations of one Program, one overload of Check an operation.
class Checker {
 public:
  Checker(const Program& program, const KvSpec* kv) : program_(program), kv_(kv) {}

  absl::Status Buffers() const {
    if (program_.max_rows < 1) return Invalid("max_rows is ", program_.max_rows, ", not positive");
    if (program_.max_outputs < 0) return Invalid("max_outputs is ", program_.max_outputs);
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      const BufferSpec& buffer = program_.buffers[i];
      if (buffer.cols < 1 || !Fits(buffer.cols, program_.max_rows + program_.max_outputs)) {
        return Invalid("buffer ", i, " (", buffer.name, ") has ", buffer.cols, " columns");
      }
    }
    SKEIN_RETURN_IF_ERROR(Port("input", program_.input, BufferSpec::Rows::kTokens));
    SKEIN_RETURN_IF_ERROR(Port("output", program_.output, BufferSpec::Rows::kTokens));
    SKEIN_RETURN_IF_ERROR(Port("logits", program_.logits, BufferSpec::Rows::kOutputs));
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
  absl::Status Check(const RopeAppendKvOp& op) const {
    SKEIN_RETURN_IF_ERROR(Heads(op.qkv, op.heads, op.kv_heads, op.head_dim, op.layer));
    if (op.head_dim % 2 != 0) return Invalid("head_dim ", op.head_dim, " is odd");
    return Vector("inverse_frequencies", op.inverse_frequencies, op.head_dim / 2);
  }
  absl::Status Check(const AttentionOp& op) const {
    SKEIN_RETURN_IF_ERROR(Heads(op.qkv, op.heads, op.kv_heads, op.head_dim, op.layer));
    SKEIN_RETURN_IF_ERROR(SameRows("qkv", op.qkv, "out", op.out));
    return Columns("out", op.out, int64_t{op.heads} * op.head_dim);
  }
  absl::Status Check(const SwiGluOp& op) const {
    SKEIN_RETURN_IF_ERROR(SameRows("gate_up", op.gate_up, "out", op.out));
    return Columns("gate_up", op.gate_up, 2 * Cols(op.out));
  }
  absl::Status Check(const GatherRowsOp& op) const {
    SKEIN_RETURN_IF_ERROR(Buffer("in", op.in));
    SKEIN_RETURN_IF_ERROR(Buffer("out", op.out));
    if (!Tokens(op.in)) return Invalid("in must have a row for each token");
    if (Tokens(op.out)) return Invalid("out must have a row for each output");
    return Columns("out", op.out, Cols(op.in));
  }
  absl::Status Check(const AllReduceOp& op) const { return Buffer("buffer", op.buffer); }
  absl::Status Check(const AllGatherColumnsOp& op) const {
    SKEIN_RETURN_IF_ERROR(SameRows("in", op.in, "out", op.out));
    if (Cols(op.out) % Cols(op.in) == 0) return absl::OkStatus();
    return Invalid("out's ", Cols(op.out), " columns are no multiple of in's ", Cols(op.in));
  }

 private:
  const BufferSpec& At(BufferId id) const { return program_.buffers[id]; }
  const WeightSpec& Spec(WeightId id) const { return program_.weights[id].spec; }
  int64_t Cols(BufferId id) const { return At(id).cols; }
  bool Tokens(BufferId id) const { return At(id).rows == BufferSpec::Rows::kTokens; }

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
  absl::Status Vector(const char* what, WeightId id, int64_t cols) const {
    SKEIN_RETURN_IF_ERROR(Weight(what, id, WeightSpec::Kind::kVector));
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
  // Both exist, differ and have the same kind of rows.
  absl::Status SameRows(const char* in_name, BufferId in, const char* out_name,
                        BufferId out) const {
    SKEIN_RETURN_IF_ERROR(Buffer(in_name, in));
    SKEIN_RETURN_IF_ERROR(Buffer(out_name, out));
    SKEIN_RETURN_IF_ERROR(Differ(in_name, in, out_name, out));
    if (At(in).rows == At(out).rows) return absl::OkStatus();
    return Invalid(in_name, " and ", out_name, " have different kinds of rows");
  }
  // Both exist and have the same shape; they may be one.
  absl::Status SameShape(const char* a_name, BufferId a, const char* b_name, BufferId b) const {
    if (a != b) SKEIN_RETURN_IF_ERROR(SameRows(a_name, a, b_name, b));
    SKEIN_RETURN_IF_ERROR(Buffer(a_name, a));
    return Columns(b_name, b, Cols(a));
  }
  absl::Status Heads(BufferId qkv, int32_t heads, int32_t kv_heads, int32_t head_dim,
                     int32_t layer) const {
    SKEIN_RETURN_IF_ERROR(Buffer("qkv", qkv));
    if (!Tokens(qkv)) return Invalid("qkv must have a row for each token");
    if (heads < 1 || kv_heads < 1 || head_dim < 1 || heads % kv_heads != 0) {
      return Invalid(heads, " heads, ", kv_heads, " KV heads of ", head_dim);
    }
    SKEIN_RETURN_IF_ERROR(Columns("qkv", qkv, (int64_t{heads} + 2 * kv_heads) * head_dim));
    if (kv_ == nullptr) return Invalid("there is no KV cache");
    if (kv_->kv_heads != kv_heads || kv_->head_dim != head_dim) {
      return Invalid(kv_heads, " KV heads of ", head_dim, ", but the cache has ", kv_->kv_heads,
                     " of ", kv_->head_dim);
    }
    if (layer >= 0 && layer < kv_->layers) return absl::OkStatus();
    return Invalid("layer ", layer, " of a cache of ", kv_->layers);
  }

  const Program& program_;
  const KvSpec* kv_;
};

absl::Status ValidateSequence(const KvSpec& kv, const Batch& batch, int64_t sequence) {
  const int32_t begin = batch.row_begin[sequence];
  const int32_t end = batch.row_begin[sequence + 1];
  if (begin >= end || end > batch.rows()) {
    return Invalid("sequence ", sequence, " has rows [", begin, ", ", end, ") of ", batch.rows());
  }
  const int32_t context = batch.context_lengths[sequence];
  if (context - int64_t{1} != batch.positions[end - 1]) {
    return Invalid("sequence ", sequence, " has a context of ", context,
                   " but its last row is at position ", batch.positions[end - 1]);
  }
  const int64_t pages = (int64_t{context} + kv.page_size - 1) / kv.page_size;
  if (pages > batch.page_table_stride) {
    return Invalid("sequence ", sequence, " needs ", pages, " pages; the table has ",
                   batch.page_table_stride);
  }
  const int32_t* table = batch.page_table.data() + sequence * batch.page_table_stride;
  for (int64_t i = 0; i < pages; ++i) {
    if (table[i] < 0 || table[i] >= kv.pages) {
      return Invalid("sequence ", sequence, ", page ", i, ": no page ", table[i], " of ", kv.pages);
    }
  }
  for (int32_t row = begin; row < end; ++row) {
    const int32_t position = batch.positions[row];
    if (position < 0 || position != batch.positions[begin] + (row - begin)) {
      return Invalid("row ", row, " is at position ", position, " in a sequence from ",
                     batch.positions[begin]);
    }
    const int64_t slot =
        int64_t{table[position / kv.page_size]} * kv.page_size + position % kv.page_size;
    if (batch.kv_slots[row] != slot) {
      return Invalid("row ", row, " writes slot ", batch.kv_slots[row], "; its page table says ",
                     slot);
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateKvBatch(const KvSpec& kv, const Batch& batch) {
  const int64_t sequences = batch.sequences();
  if (sequences == 0 && batch.rows() == 0) return absl::OkStatus();
  if (static_cast<int64_t>(batch.kv_slots.size()) != batch.rows()) {
    return Invalid(batch.kv_slots.size(), " kv_slots for ", batch.rows(), " rows");
  }
  if (static_cast<int64_t>(batch.row_begin.size()) != sequences + 1 || batch.row_begin[0] != 0 ||
      batch.row_begin[sequences] != batch.rows()) {
    return Invalid("row_begin does not divide ", batch.rows(), " rows into ", sequences,
                   " sequences");
  }
  if (batch.page_table_stride < 0 ||
      static_cast<int64_t>(batch.page_table.size()) < sequences * batch.page_table_stride) {
    return Invalid("page_table has ", batch.page_table.size(), " entries for ", sequences,
                   " sequences of ", batch.page_table_stride);
  }
  for (int64_t i = 0; i < sequences; ++i) {
    SKEIN_RETURN_IF_ERROR(ValidateSequence(kv, batch, i));
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
  if (spec.inner_blocks < 1 || spec.inner_blocks > kMaxInnerBlocks) {
    return Invalid("inner_blocks is ", spec.inner_blocks, ", outside of [1, ", kMaxInnerBlocks,
                   "]");
  }
  return absl::OkStatus();
}

absl::Status ValidateKvSpec(const KvSpec& spec) {
  if (spec.layers < 1 || spec.kv_heads < 1 || spec.head_dim < 1 || spec.page_size < 1 ||
      spec.pages < 1) {
    return Invalid("a KV cache of ", spec.layers, " layers, ", spec.kv_heads, " heads of ",
                   spec.head_dim, ", ", spec.pages, " pages of ", spec.page_size, " slots");
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

absl::Status ValidateRows(const WeightSpec& spec, int64_t first_row, int64_t count) {
  if (first_row >= 0 && count >= 0 && first_row <= spec.rows && count <= spec.rows - first_row) {
    return absl::OkStatus();
  }
  return Invalid("rows [", first_row, ", +", count, ") of a weight of ", spec.rows, " rows");
}

absl::Status ValidateProgram(const Program& program, const KvSpec* kv) {
  const Checker checker(program, kv);
  SKEIN_RETURN_IF_ERROR(checker.Buffers());
  for (const ProgramWeight& weight : program.weights) {
    SKEIN_RETURN_IF_ERROR(
        Annotate(ValidateWeightSpec(weight.spec), absl::StrCat("weight ", weight.name)));
  }
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const absl::Status status =
        std::visit([&](const auto& op) { return checker.Check(op); }, program.ops[i]);
    SKEIN_RETURN_IF_ERROR(Annotate(status, absl::StrCat("operation ", i)));
  }
  return absl::OkStatus();
}

BatchRules RulesOf(const Program& program, const KvSpec* kv) {
  BatchRules rules{.max_rows = program.max_rows, .max_outputs = program.max_outputs};
  for (const Op& op : program.ops) {
    rules.tokens |= kIs<EmbedOp>(op);
    rules.kv |= kIs<RopeAppendKvOp>(op) || kIs<AttentionOp>(op);
  }
  if (kv != nullptr) rules.kv_spec = *kv;
  return rules;
}

absl::Status ValidateBatch(const BatchRules& rules, const Batch& batch) {
  if (batch.rows() > rules.max_rows) {
    return Invalid("a batch of ", batch.rows(), " rows; the Program takes ", rules.max_rows);
  }
  if (batch.outputs() > rules.max_outputs) {
    return Invalid("a batch of ", batch.outputs(), " outputs; the Program takes ",
                   rules.max_outputs);
  }
  for (size_t i = 0; i < batch.output_rows.size(); ++i) {
    if (batch.output_rows[i] < 0 || batch.output_rows[i] >= batch.rows()) {
      return Invalid("output ", i, " wants row ", batch.output_rows[i], " of ", batch.rows());
    }
  }
  if (rules.tokens) {
    if (static_cast<int64_t>(batch.token_ids.size()) != batch.rows()) {
      return Invalid(batch.token_ids.size(), " token_ids for ", batch.rows(), " rows");
    }
    for (size_t i = 0; i < batch.token_ids.size(); ++i) {
      if (batch.token_ids[i] < 0) return Invalid("row ", i, ": no token ", batch.token_ids[i]);
    }
  }
  return rules.kv ? ValidateKvBatch(rules.kv_spec, batch) : absl::OkStatus();
}

}  // namespace skein::kernels
