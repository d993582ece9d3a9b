#include "model/tokenizer/unigram.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "model/tokenizer/utf8.h"

namespace skein::model {

absl::StatusOr<Unigram> Unigram::Create(const std::vector<Piece>& pieces, const Options& options) {
  if (options.unknown < 0 &&
      std::find(options.bytes.begin(), options.bytes.end(), -1) != options.bytes.end()) {
    return absl::InvalidArgumentError(
        "the vocabulary has no token for some bytes, and none for what is unknown");
  }
  Unigram unigram;
  unigram.options_ = options;
  for (const Piece& piece : pieces) {
    if (piece.text.empty() || piece.text.size() > kMaxPieceBytes) {
      return absl::InvalidArgumentError(absl::StrCat("token ", piece.id, " has ", piece.text.size(),
                                                     " bytes, must have 1 to ", kMaxPieceBytes));
    }
    if (!std::isfinite(piece.score)) {
      return absl::InvalidArgumentError(absl::StrCat("token ", piece.id, " has no score"));
    }
    unigram.trie_.Add(piece.text, static_cast<int32_t>(unigram.ids_.size()));
    unigram.ids_.push_back(piece.id);
    unigram.scores_.push_back(piece.score);
  }
  return unigram;
}

void Unigram::AddUnknown(std::string_view text, const std::vector<bool>* hidden,
                         std::vector<int32_t>& ids) const {
  // The unknown piece itself is one as it is spelled, too.
  int32_t spelled = -1;
  trie_.ForEachPrefix(text, [&](size_t size, int32_t piece) {
    if (size == text.size() && !IsHidden(piece, hidden)) spelled = ids_[static_cast<size_t>(piece)];
  });
  const auto id_of = [this](char byte) { return options_.bytes[static_cast<unsigned char>(byte)]; };
  if (spelled >= 0) {
    ids.push_back(spelled);
  } else if (std::any_of(text.begin(), text.end(), [&](char byte) { return id_of(byte) < 0; })) {
    ids.push_back(options_.unknown);
  } else {
    for (const char byte : text) ids.push_back(id_of(byte));
  }
}

void Unigram::Encode(std::string_view text, Work& work, std::vector<int32_t>& ids,
                     const std::vector<bool>* hidden) const {
  if (text.empty()) return;
  auto& [ends, cuts] = work;
  ends.assign(text.size() + 1, {0, -1, -1});
  const auto offer = [&](size_t begin, size_t end, double score, int32_t piece) {
    double sum = ends[begin].score + score;
    if (options_.float_sums) sum = static_cast<float>(sum);
    if (ends[end].begin >= 0 && sum <= ends[end].score) return;
    ends[end] = {sum, static_cast<int32_t>(begin), piece};
  };
  for (size_t begin = 0; begin < text.size();) {
    size_t next = begin;
    ReadCodePoint(text, next);
    bool has_character = false;
    trie_.ForEachPrefix(text.substr(begin), [&](size_t size, int32_t piece) {
      if (IsHidden(piece, hidden)) return;
      offer(begin, begin + size, scores_[static_cast<size_t>(piece)], piece);
      has_character |= begin + size == next;
    });
    if (!has_character) offer(begin, next, options_.unknown_score, -1);
    begin = next;
  }

  cuts.clear();
  for (auto end = static_cast<int32_t>(text.size()); end > 0;
       end = ends[static_cast<size_t>(end)].begin) {
    cuts.push_back(end);
  }
  size_t unknown = text.npos;  // where a run of characters begins that are no pieces
  size_t begin = 0;
  const auto end_unknown = [&] {
    if (unknown != text.npos) AddUnknown(text.substr(unknown, begin - unknown), hidden, ids);
    unknown = text.npos;
  };
  for (auto cut = cuts.rbegin(); cut != cuts.rend(); ++cut) {
    const int32_t piece = ends[static_cast<size_t>(*cut)].piece;
    if (piece < 0 || ids_[static_cast<size_t>(piece)] == options_.unknown) {
      if (unknown == text.npos) unknown = begin;
    } else {
      end_unknown();
      ids.push_back(ids_[static_cast<size_t>(piece)]);
    }
    begin = static_cast<size_t>(*cut);
  }
  end_unknown();
}

}  // namespace skein::model
