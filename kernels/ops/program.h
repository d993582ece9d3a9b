// A Program states a model's forward pass on one rank as a flat list of operations over buffers and
// weights.
//
// The model's code builds one per layout, and any back end runs it. The host decides nothing
// inside, buffers have fixed addresses, and a back end may replace any run of operations by one
// kernel. Buffers are row-major, [rows, cols], with contiguous rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "kernels/packing/layout.h"
#include "kernels/sampling/shards.h"

namespace skein::kernels {

using BufferId = int32_t;  // index into Program::buffers
using WeightId = int32_t;  // index into Program::weights

struct BufferSpec {
  enum class Rows : uint8_t { kTokens, kOutputs };  // Batch::rows() or Batch::outputs()
  std::string name;
  Rows rows = Rows::kTokens;
  int64_t cols = 0;
  // A port is seen from outside, before and after a run. Other buffers are the back end's, which
  // may do without them.
  bool port = false;
  // Results of operations are rounded to it, where the back end keeps the buffer at all.
  DType dtype = DType::kF32;
};

// The name is for messages; the loader knows what fills the weight.
struct ProgramWeight {
  std::string name;
  WeightSpec spec;
};

// out[r] = table[token of row r - first_id], or zeros when this rank's part of the vocabulary,
// [first_id, first_id + count), does not hold the token. table [>= count, cols of out].
struct EmbedOp {
  WeightId table;
  int64_t first_id;
  int64_t count;
  BufferId out;
};

// out[r] = in[r] / sqrt(mean(in[r]^2) + eps) * gain. `out` may be `in`.
struct RmsNormOp {
  BufferId in;
  WeightId gain;  // vector [cols]
  float eps;
  BufferId out;
};

// out[r] = residual[r] + delta[r]. The two differ; `out` may be `residual`, and is not `delta`.
struct AddOp {
  BufferId residual;
  BufferId delta;
  BufferId out;
};

// residual[r] += delta[r], then out[r] = RmsNorm(residual[r]). `out` may be `delta`.
struct AddRmsNormOp {
  BufferId residual;
  BufferId delta;
  WeightId gain;
  float eps;
  BufferId out;
};

// out[r, n] = sum over k of in[r, k] * weight[n, k]; the sum's order is the weight's spec's.
// in [rows, weight.cols], out [rows, weight.rows]; `out` is not `in`.
struct MatMulOp {
  BufferId in;
  WeightId weight;
  BufferId out;
};

// buffer[r] += bias, in place. Where shards sum the buffer, the bias is added behind the sum, once.
struct AddBiasOp {
  BufferId buffer;
  WeightId bias;  // vector [cols]
};

// Queries and keys of qkv [rows, (heads + 2 * kv_heads) * head_dim], head by head and in place:
// x / sqrt(mean(x^2) + eps) * gain.
struct QkNormOp {
  BufferId qkv;
  int32_t heads;
  int32_t kv_heads;
  int32_t head_dim;
  WeightId q_gain;  // vector [head_dim], as the next
  WeightId k_gain;
  float eps;
};

// Rotates the first 2 n dimensions of queries and keys of qkv [rows, (heads + 2 * kv_heads) *
// head_dim] in place by their position (pairs i, i + n; angle = position * inverse_frequencies[i],
// product in float), and writes keys and values into the KV cache of `layer`.
struct RopeAppendKvOp {
  BufferId qkv;
  int32_t heads;
  int32_t kv_heads;
  int32_t head_dim;
  WeightId inverse_frequencies;  // vector [n], n <= head_dim / 2
  int32_t layer;                 // of the rank's KV cache, from 0
  float magnitude = 1;           // multiplies cosines and sines
};

// Attends with each row's queries to its sequence's positions up to the row's own; with a window,
// to that position and window - 1 before it. Query head h reads KV head h / (heads / kv_heads).
// out [rows, heads * head_dim].
struct AttentionOp {
  BufferId qkv;
  int32_t heads;
  int32_t kv_heads;
  int32_t head_dim;
  float scale;  // multiplies q . k
  int32_t layer;
  BufferId out;
  int32_t window = 0;  // 0: none
  float softcap = 0;   // scores become softcap * tanh(score / softcap); 0: they stay
};

// Of gates; kGeluTanh(x) = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).
enum class GateActivation : uint8_t { kSilu, kGeluTanh };

// A gated linear unit: out[r, i] = activation(gate_up[r, i]) * gate_up[r, cols + i]; gate_up [rows,
// 2 * cols].
struct GluOp {
  BufferId gate_up;
  BufferId out;
  GateActivation activation = GateActivation::kSilu;
};

// buffer[r] *= scale, in place.
struct ScaleOp {
  BufferId buffer;
  float scale;
};

// x = cap * tanh(x / cap) of all of the buffer, in place; cap > 0.
struct SoftCapOp {
  BufferId buffer;
  float cap;
};

// out[i] = in[the i-th row that is an output]; `out` has Rows::kOutputs.
struct GatherRowsOp {
  BufferId in;
  BufferId out;
};

// Sums the buffer over the ranks of the tensor-parallel group, in place. Programs leave it out
// where the group has one rank.
struct AllReduceOp {
  BufferId buffer;
};

// Chooses each row's experts: those with the `chosen` largest of its logits [rows, experts], the
// first of equal ones. routes [rows, 2 * chosen]: their numbers, increasing; then their weights, in
// the same order: softmax of all logits, with `normalized` divided by the chosen ones' sum.
struct RouteOp {
  BufferId logits;
  int32_t chosen;
  bool normalized;
  BufferId out;
};

// Gives each row to those of its experts that this rank has, [first, first + count): gated linear
// units, down * (activation(gate * x) * (up * x)). Expert first + e has two weights: first_weight +
// 2 e is [2 * inner, cols of in], gates before ups, first_weight + 2 e + 1 is [cols of in, inner].
// out [rows, chosen * cols of in]: of a row's i-th expert at i; zeros where another rank has it.
struct ExpertsOp {
  BufferId in;
  BufferId routes;
  int32_t first;
  int32_t count;
  WeightId first_weight;
  BufferId out;
  GateActivation activation = GateActivation::kSilu;
};

// out[r] = sum over i of the weight of row r's i-th expert * in[r, i], one after the other; in
// [rows, chosen * cols of out].
struct CombineExpertsOp {
  BufferId in;
  BufferId routes;
  BufferId out;
};

// buffer[r] += sigmoid(gate[r]) * delta[r]; gate [rows, 1].
struct AddGatedOp {
  BufferId gate;
  BufferId delta;
  BufferId buffer;
};

// RmsNorm of these rows is what BatchSequence::pooled sums up.
struct PooledBuffer {
  BufferId in = -1;  // with a row for each token; -1: nothing can be pooled
  WeightId gain = -1;
  float eps = 0;
};

using Op = std::variant<EmbedOp, RmsNormOp, AddOp, AddRmsNormOp, MatMulOp, AddBiasOp, QkNormOp,
                        RopeAppendKvOp, AttentionOp, GluOp, ScaleOp, SoftCapOp, GatherRowsOp,
                        AllReduceOp, RouteOp, ExpertsOp, CombineExpertsOp, AddGatedOp>;

struct Program {
  std::vector<BufferSpec> buffers;
  std::vector<ProgramWeight> weights;
  std::vector<Op> ops;
  // For profiles: the model's layer that each operation is of, -1 for none. May be empty.
  std::vector<int32_t> op_layers;
  // These ports hold the activations that enter from and leave for the neighbouring stages, [rows,
  // hidden]; -1 on the first and the last stage. They differ: one may be received while the other
  // is sent.
  BufferId input = -1;
  BufferId output = -1;
  // Both ports have this dtype, whatever the buffers' own: hops carry it.
  DType hop_dtype = DType::kF32;
  // A row's bits are to depend on its sequence alone: not on the batch, nor on how many shards
  // there are. Back ends of the host are always so.
  bool deterministic = false;
  // Products with quantised weights take their inputs as they are; else rounded to 8 bits (see
  // QuantizedRows), by back ends that multiply integers faster.
  bool exact = false;
  // On the last stage the model's hidden states. The buffer is what the last operation that writes
  // it leaves.
  PooledBuffer pooled;
  // Tokens are drawn from this port, [outputs, >= the part's tokens]; -1 on other than the last
  // stage. Each of `vocab_shards` shards has a part of the vocabulary, all of as many blocks.
  BufferId logits = -1;
  int64_t vocab_size = 0;
  VocabularyPart vocab_part;
  int32_t vocab_shards = 1;

  // Counts the tokens of the vocabulary of which this shard has logits.
  int64_t vocab_tokens() const {
    return std::clamp<int64_t>(vocab_size - vocab_part.first, 0,
                               vocab_part.block * vocab_part.blocks);
  }
};

// The operation at `i`, if it is such a one.
template <typename T>
const T* OpAt(const Program& program, size_t i) {
  return i < program.ops.size() ? std::get_if<T>(&program.ops[i]) : nullptr;
}

}  // namespace skein::kernels
