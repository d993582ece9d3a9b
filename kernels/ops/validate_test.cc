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

// Buffers: 0 and 1 [rows, 8], 2 [rows, 32] (4 + 2 * 2 heads of 4), 3 [rows, 16], 4 [outputs, 8],
// 5 [outputs, 10]. Weights: 0 table 10 x 8, 1 gain, 2 qkv, 3 frequencies.
Program Good() {
  Program p{.max_rows = 6, .max_outputs = 3, .logits = 5};
  const auto outputs = BufferSpec::Rows::kOutputs;
  p.buffers = {{.name = "x", .cols = 8, .port = true},
               {.name = "y", .cols = 8},
               {.name = "qkv", .cols = 32},
               {.name = "attended", .cols = 16, .port = true},
               {"gathered", outputs, 8, true},
               {"logits", outputs, 10, true}};
  p.weights = {{"table", Matrix(10, 8)},
               {"gain", Vector(8)},
               {"wqkv", Matrix(32, 8)},
               {"frequencies", Vector(2)}};
  p.ops = {EmbedOp{0, 0, 10, 0},
           RmsNormOp{0, 1, 1e-5f, 1},
           MatMulOp{1, 2, 2},
           RopeAppendKvOp{2, 4, 2, 4, 3, 0},
           AttentionOp{2, 4, 2, 4, 0.5f, 0, 3},
           SwiGluOp{3, 1},
           AddOp{0, 1, 0},
           AddRmsNormOp{0, 1, 1, 1e-5f, 1},
           GatherRowsOp{1, 4},
           MatMulOp{4, 0, 5},
           AllReduceOp{0},
           AllGatherColumnsOp{1, 2}};
  return p;
}

TEST(ValidateProgramTest, Table) {
  SKEIN_EXPECT_OK(ValidateProgram(Good(), &kKv));
  struct Case {
    Op op;  // put at the end of a good Program
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
      {RopeAppendKvOp{2, 4, 2, 4, 3, 2}, "layer 2 of a cache of 2"},
      {RopeAppendKvOp{2, 4, 2, 4, 3, -1}, "layer -1"},
      {RopeAppendKvOp{2, 4, 2, 4, 1, 0}, "gain has 8 elements instead of 2"},
      {RopeAppendKvOp{2, 6, 1, 4, 3, 0}, "but the cache has 2 of 4"},
      {RopeAppendKvOp{2, 3, 2, 4, 3, 0}, "3 heads, 2 KV heads"},
      {RopeAppendKvOp{2, 0, 2, 4, 3, 0}, "0 heads"},
      {AttentionOp{2, 4, 2, 4, 1, 0, 2}, "qkv and out are both"},
      {AttentionOp{2, 4, 2, 4, 1, 0, 0}, "x has 8 columns instead of 16"},
      {AttentionOp{0, 4, 2, 4, 1, 0, 3}, "x has 8 columns instead of 32"},
      {SwiGluOp{0, 1}, "x has 8 columns instead of 16"},
      {GatherRowsOp{4, 4}, "in must have a row for each token"},
      {GatherRowsOp{0, 1}, "out must have a row for each output"},
      {GatherRowsOp{0, 5}, "logits has 10 columns instead of 8"},
      {AllReduceOp{7}, "no buffer 7"},
      {AllGatherColumnsOp{0, 0}, "both buffer x"},
      {AllGatherColumnsOp{4, 5}, "no multiple"},
  };
  for (const Case& c : cases) {
    Program p = Good();
    p.ops.push_back(c.op);
    EXPECT_THAT(ValidateProgram(p, &kKv), StatusIs(kInvalid, HasSubstr(c.message)));
    EXPECT_THAT(ValidateProgram(p, &kKv), StatusIs(kInvalid, HasSubstr("operation 12: ")));
  }
}

TEST(ValidateProgramTest, WhatIsNotAnOperation) {
  struct Case {
    std::function<void(Program&)> change;
    const char* message;
  };
  const Case cases[] = {
      {[](Program& p) { p.max_rows = 0; }, "max_rows is 0"},
      {[](Program& p) { p.max_outputs = -1; }, "max_outputs is -1"},
      {[](Program& p) { p.buffers[3].cols = 0; }, "buffer 3 (attended) has 0 columns"},
      {[](Program& p) { p.buffers[3].cols = int64_t{1} << 60; }, "buffer 3 (attended)"},
      {[](Program& p) { p.input = 4; }, "input: buffer gathered has the wrong kind"},
      {[](Program& p) { p.output = 77; }, "output: no buffer 77"},
      {[](Program& p) { p.logits = 0; }, "logits: buffer x has the wrong kind"},
      {[](Program& p) { p.output = 1; }, "output: buffer y is no port"},
      {[](Program& p) { p.input = p.output = 3; }, "input and output are both buffer attended"},
      {[](Program& p) { p.weights[1].spec.rows = 2; }, "weight gain: a vector of 2 rows"},
      {[](Program& p) { p.weights[0].spec.inner_blocks = 0; }, "weight table: inner_blocks is 0"},
  };
  for (const Case& c : cases) {
    Program p = Good();
    c.change(p);
    EXPECT_THAT(ValidateProgram(p, &kKv), StatusIs(kInvalid, HasSubstr(c.message)));
  }
  EXPECT_THAT(ValidateProgram(Good(), nullptr),
              StatusIs(kInvalid, HasSubstr("operation 3: there is no KV cache")));
}

// Two sequences: a prefill of positions 0..3 on pages 4 (and 1, not yet), a decode at position 5 on
// pages 0, 3.
struct OwnedBatch {
  std::vector<int32_t> token_ids = {1, 2, 3, 4, 5};
  std::vector<int32_t> positions = {0, 1, 2, 3, 5};
  std::vector<int64_t> kv_slots = {16, 17, 18, 19, 13};
  std::vector<int32_t> row_begin = {0, 4, 5};
  std::vector<int32_t> context_lengths = {4, 6};
  std::vector<int32_t> page_table = {4, 99, 0, 3};
  int64_t stride = 2;
  std::vector<int32_t> output_rows = {3, 4};

  Batch view() const {
    return {.token_ids = token_ids,
            .positions = positions,
            .kv_slots = kv_slots,
            .row_begin = row_begin,
            .context_lengths = context_lengths,
            .page_table = page_table,
            .page_table_stride = stride,
            .output_rows = output_rows};
  }
};

TEST(ValidateBatchTest, Table) {
  const BatchRules rules = RulesOf(Good(), &kKv);
  SKEIN_EXPECT_OK(ValidateBatch(rules, OwnedBatch().view()));
  struct Case {
    std::function<void(OwnedBatch&)> change;
    const char* message;
  };
  const int32_t most = 2147483647;
  const Case cases[] = {
      {[](OwnedBatch& b) { b.positions.resize(7); }, "7 rows; the Program takes 6"},
      {[](OwnedBatch& b) { b.output_rows = {0, 1, 2, 3}; }, "4 outputs; the Program takes 3"},
      {[](OwnedBatch& b) { b.output_rows[1] = 5; }, "output 1 wants row 5 of 5"},
      {[](OwnedBatch& b) { b.output_rows[0] = -1; }, "output 0 wants row -1"},
      {[](OwnedBatch& b) { b.token_ids.pop_back(); }, "4 token_ids for 5 rows"},
      {[](OwnedBatch& b) { b.token_ids[2] = -3; }, "row 2: no token -3"},
      {[](OwnedBatch& b) { b.kv_slots.pop_back(); }, "4 kv_slots for 5 rows"},
      {[](OwnedBatch& b) { b.kv_slots[1] = 16; }, "row 1 writes slot 16; its page table says 17"},
      {[](OwnedBatch& b) { b.kv_slots[4] = -1; }, "row 4 writes slot -1"},
      {[](OwnedBatch& b) { b.row_begin = {0, 5}; }, "row_begin does not divide"},
      {[](OwnedBatch& b) { b.row_begin = {}; }, "row_begin does not divide"},
      {[](OwnedBatch& b) { b.row_begin = {1, 4, 5}; }, "row_begin does not divide"},
      {[](OwnedBatch& b) { b.row_begin = {0, 4, 4}; }, "row_begin does not divide"},
      {[](OwnedBatch& b) { b.row_begin = {0, 0, 5}; }, "sequence 0 has rows [0, 0)"},
      {[](OwnedBatch& b) { b.row_begin = {0, 9, 5}; }, "sequence 0 has rows [0, 9) of 5"},
      {[](OwnedBatch& b) { b.row_begin = {0, -3, 5}; }, "sequence 0 has rows [0, -3)"},
      {[](OwnedBatch& b) { b.positions[1] = 2; }, "row 1 is at position 2 in a sequence from 0"},
      {[](OwnedBatch& b) { b.context_lengths[1] = 5; }, "sequence 1 has a context of 5"},
      {[](OwnedBatch& b) {
         b.positions[4] = -1;
         b.context_lengths[1] = 0;
       },
       "row 4 is at position -1"},
      {[=](OwnedBatch& b) { b.positions[4] = most; }, "sequence 1 has a context of 6"},
      {[=](OwnedBatch& b) {
         b.positions[4] = most - 1;
         b.context_lengths[1] = most;
       },
       "sequence 1 needs 536870912 pages; the table has 2"},
      {[](OwnedBatch& b) { b.page_table[3] = 5; }, "sequence 1, page 1: no page 5 of 5"},
      {[](OwnedBatch& b) { b.page_table[0] = -1; }, "sequence 0, page 0: no page -1"},
      {[](OwnedBatch& b) { b.page_table.pop_back(); }, "page_table has 3 entries"},
      {[](OwnedBatch& b) { b.stride = -1; }, "page_table has 4 entries for 2 sequences of -1"},
  };
  for (const Case& c : cases) {
    OwnedBatch b;
    c.change(b);
    EXPECT_THAT(ValidateBatch(rules, b.view()), StatusIs(kInvalid, HasSubstr(c.message)));
  }
}

TEST(ValidateBatchTest, AsksForWhatTheProgramUses) {
  Program p = Good();
  p.ops = {GatherRowsOp{1, 4}};
  const BatchRules rules = RulesOf(p, nullptr);
  OwnedBatch b;
  b.token_ids.clear();
  b.kv_slots.clear();
  b.row_begin.clear();
  SKEIN_EXPECT_OK(ValidateBatch(rules, b.view()));
  SKEIN_EXPECT_OK(ValidateBatch(rules, Batch{}));
  SKEIN_EXPECT_OK(ValidateBatch(RulesOf(Good(), &kKv), Batch{}));
}

}  // namespace
}  // namespace skein::kernels
