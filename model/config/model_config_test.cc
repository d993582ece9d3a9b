#include "model/config/model_config.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/test_util.h"
#include "model/config/quantization_config.h"
#include "nlohmann/json.hpp"

namespace skein::model {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// As transformers 4 wrote Llama 3.1 8B.
constexpr char kLlama31[] = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "hidden_act": "silu",
  "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
  "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
  "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
  "pretraining_tp": 1, "rms_norm_eps": 1e-05,
  "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
  "transformers_version": "4.42.3", "use_cache": true, "vocab_size": 128256})";

constexpr char kSmall[] = R"({
  "architectures": ["LlamaForCausalLM"], "vocab_size": 2048, "hidden_size": 256,
  "intermediate_size": 768, "num_hidden_layers": 8, "num_attention_heads": 4,
  "max_position_embeddings": 1024})";

// kSmall with the fields of a patch; null removes one.
std::string Small(const std::string& patch) {
  json config = json::parse(kSmall);
  config.merge_patch(json::parse(patch));
  return config.dump();
}

TEST(ModelConfigTest, AWindowCountsWhereAllLayersHaveOneThatEnds) {
  ModelConfig config;
  EXPECT_EQ(config.LargestWindow(1000), 0);
  config.windows = {100, 300, 200};
  EXPECT_EQ(config.LargestWindow(1000), 300);
  EXPECT_EQ(config.LargestWindow(301), 300);
  EXPECT_EQ(config.LargestWindow(300), 0);  // no row looks back so far
  config.windows[1] = 0;
  EXPECT_EQ(config.LargestWindow(1000), 0);
}

TEST(ModelConfigTest, ReadsTransformers4) {
  SKEIN_ASSERT_OK_AND_ASSIGN(ModelConfig config, ParseModelConfig(kLlama31));
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.vocab_size, 128256);
  EXPECT_EQ(config.hidden_size, 4096);
  EXPECT_EQ(config.intermediate_size, 14336);
  EXPECT_EQ(config.num_layers, 32);
  EXPECT_EQ(config.num_heads, 32);
  EXPECT_EQ(config.num_kv_heads, 8);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(config.max_position_embeddings, 131072);
  EXPECT_EQ(config.rms_norm_eps, 1e-5);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_EQ(config.dtype, DType::kBF16);
  EXPECT_EQ(config.bos_token_id, 128000);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(128001, 128008, 128009));
  const RopeConfig rope = {500000.0, RopeConfig::Scaling::kLlama3, 8.0, 1.0, 4.0, 8192};
  EXPECT_EQ(config.rope, rope);
  EXPECT_EQ(config.ParameterCount(), 8030261248);  // as its model card says
}

TEST(ModelConfigTest, Transformers5MeansTheSame) {
  json config = json::parse(kLlama31);
  config["rope_parameters"] = config["rope_scaling"];
  config["rope_parameters"]["rope_theta"] = config["rope_theta"];
  config["dtype"] = config["torch_dtype"];
  for (const char* field : {"rope_scaling", "rope_theta", "torch_dtype"}) config.erase(field);
  SKEIN_ASSERT_OK_AND_ASSIGN(ModelConfig five, ParseModelConfig(config.dump()));
  SKEIN_ASSERT_OK_AND_ASSIGN(ModelConfig four, ParseModelConfig(kLlama31));
  EXPECT_EQ(five, four);
}

TEST(ModelConfigTest, Defaults) {
  SKEIN_ASSERT_OK_AND_ASSIGN(ModelConfig config, ParseModelConfig(kSmall));
  EXPECT_EQ(config.num_kv_heads, 4);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.rms_norm_eps, 1e-6);
  EXPECT_EQ(config.rope, RopeConfig{});
  EXPECT_EQ(config.bos_token_id, std::nullopt);
  EXPECT_THAT(config.eos_token_ids, IsEmpty());
}

TEST(ModelConfigTest, Variants) {
  const struct {
    const char* patch;
    std::function<bool(const ModelConfig&)> check;
  } kCases[] = {
      {R"({"architectures": null, "model_type": "llama"})",
       [](const auto& c) { return c.architecture == "LlamaForCausalLM"; }},
      {R"({"head_dim": 80})", [](const auto& c) { return c.head_dim == 80; }},
      {R"({"head_dim": 10, "num_attention_heads": 3, "num_key_value_heads": 1})",
       [](const auto& c) { return c.head_dim == 10 && c.num_kv_heads == 1; }},
      {R"({"eos_token_id": 0})",
       [](const auto& c) { return c.eos_token_ids == std::vector<int32_t>{0}; }},
      {R"({"eos_token_id": []})", [](const auto& c) { return c.eos_token_ids.empty(); }},
      {R"({"tie_word_embeddings": true})", [](const auto& c) { return c.tie_word_embeddings; }},
      {R"({"torch_dtype": "float32"})", [](const auto& c) { return c.dtype == DType::kF32; }},
      {R"({"dtype": "float16"})", [](const auto& c) { return c.dtype == DType::kF16; }},
      {R"({"rope_scaling": {"type": "default"}})",
       [](const auto& c) { return c.rope == RopeConfig{}; }},
      {R"({"rope_parameters": {"rope_theta": 7, "rope_type": "default"}})",
       [](const auto& c) { return c.rope.theta == 7.0; }},
      {R"({"rope_theta": 7, "rope_parameters": {"rope_theta": 7}})",
       [](const auto& c) { return c.rope.theta == 7.0; }},
      {R"({"attention_bias": false, "hidden_act": "silu", "partial_rotary_factor": 1.0})",
       [](const auto&) { return true; }},
      {R"({"attention_bias": true})",
       [](const auto& c) { return c.qkv_bias && c.output_bias && !c.mlp_bias; }},
      {R"({"mlp_bias": true})", [](const auto& c) { return c.mlp_bias && !c.qkv_bias; }},
      // The trained length is served as often as the factor says.
      {R"({"rope_scaling": {"type": "dynamic", "factor": 2}})",
       [](const auto& c) {
         return c.max_position_embeddings == 2048 &&
                c.rope.original_max_position_embeddings == 1024;
       }},
      // The same of YaRN, where the length is the trained one.
      {R"({"rope_scaling": {"type": "yarn", "factor": 4}})",
       [](const auto& c) { return c.max_position_embeddings == 4096; }},
      {R"({"rope_scaling": {"type": "yarn", "original_max_position_embeddings": 256}})",
       [](const auto& c) { return c.max_position_embeddings == 1024 && c.rope.factor == 4; }},
      // Outside the object it counts first.
      {R"({"original_max_position_embeddings": 128, "rope_scaling": {"type": "yarn", "factor": 2,
           "original_max_position_embeddings": 256}})",
       [](const auto& c) { return c.rope.original_max_position_embeddings == 128; }},
      {R"({"rope_scaling": {"type": "yarn", "factor": 4, "attention_factor": 1.5}})",
       [](const auto& c) {
         return c.rope.magnitude == 1.5 && c.rope.original_max_position_embeddings == 1024;
       }},
      // transformers' default, which null is not.
      {R"({"architectures": ["MistralForCausalLM"]})",
       [](const auto& c) { return c.windows == std::vector<int64_t>(8, 4096); }},
      {R"({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 64, "max_window_layers": 0})",
       [](const auto& c) { return c.windows.empty() && c.qkv_bias && !c.output_bias; }},
      {R"({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 64, "max_window_layers": 7,
           "use_sliding_window": true})",
       [](const auto& c) { return c.windows == std::vector<int64_t>{0, 0, 0, 0, 0, 0, 0, 64}; }},
      {R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": true})",
       [](const auto& c) { return c.qk_norm && c.head_dim == 128 && c.output_bias; }},
      {R"({"architectures": ["Phi3ForCausalLM"], "partial_rotary_factor": 0.75})",
       [](const auto& c) {
         return c.joined_projections && c.rope.RotaryDim(c.head_dim) == 48 &&
                c.rms_norm_eps == 1e-5;
       }},
      {R"({"architectures": ["Gemma2ForCausalLM"], "attn_logit_softcapping": 20})",
       [](const auto& c) {
         return c.attention_softcap == 20 && c.logits_softcap == 30 && c.WindowOf(0) == 4096 &&
                c.WindowOf(1) == 0 && c.head_dim == 256 && c.tie_word_embeddings &&
                c.embedding_scale == 16 && c.attention_scale == 1.0 / 16;
       }},
      // As transformers 4 writes it.
      {R"({"architectures": ["Gemma3ForCausalLM"], "sliding_window": 512, "sliding_window_pattern": 3,
           "rope_theta": 5e5, "rope_local_base_freq": 2e4,
           "rope_scaling": {"rope_type": "linear", "factor": 8}})",
       [](const auto& c) {
         return c.windows == std::vector<int64_t>{512, 512, 0, 512, 512, 0, 512, 512} &&
                c.rope.theta == 5e5 && c.rope.factor == 8 && c.window_rope->theta == 2e4 &&
                c.window_rope->scaling == RopeConfig::Scaling::kNone && c.logits_softcap == 0;
       }},
      {R"({"architectures": ["GraniteForCausalLM"]})",
       [](const auto& c) { return c.attention_scale == 1.0 && c.logits_scale == 1.0; }},
      {R"({"architectures": ["SmolLM3ForCausalLM"]})",
       [](const auto& c) {
         return c.unrotated ==
                    std::vector<bool>{false, false, false, true, false, false, false, true} &&
                c.rope.theta == 2e6;
       }},
  };
  for (const auto& test : kCases) {
    SCOPED_TRACE(test.patch);
    SKEIN_ASSERT_OK_AND_ASSIGN(ModelConfig config, ParseModelConfig(Small(test.patch)));
    EXPECT_TRUE(test.check(config));
  }
}

// By which fields mean "none" that have another default.
TEST(ModelConfigTest, NullIsNone) {
  json mistral = json::parse(Small(R"({"architectures": ["MistralForCausalLM"]})"));
  mistral["sliding_window"] = nullptr;
  SKEIN_ASSERT_OK_AND_ASSIGN(ModelConfig config, ParseModelConfig(mistral.dump()));
  EXPECT_THAT(config.windows, IsEmpty());
  json gemma = json::parse(Small(R"({"architectures": ["Gemma2ForCausalLM"]})"));
  gemma["attn_logit_softcapping"] = nullptr;
  gemma["final_logit_softcapping"] = nullptr;
  SKEIN_ASSERT_OK_AND_ASSIGN(config, ParseModelConfig(gemma.dump()));
  EXPECT_EQ(config.attention_softcap, 0);
  EXPECT_EQ(config.logits_softcap, 0);
}

TEST(ModelConfigTest, WindowsOfMixturesAreTheirOwn) {
  const auto windows = [](const char* name) {
    const auto config = ParseModelConfig(Small(absl::StrCat(
        R"({"num_hidden_layers": 4, "use_sliding_window": true, "sliding_window": 16,
            "max_window_layers": 3, "architectures": [")",
        name, "\"]}")));
    EXPECT_THAT(config, IsOk());
    return config.ok() ? config->windows : std::vector<int64_t>();
  };
  EXPECT_EQ(windows("Qwen2ForCausalLM"), (std::vector<int64_t>{0, 0, 0, 16}));
  EXPECT_EQ(windows("Qwen2MoeForCausalLM"), (std::vector<int64_t>{16, 0, 16, 0}));
  EXPECT_EQ(windows("Qwen3MoeForCausalLM"), (std::vector<int64_t>{16, 16, 16, 16}));
}

TEST(ModelConfigTest, MixturesHaveTheirDefaultsAndLimits) {
  SKEIN_ASSERT_OK_AND_ASSIGN(
      ModelConfig config, ParseModelConfig(Small(R"({"architectures": ["MixtralForCausalLM"]})")));
  EXPECT_EQ(config.experts.count, 8);
  EXPECT_EQ(config.experts.chosen, 2);
  EXPECT_EQ(config.experts.intermediate_size, config.intermediate_size);
  EXPECT_TRUE(config.experts.normalized);
  SKEIN_ASSERT_OK_AND_ASSIGN(config,
                             ParseModelConfig(Small(R"({"architectures": ["Qwen2MoeForCausalLM"],
                                         "num_hidden_layers": 6, "decoder_sparse_step": 2,
                                         "mlp_only_layers": [3]})")));
  EXPECT_EQ(config.experts.count, 60);
  EXPECT_EQ(config.experts.shared_intermediate_size, 5632);
  EXPECT_EQ(config.experts.absent, (std::vector<bool>{true, false, true, true, true, false}));
  EXPECT_EQ(config.LayersOfExperts(), 2);
  EXPECT_THAT(
      ParseModelConfig(Small(R"({"architectures": ["Qwen3MoeForCausalLM"],
                                         "num_experts": 4})")),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most the number of experts, 4")));
}

// GPTQ's first version adds one to zero points, whichever field says which it is.
TEST(QuantizationConfigTest, VersionsOfGptq) {
  const auto added = [](const char* fields) {
    const auto config = ReadQuantizationConfig(nlohmann::json::parse(absl::StrCat(
        R"({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 64)", fields,
        "}}")));
    EXPECT_THAT(config, IsOk());
    EXPECT_EQ((*config)->group_cols, 64);
    return (*config)->added_zero;
  };
  EXPECT_EQ(added(""), 1);
  EXPECT_EQ(added(R"(, "checkpoint_format": "gptq")"), 1);
  EXPECT_EQ(added(R"(, "checkpoint_format": "gptq_v2")"), 0);
  EXPECT_EQ(added(R"(, "format": "GPTQ_V2")"), 0);
}

TEST(ModelConfigTest, WhatIsNotRunIsUnimplemented) {
  const struct {
    const char* patch;
    const char* field;
  } kCases[] = {
      {R"({"architectures": ["MambaForCausalLM"]})", "architectures is [\"MambaForCausalLM\"]"},
      {R"({"architectures": null, "model_type": "gpt2"})", "model_type is \"gpt2\""},
      {R"({"hidden_act": "gelu"})", "hidden_act is \"gelu\""},
      {R"({"quantization_config": {"quant_method": "bitsandbytes"}})",
       "quantization_config.quant_method is \"bitsandbytes\": Skein reads awq, gptq, fp8"},
      {R"({"quantization_config": {"quant_method": "fp8", "fmt": "e5m2"}})", "fmt is \"e5m2\""},
      {R"({"quantization_config": {"quant_method": "awq", "bits": 3}})", "bits is 3"},
      {R"({"quantization_config": {"quant_method": "awq", "bits": 4, "version": "gemv"}})",
       "version is \"gemv\""},
      {R"({"quantization_config": {"quant_method": "gptq", "bits": 8}})", "bits is 8"},
      {R"({"quantization_config":
           {"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}})",
       "checkpoint_format is \"marlin\""},
      {R"({"quantization_config": {"quant_method": "gptq", "bits": 4, "format": "marlin"}})",
       "quantization_config.format is \"marlin\""},
      {R"({"quantization_config": {"quant_method": "awq", "bits": 4, "format": "llm-awq"}})",
       "quantization_config.format is \"llm-awq\""},
      {R"({"compression_config": {"quant_method": "compressed-tensors", "config_groups":
           {"a": {"weights": {"num_bits": 4, "type": "float"}}}}})",
       "compression_config.config_groups.a.weights.num_bits is 4: with type float"},
      {R"({"quantization_config": {"quant_method": "compressed-tensors", "config_groups":
           {"a": {"weights": {"num_bits": 8, "symmetric": false}}}}})",
       "weights.symmetric is false"},
      {R"({"quantization_config":
           {"quant_method": "compressed-tensors", "sparsity_config": {"format": "marlin-24"}}})",
       "sparsity_config.format is \"marlin-24\""},
      {R"({"quantization_config":
           {"quant_method": "compressed-tensors", "transform_config": {"r1": {}}}})",
       "transform_config is"},
      {R"({"sliding_window": 4096})", "sliding_window"},
      {R"({"partial_rotary_factor": 0.5})", "partial_rotary_factor is 0.5"},
      {R"({"rope_parameters": {"partial_rotary_factor": 0.5}})",
       "rope_parameters.partial_rotary_factor"},
      {R"({"rope_parameters": {"full_attention": {"rope_theta": 5}}})",
       "rope_parameters.full_attention"},
      {R"({"rope_scaling": {"type": "proportional"}})", "rope_scaling.type is \"proportional\""},
      {R"({"architectures": ["Qwen2ForCausalLM"], "hidden_act": "gelu"})",
       "hidden_act is \"gelu\""},
      {R"({"architectures": ["Gemma2ForCausalLM"], "hidden_activation": "silu"})",
       "hidden_activation is \"silu\""},
      {R"({"architectures": ["Gemma3ForCausalLM"], "attention_bias": true})", "attention_bias"},
      {R"({"architectures": ["Gemma3ForCausalLM"], "use_bidirectional_attention": true})",
       "use_bidirectional_attention"},
      {R"({"architectures": ["SmolLM3ForCausalLM"], "use_sliding_window": true})",
       "use_sliding_window"},
      {R"({"architectures": ["Qwen3ForCausalLM"], "layer_types": ["full_attention",
           "full_attention", "full_attention", "full_attention", "full_attention",
           "full_attention", "full_attention", "linear_attention"]})",
       "layer_types"},
      {R"({"torch_dtype": "float8_e4m3fn"})", "torch_dtype is \"float8_e4m3fn\""},
  };
  for (const auto& test : kCases) {
    SCOPED_TRACE(test.patch);
    EXPECT_THAT(ParseModelConfig(Small(test.patch)),
                StatusIs(absl::StatusCode::kUnimplemented, HasSubstr(test.field)));
  }
}

TEST(ModelConfigTest, NonsenseIsRefusedWithFieldValueAndRange) {
  const struct {
    std::string text;
    std::vector<const char*> says;
  } kCases[] = {
      {"", {"bad JSON"}},
      {"[]", {"must be a JSON object"}},
      {R"({"vocab_size": 1)", {"bad JSON"}},
      {R"({"vocab_size": 1, "vocab_size": 2})", {"'vocab_size' appears twice"}},
      {std::string(100000, '['), {"nested deeper than 64"}},
      {Small(R"({"architectures": null})"), {"architectures is missing"}},
      {Small(R"({"architectures": []})"), {"architectures is []", "list of one name"}},
      {Small(R"({"vocab_size": null})"), {"vocab_size is missing", "[1, 16777216]"}},
      {Small(R"({"vocab_size": 0})"), {"vocab_size is 0", "[1, 16777216]"}},
      {Small(R"({"hidden_size": "256"})"), {"hidden_size is \"256\"", "an integer"}},
      {Small(R"({"hidden_size": 256.0})"), {"hidden_size is 256.0", "an integer"}},
      {Small(R"({"hidden_size": 18446744073709551615})"), {"hidden_size is 18446744073709551615"}},
      {Small(R"({"hidden_size": 1e300})"), {"hidden_size is 1e+300"}},
      {Small(R"({"num_hidden_layers": 10001})"), {"num_hidden_layers is 10001", "[1, 10000]"}},
      {Small(R"({"num_hidden_layers": -1})"), {"num_hidden_layers is -1"}},
      {Small(R"({"num_attention_heads": 0})"), {"num_attention_heads is 0"}},
      {Small(R"({"num_attention_heads": 3})"), {"head_dim is missing", "3 does not divide 256"}},
      {Small(R"({"num_key_value_heads": 3})"), {"num_key_value_heads is 3", "divide", "4"}},
      {Small(R"({"num_key_value_heads": 8})"), {"num_key_value_heads is 8", "[1, 4]"}},
      {Small(R"({"head_dim": 63})"), {"head_dim is 63", "even"}},
      {Small(R"({"head_dim": 2048})"), {"head_dim is 2048", "1024"}},
      {Small(R"({"num_attention_heads": 256})"), {"head_dim is 1", "even"}},
      {Small(R"({"intermediate_size": 1e9})"), {"intermediate_size"}},
      {Small(R"({"max_position_embeddings": 0})"), {"max_position_embeddings is 0"}},
      {Small(R"({"rms_norm_eps": 0})"), {"rms_norm_eps is 0", "[1e-12, 0.1]"}},
      {Small(R"({"rms_norm_eps": true})"), {"rms_norm_eps is true", "a number"}},
      {Small(R"({"tie_word_embeddings": 1})"), {"tie_word_embeddings is 1", "true or false"}},
      {Small(R"({"eos_token_id": -1})"), {"eos_token_id is -1", "token id"}},
      {Small(R"({"eos_token_id": [1, "x"]})"), {"eos_token_id is [1,\"x\"]"}},
      {Small(R"({"bos_token_id": [1, 2]})"), {"bos_token_id", "one token id"}},
      {Small(R"({"hidden_act": 3})"), {"hidden_act is 3", "a string"}},
      {Small(R"({"rope_theta": 0})"), {"rope_theta is 0", "[1, "}},
      {Small(R"({"quantization_config": 4})"), {"quantization_config must be an object"}},
      {Small(R"({"quantization_config": {"quant_method": "awq"}})"), {"bits is missing"}},
      {Small(R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128]}})"),
       {"quantization_config.weight_block_size is [128]", "two numbers"}},
      {Small(R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [0, 8]}})"),
       {"weight_block_size is [0,8]"}},
      {Small(R"({"quantization_config":
                 {"quant_method": "compressed-tensors", "config_groups": []}})"),
       {"config_groups must be an object"}},
      {Small(R"({"rope_scaling": 4})"), {"rope_scaling must be an object"}},
      {Small(R"({"rope_theta": 5, "rope_parameters": {"rope_theta": 6}})"),
       {"rope_theta is 5", "rope_parameters.rope_theta is 6"}},
      {Small(R"({"rope_scaling": {"rope_theta": 5}, "rope_parameters": {"rope_theta": 6}})"),
       {"contradict"}},
      {Small(R"({"rope_scaling": {"rope_type": "llama3", "factor": 8}})"),
       {"rope_scaling.low_freq_factor is missing"}},
      {Small(R"({"rope_scaling": {"rope_type": "llama3", "factor": 0.5, "low_freq_factor": 1,
                 "high_freq_factor": 4, "original_max_position_embeddings": 8192}})"),
       {"rope_scaling.factor is 0.5", "[1, 10000]"}},
      {Small(R"({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
                 "high_freq_factor": 4, "original_max_position_embeddings": 8192}})"),
       {"rope_scaling.high_freq_factor is 4", "above low_freq_factor"}},
      {Small(R"({"rope_scaling": {"type": "linear"}})"), {"rope_scaling.factor is missing"}},
      {Small(R"({"rope_theta": 1, "rope_scaling": {"type": "yarn", "factor": 4}})"),
       {"rope_scaling.rope_theta is missing", "above 1 for yarn"}},
      {Small(R"({"rope_scaling": {"type": "yarn", "factor": 4, "beta_fast": 1, "beta_slow": 2}})"),
       {"rope_scaling.beta_fast is 1", "below beta_slow, 2"}},
      {Small(R"({"rope_scaling": {"type": "dynamic", "factor": 2}, "head_dim": 2})"),
       {"rope_scaling.type is \"dynamic\"", "4 dimensions"}},
      {Small(R"({"rope_scaling": {"type": "longrope", "short_factor": [1], "long_factor": [1]}})"),
       {"rope_scaling.short_factor is [1]", "a list of 32 numbers"}},
      {Small(R"({"architectures": ["Phi3ForCausalLM"], "partial_rotary_factor": 0.01})"),
       {"partial_rotary_factor is 0.01", "nothing to rotate of heads of 64"}},
      {Small(R"({"architectures": ["Qwen3ForCausalLM"], "layer_types": ["full_attention"]})"),
       {"layer_types", "each of 8 layers"}},
      {Small(R"({"architectures": ["SmolLM3ForCausalLM"],
                 "no_rope_layers": [1, 1, 1, 1, 1, 1, "1", 0]})"),
       {"no_rope_layers is ["}},
      {Small(R"({"architectures": ["SmolLM3ForCausalLM"], "no_rope_layers": [1]})"),
       {"no_rope_layers is [1]"}},
  };
  for (const auto& test : kCases) {
    SCOPED_TRACE(test.text.substr(0, 300));
    const absl::Status status = ParseModelConfig(test.text).status();
    for (const char* part : test.says) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(part)));
    }
  }
}

TEST(ModelConfigTest, WrittenJsonReadsBackEqual) {
  for (const std::string& text :
       {std::string(kLlama31), std::string(kSmall),
        Small(R"({"tie_word_embeddings": true, "dtype": "float16", "eos_token_id": 3,
                  "attention_bias": true, "mlp_bias": true})")}) {
    SKEIN_ASSERT_OK_AND_ASSIGN(ModelConfig config, ParseModelConfig(text));
    SKEIN_ASSERT_OK_AND_ASSIGN(ModelConfig again, ParseModelConfig(ModelConfigToJson(config)));
    EXPECT_EQ(again, config);
  }
}

TEST(ModelConfigTest, InverseFrequenciesEqualAnIndependentTable) {
  const struct {
    double theta;
    int64_t head_dim;
    double factor;  // 0: no scaling
    double low;
    double high;
    int64_t original;
    std::vector<double> expected;
  } kCases[] = {
#include "model/config/rope_table.inc"
  };
  for (const auto& test : kCases) {
    SCOPED_TRACE(testing::Message() << test.theta << " " << test.head_dim << " " << test.factor);
    ModelConfig config;
    config.head_dim = test.head_dim;
    config.rope.theta = test.theta;
    if (test.factor != 0) {
      config.rope = {test.theta,   RopeConfig::Scaling::kLlama3, test.factor, test.low, test.high,
                     test.original};
    }
    const std::vector<float> actual = config.rope.InverseFrequencies(test.head_dim, 0);
    ASSERT_EQ(actual.size(), test.expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      EXPECT_NEAR(actual[i], test.expected[i], 1e-7 * test.expected[i]) << "frequency " << i;
    }
  }
}

TEST(ModelConfigTest, ParameterCountOfTiedEmbeddings) {
  SKEIN_ASSERT_OK_AND_ASSIGN(ModelConfig config,
                             ParseModelConfig(Small(R"({"num_key_value_heads": 2})")));
  const int64_t layer = 256 * 256 + 2 * 256 * 128 + 256 * 256 + 3 * 256 * 768 + 2 * 256;
  EXPECT_EQ(config.ParameterCount(), 2 * 2048 * 256 + 8 * layer + 256);
  config.tie_word_embeddings = true;
  EXPECT_EQ(config.ParameterCount(), 2048 * 256 + 8 * layer + 256);
}

TEST(GenerationDefaultsTest, ReadsAndRefuses) {
  SKEIN_ASSERT_OK_AND_ASSIGN(GenerationDefaults defaults, ParseGenerationDefaults(R"({
      "do_sample": true, "temperature": 0.6, "top_p": 0.9, "top_k": null, "min_p": 0,
      "typical_p": 0.95, "repetition_penalty": 1, "eos_token_id": [1, 2], "bos_token_id": 3,
      "transformers_version": "4.42.3"})"));
  GenerationDefaults expected;
  expected.do_sample = true;
  expected.temperature = 0.6;
  expected.top_p = 0.9;
  expected.min_p = 0.0;
  expected.typical_p = 0.95;
  expected.repetition_penalty = 1.0;
  expected.eos_token_ids = {1, 2};
  expected.bos_token_ids = {3};
  EXPECT_EQ(defaults, expected);
  SKEIN_ASSERT_OK_AND_ASSIGN(GenerationDefaults empty, ParseGenerationDefaults("{}"));
  EXPECT_EQ(empty, GenerationDefaults{});

  const struct {
    const char* text;
    const char* says;
  } kBad[] = {
      {"[]", "JSON object"},
      {R"({"temperature": -1})", "temperature is -1"},
      {R"({"temperature": "hot"})", "temperature is \"hot\""},
      {R"({"top_p": 1.5})", "top_p is 1.5: must be a number in [0, 1]"},
      {R"({"top_k": 2.5})", "top_k is 2.5"},
      {R"({"min_p": 2})", "min_p is 2"},
      {R"({"typical_p": -0.5})", "typical_p is -0.5"},
      {R"({"repetition_penalty": 0})", "repetition_penalty is 0"},
      {R"({"repetition_penalty": 0.001})", "must be a number in [0.01, 100]"},
      {R"({"do_sample": "yes"})", "do_sample is \"yes\""},
      {R"({"eos_token_id": 3000000000})", "eos_token_id is 3000000000"},
  };
  for (const auto& test : kBad) {
    EXPECT_THAT(ParseGenerationDefaults(test.text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(test.says)));
  }
}

}  // namespace
}  // namespace skein::model
