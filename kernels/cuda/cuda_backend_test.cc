// The CUDA back end against the reference, and what it takes and refuses.
#include "kernels/cuda/cuda_backend.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/dtype.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/backend_testing.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/sampling/sampling.h"
#include "kernels/testing/harness.h"

namespace skein::kernels {
namespace {

using ::testing::HasSubstr;

TEST_F(CudaBackendTest, PromptsAndDecodingAgreeWithTheReference) {
  RunAndCompare(Start(3, 1, 5));    // few rows, a sequence of one
  RunAndCompare(Start(0, 17, 10));  // a prompt
  RunAndCompare(Decode({0, 3}, 7));
  Batch mixed = Decode({3}, 9);  // decoding beside prompts
  Join(mixed, Start(1, 100, 20));
  Join(mixed, Decode({0}, 11));
  Join(mixed, Start(2, 33, 40));
  RunAndCompare(mixed);
  RunAndCompare(Decode({2, 1, 0, 3}, 30));
}

// Also by batches that would go by one kernel else, which leaves no rows to pool.
TEST_F(CudaBackendTest, PooledRowsAreTheReferences) {
  const auto run_and_compare = [&](Layer& gpu, Batch batch, const std::vector<int32_t>& pooled) {
    for (size_t i = 0; i < pooled.size(); ++i) batch.sequences[i].pooled = pooled[i];
    SKEIN_ASSERT_OK(gpu.Run(batch));
    SKEIN_ASSERT_OK(reference_->Run(batch));
    const std::vector<PooledRows>& got = gpu.executable().result(0).pooled;
    const std::vector<PooledRows>& want = reference_->executable().result(0).pooled;
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].slot, want[i].slot);
      EXPECT_EQ(got[i].rows, want[i].rows);
      double error = 0, square = 0;
      for (size_t c = 0; c < want[i].sum.size(); ++c) {
        error += std::pow(got[i].sum[c] - want[i].sum[c], 2);
        square += std::pow(want[i].sum[c], 2);
      }
      EXPECT_LT(std::sqrt(error / square), 0.02) << got[i].rows << " rows";
    }
  };
  Layer by_one_kernel(*MakeCudaBackend({.decode = DecodeForm::kPersistent}));
  for (Layer* const gpu : {gpu_.get(), &by_one_kernel}) {
    reference_ = std::make_unique<Layer>(MakeReferenceBackend());
    run_and_compare(*gpu, Start(0, 17, 10), {17});
    Batch mixed = Decode({0}, 9);
    Join(mixed, Start(1, 100, 20));
    Join(mixed, Start(2, 33, 40));
    run_and_compare(*gpu, mixed, {0, 100, 1});
    run_and_compare(*gpu, Decode({0, 1, 2}, 11), {1, 0, 1});
    run_and_compare(*gpu, Decode({0, 1}, 12), {0, 0});
  }
}

// Both round keys and values, which differ by what came before them, to the same integers or to
// neighbours: an error of up to a step, max / 127, where there was none. Logits still agree.
TEST_F(CudaBackendTest, AnInt8CacheIsTheReferences) {
  gpu_ = std::make_unique<Layer>(*MakeCudaBackend({.decode = DecodeForm::kGraph}), nullptr,
                                 KvDType::kInt8);
  reference_ = std::make_unique<Layer>(MakeReferenceBackend(), nullptr, KvDType::kInt8);
  RunAndCompare(Start(0, 20, 10));  // on pages 10 and 17
  Layer wider(*MakeCudaBackend({.decode = DecodeForm::kGraph}));
  SKEIN_ASSERT_OK(wider.Run(Start(0, 20, 10)));
  EXPECT_NE(gpu_->Logits(1), wider.Logits(1));
  Batch mixed = Decode({0}, 9);
  Join(mixed, Start(1, 100, 20));
  RunAndCompare(mixed);
  RunAndCompare(Decode({1, 0}, 30));
  // Scales move with their pages.
  Batch moved = Decode({0}, 8);
  moved.copies = {{PageCopy::Kind::kWithin, 10, 50},
                  {PageCopy::Kind::kSwapOut, 17, 3},
                  {PageCopy::Kind::kWithin, 50, 17},  // another's now
                  {PageCopy::Kind::kSwapIn, 3, 51}};
  moved.updates = {{.slot = 0, .first_page = 0, .pages = {50, 51}}};
  RunAndCompare(moved);
}

TEST_F(CudaBackendTest, F16AgreesWithTheReferenceAsCloselyAsItCan) {
  gpu_ = std::make_unique<Layer>(*MakeCudaBackend({.decode = DecodeForm::kGraph}), nullptr,
                                 KvDType::kF16, DType::kF16);
  reference_ = std::make_unique<Layer>(MakeReferenceBackend(), nullptr, KvDType::kF16, DType::kF16);
  constexpr double kFiner = 8;
  RunAndCompare(Start(0, 3, 5), kFiner);    // few rows
  RunAndCompare(Start(1, 17, 10), kFiner);  // by stream-K, where there are tiles enough
  Batch mixed = Decode({0}, 9);
  Join(mixed, Start(2, 100, 20));  // by cuBLAS
  RunAndCompare(mixed, kFiner);
  RunAndCompare(Decode({2, 1, 0}, 30), kFiner);
  // A cache of int8 goes with it.
  gpu_ = std::make_unique<Layer>(*MakeCudaBackend({.decode = DecodeForm::kGraph}), nullptr,
                                 KvDType::kInt8, DType::kF16);
  reference_ =
      std::make_unique<Layer>(MakeReferenceBackend(), nullptr, KvDType::kInt8, DType::kF16);
  RunAndCompare(Start(1, 100, 20));
  RunAndCompare(Decode({1}, 30));
}

TEST_F(CudaBackendTest, LayersMayHaveWindows) {
  constexpr auto kOf16Bits = DType::kBF16;
  gpu_ = std::make_unique<Layer>(*MakeCudaBackend({.decode = DecodeForm::kGraph}), nullptr,
                                 KvDType::kBF16, kOf16Bits, 21);
  reference_ =
      std::make_unique<Layer>(MakeReferenceBackend(), nullptr, KvDType::kBF16, kOf16Bits, 21);
  RunAndCompare(Start(0, 60, 10));
  RunAndCompare(Start(1, 100, 20));
  Batch mixed = Decode({0}, 9);
  Join(mixed, Start(2, 33, 40));
  RunAndCompare(mixed);
  RunAndCompare(Decode({2, 1, 0}, 30));
  // It matters.
  Layer other(*MakeCudaBackend({.decode = DecodeForm::kGraph}));
  SKEIN_ASSERT_OK(gpu_->Run(Start(3, 60, 10)));
  SKEIN_ASSERT_OK(other.Run(Start(3, 60, 10)));
  EXPECT_NE(gpu_->Logits(1), other.Logits(1));
}

TEST_F(CudaBackendTest, BiasesAndNormsOfHeadsAgreeWithTheReference) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const double finer = dtype == DType::kF16 ? 8 : 1;
    LayerShape shape = {.kv_dtype = dtype == DType::kF16 ? KvDType::kF16 : KvDType::kBF16,
                        .dtype = dtype,
                        .biases = true,
                        .qk_norms = true};
    gpu_ = std::make_unique<Layer>(*MakeCudaBackend({.decode = DecodeForm::kGraph}), shape);
    reference_ = std::make_unique<Layer>(MakeReferenceBackend(), shape);
    RunAndCompare(Start(3, 1, 5), finer);    // few rows
    RunAndCompare(Start(0, 17, 10), finer);  // by stream-K, where there are tiles enough
    Batch mixed = Decode({3, 0}, 9);
    Join(mixed, Start(1, 100, 20));  // by cuBLAS
    RunAndCompare(mixed, finer);
    RunAndCompare(Decode({1, 0, 3}, 30), finer);
  }
}

TEST_F(CudaBackendTest, DTypesOf16BitsDoNotMix) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto backend, MakeCudaBackend({.decode = DecodeForm::kGraph}));
  TestProgram p;
  const BufferId in = p.AddBuffer(16);
  const BufferId out = p.AddBuffer(16);
  p.program.buffers[in].dtype = p.program.buffers[out].dtype = DType::kBF16;
  p.Add(MatMulOp{in, p.AddStored({.rows = 16, .cols = 16, .dtype = DType::kF16}, {}), out});
  // Before anything is loaded.
  EXPECT_THAT(backend->AllocateWeights(p.program).status(),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("weight w0: a matrix of F16"), HasSubstr("here BF16"))));
  p.program.weights[0].spec.dtype = DType::kBF16;
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto weights, backend->AllocateWeights(p.program));
  p.program.buffers[out].dtype = DType::kF16;
  EXPECT_THAT(backend->Compile(p.program, {}, {.weights = weights.get()}).status(),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("is of F16; GPUs compute")));
}

// That its ranges are seen is tests/gpu/profile.sh's.
TEST_F(CudaBackendTest, AProfileEndsAfterItsStepsAndChangesNothing) {
  int ended = 0;
  gpu_ = std::make_unique<Layer>(
      *MakeCudaBackend({.profile_steps = 2, .profile_ended = [&ended] { ++ended; }}));
  RunAndCompare(Start(0, 17, 10));
  EXPECT_EQ(ended, 0);
  for (int32_t step = 0; step < 3; ++step) {
    RunAndCompare(Decode({0}, 7 + step));
    EXPECT_EQ(ended, 1);
  }
}

// As one before the last: each of its two batches has an output of its own, and so a graph.
TEST_F(CudaBackendTest, AStageWithoutLogitsReplaysGraphs) {
  constexpr int64_t kCols = 64;
  constexpr int32_t kTokens = 16;
  const auto backend = *MakeCudaBackend({.decode = DecodeForm::kGraph});
  TestProgram p;
  p.limits = {.rows = 8, .outputs = 8, .slots = 4, .slot_pages = 1};
  const std::vector<float> table = kernels::Rounded(RandomFloats(1, kTokens * kCols), DType::kBF16);
  const BufferId out = p.AddBuffer(kCols);
  p.program.buffers[out].dtype = DType::kBF16;
  p.program.buffers[out].port = true;
  p.program.output = out;
  p.program.hop_dtype = DType::kBF16;
  p.Add(EmbedOp{p.AddWeight({.rows = kTokens, .cols = kCols, .dtype = DType::kBF16}, table), 0,
                kTokens, out});
  p.Bind(*backend);
  for (const int32_t token : {3, 7}) {
    for (const int i : {0, 1}) {
      p.executable->batch(i) = BatchOf(
          {{.pages = {0}, .token_ids = {token + i}}, {.pages = {1}, .token_ids = {token + i + 4}}});
      p.executable->batch(i).step = 10 * token + i;
      SKEIN_ASSERT_OK_AND_ASSIGN(const Ticket ticket, p.executable->Enqueue(i));
      EXPECT_EQ(p.executable->Newest(),
                absl::StrCat("step ", 10 * token + i, ": 2 sequences of 2 rows, the graph of 2"));
      SKEIN_ASSERT_OK(p.executable->Wait(ticket, kHostStream, absl::InfiniteFuture()).status());
      std::vector<std::byte> stored(2 * kCols * 2);
      ASSERT_EQ(cudaMemcpy(stored.data(), p.executable->port(out, i).data, stored.size(),
                           cudaMemcpyDeviceToHost),
                cudaSuccess);
      std::vector<float> got(2 * kCols);
      ConvertToFloat(DType::kBF16, stored.data(), static_cast<int64_t>(got.size()), got.data());
      for (int row = 0; row < 2; ++row) {
        const auto want = table.begin() + (token + i + 4 * row) * kCols;
        EXPECT_TRUE(std::equal(want, want + kCols, got.begin() + row * kCols)) << row;
      }
    }
  }
}

TEST_F(CudaBackendTest, ManySequencesDecodeTogether) {
  Batch prompts;
  std::vector<int32_t> slots;
  for (int32_t slot = 0; slot < 40; ++slot) {
    Join(prompts, Start(slot, 1 + slot % 5, slot));
    slots.push_back(slot);
  }
  RunAndCompare(prompts);
  RunAndCompare(Decode(slots, 3));  // by cuBLAS
  slots.resize(12);
  RunAndCompare(Decode(slots, 5));  // by stream-K, and the kernel for few rows in its wide form
}

TEST_F(CudaBackendTest, ABatchTakesTheTokensOfTheOneBeforeItWhileThatRuns) {
  Executable& executable = gpu_->executable();
  SKEIN_ASSERT_OK(gpu_->Run(Start(0, 5, 10)));
  SKEIN_ASSERT_OK(gpu_->Run(Start(1, 9, 20)));
  // Both are under way before anybody waits.
  std::vector<std::vector<int32_t>> drawn;
  executable.batch(0) = Decode({0, 1}, kNewestToken);
  SKEIN_ASSERT_OK_AND_ASSIGN(const Ticket first, executable.Enqueue(0));
  executable.batch(1) = Decode({1, 0}, kNewestToken);
  SKEIN_ASSERT_OK_AND_ASSIGN(const Ticket second, executable.Enqueue(1));
  EXPECT_GT(second, first);
  const auto take = [&](int i, Ticket ticket) {
    SKEIN_EXPECT_OK(executable.Wait(ticket, kHostStream, absl::InfiniteFuture()).status());
    std::vector<int32_t>& tokens = drawn.emplace_back();
    for (const SampledTokens& row : executable.result(i).sampled) {
      tokens.push_back(row.tokens.at(0).id);
    }
  };
  take(0, first);
  take(1, second);
  // One after the other, with tokens that are named.
  Layer other(*MakeCudaBackend({.decode = DecodeForm::kGraph}));
  SKEIN_ASSERT_OK(other.Run(Start(0, 5, 10)));
  const int32_t a = other.executable().result(0).sampled.at(0).tokens.at(0).id;
  SKEIN_ASSERT_OK(other.Run(Start(1, 9, 20)));
  const int32_t b = other.executable().result(0).sampled.at(0).tokens.at(0).id;
  Batch named = Decode({0, 1}, 0);
  named.token_ids = {a, b};
  SKEIN_ASSERT_OK(other.Run(named));
  const auto tokens = [&](int row) {
    return other.executable().result(0).sampled.at(row).tokens.at(0).id;
  };
  EXPECT_EQ(drawn[0], (std::vector<int32_t>{tokens(0), tokens(1)}));
  named = Decode({1, 0}, 0);
  named.token_ids = {tokens(1), tokens(0)};
  SKEIN_ASSERT_OK(other.Run(named));
  EXPECT_EQ(drawn[1], (std::vector<int32_t>{tokens(0), tokens(1)}));
}

TEST_F(CudaBackendTest, SetTokensReplacesWhatWasDrawn) {
  SKEIN_ASSERT_OK(gpu_->Run(Start(0, 5, 10)));
  gpu_->executable().SetTokens({0}, {41});
  gpu_->executable().SetTokens({0}, {42});
  SKEIN_ASSERT_OK(gpu_->Run(Decode({0}, kNewestToken)));
  const std::vector<float> set = gpu_->Logits(1);
  Layer other(*MakeCudaBackend({.decode = DecodeForm::kGraph}));
  SKEIN_ASSERT_OK(other.Run(Start(0, 5, 10)));
  Batch named = Decode({0}, 0);
  named.token_ids = {42};
  SKEIN_ASSERT_OK(other.Run(named));
  EXPECT_EQ(set, other.Logits(1));
}

TEST_F(CudaBackendTest, PagesAreCopiedSwappedOutAndTakenBack) {
  RunAndCompare(Start(0, 20, 10));  // on pages 10 and 17
  // A copy of the first page, and the second one by way of the swap pool.
  Batch moved = Decode({0}, 8);
  moved.copies = {{PageCopy::Kind::kWithin, 10, 50},
                  {PageCopy::Kind::kSwapOut, 17, 3},
                  {PageCopy::Kind::kWithin, 50, 17},  // another's now
                  {PageCopy::Kind::kSwapIn, 3, 51}};
  moved.updates = {{.slot = 0, .first_page = 0, .pages = {50, 51}}};
  RunAndCompare(moved);
}

TEST_F(CudaBackendTest, GuessesAreTakenBackBeforeTheNextBatch) {
  SKEIN_ASSERT_OK(gpu_->Run(Start(0, 5, 10)));
  const int32_t first = gpu_->executable().result(0).sampled.at(0).tokens.at(0).id;
  Batch guessing = Decode({0}, first);
  guessing.sequences[0] = {.slot = 0, .rows = 3, .outputs = 3, .draws = true, .guesses = 2};
  guessing.token_ids = {first, 1, 2};  // wrong ones, most likely
  guessing.updates = {{.slot = 0, .first_page = 1, .pages = {20}}};
  SKEIN_ASSERT_OK(gpu_->Run(guessing));
  const auto tokens = gpu_->executable().result(0).sampled.at(0).tokens;
  ASSERT_EQ(tokens.size(), 1u);
  SKEIN_ASSERT_OK(gpu_->Run(Decode({0}, kNewestToken)));
  const int32_t last = gpu_->executable().result(0).sampled.at(0).tokens.at(0).id;
  Layer other(*MakeCudaBackend({.decode = DecodeForm::kGraph}));
  SKEIN_ASSERT_OK(other.Run(Start(0, 5, 10)));
  SKEIN_ASSERT_OK(other.Run(Decode({0}, kNewestToken)));
  EXPECT_EQ(other.executable().result(0).sampled.at(0).tokens.at(0).id, tokens[0].id);
  SKEIN_ASSERT_OK(other.Run(Decode({0}, kNewestToken)));
  EXPECT_EQ(other.executable().result(0).sampled.at(0).tokens.at(0).id, last);
}

// Prompts, decoding sequences and both at once, of all kinds of draws, with pages that are copied
// and swapped, some while the batch before runs.
TEST_F(CudaBackendTest, NoStepTakesMemoryOfTheDevice) {
  constexpr int32_t kSlots = 16;
  constexpr int32_t kSlotPages = 4;
  const serving::SamplingParams kinds[] = {{.temperature = 0},
                                           {.temperature = 0.8f, .top_k = 40, .seed = 3},
                                           {.temperature = 0.9f, .top_p = 0.9f, .seed = 4},
                                           {.temperature = 0, .logprobs = 3},
                                           {.repetition_penalty = 1.3f, .temperature = 0},
                                           {.repetition_penalty = 1.3f,
                                            .frequency_penalty = 1,
                                            .temperature = 0.4f,
                                            .seed = 3,
                                            .logprobs = 2,
                                            .logit_bias = {{17, 4}, {3, 6}},
                                            .mirostat_tau = 3},
                                           {.temperature = 0, .dry_multiplier = 1}};
  Executable& executable = gpu_->executable();
  std::mt19937 random(7);
  const auto below = [&](int32_t end) { return static_cast<int32_t>(random() % end); };
  std::vector<int32_t> lengths(kSlots, 0);
  Ticket tickets[Executable::kBatches] = {};
  SKEIN_ASSERT_OK_AND_ASSIGN(const int64_t before, cuda::FreeMemoryBytes());
  for (int step = 0; step < 1000; ++step) {
    Batch batch;
    batch.copies = {{PageCopy::Kind::kSwapOut, below(kSlots * kSlotPages), below(4)}};
    const int32_t prompts = step % 4 == 0 ? 1 + below(3) : 0;
    const int32_t begin = step % 8 == 0 ? prompts : kSlots;  // of those that decode
    for (int32_t i = 0; i < kSlots; ++i) {
      const int32_t slot = (step + i) % kSlots;
      if (i < prompts || lengths[slot] == 16 * kSlotPages) {
        const int32_t rows = 1 + below(i == 0 ? 16 * kSlotPages - 1 : 16);
        Batch start = Start(slot, rows, 0, kinds[below(7)]);
        start.updates[0].pages.clear();
        for (int32_t p = 0; p < kSlotPages; ++p) {
          start.updates[0].pages.push_back(slot * kSlotPages + p);
        }
        Join(batch, start);
        lengths[slot] = rows;
        // What the pages had is overwritten.
        batch.copies.push_back({PageCopy::Kind::kWithin, slot * kSlotPages, slot * kSlotPages + 1});
        batch.copies.push_back({PageCopy::Kind::kSwapIn, below(4), slot * kSlotPages});
      } else if (i < begin && lengths[slot] > 0 && below(8) > 0) {
        Join(batch, Decode({slot}, kNewestToken));
        ++lengths[slot];
      }
    }
    const int i = step % Executable::kBatches;
    SKEIN_ASSERT_OK(executable.Wait(tickets[i], kHostStream, absl::InfiniteFuture()).status());
    executable.batch(i) = batch;
    SKEIN_ASSERT_OK_AND_ASSIGN(tickets[i], executable.Enqueue(i));
  }
  for (const Ticket ticket : tickets) {
    SKEIN_ASSERT_OK(executable.Wait(ticket, kHostStream, absl::InfiniteFuture()).status());
  }
  SKEIN_ASSERT_OK_AND_ASSIGN(const int64_t after, cuda::FreeMemoryBytes());
  EXPECT_EQ(after, before);
}

TEST_F(CudaBackendTest, RefusesWhatThereAreNoKernelsFor) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto backend, MakeCudaBackend({.decode = DecodeForm::kGraph}));
  Program program;
  program.weights.push_back({"w", {.rows = 16, .cols = 16, .dtype = DType::kF32}});
  EXPECT_THAT(backend->AllocateWeights(program).status(),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("weight w: a matrix of F32")));
  EXPECT_THAT(
      backend->AllocateKv({.layers = 1, .kv_heads = 1, .head_dim = 80, .page_size = 16, .pages = 1})
          .status(),
      StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("heads of 80")));
  const KvSpec huge = {.layers = 80,
                       .kv_heads = 8,
                       .head_dim = 128,
                       .page_size = 16,
                       .pages = 1 << 20,
                       .dtype = KvDType::kBF16};
  EXPECT_THAT(backend->AllocateKv(huge).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("for the KV cache")));
  EXPECT_THAT(MakeCudaBackend({.device = 99}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no GPU 99")));
}

}  // namespace
}  // namespace skein::kernels
