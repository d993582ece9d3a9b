#include "model/tokenizer/pipeline_tokenizer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/tokenizer/utf8.h"

namespace skein::model {
namespace {

// Positions in a pre-token are 32 bits; nobody sends a prompt of this size.
constexpr size_t kMaxTextBytes = 1 << 30;

}  // namespace

PipelineTokenizer::PipelineTokenizer(Parts parts) : parts_(std::move(parts)) {
  for (const Token& token : parts_.tokens) special_.push_back(token.special);
}

absl::StatusOr<std::vector<int32_t>> PipelineTokenizer::Encode(std::string_view text,
                                                               const EncodeOptions& options) const {
  Work work;
  return Encode(text, options, work);
}

absl::StatusOr<std::vector<int32_t>> PipelineTokenizer::Encode(std::string_view text,
                                                               const EncodeOptions& options,
                                                               Work& work) const {
  if (text.size() > kMaxTextBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("text has ", text.size(), " bytes, at most ", kMaxTextBytes, " are taken"));
  }
  if (const size_t offset = FindInvalidUtf8(text); offset != std::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat("text is not UTF-8 at byte ", offset));
  }
  std::vector<int32_t> ids;
  if (options.add_special_tokens) ids = parts_.prefix;
  SKEIN_ASSIGN_OR_RETURN(const AddedTokens::Pieces pieces,
                         parts_.added.Cut(text, options.parse_special, options.plain));
  // Those that count were found; what is left looks like one and is none.
  const std::vector<bool>* const hidden = options.parse_special ? &special_ : nullptr;
  bool first = pieces.begins_text;
  for (const AddedTokens::Piece& piece : pieces.pieces) {
    if (piece.id >= 0) {
      ids.push_back(piece.id);
    } else {
      SKEIN_ASSIGN_OR_RETURN(const PreTokens pre_tokens,
                             parts_.pre_tokenizer.Cut(piece.text, first));
      for (const std::string_view pre_token : pre_tokens.pieces) {
        EncodePiece(pre_token, hidden, work, ids);
      }
    }
    first = false;
  }
  if (options.add_special_tokens) {
    ids.insert(ids.end(), parts_.suffix.begin(), parts_.suffix.end());
  }
  return ids;
}

void PipelineTokenizer::EncodePiece(std::string_view piece, const std::vector<bool>* hidden,
                                    Work& work, std::vector<int32_t>& ids) const {
  if (const Bpe* const bpe = std::get_if<Bpe>(&parts_.model)) {
    bpe->Encode(piece, work.bpe, ids, hidden);
  } else {
    std::get<Unigram>(parts_.model).Encode(piece, work.unigram, ids, hidden);
  }
}

const PipelineTokenizer::Token* PipelineTokenizer::Find(int32_t id) const {
  return id >= 0 && id < vocab_size() ? &parts_.tokens[id] : nullptr;
}

std::string PipelineTokenizer::TokenBytes(int32_t id, bool skip_special) const {
  const Token* token = Find(id);
  return token == nullptr || (token->special && skip_special) ? "" : token->bytes;
}

bool PipelineTokenizer::IsSpecial(int32_t id) const {
  const Token* token = Find(id);
  return token != nullptr && token->special;
}

}  // namespace skein::model
