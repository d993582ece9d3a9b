#include "model/tokenizer/sentence_piece_model.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::model {
namespace {

using ::google::protobuf::internal::WireFormatLite;
using ::google::protobuf::io::CodedInputStream;

// One field at a time: a number or bytes, by its wire type.
class Fields {
 public:
  explicit Fields(std::string_view bytes)
      : in_(reinterpret_cast<const uint8_t*>(bytes.data()), static_cast<int>(bytes.size())) {}

  // Moves to the next field; false: at the end, or where the bytes are broken.
  bool Next() {
    const uint32_t tag = in_.ReadTag();
    if (tag == 0) {
      broken_ |= !in_.ConsumedEntireMessage();
      return false;
    }
    field = static_cast<int>(tag >> 3);
    number = 0;
    bytes.clear();
    uint32_t size = 0;
    bool read = false;
    switch (tag & 7) {
      case WireFormatLite::WIRETYPE_VARINT:
        read = in_.ReadVarint64(&number);
        break;
      case WireFormatLite::WIRETYPE_FIXED32:
        read = in_.ReadLittleEndian32(&size);
        number = size;
        break;
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
        read = in_.ReadVarint32(&size) && in_.ReadString(&bytes, static_cast<int>(size));
        break;
      default:
        read = WireFormatLite::SkipField(&in_, tag);
        break;
    }
    broken_ |= !read;
    return read;
  }
  bool broken() const { return broken_; }

  int field = 0;
  uint64_t number = 0;
  std::string bytes;

 private:
  CodedInputStream in_;
  bool broken_ = false;
};

absl::Status Broken(std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("is no SentencePiece model: its ", std::string(what), " is cut off or broken"));
}

absl::Status ParsePiece(std::string_view bytes, SentencePieceModel& model) {
  SentencePieceModel::Piece piece;
  Fields fields(bytes);
  int32_t type = 1;
  while (fields.Next()) {
    switch (fields.field) {
      case 1:
        piece.text = std::move(fields.bytes);
        break;
      case 2:
        piece.score = std::bit_cast<float>(static_cast<uint32_t>(fields.number));
        break;
      case 3:
        type = static_cast<int32_t>(fields.number);
        break;
      default:
        break;
    }
  }
  if (fields.broken()) return Broken(absl::StrCat("piece ", model.pieces.size()));
  if (type < 1 || type > 6) {
    return absl::InvalidArgumentError(
        absl::StrCat("piece ", model.pieces.size(), " has type ", type, "; 1 to 6 are known"));
  }
  piece.type = static_cast<SentencePieceModel::Type>(type);
  model.pieces.push_back(std::move(piece));
  return absl::OkStatus();
}

absl::Status ParseTrainer(std::string_view bytes, SentencePieceModel& model) {
  Fields fields(bytes);
  while (fields.Next()) {
    switch (fields.field) {
      case 3:
        model.algorithm = static_cast<SentencePieceModel::Algorithm>(fields.number);
        break;
      case 24:
        model.treat_whitespace_as_suffix = fields.number != 0;
        break;
      case 35:
        model.byte_fallback = fields.number != 0;
        break;
      case 41:
        model.bos_id = static_cast<int32_t>(fields.number);
        break;
      case 42:
        model.eos_id = static_cast<int32_t>(fields.number);
        break;
      default:
        break;
    }
  }
  return fields.broken() ? Broken("trainer_spec") : absl::OkStatus();
}

absl::Status ParseNormalizer(std::string_view bytes, SentencePieceModel& model) {
  Fields fields(bytes);
  while (fields.Next()) {
    switch (fields.field) {
      case 2:
        model.charsmap = std::move(fields.bytes);
        break;
      case 3:
        model.add_dummy_prefix = fields.number != 0;
        break;
      case 4:
        model.remove_extra_whitespaces = fields.number != 0;
        break;
      case 5:
        model.escape_whitespaces = fields.number != 0;
        break;
      default:
        break;
    }
  }
  return fields.broken() ? Broken("normalizer_spec") : absl::OkStatus();
}

absl::Status ParseDenormalizer(std::string_view bytes, SentencePieceModel& model) {
  Fields fields(bytes);
  while (fields.Next()) {
    if (fields.field == 2) model.denormalizer_charsmap = std::move(fields.bytes);
  }
  return fields.broken() ? Broken("denormalizer_spec") : absl::OkStatus();
}

}  // namespace

absl::StatusOr<SentencePieceModel> ParseSentencePieceModel(std::string_view bytes) {
  SentencePieceModel model;
  Fields fields(bytes);
  while (fields.Next()) {
    absl::Status status;
    switch (fields.field) {
      case 1:
        status = ParsePiece(fields.bytes, model);
        break;
      case 2:
        status = ParseTrainer(fields.bytes, model);
        break;
      case 3:
        status = ParseNormalizer(fields.bytes, model);
        break;
      case 5:
        status = ParseDenormalizer(fields.bytes, model);
        break;
      default:
        break;
    }
    if (!status.ok()) return status;
  }
  if (fields.broken()) return Broken("list of fields");
  if (model.pieces.empty()) {
    return absl::InvalidArgumentError("is no SentencePiece model: it has no pieces");
  }
  return model;
}

}  // namespace skein::model
