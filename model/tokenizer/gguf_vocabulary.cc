#include "model/tokenizer/gguf_vocabulary.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/json/json.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "model/format/gguf_keys.h"
#include "model/format/gguf_writer.h"
#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/gguf_tokenizer.h"
#include "model/tokenizer/json_field.h"
#include "model/tokenizer/json_pipeline.h"
#include "model/tokenizer/pipeline_tokenizer.h"
#include "model/tokenizer/pre_tokenizer.h"
#include "model/tokenizer/published.h"
#include "model/tokenizer/sentence_piece_model.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/tokenizer_config.h"

namespace skein::model {
namespace {

using Values = GgufMetadata::Values;

constexpr int64_t kMaxFileBytes = 64 << 20;

// Tokens by id, as files hold them.
struct Tokens {
  std::vector<std::string> texts;
  std::vector<int32_t> types;
  std::vector<float> scores;  // empty where there are merges
  int64_t limit = 0;          // tokens from here on have no embedding, and no place in files

  void Set(int64_t id, std::string text, int32_t type) {
    if (id < 0 || id >= limit) return;
    if (static_cast<size_t>(id) >= texts.size()) {
      texts.resize(static_cast<size_t>(id) + 1);
      types.resize(texts.size(), kUnusedToken);
    }
    texts[static_cast<size_t>(id)] = std::move(text);
    types[static_cast<size_t>(id)] = type;
  }

  // Ids without a token get names of their own: files must not name two tokens alike.
  void Pad() {
    texts.resize(static_cast<size_t>(limit));
    types.resize(texts.size(), kUnusedToken);
    if (!scores.empty()) scores.resize(texts.size(), 0);
    for (size_t id = 0; id < texts.size(); ++id) {
      if (texts[id].empty()) texts[id] = absl::StrCat("[PAD", id, "]");
    }
  }

  void Write(Values& values) && {
    values[std::string(kGgufTokens)] = GgufTexts(std::move(texts));
    values[std::string(kGgufTokenTypes)] = GgufInt32s(types);
    if (!scores.empty()) values["tokenizer.ggml.scores"] = GgufFloat32s(scores);
  }
};

// The patterns by which text is cut before BPE over bytes.
absl::StatusOr<std::vector<std::string>> ReadPatterns(const JsonField& root) {
  SKEIN_ASSIGN_OR_RETURN(const JsonField field, root.Get("pre_tokenizer"));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<JsonField> members, Flatten(field, "pretokenizers"));
  std::vector<std::string> patterns;
  for (const JsonField& member : members) {
    SKEIN_ASSIGN_OR_RETURN(const std::string type, member.String("type"));
    if (type == "ByteLevel") {
      SKEIN_ASSIGN_OR_RETURN(const bool prefix, member.Bool("add_prefix_space", false));
      if (prefix) return member.Unimplemented("add_prefix_space has no word in GGUF files");
      SKEIN_ASSIGN_OR_RETURN(const bool use_regex, member.Bool("use_regex", true));
      if (use_regex) patterns.emplace_back(kGpt2Pattern);
    } else if (type == "Digits") {
      SKEIN_ASSIGN_OR_RETURN(const bool individual, member.Bool("individual_digits"));
      patterns.emplace_back(individual ? R"(\p{N})" : R"(\p{N}+)");
    } else if (type == "Split") {
      SKEIN_ASSIGN_OR_RETURN(const JsonField pattern, member.Get("pattern"));
      SKEIN_ASSIGN_OR_RETURN(patterns.emplace_back(), pattern.String("Regex"));
      SKEIN_ASSIGN_OR_RETURN(const std::string behavior, member.String("behavior"));
      SKEIN_ASSIGN_OR_RETURN(const bool invert, member.Bool("invert", false));
      // What nothing lies between is the same either way.
      if (behavior != "Isolated" && !(behavior == "Removed" && invert)) {
        return member.Unimplemented(
            absl::StrCat("behavior ", behavior, " has no word in GGUF files"));
      }
    } else {
      return member.Unimplemented(absl::StrCat("type ", type, " has no word in GGUF files"));
    }
  }
  return patterns;
}

absl::Status WritePreTokenizer(const JsonField& root, bool ignore_merges, Values& values) {
  SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> patterns, ReadPatterns(root));
  for (const PublishedPreTokenizer& published : PublishedPreTokenizers()) {
    if (published.ignore_merges != ignore_merges ||
        !std::equal(patterns.begin(), patterns.end(), published.patterns.begin(),
                    published.patterns.end())) {
      continue;
    }
    values[std::string(kGgufPreTokenizer)] = GgufText(published.names.front());
    return absl::OkStatus();
  }
  return root.Unimplemented(
      absl::StrCat("pre_tokenizer", ignore_merges ? " with model.ignore_merges" : "",
                   " is of no model that GGUF files have a name for (tokenizer.ggml.pre)"));
}

using Merges = std::vector<std::pair<std::string, std::string>>;

// The scores by which SentencePiece's BPE joins tokens in the order of `merges`.
std::vector<float> ScoresOf(const Merges& merges, const Tokens& tokens) {
  absl::flat_hash_map<std::string, size_t> first;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    first.try_emplace(merges[rank].first + merges[rank].second, rank);
  }
  // Floats count up to 2^24, more than there are merges.
  std::vector<float> scores;
  for (const std::string& text : tokens.texts) {
    const auto rank = first.find(text);
    scores.push_back(-static_cast<float>(rank == first.end() ? merges.size() : rank->second));
  }
  return scores;
}

// Files have no normalizers. NFC goes with names of pre-tokenizers, and is left to whoever makes
// the text; marks for spaces, and one before a text, are of vocabularies of characters.
absl::Status CheckNormalizer(const JsonField& root, bool of_bytes) {
  SKEIN_ASSIGN_OR_RETURN(const bool has, root.Has("normalizer"));
  if (!has) return absl::OkStatus();
  SKEIN_ASSIGN_OR_RETURN(const JsonField field, root.Get("normalizer"));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<JsonField> members, Flatten(field, "normalizers"));
  for (const JsonField& member : members) {
    SKEIN_ASSIGN_OR_RETURN(const std::string type, member.String("type"));
    if (of_bytes && type == "NFC") continue;
    if (!of_bytes && type == "Prepend") {
      SKEIN_ASSIGN_OR_RETURN(const std::string text, member.String("prepend"));
      if (text == kSpaceMark) continue;
    }
    if (!of_bytes && type == "Replace") {
      SKEIN_ASSIGN_OR_RETURN(const JsonField pattern, member.Get("pattern"));
      SKEIN_ASSIGN_OR_RETURN(const bool literal, pattern.Has("String"));
      SKEIN_ASSIGN_OR_RETURN(const std::string by, member.String("content"));
      if (literal && by == kSpaceMark && pattern.value().at("String") == " ") continue;
    }
    return member.Unimplemented(absl::StrCat("type ", type, " has no word in GGUF files"));
  }
  return absl::OkStatus();
}

// Whether a text of characters begins with a space.
absl::StatusOr<bool> ReadSpacePrefix(const JsonField& root) {
  SKEIN_ASSIGN_OR_RETURN(const bool has, root.Has("normalizer"));
  if (has) {
    SKEIN_ASSIGN_OR_RETURN(const JsonField field, root.Get("normalizer"));
    SKEIN_ASSIGN_OR_RETURN(const std::vector<JsonField> members, Flatten(field, "normalizers"));
    for (const JsonField& member : members) {
      SKEIN_ASSIGN_OR_RETURN(const std::string type, member.String("type"));
      if (type == "Prepend") return true;
    }
  }
  SKEIN_ASSIGN_OR_RETURN(const bool cuts, root.Has("pre_tokenizer"));
  if (!cuts) return false;
  SKEIN_ASSIGN_OR_RETURN(const JsonField field, root.Get("pre_tokenizer"));
  SKEIN_ASSIGN_OR_RETURN(const std::string type, field.String("type"));
  if (type != "Metaspace") return false;
  SKEIN_ASSIGN_OR_RETURN(const bool has_scheme, field.Has("prepend_scheme"));
  if (!has_scheme) return field.Bool("add_prefix_space", true);
  SKEIN_ASSIGN_OR_RETURN(const std::string scheme, field.String("prepend_scheme"));
  return scheme != "never";
}

absl::StatusOr<Values> OfJson(std::string_view text, int64_t vocab_size) {
  SKEIN_ASSIGN_OR_RETURN(const nlohmann::json document, ParseJson(text));
  const JsonField root(document, "");
  Spelling spelling;
  SKEIN_RETURN_IF_ERROR(ReadPreTokenizer(root, spelling).status());
  const bool of_bytes = spelling == Spelling::kBytes;
  SKEIN_ASSIGN_OR_RETURN(const JsonField model, root.Get("model"));
  SKEIN_ASSIGN_OR_RETURN(const bool has_type, model.Has("type"));
  if (has_type) {
    SKEIN_ASSIGN_OR_RETURN(const std::string type, model.String("type"));
    if (type != "BPE") {
      return model.Unimplemented(
          absl::StrCat("type ", type, " has no word in GGUF files that Skein reads"));
    }
  }
  SKEIN_ASSIGN_OR_RETURN(const JsonField vocab, model.Get("vocab"));
  Tokens tokens;
  tokens.limit = vocab_size;
  for (const auto& [token, value] : vocab.value().items()) {
    const bool is_byte = !of_bytes && ByteOfToken(token).has_value();
    SKEIN_ASSIGN_OR_RETURN(const int32_t id, JsonField(value, vocab.path()).Index(kMaxVocabSize));
    tokens.Set(id, token, is_byte ? kByteToken : kNormalToken);
  }
  std::string unknown;
  SKEIN_ASSIGN_OR_RETURN(const bool has_unknown, model.Has("unk_token"));
  if (has_unknown) {
    SKEIN_ASSIGN_OR_RETURN(unknown, model.String("unk_token"));
  }
  Values values;
  SKEIN_ASSIGN_OR_RETURN(const bool has_added, root.Has("added_tokens"));
  if (has_added) {
    SKEIN_ASSIGN_OR_RETURN(const JsonField list, root.Get("added_tokens"));
    SKEIN_ASSIGN_OR_RETURN(const std::vector<JsonField> elements, list.Elements());
    for (const JsonField& element : elements) {
      SKEIN_ASSIGN_OR_RETURN(const AddedToken added, ReadAddedToken(element));
      SKEIN_ASSIGN_OR_RETURN(const JsonField id_field, element.Get("id"));
      SKEIN_ASSIGN_OR_RETURN(const int32_t id, id_field.Index(kMaxVocabSize));
      const bool is_unknown = !of_bytes && added.content == unknown;
      // Files look for them in text whose spaces are not marked yet.
      tokens.Set(id, of_bytes || added.special ? added.content : UnmarkSpaces(added.content),
                 is_unknown      ? kUnknownToken
                 : added.special ? kControlToken
                                 : kUserDefinedToken);
      if (is_unknown) values["tokenizer.ggml.unknown_token_id"] = GgufUint32(id);
    }
  }
  SKEIN_ASSIGN_OR_RETURN(const Merges merges, ReadMerges(model));
  SKEIN_RETURN_IF_ERROR(CheckNormalizer(root, of_bytes));
  if (of_bytes) {
    SKEIN_ASSIGN_OR_RETURN(const bool ignore_merges, model.Bool("ignore_merges", false));
    SKEIN_RETURN_IF_ERROR(WritePreTokenizer(root, ignore_merges, values));
    values[std::string(kGgufTokenizer)] = GgufText("gpt2");
    std::vector<std::string> pairs;
    for (const auto& [left, right] : merges) pairs.push_back(absl::StrCat(left, " ", right));
    values["tokenizer.ggml.merges"] = GgufTexts(std::move(pairs));
  } else {
    SKEIN_ASSIGN_OR_RETURN(const bool ignore_merges, model.Bool("ignore_merges", false));
    if (ignore_merges) return model.Unimplemented("ignore_merges has no word in GGUF files");
    SKEIN_ASSIGN_OR_RETURN(const bool prefix, ReadSpacePrefix(root));
    values[std::string(kGgufTokenizer)] = GgufText("llama");
    values["tokenizer.ggml.add_space_prefix"] = GgufBool(prefix);
    tokens.scores = ScoresOf(merges, tokens);
  }
  tokens.Pad();
  std::move(tokens).Write(values);
  return values;
}

absl::StatusOr<Values> OfSentencePieces(std::string_view bytes, const TokenizerConfig& config,
                                        int64_t vocab_size) {
  using Type = SentencePieceModel::Type;
  SKEIN_ASSIGN_OR_RETURN(const SentencePieceModel model, ParseSentencePieceModel(bytes));
  const auto refuse = [](std::string_view what) {
    return absl::UnimplementedError(
        absl::StrCat(std::string(what), " has no word in GGUF files that Skein reads"));
  };
  if (model.algorithm != SentencePieceModel::Algorithm::kBpe) return refuse("unigram");
  if (!model.charsmap.empty()) return refuse("precompiled_charsmap");
  if (model.remove_extra_whitespaces) return refuse("remove_extra_whitespaces");
  const bool prefix = config.add_prefix_space.value_or(model.add_dummy_prefix);
  Tokens tokens;
  tokens.limit = vocab_size;
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    const bool is_symbol = piece.type == Type::kUserDefined;
    // Files cut a text at them first, and each part would begin with a space.
    if (is_symbol && prefix) return refuse("user-defined pieces beside add_dummy_prefix");
    // SentencePiece looks for symbols where spaces are marked already: one with a space is never
    // found.
    const bool is_found = is_symbol && piece.text.find(' ') == piece.text.npos;
    tokens.Set(static_cast<int64_t>(tokens.texts.size()),
               is_found ? UnmarkSpaces(piece.text) : piece.text,
               is_symbol && !is_found ? static_cast<int32_t>(kNormalToken)
                                      : static_cast<int32_t>(piece.type));  // of the same numbers
    tokens.scores.push_back(piece.score);
  }
  for (const AddedToken& added : config.added_tokens) {
    const auto id = static_cast<size_t>(added.id);
    const bool is_piece = id < model.pieces.size() && model.pieces[id].text == added.content;
    if (!is_piece) {
      tokens.Set(added.id, added.content, added.special ? kControlToken : kUserDefinedToken);
    }
  }
  tokens.Pad();
  Values values;
  values[std::string(kGgufTokenizer)] = GgufText("llama");
  values["tokenizer.ggml.add_space_prefix"] = GgufBool(prefix);
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    if (model.pieces[id].type != Type::kUnknown) continue;
    values["tokenizer.ggml.unknown_token_id"] = GgufUint32(static_cast<int64_t>(id));
  }
  std::move(tokens).Write(values);
  return values;
}

// What a text begins and ends with.
absl::Status WriteAffixes(const Tokenizer& tokenizer, Values& values) {
  SKEIN_ASSIGN_OR_RETURN(const std::vector<int32_t> affixes, tokenizer.Encode("", {}));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<int32_t> around, tokenizer.Encode("a", {}));
  const bool begins = !affixes.empty() && !around.empty() && around.front() == affixes.front();
  const bool ends = affixes.size() > (begins ? 1u : 0u);
  if (affixes.size() > 2 || (ends && around.back() != affixes.back())) {
    return absl::UnimplementedError(
        absl::StrCat("puts ", affixes.size(),
                     " tokens around a text; GGUF files have words for one before and one behind"));
  }
  values["tokenizer.ggml.add_bos_token"] = GgufBool(begins);
  values["tokenizer.ggml.add_eos_token"] = GgufBool(ends);
  if (begins) values[std::string(kGgufBosId)] = GgufUint32(affixes.front());
  if (ends) values[std::string(kGgufEosId)] = GgufUint32(affixes.back());
  return absl::OkStatus();
}

// What is read back must be the tokenizer that was written.
absl::Status CheckSame(const Tokenizer& folder, const Values& values) {
  SKEIN_ASSIGN_OR_RETURN(const auto file, ParseGgufTokenizer(GgufMetadata(values)));
  for (int32_t id = 0; id < std::min(folder.vocab_size(), file->vocab_size()); ++id) {
    const std::string bytes = folder.TokenBytes(id, /*skip_special=*/false);
    if (!bytes.empty() && bytes != file->TokenBytes(id, /*skip_special=*/false)) {
      return absl::UnimplementedError(absl::StrCat("token ", id, " (\"", absl::CHexEscape(bytes),
                                                   "\") has no spelling in GGUF files"));
    }
  }
  for (const char* text :
       {"", "Hello, world!", "  two  spaces \n\n and\tlines\r\n", "I'll don't WE'VE 1234567 3.14",
        "na\u00efve \u00e9l\u00e8ve", "\u4f60\u597d \u041f\u0440\u0438 \U0001f44d\U0001f3fd",
        "def f(x):\n    return x[0] + {'a': 1}", "<s></s><|endoftext|><unk>"}) {
    SKEIN_ASSIGN_OR_RETURN(const std::vector<int32_t> want, folder.Encode(text, {}));
    SKEIN_ASSIGN_OR_RETURN(const std::vector<int32_t> got, file->Encode(text, {}));
    if (want != got) {
      return absl::UnimplementedError(absl::StrCat(
          "as a GGUF file says it would give other ids for \"", absl::CHexEscape(text), "\""));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Values> MakeGgufVocabulary(const std::string& folder, int64_t vocab_size) {
  SKEIN_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(folder));
  std::string path = folder + "/tokenizer.json";
  absl::StatusOr<std::string> text = ReadFile(path, kMaxFileBytes);
  absl::StatusOr<Values> values;
  if (text.ok()) {
    values = OfJson(*text, vocab_size);
  } else {
    path = folder + "/tokenizer.model";
    SKEIN_ASSIGN_OR_RETURN(text, ReadFile(path, kMaxFileBytes));
    SKEIN_ASSIGN_OR_RETURN(const TokenizerConfig config, LoadTokenizerConfig(folder));
    values = OfSentencePieces(*text, config, vocab_size);
  }
  if (!values.ok()) return Annotate(values.status(), path);
  absl::Status status = WriteAffixes(*tokenizer, *values);
  if (status.ok()) status = CheckSame(*tokenizer, *values);
  if (!status.ok()) return Annotate(status, path);
  return values;
}

}  // namespace skein::model
