// What the planner says that a rank keeps is what its program keeps, byte for byte.
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/test_util.h"
#include "kernels/ops/backend.h"
#include "kernels/packing/layout.h"
#include "model/config/model_config.h"
#include "model/synthetic/synthetic.h"
#include "parallel/plan/plan.h"
#include "parallel/plan/shard.h"
#include "parallel/planner/memory.h"
#include "parallel/program/rank_program.h"

namespace skein {
namespace {

struct Shape {
  int64_t vocab, hidden, ffn, layers, heads, kv_heads, head_dim;
  bool tied;
};

void Compare(const Shape& shape, int32_t tp_size, int32_t pp_size, kernels::KvDType kv_dtype) {
  const model::ModelConfig config = {.architecture = "LlamaForCausalLM",
                                     .vocab_size = shape.vocab,
                                     .hidden_size = shape.hidden,
                                     .intermediate_size = shape.ffn,
                                     .num_layers = shape.layers,
                                     .num_heads = shape.heads,
                                     .num_kv_heads = shape.kv_heads,
                                     .head_dim = shape.head_dim,
                                     .max_position_embeddings = 512,
                                     .tie_word_embeddings = shape.tied};
  const auto tensors = model::MakeSyntheticWeights(config, "synthetic:shape");
  const plan::ReplicaLimits limits = {.tp_size = tp_size,
                                      .context_length = 100,
                                      .max_num_seqs = 3,
                                      .max_micro_batch_rows = 24,
                                      .page_size = 16,
                                      .kv_dtype = kv_dtype,
                                      .pages = 21};
  for (int32_t stage = 0; stage < pp_size; ++stage) {
    for (int32_t shard = 0; shard < tp_size; ++shard) {
      SCOPED_TRACE(absl::StrCat("hidden ", shape.hidden, ", tp ", shard, "/", tp_size, ", pp ",
                                stage, "/", pp_size));
      const Range layers = plan::StageLayers(shape.layers, pp_size, stage);
      SKEIN_ASSERT_OK_AND_ASSIGN(const plan::RankMemory planned,
                                 plan::MemoryOfRank(config, shard, layers, limits));
      SKEIN_ASSERT_OK_AND_ASSIGN(const plan::RankProgram rank,
                                 plan::BuildRankProgram(config, tensors.get(),
                                                        {.tp_size = tp_size,
                                                         .tp_rank = shard,
                                                         .layers = layers,
                                                         .page_size = limits.page_size,
                                                         .pages = limits.pages,
                                                         .kv_dtype = kv_dtype}));
      int64_t weights = 0, buffers = 0;
      for (const auto& weight : rank.program.weights) weights += kernels::PackedBytes(weight.spec);
      const int64_t outputs = plan::MaxOutputs(limits.max_num_seqs, limits.max_micro_batch_rows);
      for (size_t i = 0; i < rank.program.buffers.size(); ++i) {
        const kernels::BufferSpec& buffer = rank.program.buffers[i];
        const bool tokens = buffer.rows == kernels::BufferSpec::Rows::kTokens;
        const auto id = static_cast<kernels::BufferId>(i);
        const bool per_batch = id == rank.program.input || id == rank.program.output;
        buffers += 4 * buffer.cols * (tokens ? limits.max_micro_batch_rows : outputs) *
                   (per_batch ? kernels::Executable::kBatches : 1);
      }
      EXPECT_EQ(planned.weight_bytes, weights);
      EXPECT_EQ(planned.kv_bytes, kernels::KvBytes(rank.kv));
      EXPECT_GE(planned.activation_bytes, buffers);
    }
  }
}

TEST(PlanMemoryTest, MatchesThePrograms) {
  for (const Shape& shape :
       {Shape{320, 64, 128, 8, 8, 8, 16, false}, Shape{301, 108, 136, 5, 8, 2, 26, true},
        Shape{2048, 256, 768, 8, 4, 2, 64, true}}) {
    for (int32_t tp_size : {1, 2, 4, 8}) {
      if (shape.heads % tp_size != 0) continue;
      for (int32_t pp_size : {1, 2, 3, 5}) Compare(shape, tp_size, pp_size, kernels::KvDType::kF32);
      Compare(shape, tp_size, 2, kernels::KvDType::kBF16);
      Compare(shape, tp_size, 2, kernels::KvDType::kInt8);
    }
  }
}

}  // namespace
}  // namespace skein
