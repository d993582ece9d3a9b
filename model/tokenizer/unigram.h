// The unigram language model: of all ways to cut a text into pieces, the one whose scores
// (logarithms of probabilities) have the greatest sum. Kudo, "Subword Regularization" (2018).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/byte_trie.h"

namespace skein::model {

// Bounds the time that a byte of a text takes; the longest pieces in use have 93 bytes.
inline constexpr size_t kMaxPieceBytes = 1024;

// Immutable; any thread may use it, each with its own Work.
class Unigram {
 public:
  struct Piece {
    std::string text;  // UTF-8
    int32_t id = 0;
    double score = 0;  // finite
  };
  struct Options {
    // Of a character that is no piece.
    double unknown_score = 0;
    // What a run of such characters becomes: its bytes' tokens, or `unknown` where one is missing.
    ByteIds bytes = kNoByteIds;
    int32_t unknown = -1;
    // Sums are rounded to float, as SentencePiece has them.
    bool float_sums = false;
  };
  // Buffers kept between calls.
  struct Work {
    struct Best {
      double score;
      int32_t begin;  // of the piece that ends here; -1: none does
      int32_t piece;  // its index; -1: a character that is no piece
    };
    std::vector<Best> ends;
    std::vector<int32_t> cuts;
  };

  // InvalidArgument: a piece that is empty, too long or without a number; no `unknown`, and not a
  // token for each byte.
  static absl::StatusOr<Unigram> Create(const std::vector<Piece>& pieces, const Options& options);

  // Appends the ids of `text` (UTF-8, less than 2 GiB). Of equal sums the one whose last piece is
  // longer counts. Costs the longest piece's bytes of time and 20 bytes of work a byte.
  // `hidden` (null: none) tells of each id whether no text becomes this token.
  void Encode(std::string_view text, Work& work, std::vector<int32_t>& ids,
              const std::vector<bool>* hidden = nullptr) const;

 private:
  void AddUnknown(std::string_view text, const std::vector<bool>* hidden,
                  std::vector<int32_t>& ids) const;
  bool IsHidden(int32_t piece, const std::vector<bool>* hidden) const {
    return hidden != nullptr && (*hidden)[static_cast<size_t>(ids_[static_cast<size_t>(piece)])];
  }

  ByteTrie trie_;  // to the index in ids_ and scores_
  std::vector<int32_t> ids_;
  std::vector<double> scores_;
  Options options_;
};

}  // namespace skein::model
