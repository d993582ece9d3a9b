// A tokenizer put together from its parts: added tokens and a normalizer, a pre-tokenizer, a model
// (BPE of bytes or of characters, unigram), affixes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/bpe.h"
#include "model/tokenizer/pre_tokenizer.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/unigram.h"

namespace skein::model {

// The largest vocabulary in use has 262,208 tokens; a table by id is made up to the highest.
inline constexpr int32_t kMaxVocabSize = 1 << 22;

class PipelineTokenizer final : public Tokenizer {
 public:
  struct Token {
    std::string bytes;  // empty where ids have a hole
    bool special = false;
  };
  struct Parts {
    AddedTokens added;
    PreTokenizer pre_tokenizer;
    std::variant<Bpe, Unigram> model;
    std::vector<Token> tokens;  // by id
    // Ids that the post-processor puts before and after a text.
    std::vector<int32_t> prefix;
    std::vector<int32_t> suffix;
  };

  // Buffers of models.
  struct Work {
    Bpe::Work bpe;
    Unigram::Work unigram;
  };

  explicit PipelineTokenizer(Parts parts);

  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              const EncodeOptions& options) const override;
  std::string TokenBytes(int32_t id, bool skip_special) const override;
  int32_t vocab_size() const override { return static_cast<int32_t>(parts_.tokens.size()); }
  bool IsSpecial(int32_t id) const override;

  // Encode with the caller's buffers, in which it leaves what it cost.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, const EncodeOptions& options,
                                              Work& work) const;

 private:
  void EncodePiece(std::string_view piece, const std::vector<bool>* hidden, Work& work,
                   std::vector<int32_t>& ids) const;
  const Token* Find(int32_t id) const;  // null: outside of the vocabulary

  Parts parts_;
  std::vector<bool> special_;  // by id
};

}  // namespace skein::model
