#include "model/config/check_weights.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/test_util.h"
#include "model/synthetic/synthetic.h"

namespace skein::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

ModelConfig SmallConfig(bool tied) {
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.vocab_size = 3000;
  config.hidden_size = 512;  // 6 MB of embeddings: several pieces
  config.intermediate_size = 128;
  config.num_layers = 2;
  config.num_heads = config.num_kv_heads = 4;
  config.head_dim = 128;
  config.tie_word_embeddings = tied;
  config.dtype = DType::kF32;
  return config;
}

// Another source with tensors of its own beside; rows of a matrix can be read.
class SourceWithMore final : public TensorSource {
 public:
  explicit SourceWithMore(const ModelConfig& config) : base_(MakeSyntheticWeights(config, "base")) {
    for (const TensorInfo& tensor : base_->tensors()) tensors_.push_back(tensor);
  }

  void Add(const std::string& name, const std::vector<int64_t>& shape,
           std::vector<std::byte> bytes = {}) {
    tensors_.push_back({name, DType::kF32, shape});
    const auto size = static_cast<size_t>(tensors_.back().elements()) * sizeof(float);
    if (bytes.empty()) bytes.resize(size, std::byte{1});
    std::sort(tensors_.begin(), tensors_.end(),
              [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
    bytes_[name] = std::move(bytes);
  }

  std::vector<std::byte> Embeddings() const {
    const TensorInfo* tensor = *base_->Find("model.embed_tokens.weight");
    std::vector<std::byte> bytes(static_cast<size_t>(tensor->elements()) * sizeof(float));
    const std::vector<Range> all = {{0, tensor->shape[0]}, {0, tensor->shape[1]}};
    SKEIN_EXPECT_OK(base_->Read(*tensor, all, absl::MakeSpan(bytes)));
    return bytes;
  }

  std::string_view description() const override { return "model.safetensors"; }
  absl::Span<const TensorInfo> tensors() const override { return tensors_; }

 protected:
  absl::Status ReadChecked(const TensorInfo& tensor, absl::Span<const Range> slice,
                           absl::Span<std::byte> out) const override {
    const auto own = bytes_.find(tensor.name);
    if (own == bytes_.end()) return base_->Read(**base_->Find(tensor.name), slice, out);
    const int64_t cols = tensor.shape.size() > 1 ? tensor.shape[1] : 1;
    const size_t row_bytes = static_cast<size_t>(cols) * sizeof(float);
    std::memcpy(out.data(), own->second.data() + slice[0].begin * row_bytes, out.size());
    return absl::OkStatus();
  }

 private:
  const std::unique_ptr<TensorSource> base_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::vector<std::byte>> bytes_;
};

TEST(CheckWeights, AModelAsItIsPublishedIsFine) {
  for (const bool tied : {false, true}) {
    const SourceWithMore source(SmallConfig(tied));
    SKEIN_ASSERT_OK_AND_ASSIGN(const auto warnings, CheckWeights(SmallConfig(tied), source));
    EXPECT_THAT(warnings, IsEmpty());
    EXPECT_EQ(source.bytes_read(), 0);
  }
}

TEST(CheckWeights, TensorsThatTheConfigHasNoPlaceForAreRefusedByName) {
  for (const char* name :
       {"model.layers.0.self_attn.q_proj.bias", "model.layers.1.mlp.down_proj.bias",
        "model.layers.0.self_attn.q_norm.weight", "model.layers.2.input_layernorm.weight",
        "model.layers.00.input_layernorm.weight", "model.norm.bias", "lm_head.bias",
        "model.layers.x.input_layernorm.weight", "model.embed_positions.weight"}) {
    SourceWithMore source(SmallConfig(false));
    source.Add(name, {8});
    EXPECT_THAT(CheckWeights(SmallConfig(false), source),
                StatusIs(kInvalid, AllOf(HasSubstr("model.safetensors"),
                                         HasSubstr(std::string("'") + name + "'"))));
  }
}

// Another source without one tensor, or with one of another type.
class ChangedSource final : public TensorSource {
 public:
  ChangedSource(const ModelConfig& config, const std::string& name, std::optional<DType> dtype)
      : base_(MakeSyntheticWeights(config, "base")) {
    for (TensorInfo tensor : base_->tensors()) {
      if (tensor.name == name) {
        if (!dtype) continue;
        tensor.dtype = *dtype;
      }
      tensors_.push_back(std::move(tensor));
    }
  }
  std::string_view description() const override { return "changed"; }
  absl::Span<const TensorInfo> tensors() const override { return tensors_; }

 protected:
  absl::Status ReadChecked(const TensorInfo&, absl::Span<const Range>,
                           absl::Span<std::byte>) const override {
    return absl::UnimplementedError("headers only");
  }

 private:
  std::unique_ptr<TensorSource> base_;
  std::vector<TensorInfo> tensors_;
};

// Programs that quantise give every matrix one.
TEST(CheckWeights, ABiasOfZerosAddsNothing) {
  const ModelConfig config = SmallConfig(false);
  SourceWithMore source(config);
  source.Add("model.layers.0.mlp.down_proj.bias", {512}, std::vector<std::byte>(2048));
  SKEIN_EXPECT_OK(CheckWeights(config, source).status());
  std::vector<std::byte> almost(2048);
  almost[2047] = std::byte{0x3f};
  source.Add("model.layers.1.mlp.down_proj.bias", {512}, almost);
  EXPECT_THAT(CheckWeights(config, source).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("'model.layers.1.mlp.down_proj.bias' has no place")));
}

TEST(CheckWeights, MissingTensorsAreRefusedByName) {
  for (const char* name : {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight",
                           "model.layers.1.mlp.up_proj.weight"}) {
    EXPECT_THAT(CheckWeights(SmallConfig(false), ChangedSource(SmallConfig(false), name, {})),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr(name)));
  }
  // Tied embeddings need no output matrix.
  EXPECT_THAT(
      *CheckWeights(SmallConfig(true), ChangedSource(SmallConfig(true), "lm_head.weight", {})),
      IsEmpty());
}

TEST(CheckWeights, TensorsOutsideOfTheNetworkAreTold) {
  SourceWithMore source(SmallConfig(false));
  source.Add("score.weight", {2, 64});
  source.Add("model.layers.1.self_attn.rotary_emb.inv_freq", {64});  // not worth a word
  EXPECT_THAT(*CheckWeights(SmallConfig(false), source),
              ElementsAre("model.safetensors: tensor 'score.weight' is not of the network and not "
                          "used"));
  source.Add("score.bias", {2});
  EXPECT_THAT(*CheckWeights(SmallConfig(false), source),
              ElementsAre(HasSubstr("'score.bias', as 1 more, is not")));
}

TEST(CheckWeights, AnOutputMatrixBesideTiedEmbeddingsMustEqualThem) {
  const ModelConfig config = SmallConfig(true);
  const std::vector<int64_t> shape = {config.vocab_size, config.hidden_size};
  const auto refused = StatusIs(
      kInvalid, AllOf(HasSubstr("'lm_head.weight'"), HasSubstr("tie_word_embeddings: true")));
  SourceWithMore same(config);
  const std::vector<std::byte> embeddings = same.Embeddings();
  same.Add("lm_head.weight", shape, embeddings);
  EXPECT_THAT(*CheckWeights(config, same), IsEmpty());
  for (const size_t at : {size_t{0}, embeddings.size() / 2, embeddings.size() - 1}) {
    SourceWithMore other(config);
    std::vector<std::byte> bytes = embeddings;
    bytes[at] ^= std::byte{1};
    other.Add("lm_head.weight", shape, bytes);
    EXPECT_THAT(CheckWeights(config, other), refused) << at;
  }
  SourceWithMore smaller(config);
  smaller.Add("lm_head.weight", {config.vocab_size - 1, config.hidden_size}, embeddings);
  EXPECT_THAT(CheckWeights(config, smaller), refused);
}

}  // namespace
}  // namespace skein::model
