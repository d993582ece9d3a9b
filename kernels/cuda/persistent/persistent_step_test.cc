// Steps by one kernel against the reference back end, and against themselves.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/backend_testing.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/reference/reference_backend.h"

namespace skein::kernels {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Sequences under way, each in a slot with pages of its own.
class Sequences {
 public:
  Sequences(const LayerShape& shape, uint32_t seed) : shape_(shape), random_(seed) {
    for (int32_t page = 0; page < shape.pages; ++page) free_.push_back(page);
    std::shuffle(free_.begin(), free_.end(), random_);
  }

  // Adds the next `rows` positions of a slot to the batch, all of them outputs.
  void Add(Batch& batch, int32_t slot, int32_t rows) {
    Sequence& sequence = sequences_[slot];
    if (sequence.length == 0)
      batch.starts.push_back({.slot = slot, .sampling = {.temperature = 0}});
    const int64_t pages =
        (sequence.length + rows + shape_.page_size - 1) / shape_.page_size - sequence.pages;
    if (pages > 0) {
      SlotUpdate update = {.slot = slot, .first_page = sequence.pages};
      for (int64_t p = 0; p < pages; ++p) {
        update.pages.push_back(free_.back());
        free_.pop_back();
      }
      sequence.pages += pages;
      batch.updates.push_back(update);
    }
    batch.sequences.push_back({.slot = slot, .rows = rows, .outputs = rows});
    for (int32_t r = 0; r < rows; ++r) {
      batch.token_ids.push_back(std::uniform_int_distribution<int32_t>(
          0, static_cast<int32_t>(shape_.vocabulary) - 1)(random_));
    }
    sequence.length += rows;
  }
  std::mt19937& random() { return random_; }

 private:
  struct Sequence {
    int64_t length = 0;
    int64_t pages = 0;
  };
  const LayerShape shape_;
  std::mt19937 random_;
  std::vector<int32_t> free_;
  std::map<int32_t, Sequence> sequences_;
};

constexpr Limits kLimits = {.rows = 300, .outputs = 300, .slots = 40, .slot_pages = 32};

std::unique_ptr<Layer> Persistent(const LayerShape& shape) {
  return std::make_unique<Layer>(*MakeCudaBackend({.decode = DecodeForm::kPersistent}), shape);
}

class PersistentStepTest : public testing::Test {
 protected:
  void SetUp() override { SKEIN_NEED_GPU(); }

  void Make(const LayerShape& shape) {
    gpu_ = Persistent(shape);
    reference_ = std::make_unique<Layer>(MakeReferenceBackend(), shape);
  }
  void RunAndCompare(const Batch& batch) {
    SKEIN_ASSERT_OK(gpu_->Run(batch));
    SKEIN_ASSERT_OK(reference_->Run(batch));
    if (batch.rows() <= 16) {
      EXPECT_THAT(gpu_->executable().Newest(), HasSubstr("by one kernel"));
    }
    CompareLogits(*gpu_, *reference_, batch.outputs());
  }

  std::unique_ptr<Layer> gpu_, reference_;
};

TEST_F(PersistentStepTest, EveryCountOfRowsAgreesWithTheReference) {
  const LayerShape shape = {.pages = 400, .limits = kLimits};
  Make(shape);
  Sequences sequences(shape, 1);
  for (int32_t slot = 0; slot < 16; ++slot) {
    Batch prompt;
    sequences.Add(prompt, slot, 1 + slot * 17);
    RunAndCompare(prompt);
  }
  for (int32_t rows = 1; rows <= 16; ++rows) {
    SCOPED_TRACE(rows);
    Batch batch;
    for (int32_t slot = 0; slot < rows; ++slot) sequences.Add(batch, (slot * 7 + rows) % 16, 1);
    RunAndCompare(batch);
  }
}

TEST_F(PersistentStepTest, SequencesMayHaveSeveralRows) {
  const LayerShape shape = {.pages = 100, .window = 21};
  Make(shape);
  Sequences sequences(shape, 2);
  // From nothing, over ends of blocks and pages, one and several at once.
  for (const int32_t rows : {5, 16, 1, 11, 16, 14, 2}) {
    Batch batch;
    sequences.Add(batch, 3, rows);
    RunAndCompare(batch);
  }
  for (int step = 0; step < 4; ++step) {
    Batch batch;
    sequences.Add(batch, 5, 4);
    sequences.Add(batch, 3, 1);
    sequences.Add(batch, 0, 7);
    RunAndCompare(batch);
  }
}

TEST_F(PersistentStepTest, BiasesAndNormsOfHeadsAgreeWithTheReference) {
  for (const KvDType kv_dtype : {KvDType::kBF16, KvDType::kInt8}) {
    for (const int32_t head_dim : {64, 96, 128}) {
      const LayerShape shape = {.heads = 20,
                                .kv_heads = 2,
                                .head_dim = head_dim,
                                .pages = 100,
                                .kv_dtype = kv_dtype,
                                .biases = true,
                                .qk_norms = true};
      SCOPED_TRACE(absl::StrCat("heads of ", head_dim));
      Make(shape);
      Sequences sequences(shape, 10);
      for (const int32_t rows : {5, 16, 1, 30, 2, 1}) {
        Batch batch;
        sequences.Add(batch, 3, rows);
        RunAndCompare(batch);
      }
    }
  }
}

// Of which blocks take those that nobody has.
TEST_F(PersistentStepTest, ManyTilesAgreeWithTheReference) {
  const LayerShape shape = {
      .vocabulary = 21195, .columns = 21200, .hidden = 128, .ffn = 10624, .pages = 100};
  Make(shape);
  Sequences sequences(shape, 6);
  for (const int32_t rows : {1, 3, 9, 16, 2}) {
    SCOPED_TRACE(rows);
    Batch batch;
    sequences.Add(batch, 1, rows);
    RunAndCompare(batch);
  }
}

// Sums of up to 300 times gains of up to 1,000 are more than F16 has; the norm is not.
TEST_F(PersistentStepTest, SumsTimesGainsDoNotOverflow) {
  const LayerShape shape = {.kv_dtype = KvDType::kF16,
                            .dtype = DType::kF16,
                            .embedded = 100,
                            .last_gain = 1000,
                            .tied = false};
  Make(shape);
  Sequences sequences(shape, 7);
  for (const int32_t rows : {1, 16}) {
    Batch batch;
    sequences.Add(batch, 2, rows);
    SKEIN_ASSERT_OK(gpu_->Run(batch));
    SKEIN_ASSERT_OK(reference_->Run(batch));
    EXPECT_THAT(gpu_->executable().Newest(), HasSubstr("by one kernel"));
    CompareLogits(*gpu_, *reference_, batch.outputs(), /*finer=*/8);
  }
}

// Such a step leaves out the last product, and what is counted of its tiles.
TEST_F(PersistentStepTest, StepsWithoutOutputsGoBetweenOthers) {
  const LayerShape shape = {
      .vocabulary = 21195, .columns = 21200, .hidden = 128, .ffn = 10624, .pages = 100};
  Make(shape);
  Sequences sequences(shape, 8);
  for (const int32_t outputs : {3, 0, 0, 2, 0, 1}) {
    Batch batch;
    sequences.Add(batch, 2, 5);
    batch.sequences[0].outputs = outputs;
    if (outputs > 0) {
      RunAndCompare(batch);
    } else {
      SKEIN_ASSERT_OK(gpu_->Run(batch));
      SKEIN_ASSERT_OK(reference_->Run(batch));
      EXPECT_THAT(gpu_->executable().Newest(), HasSubstr("by one kernel"));
    }
  }
}

TEST_F(PersistentStepTest, OnlyOutputsGetLogits) {
  const LayerShape shape = {};
  Make(shape);
  Sequences sequences(shape, 3);
  Batch batch;
  sequences.Add(batch, 2, 6);
  sequences.Add(batch, 1, 3);
  batch.sequences[0].outputs = 2;
  batch.sequences[1].outputs = 1;
  RunAndCompare(batch);
}

// Of segments of many pieces. The largest of 131,000 scores decide, wherever they stand: what
// forgets half of them answers otherwise. The graphs' kernels have tests of their own contexts.
TEST_F(PersistentStepTest, LongContextsAgreeWithGraphs) {
  constexpr int32_t kChunk = 512;
  const std::vector<int32_t> lengths = {131000, 3000, 40100};
  for (const KvDType kv_dtype : {KvDType::kBF16, KvDType::kInt8}) {
    LayerShape shape = {.heads = 8,
                        .kv_heads = 2,
                        .head_dim = 128,
                        .page_size = 64,
                        .pages = 2800,
                        .limits = {.rows = kChunk, .outputs = 16, .slots = 3, .slot_pages = 2060},
                        .kv_dtype = kv_dtype,
                        .sharpness = 3};
    gpu_ = Persistent(shape);
    const auto by_graphs = [](const LayerShape& of) {
      return std::make_unique<Layer>(*MakeCudaBackend({.decode = DecodeForm::kGraph}), of);
    };
    const std::unique_ptr<Layer> graphs = by_graphs(shape);
    shape.window = lengths[0] / 2;
    const std::unique_ptr<Layer> forgetful = by_graphs(shape);
    const auto run = [&](const Batch& batch) {
      for (Layer* const layer : {gpu_.get(), graphs.get(), forgetful.get()}) {
        SKEIN_ASSERT_OK(layer->Run(batch));
      }
    };
    Sequences sequences(shape, 9);
    for (int32_t slot = 0; slot < 3; ++slot) {
      for (int32_t done = 0; done < lengths[slot]; done += kChunk) {
        Batch prompt;
        sequences.Add(prompt, slot, std::min(kChunk, lengths[slot] - done));
        prompt.sequences[0].outputs = 1;
        run(prompt);
      }
    }
    Distance ours, forgotten;
    for (const std::vector<int32_t>& rows : std::vector<std::vector<int32_t>>{
             {1, 0, 0}, {1, 1, 1}, {16, 0, 0}, {5, 2, 9}, {1, 0, 0}}) {
      Batch batch;
      for (int32_t slot = 0; slot < 3; ++slot) {
        if (rows[slot] > 0) sequences.Add(batch, slot, rows[slot]);
      }
      run(batch);
      EXPECT_THAT(gpu_->executable().Newest(), HasSubstr("by one kernel"));
      EXPECT_THAT(graphs->executable().Newest(), Not(HasSubstr("by one kernel")));
      const std::vector<float> right = graphs->Logits(batch.outputs());
      ours.Add(gpu_->Logits(batch.outputs()), right);
      forgotten.Add(forgetful->Logits(batch.outputs()), right);
    }
    EXPECT_LT(ours.relative(), 0.08);
    EXPECT_GT(forgotten.relative(), 0.25);
  }
}

// A row's bits do not depend on what else is in the batch, nor on what was before.
TEST_F(PersistentStepTest, ARowsBitsAreItsOwn) {
  // Pages from 400 on are the others'.
  LayerShape shape = {.heads = 8, .kv_heads = 2, .head_dim = 128, .pages = 600, .limits = kLimits};
  const auto logits_of = [&](int32_t others, bool other_steps) {
    const auto gpu = Persistent(shape);
    LayerShape first = shape;
    first.pages = 400;
    Sequences own(first, 4);
    Batch prompt;
    own.Add(prompt, 0, 250);
    SKEIN_EXPECT_OK(gpu->Run(prompt));
    LayerShape rest = shape;
    rest.pages = 200;
    Sequences their(rest, 5);
    const auto join = [&](Batch& batch, int32_t slot, int32_t rows) {
      Batch more;
      their.Add(more, slot, rows);
      for (SlotUpdate& update : more.updates) {
        for (int32_t& page : update.pages) page += 400;
      }
      CudaBackendTest::Join(batch, more);
    };
    for (int32_t slot = 1; slot <= others; ++slot) {
      Batch batch;
      join(batch, slot, 1 + 13 * slot);
      SKEIN_EXPECT_OK(gpu->Run(batch));
    }
    if (other_steps) {
      Batch batch;
      join(batch, 20, 9);
      SKEIN_EXPECT_OK(gpu->Run(batch));
    }
    std::vector<float> all;
    for (int step = 0; step < 3; ++step) {
      Batch batch;
      own.Add(batch, 0, 1);
      for (int32_t slot = 1; slot <= others; ++slot) join(batch, slot, 1);
      SKEIN_EXPECT_OK(gpu->Run(batch));
      const std::vector<float> logits = gpu->Logits(1);
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
  };
  const std::vector<float> alone = logits_of(0, false);
  EXPECT_EQ(alone, logits_of(0, true));
  EXPECT_EQ(alone, logits_of(3, false));
  EXPECT_EQ(alone, logits_of(15, true));
}

TEST_F(PersistentStepTest, RandomShapesAgreeWithTheReference) {
  constexpr int kShapes = 200;
  for (int i = 0; i < kShapes; ++i) {
    std::mt19937 random(static_cast<uint32_t>(i));
    const auto pick = [&](int least, int most) {
      return std::uniform_int_distribution<int>(least, most)(random);
    };
    const auto one_of = [&](std::vector<int> values) {
      return values[pick(0, static_cast<int>(values.size()) - 1)];
    };
    LayerShape shape;
    shape.head_dim = one_of({64, 96, 128});
    shape.kv_heads = one_of({1, 2, 3, 8});
    shape.heads = shape.kv_heads * one_of({1, 2, 3, 4, 7, 8, 16});
    if (shape.heads * shape.head_dim % 64 != 0) shape.head_dim = 128;
    if (shape.heads > 32) shape.heads = shape.kv_heads;
    if (shape.heads * shape.head_dim % 64 != 0) shape.head_dim = 64;
    shape.hidden = 64 * pick(1, 9);
    shape.ffn = 64 * pick(1, 20);
    shape.columns = 8 * pick(16, 90);
    shape.vocabulary = shape.columns - pick(0, 7);
    shape.tied = pick(0, 1) == 0;
    shape.page_size = one_of({16, 64});
    shape.pages = shape.page_size == 16 ? 128 : 48;
    shape.dtype = pick(0, 2) == 0 ? DType::kF16 : DType::kBF16;
    shape.kv_dtype = pick(0, 2) == 0              ? KvDType::kInt8
                     : shape.dtype == DType::kF16 ? KvDType::kF16
                                                  : KvDType::kBF16;
    shape.window = one_of({0, 5, 40});
    shape.biases = pick(0, 1) == 0;
    shape.qk_norms = pick(0, 1) == 0;
    // Products of more rows would be tuned, which takes long.
    shape.limits = {.rows = 16, .outputs = 16, .slots = 16, .slot_pages = 16};
    SCOPED_TRACE(absl::StrCat("shape ", i, ": ", shape.heads, "/", shape.kv_heads, " heads of ",
                              shape.head_dim, ", hidden ", shape.hidden, ", ffn ", shape.ffn,
                              ", vocabulary ", shape.vocabulary, ", pages of ", shape.page_size,
                              ", window ", shape.window, shape.dtype == DType::kF16 ? ", F16" : "",
                              shape.kv_dtype == KvDType::kInt8 ? ", int8" : "",
                              shape.biases ? ", biases" : "", shape.qk_norms ? ", norms" : ""));
    Make(shape);
    Layer exact(MakeReferenceBackend(), Exact(shape));
    Distance ours, theirs;
    // How much roundings cost is the shape's own: the reference makes as many of them. Both errors
    // are of a batch's few rows, of which each has a chain of its own.
    const auto run_and_compare = [&](const Batch& batch) {
      SKEIN_ASSERT_OK(gpu_->Run(batch));
      SKEIN_ASSERT_OK(reference_->Run(batch));
      SKEIN_ASSERT_OK(exact.Run(batch));
      EXPECT_THAT(gpu_->executable().Newest(), HasSubstr("by one kernel"));
      const std::vector<float> right = exact.Logits(batch.outputs());
      Distance our, their;
      our.Add(gpu_->Logits(batch.outputs()), right);
      their.Add(reference_->Logits(batch.outputs()), right);
      EXPECT_LT(our.relative(), 2 * their.relative());  // not where it is NaN, either
      ours.Add(our);
      theirs.Add(their);
    };
    Sequences sequences(shape, static_cast<uint32_t>(i));
    const int slots = pick(1, 6);
    for (int slot = 0; slot < slots; ++slot) {
      for (int chunk = pick(1, 6); chunk > 0; --chunk) {
        Batch prompt;
        sequences.Add(prompt, slot, pick(1, 16));
        run_and_compare(prompt);
      }
    }
    for (int step = 0; step < 3; ++step) {
      Batch batch;
      for (int slot = 0; slot < slots && batch.rows() < 16; ++slot) {
        const int most = 16 - static_cast<int>(batch.rows());
        sequences.Add(batch, slot, std::min(most, pick(0, 1) == 0 ? 1 : pick(1, 6)));
      }
      run_and_compare(batch);
    }
    EXPECT_LT(ours.relative(), 1.5 * theirs.relative());
    ASSERT_FALSE(HasFailure());
  }
}

}  // namespace
}  // namespace skein::kernels
