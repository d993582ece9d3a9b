// The configuration of GGUF files: what keys mean, and what is refused by which name.
#include <cmath>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "model/config/model_config.h"
#include "model/format/gguf_bytes.h"
#include "model/format/test_files.h"

namespace skein::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

std::string Float(float value) { return LittleEndian(value); }

// A small Llama without tensors, but for those of `bytes`.
GgufBytes Small() {
  GgufBytes bytes;
  bytes.AddString("general.architecture", "llama")
      .AddUint32("llama.vocab_size", 100)
      .AddUint32("llama.context_length", 64)
      .AddUint32("llama.embedding_length", 32)
      .AddUint32("llama.feed_forward_length", 48)
      .AddUint32("llama.block_count", 2)
      .AddUint32("llama.attention.head_count", 4)
      .AddFloat32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  return bytes;
}

absl::StatusOr<ModelConfig> Load(const GgufBytes& bytes) {
  const std::string path = FreshFolder() + "/model.gguf";
  WriteTestFile(path, bytes.Build());
  return LoadModelConfig(path);
}

TEST(GgufConfigTest, AbsentKeysHaveDefaults) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const ModelConfig config, Load(Small()));
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.vocab_size, 100);
  EXPECT_EQ(config.num_kv_heads, 4);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.rope.theta, 10000.0);
  EXPECT_TRUE(config.tie_word_embeddings);  // there is no output matrix
  EXPECT_FALSE(config.bos_token_id.has_value());
  EXPECT_TRUE(config.eos_token_ids.empty());
}

TEST(GgufConfigTest, AnOutputMatrixIsNotTied) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const ModelConfig config,
                             Load(Small().AddTensor("output.weight", {1}, kGgmlF32, Float(1))));
  EXPECT_FALSE(config.tie_word_embeddings);
}

TEST(GgufConfigTest, EveryTokenThatEndsATurnEnds) {
  const auto type = [](int32_t number) { return LittleEndian(number); };
  GgufBytes bytes = Small();
  bytes.AddUint32("tokenizer.ggml.bos_token_id", 1)
      .AddUint32("tokenizer.ggml.eos_token_id", 2)
      .AddUint32("tokenizer.ggml.eot_token_id", 3)
      .AddUint32("tokenizer.ggml.eom_token_id", 4)
      // A control token, a user's, and plain text of the same words.
      .Add("tokenizer.ggml.tokens", GgufType::kArray,
           GgufStrings({"a", "b", "c", "d", "e", "<|im_end|>", "<|end|>", "<|eot_id|>", "<s>"}))
      .Add("tokenizer.ggml.token_type", GgufType::kArray,
           GgufArray(GgufType::kInt32, {type(1), type(1), type(1), type(1), type(1), type(3),
                                        type(4), type(1), type(3)}));
  SKEIN_ASSERT_OK_AND_ASSIGN(const ModelConfig config, Load(bytes));
  EXPECT_EQ(config.bos_token_id, 1);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(2, 3, 4, 5, 6));
  EXPECT_EQ(config.vocab_size, 9);  // as many as there are
}

TEST(GgufConfigTest, RopeDivisorsDivideFrequencies) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const ModelConfig plain, Load(Small()));
  SKEIN_ASSERT_OK_AND_ASSIGN(const ModelConfig divided,
                             Load(Small().AddTensor("rope_freqs.weight", {4}, kGgmlF32,
                                                    Float(1) + Float(1) + Float(4) + Float(8))));
  const std::vector<float> before = plain.rope.InverseFrequencies(plain.head_dim, 0);
  EXPECT_THAT(divided.rope.InverseFrequencies(divided.head_dim, 0),
              ElementsAre(before[0], before[1], before[2] / 4, before[3] / 8));
}

TEST(GgufConfigTest, ScalingsAreRead) {
  using Scaling = RopeConfig::Scaling;
  const struct {
    GgufBytes bytes;
    Scaling scaling;
    double factor;
  } kCases[] = {
      {Small().AddFloat32("llama.rope.scale_linear", 4.0f), Scaling::kLinear, 4},
      {Small().AddFloat32("llama.rope.scaling.factor", 4.0f), Scaling::kLinear, 4},
      {Small().AddFloat32("llama.rope.scaling.factor", 0.0f), Scaling::kNone, 1},
      {Small()
           .AddFloat32("llama.rope.scaling.factor", 4.0f)
           .AddString("llama.rope.scaling.type", "none"),
       Scaling::kNone, 1},
      {Small()
           .AddFloat32("llama.rope.scaling.factor", 8.0f)
           .AddString("llama.rope.scaling.type", "yarn")
           .AddUint32("llama.rope.scaling.original_context_length", 16),
       Scaling::kYarn, 8},
  };
  for (const auto& [bytes, scaling, factor] : kCases) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const ModelConfig config, Load(bytes));
    EXPECT_EQ(config.rope.scaling, scaling);
    EXPECT_EQ(config.rope.factor, factor);
    if (scaling == Scaling::kYarn) EXPECT_EQ(config.rope.original_max_position_embeddings, 16);
  }
}

TEST(GgufConfigTest, OneNumberForEachLayerIsOneForAll) {
  const auto number = [](uint32_t value) { return LittleEndian(value); };
  GgufBytes alike = Small();
  alike.Add("llama.attention.head_count_kv", GgufType::kArray,
            GgufArray(GgufType::kUint32, {number(2), number(2)}));
  SKEIN_ASSERT_OK_AND_ASSIGN(const ModelConfig config, Load(alike));
  EXPECT_EQ(config.num_kv_heads, 2);
  GgufBytes unlike = Small();
  unlike.Add("llama.attention.head_count_kv", GgufType::kArray,
             GgufArray(GgufType::kUint32, {number(2), number(4)}));
  EXPECT_THAT(Load(unlike),
              StatusIs(kUnimplemented,
                       AllOf(HasSubstr("'llama.attention.head_count_kv'"), HasSubstr("2 values"))));
}

TEST(GgufConfigTest, WhatIsNotComputedIsRefusedByItsKey) {
  const struct {
    const char* says;
    GgufBytes bytes;
  } kCases[] = {
      {"'general.architecture' is 'mamba'", GgufBytes().AddString("general.architecture", "mamba")},
      {"'llama.expert_weights_scale' is 2.5",
       Small().AddFloat32("llama.expert_weights_scale", 2.5f)},
      {"'llama.expert_gating_func' is 2", Small().AddUint32("llama.expert_gating_func", 2)},
      {"'llama.expert_shared_feed_forward_length' is 64; Skein runs MixtralForCausalLM without it",
       Small()
           .AddUint32("llama.expert_count", 8)
           .AddUint32("llama.expert_shared_feed_forward_length", 64)},
      {"'llama.attention.sliding_window' is 32",
       Small().AddUint32("llama.attention.sliding_window", 32)},
      {"partial_rotary_factor is 0.5", Small().AddUint32("llama.rope.dimension_count", 4)},
      {"'llama.final_logit_softcapping' is 30",
       Small().AddFloat32("llama.final_logit_softcapping", 30.0f)},
      {"'llama.rope.scaling.attn_factor' is 2",
       Small().AddFloat32("llama.rope.scaling.attn_factor", 2.0f)},
      {"longrope", Small().AddString("llama.rope.scaling.type", "longrope")},
      {"'\\xff'", Small().AddString("llama.rope.scaling.type", "\xff")},
      {"'llama.attention.value_length' is 16", Small()
                                                   .AddUint32("llama.attention.key_length", 8)
                                                   .AddUint32("llama.attention.value_length", 16)},
  };
  for (const auto& [says, bytes] : kCases) {
    EXPECT_THAT(Load(bytes),
                StatusIs(kUnimplemented, AllOf(HasSubstr("model.gguf"), HasSubstr(says))));
  }
}

// A tensor of no elements costs a file nothing, whatever its other sizes.
TEST(GgufConfigTest, TensorsOfTooManyExpertsAreRefused) {
  GgufBytes bytes = Small();
  bytes.AddTensor("blk.0.ffn_up_exps.weight", {0, 1, uint64_t{1} << 40}, /*type=*/0, "");
  EXPECT_THAT(Load(bytes), StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("'blk.0.ffn_up_exps.weight' is of 1099511627776")));
}

TEST(GgufConfigTest, MissingAndWrongKeysAreNamed) {
  EXPECT_THAT(Load(GgufBytes()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("'general.architecture'")));
  EXPECT_THAT(Load(GgufBytes().AddString("general.architecture", "llama")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("'llama.vocab_size'")));
  EXPECT_THAT(Load(Small().AddString("llama.attention.head_count_kv", "2")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("of type string")));
  EXPECT_THAT(Load(Small().AddUint32("llama.attention.head_count_kv", 3)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("num_key_value_heads")));
  EXPECT_THAT(Load(Small().AddTensor("rope_freqs.weight", {2}, kGgmlF32, Float(1) + Float(1))),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("each of 4 frequencies")));
  EXPECT_THAT(Load(Small().AddFloat32("llama.rope.freq_base", INFINITY)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'llama.rope.freq_base'")));
  EXPECT_THAT(Load(Small().AddTensor("rope_factors_long.weight", {4}, kGgmlF32,
                                     Float(1) + Float(1) + Float(1) + Float(1))),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("belong together")));
  EXPECT_THAT(
      Load(Small().AddUint32("llama.rope.dimension_count", 16)),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("'llama.rope.dimension_count' is 16: must be even and in [2, 8]")));
  EXPECT_THAT(Load(Small().AddUint32("tokenizer.ggml.eos_token_id", 100)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("'tokenizer.ggml.eos_token_id' is 100"))));
  EXPECT_THAT(Load(Small().AddTensor("rope_freqs.weight", {4}, kGgmlF32,
                                     Float(0) + Float(1) + Float(1) + Float(1))),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("holds 0")));
}

TEST(GgufConfigTest, TheChatTemplateIsTheFiles) {
  const std::string path = FreshFolder() + "/model.gguf";
  WriteTestFile(path, Small().AddString("tokenizer.chat_template", "{{ x }}").Build());
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto text, LoadChatTemplate(path));
  EXPECT_EQ(text, "{{ x }}");
  WriteTestFile(path, Small().Build());
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto none, LoadChatTemplate(path));
  EXPECT_FALSE(none.has_value());
}

}  // namespace
}  // namespace skein::model
