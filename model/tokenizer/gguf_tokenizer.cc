#include "model/tokenizer/gguf_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/printable.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "model/format/gguf_keys.h"
#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/published.h"
#include "model/tokenizer/scored_merges.h"
#include "model/tokenizer/utf8.h"

namespace skein::model {
namespace {

constexpr std::string_view kScores = "tokenizer.ggml.scores";
constexpr std::string_view kMerges = "tokenizer.ggml.merges";
constexpr std::string_view kUnknownId = "tokenizer.ggml.unknown_token_id";

absl::StatusOr<const PublishedPreTokenizer*> FindPublished(const GgufMetadata& metadata) {
  if (!metadata.Has(kGgufPreTokenizer)) {
    return absl::NotFoundError(
        absl::StrCat("has no metadata '", std::string(kGgufPreTokenizer),
                     "', which files of before May 2024 lack: convert the model again"));
  }
  SKEIN_ASSIGN_OR_RETURN(const std::string_view name, metadata.String(kGgufPreTokenizer));
  std::vector<std::string> known;
  for (const PublishedPreTokenizer& published : PublishedPreTokenizers()) {
    for (const std::string_view each : published.names) {
      if (each == name) return &published;
      known.emplace_back(each);
    }
  }
  return absl::UnimplementedError(absl::StrCat("metadata '", std::string(kGgufPreTokenizer),
                                               "' is '", Printable(name), "'; Skein knows ",
                                               absl::StrJoin(known, ", ")));
}

absl::StatusOr<PreTokenizer> MakePreTokenizer(const std::vector<std::string_view>& patterns) {
  std::vector<PreTokenizerStep> steps;
  for (const std::string_view pattern : patterns) {
    PreTokenizerStep& step = steps.emplace_back();
    SKEIN_ASSIGN_OR_RETURN(step.regex, Regex::Compile(pattern, /*literal=*/false));
  }
  return PreTokenizer(std::move(steps));
}

// Tokens by id, and their types.
struct Tokens {
  absl::Span<const std::string> texts;
  std::vector<int64_t> types;
};

absl::StatusOr<Tokens> ReadTokens(const GgufMetadata& metadata) {
  Tokens tokens;
  SKEIN_ASSIGN_OR_RETURN(tokens.texts, metadata.Strings(kGgufTokens));
  if (tokens.texts.empty() || tokens.texts.size() > kMaxVocabSize) {
    return absl::InvalidArgumentError(absl::StrCat("metadata '", std::string(kGgufTokens), "' has ",
                                                   tokens.texts.size(), " tokens, not 1 to ",
                                                   kMaxVocabSize));
  }
  if (metadata.Has(kGgufTokenTypes)) {
    SKEIN_ASSIGN_OR_RETURN(tokens.types, metadata.Integers(kGgufTokenTypes));
  } else {
    tokens.types.assign(tokens.texts.size(), kNormalToken);
  }
  if (tokens.types.size() != tokens.texts.size()) {
    return absl::InvalidArgumentError(absl::StrCat("metadata '", std::string(kGgufTokenTypes),
                                                   "' has ", tokens.types.size(), " types for ",
                                                   tokens.texts.size(), " tokens"));
  }
  for (size_t i = 0; i < tokens.types.size(); ++i) {
    if (tokens.types[i] >= kNormalToken && tokens.types[i] <= kByteToken) continue;
    return absl::InvalidArgumentError(absl::StrCat("metadata '", std::string(kGgufTokenTypes),
                                                   "' has ", tokens.types[i], " for token ", i,
                                                   "; 1 to 6 are known"));
  }
  return tokens;
}

// Whether BPE may make the token.
bool IsPlain(int64_t type) {
  return type == kNormalToken || type == kUserDefinedToken || type == kUnusedToken;
}

// Tokens of one text: the first is meant.
Vocabulary PlainTokens(const Tokens& tokens) {
  Vocabulary vocabulary;
  vocabulary.reserve(tokens.texts.size());
  for (size_t id = 0; id < tokens.texts.size(); ++id) {
    if (!IsPlain(tokens.types[id]) || tokens.texts[id].empty()) continue;
    vocabulary.try_emplace(tokens.texts[id], static_cast<int32_t>(id));
  }
  return vocabulary;
}

AddedTokens ReadAdded(const Tokens& tokens, Normalizer normalizer) {
  std::vector<AddedToken> added;
  Vocabulary seen;
  for (size_t id = 0; id < tokens.texts.size(); ++id) {
    const int64_t type = tokens.types[id];
    const std::string& text = tokens.texts[id];
    if (type != kControlToken && type != kUnknownToken && type != kUserDefinedToken) continue;
    // Longer ones are found as plain text.
    if (text.empty() || text.size() > kMaxAddedTokenBytes) continue;
    // Would cut characters of a text.
    if (FindInvalidUtf8(text) != std::string_view::npos) continue;
    if (!seen.try_emplace(text, static_cast<int32_t>(id)).second) continue;
    AddedToken token;
    token.content = text;
    token.id = static_cast<int32_t>(id);
    token.special = type != kUserDefinedToken;
    added.push_back(std::move(token));
  }
  return AddedTokens(std::move(added), std::move(normalizer));
}

// The bytes that a token stands for. `marked`: spaces are marks.
absl::StatusOr<PipelineTokenizer::Token> Decoded(const std::string& text, int64_t type,
                                                 bool marked) {
  if (type == kByteToken) {
    const std::optional<uint8_t> byte = ByteOfToken(text);
    if (!byte) {
      return absl::InvalidArgumentError(
          absl::StrCat("metadata '", std::string(kGgufTokens), "' has '", Printable(text),
                       "', a byte by its type; bytes are spelled as <0x0A>"));
    }
    return PipelineTokenizer::Token{std::string(1, static_cast<char>(*byte)), false};
  }
  if (!IsPlain(type)) return PipelineTokenizer::Token{text, true};
  if (type == kUserDefinedToken) return PipelineTokenizer::Token{text, false};
  if (marked) return PipelineTokenizer::Token{UnmarkSpaces(text), false};
  return PipelineTokenizer::Token{UnspellBytes(text).value_or(text), false};
}

using Merges = std::vector<std::pair<std::string, std::string>>;

// "left right". Tokens hold no spaces, which are spelled or marked.
absl::StatusOr<Merges> ReadMerges(const GgufMetadata& metadata) {
  SKEIN_ASSIGN_OR_RETURN(const absl::Span<const std::string> texts, metadata.Strings(kMerges));
  Merges merges;
  merges.reserve(texts.size());
  for (const std::string& text : texts) {
    const size_t space = text.find(' ', 1);
    if (space == text.npos || space + 1 == text.size()) {
      return absl::InvalidArgumentError(absl::StrCat("metadata '", std::string(kMerges), "' has '",
                                                     text,
                                                     "', not two tokens with a space between"));
    }
    merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  return merges;
}

absl::StatusOr<ScoredMerges> ReadScores(const GgufMetadata& metadata, const Tokens& tokens,
                                        const Vocabulary& vocabulary) {
  SKEIN_ASSIGN_OR_RETURN(const std::vector<double> scores, metadata.Numbers(kScores));
  if (scores.size() != tokens.texts.size()) {
    return absl::InvalidArgumentError(absl::StrCat("metadata '", std::string(kScores), "' has ",
                                                   scores.size(), " scores for ",
                                                   tokens.texts.size(), " tokens"));
  }
  absl::StatusOr<ScoredMerges> merges = MergesOfScores(tokens.texts, scores, vocabulary);
  if (!merges.ok()) {
    return Annotate(merges.status(), absl::StrCat("metadata '", std::string(kScores), "'"));
  }
  return merges;
}

// The token of what no other token stands for; -1: none.
absl::StatusOr<int32_t> ReadUnknown(const GgufMetadata& metadata, const Tokens& tokens) {
  if (!metadata.Has(kUnknownId)) return -1;
  SKEIN_ASSIGN_OR_RETURN(const int64_t id, metadata.Integer(kUnknownId));
  if (id < 0 || id >= static_cast<int64_t>(tokens.texts.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("metadata '", std::string(kUnknownId), "' is ", id, ", which is no token's"));
  }
  return static_cast<int32_t>(id);
}

absl::StatusOr<Bpe> MakeCharacterBpe(const GgufMetadata& metadata, const Tokens& tokens,
                                     bool by_scores) {
  const Vocabulary vocabulary = PlainTokens(tokens);
  ByteIds bytes = kNoByteIds;
  for (size_t id = 0; id < tokens.texts.size(); ++id) {
    if (tokens.types[id] != kByteToken) continue;
    const std::optional<uint8_t> byte = ByteOfToken(tokens.texts[id]);
    if (byte && bytes[*byte] < 0) {
      bytes[*byte] = static_cast<int32_t>(id);
    }
  }
  SKEIN_ASSIGN_OR_RETURN(const int32_t unknown, ReadUnknown(metadata, tokens));
  if (unknown < 0 && std::find(bytes.begin(), bytes.end(), -1) != bytes.end()) {
    return absl::InvalidArgumentError(absl::StrCat("metadata '", std::string(kGgufTokens),
                                                   "' has no token for some bytes, and there "
                                                   "is no '",
                                                   std::string(kUnknownId), "'"));
  }
  ScoredMerges found;
  if (by_scores) {
    SKEIN_ASSIGN_OR_RETURN(found, ReadScores(metadata, tokens, vocabulary));
  } else {
    SKEIN_ASSIGN_OR_RETURN(found.merges, ReadMerges(metadata));
  }
  Bpe::CharacterOptions options;
  options.orders = std::move(found.orders);
  options.bytes = bytes;
  options.unknown = unknown;
  return Bpe::CreateOfCharacters(vocabulary, found.merges, std::move(options));
}

absl::StatusOr<bool> BoolOr(const GgufMetadata& metadata, std::string_view key, bool fallback) {
  if (!metadata.Has(key)) return fallback;
  return metadata.Bool(key);
}

// The token that `key` names, if the file says that it is added.
absl::StatusOr<std::vector<int32_t>> ReadAffix(const GgufMetadata& metadata, std::string_view added,
                                               bool fallback, std::string_view key,
                                               size_t vocab_size) {
  SKEIN_ASSIGN_OR_RETURN(const bool add, BoolOr(metadata, added, fallback));
  // Where the file does not say that a token is added, it need not have one.
  if (!add || (!metadata.Has(added) && !metadata.Has(key))) return std::vector<int32_t>{};
  SKEIN_ASSIGN_OR_RETURN(const int64_t id, metadata.Integer(key));
  if (id < 0 || id >= static_cast<int64_t>(vocab_size)) {
    return absl::InvalidArgumentError(absl::StrCat("metadata '", std::string(key), "' is ", id,
                                                   ", the vocabulary has ", vocab_size, " tokens"));
  }
  return std::vector<int32_t>{static_cast<int32_t>(id)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<PipelineTokenizer>> ParseGgufTokenizer(
    const GgufMetadata& metadata) {
  SKEIN_ASSIGN_OR_RETURN(const std::string_view model, metadata.String(kGgufTokenizer));
  const bool bytes = model == "gpt2";
  const bool by_scores = model == "llama";
  if (!bytes && !by_scores && model != "gemma4") {
    return absl::UnimplementedError(absl::StrCat("metadata '", std::string(kGgufTokenizer),
                                                 "' is '", Printable(model),
                                                 "'; Skein knows gpt2, llama and gemma4"));
  }
  SKEIN_ASSIGN_OR_RETURN(const Tokens tokens, ReadTokens(metadata));
  bool add_bos = !bytes;
  std::vector<std::string_view> patterns;
  std::optional<Bpe> bpe;
  std::vector<Normalizer::Step> spaces;
  if (bytes) {
    SKEIN_ASSIGN_OR_RETURN(const PublishedPreTokenizer* published, FindPublished(metadata));
    SKEIN_ASSIGN_OR_RETURN(const Merges merges, ReadMerges(metadata));
    SKEIN_ASSIGN_OR_RETURN(const int32_t unknown, ReadUnknown(metadata, tokens));
    SKEIN_ASSIGN_OR_RETURN(
        bpe, Bpe::Create(PlainTokens(tokens), merges, published->ignore_merges, unknown));
    patterns = published->patterns;
    add_bos = published->add_bos;
  } else {
    SKEIN_ASSIGN_OR_RETURN(bpe, MakeCharacterBpe(metadata, tokens, by_scores));
    if (!by_scores) patterns = {R"([^\n]+|\n+)"};
    SKEIN_ASSIGN_OR_RETURN(const bool before,
                           BoolOr(metadata, "tokenizer.ggml.add_space_prefix", by_scores));
    if (before) spaces.push_back(Normalizer::Prepend{" "});
    spaces.push_back(Normalizer::Replace{" ", std::string(kSpaceMark)});
  }
  SKEIN_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, MakePreTokenizer(patterns));

  AddedTokens added = ReadAdded(tokens, Normalizer(std::move(spaces)));
  PipelineTokenizer::Parts parts = {
      std::move(added), std::move(pre_tokenizer), *std::move(bpe), {}, {}, {}};
  for (size_t id = 0; id < tokens.texts.size(); ++id) {
    SKEIN_ASSIGN_OR_RETURN(parts.tokens.emplace_back(),
                           Decoded(tokens.texts[id], tokens.types[id], !bytes));
  }
  SKEIN_ASSIGN_OR_RETURN(parts.prefix, ReadAffix(metadata, "tokenizer.ggml.add_bos_token", add_bos,
                                                 kGgufBosId, tokens.texts.size()));
  SKEIN_ASSIGN_OR_RETURN(parts.suffix, ReadAffix(metadata, "tokenizer.ggml.add_eos_token", false,
                                                 kGgufEosId, tokens.texts.size()));
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

}  // namespace skein::model
