#include "kernels/cuda/persistent/schedule.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/ops/program.h"

namespace skein::kernels::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = ScheduledOp::Kind;
using Then = ScheduledOp::Then;

struct Shape {
  int64_t hidden = 256;
  int64_t ffn = 512;
  int32_t heads = 4;
  int32_t kv_heads = 2;
  int32_t head_dim = 64;
  int64_t vocabulary = 1000;
  int layers = 2;
  bool biases = false;    // of every product
  bool qk_norms = false;  // of query and key heads
  bool shards = false;    // others have a part of each layer, too
  bool stage = false;     // in the middle of a pipeline
};

// As parallel/program builds one.
class TestModel {
 public:
  explicit TestModel(const Shape& shape) {
    const int64_t qkv_cols = int64_t{shape.heads + 2 * shape.kv_heads} * shape.head_dim;
    const int64_t attended_cols = int64_t{shape.heads} * shape.head_dim;
    residual = Buffer("residual", shape.hidden);
    normed = Buffer("normed", shape.hidden);
    delta = Buffer("delta", shape.hidden);
    qkv = Buffer("qkv", qkv_cols);
    attended = Buffer("attention", attended_cols);
    gate_up = Buffer("gate_up", 2 * shape.ffn);
    activation = Buffer("activation", shape.ffn);
    last = Buffer("last", shape.hidden);
    program.logits = Buffer("logits", shape.vocabulary);
    program.buffers[program.logits].dtype = DType::kF32;
    const WeightId table = Weight(shape.vocabulary, shape.hidden);
    const WeightId frequencies = Weight(1, shape.head_dim / 2);
    if (shape.stage) {
      program.input = residual;
    } else {
      Add(EmbedOp{table, 0, shape.vocabulary, residual});
      if (shape.shards) Add(AllReduceOp{residual});
    }
    for (int32_t layer = 0; layer < shape.layers; ++layer) {
      const WeightId gain = Weight(1, shape.hidden);
      if (layer == 0) {
        Add(RmsNormOp{residual, gain, 1e-5f, normed});
      } else {
        Add(AddRmsNormOp{residual, delta, gain, 1e-5f, normed});
      }
      const auto bias = [&](BufferId of) {
        if (shape.biases) Add(AddBiasOp{of, Weight(1, program.buffers[of].cols)});
      };
      Add(MatMulOp{normed, Weight(qkv_cols, shape.hidden), qkv});
      bias(qkv);
      if (shape.qk_norms) {
        Add(QkNormOp{qkv, shape.heads, shape.kv_heads, shape.head_dim, Weight(1, shape.head_dim),
                     Weight(1, shape.head_dim), 1e-6f});
      }
      Add(RopeAppendKvOp{qkv, shape.heads, shape.kv_heads, shape.head_dim, frequencies, layer});
      Add(AttentionOp{qkv, shape.heads, shape.kv_heads, shape.head_dim, 0.125f, layer, attended});
      Add(MatMulOp{attended, Weight(shape.hidden, attended_cols), delta});
      if (shape.shards) Add(AllReduceOp{delta});
      bias(delta);
      Add(AddRmsNormOp{residual, delta, Weight(1, shape.hidden), 1e-5f, normed});
      Add(MatMulOp{normed, Weight(2 * shape.ffn, shape.hidden), gate_up});
      bias(gate_up);
      Add(GluOp{gate_up, activation});
      Add(MatMulOp{activation, Weight(shape.hidden, shape.ffn), delta});
      if (shape.shards) Add(AllReduceOp{delta});
      bias(delta);
    }
    if (shape.stage) {
      program.logits = -1;
      program.output = Buffer("output", shape.hidden);
      Add(AddOp{residual, delta, program.output});
      return;
    }
    Add(AddOp{residual, delta, residual});
    Add(GatherRowsOp{residual, last});
    Add(RmsNormOp{last, Weight(1, shape.hidden), 1e-5f, last});
    Add(MatMulOp{last, table, program.logits});
    if (shape.biases) Add(AddBiasOp{program.logits, Weight(1, shape.vocabulary)});
    program.vocab_size = shape.vocabulary;
  }

  Program program;
  BufferId residual, normed, delta, qkv, attended, gate_up, activation, last;

 private:
  BufferId Buffer(std::string name, int64_t cols) {
    program.buffers.push_back({.name = std::move(name), .cols = cols, .dtype = DType::kBF16});
    return static_cast<BufferId>(program.buffers.size()) - 1;
  }
  WeightId Weight(int64_t rows, int64_t cols) {
    const WeightId id = static_cast<WeightId>(program.weights.size());
    program.weights.push_back({absl::StrCat("w", id), {.rows = rows, .cols = cols}});
    return id;
  }
  void Add(Op op) { program.ops.push_back(op); }
};

std::string Name(const ScheduledOp& op) {
  switch (op.kind) {
    case Kind::kEmbed:
      return "embed";
    case Kind::kTakeIn:
      return "take in";
    case Kind::kSum:
      return "sum";
    case Kind::kAttention:
      return "attention";
    case Kind::kProduct:
      break;
  }
  switch (op.then) {
    case Then::kQkv:
      return "qkv";
    case Then::kSwiGlu:
      return "swiglu";
    case Then::kAdd:
      return "add";
    case Then::kSend:
      return "send";
    case Then::kLogits:
      return "logits";
  }
  return "";
}

std::vector<std::string> Names(const Schedule& schedule) {
  std::vector<std::string> names;
  for (const ScheduledOp& op : schedule.ops) names.push_back(Name(op));
  return names;
}

TEST(ScheduleTest, AModelsOperationsGoTogether) {
  const TestModel model({});
  SKEIN_ASSERT_OK_AND_ASSIGN(const Schedule schedule, MakeSchedule(model.program));
  EXPECT_THAT(Names(schedule), ElementsAre("embed", "qkv", "attention", "add", "swiglu", "add",
                                           "qkv", "attention", "add", "swiglu", "add", "logits"));
  EXPECT_EQ(schedule.attention.heads, 4);
  EXPECT_EQ(schedule.attention.kv_heads, 2);
  EXPECT_EQ(schedule.attention.head_dim, 64);
  const std::vector<ScheduledOp>& ops = schedule.ops;
  // What an operation reads is what the one before gave, normalised or not.
  EXPECT_TRUE(ops[1].of_normed);
  EXPECT_EQ(ops[1].in, ops[0].normed);
  EXPECT_EQ(ops[1].in_squares, ops[0].squares);
  EXPECT_EQ(ops[2].in, ops[1].out);
  EXPECT_FALSE(ops[3].of_normed);
  EXPECT_EQ(ops[3].in, ops[2].out);
  EXPECT_EQ(ops[3].old, ops[0].out);
  EXPECT_EQ(ops[4].in, ops[3].normed);
  EXPECT_EQ(ops[5].in, ops[4].out);
  EXPECT_EQ(ops[5].old, ops[3].out);
  EXPECT_EQ(ops[6].in, ops[5].normed);
  EXPECT_EQ(ops[8].old, ops[5].out);
  EXPECT_EQ(ops[11].in, ops[10].normed);
  EXPECT_EQ(ops[11].eps, 1e-5f);
  // Gains: of the first norm, of both of a layer, and of the last one.
  EXPECT_EQ(ops[0].gain, 2);
  EXPECT_EQ(ops[10].gain, static_cast<WeightId>(model.program.weights.size()) - 1);
  EXPECT_EQ(ops[11].op, static_cast<int32_t>(model.program.ops.size()) - 1);
}

TEST(ScheduleTest, ShardsSendWhatIsSummed) {
  const TestModel model({.layers = 1, .shards = true});
  SKEIN_ASSERT_OK_AND_ASSIGN(const Schedule schedule, MakeSchedule(model.program));
  EXPECT_THAT(Names(schedule), ElementsAre("embed", "sum", "qkv", "attention", "send", "sum",
                                           "swiglu", "send", "sum", "logits"));
  EXPECT_EQ(schedule.sums, 3);
  EXPECT_EQ(schedule.sum_cols, 256);
  const std::vector<ScheduledOp>& ops = schedule.ops;
  // What sends, and the sum behind it, have one number.
  for (const auto& [send, sum, number] : {std::tuple(0, 1, 0), {4, 5, 1}, {7, 8, 2}}) {
    EXPECT_EQ(ops[send].sum, number);
    EXPECT_EQ(ops[sum].sum, number);
    EXPECT_EQ(ops[sum].cols, 256);
    EXPECT_GE(ops[sum].gain, 0);
  }
  EXPECT_LT(ops[1].old, 0);  // of nothing but embeddings
  EXPECT_EQ(ops[5].old, ops[1].out);
  EXPECT_EQ(ops[8].old, ops[5].out);
  EXPECT_EQ(ops[2].in, ops[1].normed);
  EXPECT_EQ(ops[6].in, ops[5].normed);
  EXPECT_EQ(ops[9].in_squares, ops[8].squares);
}

TEST(ScheduleTest, BiasesAndNormsOfHeadsGoWithWhatGivesOrReadsThem) {
  const Shape shape = {.layers = 1, .biases = true, .qk_norms = true};
  const TestModel model(shape);
  SKEIN_ASSERT_OK_AND_ASSIGN(const Schedule schedule, MakeSchedule(model.program));
  EXPECT_THAT(Names(schedule),
              ElementsAre("embed", "qkv", "attention", "add", "swiglu", "add", "logits"));
  const auto cols = [&](WeightId id) { return model.program.weights[id].spec.cols; };
  const std::vector<ScheduledOp>& ops = schedule.ops;
  for (const size_t product : {1, 3, 4, 5, 6}) {
    ASSERT_GE(ops[product].bias, 0) << product;
    EXPECT_EQ(cols(ops[product].bias), ops[product].rows);
  }
  ASSERT_GE(ops[2].q_gain, 0);
  EXPECT_EQ(cols(ops[2].q_gain), shape.head_dim);
  EXPECT_EQ(ops[2].k_gain, ops[2].q_gain + 1);
  EXPECT_EQ(ops[2].eps, 1e-6f);
}

// Only one of the shards may add it, or what sums.
TEST(ScheduleTest, BiasesOfSumsOverShardsAreAddedOnce) {
  const TestModel model({.layers = 1, .biases = true, .shards = true});
  SKEIN_ASSERT_OK_AND_ASSIGN(const Schedule schedule, MakeSchedule(model.program));
  EXPECT_THAT(Names(schedule), ElementsAre("embed", "sum", "qkv", "attention", "send", "sum",
                                           "swiglu", "send", "sum", "logits"));
  for (const ScheduledOp& op : schedule.ops) {
    const bool sends = op.kind == Kind::kProduct && op.then == Then::kSend;
    const bool sums = op.kind == Kind::kSum && op.old >= 0;
    EXPECT_EQ(op.bias >= 0, sums || (op.kind == Kind::kProduct && !sends)) << Name(op);
  }
}

TEST(ScheduleTest, AStageTakesInAndGives) {
  for (const bool shards : {false, true}) {
    const TestModel model({.layers = 1, .shards = shards, .stage = true});
    SKEIN_ASSERT_OK_AND_ASSIGN(const Schedule schedule, MakeSchedule(model.program));
    const std::vector<ScheduledOp>& ops = schedule.ops;
    EXPECT_EQ(Names(schedule).front(), "take in");
    EXPECT_EQ(Names(schedule).back(), shards ? "sum" : "add");
    EXPECT_EQ(ops[1].in, ops[0].normed);
    EXPECT_EQ(ops[shards ? 4 : 3].old, ops[0].out);
    for (const ScheduledOp& op : ops) EXPECT_EQ(op.to_port, &op == &ops.back());
    EXPECT_LT(ops.back().gain, 0);
  }
}

// Of random shapes.
TEST(ScheduleTest, VectorsHavePlacesOfTheirOwn) {
  std::mt19937 random(1);
  const auto pick = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  for (int i = 0; i < 100; ++i) {
    Shape shape = {.hidden = 64 * pick(1, 20),
                   .ffn = 64 * pick(1, 40),
                   .kv_heads = pick(1, 4),
                   .vocabulary = 8 * pick(1, 500),
                   .layers = pick(1, 5),
                   .biases = pick(0, 1) == 0,
                   .qk_norms = pick(0, 1) == 0,
                   .shards = pick(0, 1) == 0,
                   .stage = pick(0, 1) == 0};
    shape.heads = shape.kv_heads * pick(1, 8);
    const TestModel model(shape);
    SKEIN_ASSERT_OK_AND_ASSIGN(const Schedule schedule, MakeSchedule(model.program));
    std::vector<std::pair<int64_t, int64_t>> places;  // begin, end
    const auto add = [&](int64_t begin, int64_t bytes) {
      places.emplace_back(begin, begin + bytes);
      EXPECT_EQ(begin % 16, 0);  // copies of 16 bytes begin there
    };
    for (const ScheduledOp& op : schedule.ops) {
      int64_t cols = op.kind == Kind::kProduct ? op.rows : op.cols;
      if (op.kind == Kind::kAttention) cols = int64_t{shape.heads} * shape.head_dim;
      if (op.then == Then::kSwiGlu && op.kind == Kind::kProduct) cols /= 2;
      const bool sends = op.sum >= 0 && op.kind != Kind::kSum;
      const bool logits = op.then == Then::kLogits && op.kind == Kind::kProduct;
      if (!sends && !logits) add(op.out, cols * 2);
      if (op.gain < 0) continue;
      add(op.normed, cols * 2);
      add(op.squares, cols / 16 * 4);
    }
    std::sort(places.begin(), places.end());
    for (size_t p = 1; p < places.size(); ++p) {
      EXPECT_LE(places[p - 1].second, places[p].first);
    }
    EXPECT_EQ(places.back().second, schedule.row_bytes);
  }
}

// A tile alone costs less where `in` is there.
TEST(ShareTilesTest, SomeAreFreeOfSmallSharesWhereTheInputStays) {
  const auto free_tiles = [](int64_t tiles_of_block, int32_t rows) {
    constexpr int32_t kBlocks = 132;
    Schedule schedule;
    schedule.ops = {
        {.kind = Kind::kProduct, .cols = 4096, .rows = tiles_of_block * kBlocks * kUnitRows}};
    ShareTiles(kBlocks, rows, schedule);
    return tiles_of_block * kBlocks - schedule.ops[0].first_free_tile;
  };
  EXPECT_GT(free_tiles(12, kMostStepRows), 0);
  EXPECT_EQ(free_tiles(7, kMostStepRows), 0);
  EXPECT_GT(free_tiles(7, kFewRows), 0);
  EXPECT_EQ(free_tiles(3, kFewRows), 0);
}

// What stays leaves room for sums of half as many tiles, at least.
TEST(ShareTilesTest, WhatAWarpKeepsLeavesRoomForSums) {
  EXPECT_EQ(KeptBytes(1, 4096), 1024);
  EXPECT_EQ(SumSlots(1, 4096), 6);
  EXPECT_EQ(KeptBytes(2, 4096), 2048);
  EXPECT_EQ(SumSlots(2, 4096), 4);
  EXPECT_EQ(KeptBytes(3, 4096), 0);
  EXPECT_EQ(SumSlots(3, 4096), kMostSums);
  for (int rows = 1; rows <= kMostStepRows; ++rows) {
    for (int cols = 64; cols <= 32768; cols += 64) {
      EXPECT_LE(KeptBytes(rows, cols) + SumSlots(rows, cols) * kSumBytes, kOfWarpBytes);
      EXPECT_GE(SumSlots(rows, cols), kMostSums / 2);
      if (KeptBytes(rows, cols) > 0) {
        EXPECT_GE(KeptBytes(rows, cols) * 4, rows * cols);  // a warp has an eighth of 2 bytes each
      }
    }
  }
}

TEST(ShareTilesTest, EveryTileIsSomebodysOrFree) {
  std::mt19937 random(2);
  const auto pick = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  for (int i = 0; i < 200; ++i) {
    const int32_t blocks = pick(1, 150);
    Schedule schedule;
    int64_t largest = 0;
    for (int op = pick(1, 40); op > 0; --op) {
      schedule.ops.push_back({.kind = op % 5 == 0 ? Kind::kAttention : Kind::kProduct,
                              .cols = 64 * pick(1, 200),
                              .rows = 8 * pick(1, 20 * blocks)});
      largest = std::max(largest, schedule.ops.back().cols);
    }
    ShareTiles(blocks, pick(1, kMostStepRows), schedule);
    ASSERT_EQ(schedule.shares.size(), schedule.ops.size() * (blocks + 1));
    std::vector<int64_t> read(blocks);
    for (size_t o = 0; o < schedule.ops.size(); ++o) {
      const ScheduledOp& op = schedule.ops[o];
      const uint16_t* const begins = &schedule.shares[o * (blocks + 1)];
      if (op.kind == Kind::kAttention) {
        EXPECT_EQ(begins[blocks], 0);
        continue;
      }
      const int64_t tiles = (op.rows + kUnitRows - 1) / kUnitRows;
      EXPECT_EQ(begins[0], 0);
      EXPECT_EQ(begins[blocks], op.first_free_tile);
      int64_t least = tiles, most = 0;
      for (int32_t b = 0; b < blocks; ++b) {
        ASSERT_LE(begins[b], begins[b + 1]);
        const int64_t count = begins[b + 1] - begins[b];
        least = std::min(least, count);
        most = std::max(most, count);
        if (op.first_free_tile == tiles) read[b] += count * op.cols;
      }
      EXPECT_LE(most - least, 1);
      if (op.first_free_tile < tiles) {
        // Everybody has some, or nobody would say that the norm's factors are there.
        EXPECT_GE(least, 1);
        EXPECT_EQ(most, least);
        EXPECT_LE(tiles - op.first_free_tile, tiles / 6 + blocks);
      } else {
        EXPECT_EQ(op.first_free_tile, tiles);
      }
    }
    // Over all operations shares are as equal as tiles allow.
    const auto [least, most] = std::minmax_element(read.begin(), read.end());
    EXPECT_LE(*most - *least, largest);
  }
}

// Worked out by hand, of the 8B.
TEST(MemoryOfTest, GrowsWithRows) {
  const TestModel model({.hidden = 4096,
                         .ffn = 14336,
                         .heads = 32,
                         .kv_heads = 8,
                         .head_dim = 128,
                         .vocabulary = 128256,
                         .layers = 32});
  SKEIN_ASSERT_OK_AND_ASSIGN(const Schedule schedule, MakeSchedule(model.program));
  // The embedding, and of a layer queries, keys and values, attention, activations, two sums; sums
  // and embedding once more, normalised, with their squares.
  const int64_t sum = 4096 * 2 * 2 + 4096 / 16 * 4;
  EXPECT_EQ(schedule.row_bytes, sum + 32 * ((6144 + 4096 + 14336) * 2 + 2 * sum));
  const StepMemory memory = MemoryOf(schedule, 16);
  EXPECT_EQ(memory.arena, 16 * schedule.row_bytes);
  EXPECT_EQ(memory.parts, int64_t{16} * 4096 * 4 * 16 * 8);
  EXPECT_EQ(memory.sum(), 2 * memory.arena + memory.parts);
}

TEST(ScheduleTest, WhatItCannotIsNamed) {
  const auto why = [](auto change) {
    TestModel model({});
    change(model);
    const absl::Status status = MakeSchedule(model.program).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(why([](TestModel& m) { m.program.deterministic = true; }),
              HasSubstr("no sums that do not depend on the layout"));
  EXPECT_THAT(why([](TestModel& m) { m.program.output = m.attended; }),
              HasSubstr("no way to give an output that is no sum"));
  EXPECT_THAT(why([](TestModel& m) { m.program.output = m.normed; }),
              HasSubstr("no way to give an output that is no sum"));
  EXPECT_THAT(why([](TestModel& m) {
                m.program.ops.insert(m.program.ops.begin() + 2, AllReduceOp{m.normed});
              }),
              HasSubstr("operation 2: the persistent step has no sum over shards that follows no "
                        "product"));
  EXPECT_THAT(why([](TestModel& m) {
                m.program.ops.insert(m.program.ops.begin() + 6, AllReduceOp{m.delta});
                m.program.ops.erase(m.program.ops.begin() + 7);
              }),
              HasSubstr("no sum over shards that nothing is added to"));
  // Both of a layer's sums of one attention: a shard might be two sums ahead.
  EXPECT_THAT(why([](TestModel& m) {
                m = TestModel({.shards = true});
                std::get<MatMulOp>(m.program.ops[11]).in = m.attended;
              }),
              HasSubstr("operation 11: the persistent step has no sum over shards that does not "
                        "need the last"));
  EXPECT_THAT(why([](TestModel& m) { m.program.weights[3].spec.cols = 72; }),
              HasSubstr("operation 2: the persistent step has no product over 72 columns: it takes "
                        "multiples of 64"));
  EXPECT_THAT(why([](TestModel& m) { m.program.buffers[m.delta].dtype = DType::kF32; }),
              HasSubstr("operation 5: the persistent step has no buffers of F32, as delta is"));
  // A norm of attention, of which the product behind it would read.
  EXPECT_THAT(why([](TestModel& m) {
                m.program.ops.insert(m.program.ops.begin() + 5,
                                     RmsNormOp{m.attended, 2, 1e-5f, m.attended});
              }),
              HasSubstr("operation 5: the persistent step has no norm of other than a sum or an "
                        "embedding, as of attention"));
  // What a product gave is gone with what it was fused into.
  EXPECT_THAT(why([](TestModel& m) { std::get<MatMulOp>(m.program.ops[9]).in = m.gate_up; }),
              HasSubstr("operation 9: the persistent step has no way to read gate_up here"));
  EXPECT_THAT(why([](TestModel& m) {
                m.program.ops.insert(m.program.ops.begin() + 2, AddBiasOp{m.normed, 2});
              }),
              HasSubstr("operation 2: the persistent step has no bias that follows no product"));
  EXPECT_THAT(why([](TestModel& m) {
                m.program.ops.insert(m.program.ops.begin() + 4,
                                     QkNormOp{m.qkv, 4, 2, 64, 2, 2, 1e-5f});
              }),
              HasSubstr("operation 2: the persistent step has no use for what comes of weight w3"));
  EXPECT_THAT(why([](TestModel& m) { m.program.ops.resize(1); }),
              HasSubstr("no Program without attention"));
  EXPECT_THAT(why([](TestModel& m) { m.program.ops[4] = AddOp{m.residual, m.delta, m.residual}; }),
              HasSubstr("no use for what comes of weight w3"));
}

}  // namespace
}  // namespace skein::kernels::cuda
