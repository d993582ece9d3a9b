// A tokenizer and a model that tests can compute in their head.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/service/served_model.h"
#include "gtest/gtest.h"
#include "model/tokenizer/tokenizer.h"

namespace skein::coordinator {

// Ids 0 to 255 are bytes; 256 is the special token "<eos>"; ids from 257 are `words`.
class FakeTokenizer final : public model::Tokenizer {
 public:
  static constexpr int32_t kEos = 256;
  static constexpr int32_t kFirstWord = 257;

  explicit FakeTokenizer(std::vector<std::string> words = {}) : words_(std::move(words)) {}

  // A token a byte; "<eos>" is found when special tokens are parsed, outside of plain bytes; 0xFF
  // is invalid.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              const model::EncodeOptions& options) const override {
    std::vector<int32_t> ids;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\xFF') {
        return absl::InvalidArgumentError(absl::StrCat("invalid UTF-8 at byte ", i));
      }
      const auto is_plain = [i](const Range& range) {
        return static_cast<size_t>(range.begin) < i + 5 && i < static_cast<size_t>(range.end);
      };
      if (options.parse_special && text.substr(i).starts_with("<eos>") &&
          std::none_of(options.plain.begin(), options.plain.end(), is_plain)) {
        ids.push_back(kEos);
        i += 4;
      } else {
        ids.push_back(static_cast<uint8_t>(text[i]));
      }
    }
    return ids;
  }

  std::string TokenBytes(int32_t id, bool skip_special) const override {
    if (id >= 0 && id < kEos) return std::string(1, static_cast<char>(id));
    if (id == kEos) return skip_special ? "" : "<eos>";
    const auto word = static_cast<size_t>(id - kFirstWord);
    return id > kEos && word < words_.size() ? words_[word] : "";
  }

  int32_t vocab_size() const override { return kFirstWord + static_cast<int32_t>(words_.size()); }
  bool IsSpecial(int32_t id) const override { return id == kEos; }

 private:
  std::vector<std::string> words_;
};

// "fake": 32 tokens of context unless told otherwise, greedy by default.
inline ServedModel MakeFakeModel(std::vector<std::string> words = {}, int64_t context = 32) {
  ServedModel model;
  model.path = "checkpoints/fake";
  model.identity = "identity";
  model.tokenizer = std::make_unique<FakeTokenizer>(std::move(words));
  model.config.architecture = "LlamaForCausalLM";
  model.config.vocab_size = model.tokenizer->vocab_size();
  model.config.hidden_size = 64;
  model.config.intermediate_size = 128;
  model.config.num_layers = 4;
  model.config.num_heads = 4;
  model.config.num_kv_heads = 2;
  model.config.head_dim = 16;
  model.config.max_position_embeddings = context;
  model.config.eos_token_ids = {FakeTokenizer::kEos};
  const absl::Status status = CompleteServedModel(model, 0);
  EXPECT_TRUE(status.ok()) << status;
  return model;
}

}  // namespace skein::coordinator
