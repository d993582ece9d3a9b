#include "model/tokenizer/sentence_piece_tokenizer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/printable.h"
#include "base/status_macros.h"
#include "model/tokenizer/scored_merges.h"
#include "model/tokenizer/sentence_piece_model.h"
#include "model/tokenizer/sentence_piece_normalizer.h"
#include "model/tokenizer/utf8.h"

namespace skein::model {
namespace {

using Piece = SentencePieceModel::Piece;
using Type = SentencePieceModel::Type;
using Algorithm = SentencePieceModel::Algorithm;

absl::Status CheckSupported(const SentencePieceModel& model) {
  const auto refuse = [](std::string_view what) {
    return absl::UnimplementedError(absl::StrCat(std::string(what), " is not supported"));
  };
  if (model.algorithm != Algorithm::kUnigram && model.algorithm != Algorithm::kBpe) {
    return refuse(absl::StrCat("trainer_spec.model_type ", static_cast<int>(model.algorithm),
                               " (1 is unigram, 2 is BPE)"));
  }
  if (model.treat_whitespace_as_suffix) return refuse("trainer_spec.treat_whitespace_as_suffix");
  if (!model.escape_whitespaces) return refuse("normalizer_spec.escape_whitespaces false");
  if (!model.denormalizer_charsmap.empty()) return refuse("denormalizer_spec");
  if (model.pieces.size() > kMaxVocabSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", model.pieces.size(), " pieces, at most ", kMaxVocabSize));
  }
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    if (piece.text.empty() || piece.text.size() > kMaxPieceBytes) {
      return absl::InvalidArgumentError(absl::StrCat("piece ", id, " has ", piece.text.size(),
                                                     " bytes, must have 1 to ", kMaxPieceBytes));
    }
    if (model.algorithm == Algorithm::kBpe && piece.text.size() > kMaxScoredTokenBytes) {
      return refuse(absl::StrCat("piece ", id, " of ", piece.text.size(), " bytes, more than ",
                                 kMaxScoredTokenBytes, ","));
    }
    if (FindInvalidUtf8(piece.text) != std::string_view::npos) {
      return absl::InvalidArgumentError(absl::StrCat("piece ", id, " is not UTF-8"));
    }
    if (piece.type == Type::kUnused)
      return refuse(absl::StrCat("piece ", id, ", which is unused,"));
  }
  return absl::OkStatus();
}

// The token of what no piece stands for; -1: none.
absl::StatusOr<int32_t> FindUnknown(const SentencePieceModel& model) {
  int32_t unknown = -1;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    if (model.pieces[id].type != Type::kUnknown) continue;
    if (unknown >= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("pieces ", unknown, " and ", id, " are both unknown"));
    }
    unknown = static_cast<int32_t>(id);
  }
  if (unknown < 0) return absl::InvalidArgumentError("has no unknown piece");
  return unknown;
}

absl::StatusOr<ByteIds> FindBytes(const SentencePieceModel& model) {
  ByteIds bytes = kNoByteIds;
  if (!model.byte_fallback) return bytes;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    if (model.pieces[id].type != Type::kByte) continue;
    const std::optional<uint8_t> byte = ByteOfToken(model.pieces[id].text);
    if (!byte) {
      return absl::InvalidArgumentError(absl::StrCat("piece ", id, " is '",
                                                     Printable(model.pieces[id].text),
                                                     "', a byte by its type; bytes are spelled as "
                                                     "<0x0A>"));
    }
    bytes[*byte] = static_cast<int32_t>(id);
  }
  if (std::find(bytes.begin(), bytes.end(), -1) != bytes.end()) {
    return absl::InvalidArgumentError("byte_fallback is true, but some bytes have no piece");
  }
  return bytes;
}

bool IsPlain(const Piece& piece) {
  return piece.type == Type::kNormal || piece.type == Type::kUserDefined;
}

absl::StatusOr<Bpe> MakeBpe(const SentencePieceModel& model, const ByteIds& bytes,
                            int32_t unknown) {
  Vocabulary vocabulary;
  std::vector<std::string> texts;
  std::vector<double> scores;
  for (const Piece& piece : model.pieces) {
    if (IsPlain(piece)) vocabulary.try_emplace(piece.text, static_cast<int32_t>(texts.size()));
    texts.push_back(piece.text);
    scores.push_back(piece.score);
  }
  SKEIN_ASSIGN_OR_RETURN(ScoredMerges scored, MergesOfScores(texts, scores, vocabulary));
  Bpe::CharacterOptions options;
  options.orders = std::move(scored.orders);
  options.bytes = bytes;
  options.unknown = unknown;
  options.fuse_unknown = true;
  return Bpe::CreateOfCharacters(vocabulary, scored.merges, std::move(options));
}

absl::StatusOr<Unigram> MakeUnigram(const SentencePieceModel& model, const ByteIds& bytes,
                                    int32_t unknown) {
  std::optional<float> least;
  for (const Piece& piece : model.pieces) {
    if (piece.type == Type::kNormal) least = std::min(least.value_or(piece.score), piece.score);
  }
  std::vector<Unigram::Piece> pieces;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    if (!IsPlain(piece)) continue;
    double score = piece.score;
    // Beats what it is made of, whose scores are not positive; SentencePiece 0.2 has it so.
    if (piece.type == Type::kUserDefined) {
      score = 0.1 * (static_cast<double>(piece.text.size()) - 1);
    }
    pieces.push_back({piece.text, static_cast<int32_t>(id), score});
  }
  constexpr float kUnknownPenalty = 10;
  Unigram::Options options;
  options.unknown_score = least.value_or(0) - kUnknownPenalty;
  options.bytes = bytes;
  options.unknown = unknown;
  options.float_sums = true;
  return Unigram::Create(pieces, options);
}

// Pieces that are found in the text before the model cuts it, and what the configuration adds.
std::vector<AddedToken> FindAdded(const SentencePieceModel& model, const TokenizerConfig& config) {
  std::vector<AddedToken> added = config.added_tokens;
  for (AddedToken& token : added) {
    token.normalized = false;  // they are looked for as they are written
    const auto id = static_cast<size_t>(token.id);
    token.special |=
        id < model.pieces.size() && token.content == model.pieces[id].text &&
        (model.pieces[id].type == Type::kControl || model.pieces[id].type == Type::kUnknown);
  }
  Vocabulary seen;
  for (const AddedToken& token : added) seen.try_emplace(token.content, token.id);
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    // A unigram model weighs user-defined pieces against others.
    const bool is_symbol = piece.type == Type::kUserDefined && model.algorithm == Algorithm::kBpe;
    if (!is_symbol && piece.type != Type::kControl) continue;
    if (piece.text.size() > kMaxAddedTokenBytes) continue;
    if (!seen.try_emplace(piece.text, static_cast<int32_t>(id)).second) continue;
    AddedToken token;
    token.content = piece.text;
    token.id = static_cast<int32_t>(id);
    token.special = piece.type == Type::kControl;
    token.normalized = is_symbol;  // behind the normalizer, which leaves them as they are
    added.push_back(std::move(token));
  }
  return added;
}

absl::StatusOr<Normalizer> MakeNormalizer(const SentencePieceModel& model,
                                          const TokenizerConfig& config) {
  SentencePieceNormalizer::Options options;
  SKEIN_ASSIGN_OR_RETURN(options.map, CharsMap::Parse(model.charsmap));
  for (const Piece& piece : model.pieces) {
    if (piece.type == Type::kUserDefined) options.symbols.push_back(piece.text);
  }
  options.add_dummy_prefix = config.add_prefix_space.value_or(model.add_dummy_prefix);
  options.prefix_at_begin_only = !config.legacy;
  options.remove_extra_whitespaces = model.remove_extra_whitespaces;
  std::vector<Normalizer::Step> steps;
  steps.emplace_back(SentencePieceNormalizer(std::move(options)));
  return Normalizer(std::move(steps));
}

PipelineTokenizer::Token TokenOf(const Piece& piece) {
  switch (piece.type) {
    case Type::kUnknown:
    case Type::kControl:
      return {piece.text, true};
    case Type::kByte:
      if (const std::optional<uint8_t> byte = ByteOfToken(piece.text)) {
        return {std::string(1, static_cast<char>(*byte)), false};
      }
      return {piece.text, false};
    default:
      return {UnmarkSpaces(piece.text), false};
  }
}

// The token that `said` names; else the control piece `id`; none where it is no control piece.
absl::StatusOr<std::vector<int32_t>> Affix(const SentencePieceModel& model,
                                           const std::vector<AddedToken>& added, bool add,
                                           const std::string& said, int32_t id) {
  if (!add) return std::vector<int32_t>{};
  if (!said.empty()) {
    for (const AddedToken& token : added) {
      if (token.content == said) return std::vector<int32_t>{token.id};
    }
    return absl::InvalidArgumentError(
        absl::StrCat("has no token '", Printable(said), "', which tokenizer_config.json names"));
  }
  const bool is_control = id >= 0 && static_cast<size_t>(id) < model.pieces.size() &&
                          model.pieces[static_cast<size_t>(id)].type == Type::kControl;
  return is_control ? std::vector<int32_t>{id} : std::vector<int32_t>{};
}

// A line of tiktoken's: base64, a space, a rank.
bool IsTiktoken(std::string_view bytes) {
  const std::string_view line = bytes.substr(0, bytes.find('\n'));
  const size_t space = line.find(' ');
  return space != line.npos && line.find_first_not_of("0123456789", space + 1) == line.npos &&
         std::all_of(line.begin(), line.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace

absl::StatusOr<std::unique_ptr<PipelineTokenizer>> ParseSentencePieceTokenizer(
    std::string_view bytes, const TokenizerConfig& config) {
  if (IsTiktoken(bytes)) {
    return absl::UnimplementedError(
        "is a vocabulary of tiktoken, not a SentencePiece model; take the model's tokenizer.json");
  }
  SKEIN_ASSIGN_OR_RETURN(const SentencePieceModel model, ParseSentencePieceModel(bytes));
  SKEIN_RETURN_IF_ERROR(CheckSupported(model));
  SKEIN_ASSIGN_OR_RETURN(const int32_t unknown, FindUnknown(model));
  SKEIN_ASSIGN_OR_RETURN(const ByteIds byte_ids, FindBytes(model));
  SKEIN_ASSIGN_OR_RETURN(Normalizer normalizer, MakeNormalizer(model, config));

  const std::vector<AddedToken> added = FindAdded(model, config);
  std::vector<PipelineTokenizer::Token> tokens;
  for (const Piece& piece : model.pieces) tokens.push_back(TokenOf(piece));
  for (size_t i = 0; i < config.added_tokens.size(); ++i) {  // the first of `added`
    const auto id = static_cast<size_t>(added[i].id);
    if (id >= tokens.size()) tokens.resize(id + 1);
    tokens[id] = {added[i].content, added[i].special};
  }
  std::optional<std::variant<Bpe, Unigram>> algorithm;
  if (model.algorithm == Algorithm::kBpe) {
    SKEIN_ASSIGN_OR_RETURN(algorithm, MakeBpe(model, byte_ids, unknown));
  } else {
    SKEIN_ASSIGN_OR_RETURN(algorithm, MakeUnigram(model, byte_ids, unknown));
  }
  PipelineTokenizer::Parts parts = {AddedTokens(added, std::move(normalizer)),
                                    PreTokenizer({}),
                                    *std::move(algorithm),
                                    std::move(tokens),
                                    {},
                                    {}};
  SKEIN_ASSIGN_OR_RETURN(parts.prefix,
                         Affix(model, added, config.add_bos_token, config.bos_token, model.bos_id));
  SKEIN_ASSIGN_OR_RETURN(parts.suffix,
                         Affix(model, added, config.add_eos_token, config.eos_token, model.eos_id));
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

}  // namespace skein::model
