#include "parallel/plan/shard.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::plan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

model::ModelConfig Model(int64_t heads, int64_t kv_heads, int64_t ffn, int64_t vocab) {
  model::ModelConfig model;
  model.num_heads = heads;
  model.num_kv_heads = kv_heads;
  model.intermediate_size = ffn;
  model.vocab_size = vocab;
  return model;
}

TEST(Shard, WholeModelIsOneShard) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const ShardSpec shard, MakeShard(Model(4, 2, 768, 2048), 1, 0));
  EXPECT_EQ(shard, (ShardSpec{{0, 4}, {0, 2}, {0, 768}, {0, 2048}, 2048, 8}));
}

TEST(Shard, KvHeadsAreSplitOrRepeated) {
  struct Case {
    int32_t tp_size, tp_rank;
    Range heads, kv_heads;
  };
  const Case cases[] = {
      {2, 0, {0, 16}, {0, 2}},  {2, 1, {16, 32}, {2, 4}},   {4, 3, {24, 32}, {3, 4}},
      {8, 0, {0, 4}, {0, 1}},   {8, 1, {4, 8}, {0, 1}},     {8, 2, {8, 12}, {1, 2}},
      {8, 7, {28, 32}, {3, 4}}, {32, 17, {17, 18}, {2, 3}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::Message() << "tp=" << c.tp_size << " shard " << c.tp_rank);
    SKEIN_ASSERT_OK_AND_ASSIGN(const ShardSpec shard,
                               MakeShard(Model(32, 4, 14336, 128256), c.tp_size, c.tp_rank));
    EXPECT_EQ(shard.heads, c.heads);
    EXPECT_EQ(shard.kv_heads, c.kv_heads);
  }
}

TEST(Shard, VocabularyIsPaddedToEqualParts) {
  const auto model = Model(8, 8, 64, 10);
  SKEIN_ASSERT_OK_AND_ASSIGN(const ShardSpec first, MakeShard(model, 8, 0));
  EXPECT_EQ(first.vocab_stride, 2);
  EXPECT_EQ(first.vocab, (Range{0, 2}));
  SKEIN_ASSERT_OK_AND_ASSIGN(const ShardSpec fifth, MakeShard(model, 8, 4));
  EXPECT_EQ(fifth.vocab, (Range{8, 10}));
  for (int32_t empty : {5, 6, 7}) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const ShardSpec shard, MakeShard(model, 8, empty));
    EXPECT_EQ(shard.vocab, (Range{10, 10})) << empty;
  }
}

TEST(Shard, OnlyDivisorsOfEightShareTheTreeOfSums) {
  const auto model = Model(240, 240, 240, 240);
  struct Case {
    int32_t tp_size, inner_blocks;
  };
  for (const Case& c : {Case{1, 8}, Case{2, 4}, Case{4, 2}, Case{8, 1}, Case{3, 1}, Case{5, 1},
                        Case{6, 1}, Case{16, 1}}) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const ShardSpec shard, MakeShard(model, c.tp_size, 0));
    EXPECT_EQ(shard.inner_blocks, c.inner_blocks) << "tp=" << c.tp_size;
    EXPECT_EQ(SumsAgreeAcrossLayouts(c.tp_size), c.tp_size * c.inner_blocks == 8 && c.tp_size <= 8);
  }
}

// 9 blocks over 8 shards: one has two, and costs what two do.
TEST(Shard, BlocksOfQuantisedWeightsStayWhole) {
  model::ModelConfig model = Model(8, 8, 9 * 256, 64);
  model.head_dim = 256;
  model.stored.matrices["model.layers.0.mlp.down_proj.weight"] = DType::kQ4_K;
  model.stored.attention_block = model.stored.mlp_block = 256;
  EXPECT_EQ(LargestFfn(model, 8), 512);
  EXPECT_EQ(LargestFfn(model, 2), 5 * 256);
  int64_t end = 0, largest = 0;
  for (int32_t shard = 0; shard < 8; ++shard) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const ShardSpec spec, MakeShard(model, 8, shard));
    EXPECT_EQ(spec.ffn.begin, end);
    EXPECT_EQ(spec.mlp_bounds, (std::vector<int64_t>{0, spec.ffn.size()}));
    end = spec.ffn.end;
    largest = std::max(largest, spec.ffn.size());
  }
  EXPECT_EQ(end, 9 * 256);
  EXPECT_EQ(largest, LargestFfn(model, 8));
  model.intermediate_size = 3 * 256;
  EXPECT_THAT(CheckTensorParallel(model, 4),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("tp=4: the MLP's inner dimension of 768 has 3 blocks of 256 "
                                 "quantised weights; possible are tp=1, 2")));
  model.head_dim = 100;
  EXPECT_THAT(CheckTensorParallel(model, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("possible are none")));
}

// Llama 2's of 7 billion parameters: 43 superblocks of 256. Whatever the shards, sum i of 8 begins
// at the same block.
TEST(Shard, SumsFallBetweenSuperblocksWhateverTheShards) {
  model::ModelConfig model = Model(32, 32, 43 * 256, 32000);
  model.head_dim = 128;
  model.stored.matrices["model.layers.0.mlp.down_proj.weight"] = DType::kQ4_K;
  model.stored.attention_block = model.stored.mlp_block = 256;
  const std::vector<int64_t> begins = {0, 5, 10, 16, 21, 26, 32, 37};
  for (const int32_t tp_size : {1, 2, 4, 8}) {
    std::vector<int64_t> found;
    for (int32_t shard = 0; shard < tp_size; ++shard) {
      SKEIN_ASSERT_OK_AND_ASSIGN(const ShardSpec spec, MakeShard(model, tp_size, shard));
      for (int32_t i = 0; i < spec.inner_blocks; ++i) {
        found.push_back((spec.ffn.begin + spec.mlp_bounds[i]) / 256);
      }
      EXPECT_EQ(spec.mlp_bounds.back(), spec.ffn.size());
    }
    EXPECT_EQ(found, begins) << tp_size;
  }
}

model::ModelConfig Mixture() {
  model::ModelConfig model = Model(8, 8, 512, 64);
  model.num_layers = 2;
  model.experts = {.count = 12, .chosen = 2, .intermediate_size = 96};
  model.experts.shared_intermediate_size = 160;
  return model;
}

TEST(Shard, ExpertsAreSplitOrApart) {
  const model::ModelConfig model = Mixture();
  SKEIN_ASSERT_OK_AND_ASSIGN(const ShardSpec split, MakeShard(model, 4, 3));
  EXPECT_EQ(split.experts, (Range{0, 12}));
  EXPECT_EQ(split.expert_ffn, (Range{72, 96}));
  EXPECT_EQ(split.expert_inner_blocks, 2);
  EXPECT_EQ(split.shared_ffn, (Range{120, 160}));
  SKEIN_ASSERT_OK_AND_ASSIGN(const ShardSpec groups, MakeShard(model, 4, 3, 2));
  EXPECT_EQ(groups.experts, (Range{6, 12}));
  EXPECT_EQ(groups.expert_ffn, (Range{48, 96}));
  EXPECT_EQ(groups.expert_inner_blocks, 4);
  EXPECT_EQ(groups.shared_ffn, split.shared_ffn);
  EXPECT_EQ(groups.inner_blocks, 2);
  SKEIN_ASSERT_OK_AND_ASSIGN(const ShardSpec apart, MakeShard(model, 4, 1, 4));
  EXPECT_EQ(apart.experts, (Range{3, 6}));
  EXPECT_EQ(apart.expert_ffn, (Range{0, 96}));
  EXPECT_EQ(apart.expert_inner_blocks, 8);
}

TEST(Shard, ExpertsThatCannotBeSplitAreRefused) {
  const auto refused = [](const model::ModelConfig& model, int32_t tp_size, int32_t ep_size) {
    return std::string(CheckTensorParallel(model, tp_size, ep_size).message());
  };
  model::ModelConfig model = Mixture();
  EXPECT_THAT(refused(model, 4, 3), HasSubstr("ep=3: 4 shards cannot be as many groups"));
  EXPECT_THAT(refused(model, 8, 8), HasSubstr("ep=8: 12 experts cannot be split"));
  EXPECT_THAT(refused(Model(8, 8, 512, 64), 2, 2), HasSubstr("ep=2: the model has no experts"));
  model.experts.intermediate_size = 97;
  EXPECT_THAT(refused(model, 2, 1), HasSubstr("an expert's inner dimension of 97"));
  SKEIN_EXPECT_OK(CheckTensorParallel(model, 2, 2));  // each on one shard
  // No layer has an MLP: what it would have does not matter.
  model.intermediate_size = 511;
  SKEIN_EXPECT_OK(CheckTensorParallel(model, 2, 2));
  model.experts.absent = {true, false};
  EXPECT_THAT(refused(model, 2, 2), HasSubstr("the MLP's inner dimension of 511"));
  model = Mixture();
  model.stored.matrices["model.layers.0.mlp.experts.0.down_proj.weight"] = DType::kQ8_0;
  model.stored.expert_block = model.stored.shared_block = 32;
  EXPECT_THAT(refused(model, 4, 1),
              HasSubstr("an expert's inner dimension of 96 has 3 blocks of 32"));
  SKEIN_EXPECT_OK(CheckTensorParallel(model, 4, 2));
}

TEST(Shard, RefusesWhatDoesNotDivide) {
  struct Case {
    model::ModelConfig model;
    int32_t tp_size;
    std::vector<std::string> words;
  };
  const Case cases[] = {
      {Model(4, 2, 768, 2048), 5, {"tp=5", "4 heads", "5 shards"}},
      {Model(4, 2, 768, 2048), 8, {"tp=8", "4 heads", "8 shards"}},
      {Model(12, 4, 768, 2048), 6, {"tp=6", "4 KV heads", "6 shards"}},
      {Model(12, 4, 767, 2048), 2, {"tp=2", "767", "2 shards"}},
      {Model(4, 2, 768, 2048), 0, {"tp=0"}},
      {Model(4, 2, 768, 2048), -1, {"tp=-1"}},
  };
  for (const Case& c : cases) {
    for (const std::string& word : c.words) {
      const auto refused = StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(word));
      EXPECT_THAT(CheckTensorParallel(c.model, c.tp_size), refused);
      EXPECT_THAT(MakeShard(c.model, c.tp_size, 0).status(), refused);
    }
  }
  for (int32_t shard : {-1, 2}) {
    EXPECT_THAT(MakeShard(Model(4, 2, 768, 2048), 2, shard).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(std::to_string(shard)), HasSubstr("0 to 1"))));
  }
}

// Every head, MLP column and vocabulary row belongs to exactly one shard, in shard order, and the
// query heads of a shard find their KV heads in it where a local index looks for them.
void ExpectWholeModelCovered(const model::ModelConfig& model, int32_t tp_size) {
  int64_t heads = 0, ffn = 0, vocab = 0;
  std::vector<int64_t> kv_copies(model.num_kv_heads, 0);
  for (int32_t i = 0; i < tp_size; ++i) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const ShardSpec shard, MakeShard(model, tp_size, i));
    EXPECT_EQ(shard.heads.begin, heads);
    EXPECT_EQ(shard.ffn.begin, ffn);
    EXPECT_EQ(shard.vocab.begin, vocab);
    EXPECT_EQ(shard.heads.size() * tp_size, model.num_heads);
    EXPECT_EQ(shard.ffn.size() * tp_size, model.intermediate_size);
    EXPECT_LE(shard.vocab.size(), shard.vocab_stride);
    if (!shard.vocab.empty()) {
      EXPECT_EQ(shard.vocab.begin, i * shard.vocab_stride);
    }
    heads = shard.heads.end;
    ffn = shard.ffn.end;
    vocab = shard.vocab.end;
    for (int64_t h = shard.kv_heads.begin; h < shard.kv_heads.end; ++h) ++kv_copies[h];
    const int64_t local_group = shard.heads.size() / shard.kv_heads.size();
    for (int64_t h = shard.heads.begin; h < shard.heads.end; ++h) {
      EXPECT_EQ(shard.kv_heads.begin + (h - shard.heads.begin) / local_group,
                h / (model.num_heads / model.num_kv_heads));
    }
  }
  EXPECT_EQ(heads, model.num_heads);
  EXPECT_EQ(ffn, model.intermediate_size);
  EXPECT_EQ(vocab, model.vocab_size);
  const int64_t copies = std::max<int64_t>(1, tp_size / model.num_kv_heads);
  for (int64_t n : kv_copies) EXPECT_EQ(n, copies);
}

TEST(Shard, ShardsCoverTheModelExactlyOnce) {
  int allowed = 0;
  for (int64_t heads : {1, 2, 3, 4, 6, 8, 12, 14, 32, 64}) {
    for (int64_t kv_heads : {1, 2, 3, 4, 7, 8, 12, 64}) {
      if (heads % kv_heads != 0) continue;
      for (int64_t vocab : {1, 7, 2048, 2051}) {
        for (int32_t tp_size = 1; tp_size <= 64; ++tp_size) {
          const auto model = Model(heads, kv_heads, 64 * 63 * 5, vocab);
          if (!CheckTensorParallel(model, tp_size).ok()) continue;
          SCOPED_TRACE(testing::Message() << heads << '/' << kv_heads << " heads, vocabulary "
                                          << vocab << ", tp=" << tp_size);
          ExpectWholeModelCovered(model, tp_size);
          ++allowed;
        }
      }
    }
  }
  EXPECT_GT(allowed, 300);
}

TEST(StageLayers, CoverAllLayersInOrderAndEvenly) {
  for (int64_t layers = 1; layers <= 40; ++layers) {
    for (int32_t pp_size = 1; pp_size <= layers; ++pp_size) {
      SCOPED_TRACE(testing::Message() << layers << " layers, pp=" << pp_size);
      int64_t next = 0;
      int64_t size_before = layers;
      for (int32_t stage = 0; stage < pp_size; ++stage) {
        const Range range = StageLayers(layers, pp_size, stage);
        EXPECT_EQ(range.begin, next);
        EXPECT_GE(range.size(), layers / pp_size);
        EXPECT_LE(range.size(), (layers + pp_size - 1) / pp_size);
        EXPECT_LE(range.size(), size_before);
        size_before = range.size();
        next = range.end;
      }
      EXPECT_EQ(next, layers);
    }
  }
}

TEST(StageLayers, EarlierStagesTakeOneMore) {
  EXPECT_EQ(StageLayers(8, 3, 0), (Range{0, 3}));
  EXPECT_EQ(StageLayers(8, 3, 1), (Range{3, 6}));
  EXPECT_EQ(StageLayers(8, 3, 2), (Range{6, 8}));
}

model::ModelConfig Shape(int64_t layers, int64_t hidden, int64_t ffn, int64_t heads,
                         int64_t kv_heads, int64_t head_dim, int64_t vocab) {
  model::ModelConfig model = Model(heads, kv_heads, ffn, vocab);
  model.num_layers = layers;
  model.hidden_size = hidden;
  model.head_dim = head_dim;
  return model;
}

TEST(BalancedStageLayers, TheLastStageMakesRoomForTheOutput) {
  const model::ModelConfig bard = Shape(8, 256, 768, 4, 2, 64, 2048);
  const model::ModelConfig one_b = Shape(16, 2048, 8192, 32, 8, 64, 128256);
  const model::ModelConfig eight_b = Shape(32, 4096, 14336, 32, 8, 128, 128256);
  struct Case {
    const model::ModelConfig& model;
    std::vector<int64_t> layers;
  };
  for (const Case& c :
       {Case{bard, {8}},
        // The output is worth 0.7 layers.
        Case{bard, {4, 4}}, Case{bard, {3, 3, 2}}, Case{bard, {1, 1, 1, 1, 1, 1, 1, 1}},
        // 4.3 layers: 10 stand beside 6 + 4.3.
        Case{one_b, {10, 6}}, Case{one_b, {5, 5, 5, 1}},
        // 2.4 layers.
        Case{eight_b, {17, 15}}, Case{eight_b, {9, 9, 8, 6}}}) {
    const auto pp_size = static_cast<int32_t>(c.layers.size());
    int64_t next = 0;
    for (int32_t stage = 0; stage < pp_size; ++stage) {
      const Range range = BalancedStageLayers(c.model, pp_size, stage);
      EXPECT_EQ(range.begin, next);
      EXPECT_EQ(range.size(), c.layers[stage]) << pp_size << " stages, stage " << stage;
      next = range.end;
    }
    EXPECT_EQ(next, c.model.num_layers);
  }
}

// The least that the slowest of `stages` stages can have to do, found by trying every split of
// `layers` layers into that many parts of one layer at least; the last part also does `output`.
class EverySplit {
 public:
  EverySplit(int64_t layer, int64_t output) : layer_(layer), output_(output) {}

  int64_t Slowest(int64_t layers, int32_t stages) {
    if (stages == 1) return layers * layer_ + output_;
    int64_t& known = known_[{layers, stages}];
    if (known > 0) return known;
    known = std::numeric_limits<int64_t>::max();
    for (int64_t first = 1; first <= layers - (stages - 1); ++first) {
      known = std::min(known, std::max(first * layer_, Slowest(layers - first, stages - 1)));
    }
    return known;
  }

 private:
  const int64_t layer_, output_;
  std::map<std::pair<int64_t, int32_t>, int64_t> known_;
};

// From an output matrix of almost nothing to one of nine layers, in sixteenths and not.
TEST(BalancedStageLayers, NoOtherSplitHasAFasterSlowestStage) {
  constexpr int64_t kLayer = 16;  // 2 * (1 + 1) * 1 + 3 * 4 weights
  for (const int64_t output : {1, 3, 8, 11, 15, 16, 17, 23, 32, 37, 48, 69, 80, 100, 144}) {
    EverySplit every(kLayer, output);
    for (int64_t layers = 1; layers <= 40; ++layers) {
      const model::ModelConfig model = Shape(layers, 1, 4, 1, 1, 1, output);
      for (int32_t pp_size = 1; pp_size <= layers; ++pp_size) {
        SCOPED_TRACE(testing::Message()
                     << layers << " layers, pp=" << pp_size << ", output " << output);
        int64_t next = 0, slowest = 0, size_before = layers;
        for (int32_t stage = 0; stage < pp_size; ++stage) {
          const Range range = BalancedStageLayers(model, pp_size, stage);
          const bool last = stage == pp_size - 1;
          ASSERT_EQ(range.begin, next);
          ASSERT_GE(range.size(), 1);
          if (!last) ASSERT_LE(range.size(), size_before);
          slowest = std::max(slowest, range.size() * kLayer + (last ? output : 0));
          size_before = range.size();
          next = range.end;
        }
        ASSERT_EQ(next, layers);
        ASSERT_EQ(slowest, every.Slowest(layers, pp_size));
        // One layer more would make the last stage slower than that.
        const Range last = BalancedStageLayers(model, pp_size, pp_size - 1);
        if (pp_size > 1 && layers - last.size() > pp_size - 1) {
          ASSERT_GT((last.size() + 1) * kLayer + output, slowest);
        }
      }
    }
  }
}

}  // namespace
}  // namespace skein::plan
