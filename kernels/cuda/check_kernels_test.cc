#include "kernels/cuda/check_kernels.h"

#include <functional>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::kernels::cuda {
namespace {

using ::testing::HasSubstr;

enum Buffer : BufferId { kResidual, kNormed, kQkv, kHeads, kGateUp, kInner, kSum, kLast, kLogits };
enum Operation { kNorm, kProjection, kRope, kAttention, kAdd, kUp, kSwiGlu, kAddNorm, kGather };

// A layer and its logits, with a residual of F32.
Program Layer(DType dtype = DType::kBF16) {
  const auto tokens = [&](const char* name, int64_t cols) {
    return BufferSpec{
        .name = name, .rows = BufferSpec::Rows::kTokens, .cols = cols, .dtype = dtype};
  };
  Program program;
  program.buffers = {tokens("residual", 64), tokens("normed", 64),  tokens("qkv", 192),
                     tokens("heads", 64),    tokens("gate_up", 32), tokens("inner", 16),
                     tokens("sum", 64),      tokens("last", 64),    tokens("logits", 128)};
  for (const BufferId id : {kLast, kLogits}) {
    program.buffers[id].rows = BufferSpec::Rows::kOutputs;
  }
  for (const BufferId id : {kResidual, kLogits}) program.buffers[id].dtype = DType::kF32;
  program.weights = {{"qkv", {.rows = 192, .cols = 64, .dtype = dtype}},
                     {"up", {.rows = 32, .cols = 64, .dtype = dtype}},
                     {"head", {.rows = 128, .cols = 64, .dtype = dtype}},
                     {"gain", {.kind = WeightSpec::Kind::kVector, .rows = 1, .cols = 64}},
                     {"bias", {.kind = WeightSpec::Kind::kVector, .rows = 1, .cols = 192}},
                     {"heads", {.kind = WeightSpec::Kind::kVector, .rows = 1, .cols = 16}},
                     {"rope", {.kind = WeightSpec::Kind::kVector, .rows = 1, .cols = 8}}};
  program.ops = {
      RmsNormOp{kResidual, 3, 1e-5f, kNormed},
      MatMulOp{kNormed, 0, kQkv},
      RopeAppendKvOp{
          .qkv = kQkv, .heads = 4, .kv_heads = 1, .head_dim = 16, .inverse_frequencies = 6},
      AttentionOp{.qkv = kQkv, .heads = 4, .kv_heads = 1, .head_dim = 16, .out = kHeads},
      AddOp{kResidual, kHeads, kResidual},
      MatMulOp{kNormed, 1, kGateUp},
      GluOp{kGateUp, kInner},
      AddRmsNormOp{kResidual, kSum, 3, 1e-5f, kNormed},
      GatherRowsOp{kNormed, kLast},
      MatMulOp{kLast, 2, kLogits},
      AllReduceOp{kSum},
      AddBiasOp{kQkv, 4},
      QkNormOp{kQkv, 4, 1, 16, 5, 5, 1e-5f}};
  program.logits = kLogits;
  return program;
}

TEST(CheckKernels, ALayerHasThemInBothDTypes) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const Program program = Layer(dtype);
    EXPECT_EQ(DTypeOfMatrices(program), dtype);
    KvSpec kv = {.dtype = dtype == DType::kF16 ? KvDType::kF16 : KvDType::kBF16};
    SKEIN_EXPECT_OK(CheckKernels(program, &kv));
    kv.dtype = KvDType::kInt8;
    SKEIN_EXPECT_OK(CheckKernels(program, &kv));
    SKEIN_EXPECT_OK(CheckKernels(program, nullptr));
  }
  EXPECT_EQ(DTypeOfMatrices({}), DType::kBF16);
}

TEST(CheckKernels, WhatThereIsNoneForIsNamed) {
  struct Case {
    std::function<void(Program&)> change;
    const char* message;
  };
  const auto f32 = [](BufferId id) {
    return [id](Program& p) { p.buffers[id].dtype = DType::kF32; };
  };
  const Case cases[] = {
      {[](Program& p) { p.buffers[kSum].dtype = DType::kF16; },
       "buffer sum is of F16; GPUs compute this Program in BF16"},
      {[](Program& p) { p.buffers[kLogits].dtype = DType::kBF16; }, "logits of other than F32"},
      {[](Program& p) { p.output = kSum; }, "hops of F32 with activations of BF16"},
      {[](Program& p) { p.input = kSum; }, "hops of F32 with activations of BF16"},
      {f32(kNormed), "operation 0: buffer normed is of F32; GPUs take BF16 there"},
      {f32(kQkv), "operation 2: buffer qkv is of F32"},
      {f32(kHeads), "operation 3: buffer heads is of F32"},
      {f32(kGateUp), "operation 6: buffer gate_up is of F32"},
      {f32(kInner), "operation 6: buffer inner is of F32"},
      {f32(kLast), "operation 9: buffer last is of F32"},
      {[](Program& p) { p.weights[1].spec.rows = 36; },
       "operation 5: weight up is 36 by 64; GPUs multiply multiples of 8"},
      {[](Program& p) { std::get<AttentionOp>(p.ops[kAttention]).heads = 17; },
       "operation 3: 17 heads on 1 KV heads; GPUs do up to 16 on each"},
      {[](Program& p) { std::get<AddOp>(p.ops[kAdd]).out = kSum; },
       "operation 4: buffers residual and sum are of F32 and BF16; GPUs take one dtype there"},
      {[](Program& p) { p.ops[kGather] = GatherRowsOp{kResidual, kLast}; },
       "operation 8: buffer residual is of F32"},
      {[](Program& p) {
         p.buffers[kQkv].dtype = DType::kF32;
         p.ops = {p.ops.back()};
       },
       "operation 0: buffer qkv is of F32"},
      {[](Program& p) { std::get<QkNormOp>(p.ops.back()).head_dim = 256; },
       "operation 12: norms of heads of 256; GPUs do multiples of 4, up to 128"},
      {[](Program& p) { p.weights[6].spec.cols = 6; },
       "rotations of 12 of a head's 16 dimensions, which GPUs do not compute yet"},
      {[](Program& p) { std::get<RopeAppendKvOp>(p.ops[kAttention - 1]).magnitude = 1.5f; },
       "rotations with a magnitude of 1.5"},
      {[](Program& p) { std::get<AttentionOp>(p.ops[kAttention]).softcap = 50; },
       "soft caps of attention"},
      {[](Program& p) { std::get<GluOp>(p.ops[6]).activation = GateActivation::kGeluTanh; },
       "gates with GELU"},
      {[](Program& p) { p.ops.push_back(ScaleOp{kSum, 2}); }, "scaled activations"},
      {[](Program& p) { p.ops.push_back(SoftCapOp{kLogits, 30}); }, "soft caps of logits"},
      {[](Program& p) { p.ops.push_back(RouteOp{kLogits, 1, true, kLogits}); }, "has experts"},
      {[](Program& p) { p.buffers[kQkv].cols = 196; },
       "operation 11: a bias of 196 columns, as of qkv; GPUs add multiples of 8"},
  };
  for (const Case& c : cases) {
    Program program = Layer();
    c.change(program);
    EXPECT_THAT(CheckKernels(program, nullptr),
                StatusIs(absl::StatusCode::kUnimplemented, HasSubstr(c.message)));
  }
  const KvSpec floats = {.dtype = KvDType::kF32};
  EXPECT_THAT(CheckKernels(Layer(), &floats), StatusIs(absl::StatusCode::kUnimplemented,
                                                       HasSubstr("the cache is neither of int8")));
}

}  // namespace
}  // namespace skein::kernels::cuda
