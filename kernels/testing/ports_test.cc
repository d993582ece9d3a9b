// Tests ports of executables of all back ends, and what lies beyond a batch's rows in them.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/testing/harness.h"

namespace skein::kernels {
namespace {

using ::testing::Eq;
using ::testing::Pointwise;

constexpr int64_t kHeadDim = 8;

class PortsTest : public testing::TestWithParam<BackendCase> {
 protected:
  const std::unique_ptr<Backend> backend_ = GetParam().make();
};

// Batches before may have left anything in buffers, ports and pages.
TEST_P(PortsTest, WhatLiesBeyondTheCountsChangesNothing) {
  for (const auto& [name, dtype] : KvDTypes()) {
    for (const int64_t page_size : {4, 16}) {
      SCOPED_TRACE(name + ", pages of " + std::to_string(page_size));
      TestProgram p;
      p.kv_spec = {.layers = 1,
                   .kv_heads = 1,
                   .head_dim = kHeadDim,
                   .page_size = page_size,
                   .pages = 32,
                   .dtype = dtype};
      const BufferId in = p.AddBuffer(kHeadDim), qkv = p.AddBuffer(3 * kHeadDim);
      const BufferId out = p.AddBuffer(kHeadDim);
      const BufferId last = p.AddBuffer(kHeadDim, BufferSpec::Rows::kOutputs);
      const WeightId mix = p.AddWeight({.rows = 3 * kHeadDim, .cols = kHeadDim},
                                       RandomFloats(2, 3 * kHeadDim * kHeadDim));
      p.Add(MatMulOp{in, mix, qkv});
      p.Add(RopeAppendKvOp{qkv, 1, 1, kHeadDim, p.AddVector({1, 0.1f, 0.01f, 0.001f}), 0});
      p.Add(AttentionOp{qkv, 1, 1, kHeadDim, 0.4f, 0, out});
      p.Add(GatherRowsOp{out, last});
      p.program.input = in;
      p.program.output = out;
      p.Bind(*backend_);
      // Two sequences compute 3 positions and 1, then one more of each.
      const auto run = [&] {
        std::vector<float> got;
        Batch batch = BatchOf({{{1, 2}, 0, {0, 0, 0}}, {{3}, 0, {0}}});
        for (const uint32_t seed : {1, 2}) {
          const std::vector<float> values = RandomFloats(seed, batch.rows() * kHeadDim);
          p.Set(in, values);
          SKEIN_EXPECT_OK(p.Run(batch));
          for (BufferId id : {out, last}) {
            const std::vector<float> rows = p.Get(id, batch.rows());
            got.insert(got.end(), rows.begin(), rows.end());
          }
          batch = {.sequences = {{.slot = 0, .outputs = 1}, {.slot = 1, .outputs = 1}},
                   .token_ids = {0, 0}};
        }
        return got;
      };
      const std::vector<float> clean = run();
      for (const float stale : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
        // This batch has as many rows as there may be, over all pages.
        Batch full = BatchOf({{{}, 0, std::vector<int32_t>(p.limits.rows)}});
        for (int32_t page = 0; page < p.kv_spec.pages; ++page) {
          full.updates[0].pages.push_back(page);
        }
        for (int64_t begin = 0; begin < p.kv_spec.pages * page_size; begin += full.rows()) {
          full.updates[0].length = std::min(begin, p.kv_spec.pages * page_size - full.rows());
          p.Set(in, std::vector<float>(p.limits.rows * kHeadDim, stale));
          SKEIN_ASSERT_OK(p.Run(full));
        }
        for (BufferId id : {in, qkv, out, last}) {
          const View port = p.executable->port(id, 0);
          std::fill_n(static_cast<float*>(port.data), port.elements(), stale);
        }
        EXPECT_THAT(run(), Pointwise(Eq(), clean)) << stale;
      }
    }
  }
}

// A batch is received while the other one is computed or sent.
TEST_P(PortsTest, InputAndOutputAreEachBatchsOwn) {
  TestProgram p;
  const BufferId in = p.AddBuffer(4);
  const BufferId out = p.AddBuffer(4);
  p.Add(AddOp{in, out, in});
  p.Add(AddOp{in, out, in});
  p.program.input = in;
  p.program.output = out;
  p.Bind(*backend_);
  float* ports[2][2];
  for (int i : {0, 1}) {
    for (BufferId id : {in, out}) {
      ports[i][id] = static_cast<float*>(p.executable->port(id, i).data);
      for (int64_t c = 0; c < 4; ++c) ports[i][id][c] = static_cast<float>(10 * i + id + 1);
    }
    p.executable->batch(i) = BatchOf({{{}, 0, {0}}});
  }
  SKEIN_ASSERT_OK(p.executable->Enqueue(1).status());
  EXPECT_EQ(ports[0][in][0], 1);
  EXPECT_EQ(ports[0][out][0], 2);
  EXPECT_EQ(ports[1][in][0], 11 + 12 + 12);
  EXPECT_EQ(ports[1][out][3], 12);
  SKEIN_ASSERT_OK(p.executable->Enqueue(0).status());
  EXPECT_EQ(ports[0][in][3], 1 + 2 + 2);
  EXPECT_EQ(ports[1][in][0], 11 + 12 + 12);
}

// Hops have their dtype whatever the buffers are kept in.
TEST_P(PortsTest, HopsHaveADType) {
  TestProgram copy;  // out = in + 0
  const BufferId from = copy.AddBuffer(4), zero = copy.AddBuffer(4), to = copy.AddBuffer(4);
  copy.Add(AddOp{from, zero, to});
  copy.program.input = from;
  copy.program.output = to;
  copy.program.hop_dtype = DType::kBF16;
  copy.Bind(*backend_);
  for (int i : {0, 1}) {
    EXPECT_EQ(copy.executable->port(from, i).dtype, DType::kBF16);
    auto* const ports = static_cast<uint16_t*>(copy.executable->port(from, i).data);
    for (int64_t c = 0; c < 8; ++c) ports[c] = FloatToBf16(static_cast<float>(c + 1 + 10 * i));
    copy.executable->batch(i) = BatchOf({{{}, 0, {0, 0}}});
  }
  copy.Set(zero, {0, 0x1p-9f, 0.5f, 0, 0, 0, 0, 0});
  for (int i : {1, 0}) SKEIN_ASSERT_OK(copy.executable->Enqueue(i).status());
  for (int i : {0, 1}) {
    const auto* const given = static_cast<const uint16_t*>(copy.executable->port(to, i).data);
    const float first = static_cast<float>(1 + 10 * i);
    EXPECT_EQ(Bf16ToFloat(given[0]), first);
    EXPECT_EQ(Bf16ToFloat(given[1]), first + 1);  // rounded
    EXPECT_EQ(Bf16ToFloat(given[2]), first + 2.5f);
    EXPECT_EQ(Bf16ToFloat(given[7]), first + 7);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, PortsTest, testing::ValuesIn(AllBackends()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace skein::kernels
