// Byte-pair encoding of one pre-token, from its bytes or from its characters.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "model/tokenizer/byte_alphabet.h"

namespace skein::model {

// Tokens in the spelling of byte_alphabet.h, and their ids.
using Vocabulary = absl::flat_hash_map<std::string, int32_t>;

// Immutable; any thread may use it, each with its own Work.
class Bpe {
 public:
  // Buffers kept between calls, and what the calls cost.
  struct Work {
    struct Part {
      int32_t id;  // -1: was merged into an earlier part
      int32_t previous;
      int32_t next;
    };
    std::vector<Part> parts;
    std::vector<uint64_t> heap;
    int64_t bytes = 0;       // that were encoded
    int64_t candidates = 0;  // pairs that were taken off the heap, at most 3 a byte
  };

  // `merges` are in the order of their ranks; for a pair that is named twice the later rank counts.
  // With `ignore_merges` a pre-token that is itself a token is not taken apart. A byte that has no
  // token is `unknown`. InvalidArgument when a merge names or makes a token that the vocabulary
  // lacks, or when a byte that UTF-8 text can hold has no token and there is no `unknown` (-1).
  static absl::StatusOr<Bpe> Create(const Vocabulary& vocabulary,
                                    const std::vector<std::pair<std::string, std::string>>& merges,
                                    bool ignore_merges, int32_t unknown = -1);

  struct CharacterOptions {
    // Of the merges, ascending: of merges of one order the leftmost pair comes first, as in
    // SentencePiece; empty: each has its own.
    std::vector<uint32_t> orders;
    // What a character that is no token becomes: its bytes' tokens, or `unknown` where one is
    // missing, or nothing where there is none (-1).
    ByteIds bytes = kNoByteIds;
    int32_t unknown = -1;
    bool fuse_unknown = false;  // those behind each other become one
    bool ignore_merges = false;
  };
  // Starts from characters, of a vocabulary that spells tokens as they are. InvalidArgument when a
  // merge names or makes a token that the vocabulary lacks.
  static absl::StatusOr<Bpe> CreateOfCharacters(
      const Vocabulary& vocabulary, const std::vector<std::pair<std::string, std::string>>& merges,
      CharacterOptions options);

  // Appends the ids of `text` (UTF-8, less than 2 GiB): merges the adjacent pair of lowest rank,
  // the leftmost first, until none is left. Costs O(n log n) time and 20 bytes of work a byte.
  // `hidden` (null: none) tells of each id whether no text becomes this token.
  void Encode(std::string_view text, Work& work, std::vector<int32_t>& ids,
              const std::vector<bool>* hidden = nullptr) const;

 private:
  struct Merge {
    int32_t left;
    int32_t right;
    int32_t result;
  };

  absl::Status AddMerges(const Vocabulary& vocabulary,
                         const std::vector<std::pair<std::string, std::string>>& merges);
  // The parts that `text` starts with.
  void Start(std::string_view text, std::vector<Work::Part>& parts) const;
  // Puts the pair that begins at part `at` on the heap, if it can merge.
  bool AddCandidate(int32_t at, Work& work) const;

  bool from_characters_ = false;
  CharacterOptions options_;                              // also of bytes
  absl::flat_hash_map<uint32_t, int32_t> character_ids_;  // of code points
  std::vector<Merge> merges_;                             // by rank
  absl::flat_hash_map<uint64_t, uint32_t> rank_;          // of left id << 32 | right id
  // Bytes to id of every token; empty unless merges are ignored.
  absl::flat_hash_map<std::string, int32_t> whole_;
};

}  // namespace skein::model
