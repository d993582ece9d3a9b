// Holds every operation on every back end against numbers worked out by hand or in double precision
// by a few lines of Python. The reference itself is held against them, too.
#include <vector>

#include "absl/types/span.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/harness.h"

namespace skein::kernels {
namespace {

class LiteralTest : public testing::TestWithParam<BackendCase> {
 protected:
  const std::unique_ptr<Backend> backend_ = GetParam().make();
  TestProgram p_;

  // Fits numbers of about 10 after a handful of roundings.
  static void ExpectNear(const std::vector<float>& actual, const std::vector<float>& expected) {
    EXPECT_TRUE(Close(actual, expected, std::vector<float>(expected.size(), 10.0f), 8));
  }
};

// Makes rows of a sequence without a past.
Batch Tokens(const std::vector<int32_t>& ids) { return BatchOf({{{0}, 0, ids}}); }

TEST_P(LiteralTest, Embed) {
  const BufferId out = p_.AddBuffer(3);
  const WeightId table =
      p_.AddWeight({.rows = 3, .cols = 3, .dtype = DType::kBF16}, {1, 2, 3, 4, 5, 6, 7, 8, -9});
  p_.Add(EmbedOp{table, 10, 2, out});
  p_.Bind(*backend_);
  SKEIN_ASSERT_OK(p_.Run(Tokens({11, 9, 10, 12})));
  EXPECT_EQ(p_.Get(out, 4), (std::vector<float>{4, 5, 6, 0, 0, 0, 1, 2, 3, 0, 0, 0}));
}

TEST_P(LiteralTest, OnlyPortsAreSeen) {
  const BufferId in = p_.AddBuffer(4);
  const BufferId hidden = p_.AddBuffer(4);
  p_.program.buffers[hidden].port = false;
  p_.Add(AddOp{in, hidden, in});
  p_.Bind(*backend_);
  const View view = p_.executable->port(in, 0);
  EXPECT_NE(view.data, nullptr);
  EXPECT_EQ(view.rows, p_.limits.rows);
  EXPECT_EQ(view.cols, 4);
  for (BufferId none : {hidden, -1, 2}) EXPECT_EQ(p_.executable->port(none, 0).data, nullptr);
}

TEST_P(LiteralTest, RmsNormInPlace) {
  const BufferId x = p_.AddBuffer(4);
  p_.Add(RmsNormOp{x, p_.AddVector({1, 0.5f, 2, -1}), 1e-5f, x});
  p_.Bind(*backend_);
  p_.Set(x, {1, -2, 3, 0.5f});
  SKEIN_ASSERT_OK(p_.Run(Tokens({0})));
  ExpectNear(p_.Get(x, 1), {0.5298121992f, -0.5298121992f, 3.1788731954f, -0.2649060996f});
}

TEST_P(LiteralTest, AddThenNorm) {
  const BufferId residual = p_.AddBuffer(4);
  const BufferId delta = p_.AddBuffer(4);
  const BufferId sum = p_.AddBuffer(4);
  p_.Add(AddOp{residual, delta, sum});
  p_.Add(AddOp{residual, delta, residual});
  p_.Add(AddRmsNormOp{residual, delta, p_.AddVector({1, 0.5f, 2, -1}), 1e-5f, delta});
  p_.Bind(*backend_);
  p_.Set(residual, {1, 0, 0, 0.5f});
  p_.Set(delta, {0, -1, 1.5f, 0});
  SKEIN_ASSERT_OK(p_.Run(Tokens({0})));
  EXPECT_EQ(p_.Get(sum, 1), (std::vector<float>{1, -1, 1.5f, 0.5f}));
  EXPECT_EQ(p_.Get(residual, 1), (std::vector<float>{1, -2, 3, 0.5f}));
  ExpectNear(p_.Get(delta, 1), {0.5298121992f, -0.5298121992f, 3.1788731954f, -0.2649060996f});
}

TEST_P(LiteralTest, MatMul) {
  const BufferId in = p_.AddBuffer(3);
  const BufferId out = p_.AddBuffer(2);
  p_.Add(MatMulOp{
      in, p_.AddWeight({.rows = 2, .cols = 3, .dtype = DType::kF16}, {1, 2, 3, -1, 0.5f, 4}), out});
  p_.Bind(*backend_);
  p_.Set(in, {1, 0, 2, -3, 4, 0.25f});
  SKEIN_ASSERT_OK(p_.Run(Tokens({0, 0})));
  EXPECT_EQ(p_.Get(out, 2), (std::vector<float>{7, 7, 5.75f, 6}));
}

TEST_P(LiteralTest, AddBias) {
  const BufferId x = p_.AddBuffer(3);
  p_.Add(AddBiasOp{x, p_.AddVector({1, -2, 0.5f})});
  p_.Bind(*backend_);
  p_.Set(x, {0, 1, 2, -3, 4, 0.25f});
  SKEIN_ASSERT_OK(p_.Run(Tokens({0, 0})));
  EXPECT_EQ(p_.Get(x, 2), (std::vector<float>{1, -1, 2.5f, -2, 2, 0.75f}));
}

// Means of squares and eps are 12.5 + 3.5 = 16 of both queries, and 0.5 + 3.5 = 4 of the key.
TEST_P(LiteralTest, QkNormIsOfEachHead) {
  const BufferId qkv = p_.AddBuffer(8);
  p_.Add(QkNormOp{qkv, 2, 1, 2, p_.AddVector({1, 2}), p_.AddVector({-1, 0.5f}), 3.5f});
  p_.Bind(*backend_);
  p_.Set(qkv, {3, 4, -4, 3, 0, 1, 7, 8});
  SKEIN_ASSERT_OK(p_.Run(Tokens({0})));
  ExpectNear(p_.Get(qkv, 1), {0.75f, 2, -1, 1.5f, 0, 0.25f, 7, 8});
}

// 2^24 + 1 rounds to 2^24: what stays shows which terms were joined first.
TEST_P(LiteralTest, InnerBlocksAreJoinedAsATree) {
  const float big = 0x1p24f;
  struct Case {
    int32_t blocks;
    std::vector<float> terms;
    float sum;
  };
  const Case cases[] = {
      {2, {big, -big, 1, 0}, 1},             // (big - big) + (1 + 0)
      {4, {big, 1, -big, 1}, 1},             // (big + 1 = big) + (-big + 1 = 1 - big, exact)
      {3, {big, 1, -big}, 0},                // (big + 1) + -big
      {5, {big, 1, 1, -big, 1}, 2},          // ((big + 1) + (1 - big)) + 1
      {6, {1, 1, 1, 1, big, -big}, 4},       // ((1 + 1) + (1 + 1)) + (big - big)
      {7, {big, 1, 0, 0, -big, 0, 1}, 1},    // (big) + ((-big + 0) + 1)
      {8, {big, 0, 0, 0, 1, 1, -big, 0}, 2}  // big + ((1 + 1) + -big)
  };
  for (const Case& c : cases) {
    TestProgram p;
    const BufferId in = p.AddBuffer(static_cast<int64_t>(c.terms.size()));
    const BufferId out = p.AddBuffer(1);
    p.Add(MatMulOp{in,
                   p.AddWeight({.rows = 1,
                                .cols = static_cast<int64_t>(c.terms.size()),
                                .dtype = DType::kF32,
                                .inner_blocks = c.blocks},
                               c.terms),
                   out});
    p.Bind(*backend_);
    p.Set(in, std::vector<float>(c.terms.size(), 1.0f));
    SKEIN_ASSERT_OK(p.Run(Tokens({0})));
    EXPECT_EQ(p.Get(out, 1)[0], c.sum) << c.blocks << " blocks";
  }
}

TEST_P(LiteralTest, Rope) {
  const BufferId qkv = p_.AddBuffer(12);
  p_.kv_spec = {.layers = 1, .kv_heads = 1, .head_dim = 4, .page_size = 4, .pages = 1};
  p_.Add(RopeAppendKvOp{qkv, 1, 1, 4, p_.AddVector({1, 0.01f}), 0});
  p_.Bind(*backend_);
  p_.Set(qkv, {1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4});
  SKEIN_ASSERT_OK(p_.Run(BatchOf({{{0}, 3, {0}}})));
  const std::vector<float> rotated = {-1.4133525208f, 1.8791180667f, -2.8288574817f, 4.0581911354f};
  std::vector<float> expected = rotated;
  expected.insert(expected.end(), rotated.begin(), rotated.end());
  expected.insert(expected.end(), {1, 2, 3, 4});
  ExpectNear(p_.Get(qkv, 1), expected);
}

TEST_P(LiteralTest, Attention) {
  const BufferId qkv = p_.AddBuffer(8);
  const BufferId out = p_.AddBuffer(4);
  p_.kv_spec = {.layers = 2, .kv_heads = 1, .head_dim = 2, .page_size = 2, .pages = 4};
  p_.Add(RopeAppendKvOp{qkv, 2, 1, 2, p_.AddVector({0}), 1});
  p_.Add(AttentionOp{qkv, 2, 1, 2, 0.5f, 1, out});
  p_.Bind(*backend_);
  p_.Set(qkv, {1,  0,  0,  2, 1, 2,  1, -1,  // q0, q1, k, v of position 0
               .5, .5, -1, 1, 0, -1, 2, 0,   //
               2,  1,  1,  1, 3, .5, 4, 8});
  SKEIN_ASSERT_OK(p_.Run(BatchOf({{{3, 0}, 0, {0, 0, 0}}})));
  ExpectNear(p_.Get(out, 3), {1, -1, 1, -1,                                          //
                              1.26894142f, -0.73105858f, 1.26894142f, -0.73105858f,  //
                              3.3079891f, 5.88806295f, 2.64812611f, 3.83250143f});
}

// Weights are e^0, e^1, e^2 .. of those that are seen; each position's value is a power of 10.
TEST_P(LiteralTest, AWindowHidesWhatIsBeforeIt) {
  struct Case {
    int32_t window;
    std::vector<float> out;  // of positions 0 to 3
  };
  const Case cases[] = {
      {1, {1, 10, 100, 1000}},
      {2, {1, 7.5795272f, 75.795272f, 757.95272f}},
      {3, {1, 7.5795272f, 69.0614109f, 690.614109f}},
      {4, {1, 7.5795272f, 69.0614109f, 668.506043f}},
      {100, {1, 7.5795272f, 69.0614109f, 668.506043f}},
  };
  for (const Case& c : cases) {
    TestProgram p;
    const BufferId qkv = p.AddBuffer(6);
    const BufferId out = p.AddBuffer(2);
    p.kv_spec = {.layers = 1, .kv_heads = 1, .head_dim = 2, .page_size = 3, .pages = 4};
    p.Add(RopeAppendKvOp{qkv, 1, 1, 2, p.AddVector({0}), 0});
    p.Add(AttentionOp{qkv, 1, 1, 2, 1.0f, 0, out, c.window});
    p.Bind(*backend_);
    p.Set(qkv, {1, 0, 0, 0, 1,    0,  //
                1, 0, 1, 0, 10,   0,  //
                1, 0, 2, 0, 100,  0,  //
                1, 0, 3, 0, 1000, 0});
    SKEIN_ASSERT_OK(p.Run(BatchOf({{{3, 0}, 0, {0, 0, 0, 0}}})));
    const std::vector<float> got = p.Get(out, 4);
    for (int i = 0; i < 4; ++i) {
      EXPECT_NEAR(got[2 * i], c.out[i], c.out[i] * 1e-6f) << c.window << " at " << i;
    }
  }
}

// The attention of one slot is its value, as the cache keeps it.
TEST_P(LiteralTest, ValuesAreRoundedAsTheyAreWritten) {
  struct Case {
    KvDType dtype;
    std::vector<float> value, kept;
  };
  const Case cases[] = {
      {KvDType::kF32, {1, -0.1f, 3e-39f, 1e30f}, {1, -0.1f, 3e-39f, 1e30f}},
      // The numbers lie between 1 and its neighbours of 8 bits, 1 + 2^-7 and 1 + 2^-6: ties go to
      // the even one.
      {KvDType::kBF16,
       {1 + 0x1p-8f, 1 + 0x3p-8f, -1 - 0x1.02p-8f, 3},
       {1, 1 + 0x1p-6f, -1 - 0x1p-7f, 3}},
      // 11 bits; the least number is 2^-24.
      {KvDType::kF16,
       {1 + 0x1p-11f, 1 + 0x3p-11f, 65519, 0x1.8p-24f},
       {1, 1 + 0x1p-9f, 65504, 0x1p-23f}},
      {KvDType::kInt8, {127, 0.5f, 1.5f, -2.5f}, {127, 0, 2, -2}},
      {KvDType::kInt8, {-1016, 12.1f, -3.9f, 1000}, {-1016, 16, 0, 1000}},
      {KvDType::kInt8, {0, 0, -0.0f, 0}, {0, 0, 0, 0}},
  };
  for (const Case& c : cases) {
    TestProgram p;
    const BufferId qkv = p.AddBuffer(12);
    const BufferId out = p.AddBuffer(4);
    p.kv_spec = {
        .layers = 1, .kv_heads = 1, .head_dim = 4, .page_size = 2, .pages = 1, .dtype = c.dtype};
    p.Add(RopeAppendKvOp{qkv, 1, 1, 4, p.AddVector({0, 0}), 0});
    p.Add(AttentionOp{qkv, 1, 1, 4, 1.0f, 0, out});
    p.Bind(*backend_);
    std::vector<float> row = {1, 2, 3, 4, 5, 6, 7, 8};
    row.insert(row.end(), c.value.begin(), c.value.end());
    p.Set(qkv, row);
    SKEIN_ASSERT_OK(p.Run(BatchOf({{{0}, 0, {0}}})));
    EXPECT_EQ(p.Get(out, 1), c.kept) << "dtype " << static_cast<int>(c.dtype);
  }
}

// Two slots whose values are 1 and 0: the output is the first one's weight, e^s / (e^s + 1) where s
// is the difference of the scores.
TEST_P(LiteralTest, KeysAreRoundedAsTheyAreWritten) {
  struct Case {
    KvDType dtype;
    std::vector<float> key;
    float weight;  // with s = 0.5 * (key[0] + key[1]) of what is kept
  };
  const Case cases[] = {
      {KvDType::kF32, {2.54f, 0.012f}, 0.7817681187f},
      {KvDType::kBF16, {2.54f, 0.012f}, 0.7823560483f},   // 2.546875 and 0.012023926
      {KvDType::kF16, {2.54f, 0.012f}, 0.7816882248f},    // 2.5390625 and 0.012001038
      {KvDType::kInt8, {2.54f, 0.012f}, 0.7824497764f},   // 127 steps and 1 of 0.02
      {KvDType::kInt8, {2.54f, 0.0099f}, 0.7807427479f},  // 127 and 0
  };
  for (const Case& c : cases) {
    TestProgram p;
    const BufferId qkv = p.AddBuffer(6);
    const BufferId out = p.AddBuffer(2);
    p.kv_spec = {
        .layers = 1, .kv_heads = 1, .head_dim = 2, .page_size = 1, .pages = 2, .dtype = c.dtype};
    p.Add(RopeAppendKvOp{qkv, 1, 1, 2, p.AddVector({0}), 0});
    p.Add(AttentionOp{qkv, 1, 1, 2, 0.5f, 0, out});
    p.Bind(*backend_);
    p.Set(qkv, {0, 0, c.key[0], c.key[1], 1, 1,  //
                1, 1, 0, 0, 0, 0});
    SKEIN_ASSERT_OK(p.Run(BatchOf({{{1, 0}, 0, {0, 0}}})));
    EXPECT_TRUE(Close(p.Get(out, 2), std::vector<float>{1, 1, c.weight, c.weight},
                      std::vector<float>(4, 1.0f), 8));
  }
}

TEST_P(LiteralTest, SwiGlu) {
  const BufferId gate_up = p_.AddBuffer(8);
  const BufferId out = p_.AddBuffer(4);
  p_.Add(GluOp{gate_up, out});
  p_.Bind(*backend_);
  p_.Set(gate_up, {-3, 0, 0.5f, 20, 2, 7, -1.5f, 1});
  SKEIN_ASSERT_OK(p_.Run(Tokens({0})));
  ExpectNear(p_.Get(out, 1), {-0.2845552391f, 0, -0.4668444984f, 19.9999999588f});
}

TEST_P(LiteralTest, GatherRows) {
  const BufferId in = p_.AddBuffer(2);
  const BufferId out = p_.AddBuffer(2, BufferSpec::Rows::kOutputs);
  p_.Add(GatherRowsOp{in, out});
  p_.Bind(*backend_);
  p_.Set(in, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  Batch batch = BatchOf({{{}, 0, {0, 0}}, {{}, 0, {0}}, {{}, 0, {0, 0}}});
  batch.sequences[0].outputs = 1;
  batch.sequences[1].outputs = 0;
  SKEIN_ASSERT_OK(p_.Run(batch));
  EXPECT_EQ(p_.Get(out, 3), (std::vector<float>{3, 4, 7, 8, 9, 10}));
}

// The reference rounds what an operation writes, as a device would that keeps it so.
TEST_P(LiteralTest, BuffersHaveADType) {
  const BufferId x = p_.AddBuffer(2);
  const BufferId y = p_.AddBuffer(2);
  p_.program.buffers[x].dtype = DType::kBF16;
  p_.Add(AddOp{x, y, x});
  if (backend_->name() != "reference") {
    SKEIN_ASSERT_OK_AND_ASSIGN(const auto weights, backend_->AllocateWeights(p_.program));
    EXPECT_THAT(backend_->Compile(p_.program, p_.limits, {.weights = weights.get()}),
                StatusIs(absl::StatusCode::kUnimplemented, testing::HasSubstr("buffer b0")));
    return;
  }
  p_.Bind(*backend_);
  p_.Set(x, {1, 256});
  p_.Set(y, {0x1p-9f, 1});  // beyond the 8 bits of a sum's mantissa
  SKEIN_ASSERT_OK(p_.Run(Tokens({0})));
  EXPECT_EQ(p_.Get(x, 1), (std::vector<float>{1, 256}));
  EXPECT_EQ(p_.Get(y, 1), (std::vector<float>{0x1p-9f, 1}));

  // The sum is rounded before it is normalised: 257 would be another share of the length.
  TestProgram norm;
  const BufferId residual = norm.AddBuffer(2), delta = norm.AddBuffer(2), out = norm.AddBuffer(2);
  norm.program.buffers[residual].dtype = DType::kBF16;
  norm.Add(AddRmsNormOp{residual, delta, norm.AddVector({1, 1}), 0, out});
  norm.Bind(*backend_);
  norm.Set(residual, {256, 256});
  norm.Set(delta, {1, 0});
  SKEIN_ASSERT_OK(norm.Run(Tokens({0})));
  EXPECT_EQ(norm.Get(residual, 1), (std::vector<float>{256, 256}));
  EXPECT_EQ(norm.Get(out, 1), (std::vector<float>{1, 1}));
}

// Plays the first of two ranks; the other's data are 100 more.
class FakeCollectives final : public Collectives {
 public:
  absl::Status AllReduce(View data, Stream) override {
    const absl::Span<float> values(static_cast<float*>(data.data), data.elements());
    for (float& value : values) value += value + 100;
    return status;
  }
  absl::Status AllGather(ConstView in, View out, Stream) override {
    EXPECT_EQ(out.elements(), 2 * in.elements());
    const float* const from = static_cast<const float*>(in.data);
    float* const to = static_cast<float*>(out.data);
    for (int64_t i = 0; i < in.elements(); ++i) {
      to[i] = from[i];
      to[i + in.elements()] = from[i] + 100;
    }
    return status;
  }
  absl::Status status;
};

TEST_P(LiteralTest, Collectives) {
  const BufferId x = p_.AddBuffer(2);
  p_.Add(AllReduceOp{x});
  EXPECT_THAT(backend_->Compile(p_.program, p_.limits, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("collectives")));
  FakeCollectives collectives;
  p_.collectives = &collectives;
  p_.Bind(*backend_);
  p_.Set(x, {1, 2, 3, 4});
  SKEIN_ASSERT_OK(p_.Run(Tokens({0, 0})));
  EXPECT_EQ(p_.Get(x, 2), (std::vector<float>{102, 104, 106, 108}));

  collectives.status = absl::AbortedError("peer gone");
  EXPECT_THAT(p_.Run(Tokens({0})), StatusIs(absl::StatusCode::kAborted, "peer gone"));
}

INSTANTIATE_TEST_SUITE_P(Backends, LiteralTest, testing::ValuesIn(AllBackends()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace skein::kernels
