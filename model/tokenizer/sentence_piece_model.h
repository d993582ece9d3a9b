// The message ModelProto that a SentencePiece model is (tokenizer.model), as far as encoding needs
// it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::model {

// Values are those of the format; fields that a file lacks have the format's defaults.
struct SentencePieceModel {
  enum class Type : int32_t {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6,
  };
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::kNormal;
  };
  enum class Algorithm : int32_t { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };

  std::vector<Piece> pieces;  // by id
  Algorithm algorithm = Algorithm::kUnigram;
  bool byte_fallback = false;
  bool treat_whitespace_as_suffix = false;
  int32_t bos_id = 1;
  int32_t eos_id = 2;
  std::string charsmap;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  std::string denormalizer_charsmap;
};

// InvalidArgument where the bytes are not such a message, or a piece has a type that is not known.
absl::StatusOr<SentencePieceModel> ParseSentencePieceModel(std::string_view bytes);

}  // namespace skein::model
