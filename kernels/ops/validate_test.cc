#include "kernels/ops/validate.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::kernels {
namespace {

using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
const KvSpec kKv{.layers = 2, .kv_heads = 2, .head_dim = 4, .page_size = 4, .pages = 5};

WeightSpec Matrix(int64_t rows, int64_t cols) { return {.rows = rows, .cols = cols}; }
WeightSpec Vector(int64_t cols) {
  return {.kind = WeightSpec::Kind::kVector, .rows = 1, .cols = cols};
}

constexpr Limits kLimits{.rows = 6, .outputs = 3, .slots = 4, .slot_pages = 3};

// The buffers are 0 and 1 [rows, 8], 2 [rows, 32] (4 + 2 * 2 heads of 4), 3 [rows, 16], 4 [outputs,
// 8] and 5 [outputs, 10]. The weights are 0 table 10 x 8, 1 gain, 2 qkv and 3 frequencies.
Program Good() {
  Program p{.logits = 5, .vocab_size = 10, .vocab_part = {.block = 5, .blocks = 2}};
  const auto outputs = BufferSpec::Rows::kOutputs;
  p.buffers = {{.name = "x", .cols = 8, .port = true},
               {.name = "y", .cols = 8},
               {.name = "qkv", .cols = 32},
               {.name = "attended", .cols = 16, .port = true},
               {"gathered", outputs, 8, true},
               {"logits", outputs, 10, true}};
  p.weights = {{"table", Matrix(10, 8)},   {"gain", Vector(8)},      {"wqkv", Matrix(32, 8)},
               {"frequencies", Vector(2)}, {"head gain", Vector(4)}, {"bias", Vector(32)}};
  p.ops = {EmbedOp{0, 0, 10, 0},
           RmsNormOp{0, 1, 1e-5f, 1},
           MatMulOp{1, 2, 2},
           AddBiasOp{2, 5},
           QkNormOp{2, 4, 2, 4, 4, 4, 1e-5f},
           RopeAppendKvOp{2, 4, 2, 4, 3, 0},
           AttentionOp{2, 4, 2, 4, 0.5f, 0, 3},
           GluOp{3, 1},
           AddOp{0, 1, 0},
           AddRmsNormOp{0, 1, 1, 1e-5f, 1},
           GatherRowsOp{1, 4},
           MatMulOp{4, 0, 5},
           AllReduceOp{0}};
  return p;
}

TEST(ValidateProgramTest, Table) {
  SKEIN_EXPECT_OK(ValidateProgram(Good(), kLimits, &kKv));
  struct Case {
    Op op;  // is put at the end of a good Program
    const char* message;
  };
  const Case cases[] = {
      {EmbedOp{9, 0, 10, 0}, "weight: no weight 9"},
      {EmbedOp{1, 0, 1, 0}, "gain is not a matrix"},
      {EmbedOp{0, 0, 11, 0}, "of a table of 10 rows"},
      {EmbedOp{0, -1, 10, 0}, "ids [-1"},
      {EmbedOp{0, 0, 10, 2}, "qkv has 32 columns instead of 8"},
      {EmbedOp{0, 0, 10, 4}, "a row for each token"},
      {RmsNormOp{0, 0, 0, 0}, "table is not a vector"},
      {RmsNormOp{2, 1, 0, 2}, "gain has 8 elements instead of 32"},
      {RmsNormOp{0, 1, 0, 3}, "attended has 16 columns instead of 8"},
      {RmsNormOp{0, 1, 0, 4}, "different kinds of rows"},
      {RmsNormOp{-1, 1, 0, 0}, "in: no buffer -1 among 6"},
      {RmsNormOp{6, 1, 0, 6}, "in: no buffer 6"},
      {AddOp{0, 0, 0}, "residual and delta are both buffer x"},
      {AddOp{0, 3, 0}, "attended has 16 columns"},
      {AddOp{0, 1, 3}, "attended has 16 columns"},
      {AddOp{0, 1, 1}, "delta and out are both buffer y"},
      {AddRmsNormOp{0, 0, 1, 0, 1}, "both buffer x"},
      {AddRmsNormOp{0, 1, 1, 0, 0}, "residual and out are both buffer x"},
      {MatMulOp{0, 2, 0}, "in and out are both buffer x"},
      {MatMulOp{3, 2, 2}, "attended has 16 columns instead of 8"},
      {MatMulOp{0, 2, 3}, "attended has 16 columns instead of 32"},
      {MatMulOp{0, 0, 5}, "different kinds of rows"},
      {AddBiasOp{9, 1}, "no buffer 9"},
      {AddBiasOp{0, 0}, "table is not a vector"},
      {AddBiasOp{2, 1}, "bias: weight gain has 8 elements instead of 32"},
      {QkNormOp{0, 4, 2, 4, 4, 4, 0}, "x has 8 columns instead of 32"},
      {QkNormOp{2, 3, 2, 4, 4, 4, 0}, "3 heads, 2 KV heads"},
      {QkNormOp{2, 12, 2, 2, 3, 3, 0}, "2 KV heads of 2, but the cache has 2 of 4"},
      {QkNormOp{2, 4, 2, 4, 1, 4, 0}, "q_gain: weight gain has 8 elements instead of 4"},
      {QkNormOp{2, 4, 2, 4, 4, 1, 0}, "k_gain: weight gain has 8 elements instead of 4"},
      {RopeAppendKvOp{2, 4, 2, 4, 3, 2}, "layer 2 of a cache of 2"},
      {RopeAppendKvOp{2, 4, 2, 4, 3, -1}, "layer -1"},
      {RopeAppendKvOp{2, 4, 2, 4, 1, 0}, "16 dimensions to rotate of heads of 4"},
      {RopeAppendKvOp{2, 4, 2, 4, 0, 0}, "table is not a vector"},
      {RopeAppendKvOp{2, 6, 1, 4, 3, 0}, "but the cache has 2 of 4"},
      {RopeAppendKvOp{2, 3, 2, 4, 3, 0}, "3 heads, 2 KV heads"},
      {RopeAppendKvOp{2, 0, 2, 4, 3, 0}, "0 heads"},
      {AttentionOp{2, 4, 2, 4, 1, 0, 2}, "qkv and out are both"},
      {AttentionOp{2, 4, 2, 4, 1, 0, 0}, "x has 8 columns instead of 16"},
      {AttentionOp{0, 4, 2, 4, 1, 0, 3}, "x has 8 columns instead of 32"},
      {AttentionOp{2, 4, 2, 4, 1, 0, 3, -1}, "a window of -1"},
      {AttentionOp{2, 4, 2, 4, 1, 0, 3, 0, -1.0f}, "a soft cap of -1"},
      {SoftCapOp{5, 0.0f}, "a soft cap of 0"},
      {SoftCapOp{7, 1.0f}, "no buffer 7"},
      {ScaleOp{7, 1.0f}, "no buffer 7"},
      {GluOp{0, 1}, "x has 8 columns instead of 16"},
      {GatherRowsOp{4, 4}, "in must have a row for each token"},
      {GatherRowsOp{0, 1}, "out must have a row for each output"},
      {GatherRowsOp{0, 5}, "logits has 10 columns instead of 8"},
      {AllReduceOp{7}, "no buffer 7"},
      {RouteOp{0, 9, false, 1}, "9 experts a row of 8"},
      {RouteOp{0, 0, false, 1}, "0 experts a row of 8"},
      {RouteOp{0, 4, false, 3}, "attended has 16 columns instead of 8"},
      {RouteOp{0, 4, false, 0}, "logits and out are both buffer x"},
      {ExpertsOp{1, 0, 0, 1, 9, 2}, "no weight 9"},
      {ExpertsOp{1, 0, -1, 1, 0, 2}, "experts [-1, +1)"},
      {ExpertsOp{1, 0, 0, 0, 0, 2}, "experts [0, +0)"},
      {ExpertsOp{1, 0, 0, 1, 0, 3}, "attended has 16 columns instead of 32"},
      {ExpertsOp{1, 1, 0, 1, 0, 2}, "in and routes are both buffer y"},
      {CombineExpertsOp{3, 0, 1}, "in: buffer attended has 16 columns instead of 32"},
      {AddGatedOp{0, 0, 1}, "gate and delta are both buffer x"},
      {AddGatedOp{3, 0, 1}, "gate: buffer attended has 16 columns instead of 1"},
      {AddGatedOp{0, 1, 1}, "buffer and delta are both"},
  };
  for (const Case& c : cases) {
    Program p = Good();
    p.ops.push_back(c.op);
    EXPECT_THAT(ValidateProgram(p, kLimits, &kKv), StatusIs(kInvalid, HasSubstr(c.message)));
    EXPECT_THAT(ValidateProgram(p, kLimits, &kKv), StatusIs(kInvalid, HasSubstr("operation 13: ")));
  }
}

TEST(ValidateProgramTest, WhatIsNotAnOperation) {
  struct Case {
    std::function<void(Program&)> change;
    const char* message;
  };
  const Case cases[] = {
      {[](Program& p) { p.buffers[3].cols = 0; }, "buffer 3 (attended) has 0 columns"},
      {[](Program& p) { p.buffers[3].cols = int64_t{1} << 60; }, "buffer 3 (attended)"},
      {[](Program& p) { p.buffers[1].dtype = DType::kI32; }, "buffer 1 (y) is of I32"},
      {[](Program& p) { p.hop_dtype = DType::kU8; }, "hops of U8"},
      {[](Program& p) { p.input = 4; }, "input: buffer gathered has the wrong kind"},
      {[](Program& p) { p.output = 77; }, "output: no buffer 77"},
      {[](Program& p) { p.logits = 0; }, "logits: buffer x has the wrong kind"},
      {[](Program& p) { p.vocab_size = 11; }, "1 shards of 2 blocks of 5 for a vocabulary of 11"},
      {[](Program& p) { p.vocab_size = 0; }, "for a vocabulary of 0"},
      {[](Program& p) { p.vocab_part.blocks = 0; }, "shards of 0 blocks"},
      {[](Program& p) { p.vocab_part.block = 6; }, "logits: 12 tokens in 10 columns"},
      {[](Program& p) { p.output = 1; }, "output: buffer y is no port"},
      {[](Program& p) { p.input = p.output = 3; }, "input and output are both buffer attended"},
      {[](Program& p) { p.weights[1].spec.rows = 2; }, "weight gain: a vector of 2 rows"},
      {[](Program& p) { p.weights[0].spec.inner_blocks = 0; }, "weight table: inner_blocks is 0"},
      {[](Program& p) { p.ops = {AddBiasOp{0, 1}, AllReduceOp{0}}; },
       "operation 0: a bias of x, which shards sum"},
  };
  for (const Case& c : cases) {
    Program p = Good();
    c.change(p);
    EXPECT_THAT(ValidateProgram(p, kLimits, &kKv), StatusIs(kInvalid, HasSubstr(c.message)));
  }
  EXPECT_THAT(ValidateProgram(Good(), kLimits, nullptr),
              StatusIs(kInvalid, HasSubstr("operation 5: there is no KV cache")));
}

TEST(ValidateProgramTest, Limits) {
  for (const Limits& limits :
       {Limits{.rows = 0}, Limits{.outputs = -1}, Limits{.slots = 0}, Limits{.slot_pages = -1}}) {
    EXPECT_THAT(ValidateProgram(Good(), limits, &kKv), StatusIs(kInvalid, HasSubstr("limits of")));
  }
}

// Slot 2 starts with a prompt of four positions; slot 0 computes its next position.
Batch GoodBatch() {
  return {.starts = {{.slot = 2, .prompt = {1, 2, 3, 4}}},
          .copies = {{PageCopy::Kind::kWithin, 1, 4}, {PageCopy::Kind::kSwapIn, 6, 0}},
          .updates = {{.slot = 2, .pages = {4}}, {.slot = 0, .length = 5, .first_page = 1}},
          .sequences = {{.slot = 2, .rows = 4, .outputs = 1, .draws = true},
                        {.slot = 0, .outputs = 1, .draws = true}},
          .token_ids = {1, 2, 3, 4, kNewestToken}};
}

TEST(ValidateBatchTest, Table) {
  const KvSpec swap{.pages = 7};
  const BatchRules rules = RulesOf(Good(), kLimits, &kKv, &swap);
  SKEIN_EXPECT_OK(ValidateBatch(rules, GoodBatch()));
  struct Case {
    std::function<void(Batch&)> change;
    const char* message;
  };
  const Case cases[] = {
      {[](Batch& b) { b.token_ids.resize(7); }, "7 rows; there may be 6"},
      {[](Batch& b) { b.token_ids.pop_back(); }, "sequences of 5 rows, and 4 tokens"},
      {[](Batch& b) { b.token_ids[2] = -3; }, "row 2: no token -3"},
      {[](Batch& b) { b.sequences[0].outputs = 3; }, "4 outputs; there may be 3"},
      {[](Batch& b) { b.sequences[1].outputs = 2; }, "slot 0 wants 2 outputs of 1 rows"},
      {[](Batch& b) { b.sequences[1].outputs = -1; }, "slot 0 wants -1 outputs"},
      {[](Batch& b) { b.sequences[1].outputs = 0; }, "slot 0 is to be sampled from no output"},
      {[](Batch& b) { b.sequences[0].prompt_logprobs = 2; }, "of its prompt with 1 outputs of 4"},
      {[](Batch& b) { b.sequences[0].guesses = 1; }, "slot 2 has 1 guesses, with 1 outputs, to be"},
      {[](Batch& b) { b.sequences[0] = {.slot = 2, .rows = 4, .masked = true}; },
       "slot 2 has a mask and is not"},
      {[](Batch& b) { b.sequences[0].guesses = -1; }, "slot 2 has -1 guesses"},
      {[](Batch& b) { b.sequences[0] = {.slot = 2, .rows = 4, .outputs = 2, .guesses = 1}; },
       "slot 2 has 1 guesses, with 2 outputs, not to be sampled from"},
      {[](Batch& b) {
         b.sequences[0].outputs = 2;
         b.sequences[0].guesses = 1;
         b.token_ids[3] = kNewestToken;
       },
       "slot 2: a guess of token -1"},
      {[](Batch& b) { b.sequences[1].rows = 0; }, "slot 0 has 0 rows"},
      {[](Batch& b) { b.sequences[1].slot = 4; }, "a sequence: no slot 4 of 4"},
      {[](Batch& b) { b.sequences[1].slot = -1; }, "a sequence: no slot -1"},
      {[](Batch& b) { b.starts[0].slot = 9; }, "a start: no slot 9"},
      {[](Batch& b) { b.starts[0].prompt_of = 4; }, "a shared prompt: no slot 4"},
      {[](Batch& b) { b.copies[0].to = 5; }, "a copy: page 1 to 5, of 5 and 7 in the pool"},
      {[](Batch& b) { b.copies[1].from = 7; }, "a copy from the swap pool: page 7 to 0"},
      {[](Batch& b) { b.copies[0] = {PageCopy::Kind::kSwapOut, 4, 7}; }, "to the swap pool"},
      {[](Batch& b) { b.updates[0].slot = 4; }, "an update: no slot 4"},
      {[](Batch& b) { b.updates[0].pages[0] = 5; }, "slot 2, page 0: no page 5 of 5"},
      {[](Batch& b) { b.updates[0].pages[0] = -1; }, "slot 2, page 0: no page -1"},
      {[](Batch& b) { b.updates[0].first_page = 3; }, "slot 2: pages from 3, 1 of them"},
      {[](Batch& b) { b.updates[0].first_page = -1; }, "slot 2: pages from -1"},
      {[](Batch& b) { b.updates.assign(5, {.slot = 1, .pages = {0, 1, 2}}); },
       "updates of 15 pages; 4 slots have 3 each"},
      {[](Batch& b) { b.updates[1].length = -1; }, "slot 0: a length of -1"},
      {[](Batch& b) { b.updates[1].length = int64_t{1} << 40; }, "slot 0: a length of"},
  };
  for (const Case& c : cases) {
    Batch b = GoodBatch();
    c.change(b);
    EXPECT_THAT(ValidateBatch(rules, b), StatusIs(kInvalid, HasSubstr(c.message)));
  }
}

TEST(ValidateTokensTest, Table) {
  const BatchRules rules = RulesOf(Good(), kLimits, &kKv, nullptr);
  SKEIN_EXPECT_OK(ValidateTokens(rules, {}, {}));
  SKEIN_EXPECT_OK(ValidateTokens(rules, {3, 0}, {0, 9}));
  EXPECT_THAT(ValidateTokens(rules, {3, 4}, {0, 9}),
              StatusIs(kInvalid, "a newest token: no slot 4 of 4"));
  EXPECT_THAT(ValidateTokens(rules, {-1}, {0}), StatusIs(kInvalid, HasSubstr("no slot -1")));
  EXPECT_THAT(ValidateTokens(rules, {2}, {-1}), StatusIs(kInvalid, "slot 2: a newest token of -1"));
  EXPECT_THAT(ValidateTokens(rules, {2, 1}, {5}), StatusIs(kInvalid, "1 tokens for 2 slots"));
}

TEST(ValidateBatchTest, AsksForWhatTheProgramUses) {
  Program p = Good();
  p.ops = {RmsNormOp{0, 1, 1e-5f, 1}};
  const BatchRules rules = RulesOf(p, kLimits, nullptr, nullptr);
  Batch b = GoodBatch();
  b.copies.clear();
  b.sequences[0].outputs = 4;
  b.token_ids[0] = -7;
  b.updates[0].pages[0] = 99;
  SKEIN_EXPECT_OK(ValidateBatch(rules, b));
  SKEIN_EXPECT_OK(ValidateBatch(rules, Batch{}));
  SKEIN_EXPECT_OK(ValidateBatch(RulesOf(Good(), kLimits, &kKv, nullptr), Batch{}));
  b.copies = {{PageCopy::Kind::kWithin, 0, 0}};
  EXPECT_THAT(ValidateBatch(rules, b), StatusIs(kInvalid, HasSubstr("page 0 to 0, of 0 and 0")));
}

}  // namespace
}  // namespace skein::kernels
