// A whole layer and the output head, on a GPU and on the reference: the same Programs, batches and
// roundings.
#include "kernels/cuda/cuda_backend.h"

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/dtype.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/copy_page.h"
#include "kernels/cuda/cuda_copies.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/sampling/sampling.h"
#include "kernels/testing/harness.h"

namespace skein::kernels {
namespace {

using cuda::HasGpu;
using ::testing::HasSubstr;

constexpr int64_t kVocabulary = 500;
constexpr int64_t kColumns = 512;  // 8 blocks of 64
constexpr int64_t kHidden = 256;
constexpr int64_t kFfn = 192;
constexpr int32_t kHeads = 4;
constexpr int32_t kKvHeads = 2;
constexpr int32_t kHeadDim = 64;
constexpr float kEps = 1e-5f;

// Of a product's outputs about 1, whatever its inner dimension.
std::vector<float> Matrix(uint32_t seed, int64_t rows, int64_t cols) {
  return RandomFloats(seed, rows * cols, std::sqrt(3.0f / static_cast<float>(cols)));
}

class Layer {
 public:
  explicit Layer(std::unique_ptr<Backend> backend, Collectives* collectives = nullptr)
      : backend_(std::move(backend)) {
    p_.kv_spec = {.layers = 2,
                  .kv_heads = kKvHeads,
                  .head_dim = kHeadDim,
                  .page_size = 16,
                  .pages = 64,
                  .dtype = KvDType::kBF16};
    p_.limits = {.rows = 300, .outputs = 64, .slots = 40, .slot_pages = 32};
    const BufferId residual = Buffer(kHidden);
    const BufferId normed = Buffer(kHidden);
    const BufferId delta = Buffer(kHidden);
    const BufferId qkv = Buffer((kHeads + 2 * kKvHeads) * kHeadDim);
    const BufferId attended = Buffer(kHeads * kHeadDim);
    const BufferId gate_up = Buffer(2 * kFfn);
    const BufferId activation = Buffer(kFfn);
    const BufferId last = Buffer(kHidden, BufferSpec::Rows::kOutputs);
    const BufferId logits = p_.AddBuffer(kColumns, BufferSpec::Rows::kOutputs);
    const WeightId table = Weight(1, kColumns, kHidden, 1.7f);
    const WeightId frequencies = p_.AddVector(Frequencies());
    p_.Add(EmbedOp{table, 0, kVocabulary, residual});
    for (int32_t layer = 0; layer < 2; ++layer) {
      const uint32_t seed = 10 * (1 + layer);
      const WeightId gain = p_.AddVector(RandomFloats(seed, kHidden, 2));
      if (layer == 0) {
        p_.Add(RmsNormOp{residual, gain, kEps, normed});
      } else {
        p_.Add(AddRmsNormOp{residual, delta, gain, kEps, normed});
      }
      p_.Add(MatMulOp{normed, Weight(seed + 1, (kHeads + 2 * kKvHeads) * kHeadDim, kHidden), qkv});
      p_.Add(RopeAppendKvOp{qkv, kHeads, kKvHeads, kHeadDim, frequencies, layer});
      p_.Add(AttentionOp{qkv, kHeads, kKvHeads, kHeadDim, 0.125f, layer, attended});
      p_.Add(MatMulOp{attended, Weight(seed + 2, kHidden, kHeads * kHeadDim), delta});
      p_.Add(AddRmsNormOp{residual, delta, p_.AddVector(RandomFloats(seed + 3, kHidden, 2)), kEps,
                          normed});
      p_.Add(MatMulOp{normed, Weight(seed + 4, 2 * kFfn, kHidden), gate_up});
      p_.Add(SwiGluOp{gate_up, activation});
      p_.Add(MatMulOp{activation, Weight(seed + 5, kHidden, kFfn), delta});
    }
    p_.Add(AddOp{residual, delta, residual});
    p_.Add(GatherRowsOp{residual, last});
    p_.Add(RmsNormOp{last, p_.AddVector(RandomFloats(5, kHidden, 2)), kEps, last});
    p_.Add(MatMulOp{last, table, logits});
    p_.program.logits = logits;
    p_.program.vocab_size = kVocabulary;
    p_.program.vocab_part = {.block = kColumns / kVocabularyBlocks};
    p_.Bind(*backend_);
    KvSpec swap = p_.kv_spec;
    swap.pages = 4;
    swap_ = *backend_->AllocateSwap(swap);
    p_.executable = *backend_->Compile(p_.program, p_.limits,
                                       {.weights = p_.weights.get(),
                                        .kv = p_.kv.get(),
                                        .swap = swap_.get(),
                                        .collectives = collectives});
    SKEIN_EXPECT_OK(p_.executable->WarmUp());
  }

  Executable& executable() { return *p_.executable; }

  absl::Status Run(const Batch& batch, int i = 0) {
    executable().batch(i) = batch;
    const absl::StatusOr<Ticket> ticket = executable().Enqueue(i);
    if (!ticket.ok()) return ticket.status();
    return executable().Wait(*ticket, kHostStream, absl::InfiniteFuture()).status();
  }
  // Of the batch that ran last.
  std::vector<float> Logits(int64_t rows) {
    const View view = executable().port(p_.program.logits, 0).First(rows);
    std::vector<float> logits(view.elements());
    if (backend_->name() == "cuda") {
      EXPECT_EQ(cudaMemcpy(logits.data(), view.data, static_cast<size_t>(view.bytes()),
                           cudaMemcpyDeviceToHost),
                cudaSuccess);
    } else {
      const auto* const from = static_cast<const float*>(view.data);
      logits.assign(from, from + view.elements());
    }
    return logits;
  }

 private:
  BufferId Buffer(int64_t cols, BufferSpec::Rows rows = BufferSpec::Rows::kTokens) {
    const BufferId id = p_.AddBuffer(cols, rows);
    p_.program.buffers[id].port = false;
    p_.program.buffers[id].dtype = DType::kBF16;
    return id;
  }
  WeightId Weight(uint32_t seed, int64_t rows, int64_t cols, float scale = 1) {
    std::vector<float> values = Matrix(seed, rows, cols);
    for (float& value : values) value *= scale;
    return p_.AddWeight({.rows = rows, .cols = cols, .dtype = DType::kBF16}, std::move(values));
  }
  static std::vector<float> Frequencies() {
    std::vector<float> frequencies;
    for (int i = 0; i < kHeadDim / 2; ++i) {
      frequencies.push_back(static_cast<float>(std::pow(10000.0, -2.0 * i / kHeadDim)));
    }
    return frequencies;
  }

  const std::unique_ptr<Backend> backend_;
  std::unique_ptr<KvCache> swap_;
  TestProgram p_;
};

class CudaBackendTest : public testing::Test {
 protected:
  void SetUp() override {
    SKEIN_NEED_GPU();
    gpu_ = std::make_unique<Layer>(*MakeCudaBackend({}));
    reference_ = std::make_unique<Layer>(MakeReferenceBackend());
  }

  // Runs the batch on both and compares the logits of its outputs. They pass some 20 roundings to
  // 8 bits, whose errors of 2^-9 add up as a random walk's; logits are about 1.7 times 1.
  void RunAndCompare(const Batch& batch) {
    SKEIN_ASSERT_OK(gpu_->Run(batch));
    SKEIN_ASSERT_OK(reference_->Run(batch));
    const int64_t rows = batch.outputs();
    const std::vector<float> ours = gpu_->Logits(rows);
    const std::vector<float> theirs = reference_->Logits(rows);
    double squares = 0, errors = 0, worst = 0;
    for (int64_t i = 0; i < rows * kColumns; ++i) {
      if (i % kColumns >= kVocabulary) continue;
      ASSERT_TRUE(std::isfinite(ours[i])) << "row " << i / kColumns;
      const double error = double{ours[i]} - double{theirs[i]};
      squares += double{theirs[i]} * double{theirs[i]};
      errors += error * error;
      worst = std::max(worst, std::abs(error));
    }
    const double scale = std::sqrt(squares / static_cast<double>(rows * kVocabulary));
    EXPECT_GT(scale, 0.1);
    EXPECT_LT(std::sqrt(errors / squares), 0.02) << "relative error of all logits";
    EXPECT_LT(worst, 0.15 * scale);
  }

 public:
  static Batch Start(int32_t slot, int32_t rows, int32_t first_page,
                     const serving::SamplingParams& sampling = {.temperature = 0}) {
    Batch batch;
    std::vector<int32_t> prompt, pages;
    for (int32_t i = 0; i < rows; ++i) prompt.push_back((slot * 37 + i * 11 + 3) % kVocabulary);
    for (int32_t p = 0; p <= rows / 16; ++p) pages.push_back((first_page + p * 7) % 64);
    batch.starts.push_back({.slot = slot, .prompt = prompt, .sampling = sampling});
    batch.updates.push_back({.slot = slot, .pages = pages});
    batch.sequences.push_back({.slot = slot, .rows = rows, .outputs = 1, .draws = true});
    batch.token_ids = prompt;
    return batch;
  }
  static void Join(Batch& batch, const Batch& other) {
    const auto append = [](auto& to, const auto& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(batch.starts, other.starts);
    append(batch.updates, other.updates);
    append(batch.sequences, other.sequences);
    append(batch.token_ids, other.token_ids);
  }
  static Batch Decode(const std::vector<int32_t>& slots, int32_t token) {
    Batch batch;
    for (int32_t slot : slots) {
      batch.sequences.push_back({.slot = slot, .outputs = 1, .draws = true});
      batch.token_ids.push_back(token == kNewestToken ? token : (token + slot) % kVocabulary);
    }
    return batch;
  }

 protected:
  std::unique_ptr<Layer> gpu_, reference_;
};

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
  RunAndCompare(Decode(slots, 5));  // by the kernel for few rows, in its wide form
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
  Layer other(*MakeCudaBackend({}));
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

// Draws made on the device, from its first tokens and from whole rows, alone and beside each other,
// are those that the sampler makes of the same logits.
TEST_F(CudaBackendTest, DrawsAreTheSamplersOfTheseLogits) {
  const std::vector<serving::SamplingParams> params = {
      {.temperature = 0},
      {.temperature = 0.8f, .top_k = 5, .seed = 3},
      {.temperature = 1.1f, .top_k = 300, .top_p = 0.9f, .min_p = 0.001f, .seed = 4},
      {.temperature = 0.9f, .seed = 5},
      {.temperature = 0, .logprobs = 3},
      {.repetition_penalty = 1.3f, .temperature = 0},
      {.temperature = 0, .min_tokens = 4, .stop_ids = {1, 2, 3}},
      {.temperature = 0.7f, .seed = 6, .mirostat_tau = 3},
      {.temperature = 0},
  };
  const auto count = static_cast<int32_t>(params.size());
  std::vector<std::vector<int32_t>> prompts, outputs(count);
  std::vector<std::optional<float>> mus(count);
  Executable& executable = gpu_->executable();
  const auto check = [&](const std::vector<int32_t>& slots) {
    const std::vector<float> logits = gpu_->Logits(static_cast<int64_t>(slots.size()));
    for (size_t row = 0; row < slots.size(); ++row) {
      const int32_t slot = slots[row];
      SCOPED_TRACE(slot);
      const SampledTokens& drawn = executable.result(0).sampled.at(row);
      ASSERT_EQ(drawn.error, "");
      SKEIN_ASSERT_OK_AND_ASSIGN(
          const serving::SampledToken want,
          Sample(absl::MakeConstSpan(logits).subspan(row * kColumns, kVocabulary), params[slot],
                 prompts[slot], outputs[slot], outputs[slot].size(), mus[slot]));
      EXPECT_EQ(drawn.tokens.at(0).id, want.id);
      EXPECT_EQ(drawn.tokens.at(0).logprob, want.logprob);
      EXPECT_EQ(drawn.tokens.at(0).top_logprobs, want.top_logprobs);
      outputs[slot].push_back(want.id);
      mus[slot] = want.mu;
    }
  };
  Batch all;
  std::vector<int32_t> slots;
  for (int32_t slot = 0; slot < count; ++slot) {
    const Batch start = Start(slot, 3 + slot, 4 * slot, params[slot]);
    prompts.push_back(start.token_ids);
    Join(all, start);
    slots.push_back(slot);
  }
  SKEIN_ASSERT_OK(gpu_->Run(all));
  check(slots);
  const std::vector<std::vector<int32_t>> steps = {slots, {0, 8}, {8, 1, 0}, {2}, {3, 0}, slots};
  for (const std::vector<int32_t>& step : steps) {
    SKEIN_ASSERT_OK(gpu_->Run(Decode(step, kNewestToken)));
    check(step);
  }
  // Each slot's newest token was its own: the logits are those of tokens that are named.
  Layer other(*MakeCudaBackend({}));
  Batch named;
  for (const int32_t slot : {0, 3}) {
    std::vector<int32_t> history = prompts[slot];
    history.insert(history.end(), outputs[slot].begin(), outputs[slot].end() - 1);
    Batch start = Start(slot, static_cast<int32_t>(history.size()), 4 * slot, params[slot]);
    start.token_ids = history;
    Join(named, start);
  }
  SKEIN_ASSERT_OK(other.Run(named));
  EXPECT_EQ(other.executable().result(0).sampled.at(0).tokens.at(0).id, outputs[0].back());
}

TEST_F(CudaBackendTest, SetTokensReplacesWhatWasDrawn) {
  SKEIN_ASSERT_OK(gpu_->Run(Start(0, 5, 10)));
  gpu_->executable().SetTokens({0}, {41});
  gpu_->executable().SetTokens({0}, {42});
  SKEIN_ASSERT_OK(gpu_->Run(Decode({0}, kNewestToken)));
  const std::vector<float> set = gpu_->Logits(1);
  Layer other(*MakeCudaBackend({}));
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
  Layer other(*MakeCudaBackend({}));
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
                                           {.repetition_penalty = 1.3f, .temperature = 0}};
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
        Batch start = Start(slot, rows, 0, kinds[below(5)]);
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

TEST_F(CudaBackendTest, DrawsWaitForMasksAndAbortsAreHeard) {
  Executable& executable = gpu_->executable();
  SKEIN_ASSERT_OK(gpu_->Run(Start(0, 5, 10)));
  const auto masked = [&] {
    Batch batch = Decode({0}, kNewestToken);
    batch.sequences[0].masked = true;
    executable.batch(0) = batch;
    return *executable.Enqueue(0);
  };
  Ticket ticket = masked();
  SKEIN_ASSERT_OK_AND_ASSIGN(
      bool over, executable.Wait(ticket, kHostStream, absl::Now() + absl::Milliseconds(50)));
  EXPECT_FALSE(over);
  std::vector<uint32_t> bits(MaskWords(kVocabulary));
  bits[123 / 32] = uint32_t{1} << (123 % 32);
  executable.SetMask(0, 0, bits);
  SKEIN_ASSERT_OK_AND_ASSIGN(over, executable.Wait(ticket, kHostStream, absl::InfiniteFuture()));
  EXPECT_TRUE(over);
  EXPECT_EQ(executable.result(0).sampled.at(0).tokens.at(0).id, 123);
  ticket = masked();
  executable.Abort(absl::UnavailableError("a peer is gone"));
  EXPECT_THAT(executable.Wait(ticket, kHostStream, absl::InfiniteFuture()).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("a peer is gone")));
  executable.batch(1) = Decode({0}, 1);
  EXPECT_THAT(executable.Enqueue(1).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("a peer")));
}

// What it sent arrives also where the receiver needs its help.
TEST_F(CudaBackendTest, AWaitHelpsOnWhatWasSent) {
  class Helped final : public Collectives {
   public:
    absl::Status AllReduce(View, Stream) override { return absl::OkStatus(); }
    absl::Status AllGather(ConstView, View, Stream) override { return absl::OkStatus(); }
    absl::Status Progress() override {
      return ++calls < 100 ? absl::OkStatus() : absl::UnavailableError("a receiver is gone");
    }
    int calls = 0;
  } helped;
  Layer layer(*MakeCudaBackend({}), &helped);
  helped.calls = 0;
  Batch batch = Start(0, 5, 10);
  batch.sequences[0].masked = true;
  layer.executable().batch(0) = batch;
  SKEIN_ASSERT_OK_AND_ASSIGN(const Ticket ticket, layer.executable().Enqueue(0));
  EXPECT_THAT(layer.executable().Wait(ticket, kHostStream, absl::InfiniteFuture()).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("a receiver is gone")));
}

TEST_F(CudaBackendTest, ACopyThatIsWaitedForCanBeGivenUp) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto copies, MakeCudaCopies(0));
  SKEIN_ASSERT_OK_AND_ASSIGN(const absl::Span<std::byte> host, copies->Buffer(64));
  const cuda::DeviceBytes device(64);
  const cuda::OwnStream stream;
  absl::Notification go_on;
  ASSERT_EQ(cudaLaunchHostFunc(
                static_cast<cudaStream_t>(Stream(stream).handle),
                [](void* held) { static_cast<absl::Notification*>(held)->WaitForNotification(); },
                &go_on),
            cudaSuccess);
  const View view = {device.data(), DType::kU8, 1, 64};
  int looks = 0;
  const auto give_up = [&]() -> absl::Status {
    return ++looks < 10 ? absl::OkStatus() : absl::UnavailableError("a peer is gone");
  };
  EXPECT_THAT(copies->ToDevice(host.data(), view, stream, give_up),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("a peer is gone")));
  go_on.Notify();
  SKEIN_ASSERT_OK(stream.Finish());
  host[5] = std::byte{9};
  SKEIN_ASSERT_OK(copies->ToDevice(host.data(), view, stream, [] { return absl::OkStatus(); }));
  host[5] = std::byte{0};
  SKEIN_ASSERT_OK(copies->ToHost(view, host.data(), stream, [] { return absl::OkStatus(); }));
  EXPECT_EQ(host[5], std::byte{9});
}

// After one nothing in the process can use the GPU, so it has a process of its own.
TEST(CudaBackendDeathTest, AnErrorOfAKernelNamesTheStep) {
  SKEIN_NEED_GPU();
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto fail = [] {
    Layer layer(*MakeCudaBackend({}));
    Executable& executable = layer.executable();
    SKEIN_EXPECT_OK(layer.Run(CudaBackendTest::Start(0, 5, 10)));
    executable.batch(0) = CudaBackendTest::Decode({0}, kNewestToken);
    executable.batch(0).step = 77;
    executable.batch(0).sequences[0].masked = true;  // under way until then
    const Ticket ticket = *executable.Enqueue(0);
    // There is no memory at this address.
    auto* const nowhere = reinterpret_cast<std::byte*>(16);
    const cuda::OwnStream stream;
    SKEIN_EXPECT_OK(cuda::Enqueue(
        cuda::CopyPage{.from = nowhere, .to = nowhere, .layers = 1, .page_bytes = 16}, stream));
    EXPECT_FALSE(stream.Finish().ok());
    const absl::Status waited =
        executable.Wait(ticket, kHostStream, absl::Now() + absl::Seconds(10)).status();
    executable.batch(1) = CudaBackendTest::Decode({0}, 1);
    executable.batch(1).step = 78;
    const absl::Status next = executable.Enqueue(1).status();
    std::fprintf(stderr, "%s; %s\n", waited.ToString().c_str(), next.ToString().c_str());
    std::_Exit(3);
  };
  EXPECT_EXIT(fail(), testing::ExitedWithCode(3),
              "step 77: 1 sequence of 1 row, the graph of 1: .*cudaErrorIllegalAddress.*"
              "step 78: .*cudaErrorIllegalAddress");
}

TEST_F(CudaBackendTest, RefusesWhatThereAreNoKernelsFor) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto backend, MakeCudaBackend({}));
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
